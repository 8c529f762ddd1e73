/* See workers.h. A hash table of fixed size over an array; chains by index. */
#include "parameters/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 2 * FTH_MAX_WORKERS };

struct fth_workers {
    fth_worker *items; /* FTH_MAX_WORKERS */
    int count, live, most_live;
    int64_t clock;
    int first[BUCKETS], next[FTH_MAX_WORKERS]; /* index + 1; 0: the end */
};

fth_status fth_workers_create(fth_workers **workers)
{
    fth_status status = fth_allocate(1, sizeof **workers, workers);
    if (status == FTH_OK)
        status = fth_allocate(FTH_MAX_WORKERS, sizeof *(*workers)->items, &(*workers)->items);
    return status;
}

void fth_workers_free(fth_workers *workers)
{
    if (!workers)
        return;
    free(workers->items);
    free(workers);
}

int fth_workers_live(const fth_workers *workers)
{
    return workers->live;
}

int fth_workers_most_live(const fth_workers *workers)
{
    return workers->most_live;
}

static unsigned bucket_of(const char *name)
{
    uint64_t hash = 14695981039346656037u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return (unsigned)(fth_random_mix(hash) % BUCKETS);
}

fth_worker *fth_workers_find(fth_workers *workers, const char *name)
{
    for (int i = workers->first[bucket_of(name)]; i; i = workers->next[i - 1])
        if (strcmp(workers->items[i - 1].name, name) == 0)
            return &workers->items[i - 1];
    return NULL;
}

/* The place of whoever is gone for longest, or -1. */
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

fth_worker *fth_workers_join(fth_workers *workers, const char *name, const char *instance, const char *access)
{
    fth_worker *worker = fth_workers_find(workers, name);
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
    if (!worker->live) {
        worker->live = true;
        workers->live++;
        if (workers->live > workers->most_live)
            workers->most_live = workers->live;
    }
    return worker;
}

void fth_workers_leave(fth_workers *workers, fth_worker *worker)
{
    if (!worker->live)
        return;
    worker->live = false;
    worker->in_flight = -1;
    worker->touched = ++workers->clock;
    workers->live--;
}

fth_worker *fth_workers_next_known(fth_workers *workers, size_t *position)
{
    return *position < (size_t)workers->count ? &workers->items[(*position)++] : NULL;
}

fth_worker *fth_workers_next(fth_workers *workers, size_t *position)
{
    fth_worker *worker = fth_workers_next_known(workers, position);
    while (worker && !worker->live)
        worker = fth_workers_next_known(workers, position);
    return worker;
}

json_t *fth_workers_to_json(const fth_workers *workers)
{
    json_t *list = json_array();
    for (int i = 0; i < workers->count; i++) {
        const fth_worker *w = &workers->items[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b, s:I, s:i, s:I, s:I, s:I, s:I}", "name", w->name,
                                              "instance", w->instance, "access", w->access, "live", w->live, "sequence",
                                              (json_int_t)w->sequence, "code", w->last_code, "version",
                                              (json_int_t)w->last_version, "staleness", (json_int_t)w->last_staleness,
                                              "touched", (json_int_t)w->touched, "unfit", (json_int_t)w->unfit));
    }
    return json_pack("{s:o, s:i}", "list", list, "most_live", workers->most_live);
}

fth_status fth_workers_from_json(fth_workers *workers, const json_t *json, double lease_until_s)
{
    const json_t *list = json_object_get(json, "list"), *item;
    size_t index;
    json_array_foreach(list, index, item)
    {
        const char *name = NULL, *instance = NULL, *access = NULL;
        int live = 0, code = 0;
        json_int_t sequence = 0, version = 0, staleness = 0, touched = 0;
        if (json_unpack((json_t *)item, "{s:s, s:s, s:s, s:b, s:I, s:i, s:I, s:I, s:I}", "name", &name, "instance",
                        &instance, "access", &access, "live", &live, "sequence", &sequence, "code", &code, "version",
                        &version, "staleness", &staleness, "touched", &touched) != 0 ||
            !fth_worker_name_valid(name))
            return fth_fail(FTH_CORRUPT, "the checkpoint's list of workers is not valid");
        fth_worker *worker = fth_workers_join(workers, name, instance, access);
        if (!worker)
            return fth_fail(FTH_CORRUPT, "the checkpoint has more workers than there is room for");
        worker->sequence = sequence;
        worker->last_code = code;
        worker->last_version = version;
        worker->last_staleness = staleness;
        worker->unfit = json_integer_value(json_object_get(item, "unfit"));
        worker->lease_until_s = lease_until_s;
        if (!live)
            fth_workers_leave(workers, worker);
        worker->touched = touched;
        if (touched > workers->clock)
            workers->clock = touched;
    }
    workers->most_live = (int)json_integer_value(json_object_get(json, "most_live"));
    return FTH_OK;
}
