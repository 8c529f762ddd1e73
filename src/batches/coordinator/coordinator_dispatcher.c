/* See coordinator_dispatcher.h. */
#include "batches/coordinator/coordinator_dispatcher.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "batches/coordinator/item_sets.h"

enum { EVICT_AT_ONCE = 256 };

struct fth_dispatcher {
    fth_dispatcher_options with;
    void (*account)(void *context, const fth_order *order, const fth_prefetch_result *result, double usd);
    void *account_context;
    atomic_uint_fast64_t results;

    pthread_mutex_t mutex;  /* guards the members below */
    pthread_cond_t changed; /* signals an order, or the end */
    bool closed;
    int waiting; /* threads that wait for orders */
    fth_scheduler *scheduler;
    fth_item_sets *item_sets; /* of items in the cache: the index of their set */
    fth_cache_spending spending;
    bool said_exhausted; /* in this hour */
    fth_prefetch_history *history;
};

/* An item dropped from the schedule may have been made again before it was removed from the cache.
 * Since the removal may have hit the new entry, that counts as lost. */
static void note_removed(fth_dispatcher *dispatcher, const fth_item_id *ids, size_t count)
{
    pthread_mutex_lock(&dispatcher->mutex);
    for (size_t i = 0; i < count; i++)
        fth_scheduler_lost(dispatcher->scheduler, ids[i]);
    pthread_mutex_unlock(&dispatcher->mutex);
}

/* Drops items from schedule and cache until there is room: unneeded ones first, then those needed
 * last. Without the lock. */
static void evict(void *context, uint64_t needed_bytes)
{
    fth_dispatcher *dispatcher = context;
    fth_item_id ids[EVICT_AT_ONCE];
    size_t count;
    do {
        pthread_mutex_lock(&dispatcher->mutex);
        count = fth_scheduler_evict(dispatcher->scheduler, needed_bytes, fth_clock_seconds(), ids, EVICT_AT_ONCE);
        for (size_t i = 0; i < count; i++)
            fth_item_sets_remove(dispatcher->item_sets, ids[i]);
        pthread_mutex_unlock(&dispatcher->mutex);
        if (count > 0) {
            FTH_IGNORE(fth_cache_remove(dispatcher->with.cache, ids, count), "a cache that is down has lost them");
            note_removed(dispatcher, ids, count);
        }
        needed_bytes = 0;
    } while (count == EVICT_AT_ONCE);
}

fth_status fth_dispatcher_create(const fth_dispatcher_options *options, fth_dispatcher **result)
{
    fth_status status = FTH_OK;
    fth_dispatcher *dispatcher = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *dispatcher, &dispatcher));
    dispatcher->with = *options;
    dispatcher->spending = (fth_cache_spending){.budget_usd_per_hour = options->budget_usd_per_hour,
                                                .cache_usd_per_hour = options->cache_usd_per_hour};
    pthread_mutex_init(&dispatcher->mutex, NULL);
    pthread_cond_init(&dispatcher->changed, NULL);
    FTH_TRY(fth_scheduler_create(
        &(fth_scheduler_options){.memory_bytes = options->memory_bytes, .max_tries = options->max_tries},
        &dispatcher->scheduler));
    FTH_TRY(fth_item_sets_create(&dispatcher->item_sets));
    FTH_TRY(fth_prefetch_history_create(options->sets, &dispatcher->history));
    fth_cache_set_evictor(options->cache, evict, dispatcher);
    *result = dispatcher;
    dispatcher = NULL;

out:
    fth_dispatcher_free(dispatcher);
    return status;
}

void fth_dispatcher_free(fth_dispatcher *dispatcher)
{
    if (!dispatcher)
        return;
    fth_cache_set_evictor(dispatcher->with.cache, NULL, NULL);
    fth_scheduler_free(dispatcher->scheduler);
    fth_item_sets_free(dispatcher->item_sets);
    fth_prefetch_history_free(dispatcher->history);
    pthread_cond_destroy(&dispatcher->changed);
    pthread_mutex_destroy(&dispatcher->mutex);
    free(dispatcher);
}

void fth_dispatcher_set_accountant(fth_dispatcher *dispatcher,
                                   void (*account)(void *context, const fth_order *order,
                                                   const fth_prefetch_result *result, double usd),
                                   void *context)
{
    dispatcher->account = account;
    dispatcher->account_context = context;
}

