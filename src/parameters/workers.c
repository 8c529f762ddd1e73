/* See workers.h. A hash table of fixed size over an array; chains by index. */
#include "parameters/workers.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 2 * FTH_MAX_WORKERS };
static const double PROCESS_ENDED = -1; /* value of lease_until_s */

struct fth_workers {
    fth_workers_options options;
    pthread_mutex_t mutex; /* guards everything below */
    fth_worker *items;     /* FTH_MAX_WORKERS */
    int count, live, most_live;
    int64_t clock;
    int first[BUCKETS], next[FTH_MAX_WORKERS]; /* index + 1; 0: the end */
};

fth_status fth_workers_create(const fth_workers_options *options, fth_workers **result)
{
    fth_status status = FTH_OK;
    fth_workers *workers = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *workers, &workers));
    pthread_mutex_init(&workers->mutex, NULL);
    workers->options = *options;
    FTH_TRY(fth_allocate(FTH_MAX_WORKERS, sizeof *workers->items, &workers->items));
    *result = workers;
    workers = NULL;

out:
    fth_workers_free(workers);
    return status;
}

void fth_workers_free(fth_workers *workers)
{
    if (!workers)
        return;
    pthread_mutex_destroy(&workers->mutex);
    free(workers->items);
    free(workers);
}

int fth_workers_live(fth_workers *workers)
{
    pthread_mutex_lock(&workers->mutex);
    int live = workers->live;
    pthread_mutex_unlock(&workers->mutex);
    return live;
}

int fth_workers_most_live(fth_workers *workers)
{
    pthread_mutex_lock(&workers->mutex);
    int most = workers->most_live;
    pthread_mutex_unlock(&workers->mutex);
    return most;
}

/* ---- the table; with the mutex held ---- */

static unsigned bucket_of(const char *name)
{
    uint64_t hash = 14695981039346656037u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return (unsigned)(fth_random_mix(hash) % BUCKETS);
}

static fth_worker *find(fth_workers *workers, const char *name)
{
    for (int i = workers->first[bucket_of(name)]; i; i = workers->next[i - 1])
        if (strcmp(workers->items[i - 1].name, name) == 0)
            return &workers->items[i - 1];
    return NULL;
}

/* The place of the worker gone longest, or -1. */
static int make_room(fth_workers *workers)
{
    int oldest = -1;
    for (int i = 0; i < workers->count; i++)
        if (!workers->items[i].live && (oldest < 0 || workers->items[i].touched < workers->items[oldest].touched))
            oldest = i;
    if (oldest < 0)
        return -1;
    int *link = &workers->first[bucket_of(workers->items[oldest].name)];
    while (*link != oldest + 1)
        link = &workers->next[*link - 1];
    *link = workers->next[oldest];
    return oldest;
}

/* Starts a full lease now. */
static void start_lease(const fth_workers *workers, fth_worker *worker, bool is_function)
{
    const fth_workers_options *options = &workers->options;
    worker->is_function = is_function;
    worker->lease_s = is_function && options->function_lease_s > 0 ? options->function_lease_s : options->lease_s;
    worker->lease_until_s = fth_clock_seconds() + worker->lease_s;
}

static fth_worker *join(fth_workers *workers, const char *name, const char *instance, const char *access)
{
    fth_worker *worker = find(workers, name);
    if (!worker) {
        int index = workers->count < FTH_MAX_WORKERS ? workers->count++ : make_room(workers);
        if (index < 0)
            return NULL;
        worker = &workers->items[index];
        *worker = (fth_worker){.in_flight = -1, .contributed = -1};
        snprintf(worker->name, sizeof worker->name, "%s", name);
        unsigned bucket = bucket_of(name);
        workers->next[index] = workers->first[bucket];
        workers->first[bucket] = index + 1;
    }
    snprintf(worker->instance, sizeof worker->instance, "%s", instance);
    snprintf(worker->access, sizeof worker->access, "%s", access);
    worker->touched = ++workers->clock;
    worker->in_flight = -1;
    worker->idle = false;
    start_lease(workers, worker, false);
    if (!worker->live) {
        worker->live = true;
        workers->live++;
        if (workers->live > workers->most_live)
            workers->most_live = workers->live;
    }
    return worker;
}

static void leave(fth_workers *workers, fth_worker *worker)
{
    if (!worker->live)
        return;
    worker->live = false;
    worker->in_flight = -1;
    worker->touched = ++workers->clock;
    workers->live--;
}

static bool answers_to(const fth_workers *workers, const fth_worker *worker, const char *access)
{
    return !workers->options.keyed || strcmp(worker->access, access) == 0;
}

/* ---- looking ---- */

bool fth_workers_get(fth_workers *workers, const char *name, fth_worker *worker)
{
    pthread_mutex_lock(&workers->mutex);
    const fth_worker *found = find(workers, name);
    if (found && worker)
        *worker = *found;
    pthread_mutex_unlock(&workers->mutex);
    return found != NULL;
}

