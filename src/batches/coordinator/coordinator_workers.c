/* See coordinator_workers.h. */
#include "batches/coordinator/coordinator_workers.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROOM = 64, MAX_NAME = 120, MOST_WAIT_MS = 10000, GRACE_S = 5, SILENCE_S = 3, CONFIRM_S = 2 };

typedef struct lent_order {
    fth_order order;
    char worker[MAX_NAME + 1];
    double until_s, heard_s; /* when it must be done; when its worker last said something */
    struct lent_order *next;
} lent_order;

typedef struct held_take {
    fth_exchange *exchange;
    char worker[MAX_NAME + 1];
    int room;
    double until_s;
    struct held_take *next;
} held_take;

struct fth_order_lending {
    fth_dispatcher *dispatcher;
    fth_cache *cache;
    double limit_s;

    pthread_mutex_t mutex; /* of all below; the dispatcher's comes after it */
    lent_order *lent;
    held_take *held; /* longest waiting first */
    bool closed;
};

fth_status fth_order_lending_create(fth_dispatcher *dispatcher, fth_cache *cache, double limit_s,
                                    fth_order_lending **result)
{
    fth_order_lending *lending = NULL;
    fth_status status = fth_allocate(1, sizeof *lending, &lending);
    *result = lending;
    if (status != FTH_OK)
        return status;
    *lending = (fth_order_lending){.dispatcher = dispatcher, .cache = cache, .limit_s = limit_s};
    pthread_mutex_init(&lending->mutex, NULL);
    return FTH_OK;
}

void fth_order_lending_free(fth_order_lending *lending)
{
    if (!lending)
        return;
    fth_order_lending_close(lending);
    while (lending->lent) {
        lent_order *lent = lending->lent;
        lending->lent = lent->next;
        free(lent);
    }
    pthread_mutex_destroy(&lending->mutex);
    free(lending);
}

static fth_status read_worker(const json_t *request, char name[MAX_NAME + 1])
{
    const char *text = json_string_value(json_object_get(request, "prefetcher"));
    if (!text || !*text || strlen(text) > MAX_NAME)
        return fth_fail(FTH_INVALID, "\"prefetcher\" must be a name of 1 to %d bytes", (int)MAX_NAME);
    memcpy(name, text, strlen(text) + 1);
    return FTH_OK;
}

/* ---- taking; with the lock held ---- */

/* A worker is alive: its orders stay its own. */
static void note_heard(fth_order_lending *lending, const char *worker)
{
    double now = fth_clock_seconds();
    for (lent_order *lent = lending->lent; lent; lent = lent->next)
        if (strcmp(lent->worker, worker) == 0)
            lent->heard_s = now;
}

/* Orders for a worker that are due now, which are lent from now on. */
static json_t *lend(fth_order_lending *lending, const char *worker, int room)
{
    json_t *orders = json_array();
    for (int i = 0; i < room; i++) {
        lent_order *lent = calloc(1, sizeof *lent);
        if (!lent || !fth_dispatcher_take(lending->dispatcher, worker, (fth_deadline){0}, &lent->order)) {
            free(lent);
            break;
        }
        memcpy(lent->worker, worker, strlen(worker) + 1);
        lent->heard_s = fth_clock_seconds();
        lent->until_s = lent->heard_s + lending->limit_s;
        lent->next = lending->lent;
        lending->lent = lent;
        json_array_append_new(orders, fth_order_save(&lent->order));
    }
    return orders;
}

/* Takes back orders that are overdue, of workers of which nothing is heard, or, of the one that has
 * `begun` again, all. Without the lock. */
static void take_back(fth_order_lending *lending, const char *begun)
{
    double now = fth_clock_seconds();
    char reason[MAX_NAME + 80];
    lent_order *returned = NULL;
    pthread_mutex_lock(&lending->mutex);
    for (lent_order **at = &lending->lent; *at;) {
        lent_order *lent = *at;
        bool stays = begun ? strcmp(lent->worker, begun) != 0 : now < lent->until_s && now - lent->heard_s < SILENCE_S;
        if (stays) {
            at = &lent->next;
            continue;
        }
        *at = lent->next;
        lent->next = returned;
        returned = lent;
    }
    pthread_mutex_unlock(&lending->mutex);
    while (returned) {
        lent_order *lent = returned;
        returned = lent->next;
        if (begun)
            snprintf(reason, sizeof reason, "the worker %s was started again", lent->worker);
        else if (now < lent->until_s)
            snprintf(reason, sizeof reason, "the worker %s has gone: nothing was heard of it for %d s", lent->worker,
                     SILENCE_S);
        else
            snprintf(reason, sizeof reason, "the worker %s did not hand it in within %g s", lent->worker,
                     lending->limit_s);
        fth_dispatcher_done(lending->dispatcher, lent->worker, &lent->order, FTH_TIMEOUT, reason, NULL, 0);
        free(lent);
    }
}

