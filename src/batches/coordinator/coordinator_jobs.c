/* See coordinator_jobs.h. One lock guards a short list; the dispatcher is called while it is held,
 * never the other way round. */
#include "batches/coordinator/coordinator_jobs.h"

#include <inttypes.h>
#include <math.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"

static const double FORGET_AFTER_S = 3600;
static const uint64_t MAX_JOB_ID = (UINT64_C(1) << 53) - 1; /* the largest integer that every JSON reader keeps exact */

static const int64_t MAX_POSITION = INT64_C(1) << 40; /* keeps positions in samples far from overflow */

typedef struct place {
    int process;
    int64_t next, stride, end;
    int64_t begin; /* the batches from here to `next` were taken */
} place;

typedef struct entry {
    fth_served_job job;
    int64_t set_count;
    place *places; /* (job.processes) */
    size_t place_capacity;
} entry;

struct fth_served_jobs {
    const fth_served_sets *sets;
    fth_dispatcher *dispatcher;
    uint64_t seed;
    const char *cache_name;

    pthread_mutex_t mutex; /* guards the members below */
    entry **entries;
    size_t count, capacity;
    uint64_t changes;
};

fth_status fth_served_jobs_create(const fth_served_sets *sets, fth_dispatcher *dispatcher, uint64_t seed,
                                  const char *cache_name, fth_served_jobs **result)
{
    fth_served_jobs *jobs = NULL;
    fth_status status = fth_allocate(1, sizeof *jobs, &jobs);
    *result = jobs;
    if (status != FTH_OK)
        return status;
    *jobs = (fth_served_jobs){.sets = sets, .dispatcher = dispatcher, .seed = seed, .cache_name = cache_name};
    pthread_mutex_init(&jobs->mutex, NULL);
    return FTH_OK;
}

static void free_entry(entry *job)
{
    if (job)
        free(job->places);
    free(job);
}

void fth_served_jobs_free(fth_served_jobs *jobs)
{
    if (!jobs)
        return;
    for (size_t i = 0; i < jobs->count; i++)
        free_entry(jobs->entries[i]);
    free(jobs->entries);
    pthread_mutex_destroy(&jobs->mutex);
    free(jobs);
}

/* With the lock held, as for all static functions below. */
static entry *find(const fth_served_jobs *jobs, uint64_t id)
{
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->entries[i]->job.id == id)
            return jobs->entries[i];
    return NULL;
}

/* Removes a job from the list and from the schedule. */
static void forget(fth_served_jobs *jobs, size_t index)
{
    entry *job = jobs->entries[index];
    if (!job->job.finished)
        fth_dispatcher_remove_job(jobs->dispatcher, job->job.id);
    free_entry(job);
    memmove(&jobs->entries[index], &jobs->entries[index + 1], (--jobs->count - index) * sizeof(entry *));
    jobs->changes++;
}

/* If the list is full, forgets the job that has been without processes for longest. */
static void make_place(fth_served_jobs *jobs)
{
    size_t oldest = jobs->count;
    for (size_t i = 0; i < jobs->count && jobs->count == FTH_MAX_SERVED_JOBS; i++)
        if (jobs->entries[i]->job.processes == 0 &&
            (oldest == jobs->count || jobs->entries[i]->job.seen_s < jobs->entries[oldest]->job.seen_s))
            oldest = i;
    if (oldest < jobs->count)
        forget(jobs, oldest);
}

static fth_status add(fth_served_jobs *jobs, const fth_served_job *job, int64_t set_count)
{
    fth_status status = FTH_OK;
    entry *added = NULL;

    make_place(jobs);
    FTH_REQUIRE(jobs->count < FTH_MAX_SERVED_JOBS, FTH_INVALID, "there are already %d jobs", (int)FTH_MAX_SERVED_JOBS);
    FTH_TRY(fth_grow(&jobs->entries, jobs->count, &jobs->capacity, sizeof(entry *)));
    FTH_TRY(fth_allocate(1, sizeof *added, &added));
    added->job = *job;
    added->set_count = set_count;
    if (!job->finished)
        FTH_TRY(fth_dispatcher_add_job(jobs->dispatcher, job->id, &job->spec, set_count));
    jobs->entries[jobs->count++] = added;
    jobs->changes++;
    added = NULL;

out:
    free_entry(added);
    return status;
}

