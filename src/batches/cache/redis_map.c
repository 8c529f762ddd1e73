/* See redis_internal.h.
 *
 * Independent servers share keys by rendezvous hashing: a key belongs to the server for which a
 * hash of both is largest. Every machine agrees on this without communication, and adding or
 * removing a server moves only that server's keys.
 *
 * In a Redis Cluster every key has one of 16384 slots, and CLUSTER SLOTS says which server has
 * which. The list is read at the start, and again when a server reports that a slot has moved. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "batches/cache/redis_internal.h"

enum { SLOTS = 16384, MAX_SERVERS = 1024, NO_SERVER = 0xffff };
#define REFRESH_PAUSE_S 0.1

struct fth_redis_map {
    const fth_redis_login *login;
    bool is_cluster;
    pthread_mutex_t mutex;
    /* guarded by mutex; servers are added and never removed */
    fth_redis_server **servers;
    size_t count, capacity;
    uint16_t *slots; /* (SLOTS) of a cluster: the index of a server, or NO_SERVER */
    double refreshed_at_s;
};

/* CRC-16/XMODEM. A cluster hashes what is in the key's first {}, or the whole key; our keys have no
 * braces. */
static unsigned find_slot(const char *key)
{
    unsigned crc = 0;
    for (; *key; key++) {
        crc ^= (unsigned)(unsigned char)*key << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
    }
    return (crc & 0xffff) % SLOTS;
}

/* ---- servers ---- */

/* With the mutex held. */
static fth_status add_server(fth_redis_map *map, const fth_redis_endpoint *endpoint, size_t *place)
{
    fth_status status = FTH_OK;

    for (*place = 0; *place < map->count; ++*place) {
        const fth_redis_endpoint *known = fth_redis_server_endpoint(map->servers[*place]);
        if (known->port == endpoint->port && strcmp(known->host, endpoint->host) == 0)
            return FTH_OK;
    }
    FTH_REQUIRE(map->count < MAX_SERVERS, FTH_UNSUPPORTED, "a Redis Cluster of more than %d servers", MAX_SERVERS);
    FTH_TRY(fth_grow(&map->servers, map->count, &map->capacity, sizeof *map->servers));
    FTH_TRY(fth_redis_server_create(endpoint, map->login, &map->servers[map->count]));
    map->count++;

out:
    return status;
}

fth_status fth_redis_map_add(fth_redis_map *map, const fth_redis_endpoint *endpoint, fth_redis_server **server)
{
    size_t place = 0;
    pthread_mutex_lock(&map->mutex);
    fth_status status = add_server(map, endpoint, &place);
    *server = status == FTH_OK ? map->servers[place] : NULL;
    pthread_mutex_unlock(&map->mutex);
    return status;
}

/* ---- a cluster ---- */

/* One row of CLUSTER SLOTS: first slot, last slot, [host, port, ...] of the master, then of
 * replicas. With the mutex held. */
static fth_status take_row(fth_redis_map *map, const redisReply *row, const fth_redis_endpoint *from)
{
    fth_status status = FTH_OK;
    fth_redis_endpoint endpoint = *from;
    const redisReply *master;
    size_t place = 0;

    FTH_REQUIRE(row->type == REDIS_REPLY_ARRAY && row->elements >= 3 && row->element[0]->type == REDIS_REPLY_INTEGER &&
                    row->element[1]->type == REDIS_REPLY_INTEGER && row->element[2]->type == REDIS_REPLY_ARRAY &&
                    row->element[2]->elements >= 2 && row->element[2]->element[1]->type == REDIS_REPLY_INTEGER,
                FTH_CORRUPT, "invalid answer to CLUSTER SLOTS");
    master = row->element[2];
    endpoint.port = (int)master->element[1]->integer;
    /* An empty host, or "?", stands for the host that was asked. */
    if (master->element[0]->type == REDIS_REPLY_STRING && master->element[0]->len > 0 &&
        strcmp(master->element[0]->str, "?") != 0) {
        FTH_REQUIRE(master->element[0]->len < sizeof endpoint.host, FTH_CORRUPT,
                    "CLUSTER SLOTS: a host's name is too long");
        memcpy(endpoint.host, master->element[0]->str, master->element[0]->len + 1);
    }
    FTH_TRY(add_server(map, &endpoint, &place));
    for (long long slot = row->element[0]->integer; slot <= row->element[1]->integer; slot++)
        if (slot >= 0 && slot < SLOTS)
            map->slots[slot] = (uint16_t)place;

out:
    return status;
}

