/* See agent_jobs.h.
 *
 * A job is here from its registration until no client of it has been on the board for a while; then
 * its end, finished or left, is reported to the coordinator once. Which items a batch consists of
 * is remembered for the batches around each job's position: the same ones are looked at many times
 * a second. */
#include "batches/agent/agent_jobs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { REMEMBERED = 256 }; /* batches of a job; a power of two */
#define GONE_AFTER_S 2.0   /* how long a job without clients is kept: others of its processes may be about to join */

/* The items of one batch. */
typedef struct planned_batch {
    int64_t number; /* + 1; 0: none */
    fth_item_id *ids;
    size_t count;
} planned_batch;

typedef struct agent_job {
    uint64_t id;
    char *name;
    json_t *answer; /* of the coordinator */
    fth_job_spec spec;
    int64_t set_count;
    planned_batch *planned;            /* (REMEMBERED) */
    uint64_t ended[FTH_SLOT_COUNTERS]; /* of clients that have gone */
    double seen_s;
    bool has_clients, finished, told;
} agent_job;

/* What was last seen of a slot. */
typedef struct seen_slot {
    bool is_taken;
    fth_slot_state state;
} seen_slot;

/* A slot of a job that is here. */
typedef struct taken_slot {
    int number;
    const fth_slot_state *state;
    agent_job *job;
} taken_slot;

struct fth_agent_jobs {
    fth_board *board;
    pthread_mutex_t mutex;
    /* guarded by mutex */
    agent_job **jobs;
    size_t count, capacity;
    seen_slot *slots;  /* (FTH_BOARD_SLOTS) */
    taken_slot *taken; /* (FTH_BOARD_SLOTS), those that are taken, as of the last look */
    size_t taken_count;
    int64_t *samples; /* for planning: of the largest batch so far */
    size_t sample_room;
};

fth_status fth_agent_jobs_create(fth_board *board, fth_agent_jobs **result)
{
    fth_status status = FTH_OK;
    fth_agent_jobs *jobs = NULL;

    FTH_TRY(fth_allocate(1, sizeof *jobs, &jobs));
    pthread_mutex_init(&jobs->mutex, NULL);
    jobs->board = board;
    FTH_TRY(fth_allocate(FTH_BOARD_SLOTS, sizeof *jobs->slots, &jobs->slots));
    FTH_TRY(fth_allocate(FTH_BOARD_SLOTS, sizeof *jobs->taken, &jobs->taken));
    *result = jobs;
    jobs = NULL;

out:
    fth_agent_jobs_free(jobs);
    return status;
}

static void free_job(agent_job *job)
{
    if (!job)
        return;
    for (int i = 0; job->planned && i < REMEMBERED; i++)
        free(job->planned[i].ids);
    free(job->planned);
    json_decref(job->answer);
    free(job->name);
    free(job);
}

void fth_agent_jobs_free(fth_agent_jobs *jobs)
{
    if (!jobs)
        return;
    for (size_t i = 0; i < jobs->count; i++)
        free_job(jobs->jobs[i]);
    pthread_mutex_destroy(&jobs->mutex);
    free(jobs->jobs);
    free(jobs->slots);
    free(jobs->taken);
    free(jobs->samples);
    free(jobs);
}

/* With the mutex held. */
static agent_job *find_job(fth_agent_jobs *jobs, uint64_t id)
{
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->jobs[i]->id == id)
            return jobs->jobs[i];
    return NULL;
}

/* ---- registering ---- */

