/* See order_queue.h. One thread hands each order to the client of its coordinator and cache, which
 * it opens if necessary: that may block, and submitting must not. An order:
 *
 *     incoming -> waiting at a client -> being made -> answered */
#include "batches/prefetch/order_queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "batches/prefetch/remote_prefetcher.h"

enum { MAX_CLIENTS = 4, MAX_REQUESTS = 256, ADDRESS_TEXT = 1024 };

typedef struct queued_order {
    fth_order order;
    char url[ADDRESS_TEXT], cache[ADDRESS_TEXT];
    fth_order_requester requester;
    struct queued_order *next;
} queued_order;

/* Orders in the order of arrival. */
typedef struct request_list {
    queued_order *first;
} request_list;

typedef struct queue_client {
    fth_order_queue *queue;
    char url[ADDRESS_TEXT], cache[ADDRESS_TEXT];
    fth_remote_prefetcher *remote;
    request_list waiting, making; /* guarded by the queue's mutex */
} queue_client;

struct fth_order_queue {
    fth_order_queue_options with;
    char *url;
    pthread_t router;
    bool has_router;
    queue_client *clients[MAX_CLIENTS]; /* of the router thread */
    int client_count;

    pthread_mutex_t mutex; /* guards the members below, and the clients' lists */
    pthread_cond_t changed;
    request_list incoming;
    int request_count;
    bool stopping;
};

/* ---- lists ---- */

static void append(request_list *list, queued_order *request)
{
    queued_order **last = &list->first;
    while (*last)
        last = &(*last)->next;
    request->next = NULL;
    *last = request;
}

static queued_order *pop(request_list *list)
{
    queued_order *request = list->first;
    if (request)
        list->first = request->next;
    return request;
}

