/* See coordinator_agents.h. An agent lists all of its jobs in each request: a job that is missing
 * has left. */
#include "batches/coordinator/coordinator_agents.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/long_poll.h"

/* Longer lists in a request are refused, because they are processed under locks. */
enum { MAX_AGENTS = 1024, MAX_WANTED = 512, MAX_AGENT_JOBS = 1024, MAX_WAIT_MS = 10000 };
static const double SILENT_AFTER_S = 10, FORGET_AFTER_S = 3600;

typedef struct agent_job {
    uint64_t job;
    uint64_t counters[FTH_SLOT_COUNTERS]; /* as the agent last reported */
    int *slots;                           /* slots of its processes */
    int slot_count;
    bool listed; /* in the current request */
} agent_job;

typedef struct agent {
    char name[FTH_JOB_NAME], access[FTH_MAX_ACCESS_KEY + 1];
    int number; /* 1 to MAX_AGENTS; its processes are numbered from number * FTH_BOARD_SLOTS */
    double seen_s;
    bool silent;
    uint64_t syncs;
    agent_job *jobs;
    size_t job_count, job_capacity;
} agent;

typedef struct held_sync {
    fth_long_poll poll;
    fth_item_id *wanted;
    size_t wanted_count;
    json_t *unknown, *failed;
} held_sync;

struct fth_agents {
    fth_served_jobs *jobs;
    fth_dispatcher *dispatcher;
    fth_cache *cache;

    pthread_mutex_t mutex; /* guards the members below; taken before those of jobs and dispatcher */
    agent **agents;
    size_t count, capacity;
    fth_long_polls held;
    uint64_t results; /* of the dispatcher, when held requests were last looked at */
    bool changed;     /* since then */
    bool closed;
};

static bool answer_sync(void *context, fth_long_poll *poll, bool last);
static void release_sync(fth_long_poll *poll);

fth_status fth_agents_create(fth_served_jobs *jobs, fth_dispatcher *dispatcher, fth_cache *cache, fth_agents **result)
{
    fth_agents *agents = NULL;
    fth_status status = fth_allocate(1, sizeof *agents, &agents);
    *result = agents;
    if (status != FTH_OK)
        return status;
    *agents = (fth_agents){.jobs = jobs,
                           .dispatcher = dispatcher,
                           .cache = cache,
                           .held = {.context = agents, .answer = answer_sync, .release = release_sync}};
    pthread_mutex_init(&agents->mutex, NULL);
    return FTH_OK;
}

static void free_agent(agent *one)
{
    for (size_t i = 0; i < one->job_count; i++)
        free(one->jobs[i].slots);
    free(one->jobs);
    free(one);
}

void fth_agents_free(fth_agents *agents)
{
    if (!agents)
        return;
    fth_agents_close(agents);
    for (size_t i = 0; i < agents->count; i++)
        free_agent(agents->agents[i]);
    free(agents->agents);
    pthread_mutex_destroy(&agents->mutex);
    free(agents);
}

/* ---- requests; with the lock held ---- */

/* If the list is full, forgets the agent that has been silent for longest. */
static void make_place(fth_agents *agents)
{
    size_t oldest = agents->count;
    for (size_t i = 0; i < agents->count && agents->count == MAX_AGENTS; i++)
        if (agents->agents[i]->silent &&
            (oldest == agents->count || agents->agents[i]->seen_s < agents->agents[oldest]->seen_s))
            oldest = i;
    if (oldest < agents->count) {
        free_agent(agents->agents[oldest]);
        agents->agents[oldest] = agents->agents[--agents->count];
    }
}

/* The lowest number that no agent has. */
static int free_number(const fth_agents *agents)
{
    bool used[MAX_AGENTS + 1] = {false};
    int number = 1;
    for (size_t i = 0; i < agents->count; i++)
        used[agents->agents[i]->number] = true;
    while (number < MAX_AGENTS && used[number])
        number++;
    return number;
}

static fth_status find_agent(fth_agents *agents, const char *name, const fth_signed *caller, agent **found)
{
    fth_status status = FTH_OK;
    const char *access = caller ? caller->access : "";
    *found = NULL;
    for (size_t i = 0; i < agents->count; i++)
        if (strcmp(agents->agents[i]->name, name) == 0 && strcmp(agents->agents[i]->access, access) == 0)
            *found = agents->agents[i];
    if (*found)
        return FTH_OK;
    make_place(agents);
    FTH_REQUIRE(agents->count < MAX_AGENTS, FTH_INVALID, "there are already %d agents", (int)MAX_AGENTS);
    FTH_TRY(fth_grow(&agents->agents, agents->count, &agents->capacity, sizeof(agent *)));
    FTH_TRY(fth_allocate(1, sizeof(agent), found));
    (*found)->number = free_number(agents);
    agents->agents[agents->count++] = *found;
    snprintf((*found)->name, sizeof(*found)->name, "%s", name);
    snprintf((*found)->access, sizeof(*found)->access, "%s", access);

out:
    return status;
}

