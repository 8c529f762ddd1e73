/* One invocation of a function, whatever platform it runs on: what the contracts (openwhisk.h,
 * lambda.h) hand to the jobs (function.h). */
#ifndef FTH_FUNCTIONS_INVOCATION_H
#define FTH_FUNCTIONS_INVOCATION_H

#include <jansson.h>

#include "base/base.h"

/* A plain value; everything in it is lent for the time of the call. */
typedef struct fth_invocation_event {
    const char *platform;      /* "openwhisk", "lambda" */
    const char *id;            /* of the activation or request, printable; "": not said */
    const char *function;      /* name of the function; "": not said */
    const json_t *value;       /* the parameters: an object */
    const json_t *environment; /* object of strings: of /init, and what came with the invocation (__OW_API_HOST, ...) */
    double deadline_s;         /* on the monotonic clock (fth_clock_seconds()); INFINITY: none is known */
    uint64_t memory_limit_bytes; /* of the function; 0: not known */
    bool cold;                   /* the first of this process */
    double began_s; /* of the invocation on the monotonic clock; if cold, earlier by what the process needed to start */
    const fth_stop *stop; /* the platform asks to end at once; may be NULL */
} fth_invocation_event;

/* A variable of the invocation, or else of the process; NULL: neither has it. */
const char *fth_invocation_variable(const fth_invocation_event *event, const char *name);

#endif
