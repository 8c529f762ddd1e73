/* See data_parallel_shard.h. */
#include "parallel/data_parallel_shard.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HELD = 2, ALIGNMENT = 64 }; /* ranges that a worker keeps; floats that a range begins at a multiple of */

struct fth_update_shards {
    fth_engine *engine;
    float *values;
    size_t count;   /* floats of trained parameters, and of each vector of state */
    size_t *begins; /* of the present group's ranges, and the end; NULL: none yet */
    int rank, size;
    fth_float_range held[HELD]; /* of the state: valid here; the second may be empty */
    bool whole;                 /* all of the state is here, and of this moment */

    float *before[1 + FTH_MAX_OPTIMIZER_VECTORS]; /* parameters and state of `held`, before the update being made */
    bool pending;                                 /* it may have to be taken back */
};

/* ---- memory ---- */

fth_status fth_update_shards_create(fth_engine *engine, float *values, fth_update_shards **shards)
{
    fth_status status = fth_allocate(1, sizeof **shards, shards);
    if (status == FTH_OK)
        **shards =
            (fth_update_shards){.engine = engine, .values = values, .count = fth_engine_get_sizes(engine).trained};
    return status;
}

static void release_before(fth_update_shards *shards)
{
    for (size_t i = 0; i < FTH_COUNT_OF(shards->before); i++) {
        free(shards->before[i]);
        shards->before[i] = NULL;
    }
}

void fth_update_shards_free(fth_update_shards *shards)
{
    if (!shards)
        return;
    release_before(shards);
    free(shards->begins);
    free(shards);
}

static size_t held_floats(const fth_update_shards *shards)
{
    size_t floats = 0;
    for (int i = 0; i < HELD; i++)
        floats += shards->held[i].end - shards->held[i].begin;
    return floats;
}

/* Between the engine's vector and a copy of what is held of it, on the host. */
static fth_status copy_held(fth_update_shards *shards, float *vector, float *copy, bool back)
{
    fth_status status = FTH_OK;
    fth_device *device = fth_engine_device(shards->engine);

    for (int i = 0; i < HELD; i++) {
        const fth_float_range range = shards->held[i];
        const size_t floats = range.end - range.begin;
        if (floats > 0)
            FTH_TRY(back ? device->backend->copy_in(device, vector + range.begin, copy, floats * sizeof *copy)
                         : device->backend->copy_out(device, copy, vector + range.begin, floats * sizeof *copy));
        copy += floats;
    }

out:
    return status;
}

/* Copies parameters and state before an update, or `back` to what they were. */
static fth_status copy_all_held(fth_update_shards *shards, bool back)
{
    fth_status status = FTH_OK;
    const fth_engine_vectors vectors = fth_engine_get_vectors(shards->engine);

    FTH_TRY(copy_held(shards, vectors.parameters, shards->before[0], back));
    for (int i = 0; i < fth_engine_get_sizes(shards->engine).state_count; i++)
        FTH_TRY(copy_held(shards, vectors.state[i], shards->before[1 + i], back));

out:
    return status;
}

static fth_status keep_before(fth_update_shards *shards)
{
    fth_status status = FTH_OK;

    for (int i = 0; i < 1 + fth_engine_get_sizes(shards->engine).state_count; i++)
        if (!shards->before[i])
            FTH_TRY(fth_allocate_aligned((held_floats(shards) + 1) * sizeof(float), &shards->before[i]));
    FTH_TRY(copy_all_held(shards, false));

out:
    return status;
}

/* Gives back the memory of floats [begin, end), whole pages of it, which then are zero. */
static void drop(float *vector, size_t begin, size_t end)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)(vector + begin) + page - 1) / page * page;
    const uintptr_t last = (uintptr_t)(vector + end) / page * page;
    if (begin < end && last > first)
        madvise((void *)first, last - first, MADV_DONTNEED); /* advice only */
}

/* State outside of what is held. */
static void drop_rest(fth_update_shards *shards)
{
    const fth_engine_sizes sizes = fth_engine_get_sizes(shards->engine);
    const fth_engine_vectors vectors = fth_engine_get_vectors(shards->engine);
    const bool wraps = shards->held[1].begin < shards->held[0].begin;
    const fth_float_range low = shards->held[wraps ? 1 : 0], high = shards->held[wraps ? 0 : 1];

    shards->whole = false;
    if (!fth_engine_device(shards->engine)->backend->host_memory)
        return;
    for (int i = 0; i < sizes.state_count; i++) {
        drop(vectors.state[i], 0, low.begin);
        drop(vectors.state[i], low.end, high.begin);
        drop(vectors.state[i], high.end, shards->count);
    }
}

