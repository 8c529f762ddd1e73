/* Redis and Valkey as a cache; redis_internal.h lists the files.
 *
 * An entry is a string under "farthing:PREFIX:ID". It expires an hour after its last use (after it
 * was put, on servers older than Redis 6.2), so that entries do not stay forever if the coordinator
 * does not remove them. Ids are hashes of the contents, so an id always has the same bytes, and
 * every entry that is read is checked against its id, length and checksum. Servers that lose, evict
 * or damage entries cause work, not wrong answers. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "batches/cache/cache.h"
#include "batches/cache/redis_internal.h"

enum { MAX_SERVERS = 1024, SCAN_COUNT = 512, MAX_WINDOW = 512, PROBES_PER_SERVER = 64 };
#define EXPIRY_MS          "3600000"
#define PROBE_EXPIRY_MS    "10000"
#define MAX_ENTRY_BYTES    (UINT64_C(512) << 20) /* the default proto-max-bulk-len */
#define WINDOW_BYTES       (32 << 20)            /* of values in flight from one server, which buffers them */
#define DEFAULT_DEADLINE_S 5.0

typedef struct redis_cache {
    fth_redis_address address;
    fth_redis_tls *tls;
    fth_redis_login login;
    fth_redis_map *map;
    double deadline_s;
    _Atomic uint64_t typical_bytes; /* of an entry; determines the window */
} redis_cache;

static const char *write_key(const redis_cache *cache, fth_item_id id, char *room)
{
    char text[FTH_ITEM_ID_TEXT];
    fth_item_id_format(id, text);
    snprintf(room, FTH_REDIS_MAX_KEY, "farthing:%s:%s", cache->address.prefix, text);
    return room;
}

static fth_deadline call_deadline(const redis_cache *cache)
{
    return fth_deadline_in(cache->deadline_s);
}

/* Large entries count more, so that the window is rarely too large for them. */
static void note_size(redis_cache *cache, uint64_t size_bytes)
{
    uint64_t typical = atomic_load_explicit(&cache->typical_bytes, memory_order_relaxed);
    uint64_t next = size_bytes > typical ? size_bytes : typical - typical / 16 + size_bytes / 16;
    atomic_store_explicit(&cache->typical_bytes, next, memory_order_relaxed);
}

static size_t window_of(redis_cache *cache)
{
    uint64_t typical = atomic_load_explicit(&cache->typical_bytes, memory_order_relaxed);
    uint64_t window = WINDOW_BYTES / (typical > 0 ? typical : 1);
    return window < 2 ? 2 : window > MAX_WINDOW ? MAX_WINDOW : (size_t)window;
}

/* ---- commands for many ids ---- */

typedef struct item_call {
    redis_cache *cache;
    const fth_item_id *ids;
    fth_cache_take *take;
    void *take_context;
    const void *entry; /* to put */
    uint64_t entry_bytes;
    const char *expiry_ms;
} item_call;

static const char *call_key(void *context, size_t which, char *room)
{
    item_call *call = context;
    return write_key(call->cache, call->ids[which], room);
}

static void ignore_reply(void *context, size_t which, const fth_redis_value *value)
{
    (void)context, (void)which, (void)value;
}

static fth_status send_get(void *context, size_t which, const char *key, fth_redis_connection *connection,
                           fth_deadline deadline)
{
    (void)context, (void)which, (void)deadline;
    if (fth_redis_connection_can_renew(connection))
        return fth_redis_add(connection, (const char *[]){"GETEX", key, "PX", EXPIRY_MS, NULL});
    return fth_redis_add(connection, (const char *[]){"GET", key, NULL});
}

static void take_value(void *context, size_t which, const fth_redis_value *value)
{
    item_call *call = context;
    if (value->kind != FTH_REDIS_BYTES)
        return;
    if (fth_item_check(value->bytes, value->size_bytes, call->ids[which], NULL) != FTH_OK) {
        fth_log_warning("%s; it will be made again", fth_error_message());
        return;
    }
    note_size(call->cache, value->size_bytes);
    call->take(call->take_context, which, value->bytes, value->size_bytes);
}

