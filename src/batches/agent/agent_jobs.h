/* The jobs that an agent has registered with its coordinator. Their positions and counters are in
 * the same table as a coordinator's own (coordinator_jobs.h); this adds what the coordinator has
 * answered, and reports the jobs to it. Any thread. */
#ifndef FTH_BATCHES_AGENT_JOBS_H
#define FTH_BATCHES_AGENT_JOBS_H

#include "batches/coordinator/coordinator_jobs.h"

typedef struct fth_agent_jobs fth_agent_jobs;

/* `served` and `board` outlive the jobs. */
fth_status fth_agent_jobs_create(fth_served_jobs *served, fth_board *board, fth_agent_jobs **jobs);
void fth_agent_jobs_free(fth_agent_jobs *jobs);

/* Adds a job from the coordinator's answer to POST /v1/jobs. A known job is replaced. `name` may be
 * NULL. */
fth_status fth_agent_jobs_add(fth_agent_jobs *jobs, const char *name, const json_t *answer, uint64_t *job);
/* The answer to a process that joins: {"job", "spec", "set"}. FTH_INVALID if there is no such
 * job. */
fth_status fth_agent_jobs_describe(fth_agent_jobs *jobs, uint64_t job, json_t **answer);
/* The body of POST /v1/jobs that registers a job again; NULL if it is unknown. */
json_t *fth_agent_jobs_registration(fth_agent_jobs *jobs, uint64_t job);
/* Adds "jobs", "finished" and "left" to a request of POST /v1/sync. A job that has ended is
 * forgotten with the next call. */
fth_status fth_agent_jobs_report(fth_agent_jobs *jobs, json_t *request);
/* The last report did not arrive: ended jobs are reported again. */
void fth_agent_jobs_report_failed(fth_agent_jobs *jobs);

#endif