/* ---- groups ---- */

void fth_update_shards_begin_group(fth_update_shards *shards, const fth_group_view *view)
{
    size_t *begins = realloc(shards->begins, (size_t)(view->size + 1) * sizeof *begins);
    if (!begins)
        return; /* a larger group than before, and no memory for some numbers: update() says so */
    for (int r = 0; r <= view->size; r++)
        begins[r] =
            r == view->size ? shards->count : shards->count / (size_t)view->size * (size_t)r / ALIGNMENT * ALIGNMENT;
    const int next = (view->rank + 1) % view->size;
    shards->begins = begins;
    shards->rank = view->rank;
    shards->size = view->size;
    shards->held[0] = (fth_float_range){begins[view->rank], begins[view->rank + 1]};
    shards->held[1] = next == view->rank ? (fth_float_range){shards->count, shards->count}
                                         : (fth_float_range){begins[next], begins[next + 1]};
    release_before(shards);
    if (view->size > 1)
        drop_rest(shards);
}

/* ---- state for all ---- */

/* What a worker holds, as it travels. */
typedef struct fth_held_ranges {
    double bounds[2 * HELD];
} fth_held_ranges;

static bool holds(const fth_held_ranges *worker, double begin, double end)
{
    for (int i = 0; i < HELD; i++)
        if (worker->bounds[2 * i] <= begin && end <= worker->bounds[2 * i + 1])
            return true;
    return false;
}

