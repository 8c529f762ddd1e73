/* Vectors that several engines have in common: workers of one machine train one model in place. */
#include <stdlib.h>
#include <string.h>

#include "train/engine_internal.h"

fth_status fth_engine_require_host_memory(const fth_engine *engine)
{
    if (engine->backend->host_memory)
        return FTH_OK;
    return fth_fail(FTH_UNSUPPORTED,
                    "workers that share memory compute on the CPU, and the device is %s: add --device cpu, or use "
                    "--strategy single",
                    engine->device->description);
}

void fth_engine_release_vectors(fth_engine *engine)
{
    void *memory[] = {engine->vectors.parameters, engine->vectors.buffers, engine->state[0], engine->state[1]};
    for (size_t i = 0; i < FTH_COUNT_OF(memory); i++)
        if (memory[i] && !engine->shares)
            engine->backend->release(engine->device, memory[i]);
}

fth_engine_sizes fth_engine_get_sizes(const fth_engine *engine)
{
    return (fth_engine_sizes){.parameters = engine->parameter_floats,
                              .buffers = engine->buffer_floats,
                              .trained = engine->trained_floats,
                              .state_count = engine->state_count};
}

static fth_status copy_vector(fth_engine *from, const float *source, fth_engine *to, float *target, size_t floats)
{
    fth_status status = FTH_OK;
    float *host = NULL;
    size_t bytes = floats * sizeof(float);

    if (bytes == 0)
        return FTH_OK;
    if (from->backend->host_memory)
        return to->backend->copy_in(to->device, target, source, bytes);
    FTH_TRY(fth_allocate_aligned(bytes, &host));
    FTH_TRY(from->backend->copy_out(from->device, host, source, bytes));
    FTH_TRY(to->backend->copy_in(to->device, target, host, bytes));

out:
    free(host);
    return status;
}

fth_status fth_engine_copy_weights(fth_engine *from, fth_engine *to)
{
    fth_status status = FTH_OK;

    FTH_REQUIRE(from->parameter_floats == to->parameter_floats && from->buffer_floats == to->buffer_floats, FTH_INVALID,
                "the two engines hold different models");
    FTH_TRY(copy_vector(from, from->vectors.parameters, to, to->vectors.parameters, from->parameter_floats));
    FTH_TRY(copy_vector(from, from->vectors.buffers, to, to->vectors.buffers, from->buffer_floats));

out:
    return status;
}

fth_status fth_engine_move_vectors(fth_engine *engine, const fth_engine_vectors *to)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_engine_require_host_memory(engine));
    memcpy(to->parameters, engine->vectors.parameters, engine->parameter_floats * sizeof(float));
    memcpy(to->buffers, engine->vectors.buffers, engine->buffer_floats * sizeof(float));
    for (int i = 0; i < engine->state_count; i++)
        memcpy(to->state[i], engine->state[i], engine->trained_floats * sizeof(float));
    fth_engine_release_vectors(engine);
    engine->shares = true;
    engine->vectors.parameters = to->parameters;
    engine->vectors.buffers = to->buffers;
    for (int i = 0; i < engine->state_count; i++)
        engine->state[i] = to->state[i];
    FTH_TRY(fth_plan_cache_bind(engine->plans, engine->vectors));

out:
    return status;
}