bool fth_workers_get_at(fth_workers *workers, size_t index, fth_worker *worker)
{
    pthread_mutex_lock(&workers->mutex);
    bool known = index < (size_t)workers->count;
    if (known)
        *worker = workers->items[index];
    pthread_mutex_unlock(&workers->mutex);
    return known;
}

/* ---- leases ---- */

bool fth_workers_join(fth_workers *workers, const char *name, const char *instance, const char *access)
{
    pthread_mutex_lock(&workers->mutex);
    bool joined = join(workers, name, instance, access) != NULL;
    pthread_mutex_unlock(&workers->mutex);
    return joined;
}

void fth_workers_mark_function(fth_workers *workers, const char *name)
{
    pthread_mutex_lock(&workers->mutex);
    fth_worker *worker = find(workers, name);
    if (worker)
        start_lease(workers, worker, true);
    pthread_mutex_unlock(&workers->mutex);
}

void fth_workers_leave(fth_workers *workers, const char *name)
{
    pthread_mutex_lock(&workers->mutex);
    fth_worker *worker = find(workers, name);
    if (worker)
        leave(workers, worker);
    pthread_mutex_unlock(&workers->mutex);
}

bool fth_workers_renew(fth_workers *workers, const char *name, const char *access)
{
    pthread_mutex_lock(&workers->mutex);
    fth_worker *worker = find(workers, name);
    bool own = worker && answers_to(workers, worker, access);
    if (own && worker->live)
        worker->lease_until_s = fth_clock_seconds() + worker->lease_s;
    pthread_mutex_unlock(&workers->mutex);
    return own;
}

double fth_workers_longest_wait_s(fth_workers *workers, const char *name)
{
    pthread_mutex_lock(&workers->mutex);
    const fth_worker *worker = find(workers, name);
    double lease_s = worker ? worker->lease_s : workers->options.lease_s;
    pthread_mutex_unlock(&workers->mutex);
    return lease_s / 2;
}

bool fth_workers_end_lease(fth_workers *workers, const char *name)
{
    pthread_mutex_lock(&workers->mutex);
    fth_worker *worker = find(workers, name);
    bool live = worker && worker->live;
    if (live)
        worker->lease_until_s = PROCESS_ENDED;
    pthread_mutex_unlock(&workers->mutex);
    return live;
}

bool fth_workers_find_expired(fth_workers *workers, double now_s, char name[FTH_MAX_WORKER_NAME + 1], bool *ended,
                              double *next_s)
{
    bool found = false;
    pthread_mutex_lock(&workers->mutex);
    for (int i = 0; i < workers->count; i++) {
        const fth_worker *w = &workers->items[i];
        if (!w->live)
            continue;
        if (w->lease_until_s <= now_s) {
            snprintf(name, FTH_MAX_WORKER_NAME + 1, "%s", w->name);
            *ended = w->lease_until_s == PROCESS_ENDED;
            found = true;
        } else {
            *next_s = fmin(*next_s, w->lease_until_s);
        }
        if (w->in_flight >= 0 && w->in_flight_until_s > now_s)
            *next_s = fmin(*next_s, w->in_flight_until_s);
    }
    pthread_mutex_unlock(&workers->mutex);
    return found;
}

/* ---- pulls and pushes ---- */

void fth_workers_note_pull(fth_workers *workers, const char *name, int64_t version)
{
    pthread_mutex_lock(&workers->mutex);
    fth_worker *worker = *name ? find(workers, name) : NULL;
    if (worker && worker->live) {
        worker->in_flight = version;
        worker->in_flight_until_s = fth_clock_seconds() + workers->options.lease_s;
    }
    pthread_mutex_unlock(&workers->mutex);
}

void fth_workers_note_arrival(fth_workers *workers, const char *name)
{
    pthread_mutex_lock(&workers->mutex);
    fth_worker *worker = find(workers, name);
    if (worker)
        worker->in_flight = -1;
    pthread_mutex_unlock(&workers->mutex);
}

void fth_workers_note_push(fth_workers *workers, const char *name, const fth_accepted_push *push, fth_worker *copy)
{
    pthread_mutex_lock(&workers->mutex);
    fth_worker *worker = find(workers, name);
    if (worker) {
        worker->sequence = push->sequence;
        worker->last_code = push->stepped ? 200 : 201;
        worker->last_version = push->version;
        worker->last_staleness = push->staleness;
        worker->contributed = push->stepped ? push->version - 1 : push->version;
        worker->in_flight = -1;
        worker->idle = false;
        if (copy)
            *copy = *worker;
    }
    pthread_mutex_unlock(&workers->mutex);
}

void fth_workers_set_idle(fth_workers *workers, const char *name, bool idle)
{
    pthread_mutex_lock(&workers->mutex);
    fth_worker *worker = find(workers, name);
    if (worker) {
        worker->idle = idle;
        if (idle)
            worker->in_flight = -1;
    }
    pthread_mutex_unlock(&workers->mutex);
}