/* Forgets the counters of jobs that no longer exist. */
static void forget_old_jobs(fth_agents *agents, agent *one)
{
    size_t kept = 0;
    for (size_t i = 0; i < one->job_count; i++) {
        agent_job *job = &one->jobs[i];
        if (job->listed || job->slot_count > 0 || fth_served_jobs_may_join(agents->jobs, job->job, NULL))
            one->jobs[kept++] = *job;
        else
            free(job->slots);
    }
    one->job_count = kept;
}

static fth_status find_job(fth_agents *agents, agent *one, uint64_t id, agent_job **found)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < one->job_count; i++)
        if (one->jobs[i].job == id) {
            *found = &one->jobs[i];
            return FTH_OK;
        }
    if (one->job_count == MAX_AGENT_JOBS)
        forget_old_jobs(agents, one);
    FTH_REQUIRE(one->job_count < MAX_AGENT_JOBS, FTH_INVALID, "more than %d jobs", (int)MAX_AGENT_JOBS);
    FTH_TRY(fth_grow(&one->jobs, one->job_count, &one->job_capacity, sizeof(agent_job)));
    *found = &one->jobs[one->job_count++];
    **found = (agent_job){.job = id};

out:
    return status;
}

static int process_number(const agent *one, int slot)
{
    return one->number * FTH_BOARD_SLOTS + slot;
}

static void leave(fth_agents *agents, agent *one, agent_job *job)
{
    for (int i = 0; i < job->slot_count; i++)
        fth_served_jobs_leave(agents->jobs, job->job, process_number(one, job->slots[i]), false);
    free(job->slots);
    job->slots = NULL;
    job->slot_count = 0;
}

static bool has_slot(const int *slots, int count, int slot)
{
    for (int i = 0; i < count; i++)
        if (slots[i] == slot)
            return true;
    return false;
}

/* [[SLOT, NEXT, STRIDE, END, BEGIN], ...]; without BEGIN the process has taken nothing. */
static fth_status read_processes(fth_agents *agents, agent *one, agent_job *job, const json_t *processes)
{
    fth_status status = FTH_OK;
    size_t index, count = json_array_size(processes);
    const json_t *process;
    int *slots = NULL, used = 0;

    FTH_TRY(fth_allocate(count + 1, sizeof *slots, &slots));
    json_array_foreach(processes, index, process)
    {
        int64_t numbers[5];
        const size_t given = json_array_size(process);
        bool good = given == 4 || given == 5;
        for (size_t i = 0; i < 5; i++) {
            good = good && (i >= given || json_is_integer(json_array_get(process, i)));
            numbers[i] = json_integer_value(json_array_get(process, i));
        }
        FTH_REQUIRE(good && numbers[0] >= 0 && numbers[0] < FTH_BOARD_SLOTS, FTH_INVALID,
                    "a process is [SLOT, NEXT, STRIDE, END, BEGIN]");
        slots[used++] = (int)numbers[0];
        if (!has_slot(job->slots, job->slot_count, (int)numbers[0]) && given == 5 && numbers[4] < numbers[1])
            fth_served_jobs_move(agents->jobs, job->job, process_number(one, (int)numbers[0]), numbers[4], numbers[2],
                                 numbers[3]);
        fth_served_jobs_move(agents->jobs, job->job, process_number(one, (int)numbers[0]), numbers[1], numbers[2],
                             numbers[3]);
    }
    for (int i = 0; i < job->slot_count; i++)
        if (!has_slot(slots, used, job->slots[i]))
            fth_served_jobs_leave(agents->jobs, job->job, process_number(one, job->slots[i]), false);
    free(job->slots);
    job->slots = slots;
    job->slot_count = used;
    slots = NULL;

out:
    free(slots);
    return status;
}

