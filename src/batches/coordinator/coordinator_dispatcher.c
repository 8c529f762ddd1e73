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

enum { MAX_PREFETCHERS = 256, KEPT_FAILURES = 256, SHOWN_FAILURES = 20, EVICT_AT_ONCE = 256, LOGGED_A_MINUTE = 10 };

typedef struct prefetcher_record {
    char name[128];
    uint64_t tries, done, failures;
    double busy_s, usd;
    double seen_s; /* when it last asked for an order */
    char last_failure[480];
} prefetcher_record;

/* Which prefetchers fail on a data set. */
typedef struct set_health {
    bool failing[MAX_PREFETCHERS]; /* by prefetcher: its last order on the set failed */
    fth_status status;             /* of the last failure */
    char reason[480];
} set_health;

/* A rate limit, so that the log does not fill. */
typedef struct log_limit {
    double minute_s; /* when the minute began */
    int written;
    uint64_t left_out;
} log_limit;

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
    prefetcher_record prefetchers[MAX_PREFETCHERS];
    size_t prefetcher_count;
    set_health *health;                             /* by the index of the set */
    fth_dispatcher_failure failures[KEPT_FAILURES]; /* a ring */
    uint64_t failure_count;                         /* total */
    log_limit log;
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
    FTH_TRY(fth_allocate(fth_served_sets_count(options->sets), sizeof *dispatcher->health, &dispatcher->health));
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
    free(dispatcher->health);
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

static const fth_dispatcher_failure *find_failure(const fth_dispatcher *dispatcher, fth_item_id id)
{
    uint64_t kept = dispatcher->failure_count < KEPT_FAILURES ? dispatcher->failure_count : KEPT_FAILURES;
    for (uint64_t i = 1; i <= kept; i++) {
        const fth_dispatcher_failure *failure = &dispatcher->failures[(dispatcher->failure_count - i) % KEPT_FAILURES];
        if (fth_item_id_equal(failure->id, id))
            return failure;
    }
    return NULL;
}

/* The status that jobs get. An order that timed out or lost its prefetcher does not mean that the
 * coordinator is lost. */
static fth_status failure_status(fth_status status)
{
    return status == FTH_TIMEOUT || status == FTH_PEER_LOST || status == FTH_INTERRUPTED ? FTH_IO : status;
}

