/* Taking, reading and releasing a run in a store; run_mirror.c keeps its record up to date. See
 * run_store.h. */
#include "train/run/run_store.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/run/run_files.h"
#include "train/run/run_store_internal.h"

/* ---- opening ---- */

static fth_status open_run(const char *url, const char *lease, const fth_store_options *how, fth_run_store **result)
{
    fth_status status = FTH_OK;
    fth_run_store *run = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *run, &run));
    pthread_mutex_init(&run->mutex, NULL);
    pthread_mutex_init(&run->mirror.mutex, NULL);
    pthread_cond_init(&run->changed, NULL);
    run->best_step = run->best_tidied = -1;
    run->leased = strcmp(lease, "off") != 0;
    if (run->leased)
        FTH_TRY(fth_duration_parse(lease, &run->period_s));
    FTH_TRY(fth_store_open(url, how, &run->store));
    *result = run;
    run = NULL;

out:
    fth_run_store_free(run);
    return status;
}

fth_status fth_run_store_open(const fth_train_options *options, fth_run_store **run)
{
    fth_store_options how = {.s3_endpoint = options->store.s3_endpoint,
                             .s3_region = options->store.s3_region,
                             .s3_style = options->store.s3_style};
    return open_run(options->store.checkpoints, options->store.lease, &how, run);
}

void fth_run_store_free(fth_run_store *run)
{
    if (!run)
        return;
    fth_run_mirror_stop(run);
    fth_lease_free(run->lease);
    fth_store_free(run->store);
    pthread_mutex_destroy(&run->mutex);
    pthread_mutex_destroy(&run->mirror.mutex);
    pthread_cond_destroy(&run->changed);
    free(run->mirror.folder);
    free(run);
}

fth_store *fth_run_store_get(const fth_run_store *run)
{
    return run->store;
}

const char *fth_run_store_url(const fth_run_store *run)
{
    return fth_store_url(run->store);
}

int64_t fth_run_store_owner(const fth_run_store *run)
{
    return run->owner;
}

int64_t fth_run_store_last_owner(const fth_run_store *run)
{
    return run->last_owner;
}

/* ---- the lease ---- */

typedef struct waiting {
    const char *url;
    double told_s;
    char owner[256];
} waiting;

/* At first, when the owner changes, and once a minute. */
static void say_waiting(void *context, const char *owner, double since_s)
{
    waiting *w = context;
    bool same = strcmp(w->owner, owner) == 0;
    if (same && since_s - w->told_s < 60)
        return;
    if (same)
        fth_log_info("still waiting: %s trains %s", owner, w->url);
    else
        fth_log_info("%s trains %s; waiting until it finishes the run or is lost", owner, w->url);
    w->told_s = since_s;
    snprintf(w->owner, sizeof w->owner, "%s", owner);
}

static fth_status wait_for_a_run(fth_run_store *run, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_store_object object = {0};
    bool found = false, told = false, warned = false;
    for (;;) {
        status = fth_store_stat(run->store, "run.json", &object, &found);
        fth_store_object_release(&object);
        if (status != FTH_OK && !(told && (status == FTH_IO || status == FTH_TIMEOUT)))
            goto out;
        if (found)
            break;
        if (status == FTH_OK && !told)
            fth_log_info("there is no run in %s yet; standing by", fth_run_store_url(run));
        if (status != FTH_OK && !warned) /* a store that was there and is away for a while is waited for */
            fth_log_warning("standing by: %s", fth_error_message());
        warned = status != FTH_OK;
        told = true;
        for (fth_deadline next = fth_deadline_in(1); !fth_deadline_passed(next);) {
            FTH_REQUIRE(!stop || !stop->asked, FTH_INTERRUPTED, "asked to stop while standing by");
            usleep(20000);
        }
    }

out:
    return status;
}

static fth_lease *take_lease(fth_run_store *run)
{
    pthread_mutex_lock(&run->mutex);
    fth_lease *lease = run->lease;
    run->lease = NULL;
    pthread_mutex_unlock(&run->mutex);
    return lease;
}

fth_status fth_run_store_take(fth_run_store *run, fth_stop *stop, bool for_a_run)
{
    fth_status status = FTH_OK;
    waiting context = {.url = fth_run_store_url(run)};
    double began_s = fth_clock_seconds();
    fth_lease *lease = NULL;
    fth_lease_options options = {.period_s = run->period_s,
                                 .stop = stop,
                                 .lost = run->group.lost,
                                 .name = run->group.name,
                                 .group = run->group.group,
                                 .leads = run->group.leads,
                                 .waiting = say_waiting,
                                 .waiting_context = &context};

    fth_lease_free(take_lease(run)); /* of a run that was not there after all */
    if (for_a_run)
        FTH_TRY(wait_for_a_run(run, stop));
    if (!run->leased) {
        fth_log_warning("--lease off: nothing keeps a second machine from training %s at the same time",
                        fth_run_store_url(run));
        goto out;
    }
    status = fth_lease_acquire(run->store, &options, (fth_deadline){INFINITY}, &lease);
    run->lease = lease;
    if (status == FTH_UNSUPPORTED)
        status = fth_fail_within(status,
                                 "%s cannot be kept from being trained by two machines at once; use a store with "
                                 "conditional writes, or accept the risk with --lease off",
                                 fth_run_store_url(run));

out:
    run->waited_s = fth_clock_seconds() - began_s;
    return status;
}

