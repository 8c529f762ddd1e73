/* A coordinator's memory as a cache, seen from another machine: a worker uploads its items over
 * HTTP (coordinator.h). Nothing is read, since a prefetcher has no use for finished items. */
#include <stdlib.h>
#include <string.h>

#include "batches/cache/cache.h"
#include "batches/coordinator_link.h"

#define DEFAULT_DEADLINE_S 30.0 /* entries may be large and the network slow */

typedef struct fth_coordinator_cache {
    fth_coordinator_link *link;
    double deadline_s;
} fth_coordinator_cache;

static fth_status check(const char *address)
{
    const char *host = strstr(address, "://");
    return host && host[3] ? FTH_OK : fth_fail(FTH_INVALID, "%s is not a coordinator's address", address);
}

static void free_cache(void *state)
{
    fth_coordinator_cache *cache = state;
    fth_coordinator_link_free(cache->link);
    free(cache);
}

static fth_status open_cache(const char *address, const fth_cache_options *options, void **state)
{
    fth_status status = FTH_OK;
    fth_coordinator_cache *cache = NULL;

    FTH_TRY(check(address));
    FTH_TRY(fth_allocate(1, sizeof *cache, &cache));
    cache->deadline_s = options->deadline_s > 0 ? options->deadline_s : DEFAULT_DEADLINE_S;
    FTH_TRY(fth_coordinator_link_open(&(fth_coordinator_link_options){.url = address + strlen("items+"),
                                                                      .pinned_key = options->pinned_key,
                                                                      .ca_file = options->ca_file},
                                      &cache->link));
    *state = cache;
    cache = NULL;

out:
    free(cache);
    return status;
}

static fth_status begin(void *state, uint64_t size_bytes, void **entry)
{
    (void)state;
    return fth_allocate_aligned(size_bytes, entry);
}

static fth_status put(void *state, void *entry, const fth_receipt *receipt)
{
    const fth_coordinator_cache *cache = state;
    fth_status status = fth_coordinator_put_item(cache->link, entry, receipt, fth_deadline_in(cache->deadline_s));
    free(entry);
    return status;
}

static void cancel(void *state, void *entry)
{
    (void)state;
    free(entry);
}

static fth_status get(void *state, const fth_item_id *ids, size_t count, fth_deadline deadline, fth_cache_take *take,
                      void *context)
{
    (void)state;
    (void)ids;
    (void)count;
    (void)deadline;
    (void)take;
    (void)context;
    return FTH_OK;
}

static fth_status fail_to_manage(void)
{
    return fth_fail(FTH_UNSUPPORTED, "a coordinator's memory is managed by the coordinator");
}

static fth_status look(void *state, fth_item_id id, fth_deadline deadline, fth_receipt *receipt, bool *found)
{
    (void)state;
    (void)id;
    (void)deadline;
    (void)receipt;
    (void)found;
    return fail_to_manage();
}

static fth_status remove_items(void *state, const fth_item_id *ids, size_t count)
{
    (void)state;
    (void)ids;
    (void)count;
    return fail_to_manage();
}

static fth_status visit_items(void *state, void (*visit)(void *context, const fth_receipt *receipt), void *context)
{
    (void)state;
    (void)visit;
    (void)context;
    return fail_to_manage();
}

const fth_cache_kind fth_cache_coordinator = {
    .name = "coordinator",
    .schemes = "items+http:// items+https://",
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
