/* See agent_fill.h.
 *
 *     look at the board ─> sync with the coordinator ─> fetch what is ready, for a while ─> look again ...
 *                               └─ away: try again after a pause; clients that wait get an error after a second
 *
 * The memory is for what is needed next; what is not needed is kept while there is room, oldest out
 * first, since a later epoch, or a job that is behind, may need it again. */
#include "batches/agent/agent_fill.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "batches/prefetch/item_task.h"
#include "http/http.h"

enum {
    MAX_NEEDS = 4096,
    MAX_WANTED = 512,
    MAX_DEPTH = 64,  /* batches of each client that are looked ahead */
    FIRST_DEPTH = 4, /* the same before the size of entries is known */
    MAX_FAILURES = 256,
    HOLD_MS = 25, /* how long the coordinator may hold a sync */
    GET_COUNT = 64
};
#define SYNC_S      1.5  /* for a sync's answer; a coordinator that takes longer is away */
#define FETCH_S     2.0  /* for one fetch */
#define FETCH_FOR_S 0.05 /* fetches after one sync, before the next */
#define REST_S      0.02 /* between syncs where nothing is wanted */
#define IDLE_S      0.5  /* where there are no jobs */
#define AWAY_TELL_S 1.0  /* after this long without a coordinator, clients that wait get an error */
#define FAILURE_S   5.0  /* how long a failure is remembered, before the coordinator is asked again */
#define OUTAGE_S    0.5  /* the same where somebody did not answer */
#define MAX_PAUSE_S 0.5
#define GET_BYTES   (UINT64_C(32) << 20)

/* An item that could not be had. */
typedef struct item_failure {
    fth_item_id id;
    fth_status status;
    double until_s;
    char text[480];
} item_failure;

/* An entry in the segment. */
typedef struct held_entry {
    fth_item_id id;
    uint64_t size_bytes;
} held_entry;

struct fth_agent_fill {
    fth_agent_fill_options options;
    char name[128];
    pthread_t thread;
    bool is_started;

    pthread_mutex_t mutex;
    pthread_cond_t woken;
    /* guarded by mutex */
    bool wake, stop;
    fth_cache *cache; /* Redis; NULL: entries come from the coordinator. Set once */
    item_failure failures[MAX_FAILURES];
    size_t next_failure;

    /* the thread's */
    fth_agent_need *needs;
    size_t need_count;
    held_entry *held; /* oldest first */
    size_t held_count, held_capacity;
    uint64_t typical_bytes; /* of an entry */
    uint64_t published;     /* entries, so far */
    json_t *lost;           /* ids, for the next sync */
    double away_since_s;    /* 0: the coordinator is there */
    int away_tries;
};

/* ---- failures ---- */

static bool is_outage(fth_status status)
{
    return status == FTH_PEER_LOST || status == FTH_TIMEOUT;
}

static void note_failure(fth_agent_fill *fill, fth_item_id id, fth_status status, const char *text)
{
    pthread_mutex_lock(&fill->mutex);
    item_failure *failure = NULL;
    for (size_t i = 0; i < MAX_FAILURES && !failure; i++)
        if (fill->failures[i].status != FTH_OK && fth_item_id_equal(fill->failures[i].id, id))
            failure = &fill->failures[i];
    if (!failure)
        failure = &fill->failures[fill->next_failure++ % MAX_FAILURES];
    *failure = (item_failure){
        .id = id, .status = status, .until_s = fth_clock_seconds() + (is_outage(status) ? OUTAGE_S : FAILURE_S)};
    snprintf(failure->text, sizeof failure->text, "%s", text);
    pthread_mutex_unlock(&fill->mutex);
}

/* FTH_OK: none that counts any more. */
static fth_status find_failure(fth_agent_fill *fill, fth_item_id id, char *text, size_t size)
{
    fth_status status = FTH_OK;
    double now_s = fth_clock_seconds();
    pthread_mutex_lock(&fill->mutex);
    for (size_t i = 0; i < MAX_FAILURES && status == FTH_OK; i++) {
        const item_failure *failure = &fill->failures[i];
        if (failure->status != FTH_OK && failure->until_s > now_s && fth_item_id_equal(failure->id, id)) {
            status = failure->status;
            snprintf(text, size, "%s", failure->text);
        }
    }
    pthread_mutex_unlock(&fill->mutex);
    return status;
}

