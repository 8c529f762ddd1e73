/* The dispatcher gives prefetchers the orders that the scheduler (scheduler.h) chooses, and keeps
 * account of what is spent and of what prefetchers have done (prefetch_history.h). The scheduler is
 * used under its lock; prefetchers wait here for orders.
 *
 *     taken -> done                       the item is in the cache; waiting clients are woken
 *           -> failed -> taken again      by another, max_tries times; then jobs get the failure
 *
 * When the hour's budget is spent, prefetchers that cost money get no orders until the next hour;
 * others continue. */
#ifndef FTH_BATCHES_COORDINATOR_DISPATCHER_H
#define FTH_BATCHES_COORDINATOR_DISPATCHER_H

#include "batches/coordinator/coordinator_budget.h"
#include "batches/coordinator/prefetch_history.h"
#include "batches/memory/board.h"
#include "batches/prefetch/prefetch.h"
#include "batches/scheduler/scheduler.h"

/* The part of a cache's memory that the scheduler may fill: entries of different sizes leave
 * gaps. */
#define FTH_CACHE_FILL 0.92

typedef struct fth_dispatcher fth_dispatcher;

typedef struct fth_dispatcher_options {
    const fth_served_sets *sets; /* NULL: an agent, which opens no data sets */
    fth_cache *cache;
    fth_board *board; /* of this machine's clients, who are woken; NULL: there are none */
    uint64_t memory_bytes;
    int max_tries; /* as fth_scheduler_options */
    double budget_usd_per_hour, cache_usd_per_hour;
} fth_dispatcher_options;

/* The options' pointers outlive the dispatcher. */
fth_status fth_dispatcher_create(const fth_dispatcher_options *options, fth_dispatcher **dispatcher);
void fth_dispatcher_free(fth_dispatcher *dispatcher);
/* Set before prefetchers and clients start. Called for each item made, without the lock, with its
 * cost. */
void fth_dispatcher_set_accountant(fth_dispatcher *dispatcher,
                                   void (*account)(void *context, const fth_order *order,
                                                   const fth_prefetch_result *result, double usd),
                                   void *context);
/* Ends all orders: fth_dispatcher_take() returns false from now on. */
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
/* `failure` (may be NULL) gets the reason of a failed item. */
fth_item_state fth_dispatcher_look(fth_dispatcher *dispatcher, fth_item_id id, fth_receipt *receipt,
                                   fth_dispatcher_failure *failure);
/* A process of a job waits for an item. Clients of this machine are woken at once if it is ready or
 * will not come soon. */
void fth_dispatcher_want(fth_dispatcher *dispatcher, uint64_t job, fth_item_id id);
/* Why a job cannot expect an item soon and reads it directly instead: it has failed; nothing is
 * made for the job (FTH_NO_SPACE: its batches are too large); there is no room while other items
 * are in use; or all prefetchers fail. False: it is ready, or will be. */
bool fth_dispatcher_explain(fth_dispatcher *dispatcher, uint64_t job, fth_item_id id, fth_dispatcher_failure *failure);
/* Whether `caller` (NULL: anybody) may read the item's data set. */
bool fth_dispatcher_may_read(fth_dispatcher *dispatcher, fth_item_id id, const fth_signed *caller);
/* Whether `caller` may report the item as lost: it is not known to be of a data set that they may
 * not read. */
bool fth_dispatcher_may_drop(fth_dispatcher *dispatcher, fth_item_id id, const fth_signed *caller);
/* The cache has lost it, or has had it from the start. */
void fth_dispatcher_lost(fth_dispatcher *dispatcher, fth_item_id id);
void fth_dispatcher_found(fth_dispatcher *dispatcher, const fth_receipt *receipt);
/* Whether a process still needs an item in progress. */
bool fth_dispatcher_needs(fth_dispatcher *dispatcher, fth_item_id id);
/* Increases whenever an item is ready or has failed. */
uint64_t fth_dispatcher_results(const fth_dispatcher *dispatcher);

/* ---- prefetchers ---- */
/* For prefetchers of this process. */
fth_order_source fth_dispatcher_order_source(fth_dispatcher *dispatcher);
/* For others: an order, if one is due. */
bool fth_dispatcher_take(fth_dispatcher *dispatcher, const char *prefetcher, fth_deadline deadline, fth_order *order);
void fth_dispatcher_done(fth_dispatcher *dispatcher, const char *prefetcher, const fth_order *order, fth_status status,
                         const char *reason, const fth_prefetch_result *result, double usd);

/* ---- periodically ---- */
/* Drops unneeded items and returns the cost of the cache since the last call. */
double fth_dispatcher_tidy(fth_dispatcher *dispatcher);

/* ---- reports ---- */
void fth_dispatcher_get_figures(fth_dispatcher *dispatcher, fth_scheduler_figures *figures,
                                fth_cache_spending *spending);
/* As in prefetch_history.h. */
json_t *fth_dispatcher_describe_prefetchers(fth_dispatcher *dispatcher, const fth_signed *caller);
json_t *fth_dispatcher_describe_failures(fth_dispatcher *dispatcher, const fth_signed *caller);
json_t *fth_dispatcher_save(fth_dispatcher *dispatcher);
void fth_dispatcher_load(fth_dispatcher *dispatcher, const json_t *json);

#endif
