/* The inside of a worker's side of the wire, shared by
 *
 *     client.c            being there: names, registration, the lease
 *     client_requests.c   a request, and again until there is an answer
 *     client_tensors.c    pulling parameters, pushing gradients
 *     client_shards.c     taking shards and giving them back */
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
    fth_signer signer; /* empty: one is looked for (http/local_token.h) */
    char *url, *pinned_key, *ca_file;
    char *whole_url; /* with user and password, for requests alone */
} fth_client_connection;

/* What the server said when the worker registered. */
typedef struct fth_client_registration {
    char *model, *input;
    int classes;
    fth_normalization normalization; /* 0 channels: the server does not say */
    bool waits;
    double lease_s;
} fth_client_registration;

/* The thread that keeps the lease. */
typedef struct fth_lease_renewer {
    pthread_t thread;
    bool running;
    double pause_s; /* between its requests; set before it starts */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool closing; /* guarded by mutex */
} fth_lease_renewer;

/* Bodies moved; the renewer's too. */
typedef struct fth_client_traffic {
    atomic_uint_fast64_t sent_bytes, received_bytes;
} fth_client_traffic;

struct fth_worker_client {
    fth_client_connection connection;
    char name[FTH_MAX_WORKER_NAME + 1], instance[33]; /* set before the renewer's thread starts, which reads them too */
    double patience_s;
    _Atomic double deadline_s; /* of the monotonic clock, as the renewer's thread reads it too; INFINITY: none */
    const fth_stop *stop;      /* or NULL */
    fth_client_registration registration;
    int64_t sequence; /* of the last push */
    bool is_local;    /* the server may be on this machine: parameters come by memory (local.h) */
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
    void *into; /* of a 200; NULL: the answer's own memory */
    uint64_t into_bytes;
    double wait_s; /* that the server may take before it answers */
    int memory;    /* a memfd that holds the body, for a server on this machine; 0: none */
    uint64_t stamp;
} fth_question;

/* One try, with a connection of the caller's thread. */
fth_status fth_client_ask_once(fth_worker_client *client, fth_http_client *http, const fth_question *q, double seconds,
                               fth_http_response *response);
/* Asks until there is an answer that is one: a server that is away, busy or starting is tried again
 * for a while. */
fth_status fth_client_ask(fth_worker_client *client, const fth_question *q, fth_http_response *response);
/* Waits before the next try, to the deadline at most; a stop ends it. */
void fth_client_wait(const fth_worker_client *client, double seconds, fth_deadline deadline);
/* When a server that does not answer from now on has been tried for long enough. */
fth_deadline fth_client_give_up(const fth_worker_client *client);
fth_status fth_client_fail_if_stopped(const fth_worker_client *client);
/* {"error", "reason"} of a refusal, into a failure. */
fth_status fth_client_fail_refused(const fth_worker_client *client, fth_status status, const char *what,
                                   const fth_http_response *response);
bool fth_client_has_reason(const fth_http_response *response, const char *reason);

/* ---- client.c ---- */

/* Registers, also again after the lease ran out or the server lost us; says the last sequence
 * number. */
fth_status fth_client_register(fth_worker_client *client);

#endif
