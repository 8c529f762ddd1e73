/* See upstream.h. One thread:
 *
 *     take orders ─> sync with the coordinator ─> fetch what is ready, for a while ─> take
 *         orders ...
 *                        └─ away: try again after a pause; clients that wait are told after a
 *                        second
 *
 * An order is held until its item is here, has failed, or is no longer needed. Clients that wait
 * while the coordinator or Redis is away get FTH_PEER_LOST; the order stays. */
#include "batches/agent/upstream.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/process.h"

enum {
    MAX_WANTED = 512, /* orders held; the most that a sync may list */
    HOLD_MS = 25,     /* for how long the coordinator may hold a sync */
    GET_COUNT = 64
};
#define PREFETCHER  "upstream"
#define SYNC_S      1.5  /* deadline of a sync */
#define FETCH_S     2.0  /* deadline of a fetch */
#define FETCH_FOR_S 0.05 /* fetches between two syncs */
#define REST_S      0.02 /* between syncs while no item is asked for */
#define IDLE_S      0.5  /* the same without jobs */
#define AWAY_TELL_S 1.0  /* without a coordinator for this long, waiting clients are told */
#define MAX_PAUSE_S 0.5
#define GET_BYTES   (UINT64_C(32) << 20)

typedef struct wanted_order {
    fth_order order;
    bool waiting; /* a client waits for it */
} wanted_order;

struct fth_upstream {
    fth_upstream_options with;
    pthread_t thread;
    bool started;
    atomic_bool stop;
    fth_cache *_Atomic redis; /* NULL: entries come from the coordinator. Set once */

    /* of the thread */
    wanted_order *orders; /* (MAX_WANTED) */
    size_t count;
    uint64_t fetched;    /* entries in all */
    json_t *lost;        /* ids, for the next sync */
    double away_since_s; /* 0: the coordinator answers */
    int away_tries;
};

static bool is_outage(fth_status status)
{
    return status == FTH_PEER_LOST || status == FTH_TIMEOUT;
}

/* ---- orders ---- */

static wanted_order *find_order(fth_upstream *upstream, fth_item_id id)
{
    for (size_t i = 0; i < upstream->count; i++)
        if (fth_item_id_equal(upstream->orders[i].order.id, id))
            return &upstream->orders[i];
    return NULL;
}

/* Takes as many orders as it can hold, waiting up to `wait_s` for the first. */
static void take_orders(fth_upstream *upstream, double wait_s)
{
    while (upstream->count < MAX_WANTED &&
           fth_dispatcher_take(upstream->with.dispatcher, PREFETCHER, fth_deadline_in(wait_s),
                               &upstream->orders[upstream->count].order)) {
        upstream->orders[upstream->count++].waiting = false;
        wait_s = 0;
    }
}

static void end_order(fth_upstream *upstream, wanted_order *ended, fth_status status, const char *reason,
                      const fth_receipt *receipt)
{
    fth_prefetch_result result = {0};
    if (receipt)
        result.receipt = *receipt;
    fth_dispatcher_done(upstream->with.dispatcher, PREFETCHER, &ended->order, status, reason, &result, 0);
    *ended = upstream->orders[--upstream->count];
}

static void drop_unneeded(fth_upstream *upstream)
{
    for (size_t i = upstream->count; i-- > 0;)
        if (!fth_dispatcher_needs(upstream->with.dispatcher, upstream->orders[i].order.id))
            end_order(upstream, &upstream->orders[i], FTH_INTERRUPTED, "no longer needed", NULL);
}

static void note_lost(fth_upstream *upstream, fth_item_id id)
{
    char text[FTH_ITEM_ID_TEXT];
    fth_item_id_format(id, text);
    if (!upstream->lost)
        upstream->lost = json_array();
    if (json_array_size(upstream->lost) < MAX_WANTED) /* more are noticed with the next fetch */
        json_array_append_new(upstream->lost, json_string(text));
}

/* ---- fetching ---- */

/* Room for an order's entry. *full: there is none now. An entry larger than the whole memory fails
 * the order, and its job reads directly. */
static void *begin_entry(fth_upstream *upstream, const fth_receipt *receipt, bool *full)
{
    void *entry = NULL;
    char text[256];
    const uint64_t whole = fth_segment_capacity(fth_cache_segment(upstream->with.cache));
    wanted_order *wanted = find_order(upstream, receipt->id);
    if (!wanted)
        return NULL;
    if (receipt->size_bytes > whole) {
        snprintf(
            text, sizeof text,
            "%.1f MB are more than this machine's agent keeps, %.1f MB: give it more memory, or use smaller batches",
            (double)receipt->size_bytes / 1e6, (double)whole / 1e6);
        end_order(upstream, wanted, FTH_NO_SPACE, text, NULL);
        return NULL;
    }
    *full = fth_cache_begin(upstream->with.cache, receipt->size_bytes, &entry) != FTH_OK;
    return *full ? NULL : entry;
}