static void read_counters(fth_agents *agents, agent_job *job, const json_t *counters)
{
    uint64_t more[FTH_SLOT_COUNTERS];
    bool counted = false;
    for (size_t i = 0; i < FTH_SLOT_COUNTERS; i++) {
        json_int_t value = json_integer_value(json_array_get(counters, i));
        uint64_t now = value > 0 ? (uint64_t)value : 0;
        /* smaller than before: a restarted agent counts from 0 */
        more[i] = now >= job->counters[i] ? now - job->counters[i] : now;
        job->counters[i] = now;
        counted = counted || more[i] > 0;
    }
    if (counted)
        fth_served_jobs_count(agents->jobs, job->job, more);
}

static fth_status read_jobs(fth_agents *agents, agent *one, const json_t *list, const fth_signed *caller,
                            json_t *unknown)
{
    fth_status status = FTH_OK;
    size_t index;
    const json_t *said;
    agent_job *job = NULL;

    for (size_t i = 0; i < one->job_count; i++)
        one->jobs[i].listed = false;
    json_array_foreach(list, index, said)
    {
        json_int_t id = json_integer_value(json_object_get(said, "job"));
        if (id <= 0 || !fth_served_jobs_may_join(agents->jobs, (uint64_t)id, caller)) {
            json_array_append_new(unknown, json_integer(id));
            continue;
        }
        FTH_TRY(find_job(agents, one, (uint64_t)id, &job));
        job->listed = true;
        FTH_TRY(read_processes(agents, one, job, json_object_get(said, "processes")));
        read_counters(agents, job, json_object_get(said, "counters"));
    }

out:
    for (size_t i = 0; i < one->job_count; i++)
        if (!one->jobs[i].listed)
            leave(agents, one, &one->jobs[i]);
    return status;
}

static fth_status read_ids(const json_t *list, fth_item_id **ids, size_t *count)
{
    fth_status status = FTH_OK;
    size_t index;
    const json_t *text;

    *ids = NULL;
    *count = 0;
    FTH_REQUIRE(json_array_size(list) <= MAX_WANTED, FTH_INVALID, "more than %d ids", (int)MAX_WANTED);
    FTH_TRY(fth_allocate(json_array_size(list) + 1, sizeof **ids, ids));
    json_array_foreach(list, index, text)
        FTH_REQUIRE(json_is_string(text) && fth_item_id_parse(json_string_value(text), &(*ids)[(*count)++]),
                    FTH_INVALID, "an id is 32 hex digits");

out:
    return status;
}

/* Without the lock, since a cache that is down makes this wait. */
static fth_status read_lost(fth_agents *agents, const json_t *list, const fth_signed *caller)
{
    fth_item_id *ids = NULL;
    size_t said = 0, count = 0;
    fth_status status = read_ids(list, &ids, &said);
    for (size_t i = 0; status == FTH_OK && i < said; i++)
        if (fth_dispatcher_may_drop(agents->dispatcher, ids[i], caller))
            ids[count++] = ids[i];
    if (status == FTH_OK && count > 0)
        FTH_IGNORE(fth_cache_remove(agents->cache, ids, count), "a damaged entry is found and reported again");
    for (size_t i = 0; status == FTH_OK && i < count; i++)
        fth_dispatcher_lost(agents->dispatcher, ids[i]);
    free(ids);
    return status;
}

static json_t *save_failure(fth_item_id item, const fth_dispatcher_failure *failure)
{
    char id[FTH_ITEM_ID_TEXT];
    fth_item_id_format(item, id);
    return json_pack("{s:s, s:s, s:s}", "id", id, "status", fth_status_name(failure->status), "error", failure->reason);
}

/* `failed` gets the items that will not come soon. */
static void read_waiting(fth_agents *agents, const json_t *list, const fth_signed *caller, json_t *failed)
{
    fth_dispatcher_failure failure;
    size_t index;
    const json_t *pair;
    fth_item_id id;
    json_array_foreach(list, index, pair)
    {
        const char *text = json_string_value(json_array_get(pair, 1));
        uint64_t job = (uint64_t)json_integer_value(json_array_get(pair, 0));
        if (!text || !fth_item_id_parse(text, &id) || !fth_served_jobs_may_join(agents->jobs, job, caller))
            continue;
        fth_dispatcher_want(agents->dispatcher, job, id);
        if (fth_dispatcher_explain(agents->dispatcher, job, id, &failure))
            json_array_append_new(failed, save_failure(id, &failure));
    }
}

/* ---- answers ---- */