/* Removes the first order for an item from the list; NULL: there is none. */
static queued_order *pop_item(request_list *list, fth_item_id id)
{
    for (queued_order **at = &list->first; *at; at = &(*at)->next)
        if (fth_item_id_equal((*at)->order.id, id)) {
            queued_order *found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

/* ---- answers ---- */

static void answer(fth_order_queue *queue, queued_order *request, fth_status status, const char *reason,
                   const fth_prefetch_result *result)
{
    request->requester.answer(request->requester.context,
                              fth_order_save_outcome(&request->order, status, reason, result));
    free(request);
    pthread_mutex_lock(&queue->mutex);
    queue->request_count--;
    pthread_mutex_unlock(&queue->mutex);
}

/* ---- callbacks of the clients ---- */

static bool take(void *context, fth_remote_prefetcher *remote, fth_deadline deadline, fth_order *order)
{
    queue_client *client = context;
    fth_order_queue *queue = client->queue;
    struct timespec until = fth_deadline_timespec(deadline);
    queued_order *request = NULL;
    int waited = 0;
    (void)remote;

    pthread_mutex_lock(&queue->mutex);
    while (!request) {
        while (!client->waiting.first && waited == 0 && !queue->stopping)
            waited = pthread_cond_clockwait(&queue->changed, &queue->mutex, CLOCK_MONOTONIC, &until);
        request = pop(&client->waiting);
        if (!request)
            break;
        if (request->requester.is_abandoned(request->requester.context)) { /* nobody waits for the answer */
            pthread_mutex_unlock(&queue->mutex);
            answer(queue, request, FTH_INTERRUPTED, "nobody waits for it", NULL);
            pthread_mutex_lock(&queue->mutex);
            request = NULL;
            continue;
        }
        *order = request->order;
        append(&client->making, request);
    }
    pthread_mutex_unlock(&queue->mutex);
    return request != NULL;
}

static void done(void *context, const fth_order *order, fth_status status, const char *reason,
                 const fth_prefetch_result *result)
{
    queue_client *client = context;
    pthread_mutex_lock(&client->queue->mutex);
    queued_order *request = pop_item(&client->making, order->id);
    pthread_mutex_unlock(&client->queue->mutex);
    if (request)
        answer(client->queue, request, status, reason, result);
}

/* ---- routing ---- */

static fth_status open_client(fth_order_queue *queue, const queued_order *request, queue_client **opened)
{
    fth_status status = FTH_OK;
    queue_client *client = NULL;

    FTH_REQUIRE(queue->client_count < MAX_CLIENTS, FTH_IO, "this worker already works for %d coordinators",
                MAX_CLIENTS);
    FTH_TRY(fth_allocate(1, sizeof *client, &client));
    client->queue = queue;
    memcpy(client->url, request->url, sizeof client->url);
    memcpy(client->cache, request->cache, sizeof client->cache);
    FTH_TRY(fth_remote_prefetcher_open(&(fth_remote_prefetcher_options){.url = client->url,
                                                                        .pinned_key = queue->with.pinned_key,
                                                                        .ca_file = queue->with.ca_file,
                                                                        .cache = client->cache,
                                                                        .threads = queue->with.threads,
                                                                        .limit_s = FTH_ORDER_S,
                                                                        .context = client,
                                                                        .take = take,
                                                                        .done = done},
                                       &client->remote));
    queue->clients[queue->client_count++] = *opened = client;
    client = NULL;

out:
    free(client);
    return status;
}

static fth_status find_client(fth_order_queue *queue, const queued_order *request, queue_client **client)
{
    for (int i = 0; i < queue->client_count; i++)
        if (strcmp(queue->clients[i]->url, request->url) == 0 &&
            strcmp(queue->clients[i]->cache, request->cache) == 0) {
            *client = queue->clients[i];
            return FTH_OK;
        }
    return open_client(queue, request, client);
}

static void route_request(fth_order_queue *queue, queued_order *request)
{
    queue_client *client = NULL;
    fth_status status = find_client(queue, request, &client);
    if (status != FTH_OK) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", fth_error_message());
        answer(queue, request, status, reason, NULL);
        return;
    }
    pthread_mutex_lock(&queue->mutex);
    append(&client->waiting, request);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

static void *run_router(void *context)
{
    fth_order_queue *queue = context;
    pthread_mutex_lock(&queue->mutex);
    while (!queue->stopping) {
        queued_order *request = pop(&queue->incoming);
        if (!request) {
            pthread_cond_wait(&queue->changed, &queue->mutex); /* ended by an order, or the stop */
            continue;
        }
        pthread_mutex_unlock(&queue->mutex);
        route_request(queue, request);
        pthread_mutex_lock(&queue->mutex);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

/* ---- submitting ---- */

/* Reads an order with its coordinator and cache. */
static fth_status read_request(const fth_order_queue *queue, const json_t *order, queued_order *request)
{
    fth_status status = FTH_OK;
    const char *cache = json_string_value(json_object_get(order, "cache"));
    const char *address = json_string_value(json_object_get(order, "address"));

    FTH_TRY(fth_order_load(order, &request->order));
    FTH_REQUIRE(cache && *cache && strlen(cache) < sizeof request->cache, FTH_INVALID,
                "order: \"cache\" must be the address of a cache");
    FTH_REQUIRE(queue->url || (address && *address), FTH_INVALID,
                "order: \"address\" must be that of its coordinator, unless the worker has --server");
    FTH_REQUIRE(!address || strlen(address) < sizeof request->url, FTH_INVALID, "order: \"address\" is too long");
    snprintf(request->url, sizeof request->url, "%s", queue->url ? queue->url : address);
    snprintf(request->cache, sizeof request->cache, "%s", cache);

out:
    return status;
}

fth_status fth_order_queue_submit(fth_order_queue *queue, const json_t *order, const fth_order_requester *requester)
{
    fth_status status = FTH_OK;
    queued_order *request = NULL;

    FTH_REQUIRE(json_is_object(order), FTH_INVALID, "the body must be an order in JSON");
    FTH_TRY(fth_allocate(1, sizeof *request, &request));
    FTH_TRY(read_request(queue, order, request));
    request->requester = *requester;
    pthread_mutex_lock(&queue->mutex);
    bool room = queue->request_count < MAX_REQUESTS && !queue->stopping;
    if (room) {
        if (requester->accepted)
            requester->accepted(requester->context);
        queue->request_count++;
        append(&queue->incoming, request);
        request = NULL;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->mutex);
    FTH_REQUIRE(room, FTH_NO_MEMORY, "too many orders at once");

out:
    free(request);
    return status;
}

/* ---- opening and closing ---- */

fth_status fth_order_queue_open(const fth_order_queue_options *options, fth_order_queue **queue)
{
    fth_status status = FTH_OK;
    fth_order_queue *opened = NULL;

    *queue = NULL;
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->mutex, NULL);
    pthread_cond_init(&opened->changed, NULL);
    opened->with = *options;
    if (options->url && *options->url)
        FTH_REQUIRE(opened->url = fth_format("%s", options->url), FTH_NO_MEMORY, "no memory for an address");
    FTH_REQUIRE(fth_thread_start(&opened->router, "route orders", run_router, opened) == 0, FTH_NO_MEMORY,
                "cannot start a thread");
    opened->has_router = true;
    *queue = opened;
    opened = NULL;

out:
    fth_order_queue_free(opened);
    return status;
}

void fth_order_queue_stop(fth_order_queue *queue)
{
    queued_order *request;
    pthread_mutex_lock(&queue->mutex);
    queue->stopping = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    if (queue->has_router)
        pthread_join(queue->router, NULL); /* connections that it opens have a deadline */
    queue->has_router = false;
    for (int i = 0; i < queue->client_count; i++) {
        queue_client *client = queue->clients[i];
        fth_remote_prefetcher_close(client->remote); /* items in progress end, and are answered */
        while ((request = pop(&client->waiting)))
            answer(queue, request, FTH_INTERRUPTED, "stopped", NULL);
        free(client);
    }
    queue->client_count = 0;
    while ((request = pop(&queue->incoming)))
        answer(queue, request, FTH_INTERRUPTED, "stopped", NULL);
}

void fth_order_queue_free(fth_order_queue *queue)
{
    if (!queue)
        return;
    fth_order_queue_stop(queue);
    free(queue->url);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->mutex);
    free(queue);
}