static void put_entry(fth_upstream *upstream, void *entry, const fth_receipt *receipt)
{
    wanted_order *wanted = find_order(upstream, receipt->id);
    const fth_status status = fth_cache_put(upstream->with.cache, entry, receipt);
    upstream->fetched += status == FTH_OK;
    if (wanted)
        end_order(upstream, wanted, status, status == FTH_OK ? NULL : fth_error_message(),
                  status == FTH_OK ? receipt : NULL);
}

/* Entries being fetched from Redis. */
typedef struct redis_fetch {
    fth_upstream *upstream;
    const fth_item_id *ids;
    bool *found;
    bool full;
} redis_fetch;

static void take_entry(void *context, size_t which, const void *bytes, uint64_t size_bytes)
{
    redis_fetch *fetch = context;
    const fth_item_header *header = bytes;
    const fth_receipt receipt = {.id = fetch->ids[which], .size_bytes = size_bytes, .checksum = header->checksum};
    void *entry = fetch->full ? NULL : begin_entry(fetch->upstream, &receipt, &fetch->full);
    fetch->found[which] = true;
    if (!entry)
        return;
    memcpy(entry, bytes, size_bytes);
    put_entry(fetch->upstream, entry, &receipt);
}

/* False: there is no room for more. */
static bool fetch_from_redis(fth_upstream *upstream, fth_cache *redis, const fth_receipt *receipts, size_t count)
{
    fth_item_id ids[GET_COUNT];
    bool found[GET_COUNT] = {false};
    redis_fetch fetch = {.upstream = upstream, .ids = ids, .found = found};
    char text[256] = "";
    for (size_t i = 0; i < count; i++)
        ids[i] = receipts[i].id;
    fth_status status = fth_cache_get(redis, ids, count, fth_deadline_in(FETCH_S), take_entry, &fetch);
    if (status != FTH_OK)
        snprintf(text, sizeof text, "%s", fth_error_message());
    for (size_t i = 0; i < count; i++) {
        wanted_order *wanted = found[i] ? NULL : find_order(upstream, ids[i]);
        if (found[i])
            continue;
        if (status == FTH_OK)
            note_lost(upstream, ids[i]); /* it is gone, or damaged */
        else if (wanted && !is_outage(status))
            end_order(upstream, wanted, status, text, NULL);
        else if (wanted && wanted->waiting)
            fth_board_wake(upstream->with.board, ids[i], FTH_PEER_LOST);
    }
    return !fetch.full;
}

static bool fetch_from_coordinator(fth_upstream *upstream, const fth_receipt *receipt)
{
    bool found = false, full = false;
    void *entry = begin_entry(upstream, receipt, &full);
    if (!entry)
        return !full;
    fth_status status = fth_coordinator_get_item(upstream->with.link, receipt, fth_deadline_in(FETCH_S), entry, &found);
    if (status == FTH_OK && found) {
        put_entry(upstream, entry, receipt);
        return true;
    }
    fth_cache_cancel(upstream->with.cache, entry);
    if (status == FTH_CORRUPT)
        fth_log_warning("%s; asking for it again", fth_error_message());
    if (status == FTH_OK || status == FTH_CORRUPT)
        note_lost(upstream, receipt->id);
    return status == FTH_OK || status == FTH_CORRUPT;
}

/* Fetches for a while. The rest is ready with the next sync, too. */
static void fetch_ready(fth_upstream *upstream, const json_t *ready)
{
    fth_cache *redis = atomic_load(&upstream->redis);
    fth_deadline until = fth_deadline_in(FETCH_FOR_S);
    size_t count = json_array_size(ready), i = 0;
    bool more = true;
    while (i < count && more && !fth_deadline_passed(until)) {
        fth_receipt receipts[GET_COUNT];
        uint64_t bytes = 0;
        size_t taken = 0;
        for (; i < count && taken < (redis ? GET_COUNT : 1) && bytes < GET_BYTES; i++)
            if (fth_receipt_load(json_array_get(ready, i), &receipts[taken]) == FTH_OK &&
                find_order(upstream, receipts[taken].id))
                bytes += receipts[taken++].size_bytes;
        if (taken > 0)
            more = redis ? fetch_from_redis(upstream, redis, receipts, taken)
                         : fetch_from_coordinator(upstream, &receipts[0]);
    }
}

