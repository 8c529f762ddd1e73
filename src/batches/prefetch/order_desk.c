/* See order_desk.h. One thread hands each order to the client of its coordinator and cache, which
 * it opens if need be: that may block, and those who submit must not. A request:
 *
 *     incoming -> queue of a client -> being made -> answered */
#include "batches/prefetch/order_desk.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "batches/prefetch/remote_preparer.h"

enum { MOST_CLIENTS = 4, MOST_REQUESTS = 256, ADDRESS_TEXT = 1024 };

typedef struct desk_request {
    fth_order order;
    char url[ADDRESS_TEXT], cache[ADDRESS_TEXT];
    fth_desk_asker asker;
    struct desk_request *next;
} desk_request;

/* Requests in the order in which they came. */
typedef struct request_list {
    desk_request *first;
} request_list;

typedef struct desk_client {
    fth_order_desk *desk;
    char url[ADDRESS_TEXT], cache[ADDRESS_TEXT];
    fth_remote_preparer *remote;
    request_list queue, making; /* guarded by the desk's mutex */
} desk_client;

struct fth_order_desk {
    fth_order_desk_options with;
    char *url;
    pthread_t router;
    bool has_router;
    desk_client *clients[MOST_CLIENTS]; /* of the router thread */
    int client_count;

    pthread_mutex_t mutex; /* guards what follows, and the clients' lists */
    pthread_cond_t changed;
    request_list incoming;
    int request_count;
    bool stopping;
};

/* ---- lists ---- */

static void append(request_list *list, desk_request *request)
{
    desk_request **last = &list->first;
    while (*last)
        last = &(*last)->next;
    request->next = NULL;
    *last = request;
}

static desk_request *pop(request_list *list)
{
    desk_request *request = list->first;
    if (request)
        list->first = request->next;
    return request;
}

