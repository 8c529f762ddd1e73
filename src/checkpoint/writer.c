/* The writer's thread and its two slots; the states are drawn in writer.h.
 *
 * Everything is under one mutex except the writing itself. The thread runs as a batch job of low
 * priority, which the threads that a store makes for it inherit: training has the processor first,
 * and when training has stopped, for a notice, there is nobody to give way to. */
#include "checkpoint/writer.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"

enum { NICENESS = 10 };

typedef enum slot_state { SLOT_FREE, SLOT_CLAIMED, SLOT_WAITING, SLOT_WRITING } slot_state;

struct fth_writer {
    fth_writer_work work;
    pthread_t thread;
    bool started;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    slot_state states[FTH_WRITER_SLOTS];
    fth_writer_job jobs[FTH_WRITER_SLOTS];
    fth_writer_result results[FTH_WRITER_RESULTS]; /* a ring */
    size_t first_result, result_count;
    bool cancelled, ending;
    double writing_since_s;
    uint64_t done_bytes, total_bytes;
};

static int find(const fth_writer *writer, slot_state state)
{
    for (int i = 0; i < FTH_WRITER_SLOTS; i++)
        if (writer->states[i] == state)
            return i;
    return -1;
}

/* Asked by the store during an upload. */
static bool moved(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    fth_writer *writer = context;
    pthread_mutex_lock(&writer->mutex);
    writer->done_bytes = done_bytes;
    writer->total_bytes = total_bytes;
    bool go_on = !writer->cancelled;
    pthread_mutex_unlock(&writer->mutex);
    return go_on;
}

/* Below whatever the process has; one that was given real time knows what it does. */
static void lower_priority(void)
{
    struct sched_param parameters = {0};
    id_t thread = (id_t)syscall(SYS_gettid); /* on Linux priorities are a thread's own */
    if (sched_getscheduler(0) != SCHED_OTHER)
        return;
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
    setpriority(PRIO_PROCESS, thread, getpriority(PRIO_PROCESS, thread) + NICENESS);
}

static void drop(const fth_writer *writer, const fth_writer_job *job)
{
    if (writer->work.drop)
        writer->work.drop(writer->work.context, job);
}

static bool pop_result(fth_writer *writer, fth_writer_result *result)
{
    if (writer->result_count == 0)
        return false;
    *result = writer->results[writer->first_result];
    writer->first_result = (writer->first_result + 1) % FTH_WRITER_RESULTS;
    writer->result_count--;
    return true;
}

/* Bounds memory for an owner that takes no results: the oldest goes, since the newest says how
 * things stand. */
static void push_result(fth_writer *writer, const fth_writer_result *result)
{
    fth_writer_result oldest;
    if (writer->result_count == FTH_WRITER_RESULTS && pop_result(writer, &oldest))
        drop(writer, &oldest.job);
    writer->results[(writer->first_result + writer->result_count++) % FTH_WRITER_RESULTS] = *result;
}

/* Writes the job in `slot`; with the mutex held, except during the writing. */
static void write_slot(fth_writer *writer, int slot)
{
    fth_store_progress progress = {.context = writer, .moved = moved};
    writer->states[slot] = SLOT_WRITING;
    writer->cancelled = writer->ending;
    writer->done_bytes = writer->total_bytes = 0;
    writer->writing_since_s = fth_clock_seconds();
    fth_writer_result result = {.job = writer->jobs[slot]};
    pthread_mutex_unlock(&writer->mutex);

    result.status = writer->work.write(writer->work.context, &result.job, &progress, &result.size_bytes);
    if (result.status != FTH_OK) /* messages belong to a thread */
        snprintf(result.message, sizeof result.message, "%s", fth_error_message());

    pthread_mutex_lock(&writer->mutex);
    result.seconds = fth_clock_seconds() - writer->writing_since_s;
    push_result(writer, &result);
    writer->states[slot] = SLOT_FREE;
    pthread_cond_broadcast(&writer->changed);
}

static void *write_jobs(void *context)
{
    fth_writer *writer = context;
    lower_priority();
    if (writer->work.prepare)
        writer->work.prepare(writer->work.context);
    pthread_mutex_lock(&writer->mutex);
    if (writer->work.prepare) {
        writer->states[0] = SLOT_FREE;
        pthread_cond_broadcast(&writer->changed);
    }
    for (;;) {
        int slot = find(writer, SLOT_WAITING);
        if (writer->ending)
            break;
        if (slot < 0) {
            pthread_cond_wait(&writer->changed, &writer->mutex);
            continue;
        }
        write_slot(writer, slot);
    }
    pthread_mutex_unlock(&writer->mutex);
    return NULL;
}

