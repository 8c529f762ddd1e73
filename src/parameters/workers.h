/* Who works for the server: names, leases, and each worker's last push, so that a repeated one is known.
 *
 *     unknown --register--> live --unregister, its lease or its process ends--> gone --register--> live
 *
 * A worker that is gone is still known, with its last sequence number, until its place is needed: there is room for
 * FTH_MAX_WORKERS in all. Not safe for several threads: the owner has a lock. */
#ifndef FTH_PARAMETERS_WORKERS_H
#define FTH_PARAMETERS_WORKERS_H

#include <jansson.h>

#include "http/signature.h"
#include "parameters/gradient.h"

enum { FTH_MAX_WORKERS = 4096 };
#define FTH_WORKER_ENDED (-1.0) /* as the end of a lease: its process is known to have ended */

typedef struct fth_worker {
    char name[FTH_MAX_WORKER_NAME + 1], instance[FTH_MAX_WORKER_NAME + 1];
    char access[FTH_MAX_ACCESS_KEY + 1]; /* the key that registered it; "" where there are none */
    bool live;
    double lease_until_s; /* on the monotonic clock */
    int64_t sequence;     /* of its last push that was taken; 0: none */
    int last_code;        /* and what was answered */
    int64_t last_version, last_staleness;
    int64_t in_flight;        /* the version it has pulled and not pushed for; -1: none */
    double in_flight_until_s; /* others wait for it no longer than this */
    int64_t contributed;      /* the version whose step need not wait for it any more; -1: none */
    int64_t unfit;            /* gradients of it that were refused for their numbers */
    int64_t touched;          /* the larger, the later; whoever is gone for longest makes room */
} fth_worker;

typedef struct fth_workers fth_workers;

fth_status fth_workers_create(fth_workers **workers);
void fth_workers_free(fth_workers *workers);

int fth_workers_live(const fth_workers *workers);
int fth_workers_most_live(const fth_workers *workers);                /* at any one time */
fth_worker *fth_workers_find(fth_workers *workers, const char *name); /* or NULL */
/* Makes it live, known before or not. NULL if there is no place left. */
fth_worker *fth_workers_join(fth_workers *workers, const char *name, const char *instance, const char *access);
void fth_workers_leave(fth_workers *workers, fth_worker *worker);

/* One after the other, the live ones; *position begins at 0. NULL at the end. */
fth_worker *fth_workers_next(fth_workers *workers, size_t *position);
fth_worker *fth_workers_next_known(fth_workers *workers, size_t *position); /* the same, with those that are gone */

/* For checkpoints. Leases begin again when they are read back. */
json_t *fth_workers_to_json(const fth_workers *workers);
fth_status fth_workers_from_json(fth_workers *workers, const json_t *json, double lease_until_s);

#endif
