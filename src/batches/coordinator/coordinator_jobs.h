/* The jobs of a coordinator: identity, positions, counters and cost.
 *
 *     registered -> has processes <-> has none -> forgotten after an hour
 *                                  -> finished -> forgotten after an hour
 *
 * A job's id survives restarts of the coordinator (coordinator_state.h). Its processes are numbered
 * by slot, of this machine's board or of an agent's.
 *
 * The cost of an item made by a function is divided equally among the jobs that use it: those with
 * equal batches or, for samples, all on that part of the data set with that cache format. The cost
 * of the cache is divided among the jobs that have processes. */
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
    char why[256];          /* why its format was chosen */
    double began_s, seen_s; /* wall clock */
    bool finished, done;    /* finished: done, and all processes have left */
    int processes;
    int64_t next; /* the least position of its processes, or the last one known */
    uint64_t counters[FTH_SLOT_COUNTERS];
    fth_scheduler_job_figures scheduled; /* including earlier coordinators, where that makes sense */
    double usd;
} fth_served_job;

/* `seed` is that of the shared order. The arguments outlive the jobs. */
fth_status fth_served_jobs_create(const fth_served_sets *sets, fth_dispatcher *dispatcher, uint64_t seed,
                                  const char *cache_name, fth_served_jobs **jobs);
void fth_served_jobs_free(fth_served_jobs *jobs);

/* ---- any thread ---- */

/* Answers {"job":{spec}, "name", "resume"?}. `host` is the job's machine, "" for this one; `caller`
 * has signed the request, or NULL. FTH_INVALID says what is wrong with it. */
fth_status fth_served_jobs_register(fth_served_jobs *jobs, const json_t *request, const char *host,
                                    const fth_signed *caller, uint64_t *job, json_t **answer);
/* Adds a job that another coordinator has registered, or activates it again if it is known. `job`
 * has its id, complete spec and name. */
fth_status fth_served_jobs_adopt(fth_served_jobs *jobs, const fth_served_job *job, int64_t set_count);
void fth_served_jobs_remove(fth_served_jobs *jobs, uint64_t job);
/* True if it exists and `caller` may take part in it (NULL: anybody may). */
bool fth_served_jobs_may_join(fth_served_jobs *jobs, uint64_t job, const fth_signed *caller);

/* A process of a job needs next, next + stride, ... below end (0: no end). False: no such job. */
bool fth_served_jobs_move(fth_served_jobs *jobs, uint64_t job, int process, int64_t next, int64_t stride, int64_t end);
/* Adds to the counters of its processes, by fth_slot_counter. */
void fth_served_jobs_count(fth_served_jobs *jobs, uint64_t job, const uint64_t amounts[FTH_SLOT_COUNTERS]);
/* `finished`: the job is done, and finishes when its last process has left. */
void fth_served_jobs_leave(fth_served_jobs *jobs, uint64_t job, int process, bool finished);
/* The job is done, as an agent reports for all its processes on a machine. */
void fth_served_jobs_finish(fth_served_jobs *jobs, uint64_t job);

/* For fth_dispatcher_set_accountant(), when an item was made; `context` is the jobs. */
void fth_served_jobs_account(void *context, const fth_order *order, const fth_prefetch_result *result, double usd);
/* Divides the cost of the cache, and forgets jobs that have had no processes for long. */
void fth_served_jobs_tick(fth_served_jobs *jobs, double cache_usd);

/* ---- reports ---- */

/* A copy of the index-th job; false: past the last. */
bool fth_served_jobs_get(fth_served_jobs *jobs, size_t index, fth_served_job *job);
bool fth_served_jobs_find(fth_served_jobs *jobs, uint64_t id, fth_served_job *job);
/* [[PROCESS, NEXT, STRIDE, END, BEGIN], ...], as POST /v1/sync has them (coordinator.h). */
json_t *fth_served_jobs_describe_processes(fth_served_jobs *jobs, uint64_t id);
/* As in GET /v1/jobs/JOB. */
json_t *fth_served_job_describe(const fth_served_job *job);

/* Increases with every change that belongs in the state file. */
uint64_t fth_served_jobs_changes(fth_served_jobs *jobs);
json_t *fth_served_jobs_save(fth_served_jobs *jobs);
/* Skips jobs whose data set has changed. */
void fth_served_jobs_load(fth_served_jobs *jobs, const json_t *json);

#endif
