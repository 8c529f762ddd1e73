/* See cache.h: the list of kinds; each call is forwarded to one of them. */
#include "batches/cache/cache.h"

#include <stdlib.h>
#include <string.h>

static const fth_cache_kind *const kinds[] = {&fth_cache_shm, &fth_cache_redis, &fth_cache_coordinator};

struct fth_cache {
    const fth_cache_kind *kind;
    void *state;
    char *name;
    fth_segment_cache *segment;
    void (*evict)(void *context, uint64_t size_bytes); /* or NULL */
    void *evict_context;
};

/* Whether an address begins with one of the kind's schemes. A scheme without "://" is a whole
 * address. */
static bool is_of_kind(const fth_cache_kind *kind, const char *address)
{
    const char *scheme = kind->schemes;
    while (*scheme) {
        size_t length = strcspn(scheme, " ");
        bool is_whole = !memchr(scheme, ':', length);
        if (strncmp(address, scheme, length) == 0 && (!is_whole || address[length] == '\0'))
            return true;
        scheme += length + strspn(scheme + length, " ");
    }
    return false;
}

static fth_status find_kind(const char *address, const fth_cache_kind **kind)
{
    for (size_t i = 0; i < FTH_COUNT_OF(kinds); i++)
        if (is_of_kind(kinds[i], address)) {
            *kind = kinds[i];
            return FTH_OK;
        }
    return fth_fail(FTH_INVALID, "unknown cache \"%s\"; expected shm, redis://HOST:PORT or rediss://HOST:PORT",
                    address);
}

fth_status fth_cache_check(const char *address)
{
    const fth_cache_kind *kind = NULL;
    fth_status status = find_kind(address, &kind);
    return status == FTH_OK ? kind->check(address) : status;
}

fth_status fth_cache_open(const char *address, const fth_cache_options *options, fth_cache **result)
{
    fth_status status = FTH_OK;
    fth_cache *cache = NULL;
    char *whole = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *cache, &cache));
    FTH_TRY(find_kind(address, &cache->kind));
    cache->name = fth_address_public(address);
    whole = fth_address_whole(address);
    FTH_REQUIRE(cache->name && whole, FTH_NO_MEMORY, "no memory for the address of a cache");
    cache->segment = cache->kind->is_segment ? options->segment : NULL;
    FTH_TRY(cache->kind->open(whole, options, &cache->state));
    *result = cache;
    cache = NULL;

out:
    fth_wipe_text(whole);
    if (cache) {
        free(cache->name);
        free(cache);
    }
    return status;
}

void fth_cache_free(fth_cache *cache)
{
    if (!cache)
        return;
    cache->kind->free(cache->state);
    free(cache->name);
    free(cache);
}

const char *fth_cache_name(const fth_cache *cache)
{
    return cache->name;
}

fth_segment_cache *fth_cache_segment(const fth_cache *cache)
{
    return cache->segment;
}

void fth_cache_set_evictor(fth_cache *cache, void (*evict)(void *context, uint64_t size_bytes), void *context)
{
    cache->evict = evict;
    cache->evict_context = context;
}

fth_status fth_cache_begin(fth_cache *cache, uint64_t size_bytes, void **entry)
{
    enum { TRIES = 5 };
    *entry = NULL;
    fth_status status = cache->kind->begin(cache->state, size_bytes, entry);
    for (uint64_t i = 0; i < TRIES && status == FTH_NO_MEMORY && cache->evict; i++) {
        cache->evict(cache->evict_context, size_bytes << i);
        status = cache->kind->begin(cache->state, size_bytes, entry);
    }
    return status;
}

fth_status fth_cache_put(fth_cache *cache, void *entry, const fth_receipt *receipt)
{
    return cache->kind->put(cache->state, entry, receipt);
}

void fth_cache_cancel(fth_cache *cache, void *entry)
{
    if (entry)
        cache->kind->cancel(cache->state, entry);
}

fth_status fth_cache_get(fth_cache *cache, const fth_item_id *ids, size_t count, fth_deadline deadline,
                         fth_cache_take *take, void *context)
{
    return count == 0 ? FTH_OK : cache->kind->get(cache->state, ids, count, deadline, take, context);
}

fth_status fth_cache_look(fth_cache *cache, fth_item_id id, fth_deadline deadline, fth_receipt *receipt, bool *found)
{
    *found = false;
    return cache->kind->look(cache->state, id, deadline, receipt, found);
}

fth_status fth_cache_remove(fth_cache *cache, const fth_item_id *ids, size_t count)
{
    return count == 0 ? FTH_OK : cache->kind->remove(cache->state, ids, count);
}

fth_status fth_cache_visit(fth_cache *cache, void (*visit)(void *context, const fth_receipt *receipt), void *context)
{
    return cache->kind->visit(cache->state, visit, context);
}
