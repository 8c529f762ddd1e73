/* The agents of other machines (agent.h): each has one connection, on which it says over and over
 * where its jobs are, and is told what is ready of what they want (POST /v1/sync in
 * coordinator.h). */
#ifndef FTH_BATCHES_COORDINATOR_AGENTS_H
#define FTH_BATCHES_COORDINATOR_AGENTS_H

#include "batches/coordinator/coordinator_jobs.h"
#include "http/server.h"

typedef struct fth_agents fth_agents;

/* What is given outlives the agents. */
fth_status fth_agents_create(fth_served_jobs *jobs, fth_dispatcher *dispatcher, fth_cache *cache, fth_agents **agents);
void fth_agents_free(fth_agents *agents);

/* Takes over the exchange of a request, which it answers now or later. `who` signed it, or NULL.
 * FTH_INVALID: not a valid request, and not answered. */
fth_status fth_agents_sync(fth_agents *agents, fth_exchange *exchange, const json_t *request, const fth_signed *caller);
/* Answers what is held and due; lets go of agents that are silent. Gives whether something is still
 * held. */
bool fth_agents_tick(fth_agents *agents);
/* Answers everything that is held. */
void fth_agents_close(fth_agents *agents);

size_t fth_agents_count(fth_agents *agents);
/* [{"agent", "jobs", "processes", "syncs"}, ...]; to a key that is limited to data sets (`who`, or
 * NULL), its own agents alone. */
json_t *fth_agents_describe(fth_agents *agents, const fth_signed *caller);
/* What was counted for each of their jobs, so that nothing is counted twice. */
json_t *fth_agents_save(fth_agents *agents);
void fth_agents_load(fth_agents *agents, const json_t *json);

#endif
