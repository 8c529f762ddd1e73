/* The prefetch job: prepares an item for the batch cache, from an order as coordinators send it
 * ({"id", "kind", "number", "spec", "cache", "address"}; batches/prefetch), and answers like
 * `farthing worker prefetch --port`. Connections, caches and data sets are kept between warm
 * invocations. */
#include <pthread.h>
#include <stdlib.h>

#include "batches/prefetch/order_queue.h"
#include "functions/function.h"

#define LOOK_EVERY_S 0.05
#define MARGIN_S     0.2

/* An invocation that waits for its answer; the last of the two threads that use it frees it. */
typedef struct waiting {
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    json_t *result; /* NULL: none yet */
    bool answered, abandoned;
} waiting;

static void free_waiting(waiting *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    json_decref(w->result);
    free(w);
}

static bool is_abandoned(void *context)
{
    waiting *w = context;
    pthread_mutex_lock(&w->mutex);
    bool abandoned = w->abandoned;
    pthread_mutex_unlock(&w->mutex);
    return abandoned;
}

static void answer(void *context, json_t *result)
{
    waiting *w = context;
    pthread_mutex_lock(&w->mutex);
    w->answered = true;
    w->result = result;
    bool abandoned = w->abandoned;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    if (abandoned)
        free_waiting(w);
}

/* The result, owned by the caller; NULL if it did not come in time. */
static json_t *wait_for_result(waiting *w, const fth_invocation_event *event)
{
    fth_deadline deadline = {event->deadline_s - MARGIN_S};
    pthread_mutex_lock(&w->mutex);
    while (!w->answered && !fth_deadline_passed(deadline) && !(event->stop && event->stop->asked)) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(LOOK_EVERY_S));
        pthread_cond_clockwait(&w->changed, &w->mutex, CLOCK_MONOTONIC, &until);
    }
    json_t *result = w->result;
    w->result = NULL;
    w->abandoned = true;
    bool answered = w->answered;
    pthread_mutex_unlock(&w->mutex);
    if (answered)
        free_waiting(w);
    return result;
}

static bool fits(const json_t *value)
{
    return json_object_get(value, "kind") && json_object_get(value, "spec") && json_object_get(value, "cache");
}

static fth_status open_job(const fth_function_options *options, void **state)
{
    fth_order_queue *queue = NULL;
    fth_status status = fth_order_queue_open(&(fth_order_queue_options){.threads = options->threads}, &queue);
    *state = queue;
    return status;
}

static fth_status run_job(void *state, const fth_invocation_event *event, json_t **result)
{
    fth_status status = FTH_OK;
    waiting *w = NULL;

    FTH_TRY(fth_allocate(1, sizeof *w, &w));
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    status = fth_order_queue_submit(
        state, event->value, &(fth_order_requester){.context = w, .is_abandoned = is_abandoned, .answer = answer});
    if (status != FTH_OK) {
        free_waiting(w);
        goto out;
    }
    *result = wait_for_result(w, event);
    FTH_REQUIRE(*result, FTH_TIMEOUT, "the item was not prepared before the end of the function's time");

out:
    return status;
}

static void close_job(void *state)
{
    fth_order_queue_free(state);
}

const fth_job_kind fth_job_prefetch = {
    .name = "prefetch", .fits = fits, .open = open_job, .run = run_job, .close = close_job};
