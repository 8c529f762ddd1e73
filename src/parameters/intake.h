/* Requests on their way to the applying thread.
 *
 *     submit --(gradients)--> unchecked --> a checking thread: the body fetched, its signature, form and numbers
 * checked |                                       |-> refused
 *        +--(others)----------> ready <----------+
 *                                 |
 *                               take: the applying thread, in the order of arrival
 *
 * A few threads check, so that neither HTTP nor applying waits for it. */
#ifndef FTH_PARAMETERS_INTAKE_H
#define FTH_PARAMETERS_INTAKE_H

#include "http/server.h"
#include "parameters/health.h"
#include "parameters/journal.h"
#include "parameters/local.h"
#include "parameters/metrics.h"

typedef enum fth_server_request_kind {
    FTH_REQUEST_GRADIENT,
    FTH_REQUEST_REGISTER,
    FTH_REQUEST_UNREGISTER,
    FTH_REQUEST_TAKE_SHARD,
    FTH_REQUEST_RETURN_SHARD,
    FTH_REQUEST_LIST_SHARDS,
    FTH_REQUEST_CHECKPOINT
} fth_server_request_kind;

/* One request. It belongs to one thread at a time: the one that took it off a queue. */
typedef struct fth_server_request {
    fth_server_request_kind kind;
    fth_exchange *exchange;
    fth_gradient gradient;
    const void *body;
    size_t body_bytes;
    fth_local_place place; /* of the body, where it is in a worker's memory: process 0 if not */
    uint64_t local_bytes;  /* that count for it in the intake's */
    fth_wal_blob blob;     /* where it is, if it is there already */
    char *own_body;        /* or its copy in memory; one of the intake's spare ones */
    float seen;            /* no number of it is larger; INFINITY: not known */
    char worker[FTH_MAX_WORKER_NAME + 1], instance[FTH_MAX_WORKER_NAME + 1];
    json_t *json;   /* the body of one that is JSON; or NULL */
    fth_signed who; /* all zero where requests are not signed */
    double until_s; /* that it may be held, on the monotonic clock; see dealer.h */
    struct fth_server_request *next;
} fth_server_request;

/* First come, first served. The owner has a lock where it needs one. */
typedef struct fth_request_queue {
    fth_server_request *first, **last;
} fth_request_queue;
void fth_request_queue_init(fth_request_queue *queue);
void fth_request_queue_put(fth_request_queue *queue, fth_server_request *request);
fth_server_request *fth_request_queue_take(fth_request_queue *queue); /* or NULL */
/* Moves everything in `others`, in its order, before what is in `queue`. */
void fth_request_queue_put_first(fth_request_queue *queue, fth_request_queue *others);

typedef struct fth_intake fth_intake;

typedef struct fth_intake_options {
    const fth_served_model *model;
    fth_journal *journal;
    fth_parameters_metrics *metrics;
    fth_workers *workers;
    fth_health *health;
    bool keyed;                /* bodies are signed */
    double clip;               /* the norm that gradients are scaled down to; 0: as they are */
    uint64_t max_memory_bytes; /* of bodies from workers' memory */
} fth_intake_options;

/* Starts the checking threads; everything in the options outlives the intake. */
fth_status fth_intake_create(const fth_intake_options *options, fth_intake **intake);
/* Once nothing is submitted or taken any more. NULL is fine. */
void fth_intake_free(fth_intake *intake);

/* Holds the exchange and queues the request; another thread answers. When the server is stopping,
 * refuses and frees it. */
void fth_intake_submit(fth_intake *intake, fth_server_request *request);
void fth_server_request_free(fth_intake *intake, fth_server_request *request);
uint64_t fth_intake_local_bytes(const fth_intake *intake); /* of bodies from workers' memory */

/* Nothing is accepted from now on; returns when everything that was is checked. */
void fth_intake_close(fth_intake *intake);

/* ---- for the applying thread ---- */

/* Waits until an request is ready, the thread is woken, the intake is closed or `until_s` has come.
 * True if it was woken or the time has come: work without a request may be due. */
bool fth_intake_wait(fth_intake *intake, double until_s);
/* The same without waiting. */
bool fth_intake_was_woken(fth_intake *intake);
/* The next request; NULL if none is ready. *closed: none will be. */
fth_server_request *fth_intake_take(fth_intake *intake, bool *closed);
/* Lets fth_intake_wait() return, now or the next time. From any thread. */
void fth_intake_wake(fth_intake *intake);

#endif
