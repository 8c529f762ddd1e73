/* See agent_jobs.h. A job is kept from its registration until it has had no clients for a while.
 * Its end, finished or not, is reported once. */
#include "batches/agent/agent_jobs.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"

#define GONE_AFTER_S 2.0 /* another process of the job may be about to join */

typedef struct agent_job {
    uint64_t id;
    json_t *answer; /* of the coordinator */
    bool end_reported;
} agent_job;

struct fth_agent_jobs {
    fth_served_jobs *served;
    fth_board *board;
    pthread_mutex_t mutex;
    /* guarded by mutex */
    agent_job *jobs;
    size_t count, capacity;
};

fth_status fth_agent_jobs_create(fth_served_jobs *served, fth_board *board, fth_agent_jobs **result)
{
    fth_agent_jobs *jobs = NULL;
    fth_status status = fth_allocate(1, sizeof *jobs, &jobs);
    *result = jobs;
    if (status != FTH_OK)
        return status;
    *jobs = (fth_agent_jobs){.served = served, .board = board};
    pthread_mutex_init(&jobs->mutex, NULL);
    return FTH_OK;
}

void fth_agent_jobs_free(fth_agent_jobs *jobs)
{
    if (!jobs)
        return;
    for (size_t i = 0; i < jobs->count; i++)
        json_decref(jobs->jobs[i].answer);
    pthread_mutex_destroy(&jobs->mutex);
    free(jobs->jobs);
    free(jobs);
}

/* With the mutex held. */
static agent_job *find_job(const fth_agent_jobs *jobs, uint64_t id)
{
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->jobs[i].id == id)
            return &jobs->jobs[i];
    return NULL;
}

static fth_status read_answer(const char *name, const json_t *answer, fth_served_job *job, int64_t *set_count)
{
    fth_status status = FTH_OK;
    const json_t *id = json_object_get(answer, "job"), *set = json_object_get(answer, "set"), *count;

    FTH_REQUIRE(json_is_integer(id) && json_integer_value(id) > 0, FTH_CORRUPT,
                "the coordinator's answer has no \"job\"");
    *job = (fth_served_job){.id = (uint64_t)json_integer_value(id), .began_s = fth_clock_wall_seconds()};
    fth_printable_copy(job->name, sizeof job->name, name ? name : "");
    FTH_TRY(fth_job_spec_load(json_object_get(answer, "spec"), &job->spec));
    count = json_object_get(set, job->spec.split == FTH_TRAIN ? "training" : "validation");
    FTH_REQUIRE(json_is_integer(count), FTH_CORRUPT, "the coordinator's answer has no sample counts in \"set\"");
    *set_count = json_integer_value(count);
    FTH_TRY(fth_job_spec_check(&job->spec, *set_count));
    FTH_REQUIRE(job->spec.format != FTH_FORMAT_AUTO && job->spec.rotation >= 0, FTH_CORRUPT,
                "the coordinator's answer has an incomplete \"spec\"");

out:
    return status;
}

fth_status fth_agent_jobs_add(fth_agent_jobs *jobs, const char *name, const json_t *answer, uint64_t *id)
{
    fth_status status = FTH_OK;
    fth_served_job job;
    int64_t set_count = 0;
    json_t *copy = json_deep_copy(answer);

    pthread_mutex_lock(&jobs->mutex);
    FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for a job");
    FTH_TRY(read_answer(name, answer, &job, &set_count));
    FTH_TRY(fth_grow(&jobs->jobs, jobs->count, &jobs->capacity, sizeof *jobs->jobs));
    FTH_TRY(fth_served_jobs_adopt(jobs->served, &job, set_count));
    agent_job *known = find_job(jobs, job.id);
    if (!known) {
        known = &jobs->jobs[jobs->count++];
        *known = (agent_job){.id = job.id};
    }
    json_decref(known->answer);
    known->answer = copy;
    known->end_reported = false;
    copy = NULL;
    *id = job.id;

out:
    pthread_mutex_unlock(&jobs->mutex);
    json_decref(copy);
    return status;
}

