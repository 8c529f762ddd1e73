/* An instance's inside, for the two contracts. */
#ifndef FTH_PLATFORM_INSTANCE_INTERNAL_H
#define FTH_PLATFORM_INSTANCE_INTERNAL_H

#include "http/http.h"
#include "platform/instance.h"
#include "platform/runtime_api.h"
#include "platform/sandbox.h"

typedef struct fth_contract fth_contract;

struct fth_instance {
    fth_instance_options options;
    const fth_contract *contract;
    char *temporary;                     /* folder */
    char *output, *messages;             /* files of its two streams */
    uint64_t output_read, messages_read; /* how much of each has been given to an activation */
    fth_sandbox *sandbox;                /* NULL: not started */
    double began_s;                      /* of the process, monotonic */
    double answer_until_s;               /* when the platform stops; INFINITY: the process has not been asked to end */
    bool initialized;
    fth_runtime_api *api;    /* Lambda: where the process asks */
    fth_http_client *client; /* OpenWhisk: by which the process is asked */
    int port;
};

struct fth_contract {
    bool ends_logs; /* with a marker on each stream */
    /* What is needed before the process starts. */
    fth_status (*prepare)(fth_instance *instance);
    /* Variables that nobody can override, and the rest of the command line of our own program. */
    fth_status (*add_variables)(fth_instance *instance, fth_words *variables);
    fth_status (*add_words)(fth_instance *instance, fth_words *command);
    /* Runs one activation. A status other than FTH_OK has a message, and the process is looked at
     * for the reason: FTH_TIMEOUT, FTH_PEER_LOST; all other failures are in `run`. */
    fth_status (*run)(fth_instance *instance, const char *id, const json_t *value, fth_instance_run *run);
};

extern const fth_contract fth_contract_openwhisk, fth_contract_lambda;

enum { FTH_INSTANCE_START_S = 60 }; /* that a process may take to be ready */
#define FTH_INSTANCE_GRACE_S 0.25   /* after the time limit, until it is killed */

bool fth_instance_is_alive(void *instance); /* and may go on; when the platform stops, it is asked to end */
void fth_instance_fail(fth_instance_run *run, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* NAME=value, unless NAME is there already. */
fth_status fth_variable_add(fth_words *variables, const char *name, const char *value);

#endif
