/* See plan_cache.h. */
#include "train/engine/plan_cache.h"

#include <stdio.h>
#include <stdlib.h>

#include "graph/ops.h"

enum { SYNCHRONIZE_S = 60 };

typedef struct cached_plan {
    fth_plan_size size;
    fth_plan_mode mode;
    fth_plan *plan;
    uint64_t used; /* value of `clock` when it was last asked for */
} cached_plan;

struct fth_plan_cache {
    const fth_graph *graph;
    fth_device *device;
    fth_plan_options like;
    const char *model;
    fth_vectors vectors;
    cached_plan plans[FTH_MAX_PLANS];
    size_t count;
    uint64_t clock;
    void *arena;
    size_t arena_bytes;
};

fth_status fth_plan_cache_create(const fth_graph *graph, fth_device *device, fth_plan_options like, const char *model,
                                 fth_plan_cache **cache)
{
    fth_status status = fth_allocate(1, sizeof **cache, cache);
    if (status == FTH_OK)
        **cache = (fth_plan_cache){.graph = graph, .device = device, .like = like, .model = model};
    return status;
}

void fth_plan_cache_free(fth_plan_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->count; i++)
        fth_plan_free(cache->plans[i].plan);
    if (cache->arena)
        cache->device->backend->release(cache->device, cache->arena);
    free(cache);
}

fth_status fth_plan_cache_bind(fth_plan_cache *cache, fth_vectors vectors)
{
    fth_status status = FTH_OK;

    cache->vectors = vectors;
    for (size_t i = 0; i < cache->count; i++)
        FTH_TRY(fth_plan_bind(cache->plans[i].plan, cache->arena, vectors));

out:
    return status;
}

void fth_plan_cache_set_deadline(fth_plan_cache *cache, fth_deadline deadline, const fth_stop *stop)
{
    cache->like.deadline = deadline;
    cache->like.stop = stop;
}

static cached_plan *find(const fth_plan_cache *cache, fth_plan_size size, fth_plan_mode mode)
{
    for (size_t i = 0; i < cache->count; i++) {
        const cached_plan *cached = &cache->plans[i];
        if (cached->size.batch == size.batch && cached->size.tokens == size.tokens && cached->mode == mode)
            return (cached_plan *)cached;
    }
    return NULL;
}

fth_plan *fth_plan_cache_find(const fth_plan_cache *cache, fth_plan_size size, fth_plan_mode mode)
{
    const cached_plan *cached = find(cache, size, mode);
    return cached ? cached->plan : NULL;
}

static fth_plan_options options_of(const fth_plan_cache *cache, fth_plan_size size, fth_plan_mode mode)
{
    fth_plan_options options = cache->like;
    options.batch = size.batch;
    options.tokens = size.tokens;
    options.mode = mode;
    return options;
}

/* Makes the arena at least `size_bytes` large and binds the plans to it again if it moved. */
static fth_status grow_arena(fth_plan_cache *cache, size_t size_bytes)
{
    fth_status status = FTH_OK;
    if (size_bytes <= cache->arena_bytes && cache->arena)
        return FTH_OK;
    void *larger = NULL; /* first, so that the plans stay usable if there is no memory */
    FTH_TRY(cache->device->backend->synchronize(cache->device, fth_deadline_in(SYNCHRONIZE_S)));
    FTH_TRY(cache->device->backend->allocate(cache->device, size_bytes ? size_bytes : 1, &larger));
    if (cache->arena)
        cache->device->backend->release(cache->device, cache->arena);
    cache->arena = larger;
    cache->arena_bytes = size_bytes;
    FTH_TRY(fth_plan_cache_bind(cache, cache->vectors));

out:
    return status;
}

/* What a plan may take: what is free, and the arena that is there. False where the device is the
 * machine itself. */
static bool find_room(fth_plan_cache *cache, double *room_bytes, double *total_bytes)
{
    size_t free_now, total;
    const fth_backend_accelerator *accelerator = cache->device->backend->accelerator;
    if (!accelerator || accelerator->free_memory(cache->device, &free_now, &total) != FTH_OK)
        return false;
    *room_bytes = (double)free_now + (double)cache->arena_bytes;
    *total_bytes = (double)total;
    return true;
}

/* Says which batch would fit. What a plan needs grows with the batch; a tenth is left for what does
 * not, such as the workspaces of convolutions. */