int64_t fth_workers_note_unfit(fth_workers *workers, const char *name, const char *access, int64_t version,
                               int64_t server_version)
{
    int64_t count = 0;
    pthread_mutex_lock(&workers->mutex);
    fth_worker *worker = find(workers, name);
    if (worker && answers_to(workers, worker, access)) {
        count = ++worker->unfit;
        worker->in_flight = -1;
        if (version == server_version)
            worker->contributed = version;
    }
    pthread_mutex_unlock(&workers->mutex);
    return count;
}

bool fth_workers_has_contributed(fth_workers *workers, const char *name, int64_t version)
{
    pthread_mutex_lock(&workers->mutex);
    const fth_worker *worker = find(workers, name);
    bool contributed = worker && worker->contributed == version;
    pthread_mutex_unlock(&workers->mutex);
    return contributed;
}

bool fth_workers_all_contributed(fth_workers *workers, int64_t version, const char *except)
{
    bool all = true;
    pthread_mutex_lock(&workers->mutex);
    for (int i = 0; i < workers->count && all; i++) {
        const fth_worker *w = &workers->items[i];
        all = !w->live || w->idle || w->contributed == version || (except && strcmp(w->name, except) == 0);
    }
    pthread_mutex_unlock(&workers->mutex);
    return all;
}

bool fth_workers_would_be_late(fth_workers *workers, int64_t version, int64_t bound, const char *except)
{
    bool late = false;
    double now = fth_clock_seconds();
    pthread_mutex_lock(&workers->mutex);
    for (int i = 0; i < workers->count && !late; i++) {
        const fth_worker *w = &workers->items[i];
        if (!w->live || w->in_flight < 0 || w->in_flight_until_s < now || strcmp(w->name, except) == 0)
            continue;
        late = w->in_flight >= version - bound && version + 1 - w->in_flight > bound;
    }
    pthread_mutex_unlock(&workers->mutex);
    return late;
}

/* ---- checkpoints ---- */

json_t *fth_workers_to_json(fth_workers *workers)
{
    json_t *list = json_array();
    pthread_mutex_lock(&workers->mutex);
    for (int i = 0; i < workers->count; i++) {
        const fth_worker *w = &workers->items[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b, s:b, s:I, s:i, s:I, s:I, s:I, s:I}", "name",
                                              w->name, "instance", w->instance, "access", w->access, "live", w->live,
                                              "function", w->is_function, "sequence", (json_int_t)w->sequence, "code",
                                              w->last_code, "version", (json_int_t)w->last_version, "staleness",
                                              (json_int_t)w->last_staleness, "touched", (json_int_t)w->touched, "unfit",
                                              (json_int_t)w->unfit));
    }
    int most_live = workers->most_live;
    pthread_mutex_unlock(&workers->mutex);
    return json_pack("{s:o, s:i}", "list", list, "most_live", most_live);
}

/* Reads one worker of the list, with the mutex held. */
static fth_status read_worker(fth_workers *workers, const json_t *item)
{
    const char *name = NULL, *instance = NULL, *access = NULL;
    int live = 0, code = 0;
    json_int_t sequence = 0, version = 0, staleness = 0, touched = 0;
    if (json_unpack((json_t *)item, "{s:s, s:s, s:s, s:b, s:I, s:i, s:I, s:I, s:I}", "name", &name, "instance",
                    &instance, "access", &access, "live", &live, "sequence", &sequence, "code", &code, "version",
                    &version, "staleness", &staleness, "touched", &touched) != 0 ||
        !fth_worker_name_valid(name))
        return fth_fail(FTH_CORRUPT, "the checkpoint's list of workers is not valid");
    fth_worker *worker = join(workers, name, instance, access);
    if (!worker)
        return fth_fail(FTH_CORRUPT, "the checkpoint has more workers than there is room for");
    worker->sequence = sequence;
    worker->last_code = code;
    worker->last_version = version;
    worker->last_staleness = staleness;
    worker->unfit = json_integer_value(json_object_get(item, "unfit"));
    start_lease(workers, worker, json_is_true(json_object_get(item, "function")));
    if (!live)
        leave(workers, worker);
    worker->touched = touched;
    if (touched > workers->clock)
        workers->clock = touched;
    return FTH_OK;
}

fth_status fth_workers_from_json(fth_workers *workers, const json_t *json)
{
    fth_status status = FTH_OK;
    const json_t *list = json_object_get(json, "list"), *item;
    size_t index;
    pthread_mutex_lock(&workers->mutex);
    json_array_foreach(list, index, item)
    {
        if (status == FTH_OK)
            status = read_worker(workers, item);
    }
    if (status == FTH_OK)
        workers->most_live = (int)json_integer_value(json_object_get(json, "most_live"));
    pthread_mutex_unlock(&workers->mutex);
    return status;
}
