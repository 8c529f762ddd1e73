/* The jobs of a coordinator: who they are, where they are, what they have had and what it cost.
 *
 *     registered -> has processes <-> has none -> forgotten after an hour
 *                                  -> finished -> forgotten after an hour
 *
 * A job is known by its id, also to the coordinator that is started after this one was killed
 * (coordinator_state.h). Its processes are numbered by whoever sees them: slots of this machine's
 * board, or of an agent's.
 *
 * Dollars of an item that a function made are divided equally among the jobs that are served by it:
 * those with equal batches, or, for samples, all on that part of the data set with that form. The
 * cache's price is divided among the jobs that have processes. */
#ifndef FTH_BATCHES_COORDINATOR_JOBS_H
#define FTH_BATCHES_COORDINATOR_JOBS_H

#include "batches/coordinator/coordinator_dispatcher.h"
#include "batches/coordinator/coordinator_sets.h"
#include "batches/memory/board.h"
#include "http/signature.h"

typedef struct fth_served_jobs fth_served_jobs;

enum { FTH_MAX_SERVED_JOBS = 4096, FTH_JOB_NAME = 128 };

typedef struct fth_served_job {
    uint64_t id;
    fth_job_spec spec;
    char name[FTH_JOB_NAME], host[FTH_JOB_NAME], access[FTH_MAX_ACCESS_KEY + 1];
    char why[256];          /* its form was chosen */
    double began_s, seen_s; /* wall clock */
    bool finished, done;    /* finished: done, and no process is left */
    int processes;
    int64_t next; /* the least of its processes' positions, or the last one that was seen */
    uint64_t counters[FTH_SLOT_COUNTERS];
    fth_scheduler_job_figures scheduled; /* of coordinators before this one too, where that makes sense */
    double usd;
} fth_served_job;

/* `seed` is that of orders that jobs share. What is given outlives the jobs. */
fth_status fth_served_jobs_create(const fth_served_sets *sets, fth_dispatcher *dispatcher, uint64_t seed,
                                  const char *cache_name, fth_served_jobs **jobs);
void fth_served_jobs_free(fth_served_jobs *jobs);

/* ---- any thread ---- */

/* Answers {"job":{spec}, "name", "resume"?}. `host` is where the job is, "" for this machine; `who`
 * signed it, or NULL. FTH_INVALID says what is wrong with the request. */
fth_status fth_served_jobs_register(fth_served_jobs *jobs, const json_t *request, const char *host,
                                    const fth_signed *caller, uint64_t *job, json_t **answer);
/* Adds a job as another coordinator has registered it, which becomes active again if it is known:
 * `job` has its id, complete spec and name. */
fth_status fth_served_jobs_adopt(fth_served_jobs *jobs, const fth_served_job *job, int64_t set_count);
void fth_served_jobs_remove(fth_served_jobs *jobs, uint64_t job);
/* True if it is known and `who` may have part in it (NULL: everybody may). */
bool fth_served_jobs_may_join(fth_served_jobs *jobs, uint64_t job, const fth_signed *caller);

/* A process of a job needs next, next + stride, ... below end (0: no end). False: no such job. */
bool fth_served_jobs_move(fth_served_jobs *jobs, uint64_t job, int process, int64_t next, int64_t stride, int64_t end);
/* Its processes have had so much more, by fth_slot_counter. */
void fth_served_jobs_count(fth_served_jobs *jobs, uint64_t job, const uint64_t amounts[FTH_SLOT_COUNTERS]);
/* `finished`: the job is done, and has finished when its last process has left. */
void fth_served_jobs_leave(fth_served_jobs *jobs, uint64_t job, int process, bool finished);
/* The job is done, as somebody says who speaks for all its processes on a machine. */
void fth_served_jobs_finish(fth_served_jobs *jobs, uint64_t job);

/* An item was made: for fth_dispatcher_set_accountant(). `context` are the jobs. */
void fth_served_jobs_account(void *context, const fth_order *order, const fth_prefetch_result *result, double usd);
/* The cache has cost so much. Forgets jobs that have had no processes for long. */
void fth_served_jobs_tick(fth_served_jobs *jobs, double cache_usd);

/* ---- what they are ---- */

/* The index-th; false: past the last. A copy. */
bool fth_served_jobs_get(fth_served_jobs *jobs, size_t index, fth_served_job *job);
bool fth_served_jobs_find(fth_served_jobs *jobs, uint64_t id, fth_served_job *job);
/* [[PROCESS, NEXT, STRIDE, END, BEGIN], ...], as POST /v1/sync has them (coordinator.h). */
json_t *fth_served_jobs_describe_processes(fth_served_jobs *jobs, uint64_t id);
/* As GET /v1/jobs/JOB has it. */
json_t *fth_served_job_describe(const fth_served_job *job);

/* Raised with everything that a file of the state should have. */
uint64_t fth_served_jobs_changes(fth_served_jobs *jobs);
json_t *fth_served_jobs_save(fth_served_jobs *jobs);
/* Jobs whose data set is no longer what it was are left out. */
void fth_served_jobs_load(fth_served_jobs *jobs, const json_t *json);

#endif
