/* See worker_orders.h. */
#include "batches/coordinator/worker_orders.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/long_poll.h"

enum { MAX_ROOM = 64, MAX_NAME = 120, MAX_WAIT_MS = 10000, SILENCE_S = 3, CONFIRM_S = 2 };

typedef struct assigned_order {
    fth_order order;
    char worker[MAX_NAME + 1];
    double until_s, heard_s; /* its deadline; when its worker was last heard of */
    struct assigned_order *next;
} assigned_order;

/* A worker that waits for orders. */
typedef struct held_take {
    fth_long_poll poll;
    char worker[MAX_NAME + 1];
    int room;
} held_take;

struct fth_worker_orders {
    fth_dispatcher *dispatcher;
    fth_cache *cache;
    double limit_s;

    pthread_mutex_t mutex; /* guards the members below; taken before that of the dispatcher */
    assigned_order *assigned;
    fth_long_polls held;
    bool closed;
};

static bool answer_take(void *context, fth_long_poll *poll, bool last);
static void release_take(fth_long_poll *poll);

fth_status fth_worker_orders_create(fth_dispatcher *dispatcher, fth_cache *cache, double limit_s,
                                    fth_worker_orders **result)
{
    fth_worker_orders *workers = NULL;
    fth_status status = fth_allocate(1, sizeof *workers, &workers);
    *result = workers;
    if (status != FTH_OK)
        return status;
    *workers = (fth_worker_orders){
        .dispatcher = dispatcher,
        .cache = cache,
        .limit_s = limit_s,
        .held = {.context = workers, .answer = answer_take, .release = release_take},
    };
    pthread_mutex_init(&workers->mutex, NULL);
    return FTH_OK;
}

void fth_worker_orders_free(fth_worker_orders *workers)
{
    if (!workers)
        return;
    fth_worker_orders_close(workers);
    while (workers->assigned) {
        assigned_order *assigned = workers->assigned;
        workers->assigned = assigned->next;
        free(assigned);
    }
    pthread_mutex_destroy(&workers->mutex);
    free(workers);
}

static fth_status read_worker(const json_t *request, char name[MAX_NAME + 1])
{
    const char *text = json_string_value(json_object_get(request, "prefetcher"));
    if (!text || !*text || strlen(text) > MAX_NAME)
        return fth_fail(FTH_INVALID, "\"prefetcher\" must be a name of 1 to %d bytes", (int)MAX_NAME);
    memcpy(name, text, strlen(text) + 1);
    return FTH_OK;
}

/* ---- assigning; with the lock held ---- */

/* The worker is alive, and keeps its orders. */
static void note_heard(fth_worker_orders *workers, const char *worker)
{
    double now = fth_clock_seconds();
    for (assigned_order *assigned = workers->assigned; assigned; assigned = assigned->next)
        if (strcmp(assigned->worker, worker) == 0)
            assigned->heard_s = now;
}

/* Assigns a worker the orders that are due. */
static json_t *assign(fth_worker_orders *workers, const char *worker, int room)
{
    json_t *orders = json_array();
    for (int i = 0; i < room; i++) {
        assigned_order *assigned = calloc(1, sizeof *assigned);
        if (!assigned || !fth_dispatcher_take(workers->dispatcher, worker, (fth_deadline){0}, &assigned->order)) {
            free(assigned);
            break;
        }
        memcpy(assigned->worker, worker, strlen(worker) + 1);
        assigned->heard_s = fth_clock_seconds();
        assigned->until_s = assigned->heard_s + workers->limit_s;
        assigned->next = workers->assigned;
        workers->assigned = assigned;
        json_array_append_new(orders, fth_order_save(&assigned->order));
    }
    return orders;
}

/* Takes back overdue orders, orders of silent workers, and all orders of the worker that has
 * `begun` again. Without the lock. */