fth_status fth_agent_fill_why(fth_agent_fill *fill, fth_item_id id)
{
    char text[sizeof fill->failures[0].text];
    fth_status status = find_failure(fill, id, text, sizeof text);
    return status == FTH_OK ? FTH_OK : fth_fail(status, "%s", text);
}

/* Somebody answers again: what failed because nobody did is asked for again. */
static void forget_outages(fth_agent_fill *fill)
{
    pthread_mutex_lock(&fill->mutex);
    for (size_t i = 0; i < MAX_FAILURES; i++)
        if (is_outage(fill->failures[i].status))
            fill->failures[i].status = FTH_OK;
    pthread_mutex_unlock(&fill->mutex);
}

/* Tells the clients that wait for `need`. */
static void fail_need(fth_agent_fill *fill, const fth_agent_need *need, fth_status status, const char *text)
{
    note_failure(fill, need->id, status, text);
    if (need->waiting)
        fth_board_wake(fill->options.board, need->id, status);
}

static const fth_agent_need *find_need(const fth_agent_fill *fill, fth_item_id id)
{
    for (size_t i = 0; i < fill->need_count; i++)
        if (fth_item_id_equal(fill->needs[i].id, id))
            return &fill->needs[i];
    return NULL;
}

/* ---- the segment ---- */

static int compare_ids(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(fth_item_id));
}

/* Drops entries that are not needed, the oldest first, for `size_bytes` and some more, so that this
 * is seldom. */
static void make_room(fth_agent_fill *fill, uint64_t size_bytes)
{
    uint64_t goal = size_bytes + fth_segment_capacity(fill->options.segment) / 16, freed = 0;
    fth_item_id *needed = NULL;
    size_t kept = 0;
    if (fth_allocate(fill->need_count + 1, sizeof *needed, &needed) != FTH_OK)
        return;
    for (size_t i = 0; i < fill->need_count; i++)
        needed[i] = fill->needs[i].id;
    qsort(needed, fill->need_count, sizeof *needed, compare_ids);
    for (size_t i = 0; i < fill->held_count; i++) {
        const held_entry *entry = &fill->held[i];
        bool is_needed = bsearch(&entry->id, needed, fill->need_count, sizeof *needed, compare_ids);
        if (freed < goal && !is_needed) {
            fth_segment_evict(fill->options.segment, entry->id);
            freed += entry->size_bytes;
        } else {
            fill->held[kept++] = *entry;
        }
    }
    fill->held_count = kept;
    free(needed);
}

static fth_status begin_entry(fth_agent_fill *fill, uint64_t size_bytes, void **entry)
{
    fth_status status = fth_segment_begin(fill->options.segment, size_bytes, entry);
    if (status != FTH_OK) {
        make_room(fill, size_bytes);
        status = fth_segment_begin(fill->options.segment, size_bytes, entry);
    }
    return status;
}

static void publish_entry(fth_agent_fill *fill, void *entry, const fth_receipt *receipt)
{
    if (fth_grow(&fill->held, fill->held_count, &fill->held_capacity, sizeof *fill->held) != FTH_OK) {
        fth_segment_cancel(fill->options.segment, entry);
        return;
    }
    fill->held[fill->held_count++] = (held_entry){.id = receipt->id, .size_bytes = receipt->size_bytes};
    fill->typical_bytes = fill->typical_bytes == 0
                              ? receipt->size_bytes
                              : fill->typical_bytes - fill->typical_bytes / 8 + receipt->size_bytes / 8;
    fill->published++;
    fth_segment_publish(fill->options.segment, entry, receipt);
}

static void note_lost(fth_agent_fill *fill, fth_item_id id)
{
    char text[FTH_ITEM_ID_TEXT];
    fth_item_id_format(id, text);
    if (!fill->lost)
        fill->lost = json_array();
    if (json_array_size(fill->lost) < MAX_WANTED) /* more are found out again */
        json_array_append_new(fill->lost, json_string(text));
}

