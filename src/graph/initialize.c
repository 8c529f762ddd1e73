/* Initial values. Element i of a parameter is a function of (seed, name, i) alone, so that it does not depend on the
 * layout, on other parameters or on the number of threads. */
#include <string.h>

#include "graph/graph_internal.h"

/* FNV-1a, 64 bits. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static void fill(const fth_value_info *value, uint64_t seed, float *vector)
{
    fth_random_key key = fth_random_fork(fth_random_key_for(seed, FTH_RANDOM_INITIALIZE), hash_name(value->name));
    float *to = vector + value->offset;
    double amount = value->init.amount;
    uint64_t count = (uint64_t)fth_shape_count(&value->type.shape);
    switch (value->init.kind) {
    case FTH_INIT_CONSTANT:
        for (uint64_t i = 0; i < count; i++)
            to[i] = (float)amount;
        break;
    case FTH_INIT_UNIFORM:
        for (uint64_t i = 0; i < count; i++)
            to[i] = (float)(amount * (2 * fth_random_uniform(key, i) - 1));
        break;
    case FTH_INIT_NORMAL:
        for (uint64_t i = 0; i < count; i++)
            to[i] = (float)(amount * fth_random_normal(key, i));
        break;
    }
}

void fth_graph_initialize(const fth_graph *graph, uint64_t seed, float *parameters, float *buffers)
{
    if (graph->parameter_floats > 0)
        memset(parameters, 0, graph->parameter_floats * sizeof *parameters);
    if (graph->buffer_floats > 0)
        memset(buffers, 0, graph->buffer_floats * sizeof *buffers);
    for (size_t i = 0; i < graph->value_count; i++) {
        const fth_value_info *value = graph->values[i];
        if (value->kind == FTH_VALUE_PARAMETER)
            fill(value, seed, parameters);
        else if (value->kind == FTH_VALUE_BUFFER)
            fill(value, seed, buffers);
    }
}
