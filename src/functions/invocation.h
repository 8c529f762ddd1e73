/* One invocation of a function on any platform: what the contracts (openwhisk.h, lambda.h) pass to
 * the jobs (function.h). */
#ifndef FTH_FUNCTIONS_INVOCATION_H
#define FTH_FUNCTIONS_INVOCATION_H

#include <jansson.h>

#include "base/base.h"

/* All pointers are lent for the time of the call. */
typedef struct fth_invocation_event {
    const char *platform;        /* "openwhisk", "lambda" */
    const char *id;              /* of the activation or request, printable; "": not given */
    const char *function;        /* name of the function; "": not given */
    const json_t *value;         /* the parameters: an object */
    const json_t *environment;   /* object of strings: from /init and the invocation (__OW_API_HOST, ...) */
    double deadline_s;           /* on the monotonic clock; INFINITY: unknown */
    uint64_t memory_limit_bytes; /* of the function; 0: unknown */
    bool cold;                   /* the first invocation of this process */
    double began_s;              /* on the monotonic clock; a cold invocation's includes the start of the process */
    const fth_stop *stop;        /* set when the platform ends the function; may be NULL */
} fth_invocation_event;

/* A variable of the invocation, or else of the process; or NULL. */
const char *fth_invocation_variable(const fth_invocation_event *event, const char *name);

#endif