void fth_dispatcher_close(fth_dispatcher *dispatcher)
{
    pthread_mutex_lock(&dispatcher->mutex);
    dispatcher->closed = true;
    pthread_cond_broadcast(&dispatcher->changed);
    pthread_mutex_unlock(&dispatcher->mutex);
}

/* With the lock held: wakes the waiting prefetchers if there may be an order, which not all of them
 * may take. */
static void offer(fth_dispatcher *dispatcher, double now)
{
    if (dispatcher->waiting > 0 && fth_scheduler_next_event(dispatcher->scheduler, now) <= now)
        pthread_cond_broadcast(&dispatcher->changed);
}

/* ---- jobs ---- */

fth_status fth_dispatcher_add_job(fth_dispatcher *dispatcher, uint64_t job, const fth_job_spec *spec, int64_t set_count)
{
    double now = fth_clock_seconds();
    pthread_mutex_lock(&dispatcher->mutex);
    fth_status status = fth_scheduler_add_job(dispatcher->scheduler, job, spec, set_count, now);
    offer(dispatcher, now);
    pthread_mutex_unlock(&dispatcher->mutex);
    return status;
}

void fth_dispatcher_remove_job(fth_dispatcher *dispatcher, uint64_t job)
{
    pthread_mutex_lock(&dispatcher->mutex);
    fth_scheduler_remove_job(dispatcher->scheduler, job);
    pthread_mutex_unlock(&dispatcher->mutex);
}

void fth_dispatcher_move(fth_dispatcher *dispatcher, uint64_t job, int process, int64_t next, int64_t stride,
                         int64_t end)
{
    double now = fth_clock_seconds();
    pthread_mutex_lock(&dispatcher->mutex);
    fth_scheduler_set_position(dispatcher->scheduler, job, process, next, stride, end, now);
    offer(dispatcher, now);
    pthread_mutex_unlock(&dispatcher->mutex);
}

void fth_dispatcher_remove_process(fth_dispatcher *dispatcher, uint64_t job, int process)
{
    pthread_mutex_lock(&dispatcher->mutex);
    fth_scheduler_remove_process(dispatcher->scheduler, job, process);
    pthread_mutex_unlock(&dispatcher->mutex);
}

static fth_item_state look(fth_dispatcher *dispatcher, fth_item_id id, fth_receipt *receipt,
                           fth_dispatcher_failure *failure)
{
    const char *reason = NULL;
    fth_item_state state = fth_scheduler_state(dispatcher->scheduler, id, receipt, &reason);
    if (state == FTH_ITEM_FAILED && failure) {
        const fth_dispatcher_failure *kept = fth_prefetch_history_find_failure(dispatcher->history, id);
        *failure =
            (fth_dispatcher_failure){.id = id, .status = kept ? kept->status : FTH_IO, .set = kept ? kept->set : -1};
        fth_printable_copy(failure->reason, sizeof failure->reason, reason ? reason : kept ? kept->reason : "");
    }
    return state;
}

fth_item_state fth_dispatcher_look(fth_dispatcher *dispatcher, fth_item_id id, fth_receipt *receipt,
                                   fth_dispatcher_failure *failure)
{
    pthread_mutex_lock(&dispatcher->mutex);
    fth_item_state state = look(dispatcher, id, receipt, failure);
    pthread_mutex_unlock(&dispatcher->mutex);
    return state;
}

/* With the lock held: why the data set of a job cannot be read at present; NULL: it can. */
static const char *find_broken_set(const fth_dispatcher *dispatcher, uint64_t job, fth_status *status)
{
    const fth_job_spec *spec = fth_scheduler_job_spec(dispatcher->scheduler, job);
    int set = spec ? fth_served_sets_index(dispatcher->with.sets, spec->data) : -1;
    return fth_prefetch_history_find_broken(dispatcher->history, set, status);
}

/* With the lock held. */
static bool explain(fth_dispatcher *dispatcher, uint64_t job, fth_item_id id, fth_dispatcher_failure *failure)
{
    fth_item_state state = look(dispatcher, id, NULL, failure);
    if (state == FTH_ITEM_READY || state == FTH_ITEM_FAILED)
        return state == FTH_ITEM_FAILED;
    fth_status status = FTH_NO_SPACE;
    const char *reason = fth_scheduler_refusal(dispatcher->scheduler, job);
    if (!reason && (reason = fth_scheduler_lacks_room(dispatcher->scheduler, id)))
        status = FTH_NO_MEMORY;
    if (!reason)
        reason = find_broken_set(dispatcher, job, &status);
    if (!reason)
        return false;
    *failure = (fth_dispatcher_failure){.id = id, .status = status, .set = -1};
    fth_printable_copy(failure->reason, sizeof failure->reason, reason);
    return true;
}

