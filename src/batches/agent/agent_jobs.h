/* The jobs of an agent's clients: how they were registered, where they are, and what they need
 * next. Any thread. */
#ifndef FTH_BATCHES_AGENT_JOBS_H
#define FTH_BATCHES_AGENT_JOBS_H

#include "batches/job.h"
#include "batches/memory/board.h"

typedef struct fth_agent_jobs fth_agent_jobs;

/* `board` outlives them. */
fth_status fth_agent_jobs_create(fth_board *board, fth_agent_jobs **jobs);
void fth_agent_jobs_free(fth_agent_jobs *jobs);

/* Adds what the coordinator has answered to POST /v1/jobs for `name` (may be NULL); a job that is
 * there is replaced. */
fth_status fth_agent_jobs_add(fth_agent_jobs *jobs, const char *name, const json_t *answer, uint64_t *job);
/* The answer to a process that joins: {"job", "spec", "set"}. FTH_INVALID if there is no such
 * job. */
fth_status fth_agent_jobs_describe(fth_agent_jobs *jobs, uint64_t job, json_t **answer);
/* The body of POST /v1/jobs for registering it again; NULL if it has gone. */
json_t *fth_agent_jobs_registration(fth_agent_jobs *jobs, uint64_t job);
/* A client has gone; its slot can still be read. */
void fth_agent_jobs_left(fth_agent_jobs *jobs, int slot, uint64_t job, bool finished);

/* An item that is needed. */
typedef struct fth_agent_need {
    fth_item_id id;
    uint64_t job; /* of one that needs it */
    bool waiting; /* a client waits for it */
} fth_agent_need;

/* Looks at the board: adds "jobs", "finished" and "left" to a request of POST /v1/sync, and lists
 * what is needed next, at most `room` items, each once: first what clients wait for, then of each
 * client's coming `depth` batches the nearest first. */
fth_status fth_agent_jobs_look(fth_agent_jobs *jobs, json_t *request, int depth, fth_agent_need *needs, size_t room,
                               size_t *count);
/* The request did not arrive: what ended is said again in the next one. */
void fth_agent_jobs_not_told(fth_agent_jobs *jobs);

#endif