/* ---- registration ---- */

static uint64_t new_id(const fth_served_jobs *jobs)
{
    uint64_t id = 0;
    while (id == 0 || find(jobs, id)) {
        if (RAND_bytes((unsigned char *)&id, sizeof id) != 1)
            id = fth_random_mix((uint64_t)(fth_clock_wall_seconds() * 1e9));
        id &= MAX_JOB_ID;
    }
    return id;
}

/* Fills in what the coordinator decides, as far as the spec leaves it open. */
static void complete(const fth_served_jobs *jobs, const fth_open_set *set, fth_job_spec *spec, char why[256])
{
    if (spec->format == FTH_FORMAT_AUTO)
        spec->format = fth_dispatcher_choose_format(jobs->dispatcher, spec, set, why);
    else if (spec->format == FTH_FORMAT_ENCODED && !set->files) {
        spec->format = FTH_FORMAT_DECODED;
        snprintf(why, 256, "the images are not files, so there is nothing to decode");
    } else
        snprintf(why, 256, "the job asked for it");
    if (spec->sharing == FTH_SHARE_NONE)
        spec->rotation = 0;
    else if (spec->rotation < 0)
        spec->rotation = fth_dispatcher_choose_rotation(jobs->dispatcher, spec, set->count[spec->split]);
}

static fth_status read_request(const fth_served_jobs *jobs, const json_t *request, const fth_signed *caller,
                               const fth_open_set **set, fth_job_spec *spec)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_job_spec_load(json_object_get(request, "job"), spec));
    FTH_TRY(fth_served_sets_require(jobs->sets, spec->data, set));
    FTH_REQUIRE(!caller || fth_signed_may_read(caller, spec->data), FTH_INVALID,
                "this key may not read the data set %s; ask for one whose line has data=%s", spec->data, spec->data);
    FTH_REQUIRE(!*spec->version || strcmp(spec->version, (*set)->version) == 0, FTH_INVALID,
                "the data set %s has changed since the job began: version %.12s, not %.12s", spec->data,
                (*set)->version, spec->version);
    snprintf(spec->version, sizeof spec->version, "%s", (*set)->version);
    if (spec->sharing != FTH_SHARE_NONE)
        spec->order_seed = jobs->seed;
    if (spec->sharing == FTH_SHARE_ALL)
        spec->augment_seed = jobs->seed;
    FTH_TRY(fth_job_spec_check(spec, (*set)->count[spec->split]));

out:
    return status;
}

static json_t *describe_registration(const fth_served_jobs *jobs, const fth_served_job *job, const fth_open_set *set)
{
    return json_pack("{s:I, s:o, s:s, s:o, s:s}", "job", (json_int_t)job->id, "spec", fth_job_spec_save(&job->spec),
                     "why", job->why, "set", json_deep_copy(set->description), "cache", jobs->cache_name);
}

/* A finished job becomes active again. */
static fth_status resume(fth_served_jobs *jobs, entry *known)
{
    bool finished = known->job.finished;
    known->job.finished = known->job.done = false;
    return finished ? fth_dispatcher_add_job(jobs->dispatcher, known->job.id, &known->job.spec, known->set_count)
                    : FTH_OK;
}

/* A job that comes back, if it is known; FTH_INVALID if it belongs to another caller or spec. */
static fth_status find_resumed(fth_served_jobs *jobs, uint64_t id, const fth_job_spec *spec, const fth_signed *caller,
                               entry **found)
{
    entry *known = find(jobs, id);
    *found = known;
    if (!known)
        return FTH_OK;
    if (!fth_job_has_same_batches(&known->job.spec, spec) || (caller && strcmp(caller->access, known->job.access) != 0))
        return fth_fail(FTH_INVALID, "job %" PRIu64 " belongs to another spec or key; register without \"resume\"", id);
    return resume(jobs, known);
}