/* The wanted items that are ready or have failed; NULL if there are none. */
static json_t *make_answer(fth_agents *agents, const held_sync *held, bool even_if_empty)
{
    json_t *ready = json_array(), *failed = json_copy(held->failed);
    fth_receipt receipt;
    fth_dispatcher_failure failure;
    for (size_t i = 0; i < held->wanted_count; i++) {
        fth_item_state state = fth_dispatcher_look(agents->dispatcher, held->wanted[i], &receipt, &failure);
        if (state == FTH_ITEM_READY)
            json_array_append_new(ready, fth_receipt_save(&receipt));
        else if (state == FTH_ITEM_FAILED)
            json_array_append_new(failed, save_failure(held->wanted[i], &failure));
    }
    if (!even_if_empty && json_array_size(ready) == 0 && json_array_size(failed) == 0) {
        json_decref(ready);
        json_decref(failed);
        return NULL;
    }
    return json_pack("{s:o, s:o, s:O}", "ready", ready, "failed", failed, "unknown", held->unknown);
}

static bool answer_sync(void *context, fth_long_poll *poll, bool last)
{
    fth_agents *agents = context;
    json_t *answer = last || agents->changed ? make_answer(agents, (const held_sync *)poll, last) : NULL;
    if (answer)
        fth_exchange_answer_json(poll->exchange, 200, answer);
    return answer != NULL;
}

static void release_sync(fth_long_poll *poll)
{
    held_sync *held = (held_sync *)poll;
    if (!held)
        return;
    free(held->wanted);
    json_decref(held->unknown);
    json_decref(held->failed);
    free(held);
}

static fth_status check_lists(const json_t *request)
{
    static const struct {
        const char *name;
        size_t most;
    } lists[] = {{"jobs", MAX_AGENT_JOBS}, {"finished", MAX_AGENT_JOBS}, {"waiting", FTH_BOARD_SLOTS}};
    for (size_t i = 0; i < FTH_COUNT_OF(lists); i++)
        if (json_array_size(json_object_get(request, lists[i].name)) > lists[i].most)
            return fth_fail(FTH_INVALID, "\"%s\" has more than %zu entries", lists[i].name, lists[i].most);
    size_t index, processes = 0;
    const json_t *job;
    json_array_foreach(json_object_get(request, "jobs"), index, job) processes +=
        json_array_size(json_object_get(job, "processes"));
    if (processes > FTH_BOARD_SLOTS)
        return fth_fail(FTH_INVALID, "more than %d processes", (int)FTH_BOARD_SLOTS);
    return FTH_OK;
}

fth_status fth_agents_sync(fth_agents *agents, fth_exchange *exchange, const json_t *request, const fth_signed *caller)
{
    fth_status status = FTH_OK;
    const char *name = json_string_value(json_object_get(request, "agent"));
    json_int_t wait_ms = json_integer_value(json_object_get(request, "wait_ms"));
    size_t index;
    const json_t *finished;
    agent *one = NULL;
    held_sync *held = NULL;

    if (!name || !*name || strlen(name) >= FTH_JOB_NAME)
        return fth_fail(FTH_INVALID, "\"agent\" must be a name");
    status = check_lists(request);
    if (status == FTH_OK)
        status = read_lost(agents, json_object_get(request, "lost"), caller);
    if (status != FTH_OK)
        return status;
    pthread_mutex_lock(&agents->mutex);
    FTH_TRY(fth_allocate(1, sizeof *held, &held));
    held->unknown = json_array();
    held->failed = json_array();
    FTH_TRY(find_agent(agents, name, caller, &one));
    one->seen_s = fth_clock_seconds();
    one->silent = false;
    one->syncs++;
    FTH_TRY(read_ids(json_object_get(request, "wanted"), &held->wanted, &held->wanted_count));
    FTH_TRY(read_jobs(agents, one, json_object_get(request, "jobs"), caller, held->unknown));
    json_array_foreach(
        json_object_get(request, "finished"), index,
        finished) if (fth_served_jobs_may_join(agents->jobs, (uint64_t)json_integer_value(finished), caller))
        fth_served_jobs_finish(agents->jobs, (uint64_t)json_integer_value(finished));
    read_waiting(agents, json_object_get(request, "waiting"), caller, held->failed);

    wait_ms = wait_ms > MAX_WAIT_MS ? MAX_WAIT_MS : wait_ms;
    bool at_once = agents->closed || held->wanted_count == 0 || json_array_size(held->unknown) > 0;
    agents->changed = true; /* this request has not been looked at */
    fth_long_polls_add(&agents->held, &held->poll, exchange, at_once ? 0 : 1e-3 * (double)wait_ms);
    held = NULL;

out:
    pthread_mutex_unlock(&agents->mutex);
    release_sync(held ? &held->poll : NULL);
    return status;
}

