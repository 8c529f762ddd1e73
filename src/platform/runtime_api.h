/* The platform's side of Lambda's Runtime API: one server for one function's process, which polls
 * it for invocations and posts answers
 * (https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html). Any custom runtime works with
 * it. */
#ifndef FTH_PLATFORM_RUNTIME_API_H
#define FTH_PLATFORM_RUNTIME_API_H

#include <jansson.h>

#include "base/base.h"

/* Lambda's limit for events and answers. */
enum { FTH_RUNTIME_MAX_PAYLOAD = 6 * 1024 * 1024 + 100 };

typedef struct fth_runtime_api fth_runtime_api;

typedef struct fth_runtime_event {
    const char *request_id, *function_arn, *trace_id;
    const void *body; /* as sent: any JSON */
    size_t body_bytes;
    double start_s;   /* for the process to ask for an invocation */
    double timeout_s; /* the process's deadline, counted from the delivery of the event */
    double grace_s;   /* added to it before the process is given up */
} fth_runtime_event;

/* Zeroed, or filled by fth_runtime_api_invoke(); release it. */
typedef struct fth_runtime_answer {
    bool answered, failed; /* failed: the invocation or the initialization reported an error */
    char *body;            /* NUL-terminated; an error is normally an object with errorMessage and errorType */
    size_t body_bytes;
    char *error_type;   /* of Lambda-Runtime-Function-Error-Type, or NULL */
    double delivered_s; /* time of the delivery, fth_clock_seconds(); NAN: not delivered */
} fth_runtime_answer;
void fth_runtime_answer_release(fth_runtime_answer *answer);

fth_status fth_runtime_api_start(fth_runtime_api **api);
int fth_runtime_api_port(const fth_runtime_api *api);
/* Delivers one event to the process and waits for its answer; one at a time. FTH_TIMEOUT: no answer
 * in time. FTH_PEER_LOST: `alive`, if given, which is called every few milliseconds, returned
 * false. End the process after either. */
fth_status fth_runtime_api_invoke(fth_runtime_api *api, const fth_runtime_event *event, bool (*alive)(void *context),
                                  void *context, fth_runtime_answer *answer);
void fth_runtime_api_stop(fth_runtime_api *api);

#endif
