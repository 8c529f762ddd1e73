/* See prefetch_history.h. */
#include "batches/coordinator/prefetch_history.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"

enum { MAX_PREFETCHERS = 256, KEPT_FAILURES = 256, SHOWN_FAILURES = 20, LOGGED_A_MINUTE = 10 };

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

struct fth_prefetch_history {
    const fth_served_sets *sets;
    fth_prefetcher_record prefetchers[MAX_PREFETCHERS];
    size_t prefetcher_count;
    set_health *health;                             /* by the index of the set */
    fth_dispatcher_failure failures[KEPT_FAILURES]; /* a ring */
    uint64_t failure_count;                         /* total */
    log_limit log;
};

fth_status fth_prefetch_history_create(const fth_served_sets *sets, fth_prefetch_history **history)
{
    fth_status status = FTH_OK;
    fth_prefetch_history *created = NULL;

    *history = NULL;
    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    created->sets = sets;
    FTH_TRY(fth_allocate(fth_served_sets_count(sets), sizeof *created->health, &created->health));
    *history = created;
    created = NULL;

out:
    fth_prefetch_history_free(created);
    return status;
}

void fth_prefetch_history_free(fth_prefetch_history *history)
{
    if (!history)
        return;
    free(history->health);
    free(history);
}

fth_prefetcher_record *fth_prefetch_history_find(fth_prefetch_history *history, const char *text)
{
    char name[sizeof history->prefetchers[0].name];
    fth_printable_copy(name, sizeof name, text);
    for (size_t i = 0; i < history->prefetcher_count; i++)
        if (strcmp(history->prefetchers[i].name, name) == 0)
            return &history->prefetchers[i];
    if (history->prefetcher_count == MAX_PREFETCHERS)
        return &history->prefetchers[MAX_PREFETCHERS - 1];
    fth_prefetcher_record *added = &history->prefetchers[history->prefetcher_count++];
    memcpy(added->name, name, sizeof name);
    if (history->prefetcher_count == MAX_PREFETCHERS)
        snprintf(added->name, sizeof added->name, "others");
    return added;
}

/* ---- data sets ---- */

fth_status fth_prefetch_failure_status(fth_status status)
{
    return status == FTH_TIMEOUT || status == FTH_PEER_LOST || status == FTH_INTERRUPTED ? FTH_IO : status;
}

bool fth_prefetch_history_note(fth_prefetch_history *history, const fth_prefetcher_record *prefetcher, int set,
                               fth_status status, const char *reason)
{
    if (set < 0 || status == FTH_NO_MEMORY || status == FTH_NO_SPACE || status == FTH_INTERRUPTED)
        return false; /* these are about the cache, or a stopped worker */
    set_health *health = &history->health[set];
    bool was_well = !memchr(health->failing, true, sizeof health->failing);
    health->failing[prefetcher - history->prefetchers] = status != FTH_OK;
    if (status == FTH_OK)
        return false;
    health->status = fth_prefetch_failure_status(status);
    fth_printable_copy(health->reason, sizeof health->reason, reason);
    return was_well;
}

const char *fth_prefetch_history_find_broken(const fth_prefetch_history *history, int set, fth_status *status)
{
    const double seen_for_s = 5; /* one that has an order is active, however long it takes */
    const double now = fth_clock_seconds();
    bool some = false;
    for (size_t i = 0; set >= 0 && i < history->prefetcher_count; i++) {
        const fth_prefetcher_record *prefetcher = &history->prefetchers[i];
        bool failing = history->health[set].failing[i];
        some = some || failing;
        if (!failing &&
            (prefetcher->tries > prefetcher->done + prefetcher->failures || now - prefetcher->seen_s < seen_for_s))
            return NULL;
    }
    if (!some)
        return NULL;
    *status = history->health[set].status;
    return history->health[set].reason;
}

/* ---- failures ---- */

/* The one that is `age` failures old; the latest is 1 old. */
static const fth_dispatcher_failure *get_failure(const fth_prefetch_history *history, uint64_t age)
{
    return &history->failures[(history->failure_count - age) % KEPT_FAILURES];
}

const fth_dispatcher_failure *fth_prefetch_history_find_failure(const fth_prefetch_history *history, fth_item_id id)
{
    for (uint64_t age = 1; age <= history->failure_count && age <= KEPT_FAILURES; age++)
        if (fth_item_id_equal(get_failure(history, age)->id, id))
            return get_failure(history, age);
    return NULL;
}

void fth_prefetch_history_keep_failure(fth_prefetch_history *history, fth_item_id id, int set, fth_status status,
                                       const char *reason)
{
    fth_dispatcher_failure *failure = &history->failures[history->failure_count++ % KEPT_FAILURES];
    *failure = (fth_dispatcher_failure){.id = id, .status = fth_prefetch_failure_status(status), .set = set};
    fth_printable_copy(failure->reason, sizeof failure->reason, reason);
}

/* True if a line may be logged now. */
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

void fth_prefetch_history_report_failure(fth_prefetch_history *history, const fth_order *order, int set,
                                         fth_status status, const char *reason, double now)
{
    const fth_dispatcher_failure *known = fth_prefetch_history_find_failure(history, order->id);
    if (known && strncmp(known->reason, reason, sizeof known->reason - 1) == 0)
        return; /* logged with the first failure */
    fth_prefetch_history_keep_failure(history, order->id, set, status, reason);
    if (may_log(&history->log, now))
        fth_log_warning("cannot make %s %" PRId64 " of %s: %s", fth_item_kind_name(order->kind), order->number,
                        order->spec.data, reason);
}

/* ---- reports ---- */

json_t *fth_prefetch_history_describe_prefetchers(const fth_prefetch_history *history, const fth_signed *caller)
{
    json_t *list = json_array();
    for (size_t i = 0; i < history->prefetcher_count; i++) {
        const fth_prefetcher_record *prefetcher = &history->prefetchers[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:s}", "name", prefetcher->name, "tries",
                                              (json_int_t)prefetcher->tries, "done", (json_int_t)prefetcher->done,
                                              "failures", (json_int_t)prefetcher->failures, "busy_s",
                                              prefetcher->busy_s, "usd", prefetcher->usd, "last_failure",
                                              fth_signed_is_limited(caller) ? "" : prefetcher->last_failure));
    }
    return list;
}

json_t *fth_prefetch_history_describe_failures(const fth_prefetch_history *history, const fth_signed *caller)
{
    json_t *list = json_array();
    char id[FTH_ITEM_ID_TEXT];
    for (uint64_t age = 1; age <= history->failure_count && age <= KEPT_FAILURES; age++) {
        const fth_dispatcher_failure *failure = get_failure(history, age);
        if (!fth_served_sets_may_read(history->sets, failure->set, caller))
            continue;
        if (json_array_size(list) == SHOWN_FAILURES)
            break;
        fth_item_id_format(failure->id, id);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "id", id, "status", fth_status_name(failure->status),
                                              "error", failure->reason));
    }
    return list;
}

json_t *fth_prefetch_history_save_paid(const fth_prefetch_history *history)
{
    json_t *paid = json_object();
    for (size_t i = 0; i < history->prefetcher_count; i++)
        if (history->prefetchers[i].usd > 0)
            json_object_set_new(paid, history->prefetchers[i].name, json_real(history->prefetchers[i].usd));
    return paid;
}

void fth_prefetch_history_load_paid(fth_prefetch_history *history, const json_t *paid)
{
    const char *name;
    json_t *usd;
    json_object_foreach((json_t *)paid, name, usd) fth_prefetch_history_find(history, name)->usd =
        json_number_value(usd);
}