static fth_status make_job(const char *name, const json_t *answer, agent_job **result)
{
    fth_status status = FTH_OK;
    agent_job *job = NULL;
    const json_t *id = json_object_get(answer, "job"), *set = json_object_get(answer, "set"), *count;

    FTH_TRY(fth_allocate(1, sizeof *job, &job));
    FTH_REQUIRE(json_is_integer(id) && json_integer_value(id) > 0, FTH_CORRUPT,
                "the coordinator's answer has no \"job\"");
    job->id = (uint64_t)json_integer_value(id);
    FTH_TRY(fth_job_spec_load(json_object_get(answer, "spec"), &job->spec));
    count = json_object_get(set, job->spec.split == FTH_TRAIN ? "training" : "validation");
    FTH_REQUIRE(json_is_integer(count), FTH_CORRUPT, "the coordinator's answer has no counts of samples in \"set\"");
    job->set_count = json_integer_value(count);
    FTH_TRY(fth_job_spec_check(&job->spec, job->set_count));
    FTH_REQUIRE(job->spec.format != FTH_FORMAT_AUTO && job->spec.rotation >= 0, FTH_CORRUPT,
                "the coordinator's answer has a spec that is not complete");
    FTH_TRY(fth_allocate(REMEMBERED, sizeof *job->planned, &job->planned));
    job->name = name ? strdup(name) : NULL;
    job->answer = json_deep_copy(answer);
    FTH_REQUIRE(job->answer && (job->name || !name), FTH_NO_MEMORY, "no memory for a job");
    job->seen_s = fth_clock_seconds();
    *result = job;
    job = NULL;

out:
    free_job(job);
    return status;
}

/* Room for the samples of one batch of any job. With the mutex held. */
static fth_status grow_samples(fth_agent_jobs *jobs, int64_t batch)
{
    if ((size_t)batch <= jobs->sample_room)
        return FTH_OK;
    free(jobs->samples);
    jobs->samples = NULL;
    jobs->sample_room = 0;
    fth_status status = fth_allocate((size_t)batch, sizeof *jobs->samples, &jobs->samples);
    if (status == FTH_OK)
        jobs->sample_room = (size_t)batch;
    return status;
}

fth_status fth_agent_jobs_add(fth_agent_jobs *jobs, const char *name, const json_t *answer, uint64_t *id)
{
    fth_status status = FTH_OK;
    agent_job *job = NULL, *old;
    bool is_locked = false;

    FTH_TRY(make_job(name, answer, &job));
    *id = job->id;
    pthread_mutex_lock(&jobs->mutex);
    is_locked = true;
    FTH_TRY(grow_samples(jobs, job->spec.batch));
    old = find_job(jobs, job->id);
    if (old) {
        agent_job swapped = *old;
        memcpy(job->ended, old->ended, sizeof job->ended);
        *old = *job;
        *job = swapped; /* to be freed */
    } else {
        FTH_TRY(fth_grow(&jobs->jobs, jobs->count, &jobs->capacity, sizeof *jobs->jobs));
        jobs->jobs[jobs->count++] = job;
        job = NULL;
    }

out:
    if (is_locked)
        pthread_mutex_unlock(&jobs->mutex);
    free_job(job);
    return status;
}

fth_status fth_agent_jobs_describe(fth_agent_jobs *jobs, uint64_t id, json_t **answer)
{
    pthread_mutex_lock(&jobs->mutex);
    agent_job *job = find_job(jobs, id);
    *answer = job ? json_deep_copy(job->answer) : NULL;
    if (job)
        job->seen_s = fth_clock_seconds();
    pthread_mutex_unlock(&jobs->mutex);
    if (!job)
        return fth_fail(FTH_INVALID, "this machine's agent has no job %llu; register it again", (unsigned long long)id);
    return *answer ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an answer");
}

json_t *fth_agent_jobs_registration(fth_agent_jobs *jobs, uint64_t id)
{
    pthread_mutex_lock(&jobs->mutex);
    agent_job *job = find_job(jobs, id);
    json_t *request = job ? json_pack("{s:o, s:s*, s:I}", "job", fth_job_spec_save(&job->spec), "name", job->name,
                                      "resume", (json_int_t)job->id)
                          : NULL;
    pthread_mutex_unlock(&jobs->mutex);
    return request;
}

/* ---- looking ---- */

/* What clients of a slot that has another one now, or none, have counted is added to their job.
 * With the mutex held. */
static void fold_counters(fth_agent_jobs *jobs, seen_slot *seen)
{
    agent_job *job = seen->is_taken ? find_job(jobs, seen->state.job) : NULL;
    for (int i = 0; job && i < FTH_SLOT_COUNTERS; i++)
        job->ended[i] += seen->state.counters[i];
    seen->is_taken = false;
}

