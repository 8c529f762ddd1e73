/* Lambda's Runtime API, the platform's side: one server for one function's process, which asks for invocations and answers them.
 * Programs of others run on it as they do on Lambda. */
#ifndef FTH_PLATFORM_RUNTIME_API_H
#define FTH_PLATFORM_RUNTIME_API_H

#include <jansson.h>

#include "base/base.h"

typedef struct fth_runtime_api fth_runtime_api;

typedef struct fth_runtime_event {
    const char *request_id, *function_arn, *trace_id;
    const void *body; /* as it was sent: any JSON */
    size_t body_bytes;
    double timeout_s;
} fth_runtime_event;

typedef struct fth_runtime_answer {
    bool answered, failed; /* failed: an error was reported, by the invocation or at initialization */
    char *body;            /* free() it */
    size_t body_bytes;
    char *error_type; /* of Lambda-Runtime-Function-Error-Type, or NULL; free() it */
} fth_runtime_answer;

fth_status fth_runtime_api_start(fth_runtime_api **api);
int fth_runtime_api_port(const fth_runtime_api *api);
/* Hands one event to the process and waits for its answer. FTH_TIMEOUT: none came before timeout_s; *alive, where given, is
 * asked every few milliseconds whether the process still lives: FTH_PEER_LOST if not. */
fth_status fth_runtime_api_invoke(fth_runtime_api *api, const fth_runtime_event *event, bool (*alive)(void *context),
                                  void *context, fth_runtime_answer *answer);
void fth_runtime_api_stop(fth_runtime_api *api);

#endif
