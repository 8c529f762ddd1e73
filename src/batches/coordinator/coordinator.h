/* The coordinator of the batch cache: `farthing serve batches`.
 *
 * It serves data sets by name, knows each job's position and pace, and has prefetchers (prefetch.h)
 * make the items that jobs need next, once for all of them, in the order of its scheduler
 * (scheduler.h), and keeps them in a cache (cache.h). Jobs of its own machine use a Unix socket and
 * shared memory (host.h), agents of other machines HTTP. A small file in its state folder survives
 * restarts.
 *
 * HTTP, with JSON bodies unless noted. Roles are those of the parameter server's keys; a key may be
 * limited to some data sets.
 *
 *     GET  /v1/data/NAME      describes a data set (described_set.h)                   read
 *     POST /v1/jobs           registers a job (below)                                  read
 *     POST /v1/sync           an agent's exchange (below)                              read
 *     GET  /v1/jobs/JOB       a job's figures (below)                                  read
 *     GET  /v1/items/ID       an entry (if the cache is shared memory)                 read
 *     POST /v1/orders/take    gives a worker orders (below)                            train
 *     POST /v1/orders/done    takes a worker's results (below)                         train
 *     PUT  /v1/items/ID       stores an entry (below)                                  train
 *     GET  /v1/status         for people                                               read
 *     GET  /metrics, /healthz, /openapi.yaml                                           everybody
 *
 * A job id is a whole number from 1 to 2^53 - 1, an item id 32 hex digits (item.h). Failures are
 * {"error":TEXT, "status":NAME}, as in host.h, with any HTTP code.
 *
 * An agent passes on its clients' requests. {"op":"register"} of host.h becomes
 *
 *     POST /v1/jobs  {"job":{spec}, "name":TEXT, "resume":JOB?, "agent":TEXT}
 *                 -> {"job":JOB, "spec":{complete}, "why":TEXT (of its cache format),
 *                     "set":{as GET /v1/data/NAME}, "cache":"shm"|"redis://..."}
 *
 * With "resume" the job keeps that id if its spec is the same, even if the coordinator does not
 * know it, so that an agent gets its jobs back from a coordinator that has lost its state. "cache"
 * has no password: agents have theirs in FARTHING_REDIS_PASSWORD.
 *
 * Then the agent repeats, on its only connection,
 *
 *     POST /v1/sync  {"agent":TEXT, "wait_ms":25,
 *                     "jobs":[{"job":JOB, "processes":[[SLOT, NEXT, STRIDE, END, BEGIN?], ...],
 *                              "counters":[9 numbers: fth_slot_counter]}, ...],
 *                     "finished":[JOB, ...],     done, as {"op":"finish"}
 *                     "left":[JOB, ...],         its processes are gone without a message
 *                     "wanted":[ID, ...],        not in its segment; soonest first, at most 512
 *                     "waiting":[[JOB, ID], ...] those of "wanted" that a client waits for
 *                     "lost":[ID, ...]}          reported as ready, but missing or damaged
 *                 -> {"ready":[[ID, SIZE, "CHECKSUM as 16 hex digits"], ...],   of "wanted"
 *                     "failed":[{"id":ID, "status":NAME, "error":TEXT}, ...],   of "wanted"
 *                     "unknown":[JOB, ...]}      register these again, with "resume"
 *
 * "jobs" is always the complete list: a job that is missing has no processes on this machine.
 * "counters" are totals since the job's first process there, including those that have ended. The
 * answer is held for at most "wait_ms", until an item in "wanted" is ready or has failed; it is
 * immediate if "wanted" is empty. An agent that is silent for 10 s loses its processes.
 *
 * {"op":"figures"} of host.h, which an agent passes on, and GET /v1/jobs/JOB:
 *
 *                 -> {"job":JOB, "form":NAME, "why":TEXT, "usd":DOLLARS, "decoded_for_it":IMAGES,
 *                     "decoded_by_others":IMAGES, ...}
 *
 * An agent answers {"op":"failed?"} with what "failed" of /v1/sync has said.
 *
 * A worker (farthing worker prefetch) asks for orders, and hands in results:
 *
 *     POST /v1/orders/take  {"prefetcher":TEXT, "room":N, "wait_ms":MS, "begins":BOOL?}
 *                        -> {"orders":[{fth_order_save()}, ...], "limit_s":SECONDS,
 *                            "cache":"shm"|"redis://..."}
 *     PUT  /v1/items/ID     the whole entry of an item in progress, if the cache is shared memory
 *                        -> {"receipt":[ID, SIZE, "CHECKSUM as 16 hex digits"]}
 *     POST /v1/orders/done  {"prefetcher":TEXT,
 *                            "results":[{"id":ID, "preparation":{fth_prefetch_result_save()}}, or
 *                                       {"id":ID, "status":NAME, "error":TEXT}, ...]}
 *                        -> {}
 *
 * The answer to "take" is held until there is an order, for at most "wait_ms" (10000). An order
 * that is not done after "limit_s" goes to another prefetcher, and so do all orders of a worker
 * that has been silent for 3 s: a busy worker sends empty "results" every second. With "begins", a
 * worker says that earlier orders under its name are lost. Workers open a data set at the "address"
 * of GET /v1/data/NAME; it must have the same version there. A function is POSTed an order together
 * with "cache" and "address" (of this server), and answers with a result as above. */
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
    double budget_usd_per_hour; /* limit for functions and the cache; 0: none */
    double cache_usd_per_hour;
    uint64_t seed;     /* of the order that jobs share */
    const char *state; /* folder; NULL: one in the cache folder named by the port, or none if the port is 0 */

    const char *address;
    int port;
    const char *certificate_pem, *key_pem, *host_names;
    bool open;        /* as fth_access_options */
    const char *keys; /* as the parameter server's; a line may end with data=NAME[,NAME...] */
    double max_requests_per_s;
} fth_coordinator_options;

typedef struct fth_coordinator fth_coordinator;
/* Opens and checks everything before it serves, so that whatever cannot be reached is an error
 * here. What the options point to outlives the coordinator. */
fth_status fth_coordinator_start(const fth_coordinator_options *options, fth_coordinator **coordinator);
int fth_coordinator_port(const fth_coordinator *coordinator);
void fth_coordinator_stop(fth_coordinator *coordinator); /* frees it; NULL is allowed */

#endif