fth_status fth_served_jobs_register(fth_served_jobs *jobs, const json_t *request, const char *host,
                                    const fth_signed *caller, uint64_t *id, json_t **answer)
{
    fth_status status = FTH_OK;
    const fth_open_set *set = NULL;
    const char *name = json_string_value(json_object_get(request, "name"));
    json_int_t resume = json_integer_value(json_object_get(request, "resume"));
    fth_served_job job = {.began_s = fth_clock_wall_seconds()};
    entry *known = NULL;

    *answer = NULL;
    pthread_mutex_lock(&jobs->mutex);
    FTH_TRY(read_request(jobs, request, caller, &set, &job.spec));
    FTH_REQUIRE(resume >= 0 && (uint64_t)resume <= MAX_JOB_ID, FTH_INVALID, "\"resume\" must be the id of a job");
    if (resume > 0)
        FTH_TRY(find_resumed(jobs, (uint64_t)resume, &job.spec, caller, &known));
    if (known) {
        known->job.seen_s = job.began_s;
        fth_printable_copy(known->job.host, sizeof known->job.host, host);
        jobs->changes++;
    } else {
        job.id = resume > 0 ? (uint64_t)resume : new_id(jobs);
        job.seen_s = job.began_s;
        fth_printable_copy(job.name, sizeof job.name, name ? name : "");
        fth_printable_copy(job.host, sizeof job.host, host);
        snprintf(job.access, sizeof job.access, "%s", caller ? caller->access : "");
        complete(jobs, set, &job.spec, job.why);
        FTH_TRY(add(jobs, &job, set->count[job.spec.split]));
    }
    *id = known ? known->job.id : job.id;
    *answer = describe_registration(jobs, known ? &known->job : &job, set);
    FTH_REQUIRE(*answer, FTH_NO_MEMORY, "no memory for the answer");

out:
    pthread_mutex_unlock(&jobs->mutex);
    return status;
}

fth_status fth_served_jobs_adopt(fth_served_jobs *jobs, const fth_served_job *job, int64_t set_count)
{
    pthread_mutex_lock(&jobs->mutex);
    entry *known = find(jobs, job->id);
    fth_status status = known ? resume(jobs, known) : add(jobs, job, set_count);
    known = find(jobs, job->id);
    if (known)
        known->job.seen_s = fth_clock_wall_seconds();
    pthread_mutex_unlock(&jobs->mutex);
    return status;
}

void fth_served_jobs_remove(fth_served_jobs *jobs, uint64_t id)
{
    pthread_mutex_lock(&jobs->mutex);
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->entries[i]->job.id == id) {
            forget(jobs, i);
            break;
        }
    pthread_mutex_unlock(&jobs->mutex);
}

bool fth_served_jobs_may_join(fth_served_jobs *jobs, uint64_t id, const fth_signed *caller)
{
    pthread_mutex_lock(&jobs->mutex);
    const entry *known = find(jobs, id);
    bool may = known && (!caller || strcmp(caller->access, known->job.access) == 0);
    pthread_mutex_unlock(&jobs->mutex);
    return may;
}

/* ---- processes ---- */

static bool same_place(const place *a, const place *b)
{
    return a->next == b->next && a->stride == b->stride && a->end == b->end;
}

static void remove_place(fth_served_jobs *jobs, entry *job, int index)
{
    fth_dispatcher_remove_process(jobs->dispatcher, job->job.id, job->places[index].process);
    job->places[index] = job->places[--job->job.processes];
    job->job.seen_s = fth_clock_wall_seconds();
    jobs->changes++;
}

bool fth_served_jobs_move(fth_served_jobs *jobs, uint64_t id, int process, int64_t next, int64_t stride, int64_t end)
{
    bool good = next >= 0 && stride >= 1 && stride <= FTH_MAX_JOB_BATCH && end >= 0 && next <= MAX_POSITION;
    pthread_mutex_lock(&jobs->mutex);
    entry *job = find(jobs, id);
    if (job && good) {
        place moved = {process, next, stride, end, next};
        int at = 0;
        while (at < job->job.processes && job->places[at].process != process)
            at++;
        if (at == job->job.processes &&
            fth_grow(&job->places, (size_t)at, &job->place_capacity, sizeof(place)) == FTH_OK)
            job->places[job->job.processes++] = (place){.process = process, .next = -1};
        if (at < job->job.processes && !same_place(&job->places[at], &moved)) {
            const place *was = &job->places[at];
            if (was->next >= 0 && was->stride == stride && next >= was->next && (next - was->next) % stride == 0)
                moved.begin = was->begin;
            job->places[at] = moved;
            fth_dispatcher_move(jobs->dispatcher, id, process, next, stride, end);
            int64_t least = next;
            for (int i = 0; i < job->job.processes; i++)
                least = job->places[i].next < least ? job->places[i].next : least;
            job->job.next = least;
            job->job.seen_s = fth_clock_wall_seconds();
            jobs->changes++;
        }
    }
    pthread_mutex_unlock(&jobs->mutex);
    return job != NULL;
}