/* ---- fetching ---- */

/* Entries being fetched from Redis. */
typedef struct redis_fetch {
    fth_agent_fill *fill;
    const fth_receipt *receipts;
    bool *found;
    bool is_full;
} redis_fetch;

static void take_entry(void *context, size_t which, const void *bytes, uint64_t size_bytes)
{
    redis_fetch *fetch = context;
    const fth_item_header *header = bytes;
    fth_receipt receipt = {.id = fetch->receipts[which].id, .size_bytes = size_bytes, .checksum = header->checksum};
    void *entry = NULL;
    fetch->found[which] = true;
    if (fetch->is_full || begin_entry(fetch->fill, size_bytes, &entry) != FTH_OK) {
        fetch->is_full = true;
        return;
    }
    memcpy(entry, bytes, size_bytes);
    publish_entry(fetch->fill, entry, &receipt);
}

/* False: there is no room for more. */
static bool fetch_from_redis(fth_agent_fill *fill, fth_cache *cache, const fth_receipt *receipts, size_t count)
{
    fth_item_id ids[GET_COUNT];
    bool found[GET_COUNT] = {false};
    redis_fetch fetch = {.fill = fill, .receipts = receipts, .found = found};
    char text[256] = "";
    for (size_t i = 0; i < count; i++)
        ids[i] = receipts[i].id;
    fth_status status = fth_cache_get(cache, ids, count, fth_deadline_in(FETCH_S), take_entry, &fetch);
    if (status != FTH_OK)
        snprintf(text, sizeof text, "%s", fth_error_message());
    else
        forget_outages(fill);
    for (size_t i = 0; i < count; i++) {
        const fth_agent_need *need = found[i] ? NULL : find_need(fill, ids[i]);
        if (found[i])
            continue;
        if (status == FTH_OK)
            note_lost(fill, ids[i]); /* it has gone, or is damaged */
        else if (need)
            fail_need(fill, need, is_outage(status) ? FTH_PEER_LOST : status, text);
    }
    return !fetch.is_full;
}

static bool fetch_from_coordinator(fth_agent_fill *fill, const fth_receipt *receipt)
{
    void *entry = NULL;
    bool found = false;
    if (begin_entry(fill, receipt->size_bytes, &entry) != FTH_OK)
        return false;
    fth_status status = fth_coordinator_get_item(fill->options.link, receipt, fth_deadline_in(FETCH_S), entry, &found);
    if (status == FTH_OK && found) {
        publish_entry(fill, entry, receipt);
        return true;
    }
    fth_segment_cancel(fill->options.segment, entry);
    if (status == FTH_CORRUPT)
        fth_log_warning("%s; asking for it again", fth_error_message());
    if (status == FTH_OK || status == FTH_CORRUPT)
        note_lost(fill, receipt->id);
    return status == FTH_OK || status == FTH_CORRUPT;
}

/* An entry that is larger than the whole memory: whoever waits for it reads directly. */
static bool fails_too_large(fth_agent_fill *fill, const fth_receipt *receipt)
{
    const uint64_t whole = fth_segment_capacity(fill->options.segment);
    const fth_agent_need *need = find_need(fill, receipt->id);
    char text[256];
    if (receipt->size_bytes <= whole)
        return false;
    snprintf(text, sizeof text,
             "%.1f MB are more than this machine's agent keeps, %.1f MB: give it more memory, or use smaller batches",
             (double)receipt->size_bytes / 1e6, (double)whole / 1e6);
    if (need)
        fail_need(fill, need, FTH_NO_SPACE, text);
    return true;
}