static fth_status fail_too_large(fth_plan_cache *cache, fth_plan_size size, size_t needed_bytes)
{
    double room, total, needed = (double)needed_bytes;
    if (!find_room(cache, &room, &total))
        return FTH_NO_MEMORY; /* with the message of the allocation */
    int64_t fits = (int64_t)(0.9 * room / needed * (double)size.batch);
    char advice[64] = "", tokens[64] = "";
    fits = fits > 64 ? fits / 16 * 16 : fits > 8 ? fits / 4 * 4 : fits;
    if (fits >= 1 && fits < size.batch)
        snprintf(advice, sizeof advice, "; --batch %lld would fit", (long long)fits);
    if (size.tokens > 0)
        snprintf(tokens, sizeof tokens, " (%lld tokens)", (long long)size.tokens);
    return fth_fail(FTH_NO_MEMORY, "%s with a batch of %lld%s needs %.2f GB, and %s has %.2f of %.2f GB free%s",
                    cache->model, (long long)size.batch, tokens, needed / 1e9, cache->device->description, room / 1e9,
                    total / 1e9, advice);
}

/* What backward will need is kept: at least half of the convolutions' outputs (others are not,
 * before a max pool), in two bytes. */
static double count_kept_bytes(const fth_graph *graph, int64_t batch)
{
    double total = 0;
    for (int n = 0; n < fth_graph_forward_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        if (node->op != &fth_op_convolution)
            continue;
        fth_shape shape = fth_shape_with_batch(&fth_graph_value(graph, node->outputs[0])->type.shape, batch);
        total += (double)fth_shape_count(&shape);
    }
    return total;
}

/* Choosing primitives by measuring takes minutes with a batch that is far too large: that is found
 * out first. */
static fth_status check_room(fth_plan_cache *cache, fth_plan_size size, fth_plan_mode mode)
{
    fth_status status = FTH_OK;
    fth_plan *plan = NULL;
    double room, total;

    if (mode != FTH_PLAN_TRAIN || !find_room(cache, &room, &total) ||
        count_kept_bytes(cache->graph, size.batch) <= room)
        return FTH_OK;
    fth_plan_options options = options_of(cache, size, mode);
    options.unmeasured = true;
    FTH_TRY(fth_plan_create(cache->graph, cache->device, options, &plan));
    status = fail_too_large(cache, size, fth_plan_arena_bytes(plan));

out:
    fth_plan_free(plan);
    return status;
}

/* Makes room for one more plan. What the device was given may still be a run of the one that
 * goes. */
static fth_status drop_oldest(fth_plan_cache *cache)
{
    cached_plan *oldest = &cache->plans[0];
    fth_status status = cache->device->backend->synchronize(cache->device, fth_deadline_in(SYNCHRONIZE_S));
    if (status != FTH_OK)
        return status;
    for (size_t i = 1; i < cache->count; i++)
        if (cache->plans[i].used < oldest->used)
            oldest = &cache->plans[i];
    fth_plan_free(oldest->plan);
    *oldest = cache->plans[--cache->count];
    return FTH_OK;
}

static fth_status make_plan(fth_plan_cache *cache, fth_plan_size size, fth_plan_mode mode)
{
    fth_status status = FTH_OK;
    fth_plan *plan = NULL;
    const double began_s = fth_clock_seconds();

    FTH_TRY(check_room(cache, size, mode));
    if (cache->count == FTH_MAX_PLANS)
        FTH_TRY(drop_oldest(cache));
    FTH_TRY(fth_plan_create(cache->graph, cache->device, options_of(cache, size, mode), &plan));
    status = grow_arena(cache, fth_plan_arena_bytes(plan));
    if (status == FTH_NO_MEMORY)
        status = fail_too_large(cache, size, fth_plan_arena_bytes(plan));
    FTH_TRY(status);
    FTH_TRY(fth_plan_bind(plan, cache->arena, cache->vectors));
    cache->plans[cache->count++] = (cached_plan){.size = size, .mode = mode, .plan = plan};
    fth_log_debug("made the plan of %lld samples and %lld tokens, %s, in %.1f ms", (long long)size.batch,
                  (long long)size.tokens, mode == FTH_PLAN_TRAIN ? "training" : "evaluation",
                  1000 * (fth_clock_seconds() - began_s));
    plan = NULL;

out:
    fth_plan_free(plan);
    return status;
}

fth_status fth_plan_cache_get(fth_plan_cache *cache, fth_plan_size size, fth_plan_mode mode, fth_plan **plan)
{
    fth_status status = FTH_OK;

    *plan = NULL;
    if (!find(cache, size, mode))
        FTH_TRY(make_plan(cache, size, mode));
    cached_plan *cached = find(cache, size, mode);
    cached->used = ++cache->clock;
    *plan = cached->plan;

out:
    return status;
}
