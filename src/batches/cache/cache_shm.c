/* The shared memory of the coordinator's own machine as a cache: a thin layer over segment.h. */
#include "batches/cache/cache.h"

static fth_status check(const char *address)
{
    (void)address; /* always "shm" */
    return FTH_OK;
}

static fth_status open_cache(const char *address, const fth_cache_options *options, void **state)
{
    if (!options->segment)
        return fth_fail(FTH_INVALID, "cache %s: this process has no shared memory to keep entries in", address);
    *state = options->segment;
    return FTH_OK;
}

static void free_cache(void *state)
{
    (void)state; /* the segment belongs to the caller */
}

static fth_status begin(void *state, uint64_t size_bytes, void **entry)
{
    return fth_segment_begin(state, size_bytes, entry);
}

static fth_status put(void *state, void *entry, const fth_receipt *receipt)
{
    fth_segment_publish(state, entry, receipt);
    return FTH_OK;
}

static void cancel(void *state, void *entry)
{
    fth_segment_cancel(state, entry);
}

static fth_status look(void *state, fth_item_id id, fth_deadline deadline, fth_receipt *receipt, bool *found)
{
    (void)deadline;
    *found = fth_segment_has(state, id, receipt);
    return FTH_OK;
}

static fth_status get(void *state, const fth_item_id *ids, size_t count, fth_deadline deadline, fth_cache_take *take,
                      void *context)
{
    (void)deadline; /* nothing here waits */
    for (size_t i = 0; i < count; i++) {
        const void *entry = NULL;
        uint64_t size_bytes = 0;
        if (!fth_segment_hold(state, ids[i], &entry, &size_bytes))
            continue;
        bool is_sound = fth_item_check(entry, size_bytes, ids[i], NULL) == FTH_OK;
        if (is_sound)
            take(context, i, entry, size_bytes);
        fth_segment_release(state, entry);
        if (!is_sound) {
            fth_log_warning("%s; dropped it from shared memory", fth_error_message());
            fth_segment_evict(state, ids[i]);
        }
    }
    return FTH_OK;
}

static fth_status remove_items(void *state, const fth_item_id *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fth_segment_evict(state, ids[i]);
    return FTH_OK;
}

static fth_status visit_items(void *state, void (*visit)(void *context, const fth_receipt *receipt), void *context)
{
    fth_segment_visit(state, visit, context);
    return FTH_OK;
}

const fth_cache_kind fth_cache_shm = {
    .name = "shm",
    .schemes = "shm",
    .is_segment = true,
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