static fth_status ask_for_slots(fth_redis_map *map, fth_redis_server *server, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_redis_connection *connection = NULL;
    redisReply *reply = NULL;

    FTH_TRY(fth_redis_server_borrow(server, deadline, &connection));
    FTH_TRY(fth_redis_ask(connection, (const char *[]){"CLUSTER", "SLOTS", NULL}, deadline, &reply));
    pthread_mutex_lock(&map->mutex);
    memset(map->slots, 0xff, SLOTS * sizeof *map->slots);
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements && status == FTH_OK; i++)
        status = take_row(map, reply->element[i], fth_redis_server_endpoint(server));
    pthread_mutex_unlock(&map->mutex);
    if (status != FTH_OK)
        status = fth_fail_within(status, "%s", fth_redis_server_name(server));

out:
    if (reply)
        freeReplyObject(reply);
    if (connection)
        fth_redis_server_return(server, connection, status);
    return status;
}

fth_status fth_redis_map_refresh(fth_redis_map *map, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    size_t count;

    if (!map->is_cluster)
        return FTH_OK;
    pthread_mutex_lock(&map->mutex);
    bool is_fresh = fth_clock_seconds() < map->refreshed_at_s + REFRESH_PAUSE_S;
    map->refreshed_at_s = fth_clock_seconds();
    count = map->count;
    pthread_mutex_unlock(&map->mutex);
    for (size_t i = 0; i < count && !is_fresh; i++) {
        pthread_mutex_lock(&map->mutex);
        fth_redis_server *server = map->servers[i];
        pthread_mutex_unlock(&map->mutex);
        status = ask_for_slots(map, server, deadline);
        if (status == FTH_OK)
            break;
    }
    return status;
}

/* ---- all ---- */

fth_status fth_redis_map_create(const fth_redis_address *address, const fth_redis_login *login, fth_deadline deadline,
                                fth_redis_map **result)
{
    fth_status status = FTH_OK, first = FTH_OK;
    fth_redis_map *map = NULL;
    size_t place, reached = 0, clusters = 0;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *map, &map));
    pthread_mutex_init(&map->mutex, NULL);
    map->login = login;
    for (size_t i = 0; i < address->count; i++)
        FTH_TRY(add_server(map, &address->endpoints[i], &place));
    /* All are tried, so that the message is about the first one that fails. One reachable server of
     * a cluster is enough. */
    for (size_t i = address->count; i-- > 0;) {
        fth_redis_connection *connection = NULL;
        status = fth_redis_server_borrow(map->servers[i], deadline, &connection);
        if (status != FTH_OK) {
            first = status;
            continue;
        }
        reached++;
        clusters += fth_redis_connection_is_cluster(connection);
        fth_redis_server_return(map->servers[i], connection, FTH_OK);
    }
    status = first;
    FTH_REQUIRE(
        clusters == 0 || clusters == reached, FTH_INVALID,
        "only some of these Redis servers belong to a cluster; name servers of one cluster, or none of a cluster");
    if (clusters == 0)
        FTH_TRY(first);
    else {
        map->is_cluster = true;
        map->refreshed_at_s = -1;
        FTH_TRY(fth_allocate(SLOTS, sizeof *map->slots, &map->slots));
        FTH_TRY(fth_redis_map_refresh(map, deadline));
    }
    *result = map;
    map = NULL;

out:
    fth_redis_map_free(map);
    return status;
}

void fth_redis_map_free(fth_redis_map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < map->count; i++)
        fth_redis_server_free(map->servers[i]);
    pthread_mutex_destroy(&map->mutex);
    free(map->servers);
    free(map->slots);
    free(map);
}

bool fth_redis_map_is_cluster(const fth_redis_map *map)
{
    return map->is_cluster;
}

fth_redis_server *fth_redis_map_find(fth_redis_map *map, const char *key)
{
    fth_redis_server *best = NULL;
    uint64_t highest = 0;
    pthread_mutex_lock(&map->mutex);
    if (map->is_cluster) {
        uint16_t place = map->slots[find_slot(key)];
        best = place == NO_SERVER ? NULL : map->servers[place];
    } else {
        for (size_t i = 0; i < map->count; i++) {
            const fth_redis_endpoint *endpoint = fth_redis_server_endpoint(map->servers[i]);
            uint64_t seed = fth_hash(endpoint->host, strlen(endpoint->host), (uint64_t)endpoint->port);
            uint64_t weight = fth_hash(key, strlen(key), seed);
            if (!best || weight > highest) {
                best = map->servers[i];
                highest = weight;
            }
        }
    }
    pthread_mutex_unlock(&map->mutex);
    return best;
}

size_t fth_redis_map_list(fth_redis_map *map, fth_redis_server **servers, size_t room)
{
    size_t count = 0;
    pthread_mutex_lock(&map->mutex);
    for (size_t i = 0; i < map->count && count < room; i++) {
        bool has_keys = !map->is_cluster;
        for (int slot = 0; slot < SLOTS && !has_keys; slot++)
            has_keys = map->slots[slot] == i;
        if (has_keys)
            servers[count++] = map->servers[i];
    }
    pthread_mutex_unlock(&map->mutex);
    return count;
}