fth_status fth_agent_jobs_describe(fth_agent_jobs *jobs, uint64_t id, json_t **answer)
{
    pthread_mutex_lock(&jobs->mutex);
    agent_job *job = find_job(jobs, id);
    *answer = job ? json_deep_copy(job->answer) : NULL;
    pthread_mutex_unlock(&jobs->mutex);
    if (!job)
        return fth_fail(FTH_INVALID, "this machine's agent has no job %" PRIu64 "; register it again", id);
    return *answer ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an answer");
}

json_t *fth_agent_jobs_registration(fth_agent_jobs *jobs, uint64_t id)
{
    fth_served_job job;
    if (!fth_served_jobs_find(jobs->served, id, &job))
        return NULL;
    return json_pack("{s:o, s:s*, s:I}", "job", fth_job_spec_save(&job.spec), "name", *job.name ? job.name : NULL,
                     "resume", (json_int_t)id);
}

/* ---- reports ---- */

/* A client that has not taken a batch yet has no position, but a slot. */
static bool has_clients(const fth_agent_jobs *jobs, uint64_t id)
{
    fth_slot_state state;
    for (int slot = 0; slot < FTH_BOARD_SLOTS; slot++)
        if (fth_board_read(jobs->board, slot, &state) && state.job == id)
            return true;
    return false;
}

static bool has_ended(const fth_agent_jobs *jobs, const fth_served_job *job)
{
    return job->processes == 0 && (job->finished || fth_clock_wall_seconds() > job->seen_s + GONE_AFTER_S) &&
           !has_clients(jobs, job->id);
}

static json_t *report_job(const fth_agent_jobs *jobs, const fth_served_job *job)
{
    json_t *counters = json_array();
    for (int i = 0; i < FTH_SLOT_COUNTERS; i++)
        json_array_append_new(counters, json_integer((json_int_t)(job->counters[i] & INT64_MAX)));
    return json_pack("{s:I, s:o, s:o}", "job", (json_int_t)job->id, "processes",
                     fth_served_jobs_describe_processes(jobs->served, job->id), "counters", counters);
}

fth_status fth_agent_jobs_report(fth_agent_jobs *jobs, json_t *request)
{
    json_t *list = json_array(), *finished = json_array(), *left = json_array();
    size_t kept = 0;
    pthread_mutex_lock(&jobs->mutex);
    for (size_t i = 0; i < jobs->count; i++) {
        agent_job *one = &jobs->jobs[i];
        fth_served_job job;
        bool known = fth_served_jobs_find(jobs->served, one->id, &job);
        bool ended = known && has_ended(jobs, &job);
        if (!known || (ended && one->end_reported)) {
            fth_served_jobs_remove(jobs->served, one->id);
            json_decref(one->answer);
            continue;
        }
        one->end_reported = ended;
        json_array_append_new(list, report_job(jobs, &job)); /* with the last counters of one that has ended */
        if (ended)
            json_array_append_new(job.finished ? finished : left, json_integer((json_int_t)job.id));
        jobs->jobs[kept++] = *one;
    }
    jobs->count = kept;
    pthread_mutex_unlock(&jobs->mutex);
    if (json_object_set_new(request, "jobs", list) != 0 || json_object_set_new(request, "finished", finished) != 0 ||
        json_object_set_new(request, "left", left) != 0)
        return fth_fail(FTH_NO_MEMORY, "no memory for a request to the coordinator");
    return FTH_OK;
}

void fth_agent_jobs_report_failed(fth_agent_jobs *jobs)
{
    pthread_mutex_lock(&jobs->mutex);
    for (size_t i = 0; i < jobs->count; i++)
        jobs->jobs[i].end_reported = false;
    pthread_mutex_unlock(&jobs->mutex);
}