static void answer_orders(fth_order_lending *lending, fth_exchange *exchange, json_t *orders)
{
    fth_exchange_answer_json(exchange, 200,
                             json_pack("{s:o, s:f, s:s}", "orders", orders, "limit_s", lending->limit_s, "cache",
                                       fth_cache_name(lending->cache)));
}

fth_status fth_order_lending_take(fth_order_lending *lending, fth_exchange *exchange, const json_t *request)
{
    fth_status status = FTH_OK;
    json_int_t room = json_integer_value(json_object_get(request, "room"));
    json_int_t wait_ms = json_integer_value(json_object_get(request, "wait_ms"));
    held_take *held = NULL, **last = NULL;
    bool locked = false;

    FTH_TRY(fth_allocate(1, sizeof *held, &held));
    FTH_TRY(read_worker(request, held->worker));
    FTH_REQUIRE(room >= 1 && room <= MAX_ROOM, FTH_INVALID, "\"room\" must be 1 to %d", (int)MAX_ROOM);
    wait_ms = wait_ms < 0 ? 0 : wait_ms > MOST_WAIT_MS ? MOST_WAIT_MS : wait_ms;
    held->room = (int)room;
    if (json_is_true(json_object_get(request, "begins")))
        take_back(lending, held->worker);
    pthread_mutex_lock(&lending->mutex);
    locked = true;
    note_heard(lending, held->worker);
    json_t *orders = lend(lending, held->worker, held->room);
    if (json_array_size(orders) > 0 || wait_ms == 0 || lending->closed) {
        answer_orders(lending, exchange, orders);
        goto out;
    }
    json_decref(orders);
    held->exchange = exchange;
    held->until_s = fth_clock_seconds() + 1e-3 * (double)wait_ms;
    fth_exchange_hold(exchange, 1e-3 * (double)wait_ms + GRACE_S, 503);
    for (last = &lending->held; *last; last = &(*last)->next)
        ;
    *last = held;
    held = NULL;

out:
    if (locked)
        pthread_mutex_unlock(&lending->mutex);
    free(held);
    return status;
}

/* ---- handing in ---- */