static void take_back(fth_worker_orders *workers, const char *begun)
{
    double now = fth_clock_seconds();
    char reason[MAX_NAME + 80];
    assigned_order *returned = NULL;
    pthread_mutex_lock(&workers->mutex);
    for (assigned_order **at = &workers->assigned; *at;) {
        assigned_order *assigned = *at;
        bool stays = begun ? strcmp(assigned->worker, begun) != 0
                           : now < assigned->until_s && now - assigned->heard_s < SILENCE_S;
        if (stays) {
            at = &assigned->next;
            continue;
        }
        *at = assigned->next;
        assigned->next = returned;
        returned = assigned;
    }
    pthread_mutex_unlock(&workers->mutex);
    while (returned) {
        assigned_order *assigned = returned;
        returned = assigned->next;
        if (begun)
            snprintf(reason, sizeof reason, "the worker %s was restarted", assigned->worker);
        else if (now < assigned->until_s)
            snprintf(reason, sizeof reason, "the worker %s is gone: it has been silent for %d s", assigned->worker,
                     SILENCE_S);
        else
            snprintf(reason, sizeof reason, "the worker %s did not finish it within %g s", assigned->worker,
                     workers->limit_s);
        fth_dispatcher_done(workers->dispatcher, assigned->worker, &assigned->order, FTH_TIMEOUT, reason, NULL, 0);
        free(assigned);
    }
}

/* Answers with orders that are due; with none only if `last`. */
static bool answer_take(void *context, fth_long_poll *poll, bool last)
{
    fth_worker_orders *workers = context;
    const held_take *take = (const held_take *)poll;
    json_t *orders = workers->closed ? json_array() : assign(workers, take->worker, take->room);
    if (!last && json_array_size(orders) == 0) {
        json_decref(orders);
        return false;
    }
    fth_exchange_answer_json(poll->exchange, 200,
                             json_pack("{s:o, s:f, s:s}", "orders", orders, "limit_s", workers->limit_s, "cache",
                                       fth_cache_name(workers->cache)));
    return true;
}

static void release_take(fth_long_poll *poll)
{
    free(poll);
}

fth_status fth_worker_orders_take(fth_worker_orders *workers, fth_exchange *exchange, const json_t *request)
{
    fth_status status = FTH_OK;
    json_int_t room = json_integer_value(json_object_get(request, "room"));
    json_int_t wait_ms = json_integer_value(json_object_get(request, "wait_ms"));
    held_take *take = NULL;

    FTH_TRY(fth_allocate(1, sizeof *take, &take));
    FTH_TRY(read_worker(request, take->worker));
    FTH_REQUIRE(room >= 1 && room <= MAX_ROOM, FTH_INVALID, "\"room\" must be 1 to %d", (int)MAX_ROOM);
    wait_ms = wait_ms > MAX_WAIT_MS ? MAX_WAIT_MS : wait_ms;
    take->room = (int)room;
    if (json_is_true(json_object_get(request, "begins")))
        take_back(workers, take->worker);
    pthread_mutex_lock(&workers->mutex);
    note_heard(workers, take->worker);
    fth_long_polls_add(&workers->held, &take->poll, exchange, workers->closed ? 0 : 1e-3 * (double)wait_ms);
    pthread_mutex_unlock(&workers->mutex);
    take = NULL;

out:
    free(take);
    return status;
}

/* ---- results ---- */

