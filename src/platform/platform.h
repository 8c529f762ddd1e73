/* Functions on this machine: a folder with deployed functions and the records of activations, and
 * processes that are started on demand, kept warm for a while, and limited in memory and time.
 *
 *     FOLDER/actions/NAME/       actions.h
 *     FOLDER/activations/ID/     activations.h
 *     FOLDER/instances/          working folders of processes; those of dead platforms are removed
 *     FOLDER/key                 of the REST APIs, 0600
 *
 * invoke --> queue --> a process of the function, warm or new (instance.h) --> activation
 *
 * Several processes may use a folder at once; each runs what it was asked to. The same object is
 * behind `--provider local` and behind `farthing serve functions`, which speaks OpenWhisk's and
 * Lambda's REST APIs (service.c). These are part of the program, not of the tests: they let `wsk`,
 * `curl` and AWS's tools deploy and invoke functions here (docs/functions.md), and a local function
 * invokes itself through them ("continue": "self"), as on the real platforms. */
#ifndef FTH_PLATFORM_PLATFORM_H
#define FTH_PLATFORM_PLATFORM_H

#include "providers/provider.h"

typedef struct fth_platform fth_platform;

typedef struct fth_platform_options {
    const char *folder;  /* NULL: farthing/functions in the user's data folder */
    int max_processes;   /* 0: 64 */
    int max_activations; /* accepted and not ended; 0: 100 */
    double idle_s;       /* how long a process is kept warm; 0: 60 */
    const char *program; /* the function's binary; NULL: fth_package_find_program(), or this program */
} fth_platform_options;

fth_status fth_platform_open(const fth_platform_options *options, fth_platform **platform);
/* Asks running functions to end and records their answers, then ends the processes. A function that
 * has not answered has failed. */
void fth_platform_close(fth_platform *platform);
const char *fth_platform_folder(const fth_platform *platform);

fth_status fth_platform_deploy(fth_platform *platform, const fth_function_spec *spec);
/* *throttled: not accepted, because max_activations are running or waiting. Any thread, as all
 * below. */
fth_status fth_platform_invoke(fth_platform *platform, const char *name, const json_t *parameters, char id[80],
                               bool *throttled);
/* Waits until the activation has ended, at most until `deadline`. */
fth_status fth_platform_poll(fth_platform *platform, const char *id, fth_deadline deadline,
                             fth_invocation_outcome *outcome);
fth_status fth_platform_status(fth_platform *platform, const char *name, json_t **result);
fth_status fth_platform_logs(fth_platform *platform, const char *name, const char *id, char **text);
fth_status fth_platform_remove(fth_platform *platform, const char *name);

/* The REST APIs of a platform. Functions started afterwards get their address, and can invoke
 * themselves. */
typedef struct fth_platform_service fth_platform_service;
typedef struct fth_platform_service_options {
    const char *address; /* NULL: 127.0.0.1 */
    int port;            /* 0: any free one */
    /* OpenWhisk's UUID:KEY that callers need; its two halves are Lambda's access key and secret
     * key. NULL: the folder's, generated on first use. */
    const char *key;
    const char *host_names;                /* further names of the server, separated by commas; or NULL */
    const char *certificate_pem, *key_pem; /* TLS; NULL: plain */
} fth_platform_service_options;
fth_status fth_platform_serve(fth_platform *platform, const fth_platform_service_options *options,
                              fth_platform_service **service);
int fth_platform_service_port(const fth_platform_service *service);
/* Before the platform is closed. NULL is fine. */
void fth_platform_service_stop(fth_platform_service *service);

extern const fth_provider_kind fth_provider_local;

#endif