void fth_served_jobs_count(fth_served_jobs *jobs, uint64_t id, const uint64_t amounts[FTH_SLOT_COUNTERS])
{
    pthread_mutex_lock(&jobs->mutex);
    entry *job = find(jobs, id);
    for (int i = 0; job && i < FTH_SLOT_COUNTERS; i++)
        job->job.counters[i] += amounts[i];
    jobs->changes += job != NULL;
    pthread_mutex_unlock(&jobs->mutex);
}

/* A copy, with the scheduler's current figures added. */
static void copy(const fth_served_jobs *jobs, const entry *job, fth_served_job *copied)
{
    fth_scheduler_job_figures now;
    *copied = job->job;
    if (!fth_dispatcher_get_job(jobs->dispatcher, job->job.id, &now))
        return;
    now.decoded_for_it += job->job.scheduled.decoded_for_it;
    now.decoded_by_others += job->job.scheduled.decoded_by_others;
    copied->scheduled = now;
}

/* Removes a job from the schedule, and keeps its figures. */
static void unschedule(fth_served_jobs *jobs, entry *job)
{
    fth_served_job last;
    copy(jobs, job, &last);
    job->job.scheduled = last.scheduled;
    job->job.scheduled.pace = 0;
    fth_dispatcher_remove_job(jobs->dispatcher, job->job.id);
}

/* A job has finished when a process has said so and the last one has left. */
static void finish_if_done(fth_served_jobs *jobs, entry *job)
{
    if (!job->job.done || job->job.processes > 0 || job->job.finished)
        return;
    job->job.finished = true;
    job->job.seen_s = fth_clock_wall_seconds();
    unschedule(jobs, job);
    jobs->changes++;
}

void fth_served_jobs_leave(fth_served_jobs *jobs, uint64_t id, int process, bool finished)
{
    pthread_mutex_lock(&jobs->mutex);
    entry *job = find(jobs, id);
    for (int i = 0; job && i < job->job.processes; i++)
        if (job->places[i].process == process) {
            remove_place(jobs, job, i);
            break;
        }
    if (job) {
        job->job.done = job->job.done || finished;
        finish_if_done(jobs, job);
    }
    pthread_mutex_unlock(&jobs->mutex);
}

void fth_served_jobs_finish(fth_served_jobs *jobs, uint64_t id)
{
    pthread_mutex_lock(&jobs->mutex);
    entry *job = find(jobs, id);
    if (job) {
        job->job.done = true;
        finish_if_done(jobs, job);
    }
    pthread_mutex_unlock(&jobs->mutex);
}

/* ---- costs ---- */

static bool uses(const fth_served_job *job, const fth_order *order)
{
    static const fth_cache_format formats[FTH_ITEM_KINDS] = {FTH_FORMAT_ENCODED, FTH_FORMAT_DECODED,
                                                             FTH_FORMAT_BATCHES};
    if (job->finished || job->spec.format != formats[order->kind])
        return false;
    if (order->kind == FTH_ITEM_BATCH)
        return fth_job_has_same_batches(&job->spec, &order->spec);
    return strcmp(job->spec.data, order->spec.data) == 0 && strcmp(job->spec.version, order->spec.version) == 0 &&
           job->spec.split == order->spec.split;
}

void fth_served_jobs_account(void *context, const fth_order *order, const fth_prefetch_result *result, double usd)
{
    fth_served_jobs *jobs = context;
    size_t users = 0;

    (void)result;
    if (usd <= 0)
        return;
    pthread_mutex_lock(&jobs->mutex);
    for (size_t i = 0; i < jobs->count; i++) {
        entry *job = jobs->entries[i];
        users += uses(&job->job, order);
    }
    for (size_t i = 0; i < jobs->count && users > 0; i++) {
        entry *job = jobs->entries[i];
        if (uses(&job->job, order))
            job->job.usd += usd / (double)users;
    }
    jobs->changes++;
    pthread_mutex_unlock(&jobs->mutex);
}

