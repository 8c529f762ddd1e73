/* Prefetching on other machines: `farthing worker prefetch`.
 *
 *     --server URL   asks a coordinator for orders, repeatedly (worker.c)
 *     --port N       receives them: a function over HTTP (function.c) */
#ifndef FTH_BATCHES_WORKER_H
#define FTH_BATCHES_WORKER_H

#include "base/base.h"

typedef struct fth_prefetch_worker_options {
    const char *url;                  /* of the coordinator */
    const char *pinned_key, *ca_file; /* as fth_http_client_options; NULL: none */
    const char *name;                 /* its name at the coordinator; NULL: from host and process */
    int threads;                      /* 0: one per core */
    double patience_s;                /* how long to retry a coordinator that does not answer; 0: 120 */
    const fth_stop *stop;
} fth_prefetch_worker_options;

/* Runs until stopped: FTH_OK. FTH_PEER_LOST if the coordinator was away for longer than
 * `patience_s`. Keys come from the environment (http/signature.h). */
fth_status fth_prefetch_worker_run(const fth_prefetch_worker_options *options);

typedef struct fth_prefetch_function_options {
    const char *address, *host_names; /* as fth_access_options */
    int port;                         /* 0: any free one */
    const char *certificate_pem, *key_pem;
    const char *keys; /* as fth_access_options; NULL: unsigned orders, only from this machine unless `open` */
    bool open;        /* unsigned orders from everybody, where a platform authenticates callers */
    double max_requests_per_s;
    const char *url; /* the only coordinator whose orders are taken; NULL: any that an order names */
    const char *pinned_key, *ca_file;
    int threads; /* 0: one per core */
} fth_prefetch_function_options;

typedef struct fth_prefetch_function fth_prefetch_function;
fth_status fth_prefetch_function_start(const fth_prefetch_function_options *options, fth_prefetch_function **function);
int fth_prefetch_function_port(const fth_prefetch_function *function);
void fth_prefetch_function_stop(fth_prefetch_function *function);

#endif
