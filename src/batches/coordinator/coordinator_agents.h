/* The agents of other machines (agent.h). Each has one connection, on which it keeps reporting
 * where its jobs are, and learns which of the items it wants are ready (POST /v1/sync in
 * coordinator.h). */
#ifndef FTH_BATCHES_COORDINATOR_AGENTS_H
#define FTH_BATCHES_COORDINATOR_AGENTS_H

#include "batches/coordinator/coordinator_jobs.h"
#include "http/server.h"

typedef struct fth_agents fth_agents;

/* The arguments outlive the agents. */
fth_status fth_agents_create(fth_served_jobs *jobs, fth_dispatcher *dispatcher, fth_cache *cache, fth_agents **agents);
void fth_agents_free(fth_agents *agents);

/* Takes over the exchange of a request, and answers it now or later. `caller` has signed it; NULL:
 * unsigned. FTH_INVALID: the request is invalid and was not answered. */
fth_status fth_agents_sync(fth_agents *agents, fth_exchange *exchange, const json_t *request, const fth_signed *caller);
/* Answers held requests that are due, and drops silent agents. True if requests are still held. */
bool fth_agents_tick(fth_agents *agents);
/* Answers all held requests. */
void fth_agents_close(fth_agents *agents);

size_t fth_agents_count(fth_agents *agents);
/* [{"agent", "jobs", "processes", "syncs"}, ...]; only its own agents for a `caller` (or NULL)
 * whose key is limited to some data sets. */
json_t *fth_agents_describe(fth_agents *agents, const fth_signed *caller);
/* The counters of each of their jobs, so that nothing is counted twice. */
json_t *fth_agents_save(fth_agents *agents);
void fth_agents_load(fth_agents *agents, const json_t *json);

#endif