/* ---- a sync ---- */

/* Finds the orders that clients wait for: [[JOB, ID], ...]. */
static json_t *list_waiting(fth_upstream *upstream)
{
    json_t *waiting = json_array();
    fth_slot_state state;
    char text[FTH_ITEM_ID_TEXT];
    for (size_t i = 0; i < upstream->count; i++)
        upstream->orders[i].waiting = false;
    for (int slot = 0; slot < FTH_BOARD_SLOTS; slot++) {
        wanted_order *wanted = fth_board_read(upstream->with.board, slot, &state) && state.waiting
                                   ? find_order(upstream, state.wanted)
                                   : NULL;
        if (!wanted)
            continue;
        wanted->waiting = true;
        fth_item_id_format(state.wanted, text);
        json_array_append_new(waiting, json_pack("[I, s]", (json_int_t)state.job, text));
    }
    return waiting;
}

static int compare_orders(const void *left, const void *right)
{
    const wanted_order *a = left, *b = right;
    if (a->waiting != b->waiting)
        return a->waiting ? -1 : 1;
    return (a->order.needed_s > b->order.needed_s) - (a->order.needed_s < b->order.needed_s);
}

/* "wanted", soonest first, and "waiting". */
static fth_status add_wanted(fth_upstream *upstream, json_t *request)
{
    json_t *waiting = list_waiting(upstream), *wanted = json_array();
    char text[FTH_ITEM_ID_TEXT];
    qsort(upstream->orders, upstream->count, sizeof *upstream->orders, compare_orders);
    for (size_t i = 0; i < upstream->count; i++) {
        fth_item_id_format(upstream->orders[i].order.id, text);
        json_array_append_new(wanted, json_string(text));
    }
    if (json_object_set_new(request, "wanted", wanted) != 0 || json_object_set_new(request, "waiting", waiting) != 0)
        return fth_fail(FTH_NO_MEMORY, "no memory for a request to the coordinator");
    return FTH_OK;
}

/* Registers the jobs again that the coordinator does not know: it has been restarted. */
static void register_again(fth_upstream *upstream, const json_t *unknown)
{
    for (size_t i = 0; i < json_array_size(unknown); i++) {
        uint64_t job = (uint64_t)json_integer_value(json_array_get(unknown, i));
        json_t *answer = NULL, *request = fth_agent_jobs_registration(upstream->with.jobs, job);
        if (!request)
            continue;
        json_object_set_new(request, "agent", json_string(upstream->with.agent));
        fth_status status =
            fth_coordinator_ask(upstream->with.link, "POST", "/v1/jobs", request, fth_deadline_in(2 * SYNC_S), &answer);
        if (status != FTH_OK)
            fth_log_warning("cannot register job %llu again: %s", (unsigned long long)job, fth_error_message());
        else if ((uint64_t)json_integer_value(json_object_get(answer, "job")) != job)
            fth_log_warning("the coordinator has given job %llu another id", (unsigned long long)job);
        json_decref(answer);
        json_decref(request);
    }
}

/* The coordinator has tried these often enough; they are not asked for again. */
static void take_failures(fth_upstream *upstream, const json_t *failed)
{
    for (size_t i = 0; i < json_array_size(failed); i++) {
        const json_t *row = json_array_get(failed, i);
        const char *text = json_string_value(json_object_get(row, "id"));
        const char *name = json_string_value(json_object_get(row, "status"));
        const char *error = json_string_value(json_object_get(row, "error"));
        fth_item_id id;
        wanted_order *wanted = text && fth_item_id_parse(text, &id) ? find_order(upstream, id) : NULL;
        fth_status status = name ? fth_status_find(name) : FTH_IO;
        if (status == FTH_OK || status == FTH_NO_MEMORY) /* which here would be about this machine */
            status = FTH_IO;
        if (wanted)
            end_order(upstream, wanted, status, error ? error : "the coordinator gives no reason", NULL);
    }
}

static void note_away(fth_upstream *upstream, fth_status status)
{
    double now_s = fth_clock_seconds();
    if (upstream->away_since_s == 0) {
        upstream->away_since_s = status == FTH_TIMEOUT ? now_s - AWAY_TELL_S : now_s;
        fth_log_warning("%s; trying again", fth_error_message());
    }
    if (now_s >= upstream->away_since_s + AWAY_TELL_S)
        for (size_t i = 0; i < upstream->count && upstream->orders[i].waiting; i++)
            fth_board_wake(upstream->with.board, upstream->orders[i].order.id, FTH_PEER_LOST);
}

