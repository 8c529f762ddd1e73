/* Requests on their way to the applying thread.
 *
 *     submit --(gradients)--> unchecked --> checking thread: body, signature, form, numbers
 *        |                                       |-> refused
 *        +--(others)----------> ready <----------+
 *                                 |
 *                               take: the applying thread, in the order of arrival
 *
 * A few threads check gradients, so that neither HTTP threads nor the applying thread wait for
 * it. */
#ifndef FTH_PARAMETERS_INTAKE_H
#define FTH_PARAMETERS_INTAKE_H

#include "http/server.h"
#include "parameters/journal.h"
#include "parameters/local.h"
#include "parameters/parts.h"

typedef enum fth_server_request_kind {
    FTH_REQUEST_GRADIENT,
    FTH_REQUEST_REGISTER,
    FTH_REQUEST_UNREGISTER,
    FTH_REQUEST_TAKE_SHARD,
    FTH_REQUEST_RETURN_SHARD,
    FTH_REQUEST_LIST_SHARDS,
    FTH_REQUEST_CHECKPOINT
} fth_server_request_kind;

/* One request. Belongs to the thread that took it from a queue. */
typedef struct fth_server_request {
    fth_server_request_kind kind;
    fth_exchange *exchange;
    fth_gradient gradient;
    const void *body;
    size_t body_bytes;
    fth_local_place place; /* of a body in a worker's memory; process 0: none */
    uint64_t local_bytes;  /* counted in the intake's local_bytes */
    fth_wal_blob blob;     /* the body in the log, if it is there already */
    char *own_body;        /* or its copy in memory, one of the intake's spare buffers */
    float seen;            /* no number in it is larger; INFINITY: not known */
    char worker[FTH_MAX_WORKER_NAME + 1], instance[FTH_MAX_WORKER_NAME + 1];
    json_t *json;   /* the body, if it is JSON; or NULL */
    fth_signed who; /* all zero without signatures */
    double until_s; /* how long it may be held, on the monotonic clock */
    struct fth_server_request *next;
} fth_server_request;

/* First in, first out. The owner locks where it needs to. */
typedef struct fth_request_queue {
    fth_server_request *first, **last;
} fth_request_queue;
void fth_request_queue_init(fth_request_queue *queue);
void fth_request_queue_put(fth_request_queue *queue, fth_server_request *request);
fth_server_request *fth_request_queue_take(fth_request_queue *queue); /* or NULL */
/* Moves all of `others`, in order, in front of `queue`. */
void fth_request_queue_put_first(fth_request_queue *queue, fth_request_queue *others);

typedef struct fth_intake fth_intake;

/* Starts the checking threads; the parts outlive the intake. */
fth_status fth_intake_create(const fth_server_parts *parts, fth_intake **intake);
/* After the last submit and take. NULL is fine. */
void fth_intake_free(fth_intake *intake);

/* Holds the exchange and queues the request for another thread to answer. Refuses and frees it when
 * the server is stopping. */
void fth_intake_submit(fth_intake *intake, fth_server_request *request);
void fth_server_request_free(fth_intake *intake, fth_server_request *request);
uint64_t fth_intake_local_bytes(const fth_intake *intake); /* of bodies from workers' memory */

/* Stops accepting requests; returns when all accepted gradients are checked. */
void fth_intake_close(fth_intake *intake);

/* ---- for the applying thread ---- */

/* Waits for a request, a wake-up, the close or `until_s`. True on a wake-up or at `until_s`: work
 * that belongs to no request may be due. */
bool fth_intake_wait(fth_intake *intake, double until_s);
/* Whether the thread was woken, without waiting. */
bool fth_intake_was_woken(fth_intake *intake);
/* The next request, or NULL. *closed: there will be no more. */
fth_server_request *fth_intake_take(fth_intake *intake, bool *closed);
/* Makes the current or next fth_intake_wait() return. From any thread. */
void fth_intake_wake(fth_intake *intake);

#endif
