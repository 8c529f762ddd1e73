/* The desk between jobs and prefetchers: what is to be made next (scheduler.h), who is making it, what failed, and what it
 * costs. It has the lock under which the scheduler is used, and the prefetchers wait at it for work.
 *
 *     taken -> done                              the item is in the cache, and those who wait for it are woken
 *           -> failed -> taken by somebody else  max_tries times, then the failure is the jobs'
 *
 * When the hour's budget is spent, whoever costs money gets no orders until the hour turns; others work on. */
#ifndef FTH_BATCHES_COORDINATOR_DESK_H
#define FTH_BATCHES_COORDINATOR_DESK_H

#include "batches/board.h"
#include "batches/coordinator_budget.h"
#include "batches/coordinator_sets.h"
#include "batches/prefetch.h"
#include "batches/scheduler.h"
#include "http/signature.h"

typedef struct fth_desk fth_desk;

typedef struct fth_desk_options {
    const fth_served_sets *sets;
    fth_cache *cache;
    fth_board *board; /* of this machine's clients, who are woken; NULL: there are none */
    uint64_t memory_bytes;
    double budget_usd_per_hour, cache_usd_per_hour;
} fth_desk_options;

/* What is given outlives the desk. */
fth_status fth_desk_create(const fth_desk_options *options, fth_desk **desk);
void fth_desk_free(fth_desk *desk);
/* Before prefetchers and clients come: told of each item that was made (without the lock), and of what it cost. */
void fth_desk_set_accountant(fth_desk *desk,
                             void (*account)(void *context, const fth_order *order, const fth_preparation *preparation,
                                             double usd),
                             void *context);
/* No more orders: who waits for one goes away empty-handed. */
void fth_desk_close(fth_desk *desk);

/* ---- jobs ---- */
fth_status fth_desk_add_job(fth_desk *desk, uint64_t job, const fth_job_spec *spec, int64_t set_count);
void fth_desk_remove_job(fth_desk *desk, uint64_t job);
void fth_desk_move(fth_desk *desk, uint64_t job, int process, int64_t next, int64_t stride, int64_t end);
void fth_desk_remove_process(fth_desk *desk, uint64_t job, int process);
/* Somebody waits for it: woken at once if it is there, or has failed. */
void fth_desk_want(fth_desk *desk, uint64_t job, fth_item_id id);
fth_form fth_desk_choose_form(fth_desk *desk, const fth_job_spec *spec, const fth_open_set *set, char why[256]);
int64_t fth_desk_choose_rotation(fth_desk *desk, const fth_job_spec *spec, int64_t set_count);
bool fth_desk_get_job(fth_desk *desk, uint64_t job, fth_scheduler_job_figures *figures); /* false, and 0: no such job */

/* ---- items ---- */
/* `failure` (may be NULL) gets the cause of one that has failed. */
typedef struct fth_desk_failure {
    fth_item_id id;
    fth_status status;
    char reason[480];
} fth_desk_failure;
fth_item_state fth_desk_look(fth_desk *desk, fth_item_id id, fth_receipt *receipt, fth_desk_failure *failure);
/* Whether `who` (NULL: anybody) may read the data set that it is of. */
bool fth_desk_may_read(fth_desk *desk, fth_item_id id, const fth_signed *who);
/* The cache has lost it, or has it from before. */
void fth_desk_lost(fth_desk *desk, fth_item_id id);
void fth_desk_found(fth_desk *desk, const fth_receipt *receipt);
/* Raised whenever an item is ready or has failed. */
uint64_t fth_desk_results(const fth_desk *desk);

/* ---- prefetchers ---- */
/* For those that run here. */
fth_prefetch_desk fth_desk_for_prefetchers(fth_desk *desk);
/* For others: an order, if one is due now. */
bool fth_desk_take(fth_desk *desk, const char *prefetcher, fth_deadline deadline, fth_order *order);
void fth_desk_done(fth_desk *desk, const char *prefetcher, const fth_order *order, fth_status status,
                   const char *reason, const fth_preparation *preparation, double usd);

/* ---- now and then ---- */
/* Drops what nobody needs, and counts what the cache costs, which it gives. */
double fth_desk_tidy(fth_desk *desk);

/* ---- what it knows ---- */
void fth_desk_get_figures(fth_desk *desk, fth_scheduler_figures *figures, fth_cache_spending *spending);
/* [{"name", "tries", "done", "failures", "busy_s", "usd", "last_failure"}, ...] */
json_t *fth_desk_describe_prefetchers(fth_desk *desk);
json_t *fth_desk_describe_failures(fth_desk *desk); /* the newest of them */
json_t *fth_desk_save(fth_desk *desk);
void fth_desk_load(fth_desk *desk, const json_t *json);

#endif