void fth_agent_jobs_left(fth_agent_jobs *jobs, int slot, uint64_t id, bool finished)
{
    fth_slot_state state;
    pthread_mutex_lock(&jobs->mutex);
    agent_job *job = find_job(jobs, id);
    if (job)
        job->finished |= finished;
    if (slot >= 0 && slot < FTH_BOARD_SLOTS && fth_board_read(jobs->board, slot, &state) && state.job == id)
        jobs->slots[slot] = (seen_slot){.is_taken = true, .state = state};
    pthread_mutex_unlock(&jobs->mutex);
}

/* With the mutex held. */
static void look_at_board(fth_agent_jobs *jobs)
{
    double now_s = fth_clock_seconds();
    jobs->taken_count = 0;
    for (size_t i = 0; i < jobs->count; i++)
        jobs->jobs[i]->has_clients = false;
    for (int slot = 0; slot < FTH_BOARD_SLOTS; slot++) {
        seen_slot *seen = &jobs->slots[slot];
        fth_slot_state state;
        bool is_taken = fth_board_read(jobs->board, slot, &state);
        if (seen->is_taken && (!is_taken || state.job != seen->state.job || state.process != seen->state.process))
            fold_counters(jobs, seen);
        if (!is_taken)
            continue;
        *seen = (seen_slot){.is_taken = true, .state = state};
        agent_job *job = find_job(jobs, state.job);
        if (job) {
            job->has_clients = true;
            job->seen_s = now_s;
            jobs->taken[jobs->taken_count++] = (taken_slot){.number = slot, .state = &seen->state, .job = job};
        }
    }
}

/* {"job", "processes", "counters"} of one job. With the mutex held. */
static json_t *report_job(const fth_agent_jobs *jobs, const agent_job *job)
{
    json_t *processes = json_array(), *counters = json_array();
    uint64_t sums[FTH_SLOT_COUNTERS];
    memcpy(sums, job->ended, sizeof sums);
    for (size_t place = 0; place < jobs->taken_count; place++) {
        const fth_slot_state *state = jobs->taken[place].state;
        if (jobs->taken[place].job != job)
            continue;
        if (state->next >= 0)
            json_array_append_new(processes, json_pack("[i, I, I, I, I]", jobs->taken[place].number,
                                                       (json_int_t)state->next, (json_int_t)state->stride,
                                                       (json_int_t)state->end, (json_int_t)state->begin));
        for (int i = 0; i < FTH_SLOT_COUNTERS; i++)
            sums[i] += state->counters[i];
    }
    for (int i = 0; i < FTH_SLOT_COUNTERS; i++)
        json_array_append_new(counters, json_integer((json_int_t)(sums[i] & INT64_MAX)));
    return json_pack("{s:I, s:o, s:o}", "job", (json_int_t)job->id, "processes", processes, "counters", counters);
}

/* With the mutex held. */
static fth_status report_all(fth_agent_jobs *jobs, json_t *request)
{
    json_t *list = json_array(), *finished = json_array(), *left = json_array();
    double now_s = fth_clock_seconds();
    size_t kept = 0;
    for (size_t i = 0; i < jobs->count; i++) {
        agent_job *job = jobs->jobs[i];
        bool is_over = !job->has_clients && (job->finished || now_s > job->seen_s + GONE_AFTER_S);
        if (is_over && job->told) {
            free_job(job); /* the request that said so has arrived */
            continue;
        }
        jobs->jobs[kept++] = job;
        job->told = is_over;
        /* The last counters of one that is over are sent with it. */
        json_array_append_new(list, report_job(jobs, job));
        if (is_over)
            json_array_append_new(job->finished ? finished : left, json_integer((json_int_t)job->id));
    }
    jobs->count = kept;
    if (json_object_set_new(request, "jobs", list) != 0 || json_object_set_new(request, "finished", finished) != 0 ||
        json_object_set_new(request, "left", left) != 0)
        return fth_fail(FTH_NO_MEMORY, "no memory for a request to the coordinator");
    return FTH_OK;
}

