/* The workers of a server: names, leases, and each worker's last push, by which a repeated push is
 * recognized.
 *
 *     unknown --join--> live --leave (unregistered, lease or process ended)--> gone --join--> live
 *
 * A worker that is gone stays known, with its last sequence number, until its place is needed;
 * there are FTH_MAX_WORKERS places. Functions may be called from any thread. Only the applying
 * thread joins, leaves and records pushes, so it can rely on what it has read of them. */
#ifndef FTH_PARAMETERS_WORKERS_H
#define FTH_PARAMETERS_WORKERS_H

#include <jansson.h>

#include "http/signature.h"
#include "parameters/gradient.h"

enum { FTH_MAX_WORKERS = 4096 };

/* A worker as it was at one moment. */
typedef struct fth_worker {
    char name[FTH_MAX_WORKER_NAME + 1], instance[FTH_MAX_WORKER_NAME + 1];
    char access[FTH_MAX_ACCESS_KEY + 1]; /* the key that registered it; "" without keys */
    bool live;
    bool is_function;     /* it runs in one and has a shorter lease */
    double lease_s;       /* how long it may be silent */
    double lease_until_s; /* on the monotonic clock */
    int64_t sequence;     /* of its last push that was accepted; 0: none */
    int last_code;        /* the answer to it */
    int64_t last_version, last_staleness;
    int64_t in_flight;        /* the version it has pulled and not yet pushed for; -1: none */
    double in_flight_until_s; /* how long others wait for that push */
    int64_t contributed;      /* the version whose step no longer waits for it; -1: none */
    bool idle;                /* it has no shard to work on, so no step waits for it */
    int64_t unfit;            /* its gradients that were refused for their numbers */
    int64_t touched;          /* orders joins and leaves; the worker gone longest is evicted */
} fth_worker;

typedef struct fth_workers fth_workers;

typedef struct fth_workers_options {
    double lease_s, function_lease_s; /* function_lease_s 0: as lease_s */
    bool keyed;                       /* requests are signed, with the key that registered the worker */
} fth_workers_options;

fth_status fth_workers_create(const fth_workers_options *options, fth_workers **workers);
void fth_workers_free(fth_workers *workers);

int fth_workers_live(fth_workers *workers);
int fth_workers_most_live(fth_workers *workers); /* at any one time */
/* Copies the worker `name`; false if it is unknown. `worker` may be NULL. */
bool fth_workers_get(fth_workers *workers, const char *name, fth_worker *worker);
/* All known workers by index, live or gone; false after the last. */
bool fth_workers_get_at(fth_workers *workers, size_t index, fth_worker *worker);

/* ---- leases ---- */

/* Makes a worker live, with a full lease; false if there is no room. */
bool fth_workers_join(fth_workers *workers, const char *name, const char *instance, const char *access);
/* A worker that has just joined runs in a function. Platforms often kill functions, so its lease is
 * function_lease_s. */
void fth_workers_mark_function(fth_workers *workers, const char *name);
void fth_workers_leave(fth_workers *workers, const char *name);
/* Renews the lease of a live worker. False if it is unknown, or belongs to another key. */
bool fth_workers_renew(fth_workers *workers, const char *name, const char *access);
/* How long a request of it may be held, so that a worker that polls keeps its lease. */
double fth_workers_longest_wait_s(fth_workers *workers, const char *name);
/* Ends the lease of a worker whose process has ended. False if it is not live. */
bool fth_workers_end_lease(fth_workers *workers, const char *name);
/* A live worker whose lease is over at `now_s`; false if there is none. *ended: by
 * fth_workers_end_lease(). *next_s is lowered to the next end of a lease or of the wait for a
 * gradient. */
bool fth_workers_find_expired(fth_workers *workers, double now_s, char name[FTH_MAX_WORKER_NAME + 1], bool *ended,
                              double *next_s);

/* ---- pulls and pushes ---- */

/* It has pulled `version` and will push for it. With bounded staleness others wait for the push, at
 * most for a lease. */
void fth_workers_note_pull(fth_workers *workers, const char *name, int64_t version);
/* Its gradient has arrived, so others stop waiting for it. */
void fth_workers_note_arrival(fth_workers *workers, const char *name);

typedef struct fth_accepted_push {
    int64_t sequence, version, staleness; /* the version after it */
    bool stepped;                         /* it completed a step */
} fth_accepted_push;
/* *worker (may be NULL): the worker afterwards. */
void fth_workers_note_push(fth_workers *workers, const char *name, const fth_accepted_push *push, fth_worker *worker);
/* Its gradient for `version` was refused for its numbers; others do not wait for a better one.
 * Returns how many were refused so far; 0 if it is unknown, or belongs to another key. */
int64_t fth_workers_note_unfit(fth_workers *workers, const char *name, const char *access, int64_t version,
                               int64_t server_version);

/* An idle worker waits for a shard, and no step waits for it. Its next push ends that too. */
void fth_workers_set_idle(fth_workers *workers, const char *name, bool idle);

/* Whether the step of `version` has the gradient of `name`, or does not need it. */
bool fth_workers_has_contributed(fth_workers *workers, const char *name, int64_t version);
/* Whether all live workers but `except` (or NULL) have contributed to the step of `version` or are
 * idle. */
bool fth_workers_all_contributed(fth_workers *workers, int64_t version, const char *except);
/* Whether a step from `version` on would make the gradient that another worker than `except` is
 * computing more than `bound` versions old. */
bool fth_workers_would_be_late(fth_workers *workers, int64_t version, int64_t bound, const char *except);

/* For checkpoints. Leases start again when they are read back. */
json_t *fth_workers_to_json(fth_workers *workers);
fth_status fth_workers_from_json(fth_workers *workers, const json_t *json);

#endif
