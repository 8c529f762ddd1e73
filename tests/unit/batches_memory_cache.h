/* A cache (batches/cache/cache.h) in memory for tests of those who use one: in place of cache.c,
 * with failures on demand. */
#ifndef BATCHES_MEMORY_CACHE_H
#define BATCHES_MEMORY_CACHE_H

#include "support.h"

#include <pthread.h>

#include "batches/cache/cache.h"

enum { MEMORY_CACHE_ENTRIES = 4096 };

struct fth_cache {
    pthread_mutex_t mutex;
    struct {
        void *entry;
        fth_receipt receipt;
    } entries[MEMORY_CACHE_ENTRIES];
    int count;
    int rooms; /* begun, and neither put nor cancelled */
    int puts, gets, found;
    uint64_t room_bytes; /* a larger entry is refused; 0: none */
    bool refuse;         /* puts fail */
};

static inline fth_cache *memory_cache_create(void)
{
    fth_cache *cache = calloc(1, sizeof *cache);
    pthread_mutex_init(&cache->mutex, NULL);
    return cache;
}

static inline void memory_cache_free(fth_cache *cache)
{
    assert_int_equal(cache->rooms, 0);
    for (int i = 0; i < cache->count; i++)
        free(cache->entries[i].entry);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

static inline const void *memory_cache_find(fth_cache *cache, fth_item_id id, fth_receipt *receipt)
{
    const void *found = NULL;
    pthread_mutex_lock(&cache->mutex);
    for (int i = 0; i < cache->count; i++)
        if (fth_item_id_equal(cache->entries[i].receipt.id, id)) {
            found = cache->entries[i].entry;
            *receipt = cache->entries[i].receipt;
        }
    pthread_mutex_unlock(&cache->mutex);
    return found;
}

fth_status fth_cache_begin(fth_cache *cache, uint64_t size_bytes, void **entry)
{
    if (cache->room_bytes > 0 && size_bytes > cache->room_bytes)
        return fth_fail(FTH_NO_MEMORY, "no room for %llu bytes", (unsigned long long)size_bytes);
    fth_status status = fth_allocate_aligned(size_bytes, entry);
    pthread_mutex_lock(&cache->mutex);
    cache->rooms += status == FTH_OK;
    pthread_mutex_unlock(&cache->mutex);
    return status;
}

fth_status fth_cache_put(fth_cache *cache, void *entry, const fth_receipt *receipt)
{
    fth_status status = fth_item_check(entry, receipt->size_bytes, receipt->id, receipt);
    pthread_mutex_lock(&cache->mutex);
    cache->rooms--;
    if (status == FTH_OK && cache->refuse)
        status = fth_fail(FTH_PEER_LOST, "the cache is gone");
    if (status == FTH_OK) {
        assert_true(cache->count < MEMORY_CACHE_ENTRIES);
        cache->puts++;
        cache->entries[cache->count].entry = entry;
        cache->entries[cache->count++].receipt = *receipt;
    }
    pthread_mutex_unlock(&cache->mutex);
    if (status != FTH_OK)
        free(entry);
    return status;
}

void fth_cache_cancel(fth_cache *cache, void *entry)
{
    pthread_mutex_lock(&cache->mutex);
    cache->rooms--;
    pthread_mutex_unlock(&cache->mutex);
    free(entry);
}

fth_status fth_cache_get(fth_cache *cache, const fth_item_id *ids, size_t count, fth_deadline deadline,
                         void (*take)(void *context, size_t which, const void *entry, uint64_t size_bytes),
                         void *context)
{
    (void)deadline;
    for (size_t i = 0; i < count; i++) {
        fth_receipt receipt;
        const void *entry = memory_cache_find(cache, ids[i], &receipt);
        pthread_mutex_lock(&cache->mutex);
        cache->gets++;
        cache->found += entry != NULL;
        pthread_mutex_unlock(&cache->mutex);
        if (entry)
            take(context, i, entry, receipt.size_bytes);
    }
    return FTH_OK;
}

fth_status fth_cache_look(fth_cache *cache, fth_item_id id, fth_deadline deadline, fth_receipt *receipt, bool *found)
{
    (void)deadline;
    *found = memory_cache_find(cache, id, receipt) != NULL;
    return FTH_OK;
}

const char *fth_cache_name(const fth_cache *cache)
{
    (void)cache;
    return "shm";
}

#endif