bool fth_dispatcher_explain(fth_dispatcher *dispatcher, uint64_t job, fth_item_id id, fth_dispatcher_failure *failure)
{
    pthread_mutex_lock(&dispatcher->mutex);
    bool explained = explain(dispatcher, job, id, failure);
    pthread_mutex_unlock(&dispatcher->mutex);
    return explained;
}

void fth_dispatcher_want(fth_dispatcher *dispatcher, uint64_t job, fth_item_id id)
{
    double now = fth_clock_seconds();
    fth_dispatcher_failure failure = {.status = FTH_OK};
    fth_segment_cache *segment = fth_cache_segment(dispatcher->with.cache);

    pthread_mutex_lock(&dispatcher->mutex);
    fth_item_state state = look(dispatcher, id, NULL, NULL);
    if (state == FTH_ITEM_READY && segment && !fth_segment_has(segment, id, NULL)) {
        fth_scheduler_lost(dispatcher->scheduler, id);
        state = FTH_ITEM_UNKNOWN;
    }
    if (state != FTH_ITEM_READY && state != FTH_ITEM_FAILED) {
        fth_scheduler_want(dispatcher->scheduler, job, id, now);
        offer(dispatcher, now);
    }
    bool failed = state != FTH_ITEM_READY && explain(dispatcher, job, id, &failure);
    pthread_mutex_unlock(&dispatcher->mutex);
    if (dispatcher->with.board && (state == FTH_ITEM_READY || failed))
        fth_board_wake(dispatcher->with.board, id, failed ? failure.status : FTH_OK);
}

fth_cache_format fth_dispatcher_choose_format(fth_dispatcher *dispatcher, const fth_job_spec *spec,
                                              const fth_open_set *set, char why[256])
{
    pthread_mutex_lock(&dispatcher->mutex);
    fth_cache_format format =
        fth_scheduler_choose_format(dispatcher->scheduler, spec, set->count[spec->split], set->files, why);
    pthread_mutex_unlock(&dispatcher->mutex);
    return format;
}

int64_t fth_dispatcher_choose_rotation(fth_dispatcher *dispatcher, const fth_job_spec *spec, int64_t set_count)
{
    pthread_mutex_lock(&dispatcher->mutex);
    int64_t rotation = fth_scheduler_choose_rotation(dispatcher->scheduler, spec, set_count);
    pthread_mutex_unlock(&dispatcher->mutex);
    return rotation;
}

bool fth_dispatcher_get_job(fth_dispatcher *dispatcher, uint64_t job, fth_scheduler_job_figures *figures)
{
    *figures = (fth_scheduler_job_figures){0};
    pthread_mutex_lock(&dispatcher->mutex);
    bool found = fth_scheduler_get_job_figures(dispatcher->scheduler, job, figures);
    pthread_mutex_unlock(&dispatcher->mutex);
    return found;
}

/* ---- items ---- */

void fth_dispatcher_lost(fth_dispatcher *dispatcher, fth_item_id id)
{
    double now = fth_clock_seconds();
    pthread_mutex_lock(&dispatcher->mutex);
    fth_scheduler_lost(dispatcher->scheduler, id);
    offer(dispatcher, now);
    pthread_mutex_unlock(&dispatcher->mutex);
}

void fth_dispatcher_found(fth_dispatcher *dispatcher, const fth_receipt *receipt)
{
    pthread_mutex_lock(&dispatcher->mutex);
    fth_scheduler_found(dispatcher->scheduler, receipt);
    pthread_mutex_unlock(&dispatcher->mutex);
}

bool fth_dispatcher_needs(fth_dispatcher *dispatcher, fth_item_id id)
{
    pthread_mutex_lock(&dispatcher->mutex);
    bool needed = fth_scheduler_needs(dispatcher->scheduler, id);
    pthread_mutex_unlock(&dispatcher->mutex);
    return needed;
}

static int set_of_item(fth_dispatcher *dispatcher, fth_item_id id)
{
    pthread_mutex_lock(&dispatcher->mutex);
    int set = fth_item_sets_get(dispatcher->item_sets, id);
    pthread_mutex_unlock(&dispatcher->mutex);
    return set;
}

