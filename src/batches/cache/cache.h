/* Caches: where entries are kept. Each is a row of fth_cache_kind, listed in cache.c.
 *
 *     shm                      the coordinator's shared memory (segment.h); other machines get its
 *                              entries over HTTP
 *     redis://[[user]:password@]host[:port][,host[:port]...][/database][/prefix]
 *     rediss://...             Redis or Valkey, rediss with TLS: one server, several, or a cluster;
 *                              every machine reads from it directly
 *     items+http://host:port   a coordinator's shared memory, as a worker on another machine fills
 *                              it (cache_coordinator.c)
 *
 * A receipt is given only when the cache has the whole entry. A server that is down costs a failed
 * call, never a wrong answer: entries that cannot be read are made again. */
#ifndef FTH_BATCHES_CACHE_H
#define FTH_BATCHES_CACHE_H

#include "batches/memory/segment.h"

typedef struct fth_cache fth_cache;

typedef struct fth_cache_options {
    uint64_t memory_bytes;      /* limit for all entries together */
    double deadline_s;          /* of a call; 0: 5 */
    const char *ca_file;        /* for rediss:// and https://; NULL: the system's */
    const char *pinned_key;     /* of a coordinator, as fth_http_client_options; NULL: none */
    fth_segment_cache *segment; /* of shm */
} fth_cache_options;

/* Connects, and checks that it can be read and written: FTH_PEER_LOST or FTH_INVALID, naming the
 * server and what to do. */
fth_status fth_cache_open(const char *address, const fth_cache_options *options, fth_cache **cache);
void fth_cache_free(fth_cache *cache);
fth_status fth_cache_check(const char *address);              /* FTH_INVALID if it is not the address of a cache */
const char *fth_cache_name(const fth_cache *cache);           /* without passwords */
fth_segment_cache *fth_cache_segment(const fth_cache *cache); /* NULL: not shared memory */

/* When the cache has no room for an entry, it calls `evict` with the number of bytes to free, a few
 * times and with more each time, since what becomes free need not be contiguous. Set it before the
 * cache is used. */
void fth_cache_set_evictor(fth_cache *cache, void (*evict)(void *context, uint64_t size_bytes), void *context);
/* Room in which an entry can be made; then put or cancel it. FTH_NO_MEMORY: there is none. Any
 * thread. */
fth_status fth_cache_begin(fth_cache *cache, uint64_t size_bytes, void **entry);
fth_status fth_cache_put(fth_cache *cache, void *entry, const fth_receipt *receipt); /* releases the room either way */
void fth_cache_cancel(fth_cache *cache, void *entry);

/* Receives the entry of ids[which], which is lent until this returns. */
typedef void fth_cache_take(void *context, size_t which, const void *entry, uint64_t size_bytes);

/* Gets several entries in one round trip. `take` is called in this thread for each that is found,
 * after it was checked, in any order. Missing and damaged entries are left out. If a server fails,
 * the entries of the others are still delivered before the call fails. */
fth_status fth_cache_get(fth_cache *cache, const fth_item_id *ids, size_t count, fth_deadline deadline,
                         fth_cache_take *take, void *context);
/* Reads an entry's header and length only. */
fth_status fth_cache_look(fth_cache *cache, fth_item_id id, fth_deadline deadline, fth_receipt *receipt, bool *found);
/* FTH_IO unless the cache has an entry with that id, length and checksum. Its payload is checked by
 * readers. */
fth_status fth_cache_confirm(fth_cache *cache, const fth_receipt *receipt, fth_deadline deadline);
fth_status fth_cache_remove(fth_cache *cache, const fth_item_id *ids, size_t count);
/* Lists all entries, for a coordinator that has been restarted. */
fth_status fth_cache_visit(fth_cache *cache, void (*visit)(void *context, const fth_receipt *receipt), void *context);

/* ---- kinds ---- */
typedef struct fth_cache_kind {
    const char *name;    /* for messages and lists: "redis" */
    const char *schemes; /* addresses begin with one of these, separated by spaces: "redis:// rediss://" */
    bool is_segment;     /* entries are in fth_cache_options.segment */
    fth_status (*check)(const char *address);
    fth_status (*open)(const char *address, const fth_cache_options *options, void **state);
    void (*free)(void *state);
    fth_status (*begin)(void *state, uint64_t size_bytes, void **entry);
    fth_status (*put)(void *state, void *entry, const fth_receipt *receipt);
    void (*cancel)(void *state, void *entry);
    fth_status (*get)(void *state, const fth_item_id *ids, size_t count, fth_deadline deadline, fth_cache_take *take,
                      void *context);
    fth_status (*look)(void *state, fth_item_id id, fth_deadline deadline, fth_receipt *receipt, bool *found);
    fth_status (*remove)(void *state, const fth_item_id *ids, size_t count);
    fth_status (*visit)(void *state, void (*visit)(void *context, const fth_receipt *receipt), void *context);
} fth_cache_kind;
extern const fth_cache_kind fth_cache_shm, fth_cache_redis, fth_cache_coordinator;

#endif