void fth_served_jobs_tick(fth_served_jobs *jobs, double cache_usd)
{
    double now = fth_clock_wall_seconds();
    size_t live = 0;
    pthread_mutex_lock(&jobs->mutex);
    for (size_t i = 0; i < jobs->count; i++)
        live += jobs->entries[i]->job.processes > 0;
    for (size_t i = jobs->count; i-- > 0;) {
        fth_served_job *job = &jobs->entries[i]->job;
        if (job->processes > 0)
            job->usd += cache_usd / (double)live;
        else if (now - job->seen_s > FORGET_AFTER_S)
            forget(jobs, i);
    }
    pthread_mutex_unlock(&jobs->mutex);
}

/* ---- reports ---- */

bool fth_served_jobs_get(fth_served_jobs *jobs, size_t index, fth_served_job *job)
{
    pthread_mutex_lock(&jobs->mutex);
    bool found = index < jobs->count;
    if (found)
        copy(jobs, jobs->entries[index], job);
    pthread_mutex_unlock(&jobs->mutex);
    return found;
}

bool fth_served_jobs_find(fth_served_jobs *jobs, uint64_t id, fth_served_job *job)
{
    pthread_mutex_lock(&jobs->mutex);
    const entry *found = find(jobs, id);
    if (found)
        copy(jobs, found, job);
    pthread_mutex_unlock(&jobs->mutex);
    return found != NULL;
}

json_t *fth_served_jobs_describe_processes(fth_served_jobs *jobs, uint64_t id)
{
    json_t *list = json_array();
    pthread_mutex_lock(&jobs->mutex);
    const entry *job = find(jobs, id);
    for (int i = 0; job && i < job->job.processes; i++) {
        const place *at = &job->places[i];
        json_array_append_new(list, json_pack("[i, I, I, I, I]", at->process, (json_int_t)at->next,
                                              (json_int_t)at->stride, (json_int_t)at->end, (json_int_t)at->begin));
    }
    pthread_mutex_unlock(&jobs->mutex);
    return list;
}

static json_t *save_counters(const uint64_t counters[FTH_SLOT_COUNTERS])
{
    json_t *json = json_array();
    for (int i = 0; i < FTH_SLOT_COUNTERS; i++)
        json_array_append_new(json, json_integer((json_int_t)counters[i]));
    return json;
}

json_t *fth_served_job_describe(const fth_served_job *job)
{
    const uint64_t *counters = job->counters;
    return json_pack(
        "{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:b, s:I, s:f, s:I, s:I, s:I, s:I, s:f, s:I, s:f, "
        "s:f, s:I, "
        "s:I, s:I, s:I, s:f}",
        "job", (json_int_t)job->id, "name", job->name, "host", job->host, "key", job->access, "data", job->spec.data,
        "split", job->spec.split == FTH_TRAIN ? "train" : "validation", "share", fth_sharing_name(job->spec.sharing),
        "form", fth_cache_format_name(job->spec.format), "why", job->why, "batch", (json_int_t)job->spec.batch,
        "processes", job->processes, "finished", (int)job->finished, "next", (json_int_t)job->next, "batches_per_s",
        job->scheduled.pace, "ready_ahead", (json_int_t)job->scheduled.ready_ahead, "hits",
        (json_int_t)counters[FTH_SLOT_HITS], "waits", (json_int_t)counters[FTH_SLOT_WAITS], "misses",
        (json_int_t)counters[FTH_SLOT_MISSES], "wait_s", 1e-9 * (double)counters[FTH_SLOT_WAIT_NS], "bytes",
        (json_int_t)counters[FTH_SLOT_BYTES], "fetch_s", 1e-9 * (double)counters[FTH_SLOT_FETCH_NS], "decode_s",
        1e-9 * (double)counters[FTH_SLOT_DECODE_NS], "corrupt", (json_int_t)counters[FTH_SLOT_CORRUPT], "samples",
        (json_int_t)counters[FTH_SLOT_SAMPLES], "decoded_for_it", (json_int_t)job->scheduled.decoded_for_it,
        "decoded_by_others", (json_int_t)job->scheduled.decoded_by_others, "usd", job->usd);
}

