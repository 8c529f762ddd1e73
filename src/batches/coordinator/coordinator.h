/* The coordinator of the batch cache: `farthing serve batches`.
 *
 * It serves data sets by name, knows each job's position and pace, and has prefetchers (prefetch.h)
 * prepare what jobs need next into a cache (cache.h), once for all of them, as its scheduler
 * (scheduler.h) says. Jobs of its own machine come through a Unix socket and shared memory
 * (host.h), agents of other machines through HTTP. What it must know after a restart is in one
 * small file in its state folder.
 *
 * HTTP, JSON unless said; roles as the parameter server's keys have them, and which data sets a key
 * may read:
 *
 *     GET  /v1/data/NAME                 what the set is (described_set.h)                  read
 *     POST /v1/jobs                      registers a job (below)                            read
 *     POST /v1/sync                      an agent's exchange: positions and counters of its jobs, what they wait for;
 * held until something of that is ready (below)                read GET  /v1/jobs/JOB                  what it has had
 * so far (below)                     read GET  /v1/items/ID                  an entry (where the cache is shared
 * memory)        read POST /v1/orders/take, /v1/orders/done, PUT /v1/items/ID     workers and functions (below) train
 *     GET  /v1/status                    for people                                         read
 *     GET  /metrics, /healthz, /openapi.yaml                                                everybody
 *
 * Jobs have ids from 1 to 2^53 - 1, in JSON whole numbers; items have theirs as 32 hex digits
 * (item.h). Failures are {"error":TEXT, "status":NAME}, as in host.h, also where the code is 4xx.
 *
 * An agent passes on what its clients say: {"op":"register"} of host.h is
 *     POST /v1/jobs  {"job":{spec}, "name":TEXT, "resume":JOB?, "agent":TEXT}
 *                 -> {"job":JOB, "spec":{complete}, "why":TEXT (of its form), "set":{as GET /v1/data/NAME},
 * "cache":"shm"|"redis://..."} With "resume" the job keeps that id if it is the same spec's, also where the coordinator
 * has never heard of it: so an agent gets its jobs back from a coordinator that has lost its file. "cache" has no
 * password: agents have theirs from FARTHING_REDIS_PASSWORD.
 *
 * Then it sends, over and over on its one connection,
 *     POST /v1/sync  {"agent":TEXT, "wait_ms":25,
 *                     "jobs":[{"job":JOB, "processes":[[SLOT, NEXT, STRIDE, END, BEGIN?], ...], "counters":[9 numbers:
 * fth_slot_counter]}, ...], "finished":[JOB, ...],     done, as {"op":"finish"} "left":[JOB, ...],         all
 * processes of it are gone, without a word "wanted":[ID, ...],        not in its segment; soonest first, 512 at most
 *                     "waiting":[[JOB, ID], ...] of those: a client waits for it
 *                     "lost":[ID, ...]}          said to be ready, but the cache has not got it, or it is damaged
 *                 -> {"ready":[[ID, SIZE, "CHECKSUM as 16 hex digits"], ...],   of "wanted"
 *                     "failed":[{"id":ID, "status":NAME, "error":TEXT}, ...],   of "wanted"
 *                     "unknown":[JOB, ...]}      register these again, with "resume"
 * "jobs" is the whole list each time: what is not in it any more has no processes on this machine. "counters" are sums
 * since the job's processes there began, those that have ended included. The answer is held until something in "wanted"
 * is ready or has failed, at most "wait_ms"; at once if nothing is wanted. An agent that is silent for 10 s has lost
 * its processes.
 *
 * {"op":"figures"} of host.h, and GET /v1/jobs/JOB, which an agent passes it on as:
 *                 -> {"job":JOB, "form":NAME, "why":TEXT, "usd":DOLLARS, "decoded_for_it":IMAGES,
 * "decoded_by_others":IMAGES, ...}
 * {"op":"failed?"} is, for an agent, what "failed" of /v1/sync has said.
 *
 * A worker (farthing worker prefetch) asks for orders, and hands in what it has made:
 *     POST /v1/orders/take  {"prefetcher":TEXT, "room":N, "wait_ms":MS, "begins":BOOL?}    held until there is an
 * order, at most wait_ms, 10000 at most
 *                 -> {"orders":[{fth_order_save()}, ...], "limit_s":SECONDS, "cache":"shm"|"redis://..."}
 *     PUT  /v1/items/ID     the whole entry, of an item that is being made (where the cache is shared memory)
 *                 -> {"receipt":[ID, SIZE, "CHECKSUM as 16 hex digits"]}
 *     POST /v1/orders/done  {"prefetcher":TEXT, "results":[{"id":ID, "preparation":{fth_prefetch_result_save()}}, or
 *                                                          {"id":ID, "status":NAME, "error":TEXT}, ...]}  -> {}
 * What is not done after "limit_s" is given to somebody else, and after 3 s what a worker
 * has of which nothing is heard: one that is at work says so every second, with "results":[]. One that "begins" has
 * nothing of what was lent to its name before. A worker opens a data set at the "address" of GET /v1/data/NAME, which
 * must have the same version there. A function is POSTed an order with "cache" and "address" (of this server) beside
 * its members, and answers with a result as above. */
#ifndef FTH_BATCHES_COORDINATOR_H
#define FTH_BATCHES_COORDINATOR_H

#include "batches/prefetch/prefetch.h"
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
    const char *state; /* folder; NULL: one under the cache folder, by port; without one where the port is 0 */

    const char *address;
    int port;
    const char *certificate_pem, *key_pem, *host_names;
    bool open;        /* as fth_access_options */
    const char *keys; /* as the parameter server's; a line may end with data=NAME[,NAME...] */
    double max_requests_per_s;
} fth_coordinator_options;

typedef struct fth_coordinator fth_coordinator;
/* Opens and checks everything before it serves: what cannot be reached is an error here. What the
 * options point to outlives it. */
fth_status fth_coordinator_start(const fth_coordinator_options *options, fth_coordinator **coordinator);
int fth_coordinator_port(const fth_coordinator *coordinator);
void fth_coordinator_stop(fth_coordinator *coordinator); /* frees it; NULL is fine */

#endif