/* Removes an assigned order from the list; NULL: it is no longer assigned to this worker. */
static assigned_order *claim(fth_worker_orders *workers, const char *worker, fth_item_id id)
{
    for (assigned_order **at = &workers->assigned; *at; at = &(*at)->next)
        if (fth_item_id_equal((*at)->order.id, id) && strcmp((*at)->worker, worker) == 0) {
            assigned_order *found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

/* A worker's receipt counts only if the cache has the entry. */
static fth_status check_receipt(const fth_worker_orders *workers, const fth_order *order, const fth_receipt *receipt,
                                fth_deadline deadline)
{
    if (!fth_item_id_equal(order->id, receipt->id))
        return fth_fail(FTH_CORRUPT, "the receipt is for another item");
    return fth_cache_confirm(workers->cache, receipt, deadline);
}

static void finish_one(fth_worker_orders *workers, const assigned_order *assigned, const json_t *reported,
                       fth_deadline deadline)
{
    fth_prefetch_result result = {0};
    const char *error = json_string_value(json_object_get(reported, "error"));
    const char *name = json_string_value(json_object_get(reported, "status"));
    fth_status status = FTH_OK;
    if (error) {
        status = name ? fth_status_find(name) : FTH_IO;
        status = status == FTH_OK ? FTH_IO : status;
        fth_dispatcher_done(workers->dispatcher, assigned->worker, &assigned->order, status, error, NULL, 0);
        return;
    }
    status = fth_prefetch_result_load(json_object_get(reported, "preparation"), &result);
    if (status == FTH_OK)
        status = check_receipt(workers, &assigned->order, &result.receipt, deadline);
    fth_dispatcher_done(workers->dispatcher, assigned->worker, &assigned->order, status,
                        status == FTH_OK ? NULL : fth_error_message(), &result, 0);
}

fth_status fth_worker_orders_finish(fth_worker_orders *workers, fth_exchange *exchange, const json_t *request)
{
    fth_status status = FTH_OK;
    const json_t *results = json_object_get(request, "results"), *result;
    char worker[MAX_NAME + 1];
    size_t index;
    int late = 0;

    const fth_deadline deadline = fth_deadline_in(CONFIRM_S); /* for all together, since an HTTP thread waits */
    FTH_TRY(read_worker(request, worker));
    FTH_REQUIRE(json_is_array(results), FTH_INVALID, "\"results\" must be a list");
    pthread_mutex_lock(&workers->mutex);
    note_heard(workers, worker);
    pthread_mutex_unlock(&workers->mutex);
    json_array_foreach(results, index, result)
    {
        fth_item_id id;
        const char *text = json_string_value(json_object_get(result, "id"));
        FTH_REQUIRE(text && fth_item_id_parse(text, &id), FTH_INVALID, "\"id\" must be the id of an item");
        pthread_mutex_lock(&workers->mutex);
        assigned_order *assigned = claim(workers, worker, id);
        pthread_mutex_unlock(&workers->mutex);
        if (assigned)
            finish_one(workers, assigned, result, deadline);
        late += assigned == NULL;
        free(assigned);
    }
    fth_exchange_answer_json(exchange, 200, json_pack("{s:i}", "late", late));

out:
    return status;
}

fth_status fth_worker_orders_put(fth_worker_orders *workers, fth_exchange *exchange, fth_item_id id)
{
    fth_status status = FTH_OK;
    size_t size = 0;
    const void *body = fth_exchange_body(exchange, &size);
    void *entry = NULL;
    fth_item_header header;

    FTH_REQUIRE(fth_cache_segment(workers->cache), FTH_INVALID, "entries go to %s, not to this server",
                fth_cache_name(workers->cache));
    FTH_REQUIRE(fth_dispatcher_look(workers->dispatcher, id, NULL, NULL) == FTH_ITEM_BEING_MADE, FTH_INVALID,
                "this item is not being made");
    FTH_TRY(fth_item_check(body, size, id, NULL));
    FTH_TRY(fth_cache_begin(workers->cache, size, &entry));
    memcpy(entry, body, size);
    memcpy(&header, body, sizeof header);
    const fth_receipt receipt = {.id = id, .size_bytes = size, .checksum = header.checksum};
    FTH_TRY(fth_cache_put(workers->cache, entry, &receipt));
    fth_exchange_answer_json(exchange, 200, json_pack("{s:o}", "receipt", fth_receipt_save(&receipt)));

out:
    return status;
}

/* ---- periodically ---- */

bool fth_worker_orders_tick(fth_worker_orders *workers)
{
    take_back(workers, NULL);
    pthread_mutex_lock(&workers->mutex);
    fth_long_polls_drop_abandoned(&workers->held, NULL); /* before they are given orders */
    fth_long_polls_check(&workers->held);
    bool some = workers->held.first != NULL;
    pthread_mutex_unlock(&workers->mutex);
    return some;
}

void fth_worker_orders_close(fth_worker_orders *workers)
{
    if (!workers)
        return;
    pthread_mutex_lock(&workers->mutex);
    workers->closed = true;
    fth_long_polls_end(&workers->held);
    pthread_mutex_unlock(&workers->mutex);
}

size_t fth_worker_orders_count(fth_worker_orders *workers)
{
    size_t count = 0;
    pthread_mutex_lock(&workers->mutex);
    for (const assigned_order *assigned = workers->assigned; assigned; assigned = assigned->next)
        count++;
    pthread_mutex_unlock(&workers->mutex);
    return count;
}