fth_status fth_writer_create(const fth_writer_work *work, fth_writer **result)
{
    fth_status status = FTH_OK;
    fth_writer *writer = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *writer, &writer));
    writer->work = *work;
    if (work->prepare)
        writer->states[0] = SLOT_CLAIMED;
    pthread_mutex_init(&writer->mutex, NULL);
    pthread_cond_init(&writer->changed, NULL);
    writer->started = fth_thread_start(&writer->thread, "checkpoint", write_jobs, writer) == 0;
    FTH_REQUIRE(writer->started, FTH_NO_MEMORY, "no thread could be started to write checkpoints");
    *result = writer;
    writer = NULL;

out:
    fth_writer_free(writer);
    return status;
}

void fth_writer_free(fth_writer *writer)
{
    if (!writer)
        return;
    pthread_mutex_lock(&writer->mutex);
    writer->ending = writer->cancelled = true;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->mutex);
    if (writer->started)
        pthread_join(writer->thread, NULL);
    for (int i = 0; i < FTH_WRITER_SLOTS; i++)
        if (writer->states[i] == SLOT_WAITING)
            drop(writer, &writer->jobs[i]);
    fth_writer_result result;
    while (pop_result(writer, &result))
        drop(writer, &result.job);
    pthread_mutex_destroy(&writer->mutex);
    pthread_cond_destroy(&writer->changed);
    free(writer);
}

int fth_writer_claim(fth_writer *writer, int kind, fth_writer_job *replaced)
{
    *replaced = (fth_writer_job){.slot = -1};
    pthread_mutex_lock(&writer->mutex);
    int waiting = find(writer, SLOT_WAITING);
    int slot = find(writer, SLOT_FREE);
    if (waiting >= 0 && (writer->jobs[waiting].kind & ~kind) == 0) {
        slot = waiting; /* older than what comes now */
        *replaced = writer->jobs[slot];
    } else if (waiting >= 0) {
        slot = -1; /* one job waits at most: they are written in order */
    }
    if (slot >= 0)
        writer->states[slot] = SLOT_CLAIMED;
    pthread_mutex_unlock(&writer->mutex);
    return slot;
}

static void set_state(fth_writer *writer, int slot, slot_state state, const fth_writer_job *job)
{
    pthread_mutex_lock(&writer->mutex);
    writer->states[slot] = state;
    if (job)
        writer->jobs[slot] = *job;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->mutex);
}

void fth_writer_submit(fth_writer *writer, const fth_writer_job *job)
{
    set_state(writer, job->slot, SLOT_WAITING, job);
}

void fth_writer_run(fth_writer *writer, const fth_writer_job *job)
{
    pthread_mutex_lock(&writer->mutex);
    writer->jobs[job->slot] = *job;
    write_slot(writer, job->slot);
    pthread_mutex_unlock(&writer->mutex);
}

void fth_writer_unclaim(fth_writer *writer, int slot)
{
    set_state(writer, slot, SLOT_FREE, NULL);
}

bool fth_writer_take_result(fth_writer *writer, fth_writer_result *result)
{
    pthread_mutex_lock(&writer->mutex);
    bool found = pop_result(writer, result);
    pthread_mutex_unlock(&writer->mutex);
    return found;
}

static bool is_idle(const fth_writer *writer)
{
    return find(writer, SLOT_WAITING) < 0 && find(writer, SLOT_WRITING) < 0;
}

fth_status fth_writer_wait_idle(fth_writer *writer, fth_deadline deadline)
{
    struct timespec until = fth_deadline_timespec(deadline);
    bool done;
    pthread_mutex_lock(&writer->mutex);
    while (!(done = is_idle(writer)) && !fth_deadline_passed(deadline))
        pthread_cond_clockwait(&writer->changed, &writer->mutex, CLOCK_MONOTONIC, &until);
    int writing = find(writer, SLOT_WRITING);
    int64_t step = writing >= 0 ? writer->jobs[writing].step : -1;
    pthread_mutex_unlock(&writer->mutex);
    return done ? FTH_OK
                : fth_fail(FTH_TIMEOUT, "the checkpoint of step %lld was not written in time", (long long)step);
}

void fth_writer_cancel(fth_writer *writer)
{
    pthread_mutex_lock(&writer->mutex);
    writer->cancelled = true;
    pthread_mutex_unlock(&writer->mutex);
}

fth_writer_state fth_writer_look(fth_writer *writer)
{
    pthread_mutex_lock(&writer->mutex);
    int writing = find(writer, SLOT_WRITING), waiting = find(writer, SLOT_WAITING);
    fth_writer_state state = {.writing = writing >= 0,
                              .waiting = waiting >= 0,
                              .writing_since_s = writer->writing_since_s,
                              .done_bytes = writer->done_bytes,
                              .total_bytes = writer->total_bytes};
    pthread_mutex_unlock(&writer->mutex);
    return state;
}
