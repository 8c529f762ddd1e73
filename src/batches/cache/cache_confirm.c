/* Checks that a cache has the entry that a prefetcher says it has put there. */
#include "batches/cache/cache.h"

fth_status fth_cache_confirm(fth_cache *cache, const fth_receipt *receipt, fth_deadline deadline)
{
    fth_receipt there = {0};
    bool found = false;
    fth_status status = fth_cache_look(cache, receipt->id, deadline, &there, &found);
    if (status != FTH_OK)
        return fth_fail_within(status, "checking that an item is cached");
    if (!found || there.size_bytes != receipt->size_bytes || there.checksum != receipt->checksum)
        return fth_fail(FTH_IO, "its receipt is for an item that is not cached");
    return FTH_OK;
}