/* Takes the first request for an item off the list; NULL: there is none. */
static desk_request *pop_item(request_list *list, fth_item_id id)
{
    for (desk_request **at = &list->first; *at; at = &(*at)->next)
        if (fth_item_id_equal((*at)->order.id, id)) {
            desk_request *found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

/* ---- answers ---- */

static void answer(fth_order_desk *desk, desk_request *request, fth_status status, const char *reason,
                   const fth_preparation *preparation)
{
    request->asker.answer(request->asker.context, fth_result_save(&request->order, status, reason, preparation));
    free(request);
    pthread_mutex_lock(&desk->mutex);
    desk->request_count--;
    pthread_mutex_unlock(&desk->mutex);
}

/* ---- for the clients ---- */

static bool take(void *context, fth_remote_preparer *remote, fth_deadline deadline, fth_order *order)
{
    desk_client *client = context;
    fth_order_desk *desk = client->desk;
    struct timespec until = fth_deadline_timespec(deadline);
    desk_request *request = NULL;
    int waited = 0;
    (void)remote;

    pthread_mutex_lock(&desk->mutex);
    while (!request) {
        while (!client->queue.first && waited == 0 && !desk->stopping)
            waited = pthread_cond_clockwait(&desk->changed, &desk->mutex, CLOCK_MONOTONIC, &until);
        request = pop(&client->queue);
        if (!request)
            break;
        if (request->asker.is_abandoned(request->asker.context)) { /* nobody waits for it */
            pthread_mutex_unlock(&desk->mutex);
            answer(desk, request, FTH_INTERRUPTED, "nobody waits for it any more", NULL);
            pthread_mutex_lock(&desk->mutex);
            request = NULL;
            continue;
        }
        *order = request->order;
        append(&client->making, request);
    }
    pthread_mutex_unlock(&desk->mutex);
    return request != NULL;
}

static void done(void *context, const fth_order *order, fth_status status, const char *reason,
                 const fth_preparation *preparation)
{
    desk_client *client = context;
    pthread_mutex_lock(&client->desk->mutex);
    desk_request *request = pop_item(&client->making, order->id);
    pthread_mutex_unlock(&client->desk->mutex);
    if (request)
        answer(client->desk, request, status, reason, preparation);
}

/* ---- routing ---- */

static fth_status open_client(fth_order_desk *desk, const desk_request *request, desk_client **opened)
{
    fth_status status = FTH_OK;
    desk_client *client = NULL;

    FTH_REQUIRE(desk->client_count < MOST_CLIENTS, FTH_IO, "this worker works for %d coordinators already",
                MOST_CLIENTS);
    FTH_TRY(fth_allocate(1, sizeof *client, &client));
    client->desk = desk;
    memcpy(client->url, request->url, sizeof client->url);
    memcpy(client->cache, request->cache, sizeof client->cache);
    FTH_TRY(fth_remote_preparer_open(&(fth_remote_preparer_options){.url = client->url,
                                                                    .pinned_key = desk->with.pinned_key,
                                                                    .ca_file = desk->with.ca_file,
                                                                    .cache = client->cache,
                                                                    .threads = desk->with.threads,
                                                                    .limit_s = FTH_ORDER_S,
                                                                    .context = client,
                                                                    .take = take,
                                                                    .done = done},
                                     &client->remote));
    desk->clients[desk->client_count++] = *opened = client;
    client = NULL;

out:
    free(client);
    return status;
}

static fth_status find_client(fth_order_desk *desk, const desk_request *request, desk_client **client)
{
    for (int i = 0; i < desk->client_count; i++)
        if (strcmp(desk->clients[i]->url, request->url) == 0 && strcmp(desk->clients[i]->cache, request->cache) == 0) {
            *client = desk->clients[i];
            return FTH_OK;
        }
    return open_client(desk, request, client);
}

static void route_request(fth_order_desk *desk, desk_request *request)
{
    desk_client *client = NULL;
    fth_status status = find_client(desk, request, &client);
    if (status != FTH_OK) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", fth_error_message());
        answer(desk, request, status, reason, NULL);
        return;
    }
    pthread_mutex_lock(&desk->mutex);
    append(&client->queue, request);
    pthread_cond_broadcast(&desk->changed);
    pthread_mutex_unlock(&desk->mutex);
}

static void *run_router(void *context)
{
    fth_order_desk *desk = context;
    pthread_mutex_lock(&desk->mutex);
    while (!desk->stopping) {
        desk_request *request = pop(&desk->incoming);
        if (!request) {
            pthread_cond_wait(&desk->changed, &desk->mutex); /* ended by a request, or the stop */
            continue;
        }
        pthread_mutex_unlock(&desk->mutex);
        route_request(desk, request);
        pthread_mutex_lock(&desk->mutex);
    }
    pthread_mutex_unlock(&desk->mutex);
    return NULL;
}

/* ---- orders from outside ---- */

/* An order, and for whom it is. */
static fth_status read_request(const fth_order_desk *desk, const json_t *order, desk_request *request)
{
    fth_status status = FTH_OK;
    const char *cache = json_string_value(json_object_get(order, "cache"));
    const char *address = json_string_value(json_object_get(order, "address"));

    FTH_TRY(fth_order_load(order, &request->order));
    FTH_REQUIRE(cache && *cache && strlen(cache) < sizeof request->cache, FTH_INVALID,
                "order: \"cache\" must be the address of a cache");
    FTH_REQUIRE(desk->url || (address && *address), FTH_INVALID,
                "order: \"address\" must be that of its coordinator; or give the worker --server");
    FTH_REQUIRE(!address || strlen(address) < sizeof request->url, FTH_INVALID, "order: \"address\" is too long");
    snprintf(request->url, sizeof request->url, "%s", desk->url ? desk->url : address);
    snprintf(request->cache, sizeof request->cache, "%s", cache);

out:
    return status;
}

fth_status fth_order_desk_submit(fth_order_desk *desk, const json_t *order, const fth_desk_asker *asker)
{
    fth_status status = FTH_OK;
    desk_request *request = NULL;

    FTH_REQUIRE(json_is_object(order), FTH_INVALID, "the body must be an order as JSON");
    FTH_TRY(fth_allocate(1, sizeof *request, &request));
    FTH_TRY(read_request(desk, order, request));
    request->asker = *asker;
    pthread_mutex_lock(&desk->mutex);
    bool room = desk->request_count < MOST_REQUESTS && !desk->stopping;
    if (room) {
        if (asker->accepted)
            asker->accepted(asker->context);
        desk->request_count++;
        append(&desk->incoming, request);
        request = NULL;
        pthread_cond_broadcast(&desk->changed);
    }
    pthread_mutex_unlock(&desk->mutex);
    FTH_REQUIRE(room, FTH_NO_MEMORY, "too many orders at once");

out:
    free(request);
    return status;
}

/* ---- opening and closing ---- */

fth_status fth_order_desk_open(const fth_order_desk_options *options, fth_order_desk **desk)
{
    fth_status status = FTH_OK;
    fth_order_desk *opened = NULL;

    *desk = NULL;
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->mutex, NULL);
    pthread_cond_init(&opened->changed, NULL);
    opened->with = *options;
    if (options->url && *options->url)
        FTH_REQUIRE(opened->url = fth_format("%s", options->url), FTH_NO_MEMORY, "no memory for an address");
    FTH_REQUIRE(fth_thread_start(&opened->router, "route orders", run_router, opened) == 0, FTH_NO_MEMORY,
                "cannot start a thread");
    opened->has_router = true;
    *desk = opened;
    opened = NULL;

out:
    fth_order_desk_free(opened);
    return status;
}

void fth_order_desk_stop(fth_order_desk *desk)
{
    desk_request *request;
    pthread_mutex_lock(&desk->mutex);
    desk->stopping = true;
    pthread_cond_broadcast(&desk->changed);
    pthread_mutex_unlock(&desk->mutex);
    if (desk->has_router)
        pthread_join(desk->router, NULL); /* a connection it opens has a deadline */
    desk->has_router = false;
    for (int i = 0; i < desk->client_count; i++) {
        desk_client *client = desk->clients[i];
        fth_remote_preparer_close(client->remote); /* what is being made ends, and is answered */
        while ((request = pop(&client->queue)))
            answer(desk, request, FTH_INTERRUPTED, "stopped", NULL);
        free(client);
    }
    desk->client_count = 0;
    while ((request = pop(&desk->incoming)))
        answer(desk, request, FTH_INTERRUPTED, "stopped", NULL);
}

void fth_order_desk_free(fth_order_desk *desk)
{
    if (!desk)
        return;
    fth_order_desk_stop(desk);
    free(desk->url);
    pthread_cond_destroy(&desk->changed);
    pthread_mutex_destroy(&desk->mutex);
    free(desk);
}
