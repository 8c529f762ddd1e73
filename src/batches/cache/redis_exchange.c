/* See redis_internal.h.
 *
 * Work is done in rounds. Each round groups the remaining items by server, borrows a connection to
 * each, sends every server its first window of commands, and receives the replies server by server
 * while the others work. Items that were redirected, or in flight when a connection broke, remain
 * for the next round.
 *
 * Every thread borrows connections in the order of the servers' addresses in memory, so that
 * threads waiting for connections cannot deadlock. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "batches/cache/redis_internal.h"

enum { MAX_ROUNDS = 16, MAX_BROKEN = 2, MAX_REDIRECTIONS = 12 };
#define ROUND_PAUSE_S 0.02

/* One item of the work. */
typedef struct work_item {
    fth_redis_server *server; /* in this round, or the target of a redirection; NULL: as the map says */
    bool is_done;
    bool asks; /* a slot is migrating to that server: send ASKING first */
    uint8_t broken, redirections;
} work_item;

/* One server's part of a round: order[begin] to order[end - 1]. */
typedef struct server_lane {
    fth_redis_server *server;
    fth_redis_connection *connection;
    size_t begin, end, sent, received;
    fth_status status;
} server_lane;

typedef struct exchange_state {
    fth_redis_map *map;
    const fth_redis_work *work;
    fth_deadline deadline;
    work_item *items;
    size_t *order; /* remaining items, by server */
    server_lane *lanes;
    fth_status status; /* the first failure */
    char *reason;
    bool needs_pause, needs_refresh;
} exchange_state;

/* Keeps the first failure, with its message. */
static void note_failure(exchange_state *exchange, fth_status status)
{
    if (exchange->status == FTH_OK) {
        exchange->status = status;
        exchange->reason = strdup(fth_error_message());
    }
}

static void finish(exchange_state *exchange, size_t which, fth_status status)
{
    exchange->items[which].is_done = true;
    if (status != FTH_OK)
        note_failure(exchange, status);
}

/* ---- one command ---- */

static fth_status send_one(exchange_state *exchange, server_lane *lane, size_t which)
{
    char room[FTH_REDIS_MAX_KEY];
    const char *key = exchange->work->key(exchange->work->context, which, room);
    fth_status status = FTH_OK;
    if (exchange->items[which].asks)
        status = fth_redis_add(lane->connection, (const char *[]){"ASKING", NULL});
    return status == FTH_OK
               ? exchange->work->send(exchange->work->context, which, key, lane->connection, exchange->deadline)
               : status;
}

/* Whether an error sends the item to another server or into another round. */
static bool is_redirected(exchange_state *exchange, const server_lane *lane, size_t which, const char *error)
{
    work_item *item = &exchange->items[which];
    const char *target = strrchr(error, ' ');
    fth_redis_endpoint endpoint;
    bool moved = strncmp(error, "MOVED ", 6) == 0, asks = strncmp(error, "ASK ", 4) == 0;
    bool later = strncmp(error, "TRYAGAIN", 8) == 0 || strncmp(error, "CLUSTERDOWN", 11) == 0 ||
                 strncmp(error, "LOADING", 7) == 0 || strncmp(error, "READONLY", 8) == 0;

    if (strncmp(error, "READONLY", 8) == 0 && !fth_redis_map_is_cluster(exchange->map))
        return false; /* a replica stays one; in a cluster the list of slots is outdated */
    if ((!moved && !asks && !later) || item->redirections++ >= MAX_REDIRECTIONS)
        return false;
    item->server = NULL;
    item->asks = false;
    if (moved || asks) {
        if (!target || !fth_redis_endpoint_parse(target + 1, fth_redis_server_endpoint(lane->server), &endpoint) ||
            fth_redis_map_add(exchange->map, &endpoint, &item->server) != FTH_OK)
            return false;
        item->asks = asks;
    }
    exchange->needs_refresh |= !asks;
    exchange->needs_pause |= later;
    return true;
}

static fth_status receive_one(exchange_state *exchange, server_lane *lane, size_t which)
{
    fth_status status = FTH_OK;
    fth_redis_value value;

    if (exchange->items[which].asks)
        FTH_TRY(fth_redis_receive_value(lane->connection, exchange->deadline, &value));
    FTH_TRY(fth_redis_receive_value(lane->connection, exchange->deadline, &value));
    if (value.kind != FTH_REDIS_ERROR) {
        exchange->work->take(exchange->work->context, which, &value);
        finish(exchange, which, FTH_OK);
    } else if (!is_redirected(exchange, lane, which, value.bytes)) {
        finish(exchange, which, fth_redis_fail(fth_redis_server_name(lane->server), value.bytes));
    }

out:
    return status;
}

/* ---- one server's part ---- */

/* Sends until the window is full. */
static fth_status fill_window(exchange_state *exchange, server_lane *lane)
{
    fth_status status = FTH_OK;
    size_t window = exchange->work->window > 0 ? exchange->work->window : 1;

    while (lane->sent < lane->end && lane->sent - lane->received < window) {
        FTH_TRY(send_one(exchange, lane, exchange->order[lane->sent]));
        lane->sent++;
    }
    FTH_TRY(fth_redis_flush(lane->connection, exchange->deadline));

out:
    return status;
}

