/* Prefetching by threads of this process: a coordinator or a worker (worker.c).
 *
 * All threads work together: one takes an order, and any free thread helps with its pieces, so that
 * a job waiting for one batch gets all threads. One thread at a time waits for the next order; the
 * others wait for pieces, or for their turn. An order:
 *
 *     taken -> begun -> pieces, by several threads -> the last helper ends it, and reports
 *
 * Orders are taken ahead until enough samples are pending for a store to fetch them in parallel
 * (data/source/fetch_pool.h), as samples or in batches. Items needed first are made first. */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "batches/prefetch/prefetch.h"

enum { DEFAULT_THREADS = 4, MAX_THREADS = 256, SAMPLES_AHEAD = 64 };
#define TAKE_S           0.25 /* limit of a wait for an order, and so of a stop */
#define DEFAULT_ANSWER_S 20.0

/* An order in progress. */
typedef struct prefetch_work {
    fth_order order;
    fth_item_task *task;
    int helpers; /* threads working on a piece of it */
    struct prefetch_work *next;
} prefetch_work;

typedef struct thread_pool {
    fth_order_source source;
    double answer_s;
    pthread_t threads[MAX_THREADS];
    int thread_count;
    atomic_bool stop;

    pthread_mutex_t mutex; /* guards the members below, and the works */
    pthread_cond_t changed;
    prefetch_work *works; /* in the order of need */
    bool taking;          /* a thread waits for an order */
} thread_pool;

/* A thread's tools, one set for each data set it has used. */
typedef struct toolbox {
    fth_prefetch_tools **threads;
    size_t count, capacity;
} toolbox;

static const char *const prefetcher_name = "threads";

static fth_status find_tools(thread_pool *pool, toolbox *box, fth_prefetch_set *set, fth_prefetch_tools **tools)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < box->count; i++)
        if (fth_prefetch_tools_set(box->threads[i]) == set) {
            *tools = box->threads[i];
            return FTH_OK;
        }
    FTH_TRY(fth_grow(&box->threads, box->count, &box->capacity, sizeof *box->threads));
    FTH_TRY(fth_prefetch_tools_create(set, &pool->stop, tools));
    box->threads[box->count++] = *tools;

out:
    return status;
}

static void release_tools(toolbox *box)
{
    for (size_t i = 0; i < box->count; i++)
        fth_prefetch_tools_free(box->threads[i]);
    free(box->threads);
}

/* ---- orders ---- */

static void report_failure(thread_pool *pool, const fth_order *order, fth_status status)
{
    char reason[768];
    snprintf(reason, sizeof reason, "%s", fth_error_message());
    pool->source.done(pool->source.context, prefetcher_name, order, status, reason, &(fth_prefetch_result){0}, 0);
}

/* Begins an order and adds it to the works, or reports its failure. */
static void begin_order(thread_pool *pool, toolbox *box, const fth_order *order)
{
    fth_status status = FTH_OK;
    fth_prefetch_set *set = NULL;
    fth_prefetch_tools *tools = NULL;
    prefetch_work *work = NULL;

    FTH_TRY(pool->source.set(pool->source.context, order->spec.data, &set));
    FTH_TRY(find_tools(pool, box, set, &tools));
    FTH_TRY(fth_allocate(1, sizeof *work, &work));
    work->order = *order;
    FTH_TRY(fth_item_task_begin(tools, order, pool->source.cache, fth_deadline_in(pool->answer_s), &work->task));
    pthread_mutex_lock(&pool->mutex);
    prefetch_work **place = &pool->works;
    while (*place && (*place)->order.needed_s <= order->needed_s)
        place = &(*place)->next;
    work->next = *place;
    *place = work;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
    work = NULL;

out:
    free(work);
    if (status != FTH_OK)
        report_failure(pool, order, status);
}

/* With the mutex held: samples without a thread. */
static int64_t count_ahead(const thread_pool *pool)
{
    int64_t samples = 0;
    for (const prefetch_work *work = pool->works; work; work = work->next)
        samples += fth_item_task_left(work->task);
    return samples;
}

/* Takes orders until enough samples are pending, and waits for the first if necessary. With the
 * mutex held, which is released meanwhile. */
static void take_orders(thread_pool *pool, toolbox *box, double wait_s)
{
    fth_order order;
    bool taken = true;
    pool->taking = true;
    while (taken && !atomic_load(&pool->stop) && count_ahead(pool) < SAMPLES_AHEAD) {
        pthread_mutex_unlock(&pool->mutex);
        taken = pool->source.take(pool->source.context, prefetcher_name, fth_deadline_in(wait_s), &order);
        if (taken)
            begin_order(pool, box, &order);
        wait_s = 0;
        pthread_mutex_lock(&pool->mutex);
    }
    pool->taking = false;
    pthread_cond_signal(&pool->changed);
}

