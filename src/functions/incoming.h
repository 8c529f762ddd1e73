/* What comes with an invocation over HTTP, for the contracts (openwhisk.h, lambda.h): JSON of
 * others, times, variables. Nothing in it is trusted: sizes, depth and the number of values are
 * bounded. */
#ifndef FTH_FUNCTIONS_INCOMING_H
#define FTH_FUNCTIONS_INCOMING_H

#include <jansson.h>
#include <stdint.h>

#include "base/base.h"

enum {
    FTH_INCOMING_MOST_BYTES = 8 << 20, /* Lambda hands over 6 MB, OpenWhisk 1 MB unless its operator says otherwise */
    FTH_INCOMING_MOST_VALUES = 200 * 1000 /* each costs some 100 bytes of the function's memory */
};

/* Reads one JSON value. No bytes, or blank ones: *value is NULL. A key that occurs twice, a NUL and
 * invalid UTF-8 are errors (FTH_INVALID), as everything else that is no JSON. */
fth_status fth_incoming_parse(const void *bytes, size_t size_bytes, json_t **value);

/* Milliseconds since 1970, as text, to the monotonic clock. NULL or "": INFINITY. FTH_INVALID: that
 * is no such time. */
fth_status fth_incoming_deadline(const char *epoch_ms, double *deadline_s);

/* Sets `name` in an object of strings. What is not text already is written as JSON; null leaves it
 * unset. */
fth_status fth_incoming_set_variable(json_t *variables, const char *name, const json_t *value);

/* A copy of an id or a name of outside; "" where it is missing, too long, or not printable. */
void fth_incoming_copy_name(char *copy, size_t size, const char *text);

#endif