static fth_status get(void *state, const fth_item_id *ids, size_t count, fth_deadline deadline, fth_cache_take *take,
                      void *context)
{
    redis_cache *cache = state;
    item_call call = {.cache = cache, .ids = ids, .take = take, .take_context = context};
    return fth_redis_exchange(cache->map,
                              &(fth_redis_work){.count = count,
                                                .window = window_of(cache),
                                                .context = &call,
                                                .key = call_key,
                                                .send = send_get,
                                                .take = take_value},
                              deadline);
}

static fth_status send_put(void *context, size_t which, const char *key, fth_redis_connection *connection,
                           fth_deadline deadline)
{
    item_call *call = context;
    (void)which;
    return fth_redis_send_value(connection, (const char *[]){"PSETEX", key, call->expiry_ms, NULL}, call->entry,
                                call->entry_bytes, deadline);
}

static fth_status put_bytes(redis_cache *cache, fth_item_id id, const void *entry, uint64_t size_bytes,
                            const char *expiry_ms)
{
    item_call call = {.cache = cache, .ids = &id, .entry = entry, .entry_bytes = size_bytes, .expiry_ms = expiry_ms};
    return fth_redis_exchange(
        cache->map,
        &(fth_redis_work){
            .count = 1, .window = 1, .context = &call, .key = call_key, .send = send_put, .take = ignore_reply},
        call_deadline(cache));
}

static fth_status begin(void *state, uint64_t size_bytes, void **entry)
{
    (void)state;
    if (size_bytes > MAX_ENTRY_BYTES)
        return fth_fail(FTH_UNSUPPORTED,
                        "an entry of %" PRIu64 " MB is larger than the %" PRIu64
                        " MB that Redis takes; use a smaller batch, or --cache shm",
                        size_bytes >> 20, MAX_ENTRY_BYTES >> 20);
    return fth_allocate_aligned(size_bytes, entry);
}

static fth_status put(void *state, void *entry, const fth_receipt *receipt)
{
    redis_cache *cache = state;
    fth_status status = put_bytes(cache, receipt->id, entry, receipt->size_bytes, EXPIRY_MS);
    note_size(cache, receipt->size_bytes);
    free(entry);
    return status;
}

static void cancel(void *state, void *entry)
{
    (void)state;
    free(entry);
}

/* UNLINK frees the memory in a background thread of the server; all servers since Redis 4 have
 * it. */
static fth_status send_remove(void *context, size_t which, const char *key, fth_redis_connection *connection,
                              fth_deadline deadline)
{
    (void)context, (void)which, (void)deadline;
    return fth_redis_add(connection, (const char *[]){"UNLINK", key, NULL});
}

static fth_status remove_items(void *state, const fth_item_id *ids, size_t count)
{
    redis_cache *cache = state;
    item_call call = {.cache = cache, .ids = ids};
    return fth_redis_exchange(cache->map,
                              &(fth_redis_work){.count = count,
                                                .window = MAX_WINDOW,
                                                .context = &call,
                                                .key = call_key,
                                                .send = send_remove,
                                                .take = ignore_reply},
                              call_deadline(cache));
}

/* ---- listing ---- */

/* The receipt that an entry's header and length imply; false: it is not a complete entry. */
static bool make_receipt(const char *key, const fth_item_header *header, uint64_t size_bytes, fth_receipt *receipt)
{
    const char *text = strrchr(key, ':');
    fth_item_id id;
    *receipt = (fth_receipt){.id = header->id, .size_bytes = size_bytes, .checksum = header->checksum};
    return header->magic == FTH_ITEM_MAGIC && size_bytes == sizeof *header + header->payload_bytes && text &&
           fth_item_id_parse(text + 1, &id) && fth_item_id_equal(id, header->id);
}

/* Reads headers and lengths of the entries in one reply to SCAN, in one round trip. */
static fth_status visit_keys(fth_redis_connection *connection, const redisReply *keys, fth_deadline deadline,
                             void (*visit)(void *context, const fth_receipt *receipt), void *context)
{
    fth_status status = FTH_OK;

    for (size_t i = 0; i < keys->elements; i++) {
        FTH_TRY(fth_redis_add(connection, (const char *[]){"GETRANGE", keys->element[i]->str, "0", "63", NULL}));
        FTH_TRY(fth_redis_add(connection, (const char *[]){"STRLEN", keys->element[i]->str, NULL}));
    }
    FTH_TRY(fth_redis_flush(connection, deadline));
    for (size_t i = 0; i < keys->elements; i++) {
        fth_redis_value value;
        fth_item_header header = {0};
        fth_receipt receipt;
        FTH_TRY(fth_redis_receive_value(connection, deadline, &value));
        if (value.kind == FTH_REDIS_BYTES && value.size_bytes == sizeof header)
            memcpy(&header, value.bytes, sizeof header);
        FTH_TRY(fth_redis_receive_value(connection, deadline, &value));
        if (value.kind == FTH_REDIS_WORD &&
            make_receipt(keys->element[i]->str, &header, strtoull(value.bytes, NULL, 10), &receipt))
            visit(context, &receipt);
    }

out:
    return status;
}

