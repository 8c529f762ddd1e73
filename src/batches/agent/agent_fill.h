/* The thread of an agent that keeps its segment filled: it reports to the coordinator where the
 * jobs are, learns what is ready, and brings it here, from the coordinator or from Redis, nearest
 * first. */
#ifndef FTH_BATCHES_AGENT_FILL_H
#define FTH_BATCHES_AGENT_FILL_H

#include "batches/agent/agent_jobs.h"
#include "batches/cache/cache.h"
#include "batches/coordinator_link.h"

typedef struct fth_agent_fill fth_agent_fill;

typedef struct fth_agent_fill_options {
    const char *name; /* of the agent, for the coordinator */
    /* These outlive it. */
    fth_coordinator_link *link;
    fth_agent_jobs *jobs;
    fth_board *board;
    fth_segment_cache *segment;
} fth_agent_fill_options;

fth_status fth_agent_fill_start(const fth_agent_fill_options *options, fth_agent_fill **fill);
void fth_agent_fill_stop(fth_agent_fill *fill);
/* A client waits, or has come: looks at the board now. Any thread; does not wait. */
void fth_agent_fill_wake(fth_agent_fill *fill);
/* Where entries are, as the coordinator said: "shm", which is the coordinator's, or Redis, which is
 * opened if it is not yet. */
fth_status fth_agent_fill_use_cache(fth_agent_fill *fill, const char *address);
/* Why an item could not be had; FTH_OK if nothing is known of it. */
fth_status fth_agent_fill_why(fth_agent_fill *fill, fth_item_id id);

#endif
