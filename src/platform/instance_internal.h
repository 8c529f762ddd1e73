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
    uint64_t output_read, messages_read; /* how much of each belongs to earlier activations */
    fth_sandbox *sandbox;                /* NULL: not started */
    double began_s;                      /* of the process, monotonic */
    double answer_until_s;               /* after the process was asked to end; INFINITY: it was not */
    bool initialized;
    fth_runtime_api *api;    /* Lambda: the process polls it */
    fth_http_client *client; /* OpenWhisk: for requests to the process */
    int port;
};

struct fth_contract {
    bool ends_logs; /* with a marker on each stream */
    /* Prepares what the process needs to start. */
    fth_status (*prepare)(fth_instance *instance);
    /* Adds variables that users cannot override; and the arguments of our own program. */
    fth_status (*add_variables)(fth_instance *instance, fth_words *variables);
    fth_status (*add_words)(fth_instance *instance, fth_words *command);
    /* Runs one activation. After FTH_TIMEOUT or FTH_PEER_LOST the process is examined for the
     * reason; other failures are in `run`. */
    fth_status (*run)(fth_instance *instance, const char *id, const json_t *value, fth_instance_run *run);
};

extern const fth_contract fth_contract_openwhisk, fth_contract_lambda;

enum { FTH_INSTANCE_START_S = 60 }; /* for a process to become ready */
#define FTH_INSTANCE_GRACE_S 0.25   /* between the time limit and the kill */

bool fth_instance_is_alive(void *instance); /* and may continue; asks it to end when the platform stops */
void fth_instance_fail(fth_instance_run *run, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds NAME=value unless NAME is set already. */
fth_status fth_variable_add(fth_words *variables, const char *name, const char *value);

#endif