static int compare_numbers(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Floats [begin, end) of the state, from one worker to all. */
static fth_status broadcast_state(fth_update_shards *shards, fth_worker_group *group, size_t begin, size_t end,
                                  int root)
{
    fth_status status = FTH_OK;
    fth_device *device = fth_engine_device(shards->engine);
    fth_collective *collective = fth_worker_group_collective(group);
    const fth_engine_vectors vectors = fth_engine_get_vectors(shards->engine);
    const size_t bytes = (end - begin) * sizeof(float);

    for (int i = 0; i < fth_engine_get_sizes(shards->engine).state_count; i++) {
        float *state = vectors.state[i] + begin;
        if (device->backend->host_memory) {
            FTH_TRY(fth_worker_group_translate_status(group, fth_collective_broadcast(collective, state, bytes, root)));
            continue;
        }
        FTH_TRY(device->backend->copy_out(device, shards->values, state, bytes));
        FTH_TRY(fth_worker_group_translate_status(group,
                                                  fth_collective_broadcast(collective, shards->values, bytes, root)));
        FTH_TRY(device->backend->copy_in(device, state, shards->values, bytes));
    }

out:
    return status;
}

/* The state between two neighbouring bounds, from the lowest rank that holds it. */
static fth_status broadcast_piece(fth_update_shards *shards, fth_worker_group *group, const fth_held_ranges *all,
                                  double begin, double end)
{
    const int size = fth_worker_group_view(group)->size;
    for (int r = 0; r < size; r++)
        if (holds(&all[r], begin, end))
            return broadcast_state(shards, group, (size_t)begin, (size_t)end, r);
    return fth_fail(FTH_IO, "workers that kept a part of the optimizer's state were lost together, and their part with "
                            "them; resume from the newest checkpoint");
}

/* Collects the whole state from the processes that hold its parts. */
static fth_status collect(fth_update_shards *shards, fth_worker_group *group, const fth_held_ranges *own)
{
    fth_status status = FTH_OK;
    const fth_group_view *view = fth_worker_group_view(group);
    const size_t count = (size_t)view->size * 2 * HELD;
    fth_held_ranges *all = NULL;
    double *bounds = NULL;

    FTH_TRY(fth_allocate((size_t)view->size, sizeof *all, &all));
    FTH_TRY(fth_allocate(count + 2, sizeof *bounds, &bounds));
    all[view->rank] = *own;
    FTH_TRY(fth_worker_group_translate_status(
        group, fth_collective_sum(fth_worker_group_collective(group), all[0].bounds, count)));
    memcpy(bounds, all, count * sizeof *bounds);
    bounds[count] = 0;
    bounds[count + 1] = (double)shards->count;
    qsort(bounds, count + 2, sizeof *bounds, compare_numbers);
    for (size_t i = 0; i + 1 < count + 2; i++)
        if (bounds[i] < bounds[i + 1])
            FTH_TRY(broadcast_piece(shards, group, all, bounds[i], bounds[i + 1]));
    shards->whole = true;

out:
    free(all);
    free(bounds);
    return status;
}

static fth_held_ranges describe_held(const fth_update_shards *shards)
{
    fth_held_ranges own = {0};
    for (int i = 0; i < HELD; i++) {
        own.bounds[2 * i] = (double)shards->held[i].begin;
        own.bounds[2 * i + 1] = (double)shards->held[i].end;
    }
    return own;
}

fth_status fth_update_shards_settle(fth_update_shards *shards, bool completed)
{
    fth_status status = shards->pending && !completed ? copy_all_held(shards, true) : FTH_OK;
    shards->pending = false;
    return status;
}

fth_status fth_update_shards_spread(fth_update_shards *shards, fth_worker_group *group, int furthest)
{
    fth_held_ranges own = describe_held(shards);
    if (!shards->begins && fth_worker_group_view(group)->rank == furthest)
        own.bounds[1] = (double)shards->count;
    return collect(shards, group, &own);
}

bool fth_update_shards_is_whole(const fth_update_shards *shards)
{
    const bool has_all = !shards->begins || shards->whole || held_floats(shards) == shards->count;
    return has_all && !shards->pending;
}

fth_status fth_update_shards_gather(fth_update_shards *shards, fth_worker_group *group)
{
    const fth_held_ranges own = describe_held(shards);
    return shards->whole ? FTH_OK : collect(shards, group, &own);
}

/* ---- updates ---- */

/* Puts the ranges of all workers together in `values`, and makes them the parameters. */
static fth_status gather_parameters(fth_update_shards *shards, fth_worker_group *group)
{
    fth_status status = FTH_OK;
    fth_device *device = fth_engine_device(shards->engine);
    float *parameters = fth_engine_get_vectors(shards->engine).parameters;
    const fth_float_range own = shards->held[0];

    FTH_TRY(device->backend->copy_out(device, shards->values + own.begin, parameters + own.begin,
                                      (own.end - own.begin) * sizeof(float)));
    FTH_TRY(fth_worker_group_translate_status(
        group, fth_collective_all_gather(fth_worker_group_collective(group), shards->values, shards->begins)));
    FTH_TRY(device->backend->copy_in(device, parameters, shards->values, shards->count * sizeof(float)));

out:
    return status;
}

/* Each worker judges its own ranges; all of them stop together. */
static fth_status check_together(fth_update_shards *shards, fth_worker_group *group)
{
    fth_status status = FTH_OK;
    double unfit = fth_engine_check_update(shards->engine) != FTH_OK;

    FTH_TRY(
        fth_worker_group_translate_status(group, fth_collective_sum(fth_worker_group_collective(group), &unfit, 1)));
    if (unfit > 0)
        FTH_TRY(fth_engine_fail_diverged(shards->engine, "a weight is no longer finite"));

out:
    return status;
}

fth_status fth_update_shards_update(fth_update_shards *shards, fth_worker_group *group, double learning_rate,
                                    int64_t update)
{
    fth_status status = FTH_OK;

    FTH_REQUIRE(shards->begins && shards->size == fth_worker_group_view(group)->size, FTH_NO_MEMORY,
                "no memory for the ranges of a sharded update");
    if (shards->size == 1) {
        FTH_TRY(fth_engine_update(shards->engine, learning_rate, update));
        status = fth_engine_check_update(shards->engine);
        goto out;
    }
    if (shards->whole)
        drop_rest(shards);
    FTH_TRY(keep_before(shards));
    shards->pending = true;
    FTH_TRY(fth_engine_update_ranges(shards->engine, learning_rate, update, shards->held, HELD));
    FTH_TRY(check_together(shards, group));
    FTH_TRY(gather_parameters(shards,
                              group)); /* the last call of an update: a process that passes it has made the update */
    shards->pending = false;

out:
    return status;
}
