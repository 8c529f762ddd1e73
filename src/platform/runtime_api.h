/* Lambda's Runtime API, the platform's side: one server for one function's process, which asks for
 * invocations and answers them (https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html).
 * Programs of others run on it as they do on Lambda. */
#ifndef FTH_PLATFORM_RUNTIME_API_H
#define FTH_PLATFORM_RUNTIME_API_H

#include <jansson.h>

#include "base/base.h"

/* Of what a function is given and answers, as Lambda has it. */
enum { FTH_RUNTIME_MAX_PAYLOAD = 6 * 1024 * 1024 + 100 };

typedef struct fth_runtime_api fth_runtime_api;

typedef struct fth_runtime_event {
    const char *request_id, *function_arn, *trace_id;
    const void *body; /* as it was sent: any JSON */
    size_t body_bytes;
    double start_s;   /* that the process may take until it asks for an invocation */
    double timeout_s; /* the deadline that the process gets, counted from when it has the event */
    double grace_s;   /* and this much longer */
} fth_runtime_event;

/* Zeroed, or filled by fth_runtime_api_invoke(); release it. */
typedef struct fth_runtime_answer {
    bool answered, failed; /* failed: an error was reported, by the invocation or at initialization */
    char *body;            /* a NUL follows; an error's is an object with errorMessage and errorType, if all is well */
    size_t body_bytes;
    char *error_type;   /* of Lambda-Runtime-Function-Error-Type, or NULL */
    double delivered_s; /* when the process got it, fth_clock_seconds(); NAN: it never did */
} fth_runtime_answer;
void fth_runtime_answer_release(fth_runtime_answer *answer);

fth_status fth_runtime_api_start(fth_runtime_api **api);
int fth_runtime_api_port(const fth_runtime_api *api);
/* Hands one event to the process and waits for its answer; one at a time. FTH_TIMEOUT: none came in
 * time; `alive`, where given, is asked every few milliseconds whether the process still lives:
 * FTH_PEER_LOST if not. The process should be ended after either. */
fth_status fth_runtime_api_invoke(fth_runtime_api *api, const fth_runtime_event *event, bool (*alive)(void *context),
                                  void *context, fth_runtime_answer *answer);
void fth_runtime_api_stop(fth_runtime_api *api);

#endif
