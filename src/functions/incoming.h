/* Input of an invocation over HTTP, for the contracts (openwhisk.h, lambda.h): JSON, times and
 * variables. None of it is trusted: size, depth and the number of values are bounded. */
#ifndef FTH_FUNCTIONS_INCOMING_H
#define FTH_FUNCTIONS_INCOMING_H

#include <jansson.h>
#include <stdint.h>

#include "base/base.h"

enum {
    FTH_INCOMING_MOST_BYTES = 8 << 20,    /* Lambda allows 6 MB, OpenWhisk 1 MB by default */
    FTH_INCOMING_MOST_VALUES = 200 * 1000 /* each costs some 100 bytes of the function's memory */
};

/* Parses one JSON value; *value is NULL for blank input. FTH_INVALID also for duplicate keys, NULs
 * and invalid UTF-8. */
fth_status fth_incoming_parse(const void *bytes, size_t size_bytes, json_t **value);

/* Converts milliseconds since 1970, as text, to the monotonic clock. NULL or "" is INFINITY. */
fth_status fth_incoming_deadline(const char *epoch_ms, double *deadline_s);

/* Sets `name` in an object of strings. Values that are not strings are written as JSON; null leaves
 * it unset. */
fth_status fth_incoming_set_variable(json_t *variables, const char *name, const json_t *value);

/* Copies an id or a name from outside; "" if it is missing, too long or not printable. */
void fth_incoming_copy_name(char *copy, size_t size, const char *text);

#endif