void fth_run_store_set_group(fth_run_store *run, const fth_run_group *group)
{
    run->group = *group;
}

void fth_run_store_get_group(const fth_run_store *run, char group[FTH_LEASE_GROUP_BYTES])
{
    *group = '\0';
    if (run->lease)
        fth_lease_get_group(run->lease, group);
}

fth_takeover fth_run_store_get_takeover(const fth_run_store *run)
{
    fth_takeover takeover = {.waited_s = run->waited_s};
    if (run->lease) {
        takeover.previous_seen_s = fth_lease_previous_seen_s(run->lease);
        takeover.previous_process_s = fth_lease_previous_process_s(run->lease);
    }
    return takeover;
}

fth_status fth_run_store_guard(void *context)
{
    fth_run_store *run = context;
    fth_status status = run->lease ? fth_lease_guard(run->lease, run->period_s / 4) : FTH_OK;
    if (status == FTH_PEER_LOST)
        run->lost = true;
    return status;
}

bool fth_run_store_may_go_on(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)done_bytes;
    (void)total_bytes;
    return fth_run_store_guard(context) != FTH_PEER_LOST;
}

void fth_run_store_set_lost(fth_run_store *run)
{
    run->lost = true;
}

bool fth_run_store_is_lost(const fth_run_store *run)
{
    return run->lost;
}

fth_status fth_run_store_release(fth_run_store *run)
{
    fth_run_mirror_stop(run);
    /* It is freed with the run: a thread that still writes asks it, and learns that the run is
     * given up. */
    pthread_mutex_lock(&run->mutex);
    fth_status status = run->lease ? fth_lease_release(run->lease) : FTH_OK;
    pthread_mutex_unlock(&run->mutex);
    return status;
}

fth_status fth_run_store_leave(fth_run_store *run)
{
    fth_status status = fth_run_store_flush(run);
    if (status == FTH_PEER_LOST)
        return status;
    char *message = status == FTH_OK ? NULL : fth_format("%s", fth_error_message());
    fth_status released = fth_run_store_release(run);
    if (released != FTH_OK && released != FTH_PEER_LOST)
        fth_log_warning("the lease could not be given up and lapses by itself: %s", fth_error_message());
    if (message)
        fth_set_error("%s", message);
    free(message);
    return status;
}

/* ---- reading ---- */

/* One object of events: events/000002.jsonl is part 0 of owner 2, events/000002-0001.jsonl part
 * 1. */
typedef struct part {
    int64_t owner, number;
    uint64_t size_bytes;
    char key[64];
} part;

typedef struct part_list {
    part *parts;
    size_t count, capacity;
    fth_status status;
} part_list;

static bool visit_part(void *context, const fth_store_object *object)
{
    part_list *list = context;
    part next = {0};
    int end = 0;
    bool whole = sscanf(object->key, "events/%" SCNd64 ".jsonl%n", &next.owner, &end) == 1 && end > 0;
    bool later = !whole &&
                 sscanf(object->key, "events/%" SCNd64 "-%" SCNd64 ".jsonl%n", &next.owner, &next.number, &end) == 2 &&
                 end > 0;
    if ((!whole && !later) || object->key[end] || strlen(object->key) >= sizeof next.key || next.owner < 1)
        return true;
    snprintf(next.key, sizeof next.key, "%s", object->key);
    next.size_bytes = object->size_bytes;
    list->status = fth_grow(&list->parts, list->count, &list->capacity, sizeof next);
    if (list->status == FTH_OK)
        list->parts[list->count++] = next;
    return list->status == FTH_OK;
}

static int compare_parts(const void *a, const void *b)
{
    const part *left = a, *right = b;
    if (left->owner != right->owner)
        return left->owner < right->owner ? -1 : 1;
    return left->number < right->number ? -1 : left->number > right->number;
}

/* Makes room for `size` more bytes of events, and a NUL. */
static fth_status make_room(fth_stored_record *record, size_t size)
{
    char *longer = realloc(record->events, record->events_bytes + size + 1);
    if (!longer)
        return fth_fail(FTH_NO_MEMORY, "no memory for the run's events");
    record->events = longer;
    longer[record->events_bytes] = '\0';
    return FTH_OK;
}

/* Adds a part to the events. One that is larger than parts should be, after a long outage, comes in
 * pieces: objects of events only ever grow, so that pieces of different versions fit. */
