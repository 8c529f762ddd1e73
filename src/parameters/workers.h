/* The workers of a server: names, leases, and each worker's last push, so that a repeated one is
 * recognized.
 *
 *     unknown --join--> live --leave: unregistered, its lease ran out or its process ended--> gone --join--> live
 *
 * A worker that is gone stays known, with its last sequence number, until its place is needed:
 * there is room for FTH_MAX_WORKERS in all. Every function may be called from any thread; only the
 * applying thread joins, leaves and records pushes, so what it has read of those stays true until
 * it changes them itself. */
#ifndef FTH_PARAMETERS_WORKERS_H
#define FTH_PARAMETERS_WORKERS_H

#include <jansson.h>

#include "http/signature.h"
#include "parameters/gradient.h"

enum { FTH_MAX_WORKERS = 4096 };

/* A worker as it was at one moment. */
typedef struct fth_worker {
    char name[FTH_MAX_WORKER_NAME + 1], instance[FTH_MAX_WORKER_NAME + 1];
    char access[FTH_MAX_ACCESS_KEY + 1]; /* the key that registered it; "" where there are none */
    bool live;
    bool is_function;     /* it runs in one, and is let go sooner */
    double lease_s;       /* that it may be silent for */
    double lease_until_s; /* on the monotonic clock */
    int64_t sequence;     /* of its last push that was accepted; 0: none */
    int last_code;        /* and what was answered */
    int64_t last_version, last_staleness;
    int64_t in_flight;        /* the version it has pulled and not pushed for; -1: none */
    double in_flight_until_s; /* others wait for it no longer than this */
    int64_t contributed;      /* the version whose step need not wait for it any more; -1: none */
    bool idle;                /* it has no shard to compute gradients of; nobody waits for any */
    int64_t unfit;            /* gradients of it that were refused for their numbers */
    int64_t touched;          /* the larger, the later; the one gone longest makes room */
} fth_worker;

typedef struct fth_workers fth_workers;

typedef struct fth_workers_options {
    double lease_s, function_lease_s; /* of workers that run in functions; 0: as of others */
    bool keyed;                       /* requests are signed: a worker answers to the key that registered it only */
} fth_workers_options;

fth_status fth_workers_create(const fth_workers_options *options, fth_workers **workers);
void fth_workers_free(fth_workers *workers);

int fth_workers_live(fth_workers *workers);
int fth_workers_most_live(fth_workers *workers); /* at any one time */
/* Copies what is known of `name`; false if nothing is. `worker` may be NULL. */
bool fth_workers_get(fth_workers *workers, const char *name, fth_worker *worker);
/* The known ones by number, from 0 on, live or gone; false after the last. */
bool fth_workers_get_at(fth_workers *workers, size_t index, fth_worker *worker);

/* ---- leases ---- */

/* Makes it live, known before or not, with a whole lease; false if there is no room. */
bool fth_workers_join(fth_workers *workers, const char *name, const char *instance, const char *access);
/* One that has just joined runs in a function: platforms kill those often, and what it holds is
 * free again after function_lease_s. */
void fth_workers_mark_function(fth_workers *workers, const char *name);
void fth_workers_leave(fth_workers *workers, const char *name);
/* Renews the lease of a live worker. False if it is unknown, or another key's. */
bool fth_workers_renew(fth_workers *workers, const char *name, const char *access);
/* The longest that a request of it may wait for its answer, so that who waits and asks again keeps
 * its lease. */
double fth_workers_longest_wait_s(fth_workers *workers, const char *name);
/* Its process is known to have ended: its lease is over. False if it is not live. */
bool fth_workers_end_lease(fth_workers *workers, const char *name);
/* A live worker whose lease is over at `now_s`; false if there is none. *ended: by
 * fth_workers_end_lease(). *next_s is lowered to when a lease, or the wait for a gradient, will be
 * over. */
bool fth_workers_find_expired(fth_workers *workers, double now_s, char name[FTH_MAX_WORKER_NAME + 1], bool *ended,
                              double *next_s);

/* ---- pulls and pushes ---- */

/* It has pulled `version` and will push for it; with bounded staleness others wait for that, for a
 * lease's time. */
void fth_workers_note_pull(fth_workers *workers, const char *name, int64_t version);
/* Nobody waits for its gradient any more: it has arrived. */
void fth_workers_note_arrival(fth_workers *workers, const char *name);

typedef struct fth_accepted_push {
    int64_t sequence, version, staleness; /* the version after it */
    bool stepped;                         /* it completed a step */
} fth_accepted_push;
/* *worker (may be NULL): as it is then. */
void fth_workers_note_push(fth_workers *workers, const char *name, const fth_accepted_push *push, fth_worker *worker);
/* A gradient of it, for `version`, was refused for its numbers; others do not wait for a better
 * one. Gives how many that makes of this worker; 0 where it is unknown, or another key's. */
int64_t fth_workers_note_unfit(fth_workers *workers, const char *name, const char *access, int64_t version,
                               int64_t server_version);

/* Whether it waits for a shard; what it had under way is not waited for then. Its next push ends
 * that too. */
void fth_workers_set_idle(fth_workers *workers, const char *name, bool idle);

/* True if the step of `version` need not wait for a gradient of `name`, which may be unknown. */
bool fth_workers_has_contributed(fth_workers *workers, const char *name, int64_t version);
/* True if every live worker but `except` (or NULL) has contributed to the step of `version`, or is
 * idle. */
bool fth_workers_all_contributed(fth_workers *workers, int64_t version, const char *except);
/* True if a step from `version` on would make a gradient that a worker other than `except` has
 * under way more than `bound` versions old. */
bool fth_workers_would_be_late(fth_workers *workers, int64_t version, int64_t bound, const char *except);

/* For checkpoints. Leases begin again when they are read back. */
json_t *fth_workers_to_json(fth_workers *workers);
fth_status fth_workers_from_json(fth_workers *workers, const json_t *json);

#endif