/* ---- periodically ---- */

bool fth_agents_tick(fth_agents *agents)
{
    double now = fth_clock_seconds();
    size_t kept = 0;
    pthread_mutex_lock(&agents->mutex);
    uint64_t results = fth_dispatcher_results(agents->dispatcher);
    agents->changed = results != agents->results;
    agents->results = results;
    fth_long_polls_check(&agents->held);
    for (size_t i = 0; i < agents->count; i++) {
        agent *one = agents->agents[i];
        if (!one->silent && now - one->seen_s > SILENT_AFTER_S) {
            one->silent = true;
            for (size_t j = 0; j < one->job_count; j++)
                leave(agents, one, &one->jobs[j]);
        }
        if (now - one->seen_s > FORGET_AFTER_S)
            free_agent(one);
        else
            agents->agents[kept++] = one;
    }
    agents->count = kept;
    bool some = agents->held.first != NULL;
    pthread_mutex_unlock(&agents->mutex);
    return some;
}

void fth_agents_close(fth_agents *agents)
{
    if (!agents)
        return;
    pthread_mutex_lock(&agents->mutex);
    agents->closed = true;
    fth_long_polls_end(&agents->held);
    pthread_mutex_unlock(&agents->mutex);
}

/* ---- reports ---- */

size_t fth_agents_count(fth_agents *agents)
{
    size_t live = 0;
    pthread_mutex_lock(&agents->mutex);
    for (size_t i = 0; i < agents->count; i++)
        live += !agents->agents[i]->silent;
    pthread_mutex_unlock(&agents->mutex);
    return live;
}

json_t *fth_agents_describe(fth_agents *agents, const fth_signed *caller)
{
    json_t *list = json_array();
    pthread_mutex_lock(&agents->mutex);
    for (size_t i = 0; i < agents->count; i++) {
        const agent *one = agents->agents[i];
        int processes = 0, jobs = 0;
        if (fth_signed_is_limited(caller) && strcmp(caller->access, one->access) != 0)
            continue;
        for (size_t j = 0; j < one->job_count; j++) {
            processes += one->jobs[j].slot_count;
            jobs += one->jobs[j].slot_count > 0;
        }
        json_array_append_new(list,
                              json_pack("{s:s, s:b, s:i, s:i, s:I}", "agent", one->name, "silent", (int)one->silent,
                                        "jobs", jobs, "processes", processes, "syncs", (json_int_t)one->syncs));
    }
    pthread_mutex_unlock(&agents->mutex);
    return list;
}

json_t *fth_agents_save(fth_agents *agents)
{
    json_t *list = json_array();
    pthread_mutex_lock(&agents->mutex);
    for (size_t i = 0; i < agents->count; i++) {
        const agent *one = agents->agents[i];
        for (size_t j = 0; j < one->job_count; j++) {
            json_t *counters = json_array();
            for (int k = 0; k < FTH_SLOT_COUNTERS; k++)
                json_array_append_new(counters, json_integer((json_int_t)one->jobs[j].counters[k]));
            json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:o}", "agent", one->name, "access", one->access,
                                                  "job", (json_int_t)one->jobs[j].job, "counters", counters));
        }
    }
    pthread_mutex_unlock(&agents->mutex);
    return list;
}

void fth_agents_load(fth_agents *agents, const json_t *json)
{
    size_t index;
    const json_t *saved;
    pthread_mutex_lock(&agents->mutex);
    json_array_foreach(json, index, saved)
    {
        const char *name = json_string_value(json_object_get(saved, "agent"));
        const char *access = json_string_value(json_object_get(saved, "access"));
        fth_signed caller = {0};
        agent *one = NULL;
        agent_job *job = NULL;
        if (!name || !access)
            continue;
        snprintf(caller.access, sizeof caller.access, "%s", access);
        if (find_agent(agents, name, &caller, &one) != FTH_OK ||
            find_job(agents, one, (uint64_t)json_integer_value(json_object_get(saved, "job")), &job) != FTH_OK)
            continue;
        one->seen_s = fth_clock_seconds();
        for (size_t i = 0; i < FTH_SLOT_COUNTERS; i++)
            job->counters[i] = (uint64_t)json_integer_value(json_array_get(json_object_get(saved, "counters"), i));
    }
    pthread_mutex_unlock(&agents->mutex);
}