bool fth_dispatcher_may_read(fth_dispatcher *dispatcher, fth_item_id id, const fth_signed *caller)
{
    return fth_served_sets_may_read(dispatcher->with.sets, set_of_item(dispatcher, id), caller);
}

bool fth_dispatcher_may_drop(fth_dispatcher *dispatcher, fth_item_id id, const fth_signed *caller)
{
    int set = set_of_item(dispatcher, id);
    return set < 0 || fth_served_sets_may_read(dispatcher->with.sets, set, caller);
}

uint64_t fth_dispatcher_results(const fth_dispatcher *dispatcher)
{
    return atomic_load(&dispatcher->results);
}

/* ---- prefetchers ---- */

/* With the lock held: a prefetcher that has cost money waits while the hour's budget is spent. */
static bool may_work(fth_dispatcher *dispatcher, const fth_prefetcher_record *prefetcher)
{
    if (prefetcher->usd <= 0 || !fth_cache_spending_is_exhausted(&dispatcher->spending))
        return true;
    if (!dispatcher->said_exhausted)
        fth_log_warning("the budget of $%g an hour is spent: functions get no orders until the next hour",
                        dispatcher->spending.budget_usd_per_hour);
    dispatcher->said_exhausted = true;
    return false;
}

bool fth_dispatcher_take(fth_dispatcher *dispatcher, const char *name, fth_deadline deadline, fth_order *order)
{
    const double idle_s = 1; /* limits the wait, since the budget's hour may change */
    bool taken = false;
    pthread_mutex_lock(&dispatcher->mutex);
    fth_prefetcher_record *prefetcher = fth_prefetch_history_find(dispatcher->history, name);
    while (!taken && !dispatcher->closed) {
        double now = prefetcher->seen_s = fth_clock_seconds();
        bool may = may_work(dispatcher, prefetcher);
        taken = may && fth_scheduler_take(dispatcher->scheduler, name, now, order);
        if (taken || fth_deadline_passed(deadline))
            break;
        double next = may ? fth_scheduler_next_event(dispatcher->scheduler, now) : now + idle_s;
        double until = next > now && next < now + idle_s ? next : now + idle_s;
        if (until > deadline.at_seconds)
            until = deadline.at_seconds;
        struct timespec at = fth_deadline_timespec((fth_deadline){until});
        dispatcher->waiting++;
        pthread_cond_clockwait(&dispatcher->changed, &dispatcher->mutex, CLOCK_MONOTONIC, &at);
        dispatcher->waiting--;
    }
    if (taken)
        prefetcher->tries++;
    pthread_mutex_unlock(&dispatcher->mutex);
    if (taken)
        evict(dispatcher, 0); /* as the scheduler assumed */
    return taken;
}

/* With the lock held: logs jobs that are too large for the cache, each once. */
static void report_refusals(fth_dispatcher *dispatcher)
{
    const fth_job_spec *spec;
    const char *refusal;
    while ((refusal = fth_scheduler_next_refusal(dispatcher->scheduler, &spec))) {
        char reason[sizeof((fth_dispatcher_failure *)NULL)->reason];
        snprintf(reason, sizeof reason, "a job on %s reads directly (batches of %" PRId64 ", form %s): %s", spec->data,
                 spec->batch, fth_cache_format_name(spec->format), refusal);
        fth_prefetch_history_keep_failure(dispatcher->history, (fth_item_id){0},
                                          fth_served_sets_index(dispatcher->with.sets, spec->data), FTH_NO_SPACE,
                                          reason);
        fth_log_warning("%s", reason);
    }
}

void fth_dispatcher_done(fth_dispatcher *dispatcher, const char *name, const fth_order *order, fth_status status,
                         const char *reason, const fth_prefetch_result *result, double usd)
{
    const double now = fth_clock_seconds();
    const int set = fth_served_sets_index(dispatcher->with.sets, order->spec.data);
    bool failed = false;
    if (!reason)
        reason = fth_status_name(status);

    pthread_mutex_lock(&dispatcher->mutex);
    fth_prefetcher_record *prefetcher = fth_prefetch_history_find(dispatcher->history, name);
    fth_cache_spending_add_function(&dispatcher->spending, usd);
    prefetcher->usd += usd;
    bool broke = fth_prefetch_history_note(dispatcher->history, prefetcher, set, status, reason);
    if (status == FTH_OK) {
        prefetcher->done++;
        prefetcher->busy_s += result->fetch_s + result->decode_s + result->transform_s;
        fth_scheduler_done(dispatcher->scheduler, order, result, now);
        fth_item_sets_put(dispatcher->item_sets, order->id, set);
    } else {
        prefetcher->failures++;
        fth_printable_copy(prefetcher->last_failure, sizeof prefetcher->last_failure, reason);
        failed = fth_scheduler_failed(dispatcher->scheduler, order, name, status, reason, now);
        if ((failed || broke) && status != FTH_NO_SPACE) /* which is logged once per job */
            fth_prefetch_history_report_failure(dispatcher->history, order, set, status, reason, now);
    }
    report_refusals(dispatcher);
    offer(dispatcher, now);
    pthread_mutex_unlock(&dispatcher->mutex);
    if (failed && dispatcher->with.board)
        fth_board_wake(dispatcher->with.board, order->id, fth_prefetch_failure_status(status));
    if (status == FTH_OK || failed)
        atomic_fetch_add(&dispatcher->results, 1);
    if (dispatcher->account)
        dispatcher->account(dispatcher->account_context, order, status == FTH_OK ? result : NULL, usd);
}

