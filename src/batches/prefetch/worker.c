/* A worker: asks its coordinator for orders, makes the items (remote_prefetcher.h), and reports the
 * outcomes in a separate thread.
 *
 *     contact -> session -> (the cache or a data set has changed) -> contact ...
 *
 * A coordinator or cache that is away is retried. Outcomes that cannot be reported are forgotten,
 * and the items are made again elsewhere. The threads share one place in the queue for orders
 * (prefetch_threads.c), so a worker has at most one such request open, regardless of its
 * threads. */
#include "batches/prefetch/worker.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "batches/coordinator_link.h"
#include "batches/prefetch/remote_prefetcher.h"
#include "http/http.h"

enum { HELD_MS = 1000, BATCHES_AT_ONCE = 1, SAMPLES_AT_ONCE = 32 };
#define ASK_S              10.0
#define DEFAULT_PATIENCE_S 120.0
#define MAX_PAUSE_S        2.0
#define SIGN_OF_LIFE_S     1.0 /* a worker that is silent for three times this long loses its orders */

typedef struct fth_prefetch_worker {
    fth_prefetch_worker_options with;
    char name[120];
    fth_coordinator_link *orders, *reports;
    char refused[FTH_VERSION_TEXT]; /* of a data set that has another version here, even after reopening it */
    atomic_bool away;               /* the coordinator does not answer ... */
    double away_since_s;            /* ... since then; of the thread that takes orders */
    double cache_away_since_s;      /* 0: it can be reached */
    bool has_begun;                 /* the coordinator knows that earlier orders under this name are lost */

    struct { /* of the thread that takes orders, except `ended` */
        char *cache;
        double limit_s;
        json_t *waiting; /* orders that no thread has taken */
        bool samples;    /* the last order was for a sample */
        fth_backoff backoff;
        atomic_bool ended; /* something has changed, or failed */
        fth_status status;
        char message[512];
    } session;

    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    json_t *results; /* to be reported */
    int orders_out;  /* taken by a thread, and not done */
    int failures;    /* consecutive */
    bool reporting;
} fth_prefetch_worker;

static bool is_stopped(const fth_prefetch_worker *worker)
{
    return worker->with.stop && worker->with.stop->asked;
}

static void end_session(fth_prefetch_worker *worker, fth_status status)
{
    if (status != FTH_OK && worker->session.status == FTH_OK) {
        worker->session.status = status;
        snprintf(worker->session.message, sizeof worker->session.message, "%s", fth_error_message());
    }
    atomic_store(&worker->session.ended, true);
}

/* ---- orders ---- */