/* Fetches for a while. What is left is ready the next time, too. */
static void fetch_ready(fth_agent_fill *fill, const json_t *ready)
{
    fth_deadline until = fth_deadline_in(FETCH_FOR_S);
    size_t count = json_array_size(ready), i = 0;
    bool goes_on = true;

    pthread_mutex_lock(&fill->mutex);
    fth_cache *cache = fill->cache;
    pthread_mutex_unlock(&fill->mutex);
    while (i < count && goes_on && !fth_deadline_passed(until)) {
        fth_receipt receipts[GET_COUNT];
        uint64_t bytes = 0;
        size_t taken = 0;
        for (; i < count && taken < (cache ? GET_COUNT : 1) && bytes < GET_BYTES; i++) {
            if (fth_receipt_load(json_array_get(ready, i), &receipts[taken]) != FTH_OK ||
                fth_segment_has(fill->options.segment, receipts[taken].id, NULL) ||
                fails_too_large(fill, &receipts[taken]))
                continue;
            bytes += receipts[taken++].size_bytes;
        }
        if (taken > 0)
            goes_on =
                cache ? fetch_from_redis(fill, cache, receipts, taken) : fetch_from_coordinator(fill, &receipts[0]);
    }
}

/* ---- a sync ---- */

static bool has_failures(fth_agent_fill *fill)
{
    double now_s = fth_clock_seconds();
    bool found = false;
    pthread_mutex_lock(&fill->mutex);
    for (size_t i = 0; i < MAX_FAILURES && !found; i++)
        found = fill->failures[i].status != FTH_OK && fill->failures[i].until_s > now_s;
    pthread_mutex_unlock(&fill->mutex);
    return found;
}

/* Adds what is not here: "wanted" and "waiting". Needs beyond what memory holds are cut off. */
static fth_status add_wanted(fth_agent_fill *fill, json_t *request, bool *wants)
{
    json_t *wanted = json_array(), *waiting = json_array();
    uint64_t room = fth_segment_capacity(fill->options.segment) / 8 * 7, bytes = 0;
    size_t listed = 0;
    bool some_failed = has_failures(fill);

    for (size_t i = 0; i < fill->need_count; i++) {
        const fth_agent_need *need = &fill->needs[i];
        fth_receipt receipt = {.size_bytes = fill->typical_bytes};
        char text[FTH_ITEM_ID_TEXT], reason[256];
        bool is_here = fth_segment_has(fill->options.segment, need->id, &receipt);
        if (bytes > 0 && bytes + receipt.size_bytes > room) {
            fill->need_count = i; /* the nearest fill the memory */
            break;
        }
        bytes += receipt.size_bytes;
        if (is_here) {
            if (need->waiting)
                fth_board_wake(fill->options.board, need->id, FTH_OK);
            continue;
        }
        fth_status failed = some_failed ? find_failure(fill, need->id, reason, sizeof reason) : FTH_OK;
        if (failed != FTH_OK) {
            if (need->waiting)
                fth_board_wake(fill->options.board, need->id, failed);
            continue;
        }
        if (listed++ >= MAX_WANTED)
            continue;
        fth_item_id_format(need->id, text);
        json_array_append_new(wanted, json_string(text));
        if (need->waiting)
            json_array_append_new(waiting, json_pack("[I, s]", (json_int_t)need->job, text));
    }
    *wants = listed > 0;
    if (json_object_set_new(request, "wanted", wanted) != 0 || json_object_set_new(request, "waiting", waiting) != 0)
        return fth_fail(FTH_NO_MEMORY, "no memory for a request to the coordinator");
    return FTH_OK;
}

/* Registers again jobs that the coordinator does not know: it was started again. */
static void register_again(fth_agent_fill *fill, const json_t *unknown)
{
    for (size_t i = 0; i < json_array_size(unknown); i++) {
        uint64_t job = (uint64_t)json_integer_value(json_array_get(unknown, i));
        json_t *answer = NULL, *request = fth_agent_jobs_registration(fill->options.jobs, job);
        if (!request)
            continue;
        json_object_set_new(request, "agent", json_string(fill->name));
        fth_status status =
            fth_coordinator_ask(fill->options.link, "POST", "/v1/jobs", request, fth_deadline_in(2 * SYNC_S), &answer);
        if (status != FTH_OK)
            fth_log_warning("job %llu could not be registered again: %s", (unsigned long long)job, fth_error_message());
        else if ((uint64_t)json_integer_value(json_object_get(answer, "job")) != job)
            fth_log_warning("job %llu was given another number by the coordinator", (unsigned long long)job);
        json_decref(answer);
        json_decref(request);
    }
}