static fth_item_state look(fth_dispatcher *dispatcher, fth_item_id id, fth_receipt *receipt,
                           fth_dispatcher_failure *failure)
{
    const char *reason = NULL;
    fth_item_state state = fth_scheduler_state(dispatcher->scheduler, id, receipt, &reason);
    if (state == FTH_ITEM_FAILED && failure) {
        const fth_dispatcher_failure *kept = find_failure(dispatcher, id);
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

/* With the lock held: the failures on a job's data set, if every active prefetcher failed with its
 * last order on it; NULL: at least one may work. */
static const set_health *find_broken_set(const fth_dispatcher *dispatcher, uint64_t job)
{
    const double seen_for_s = 5; /* one that has an order is active, however long it takes */
    const fth_job_spec *spec = fth_scheduler_job_spec(dispatcher->scheduler, job);
    int set = spec ? fth_served_sets_index(dispatcher->with.sets, spec->data) : -1;
    const double now = fth_clock_seconds();
    bool some = false;
    for (size_t i = 0; set >= 0 && i < dispatcher->prefetcher_count; i++) {
        const prefetcher_record *prefetcher = &dispatcher->prefetchers[i];
        bool failing = dispatcher->health[set].failing[i];
        some = some || failing;
        if (!failing &&
            (prefetcher->tries > prefetcher->done + prefetcher->failures || now - prefetcher->seen_s < seen_for_s))
            return NULL;
    }
    return some ? &dispatcher->health[set] : NULL;
}

/* With the lock held: notes how an order ended. True: this is the first failure on a healthy
 * set. */
static bool note_health(fth_dispatcher *dispatcher, const prefetcher_record *prefetcher, int set, fth_status status,
                        const char *reason)
{
    if (set < 0 || status == FTH_NO_MEMORY || status == FTH_NO_SPACE || status == FTH_INTERRUPTED)
        return false; /* these are about the cache, or a stopped worker */
    set_health *health = &dispatcher->health[set];
    bool was_well = !memchr(health->failing, true, sizeof health->failing);
    health->failing[prefetcher - dispatcher->prefetchers] = status != FTH_OK;
    if (status == FTH_OK)
        return false;
    health->status = failure_status(status);
    fth_printable_copy(health->reason, sizeof health->reason, reason);
    return was_well;
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
    const set_health *health = reason ? NULL : find_broken_set(dispatcher, job);
    if (health) {
        status = health->status;
        reason = health->reason;
    }
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

static bool is_limited(const fth_signed *caller)
{
    return caller && *caller->data;
}

/* `set`: its index; -1: unknown. */
static bool may_read_set(const fth_dispatcher *dispatcher, int set, const fth_signed *caller)
{
    return !is_limited(caller) ||
           (set >= 0 && fth_signed_may_read(caller, fth_served_sets_get(dispatcher->with.sets, (size_t)set)->name));
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
    return may_read_set(dispatcher, set_of_item(dispatcher, id), caller);
}

bool fth_dispatcher_may_drop(fth_dispatcher *dispatcher, fth_item_id id, const fth_signed *caller)
{
    int set = set_of_item(dispatcher, id);
    return set < 0 || may_read_set(dispatcher, set, caller);
}

uint64_t fth_dispatcher_results(const fth_dispatcher *dispatcher)
{
    return atomic_load(&dispatcher->results);
}

/* ---- prefetchers ---- */

/* With the lock held. The last record stands for all prefetchers beyond the limit. */
static prefetcher_record *find_prefetcher(fth_dispatcher *dispatcher, const char *text)
{
    char name[sizeof dispatcher->prefetchers[0].name];
    fth_printable_copy(name, sizeof name, text);
    for (size_t i = 0; i < dispatcher->prefetcher_count; i++)
        if (strcmp(dispatcher->prefetchers[i].name, name) == 0)
            return &dispatcher->prefetchers[i];
    if (dispatcher->prefetcher_count == MAX_PREFETCHERS)
        return &dispatcher->prefetchers[MAX_PREFETCHERS - 1];
    prefetcher_record *added = &dispatcher->prefetchers[dispatcher->prefetcher_count++];
    memcpy(added->name, name, sizeof name);
    if (dispatcher->prefetcher_count == MAX_PREFETCHERS)
        snprintf(added->name, sizeof added->name, "others");
    return added;
}

/* With the lock held: a prefetcher that has cost money waits while the hour's budget is spent. */
static bool may_work(fth_dispatcher *dispatcher, const prefetcher_record *prefetcher)
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
    prefetcher_record *prefetcher = find_prefetcher(dispatcher, name);
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

/* With the lock held: true if a line may be logged now. */
static bool may_log(log_limit *limit, double now)
{
    if (now - limit->minute_s > 60) {
        if (limit->left_out > 0)
            fth_log_warning("%" PRIu64 " more items could not be made; /v1/status has the latest", limit->left_out);
        *limit = (log_limit){.minute_s = now};
    }
    if (limit->written >= LOGGED_A_MINUTE) {
        limit->left_out++;
        return false;
    }
    limit->written++;
    return true;
}

static int set_of(const fth_dispatcher *dispatcher, const fth_order *order)
{
    return fth_served_sets_index(dispatcher->with.sets, order->spec.data);
}

/* With the lock held. */
static void keep_failure(fth_dispatcher *dispatcher, const fth_order *order, fth_status status, const char *reason)
{
    fth_dispatcher_failure *failure = &dispatcher->failures[dispatcher->failure_count++ % KEPT_FAILURES];
    *failure =
        (fth_dispatcher_failure){.id = order->id, .status = failure_status(status), .set = set_of(dispatcher, order)};
    fth_printable_copy(failure->reason, sizeof failure->reason, reason);
}

/* With the lock held: logs jobs that are too large for the cache, each once. */
static void report_refusals(fth_dispatcher *dispatcher)
{
    fth_order order = {0};
    const fth_job_spec *spec;
    const char *refusal;
    while ((refusal = fth_scheduler_next_refusal(dispatcher->scheduler, &spec))) {
        char reason[sizeof dispatcher->failures[0].reason];
        order.spec = *spec;
        snprintf(reason, sizeof reason, "a job on %s reads directly (batches of %" PRId64 ", form %s): %s", spec->data,
                 spec->batch, fth_cache_format_name(spec->format), refusal);
        keep_failure(dispatcher, &order, FTH_NO_SPACE, reason);
        fth_log_warning("%s", reason);
    }
}

/* With the lock held. */
static void note_failure(fth_dispatcher *dispatcher, const fth_order *order, fth_status status, const char *reason,
                         double now)
{
    const fth_dispatcher_failure *known = find_failure(dispatcher, order->id);
    if (known && strncmp(known->reason, reason, sizeof known->reason - 1) == 0)
        return; /* logged with the first failure */
    keep_failure(dispatcher, order, status, reason);
    if (may_log(&dispatcher->log, now))
        fth_log_warning("cannot make %s %" PRId64 " of %s: %s", fth_item_kind_name(order->kind), order->number,
                        order->spec.data, reason);
}

void fth_dispatcher_done(fth_dispatcher *dispatcher, const char *name, const fth_order *order, fth_status status,
                         const char *reason, const fth_prefetch_result *result, double usd)
{
    double now = fth_clock_seconds();
    bool failed = false;
    if (!reason)
        reason = fth_status_name(status);

    pthread_mutex_lock(&dispatcher->mutex);
    prefetcher_record *prefetcher = find_prefetcher(dispatcher, name);
    fth_cache_spending_add_function(&dispatcher->spending, usd);
    prefetcher->usd += usd;
    bool broke = note_health(dispatcher, prefetcher, set_of(dispatcher, order), status, reason);
    if (status == FTH_OK) {
        prefetcher->done++;
        prefetcher->busy_s += result->fetch_s + result->decode_s + result->transform_s;
        fth_scheduler_done(dispatcher->scheduler, order, result, now);
        fth_item_sets_put(dispatcher->item_sets, order->id, set_of(dispatcher, order));
    } else {
        prefetcher->failures++;
        fth_printable_copy(prefetcher->last_failure, sizeof prefetcher->last_failure, reason);
        failed = fth_scheduler_failed(dispatcher->scheduler, order, name, status, reason, now);
        if ((failed || broke) && status != FTH_NO_SPACE) /* which is logged once per job */
            note_failure(dispatcher, order, status, reason, now);
    }
    report_refusals(dispatcher);
    offer(dispatcher, now);
    pthread_mutex_unlock(&dispatcher->mutex);
    if (failed && dispatcher->with.board)
        fth_board_wake(dispatcher->with.board, order->id, failure_status(status));
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
    json_t *list = json_array();
    pthread_mutex_lock(&dispatcher->mutex);
    for (size_t i = 0; i < dispatcher->prefetcher_count; i++) {
        const prefetcher_record *prefetcher = &dispatcher->prefetchers[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:s}", "name", prefetcher->name, "tries",
                                              (json_int_t)prefetcher->tries, "done", (json_int_t)prefetcher->done,
                                              "failures", (json_int_t)prefetcher->failures, "busy_s",
                                              prefetcher->busy_s, "usd", prefetcher->usd, "last_failure",
                                              is_limited(caller) ? "" : prefetcher->last_failure));
    }
    pthread_mutex_unlock(&dispatcher->mutex);
    return list;
}

json_t *fth_dispatcher_describe_failures(fth_dispatcher *dispatcher, const fth_signed *caller)
{
    json_t *list = json_array();
    char id[FTH_ITEM_ID_TEXT];
    pthread_mutex_lock(&dispatcher->mutex);
    for (uint64_t i = 1; i <= dispatcher->failure_count && i <= KEPT_FAILURES; i++) {
        const fth_dispatcher_failure *failure = &dispatcher->failures[(dispatcher->failure_count - i) % KEPT_FAILURES];
        if (!may_read_set(dispatcher, failure->set, caller))
            continue;
        if (json_array_size(list) == SHOWN_FAILURES)
            break;
        fth_item_id_format(failure->id, id);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "id", id, "status", fth_status_name(failure->status),
                                              "error", failure->reason));
    }
    pthread_mutex_unlock(&dispatcher->mutex);
    return list;
}

json_t *fth_dispatcher_save(fth_dispatcher *dispatcher)
{
    json_t *paid = json_object();
    pthread_mutex_lock(&dispatcher->mutex);
    for (size_t i = 0; i < dispatcher->prefetcher_count; i++)
        if (dispatcher->prefetchers[i].usd > 0)
            json_object_set_new(paid, dispatcher->prefetchers[i].name, json_real(dispatcher->prefetchers[i].usd));
    json_t *json = json_pack("{s:o, s:o}", "spending", fth_cache_spending_save(&dispatcher->spending), "paid", paid);
    pthread_mutex_unlock(&dispatcher->mutex);
    return json;
}

void fth_dispatcher_load(fth_dispatcher *dispatcher, const json_t *json)
{
    const char *name;
    json_t *usd;
    pthread_mutex_lock(&dispatcher->mutex);
    fth_cache_spending_load(&dispatcher->spending, json_object_get(json, "spending"));
    json_object_foreach(json_object_get(json, "paid"), name, usd) find_prefetcher(dispatcher, name)->usd =
        json_number_value(usd);
    pthread_mutex_unlock(&dispatcher->mutex);
}
