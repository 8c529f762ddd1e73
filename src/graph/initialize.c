/* Initial values. Element i of a parameter is a function of (seed, name, i) alone, so that it does
 * not depend on the layout, on other parameters or on the number of threads.
 *
 * Large graphs are filled by several threads, each with its share of every value: a VGG has a
 * hundred million normal draws, and as many pages to be touched for the first time. */
#include <pthread.h>
#include <string.h>

#include "base/process.h"
#include "graph/graph_internal.h"

enum { MOST_THREADS = 16, FLOATS_PER_THREAD = 1 << 21 };

typedef struct filler {
    const fth_graph *graph;
    uint64_t seed;
    float *parameters, *buffers;
    uint64_t index, count; /* this one fills part `index` of `count` of every value */
    pthread_t thread;
    bool started;
} filler;

/* FNV-1a, 64 bits. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static void fill_part(const filler *part, const fth_value_info *value, float *to)
{
    fth_random_key key = fth_random_fork(fth_random_key_for(part->seed, FTH_RANDOM_INITIALIZE), hash_name(value->name));
    double amount = value->init.amount;
    uint64_t count = (uint64_t)fth_shape_count(&value->type.shape);
    uint64_t begin = count * part->index / part->count, end = count * (part->index + 1) / part->count;
    switch (value->init.kind) {
    case FTH_INIT_CONSTANT:
        for (uint64_t i = begin; i < end; i++)
            to[i] = (float)amount;
        break;
    case FTH_INIT_UNIFORM:
        for (uint64_t i = begin; i < end; i++)
            to[i] = (float)(amount * (2 * fth_random_uniform(key, i) - 1));
        break;
    case FTH_INIT_NORMAL: fth_random_fill_normal(key, begin, end - begin, amount, to + begin); break;
    }
    if (part->index == 0)
        memset(to + count, 0, (fth_align_up(count, FTH_ALIGNMENT / sizeof *to) - count) * sizeof *to);
}

static void *run_filler(void *argument)
{
    const filler *part = argument;
    for (size_t i = 0; i < part->graph->value_count; i++) {
        const fth_value_info *value = part->graph->values[i];
        if (value->kind == FTH_VALUE_PARAMETER)
            fill_part(part, value, part->parameters + value->offset);
        else if (value->kind == FTH_VALUE_BUFFER)
            fill_part(part, value, part->buffers + value->offset);
    }
    return NULL;
}

static size_t choose_thread_count(size_t floats)
{
    size_t count = (size_t)fth_processors_usable();
    if (count > floats / FLOATS_PER_THREAD)
        count = floats / FLOATS_PER_THREAD;
    if (count > MOST_THREADS)
        count = MOST_THREADS;
    return count > 0 ? count : 1;
}

void fth_graph_initialize(const fth_graph *graph, uint64_t seed, float *parameters, float *buffers)
{
    filler parts[MOST_THREADS];
    size_t count = choose_thread_count(graph->parameter_floats);

    for (size_t i = 0; i < count; i++)
        parts[i] = (filler){graph, seed, parameters, buffers, .index = i, .count = count};
    for (size_t i = 1; i < count; i++)
        parts[i].started = fth_thread_start(&parts[i].thread, "initialize", run_filler, &parts[i]) == 0;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].started)
            pthread_join(parts[i].thread, NULL);
        else
            run_filler(&parts[i]); /* the first part, or one for which there was no thread */
    }
}
