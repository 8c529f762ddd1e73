/* An agent's only prefetcher. It takes orders from the agent's dispatcher as any other, and makes
 * an item by fetching it: it reports to the coordinator where the jobs are and which items they
 * wait for (POST /v1/sync), learns which are ready, and gets those from the coordinator or from
 * Redis. */
#ifndef FTH_BATCHES_UPSTREAM_H
#define FTH_BATCHES_UPSTREAM_H

#include "batches/agent/agent_jobs.h"
#include "batches/coordinator_link.h"

typedef struct fth_upstream fth_upstream;

/* All of it outlives the prefetcher. */
typedef struct fth_upstream_options {
    const char *agent; /* its name, for the coordinator */
    fth_coordinator_link *link;
    fth_agent_jobs *jobs;
    fth_dispatcher *dispatcher;
    fth_cache *cache; /* of this machine, to be filled */
    fth_board *board; /* of its clients */
} fth_upstream_options;

fth_status fth_upstream_start(const fth_upstream_options *options, fth_upstream **upstream);
/* After fth_dispatcher_close(). Frees it; NULL is allowed. */
void fth_upstream_stop(fth_upstream *upstream);
/* Where entries are, as the coordinator says: "shm", its own memory, or the address of a Redis,
 * which is opened once. Any thread. */
fth_status fth_upstream_use_cache(fth_upstream *upstream, const char *address);

#endif