static fth_status read_part(fth_run_store *run, const part *source, fth_stored_record *record)
{
    enum { PIECE_BYTES = 16 << 20 };
    fth_status status = FTH_OK;
    char *bytes = NULL;
    size_t size = 0;

    if (source->size_bytes > PIECE_BYTES) {
        FTH_TRY(make_room(record, source->size_bytes));
        for (uint64_t at = 0; at < source->size_bytes; at += size) {
            size = source->size_bytes - at < PIECE_BYTES ? source->size_bytes - at : PIECE_BYTES;
            FTH_TRY(
                fth_store_get_range(run->store, source->key, at, record->events + record->events_bytes, size, NULL));
            record->events_bytes += size;
        }
    } else {
        FTH_TRY(fth_store_get(run->store, source->key, 4 * PIECE_BYTES, &bytes, &size, NULL));
        FTH_TRY(make_room(record, size));
        if (bytes)
            memcpy(record->events + record->events_bytes, bytes, size);
        record->events_bytes += bytes ? size : 0;
    }
    record->events[record->events_bytes] = '\0';

out:
    free(bytes);
    return status;
}

/* Finished if the last whole event is "end". */
static bool is_finished(const char *events, size_t size)
{
    size_t end = size;
    while (end > 0 && events[end - 1] == '\n')
        end--;
    size_t begin = end;
    while (begin > 0 && events[begin - 1] != '\n')
        begin--;
    json_t *event = json_loadb(events + begin, end - begin, 0, NULL);
    const char *name = json_string_value(json_object_get(event, "event"));
    bool finished = name && strcmp(name, "end") == 0;
    json_decref(event);
    return finished;
}

static bool visit_manifest(void *context, const fth_store_object *object)
{
    const char *end = strrchr(object->key, '.');
    bool *found = context;
    *found = end && strcmp(end, ".json") == 0;
    return !*found;
}

/* A checkpoint that was saved in a hurry is stored before the events. */
static fth_status find_begun(fth_run_store *run, fth_stored_record *record)
{
    record->begun = fth_record_events_have_begun(record->events, record->events_bytes);
    return record->begun ? FTH_OK : fth_store_list(run->store, "checkpoints/", visit_manifest, &record->begun);
}

fth_status fth_run_store_read(fth_run_store *run, fth_stored_record *record)
{
    enum { MAX_RUN_BYTES = 4 << 20 };
    fth_status status = FTH_OK;
    part_list list = {0};
    size_t size = 0;
    json_error_t error;

    *record = (fth_stored_record){0};
    FTH_TRY(fth_store_get(run->store, "run.json", MAX_RUN_BYTES, &record->run, &size, NULL));
    FTH_TRY(fth_store_list(run->store, "events/", visit_part, &list));
    FTH_TRY(list.status);
    if (list.count > 0)
        qsort(list.parts, list.count, sizeof *list.parts, compare_parts);
    /* Numbers grow even if the lease was deleted by hand. */
    int64_t last = run->last_owner = list.count > 0 ? list.parts[list.count - 1].owner : 0;
    run->owner = run->lease ? fth_lease_fence(run->lease) : 0;
    run->owner = run->owner > last ? run->owner : last + 1;
    if (!record->run)
        goto out;
    record->json = json_loadb(record->run, size, JSON_REJECT_DUPLICATES, &error);
    FTH_REQUIRE(json_is_object(record->json), FTH_CORRUPT, "%s/run.json line %d: %s", fth_run_store_url(run),
                record->json ? 1 : error.line, record->json ? "it is not an object" : error.text);
    FTH_TRY(make_room(record, 0));
    for (size_t i = 0; i < list.count; i++)
        FTH_TRY(read_part(run, &list.parts[i], record));
    FTH_TRY(find_begun(run, record));
    record->finished = record->begun && is_finished(record->events, record->events_bytes);

out:
    free(list.parts);
    if (status != FTH_OK)
        fth_stored_record_release(record);
    return status;
}

fth_status fth_run_store_discard(fth_run_store *run, bool begins_again)
{
    fth_status status = FTH_OK;
    part_list list = {0};

    fth_run_mirror_end(run);
    FTH_TRY(fth_store_list(run->store, "events/", visit_part, &list));
    FTH_TRY(list.status);
    FTH_TRY(fth_run_store_guard(run));
    for (size_t i = 0; i < list.count; i++)
        FTH_TRY(fth_store_delete(run->store, list.parts[i].key));
    FTH_TRY(fth_run_files_remove(run));
    if (!begins_again)
        FTH_TRY(fth_store_delete(run->store, "run.json")); /* last: a kill before leaves a run that has not begun */

out:
    free(list.parts);
    return status;
}

void fth_stored_record_release(fth_stored_record *record)
{
    free(record->run);
    free(record->events);
    json_decref(record->json);
    *record = (fth_stored_record){0};
}

fth_status fth_train_fetch_record(const char *url, const fth_store_options *store, const char *folder)
{
    fth_status status = FTH_OK;
    fth_run_store *run = NULL;
    fth_stored_record record = {0};

    FTH_TRY(open_run(url, "off", store, &run));
    FTH_TRY(fth_run_store_read(run, &record));
    FTH_REQUIRE(record.run, FTH_INVALID, "there is no run in %s: it has no run.json", fth_run_store_url(run));
    FTH_TRY(fth_record_restore(folder, record.run, record.events, record.events_bytes));

out:
    fth_stored_record_release(&record);
    fth_run_store_free(run);
    return status;
}