static void note_back(fth_upstream *upstream)
{
    if (upstream->away_since_s != 0)
        fth_log_info("coordinator %s is back", fth_coordinator_link_url(upstream->with.link));
    upstream->away_since_s = 0;
    upstream->away_tries = 0;
}

/* One round. Gives how long to rest before the next. */
static double sync_once(fth_upstream *upstream)
{
    fth_status status = FTH_OK;
    double pause_s = REST_S;
    json_t *request = json_pack("{s:s, s:i}", "agent", upstream->with.agent, "wait_ms", HOLD_MS), *answer = NULL;
    const uint64_t fetched = upstream->fetched;

    FTH_REQUIRE(request, FTH_NO_MEMORY, "no memory for a request to the coordinator");
    drop_unneeded(upstream);
    take_orders(upstream, 0);
    const bool wants = upstream->count > 0;
    FTH_TRY(add_wanted(upstream, request));
    FTH_TRY(fth_agent_jobs_report(upstream->with.jobs, request));
    if (!wants && json_array_size(json_object_get(request, "jobs")) == 0) {
        pause_s = IDLE_S;
        goto out;
    }
    if (upstream->lost)
        json_object_set(request, "lost", upstream->lost);
    status = fth_coordinator_ask(upstream->with.link, "POST", "/v1/sync", request, fth_deadline_in(SYNC_S), &answer);
    if (status != FTH_OK) {
        fth_agent_jobs_report_failed(upstream->with.jobs);
        note_away(upstream, status);
        pause_s = fmin(REST_S * exp2(upstream->away_tries), MAX_PAUSE_S);
        upstream->away_tries += upstream->away_tries < 16;
        goto out;
    }
    note_back(upstream);
    json_decref(upstream->lost);
    upstream->lost = NULL;
    register_again(upstream, json_object_get(answer, "unknown"));
    take_failures(upstream, json_object_get(answer, "failed"));
    fetch_ready(upstream, json_object_get(answer, "ready"));
    if (wants)
        pause_s = upstream->fetched > fetched ? 0 : REST_S / 4;

out:
    json_decref(request);
    json_decref(answer);
    return pause_s;
}

/* ---- the thread ---- */

static void *run(void *context)
{
    fth_upstream *upstream = context;
    double pause_s = 0;
    while (!atomic_load(&upstream->stop)) {
        /* A new order ends the pause, unless the coordinator is away. */
        if (upstream->count == 0 && upstream->away_since_s == 0)
            take_orders(upstream, pause_s);
        else
            nanosleep(&(struct timespec){.tv_nsec = (long)(pause_s * 1e9)}, NULL);
        pause_s = sync_once(upstream);
    }
    return NULL;
}

fth_status fth_upstream_start(const fth_upstream_options *options, fth_upstream **result)
{
    fth_status status = FTH_OK;
    fth_upstream *upstream = NULL;
    int failed;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *upstream, &upstream));
    upstream->with = *options;
    FTH_TRY(fth_allocate(MAX_WANTED, sizeof *upstream->orders, &upstream->orders));
    failed = fth_thread_start(&upstream->thread, "batch-upstream", run, upstream);
    FTH_REQUIRE(failed == 0, FTH_NO_MEMORY, "cannot start a thread: %s", strerror(failed));
    upstream->started = true;
    *result = upstream;
    upstream = NULL;

out:
    fth_upstream_stop(upstream);
    return status;
}

void fth_upstream_stop(fth_upstream *upstream)
{
    if (!upstream)
        return;
    atomic_store(&upstream->stop, true);
    if (upstream->started)
        pthread_join(upstream->thread, NULL); /* within a sync, a fetch or a pause */
    fth_cache_free(atomic_load(&upstream->redis));
    json_decref(upstream->lost);
    free(upstream->orders);
    free(upstream);
}

fth_status fth_upstream_use_cache(fth_upstream *upstream, const char *address)
{
    fth_status status = FTH_OK;
    fth_cache *cache = NULL, *none = NULL, *open = atomic_load(&upstream->redis);

    if (strcmp(address, fth_cache_shm.name) == 0)
        return FTH_OK;
    if (!open) {
        FTH_TRY(fth_cache_open(address, &(fth_cache_options){.deadline_s = FETCH_S}, &cache));
        if (atomic_compare_exchange_strong(&upstream->redis, &none, cache))
            cache = NULL; /* else another thread has opened it meanwhile */
        open = atomic_load(&upstream->redis);
    }
    FTH_REQUIRE(strcmp(fth_cache_name(open), address) == 0, FTH_INVALID,
                "the coordinator's cache has changed to %s; end the jobs of this machine first", address);

out:
    fth_cache_free(cache);
    return status;
}