static bool is_scan_answer(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[0]->len > 20 || reply->element[1]->type != REDIS_REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < reply->element[1]->elements; i++)
        if (reply->element[1]->element[i]->type != REDIS_REPLY_STRING)
            return false;
    return true;
}

/* Looking at an entry takes two commands: its header, then its length. */
typedef struct look_call {
    redis_cache *cache;
    fth_item_id id;
    fth_item_header header;
    uint64_t size_bytes;
} look_call;

static const char *look_key(void *context, size_t which, char *room)
{
    const look_call *call = context;
    (void)which;
    return write_key(call->cache, call->id, room);
}

static fth_status send_look(void *context, size_t which, const char *key, fth_redis_connection *connection,
                            fth_deadline deadline)
{
    (void)context, (void)deadline;
    if (which == 0)
        return fth_redis_add(connection, (const char *[]){"GETRANGE", key, "0", "63", NULL});
    return fth_redis_add(connection, (const char *[]){"STRLEN", key, NULL});
}

static void take_look(void *context, size_t which, const fth_redis_value *value)
{
    look_call *call = context;
    if (which == 0 && value->kind == FTH_REDIS_BYTES && value->size_bytes == sizeof call->header)
        memcpy(&call->header, value->bytes, sizeof call->header);
    if (which == 1 && value->kind == FTH_REDIS_WORD)
        call->size_bytes = strtoull(value->bytes, NULL, 10);
}

static fth_status look(void *state, fth_item_id id, fth_deadline deadline, fth_receipt *receipt, bool *found)
{
    look_call call = {.cache = state, .id = id};
    char key[FTH_REDIS_MAX_KEY];
    fth_status status = fth_redis_exchange(
        call.cache->map,
        &(fth_redis_work){
            .count = 2, .window = 2, .context = &call, .key = look_key, .send = send_look, .take = take_look},
        deadline);
    *found = status == FTH_OK && make_receipt(write_key(call.cache, id, key), &call.header, call.size_bytes, receipt);
    return status;
}

static fth_status visit_server(redis_cache *cache, fth_redis_server *server,
                               void (*visit)(void *context, const fth_receipt *receipt), void *context)
{
    fth_status status = FTH_OK;
    fth_redis_connection *connection = NULL;
    redisReply *reply = NULL;
    char pattern[FTH_REDIS_MAX_KEY], cursor[24] = "0", count[16];

    snprintf(pattern, sizeof pattern, "farthing:%s:*", cache->address.prefix);
    snprintf(count, sizeof count, "%d", SCAN_COUNT);
    FTH_TRY(fth_redis_server_borrow(server, call_deadline(cache), &connection));
    do {
        fth_deadline deadline = call_deadline(cache); /* of one round trip; there may be many */
        FTH_TRY(fth_redis_ask(connection, (const char *[]){"SCAN", cursor, "MATCH", pattern, "COUNT", count, NULL},
                              deadline, &reply));
        FTH_REQUIRE(is_scan_answer(reply), FTH_CORRUPT, "%s: invalid answer to SCAN", fth_redis_server_name(server));
        FTH_TRY(visit_keys(connection, reply->element[1], deadline, visit, context));
        snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
        freeReplyObject(reply);
        reply = NULL;
    } while (strcmp(cursor, "0") != 0);

out:
    if (reply)
        freeReplyObject(reply);
    if (connection)
        fth_redis_server_return(server, connection, status);
    return status;
}

