/* The dispatcher gives prefetchers the orders that the scheduler (scheduler.h) chooses, and keeps
 * account of them: who prepares what, what failed, and what it costs. It has the lock under which
 * the scheduler is used; prefetchers wait here for orders.
 *
 *     taken -> done                              the item is in the cache, and those who wait for it are woken
 *           -> failed -> taken by somebody else  max_tries times, then the failure is the jobs'
 *
 * When the hour's budget is spent, prefetchers that cost money get no orders until the next hour;
 * others continue. */
#ifndef FTH_BATCHES_COORDINATOR_DISPATCHER_H
#define FTH_BATCHES_COORDINATOR_DISPATCHER_H

#include "batches/coordinator/coordinator_budget.h"
#include "batches/coordinator/coordinator_sets.h"
#include "batches/memory/board.h"
#include "batches/prefetch/prefetch.h"
#include "batches/scheduler/scheduler.h"
#include "http/signature.h"

/* The part of a cache's memory that the scheduler may fill: entries of different sizes leave gaps. */
#define FTH_CACHE_FILL 0.92

typedef struct fth_dispatcher fth_dispatcher;

typedef struct fth_dispatcher_options {
    const fth_served_sets *sets; /* NULL: an agent, which serves what its coordinator does */
    fth_cache *cache;
    fth_board *board; /* of this machine's clients, who are woken; NULL: there are none */
    uint64_t memory_bytes;
    int max_tries; /* as fth_scheduler_options */
    double budget_usd_per_hour, cache_usd_per_hour;
} fth_dispatcher_options;

/* What is given outlives the dispatcher. */
fth_status fth_dispatcher_create(const fth_dispatcher_options *options, fth_dispatcher **dispatcher);
void fth_dispatcher_free(fth_dispatcher *dispatcher);
/* Before prefetchers and clients come: told of each item that was made (without the lock), and of
 * what it cost. */
void fth_dispatcher_set_accountant(fth_dispatcher *dispatcher,
                                   void (*account)(void *context, const fth_order *order,
                                                   const fth_prefetch_result *result, double usd),
                                   void *context);
/* No more orders: fth_dispatcher_take() returns false from now on. */
void fth_dispatcher_close(fth_dispatcher *dispatcher);

/* ---- jobs ---- */
fth_status fth_dispatcher_add_job(fth_dispatcher *dispatcher, uint64_t job, const fth_job_spec *spec,
                                  int64_t set_count);
void fth_dispatcher_remove_job(fth_dispatcher *dispatcher, uint64_t job);
void fth_dispatcher_move(fth_dispatcher *dispatcher, uint64_t job, int process, int64_t next, int64_t stride,
                         int64_t end);
void fth_dispatcher_remove_process(fth_dispatcher *dispatcher, uint64_t job, int process);
fth_cache_format fth_dispatcher_choose_format(fth_dispatcher *dispatcher, const fth_job_spec *spec,
                                              const fth_open_set *set, char why[256]);
int64_t fth_dispatcher_choose_rotation(fth_dispatcher *dispatcher, const fth_job_spec *spec, int64_t set_count);
bool fth_dispatcher_get_job(fth_dispatcher *dispatcher, uint64_t job,
                            fth_scheduler_job_figures *figures); /* false, and 0: no such job */

/* ---- items ---- */
/* `failure` (may be NULL) gets the cause of one that has failed. */
typedef struct fth_dispatcher_failure {
    fth_item_id id;
    fth_status status;
    int set; /* its place in the list of sets; -1: not known */
    char reason[480];
} fth_dispatcher_failure;
fth_item_state fth_dispatcher_look(fth_dispatcher *dispatcher, fth_item_id id, fth_receipt *receipt,
                                   fth_dispatcher_failure *failure);
/* A process of a job waits for it; those of this machine are woken at once if it is there, or is
 * not to be expected. */
void fth_dispatcher_want(fth_dispatcher *dispatcher, uint64_t job, fth_item_id id);
/* Why a job is not to expect an item soon, and reads it directly instead: it has failed; nothing is
 * prepared for the job (FTH_NO_SPACE: its batches are too large); there is no room while others are
 * read; or all prefetchers fail, with whatever they try. False: it is there, or to come. */
bool fth_dispatcher_explain(fth_dispatcher *dispatcher, uint64_t job, fth_item_id id, fth_dispatcher_failure *failure);
/* Whether `who` (NULL: anybody) may read the data set that it is of. */
bool fth_dispatcher_may_read(fth_dispatcher *dispatcher, fth_item_id id, const fth_signed *caller);
/* Whether `who` is believed that it is lost: it is not known to be of a data set that they may not
 * read. */
bool fth_dispatcher_may_drop(fth_dispatcher *dispatcher, fth_item_id id, const fth_signed *caller);
/* The cache has lost it, or has it from before. */
void fth_dispatcher_lost(fth_dispatcher *dispatcher, fth_item_id id);
void fth_dispatcher_found(fth_dispatcher *dispatcher, const fth_receipt *receipt);
/* Whether some process still comes to an item that is being made. */
bool fth_dispatcher_needs(fth_dispatcher *dispatcher, fth_item_id id);
/* Raised whenever an item is ready or has failed. */
uint64_t fth_dispatcher_results(const fth_dispatcher *dispatcher);

/* ---- prefetchers ---- */
/* For those that run here. */
fth_order_source fth_dispatcher_order_source(fth_dispatcher *dispatcher);
/* For others: an order, if one is due now. */
bool fth_dispatcher_take(fth_dispatcher *dispatcher, const char *prefetcher, fth_deadline deadline, fth_order *order);
void fth_dispatcher_done(fth_dispatcher *dispatcher, const char *prefetcher, const fth_order *order, fth_status status,
                         const char *reason, const fth_prefetch_result *result, double usd);

/* ---- now and then ---- */
/* Drops what nobody needs, and counts what the cache costs, which it gives. */
double fth_dispatcher_tidy(fth_dispatcher *dispatcher);

/* ---- what it knows ---- */
void fth_dispatcher_get_figures(fth_dispatcher *dispatcher, fth_scheduler_figures *figures,
                                fth_cache_spending *spending);
/* For `who` (NULL: anybody). Failures name samples, so only those of data sets that `who` may read
 * are listed. */
/* [{"name", "tries", "done", "failures", "busy_s", "usd", "last_failure"}, ...] */
json_t *fth_dispatcher_describe_prefetchers(fth_dispatcher *dispatcher, const fth_signed *caller);
json_t *fth_dispatcher_describe_failures(fth_dispatcher *dispatcher, const fth_signed *caller); /* the newest of them */
json_t *fth_dispatcher_save(fth_dispatcher *dispatcher);
void fth_dispatcher_load(fth_dispatcher *dispatcher, const json_t *json);

#endif
