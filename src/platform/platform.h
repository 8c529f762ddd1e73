/* Functions on this machine: a folder with what was deployed and what became of each activation, processes that are started
 * when there is something to run and kept warm for a while, under limits of memory and time.
 *
 *     FOLDER/actions/NAME/action.json     the specification; secrets in a file of its own, 0600
 *     FOLDER/actions/NAME/package/        an unpacked zip
 *     FOLDER/activations/ID/              activation.json, stdout.log, stderr.log
 *
 * invoke --> queue of the action --> a warm process, or a new one (sandbox.h) --> /run, or the Runtime API --> activation
 *
 * The same object stands behind `--provider local`, and behind `farthing serve functions`, which speaks OpenWhisk's and Lambda's REST
 * APIs (platform_routes.c), so that `wsk`, `curl` and AWS's tools can use it. */
#ifndef FTH_PLATFORM_PLATFORM_H
#define FTH_PLATFORM_PLATFORM_H

#include "providers/provider.h"

typedef struct fth_platform fth_platform;

typedef struct fth_platform_options {
    const char *folder;   /* NULL: farthing/functions in the user's data folder */
    int max_processes;    /* 0: 64 */
    double idle_s;        /* that a process is kept warm; 0: 60 */
    const char *program;  /* the function's binary; NULL: farthing-function beside this program, else this program */
    const char *api_host; /* given to functions as __OW_API_HOST and AWS_ENDPOINT_URL_LAMBDA; NULL: its own server */
} fth_platform_options;

fth_status fth_platform_open(const fth_platform_options *options, fth_platform **platform);
/* Ends the processes. */
void fth_platform_close(fth_platform *platform);

fth_status fth_platform_deploy(fth_platform *platform, const fth_function_spec *spec);
fth_status fth_platform_invoke(fth_platform *platform, const char *name, const json_t *parameters, char id[80]);
/* Waits until the activation has ended, or `deadline`. */
fth_status fth_platform_poll(fth_platform *platform, const char *id, fth_deadline deadline,
                             fth_invocation_outcome *outcome);
fth_status fth_platform_status(fth_platform *platform, const char *name, json_t **result);
fth_status fth_platform_logs(fth_platform *platform, const char *name, const char *id, char **text);
fth_status fth_platform_remove(fth_platform *platform, const char *name);

/* The REST APIs over it. */
typedef struct fth_platform_service fth_platform_service;
typedef struct fth_platform_service_options {
    const char *address; /* NULL: 127.0.0.1 */
    int port;
    const char
        *key; /* OpenWhisk's UUID:KEY that callers must have; NULL: one is made up (fth_platform_service_key()) */
} fth_platform_service_options;
fth_status fth_platform_serve(fth_platform *platform, const fth_platform_service_options *options,
                              fth_platform_service **service);
int fth_platform_service_port(const fth_platform_service *service);
const char *fth_platform_service_key(const fth_platform_service *service);
void fth_platform_service_stop(fth_platform_service *service);

extern const fth_provider_kind fth_provider_local;

#endif