/* ---- the state file ---- */

uint64_t fth_served_jobs_changes(fth_served_jobs *jobs)
{
    pthread_mutex_lock(&jobs->mutex);
    uint64_t changes = jobs->changes;
    pthread_mutex_unlock(&jobs->mutex);
    return changes;
}

json_t *fth_served_jobs_save(fth_served_jobs *jobs)
{
    json_t *list = json_array();
    pthread_mutex_lock(&jobs->mutex);
    for (size_t i = 0; i < jobs->count; i++) {
        fth_served_job saved;
        const fth_served_job *job = &saved;
        copy(jobs, jobs->entries[i], &saved);
        json_array_append_new(
            list, json_pack("{s:I, s:o, s:s, s:s, s:s, s:s, s:f, s:f, s:b, s:I, s:o, s:I, s:I, s:f}", "job",
                            (json_int_t)job->id, "spec", fth_job_spec_save(&job->spec), "name", job->name, "host",
                            job->host, "access", job->access, "why", job->why, "began", job->began_s, "seen",
                            job->seen_s, "finished", (int)job->finished, "next", (json_int_t)job->next, "counters",
                            save_counters(job->counters), "decoded_for_it", (json_int_t)job->scheduled.decoded_for_it,
                            "decoded_by_others", (json_int_t)job->scheduled.decoded_by_others, "usd", job->usd));
    }
    pthread_mutex_unlock(&jobs->mutex);
    return list;
}

static void load_text(const json_t *json, const char *key, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(json, key));
    fth_printable_copy(text, size, value ? value : "");
}

static uint64_t load_count(const json_t *json, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(json, key));
    return value > 0 ? (uint64_t)value : 0;
}

static fth_status load_job(fth_served_jobs *jobs, const json_t *json)
{
    fth_status status = FTH_OK;
    fth_served_job job = {.id = (uint64_t)json_integer_value(json_object_get(json, "job"))};
    const fth_open_set *set = NULL;

    FTH_TRY(fth_job_spec_load(json_object_get(json, "spec"), &job.spec));
    FTH_TRY(fth_served_sets_require(jobs->sets, job.spec.data, &set));
    FTH_REQUIRE(strcmp(set->version, job.spec.version) == 0, FTH_INVALID, "the data set %s has changed", job.spec.data);
    FTH_TRY(fth_job_spec_check(&job.spec, set->count[job.spec.split]));
    FTH_REQUIRE(job.id > 0 && job.id <= MAX_JOB_ID && !find(jobs, job.id), FTH_INVALID, "not the id of a new job");
    load_text(json, "name", job.name, sizeof job.name);
    load_text(json, "host", job.host, sizeof job.host);
    load_text(json, "access", job.access, sizeof job.access);
    load_text(json, "why", job.why, sizeof job.why);
    job.began_s = json_number_value(json_object_get(json, "began"));
    job.seen_s = json_number_value(json_object_get(json, "seen"));
    job.finished = job.done = json_is_true(json_object_get(json, "finished"));
    job.next = json_integer_value(json_object_get(json, "next"));
    job.scheduled.decoded_for_it = load_count(json, "decoded_for_it");
    job.scheduled.decoded_by_others = load_count(json, "decoded_by_others");
    job.usd = json_number_value(json_object_get(json, "usd"));
    for (int i = 0; i < FTH_SLOT_COUNTERS; i++)
        job.counters[i] = (uint64_t)json_integer_value(json_array_get(json_object_get(json, "counters"), (size_t)i));
    FTH_TRY(add(jobs, &job, set->count[job.spec.split]));

out:
    return status;
}

void fth_served_jobs_load(fth_served_jobs *jobs, const json_t *json)
{
    size_t index;
    const json_t *job;
    pthread_mutex_lock(&jobs->mutex);
    json_array_foreach(json, index, job) if (load_job(jobs, job) != FTH_OK)
        fth_log_warning("job %" JSON_INTEGER_FORMAT " of the last coordinator is dropped: %s",
                        json_integer_value(json_object_get(job, "job")), fth_error_message());
    pthread_mutex_unlock(&jobs->mutex);
}