/* The lent order of an id, taken off the list; NULL: it is no longer lent to this worker. */
static lent_order *claim(fth_order_lending *lending, const char *worker, fth_item_id id)
{
    for (lent_order **at = &lending->lent; *at; at = &(*at)->next)
        if (fth_item_id_equal((*at)->order.id, id) && strcmp((*at)->worker, worker) == 0) {
            lent_order *found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

/* What a worker says of an item is believed only if the cache has it. */
static fth_status check_receipt(const fth_order_lending *lending, const fth_order *order, const fth_receipt *receipt,
                                fth_deadline deadline)
{
    if (!fth_item_id_equal(order->id, receipt->id))
        return fth_fail(FTH_CORRUPT, "the receipt is for another item");
    return fth_cache_confirm(lending->cache, receipt, deadline);
}

static void finish_one(fth_order_lending *lending, const lent_order *lent, const json_t *result, fth_deadline deadline)
{
    fth_preparation preparation = {0};
    const char *error = json_string_value(json_object_get(result, "error"));
    const char *name = json_string_value(json_object_get(result, "status"));
    fth_status status = FTH_OK;
    if (error) {
        status = name ? fth_status_find(name) : FTH_IO;
        status = status == FTH_OK ? FTH_IO : status;
        fth_dispatcher_done(lending->dispatcher, lent->worker, &lent->order, status, error, NULL, 0);
        return;
    }
    status = fth_preparation_load(json_object_get(result, "preparation"), &preparation);
    if (status == FTH_OK)
        status = check_receipt(lending, &lent->order, &preparation.receipt, deadline);
    fth_dispatcher_done(lending->dispatcher, lent->worker, &lent->order, status,
                        status == FTH_OK ? NULL : fth_error_message(), &preparation, 0);
}

fth_status fth_order_lending_finish(fth_order_lending *lending, fth_exchange *exchange, const json_t *request)
{
    fth_status status = FTH_OK;
    const json_t *results = json_object_get(request, "results"), *result;
    char worker[MAX_NAME + 1];
    size_t index;
    int late = 0;

    const fth_deadline deadline = fth_deadline_in(CONFIRM_S); /* of all together: an HTTP thread waits */
    FTH_TRY(read_worker(request, worker));
    FTH_REQUIRE(json_is_array(results), FTH_INVALID, "\"results\" must be a list");
    pthread_mutex_lock(&lending->mutex);
    note_heard(lending, worker);
    pthread_mutex_unlock(&lending->mutex);
    json_array_foreach(results, index, result)
    {
        fth_item_id id;
        const char *text = json_string_value(json_object_get(result, "id"));
        FTH_REQUIRE(text && fth_item_id_parse(text, &id), FTH_INVALID, "\"id\" is no item's");
        pthread_mutex_lock(&lending->mutex);
        lent_order *lent = claim(lending, worker, id);
        pthread_mutex_unlock(&lending->mutex);
        if (lent)
            finish_one(lending, lent, result, deadline);
        late += lent == NULL;
        free(lent);
    }
    fth_exchange_answer_json(exchange, 200, json_pack("{s:i}", "late", late));

out:
    return status;
}

fth_status fth_order_lending_put(fth_order_lending *lending, fth_exchange *exchange, fth_item_id id)
{
    fth_status status = FTH_OK;
    size_t size = 0;
    const void *body = fth_exchange_body(exchange, &size);
    void *entry = NULL;
    fth_item_header header;

    FTH_REQUIRE(fth_cache_segment(lending->cache), FTH_INVALID, "entries go to %s, not to this server",
                fth_cache_name(lending->cache));
    FTH_REQUIRE(fth_dispatcher_look(lending->dispatcher, id, NULL, NULL) == FTH_ITEM_BEING_MADE, FTH_INVALID,
                "nobody asked for this item, or it is there already");
    FTH_TRY(fth_item_check(body, size, id, NULL));
    FTH_TRY(fth_cache_begin(lending->cache, size, &entry));
    memcpy(entry, body, size);
    memcpy(&header, body, sizeof header);
    const fth_receipt receipt = {.id = id, .size_bytes = size, .checksum = header.checksum};
    FTH_TRY(fth_cache_put(lending->cache, entry, &receipt));
    fth_exchange_answer_json(exchange, 200, json_pack("{s:o}", "receipt", fth_receipt_save(&receipt)));

out:
    return status;
}

/* ---- now and then ---- */

static void answer_held(fth_order_lending *lending, bool all)
{
    double now = fth_clock_seconds();
    for (held_take **at = &lending->held; *at;) {
        held_take *held = *at;
        bool gone = all || fth_exchange_is_abandoned(held->exchange); /* which would take orders with it */
        bool due = gone || now >= held->until_s;
        json_t *orders = gone ? json_array() : lend(lending, held->worker, held->room);
        if (!due && json_array_size(orders) == 0) {
            json_decref(orders);
            at = &held->next;
            continue;
        }
        *at = held->next;
        answer_orders(lending, held->exchange, orders);
        free(held);
    }
}

bool fth_order_lending_tick(fth_order_lending *lending)
{
    take_back(lending, NULL);
    pthread_mutex_lock(&lending->mutex);
    answer_held(lending, false);
    bool some = lending->held != NULL;
    pthread_mutex_unlock(&lending->mutex);
    return some;
}

void fth_order_lending_close(fth_order_lending *lending)
{
    if (!lending)
        return;
    pthread_mutex_lock(&lending->mutex);
    lending->closed = true;
    answer_held(lending, true);
    pthread_mutex_unlock(&lending->mutex);
}

size_t fth_order_lending_count(fth_order_lending *lending)
{
    size_t count = 0;
    pthread_mutex_lock(&lending->mutex);
    for (const lent_order *lent = lending->lent; lent; lent = lent->next)
        count++;
    pthread_mutex_unlock(&lending->mutex);
    return count;
}