static bool take_order(void *context, const char *name, fth_deadline deadline, fth_order *order)
{
    return fth_dispatcher_take(context, name, deadline, order);
}

static void finish_order(void *context, const char *name, const fth_order *order, fth_status status, const char *reason,
                         const fth_prefetch_result *result, double usd)
{
    fth_dispatcher_done(context, name, order, status, reason, result, usd);
}

static fth_status lend_set(void *context, const char *data, fth_prefetch_set **lent)
{
    const fth_dispatcher *dispatcher = context;
    const fth_open_set *set = NULL;
    fth_status status = fth_served_sets_require(dispatcher->with.sets, data, &set);
    *lent = set ? set->set : NULL;
    return status;
}

fth_order_source fth_dispatcher_order_source(fth_dispatcher *dispatcher)
{
    return (fth_order_source){.context = dispatcher,
                              .take = take_order,
                              .done = finish_order,
                              .set = lend_set,
                              .cache = dispatcher->with.cache};
}

/* ---- periodically ---- */

double fth_dispatcher_tidy(fth_dispatcher *dispatcher)
{
    pthread_mutex_lock(&dispatcher->mutex);
    int64_t hour = dispatcher->spending.hour;
    double cost = fth_cache_spending_advance(&dispatcher->spending, fth_clock_wall_seconds());
    if (hour != dispatcher->spending.hour)
        dispatcher->said_exhausted = false;
    pthread_mutex_unlock(&dispatcher->mutex);
    evict(dispatcher, 0);
    return cost;
}

/* ---- reports ---- */

void fth_dispatcher_get_figures(fth_dispatcher *dispatcher, fth_scheduler_figures *figures,
                                fth_cache_spending *spending)
{
    pthread_mutex_lock(&dispatcher->mutex);
    fth_scheduler_get_figures(dispatcher->scheduler, figures);
    *spending = dispatcher->spending;
    pthread_mutex_unlock(&dispatcher->mutex);
}

json_t *fth_dispatcher_describe_prefetchers(fth_dispatcher *dispatcher, const fth_signed *caller)
{
    pthread_mutex_lock(&dispatcher->mutex);
    json_t *list = fth_prefetch_history_describe_prefetchers(dispatcher->history, caller);
    pthread_mutex_unlock(&dispatcher->mutex);
    return list;
}

json_t *fth_dispatcher_describe_failures(fth_dispatcher *dispatcher, const fth_signed *caller)
{
    pthread_mutex_lock(&dispatcher->mutex);
    json_t *list = fth_prefetch_history_describe_failures(dispatcher->history, caller);
    pthread_mutex_unlock(&dispatcher->mutex);
    return list;
}

json_t *fth_dispatcher_save(fth_dispatcher *dispatcher)
{
    pthread_mutex_lock(&dispatcher->mutex);
    json_t *json = json_pack("{s:o, s:o}", "spending", fth_cache_spending_save(&dispatcher->spending), "paid",
                             fth_prefetch_history_save_paid(dispatcher->history));
    pthread_mutex_unlock(&dispatcher->mutex);
    return json;
}

void fth_dispatcher_load(fth_dispatcher *dispatcher, const json_t *json)
{
    pthread_mutex_lock(&dispatcher->mutex);
    fth_cache_spending_load(&dispatcher->spending, json_object_get(json, "spending"));
    fth_prefetch_history_load_paid(dispatcher->history, json_object_get(json, "paid"));
    pthread_mutex_unlock(&dispatcher->mutex);
}