/* Sleeps in short pieces while the coordinator is away. */
static void pause_for(fth_prefetch_worker *worker, double seconds)
{
    fth_deadline until = fth_deadline_in(seconds);
    while (!fth_deadline_passed(until) && !is_stopped(worker) && !atomic_load(&worker->session.ended))
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* After a failed request: true to try again. */
static bool bear_with(fth_prefetch_worker *worker, fth_status status)
{
    if (status != FTH_PEER_LOST && status != FTH_TIMEOUT)
        return false;
    double now_s = fth_clock_seconds();
    if (!atomic_exchange(&worker->away, true)) {
        worker->away_since_s = now_s;
        fth_log_warning("%s; trying again for %.0f s", fth_error_message(), worker->with.patience_s);
    }
    if (now_s - worker->away_since_s > worker->with.patience_s)
        return false;
    pause_for(worker, fmin(MAX_PAUSE_S, fth_backoff_next_s(&worker->session.backoff, 0)));
    return true;
}

/* One request for orders; *answer is NULL if the coordinator is away and is to be tried again. */
static fth_status ask_for_orders(fth_prefetch_worker *worker, int room, int wait_ms, json_t **answer)
{
    json_t *request = json_pack("{s:s, s:i, s:i, s:b}", "prefetcher", worker->name, "room", room, "wait_ms", wait_ms,
                                "begins", !worker->has_begun);
    fth_status status = fth_coordinator_ask(worker->orders, "POST", "/v1/orders/take", request,
                                            fth_deadline_in(ASK_S + wait_ms / 1e3), answer);
    json_decref(request);
    if (status != FTH_OK)
        return bear_with(worker, status) ? FTH_OK : status;
    if (atomic_exchange(&worker->away, false))
        fth_log_info("the coordinator %s answers again", fth_coordinator_link_url(worker->orders));
    worker->session.backoff.tries = 0;
    worker->has_begun = true;
    if (!json_is_array(json_object_get(*answer, "orders")) || !json_is_string(json_object_get(*answer, "cache"))) {
        json_decref(*answer);
        *answer = NULL;
        return fth_fail(FTH_CORRUPT, "coordinator %s: no \"orders\" and \"cache\" in its answer",
                        fth_coordinator_link_url(worker->orders));
    }
    return FTH_OK;
}

/* True if this worker can handle the order. If it is for another version, the data may have
 * changed: the set is opened again, once for each version. */
static bool fits(fth_prefetch_worker *worker, fth_remote_prefetcher *remote, const fth_order *order)
{
    const char *here = fth_remote_prefetcher_version(remote, order->spec.data);
    if (!here || strcmp(here, order->spec.version) == 0 || strcmp(worker->refused, order->spec.version) == 0)
        return true;
    memcpy(worker->refused, order->spec.version, sizeof worker->refused);
    fth_log_info("%s has changed; opening it again", order->spec.data);
    return false;
}

static bool take_waiting(fth_prefetch_worker *worker, fth_remote_prefetcher *remote, fth_order *order)
{
    while (json_array_size(worker->session.waiting) > 0) {
        fth_status status = fth_order_load(json_array_get(worker->session.waiting, 0), order);
        if (status == FTH_OK && !fits(worker, remote, order)) {
            end_session(worker, FTH_OK);
            return false; /* the waiting orders go to another prefetcher at their deadline */
        }
        json_array_remove(worker->session.waiting, 0);
        if (status == FTH_OK) {
            pthread_mutex_lock(&worker->mutex);
            worker->orders_out++;
            pthread_cond_signal(&worker->changed);
            pthread_mutex_unlock(&worker->mutex);
            worker->session.samples = order->kind != FTH_ITEM_BATCH;
            return true;
        }
        fth_log_warning("coordinator %s: %s", fth_coordinator_link_url(worker->orders), fth_error_message());
    }
    return false;
}

/* A worker that always fails (it cannot open the data) would be faster than working ones and use up
 * the items' tries. So it pauses, longer each time. */
static void wait_after_failures(fth_prefetch_worker *worker)
{
    const double first_s = 0.2, longest_s = 5;
    pthread_mutex_lock(&worker->mutex);
    int failures = worker->failures;
    pthread_mutex_unlock(&worker->mutex);
    if (failures > 0)
        pause_for(worker, fmin(longest_s, first_s * (1 << (failures < 8 ? failures : 8))));
}

/* Called by one thread at a time. */
static bool take(void *context, fth_remote_prefetcher *remote, fth_deadline deadline, fth_order *order)
{
    fth_prefetch_worker *worker = context;
    json_t *answer = NULL;
    if (atomic_load(&worker->session.ended))
        return pause_for(worker, fth_deadline_left_seconds(deadline)), false;
    if (take_waiting(worker, remote, order))
        return true;
    if (fth_deadline_passed(deadline) || is_stopped(worker) || atomic_load(&worker->session.ended))
        return false;
    wait_after_failures(worker);
    fth_status status =
        ask_for_orders(worker, worker->session.samples ? SAMPLES_AT_ONCE : BATCHES_AT_ONCE, HELD_MS, &answer);
    if (status != FTH_OK) {
        end_session(worker, status);
        return false;
    }
    if (!answer)
        return false;
    if (strcmp(json_string_value(json_object_get(answer, "cache")), worker->session.cache) != 0) {
        end_session(worker, FTH_OK); /* it was restarted with another cache */
    } else {
        json_array_extend(worker->session.waiting, json_object_get(answer, "orders"));
    }
    json_decref(answer);
    return take_waiting(worker, remote, order);
}

/* ---- results ---- */

static void done(void *context, const fth_order *order, fth_status status, const char *reason,
                 const fth_prefetch_result *result)
{
    fth_prefetch_worker *worker = context;
    json_t *outcome = fth_order_save_outcome(order, status, reason, result);
    pthread_mutex_lock(&worker->mutex);
    json_array_append_new(worker->results, outcome);
    worker->orders_out--;
    if (status == FTH_OK)
        worker->failures = 0;
    else if (status != FTH_INTERRUPTED)
        worker->failures++;
    pthread_cond_signal(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
}

/* Reports outcomes in one request. Retries while the coordinator is away, until the orders belong
 * to others. */
static void report_results(fth_prefetch_worker *worker, json_t *results)
{
    json_t *request = json_pack("{s:s, s:O}", "prefetcher", worker->name, "results", results);
    fth_deadline deadline = fth_deadline_in(is_stopped(worker) ? 2 : worker->session.limit_s);
    fth_backoff backoff = {.most_s = MAX_PAUSE_S};
    fth_status status;
    do {
        json_t *answer = NULL;
        status =
            fth_coordinator_ask(worker->reports, "POST", "/v1/orders/done", request, fth_deadline_in(ASK_S), &answer);
        json_decref(answer);
    } while ((status == FTH_PEER_LOST || status == FTH_TIMEOUT) && !is_stopped(worker) &&
             fth_backoff_wait(&backoff, 0, deadline));
    if (status != FTH_OK && !atomic_load(&worker->away))
        fth_log_warning("cannot report outcomes: %s", fth_error_message());
    json_decref(request);
}

/* Waits for outcomes, or until a sign of life is due; false: the session is over. With the mutex
 * held. */
static bool wait_for_results(fth_prefetch_worker *worker)
{
    struct timespec until = fth_deadline_timespec(fth_deadline_in(SIGN_OF_LIFE_S));
    int waited = 0;
    while (worker->reporting && json_array_size(worker->results) == 0 && waited == 0) {
        if (worker->orders_out > 0)
            waited = pthread_cond_clockwait(&worker->changed, &worker->mutex, CLOCK_MONOTONIC, &until);
        else
            pthread_cond_wait(&worker->changed, &worker->mutex); /* ended by an order, or the end of the session */
    }
    return worker->reporting || json_array_size(worker->results) > 0;
}

static void *report(void *context)
{
    fth_prefetch_worker *worker = context;
    pthread_mutex_lock(&worker->mutex);
    while (wait_for_results(worker)) {
        json_t *results = worker->results;
        worker->results = json_array();
        pthread_mutex_unlock(&worker->mutex);
        report_results(worker, results);
        json_decref(results);
        pthread_mutex_lock(&worker->mutex);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

static void stop_reporting(fth_prefetch_worker *worker, pthread_t reporter)
{
    pthread_mutex_lock(&worker->mutex);
    worker->reporting = false;
    pthread_cond_signal(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(reporter, NULL);
}

/* ---- sessions ---- */

/* Asks for cache and time limit, and perhaps an order, before there are threads. */
static fth_status make_contact(fth_prefetch_worker *worker)
{
    json_t *answer = NULL;
    fth_status status = FTH_OK;
    while (!answer && !is_stopped(worker)) {
        status = ask_for_orders(worker, 1, 0, &answer);
        if (status != FTH_OK)
            return status;
    }
    if (!answer)
        return FTH_OK;
    free(worker->session.cache);
    worker->session.cache = fth_format("%s", json_string_value(json_object_get(answer, "cache")));
    worker->session.limit_s = json_number_value(json_object_get(answer, "limit_s"));
    json_array_extend(worker->session.waiting,
                      json_object_get(answer, "orders")); /* some may be left from the last session */
    if (!(worker->session.limit_s > 0 && worker->session.limit_s < 1e6))
        worker->session.limit_s = 20;
    json_decref(answer);
    return worker->session.cache ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an address");
}

/* Returns untaken orders when the worker ends. */
static void return_orders(fth_prefetch_worker *worker)
{
    size_t index;
    json_t *saved;
    json_array_foreach(worker->session.waiting, index, saved)
    {
        fth_order order;
        if (fth_order_load(saved, &order) == FTH_OK)
            done(worker, &order, FTH_INTERRUPTED, "the worker was stopped", NULL);
    }
    json_array_clear(worker->session.waiting);
}

static fth_status open_remote_prefetcher(fth_prefetch_worker *worker, fth_remote_prefetcher **remote)
{
    fth_status status =
        fth_remote_prefetcher_open(&(fth_remote_prefetcher_options){.url = worker->with.url,
                                                                    .pinned_key = worker->with.pinned_key,
                                                                    .ca_file = worker->with.ca_file,
                                                                    .cache = worker->session.cache,
                                                                    .threads = worker->with.threads,
                                                                    .limit_s = worker->session.limit_s,
                                                                    .context = worker,
                                                                    .take = take,
                                                                    .done = done},
                                   remote);
    if (status == FTH_OK) {
        worker->cache_away_since_s = 0;
        return FTH_OK;
    }
    if (status != FTH_PEER_LOST && status != FTH_TIMEOUT)
        return status;
    if (worker->cache_away_since_s == 0) {
        worker->cache_away_since_s = fth_clock_seconds();
        fth_log_warning("%s; trying again for %.0f s", fth_error_message(), worker->with.patience_s);
    }
    if (fth_clock_seconds() - worker->cache_away_since_s > worker->with.patience_s)
        return status;
    pause_for(worker, 1);
    return FTH_OK;
}

static fth_status run_session(fth_prefetch_worker *worker)
{
    fth_status status = FTH_OK;
    pthread_t reporter;
    bool has_reporter = false;
    fth_remote_prefetcher *remote = NULL;
    const double look_every_s = 0.1;

    FTH_TRY(make_contact(worker));
    if (is_stopped(worker))
        goto out;
    atomic_store(&worker->session.ended, false);
    worker->reporting = true;
    FTH_REQUIRE(fth_thread_start(&reporter, "report", report, worker) == 0, FTH_NO_MEMORY, "cannot start a thread");
    has_reporter = true;
    FTH_TRY(open_remote_prefetcher(worker, &remote));
    if (!remote)
        goto out;
    fth_log_info("prefetching for %s as %s, into %s", fth_coordinator_link_url(worker->orders), worker->name,
                 worker->session.cache);
    while (!is_stopped(worker) && !atomic_load(&worker->session.ended))
        nanosleep(&(struct timespec){.tv_nsec = (long)(look_every_s * 1e9)}, NULL);

out:
    atomic_store(&worker->session.ended, true);
    fth_remote_prefetcher_close(remote);
    if (is_stopped(worker) || status != FTH_OK)
        return_orders(worker);
    if (has_reporter)
        stop_reporting(worker, reporter);
    if (status == FTH_OK && worker->session.status != FTH_OK)
        status = fth_fail(worker->session.status, "%s", worker->session.message);
    return status;
}

static void make_name(const fth_prefetch_worker_options *options, char *name, size_t size)
{
    char host[64] = "";
    if (options->name && *options->name) {
        snprintf(name, size, "%s", options->name);
        return;
    }
    gethostname(host, sizeof host - 1);
    snprintf(name, size, "worker %s/%ld", host, (long)getpid());
}

fth_status fth_prefetch_worker_run(const fth_prefetch_worker_options *options)
{
    fth_status status = FTH_OK;
    fth_prefetch_worker worker = {.with = *options, .results = json_array(), .session.waiting = json_array()};
    const fth_coordinator_link_options link = {
        .url = options->url, .pinned_key = options->pinned_key, .ca_file = options->ca_file};

    pthread_mutex_init(&worker.mutex, NULL);
    pthread_cond_init(&worker.changed, NULL);
    if (worker.with.patience_s <= 0)
        worker.with.patience_s = DEFAULT_PATIENCE_S;
    make_name(options, worker.name, sizeof worker.name);
    FTH_TRY(fth_coordinator_link_open(&link, &worker.orders));
    FTH_TRY(fth_coordinator_link_open(&link, &worker.reports));
    while (!is_stopped(&worker))
        FTH_TRY(run_session(&worker));

out:
    fth_coordinator_link_free(worker.orders);
    fth_coordinator_link_free(worker.reports);
    json_decref(worker.session.waiting);
    json_decref(worker.results);
    free(worker.session.cache);
    pthread_cond_destroy(&worker.changed);
    pthread_mutex_destroy(&worker.mutex);
    return status;
}