static void take_failures(fth_agent_fill *fill, const json_t *failed)
{
    for (size_t i = 0; i < json_array_size(failed); i++) {
        const json_t *row = json_array_get(failed, i);
        const char *text = json_string_value(json_object_get(row, "id"));
        const char *name = json_string_value(json_object_get(row, "status"));
        const char *error = json_string_value(json_object_get(row, "error"));
        fth_item_id id;
        const fth_agent_need *need = text && fth_item_id_parse(text, &id) ? find_need(fill, id) : NULL;
        fth_status status = name ? fth_status_find(name) : FTH_IO;
        if (need)
            fail_need(fill, need, status == FTH_OK ? FTH_IO : status,
                      error ? error : "the coordinator gives no reason");
    }
}

static void note_away(fth_agent_fill *fill, fth_status status)
{
    double now_s = fth_clock_seconds();
    char text[256];
    snprintf(text, sizeof text, "%s", fth_error_message());
    if (fill->away_since_s == 0) {
        fill->away_since_s = status == FTH_TIMEOUT ? now_s - AWAY_TELL_S : now_s;
        fth_log_warning("%s; trying again", text);
    }
    if (now_s >= fill->away_since_s + AWAY_TELL_S)
        for (size_t i = 0; i < fill->need_count && fill->needs[i].waiting; i++)
            if (!fth_segment_has(fill->options.segment, fill->needs[i].id, NULL))
                fail_need(fill, &fill->needs[i], FTH_PEER_LOST, text);
}

static void note_back(fth_agent_fill *fill)
{
    fth_log_info("coordinator %s is back", fth_coordinator_link_url(fill->options.link));
    fill->away_since_s = 0;
    fill->away_tries = 0;
    forget_outages(fill);
}

/* How far ahead to look: as many items as fit, as far as sizes are known, and some more, since
 * sizes differ. */
static size_t choose_room(const fth_agent_fill *fill)
{
    uint64_t fit = fth_segment_capacity(fill->options.segment) / (fill->typical_bytes ? fill->typical_bytes : 1);
    return fit + fit / 4 + 16 < MAX_NEEDS ? (size_t)(fit + fit / 4 + 16) : MAX_NEEDS;
}

/* One round; *pause_s: how long to rest before the next, unless woken. */
static void sync_once(fth_agent_fill *fill, double *pause_s)
{
    fth_status status = FTH_OK;
    json_t *request = json_pack("{s:s, s:i}", "agent", fill->name, "wait_ms", HOLD_MS), *answer = NULL;
    const uint64_t published = fill->published;
    bool wants = false;

    *pause_s = REST_S;
    FTH_REQUIRE(request, FTH_NO_MEMORY, "no memory for a request to the coordinator");
    FTH_TRY(fth_agent_jobs_look(fill->options.jobs, request, fill->typical_bytes ? MAX_DEPTH : FIRST_DEPTH, fill->needs,
                                choose_room(fill), &fill->need_count));
    FTH_TRY(add_wanted(fill, request, &wants));
    if (!wants && json_array_size(json_object_get(request, "jobs")) == 0) { /* nothing to say */
        *pause_s = IDLE_S;
        goto out;
    }
    if (fill->lost)
        json_object_set(request, "lost", fill->lost);
    status = fth_coordinator_ask(fill->options.link, "POST", "/v1/sync", request, fth_deadline_in(SYNC_S), &answer);
    if (status != FTH_OK) {
        fth_agent_jobs_not_told(fill->options.jobs);
        note_away(fill, status);
        *pause_s = fmin(REST_S * exp2(fill->away_tries), MAX_PAUSE_S);
        fill->away_tries += fill->away_tries < 16;
        goto out;
    }
    if (fill->away_since_s != 0)
        note_back(fill);
    json_decref(fill->lost);
    fill->lost = NULL;
    register_again(fill, json_object_get(answer, "unknown"));
    take_failures(fill, json_object_get(answer, "failed"));
    fetch_ready(fill, json_object_get(answer, "ready"));
    if (wants)
        *pause_s = fill->published > published ? 0 : REST_S / 4;

out:
    json_decref(request);
    json_decref(answer);
}