void fth_agent_jobs_not_told(fth_agent_jobs *jobs)
{
    pthread_mutex_lock(&jobs->mutex);
    for (size_t i = 0; i < jobs->count; i++)
        jobs->jobs[i]->told = false;
    pthread_mutex_unlock(&jobs->mutex);
}

/* ---- needs ---- */

/* The items of a batch, remembered; NULL without memory. With the mutex held. */
static const planned_batch *plan_batch(fth_agent_jobs *jobs, agent_job *job, int64_t number)
{
    planned_batch *planned = &job->planned[number & (REMEMBERED - 1)];
    fth_batch_plan plan = {.samples = jobs->samples};
    bool is_whole = job->spec.format == FTH_FORMAT_BATCHES;

    if (planned->number == number + 1)
        return planned;
    fth_job_plan_batch(&job->spec, job->set_count, number, &plan);
    free(planned->ids);
    planned->number = 0;
    planned->count = is_whole ? 1 : (size_t)plan.count;
    planned->ids = malloc((planned->count > 0 ? planned->count : 1) * sizeof *planned->ids);
    if (!planned->ids)
        return NULL;
    if (is_whole)
        planned->ids[0] = fth_job_batch_id(&job->spec, &plan);
    for (size_t i = 0; !is_whole && i < planned->count; i++)
        planned->ids[i] = fth_job_sample_id(
            &job->spec, job->spec.format == FTH_FORMAT_DECODED ? FTH_ITEM_DECODED : FTH_ITEM_ENCODED, plan.samples[i]);
    planned->number = number + 1;
    return planned;
}

/* A list of needs with each id once: a table of places by id, open addressing. */
typedef struct need_list {
    fth_agent_need *needs;
    size_t room, count;
    uint32_t *table; /* place + 1; 0: free */
    size_t mask;
} need_list;

static void add_need(need_list *list, fth_item_id id, uint64_t job, bool waiting)
{
    size_t place = id.words[0] & list->mask;
    while (list->table[place]) {
        fth_agent_need *need = &list->needs[list->table[place] - 1];
        if (fth_item_id_equal(need->id, id)) {
            need->waiting |= waiting;
            return;
        }
        place = (place + 1) & list->mask;
    }
    if (list->count == list->room)
        return;
    list->needs[list->count++] = (fth_agent_need){.id = id, .job = job, .waiting = waiting};
    list->table[place] = (uint32_t)list->count;
}

/* With the mutex held. */
static void list_needs(fth_agent_jobs *jobs, int depth, need_list *list)
{
    for (size_t i = 0; i < jobs->taken_count; i++)
        if (jobs->taken[i].state->waiting)
            add_need(list, jobs->taken[i].state->wanted, jobs->taken[i].job->id, true);
    for (int ahead = 0; ahead < depth && list->count < list->room; ahead++)
        for (size_t place = 0; place < jobs->taken_count; place++) {
            const fth_slot_state *state = jobs->taken[place].state;
            agent_job *job = jobs->taken[place].job;
            if (state->next < 0 || state->stride < 1 || state->stride > INT32_MAX || state->next > INT64_MAX / 2)
                continue;
            int64_t number = state->next + ahead * state->stride;
            if (state->end > 0 && number >= state->end)
                continue;
            const planned_batch *planned = plan_batch(jobs, job, number);
            for (size_t i = 0; planned && i < planned->count; i++)
                add_need(list, planned->ids[i], job->id, false);
        }
}

fth_status fth_agent_jobs_look(fth_agent_jobs *jobs, json_t *request, int depth, fth_agent_need *needs, size_t room,
                               size_t *count)
{
    fth_status status = FTH_OK;
    need_list list = {.needs = needs, .room = room, .mask = 1};

    *count = 0;
    while (list.mask + 1 < 2 * room)
        list.mask = 2 * list.mask + 1;
    FTH_TRY(fth_allocate(list.mask + 1, sizeof *list.table, &list.table));
    pthread_mutex_lock(&jobs->mutex);
    look_at_board(jobs);
    status = report_all(jobs, request);
    list_needs(jobs, depth, &list);
    pthread_mutex_unlock(&jobs->mutex);
    *count = list.count;

out:
    free(list.table);
    return status;
}