/* Ends a work without helpers that is off the list. */
static void end_work(thread_pool *pool, prefetch_work *work)
{
    fth_prefetch_result result = {0};
    fth_status status = fth_item_task_end(work->task, &result);
    if (status == FTH_OK)
        pool->source.done(pool->source.context, prefetcher_name, &work->order, FTH_OK, "", &result, 0);
    else
        report_failure(pool, &work->order, status);
    free(work);
}

/* ---- threads ---- */

/* With the mutex held. */
static prefetch_work *find_work(const thread_pool *pool)
{
    for (prefetch_work *work = pool->works; work; work = work->next)
        if (fth_item_task_left(work->task) > 0)
            return work;
    return NULL;
}

/* With the mutex held. */
static void remove_work(thread_pool *pool, const prefetch_work *work)
{
    prefetch_work **place = &pool->works;
    while (*place != work)
        place = &(*place)->next;
    *place = work->next;
}

/* Makes a piece of a work; the thread that makes the last one ends it. With the mutex held, which
 * is released meanwhile. */
static void help(thread_pool *pool, toolbox *box, prefetch_work *work)
{
    fth_prefetch_set *set = NULL;
    fth_prefetch_tools *tools = NULL;
    work->helpers++;
    pthread_mutex_unlock(&pool->mutex);
    if (pool->source.set(pool->source.context, work->order.spec.data, &set) == FTH_OK &&
        find_tools(pool, box, set, &tools) == FTH_OK)
        fth_item_task_run_piece(work->task, tools);
    else
        fth_item_task_stop(work->task);
    pthread_mutex_lock(&pool->mutex);
    work->helpers--;
    if (work->helpers > 0 || fth_item_task_left(work->task) > 0)
        return;
    remove_work(pool, work);
    pthread_mutex_unlock(&pool->mutex);
    end_work(pool, work);
    pthread_mutex_lock(&pool->mutex);
}

static void *run(void *context)
{
    thread_pool *pool = context;
    toolbox box = {0};
    prefetch_work *work;

    pthread_mutex_lock(&pool->mutex);
    while (!atomic_load(&pool->stop)) {
        if (!pool->taking && count_ahead(pool) < SAMPLES_AHEAD)
            take_orders(pool, &box, find_work(pool) ? 0 : TAKE_S);
        if ((work = find_work(pool)))
            help(pool, &box, work);
        else if (pool->taking)
            pthread_cond_wait(&pool->changed, &pool->mutex); /* at most TAKE_S: a thread is taking orders */
    }
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
    release_tools(&box);
    return NULL;
}

/* ---- the kind ---- */

static fth_status read_count(const char *argument, int *count)
{
    char *end = NULL;
    long value = *argument ? strtol(argument, &end, 10) : DEFAULT_THREADS;
    if (value < 1 || value > MAX_THREADS || (end && *end))
        return fth_fail(FTH_INVALID, "threads:%s: expected threads:N with N from 1 to %d", argument, MAX_THREADS);
    *count = (int)value;
    return FTH_OK;
}

static fth_status check(const char *argument)
{
    int count;
    return read_count(argument, &count);
}

static void stop(void *state)
{
    thread_pool *pool = state;
    atomic_store(&pool->stop, true);
    pthread_mutex_lock(&pool->mutex);
    for (prefetch_work *work = pool->works; work; work = work->next)
        fth_item_task_stop(work->task);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < pool->thread_count; i++)
        pthread_join(pool->threads[i], NULL); /* each ends after a piece, or a wait for an order */
    while (pool->works) {
        prefetch_work *work = pool->works;
        pool->works = work->next;
        end_work(pool, work);
    }
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

static fth_status start(const char *argument, const fth_order_source *source, const fth_prefetch_options *options,
                        void **state)
{
    fth_status status = FTH_OK;
    thread_pool *pool = NULL;
    int count = 0, failure = 0;

    FTH_TRY(read_count(argument, &count));
    FTH_TRY(fth_allocate(1, sizeof *pool, &pool));
    pool->source = *source;
    pool->answer_s = options->answer_s > 0 ? options->answer_s : DEFAULT_ANSWER_S;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->changed, NULL);
    while (failure == 0 && pool->thread_count < count) {
        failure = fth_thread_start(&pool->threads[pool->thread_count], "prefetch", run, pool);
        pool->thread_count += failure == 0;
    }
    if (pool->thread_count == 0) {
        stop(pool);
        return fth_fail(FTH_NO_MEMORY, "cannot start a prefetching thread");
    }
    *state = pool;

out:
    return status;
}

const fth_prefetch_kind fth_prefetch_threads = {
    .name = "threads",
    .summary = "threads of the coordinator: threads:4",
    .check = check,
    .start = start,
    .stop = stop,
};
