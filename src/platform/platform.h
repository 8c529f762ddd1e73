/* Functions on this machine: a folder with what was deployed and what became of each activation,
 * processes that are started when there is something to run and kept warm for a while, under limits
 * of memory and time.
 *
 *     FOLDER/actions/NAME/       actions.h
 *     FOLDER/activations/ID/     activations.h
 *     FOLDER/instances/          working folders of processes; those of platforms that are gone are removed
 *     FOLDER/key                 of the REST APIs, 0600
 *
 * invoke --> queue --> a warm process of the function, or a new one (instance.h) --> /run, or the Runtime API -->
 * activation
 *
 * Several processes may use a folder at once; each runs what it was asked for. The same object
 * stands behind `--provider local`, and behind `farthing serve functions`, which speaks OpenWhisk's
 * and Lambda's REST APIs (service.c), so that `wsk`, `curl` and AWS's tools can use it. */
#ifndef FTH_PLATFORM_PLATFORM_H
#define FTH_PLATFORM_PLATFORM_H

#include "providers/provider.h"

typedef struct fth_platform fth_platform;

typedef struct fth_platform_options {
    const char *folder;  /* NULL: farthing/functions in the user's data folder */
    int max_processes;   /* 0: 64 */
    int max_activations; /* that are accepted and have not ended; 0: 100 */
    double idle_s;       /* that a process is kept warm; 0: 60 */
    const char *program; /* the function's binary; NULL: fth_package_find_program(), else this program */
} fth_platform_options;

fth_status fth_platform_open(const fth_platform_options *options, fth_platform **platform);
/* Asks what runs to end, and hands in what it answers; then ends the processes. What has not
 * answered fails. */
void fth_platform_close(fth_platform *platform);
const char *fth_platform_folder(const fth_platform *platform);

fth_status fth_platform_deploy(fth_platform *platform, const fth_function_spec *spec);
/* *throttled: there are as many as may be, and it was not accepted. Any thread, as all below. */
fth_status fth_platform_invoke(fth_platform *platform, const char *name, const json_t *parameters, char id[80],
                               bool *throttled);
/* Waits until the activation has ended, or `deadline`. */
fth_status fth_platform_poll(fth_platform *platform, const char *id, fth_deadline deadline,
                             fth_invocation_outcome *outcome);
fth_status fth_platform_status(fth_platform *platform, const char *name, json_t **result);
fth_status fth_platform_logs(fth_platform *platform, const char *name, const char *id, char **text);
fth_status fth_platform_remove(fth_platform *platform, const char *name);

/* The REST APIs over it. Functions that are started from then on know it, and can invoke
 * themselves. */
typedef struct fth_platform_service fth_platform_service;
typedef struct fth_platform_service_options {
    const char *address; /* NULL: 127.0.0.1 */
    int port;            /* 0: any free one */
    /* OpenWhisk's UUID:KEY that callers must have; its two halves are Lambda's access key and
     * secret key. NULL: the one of the folder, which is made up at first. */
    const char *key;
    const char *host_names;                /* further names of the server, with commas between them; or NULL */
    const char *certificate_pem, *key_pem; /* TLS; NULL: plain */
} fth_platform_service_options;
fth_status fth_platform_serve(fth_platform *platform, const fth_platform_service_options *options,
                              fth_platform_service **service);
int fth_platform_service_port(const fth_platform_service *service);
/* Before the platform is closed. NULL is fine. */
void fth_platform_service_stop(fth_platform_service *service);

extern const fth_provider_kind fth_provider_local;

#endif