/* ---- the thread ---- */

static void *run_fill(void *context)
{
    fth_agent_fill *fill = context;
    pthread_mutex_lock(&fill->mutex);
    while (!fill->stop) {
        double pause_s = 0;
        fill->wake = false;
        pthread_mutex_unlock(&fill->mutex);
        sync_once(fill, &pause_s);
        pthread_mutex_lock(&fill->mutex);
        struct timespec until = fth_deadline_timespec(fth_deadline_in(pause_s));
        /* While the coordinator is away, a client that waits does not make it come back sooner. */
        while (!fill->stop && (!fill->wake || fill->away_since_s != 0) && pause_s > 0)
            if (pthread_cond_clockwait(&fill->woken, &fill->mutex, CLOCK_MONOTONIC, &until) != 0)
                break;
    }
    pthread_mutex_unlock(&fill->mutex);
    return NULL;
}

fth_status fth_agent_fill_start(const fth_agent_fill_options *options, fth_agent_fill **result)
{
    fth_status status = FTH_OK;
    fth_agent_fill *fill = NULL;
    int failed;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *fill, &fill));
    pthread_mutex_init(&fill->mutex, NULL);
    pthread_cond_init(&fill->woken, NULL);
    fill->options = *options;
    snprintf(fill->name, sizeof fill->name, "%s", options->name);
    FTH_TRY(fth_allocate(MAX_NEEDS, sizeof *fill->needs, &fill->needs));
    failed = fth_thread_start(&fill->thread, "batch-fill", run_fill, fill);
    FTH_REQUIRE(failed == 0, FTH_NO_MEMORY, "cannot start a thread: %s", strerror(failed));
    fill->is_started = true;
    *result = fill;
    fill = NULL;

out:
    fth_agent_fill_stop(fill);
    return status;
}

void fth_agent_fill_stop(fth_agent_fill *fill)
{
    if (!fill)
        return;
    if (fill->is_started) {
        pthread_mutex_lock(&fill->mutex);
        fill->stop = true;
        pthread_cond_signal(&fill->woken);
        pthread_mutex_unlock(&fill->mutex);
        pthread_join(fill->thread, NULL);
    }
    fth_cache_free(fill->cache);
    pthread_mutex_destroy(&fill->mutex);
    pthread_cond_destroy(&fill->woken);
    json_decref(fill->lost);
    free(fill->needs);
    free(fill->held);
    free(fill);
}

void fth_agent_fill_wake(fth_agent_fill *fill)
{
    pthread_mutex_lock(&fill->mutex);
    fill->wake = true;
    pthread_cond_signal(&fill->woken);
    pthread_mutex_unlock(&fill->mutex);
}

fth_status fth_agent_fill_use_cache(fth_agent_fill *fill, const char *address)
{
    fth_status status = FTH_OK;
    fth_cache *cache = NULL;

    pthread_mutex_lock(&fill->mutex);
    bool is_open = fill->cache && strcmp(fth_cache_name(fill->cache), address) == 0;
    pthread_mutex_unlock(&fill->mutex);
    if (strcmp(address, fth_cache_shm.name) == 0 || is_open)
        return FTH_OK;
    FTH_TRY(fth_cache_open(address, &(fth_cache_options){.deadline_s = FETCH_S}, &cache));
    pthread_mutex_lock(&fill->mutex);
    if (!fill->cache) { /* another thread may have been faster */
        fill->cache = cache;
        cache = NULL;
    }
    is_open = strcmp(fth_cache_name(fill->cache), address) == 0;
    pthread_mutex_unlock(&fill->mutex);
    fth_cache_free(cache);
    if (!is_open)
        status = fth_fail(FTH_INVALID, "the coordinator's cache has changed to %s; end the jobs of this machine first",
                          address);

out:
    return status;
}
