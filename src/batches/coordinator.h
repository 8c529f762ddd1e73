/* The coordinator of the batch cache: `farthing serve batches`.
 *
 * It serves data sets by name, knows each job's position and pace, and has prefetchers (prefetch.h) prepare what jobs need next into
 * a cache (cache.h), once for all of them, as its schedule (schedule.h) says. Jobs of its own machine come through a Unix
 * socket and shared memory (host.h), agents of other machines through HTTP. What it must know after a restart is in one small file in
 * its state folder.
 *
 * HTTP, JSON unless said; roles as the parameter server's keys have them, and which data sets a key may read:
 *
 *     GET  /v1/data/NAME                 what the set is: classes, counts, sizes, version
 *     POST /v1/jobs {"job":{spec},"name"}  registers a job: {"job":ID, "spec", "set"}     read
 *     POST /v1/sync                      an agent's exchange: positions and counters of its jobs, what they wait for; held until
 *                                        something of that is ready: receipts, failures    read
 *     GET  /v1/items/ID                  an entry (where the cache is shared memory)        read
 *     POST /v1/orders/take, /v1/orders/done, PUT /v1/items/ID     workers and functions     train
 *     GET  /v1/status, /metrics, /healthz
 */
#ifndef FTH_BATCHES_COORDINATOR_H
#define FTH_BATCHES_COORDINATOR_H

#include "batches/prefetch.h"
#include "cost/cost.h"

typedef struct fth_served_set {
    const char *name;    /* of batches://host:port/NAME */
    const char *address; /* as --data has it */
} fth_served_set;

typedef struct fth_coordinator_options {
    const fth_served_set *sets;
    size_t set_count;
    const fth_dataset_options *data; /* seed, bad images, ... */
    const char *cache;               /* "shm", "redis://..." */
    const char *prefetch;            /* "threads:4" */
    fth_prefetch_options prefetching;
    uint64_t memory_bytes;
    double budget_usd_per_hour; /* for functions and the cache; 0: no limit */
    double cache_usd_per_hour;
    uint64_t seed;     /* of orders that jobs share */
    const char *state; /* folder; NULL: one under the cache folder, by port */

    const char *address;
    int port;
    const char *certificate_pem, *key_pem, *host_names;
    const char *keys; /* as the parameter server's; a line may end with data=NAME[,NAME...] */
    double max_requests_per_s;
} fth_coordinator_options;

typedef struct fth_coordinator fth_coordinator;
fth_status fth_coordinator_start(const fth_coordinator_options *options, fth_coordinator **coordinator);
int fth_coordinator_port(const fth_coordinator *coordinator);
/* Waits at most `seconds` for it to fail by itself: its status. */
fth_status fth_coordinator_wait(fth_coordinator *coordinator, double seconds);
void fth_coordinator_stop(fth_coordinator *coordinator);

#endif
