/* What the files of a worker's client share:
 *
 *     client.c            names, registration, the thread that renews the lease
 *     client_requests.c   one request, repeated until it is answered
 *     client_tensors.c    pulling parameters, pushing gradients
 *     client_shards.c     taking shards */
#ifndef FTH_PARAMETERS_CLIENT_INTERNAL_H
#define FTH_PARAMETERS_CLIENT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/http.h"
#include "http/signature.h"
#include "parameters/client.h"
#include "parameters/local.h"

/* Where the server is and how requests reach it. Set once. */
typedef struct fth_client_connection {
    fth_http_client *http;
    fth_http_client_options options;
    fth_signer signer; /* empty: looked up (http/local_token.h) */
    char *url, *pinned_key, *ca_file;
    char *whole_url; /* with user and password, for requests only */
} fth_client_connection;

/* The thread that renews the lease. */
typedef struct fth_lease_renewer {
    pthread_t thread;
    bool running;
    double pause_s; /* between requests; set before it starts */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool closing; /* guarded by mutex */
} fth_lease_renewer;

/* Bytes of bodies, including the renewer's. */
typedef struct fth_client_traffic {
    atomic_uint_fast64_t sent_bytes, received_bytes;
} fth_client_traffic;

struct fth_worker_client {
    fth_client_connection connection;
    char name[FTH_MAX_WORKER_NAME + 1], instance[33]; /* set before the renewer starts, which reads them */
    double patience_s;
    _Atomic double deadline_s; /* monotonic clock; INFINITY: none. The renewer reads it too */
    const fth_stop *stop;      /* or NULL */
    fth_worker_registration registration;
    int64_t sequence; /* of the last push */
    bool is_local;    /* the server may be on this machine: use shared memory (local.h) */
    fth_local_view view;
    fth_lease_renewer renewer;
    fth_client_traffic traffic;
    json_t *function, *usage; /* or NULL */
};

/* ---- client_requests.c ---- */

typedef struct fth_question {
    const char *method, *target;
    const void *body;
    size_t body_bytes;
    void *into; /* where the body of a 200 goes; NULL: into the response */
    uint64_t into_bytes;
    double wait_s; /* how long the server may hold the request */
    int memory;    /* memfd with the body, for a server on this machine; 0: none */
    uint64_t stamp;
} fth_question;

/* One try, over the calling thread's connection. */
fth_status fth_client_ask_once(fth_worker_client *client, fth_http_client *http, const fth_question *q, double seconds,
                               fth_http_response *response);
/* Repeats the request while the server is away, busy or starting, for as long as the patience
 * lasts. */
fth_status fth_client_ask(fth_worker_client *client, const fth_question *q, fth_http_response *response);
/* Waits before the next try, at most to the deadline or a stop. */
void fth_client_wait(const fth_worker_client *client, double seconds, fth_deadline deadline);
/* The deadline for a server that stops answering now. */
fth_deadline fth_client_give_up(const fth_worker_client *client);
fth_status fth_client_fail_if_stopped(const fth_worker_client *client);
/* Turns a refusal's {"error", "reason"} into a failure. */
fth_status fth_client_fail_refused(const fth_worker_client *client, fth_status status, const char *what,
                                   const fth_http_response *response);
bool fth_client_has_reason(const fth_http_response *response, const char *reason);

/* ---- client.c ---- */

/* Registers, the first time or after the lease was lost; reads the last sequence number. */
fth_status fth_client_register(fth_worker_client *client);

#endif