static fth_status visit_items(void *state, void (*visit)(void *context, const fth_receipt *receipt), void *context)
{
    redis_cache *cache = state;
    fth_redis_server *servers[MAX_SERVERS];
    size_t count = fth_redis_map_list(cache->map, servers, MAX_SERVERS);
    fth_status status = FTH_OK;
    for (size_t i = 0; i < count && status == FTH_OK; i++)
        status = visit_server(cache, servers[i], visit, context);
    return status;
}

/* ---- opening ---- */

static fth_status check(const char *text)
{
    fth_redis_address address;
    fth_status status = fth_redis_address_parse(text, &address);
    if (status == FTH_OK)
        fth_redis_address_release(&address);
    return status;
}

static void count_entry(void *context, size_t which, const void *entry, uint64_t size_bytes)
{
    (void)which, (void)entry, (void)size_bytes;
    ++*(size_t *)context;
}

/* An entry without a payload and with an id that no job has. */
static fth_item_id make_probe(uint64_t number, void *entry, fth_receipt *receipt)
{
    fth_item_id id = {{fth_random_mix((uint64_t)(fth_clock_wall_seconds() * 1e6)), fth_random_mix(number)}};
    fth_item_seal(entry, id, FTH_ITEM_BATCH, 0, receipt);
    return id;
}

/* Puts, gets and removes a small entry at every server. A full server is only reported: old entries
 * may have to be removed first. */
static fth_status try_servers(redis_cache *cache, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_redis_server *servers[MAX_SERVERS];
    size_t count = fth_redis_map_list(cache->map, servers, MAX_SERVERS), left = count;

    for (uint64_t number = 0; left > 0 && number < count * PROBES_PER_SERVER; number++) {
        fth_item_header entry;
        fth_receipt receipt;
        char key[FTH_REDIS_MAX_KEY];
        fth_item_id id = make_probe(number, &entry, &receipt);
        fth_redis_server *server = fth_redis_map_find(cache->map, write_key(cache, id, key));
        size_t found = 0, place = 0;
        while (place < left && servers[place] != server)
            place++;
        if (place == left)
            continue; /* already tried */
        servers[place] = servers[--left];
        status = put_bytes(cache, id, &entry, sizeof entry, PROBE_EXPIRY_MS);
        if (status == FTH_NO_MEMORY) {
            fth_log_warning("%s", fth_error_message());
            status = FTH_OK;
            continue;
        }
        if (status != FTH_OK)
            break;
        FTH_TRY(get(cache, &id, 1, deadline, count_entry, &found));
        FTH_REQUIRE(found == 1, FTH_IO, "%s does not keep an entry; check its maxmemory",
                    fth_redis_server_name(server));
        FTH_TRY(remove_items(cache, &id, 1));
    }

out:
    return status;
}

static void free_cache(void *state)
{
    redis_cache *cache = state;
    if (!cache)
        return;
    fth_redis_map_free(cache->map);
    fth_redis_tls_free(cache->tls);
    fth_redis_address_release(&cache->address);
    free(cache);
}

static fth_status open_cache(const char *address, const fth_cache_options *options, void **state)
{
    fth_status status = FTH_OK;
    redis_cache *cache = NULL;
    fth_deadline deadline;

    FTH_TRY(fth_allocate(1, sizeof *cache, &cache));
    cache->deadline_s = options->deadline_s > 0 ? options->deadline_s : DEFAULT_DEADLINE_S;
    cache->typical_bytes = 1 << 20;
    deadline = call_deadline(cache);
    FTH_TRY(fth_redis_address_parse(address, &cache->address));
    if (cache->address.tls)
        FTH_TRY(fth_redis_tls_create(options->ca_file, &cache->tls));
    cache->login = (fth_redis_login){.tls = cache->tls,
                                     .user = cache->address.user,
                                     .password = cache->address.password,
                                     .database = cache->address.database};
    FTH_TRY(fth_redis_map_create(&cache->address, &cache->login, deadline, &cache->map));
    FTH_TRY(try_servers(cache, deadline));
    *state = cache;
    cache = NULL;

out:
    free_cache(cache);
    return status;
}

const fth_cache_kind fth_cache_redis = {
    .name = "redis",
    .schemes = "redis:// rediss://",
    .check = check,
    .open = open_cache,
    .free = free_cache,
    .begin = begin,
    .put = put,
    .cancel = cancel,
    .get = get,
    .look = look,
    .remove = remove_items,
    .visit = visit_items,
};