static void begin_lane(exchange_state *exchange, server_lane *lane)
{
    lane->sent = lane->received = lane->begin;
    lane->status = fth_redis_server_borrow(lane->server, exchange->deadline, &lane->connection);
    if (lane->status != FTH_OK) {
        bool is_cluster = fth_redis_map_is_cluster(exchange->map);
        for (size_t i = lane->begin; i < lane->end; i++) {
            work_item *item = &exchange->items[exchange->order[i]];
            /* In a cluster another server may take over. */
            if (!is_cluster || item->redirections++ >= MAX_REDIRECTIONS || fth_deadline_passed(exchange->deadline))
                finish(exchange, exchange->order[i], lane->status);
            item->server = NULL;
            item->asks = false;
        }
        exchange->needs_refresh = exchange->needs_pause = true;
        return;
    }
    lane->status = fill_window(exchange, lane);
}

static void end_lane(exchange_state *exchange, server_lane *lane)
{
    size_t window = exchange->work->window;
    if (!lane->connection)
        return;
    while (lane->status == FTH_OK && lane->received < lane->end) {
        if (lane->sent < lane->end && lane->sent - lane->received <= window / 2)
            lane->status = fill_window(exchange, lane);
        if (lane->status == FTH_OK)
            lane->status = receive_one(exchange, lane, exchange->order[lane->received]);
        if (lane->status == FTH_OK)
            lane->received++;
    }
    fth_redis_server_return(lane->server, lane->connection, lane->status);
    lane->connection = NULL;
    for (size_t i = lane->received; i < lane->end; i++) {
        work_item *item = &exchange->items[exchange->order[i]];
        if (lane->status != FTH_PEER_LOST || ++item->broken > MAX_BROKEN)
            finish(exchange, exchange->order[i], lane->status);
        item->server = NULL;
        item->asks = false;
    }
    exchange->needs_refresh |= lane->status != FTH_OK;
}

/* ---- rounds ---- */

static int compare_servers(const void *left, const void *right, void *context)
{
    const work_item *items = context;
    size_t a = *(const size_t *)left, b = *(const size_t *)right;
    uintptr_t first = (uintptr_t)items[a].server, second = (uintptr_t)items[b].server;
    if (first != second)
        return first < second ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Sorts the remaining items by server and gives the number of lanes. */
static size_t plan_round(exchange_state *exchange, size_t *left)
{
    size_t lanes = 0;
    *left = 0;
    for (size_t i = 0; i < exchange->work->count; i++) {
        work_item *item = &exchange->items[i];
        char room[FTH_REDIS_MAX_KEY];
        if (item->is_done)
            continue;
        if (!item->server)
            item->server = fth_redis_map_find(exchange->map, exchange->work->key(exchange->work->context, i, room));
        if (!item->server && item->redirections++ >= MAX_REDIRECTIONS)
            finish(exchange, i,
                   fth_fail(FTH_PEER_LOST, "the Redis Cluster has no server for some keys; look at "
                                           "CLUSTER INFO there"));
        if (!item->server)
            exchange->needs_refresh = exchange->needs_pause = true;
        else
            exchange->order[(*left)++] = i;
    }
    qsort_r(exchange->order, *left, sizeof *exchange->order, compare_servers, exchange->items);
    for (size_t i = 0; i < *left; i++) {
        fth_redis_server *server = exchange->items[exchange->order[i]].server;
        if (lanes == 0 || exchange->lanes[lanes - 1].server != server)
            exchange->lanes[lanes++] = (server_lane){.server = server, .begin = i};
        exchange->lanes[lanes - 1].end = i + 1;
    }
    return lanes;
}

static bool is_finished(const exchange_state *exchange)
{
    for (size_t i = 0; i < exchange->work->count; i++)
        if (!exchange->items[i].is_done)
            return false;
    return true;
}

static void pause_round(fth_deadline deadline, int round)
{
    double pause_s = fmin(ROUND_PAUSE_S * exp2(round), 0.5);
    struct timespec time = {.tv_nsec = (long)(fmin(pause_s, fth_deadline_left_seconds(deadline)) * 1e9)};
    nanosleep(&time, NULL);
}

fth_status fth_redis_exchange(fth_redis_map *map, const fth_redis_work *work, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    exchange_state exchange = {.map = map, .work = work, .deadline = deadline};
    size_t left = 0;

    FTH_TRY(fth_allocate(work->count, sizeof *exchange.items, &exchange.items));
    FTH_TRY(fth_allocate(work->count, sizeof *exchange.order, &exchange.order));
    FTH_TRY(fth_allocate(work->count, sizeof *exchange.lanes, &exchange.lanes));
    for (int round = 0; round < MAX_ROUNDS && !is_finished(&exchange); round++) {
        size_t lanes = plan_round(&exchange, &left);
        for (size_t i = 0; i < lanes; i++)
            begin_lane(&exchange, &exchange.lanes[i]);
        for (size_t i = 0; i < lanes; i++)
            end_lane(&exchange, &exchange.lanes[i]);
        if (exchange.needs_pause && !is_finished(&exchange))
            pause_round(deadline, round);
        if (exchange.needs_refresh && fth_redis_map_refresh(map, deadline) != FTH_OK && fth_deadline_passed(deadline))
            note_failure(&exchange, FTH_TIMEOUT);
        exchange.needs_pause = exchange.needs_refresh = false;
        if (fth_deadline_passed(deadline))
            break;
    }
    if (exchange.status == FTH_OK && !is_finished(&exchange))
        status = fth_fail(FTH_TIMEOUT, "Redis did not answer in time");
    else if (exchange.status != FTH_OK)
        status = fth_fail(exchange.status, "%s", exchange.reason ? exchange.reason : "Redis failed");

out:
    free(exchange.items);
    free(exchange.order);
    free(exchange.lanes);
    free(exchange.reason);
    return status;
}
