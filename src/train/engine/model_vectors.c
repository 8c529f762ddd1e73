/* See model_vectors.h. */
#include "train/engine/model_vectors.h"

#include <stdlib.h>
#include <string.h>

static fth_status require_host_memory(const fth_device *device)
{
    if (device->backend->host_memory)
        return FTH_OK;
    return fth_fail(FTH_UNSUPPORTED,
                    "workers that share memory compute on the CPU, and the device is %s: add --device cpu, or use "
                    "--strategy single",
                    device->description);
}

static fth_status allocate_vector(fth_device *device, size_t floats, float **vector)
{
    void *memory = NULL;
    fth_status status = device->backend->allocate(device, (floats ? floats : 1) * sizeof(float), &memory);
    *vector = memory;
    return status;
}

static void borrow(fth_model_vectors *vectors, const fth_engine_vectors *shared)
{
    vectors->borrowed = true;
    vectors->parameters = shared->parameters;
    vectors->buffers = shared->buffers;
    for (int i = 0; i < vectors->sizes.state_count; i++)
        vectors->state[i] = shared->state[i];
}

fth_status fth_model_vectors_allocate(fth_model_vectors *vectors, fth_device *device,
                                      const fth_model_vectors_options *options)
{
    fth_status status = FTH_OK;
    const fth_engine_sizes *sizes = &options->sizes;

    *vectors = (fth_model_vectors){.device = device, .sizes = *sizes};
    if (options->shared) {
        FTH_TRY(require_host_memory(device));
        borrow(vectors, options->shared);
    } else {
        FTH_TRY(allocate_vector(device, sizes->parameters, &vectors->parameters));
        FTH_TRY(allocate_vector(device, sizes->buffers, &vectors->buffers));
        for (int i = 0; i < sizes->state_count; i++)
            FTH_TRY(allocate_vector(device, sizes->trained, &vectors->state[i]));
    }
    if (options->trains)
        FTH_TRY(allocate_vector(device, sizes->trained, &vectors->gradients));
    if (options->accumulates)
        FTH_TRY(allocate_vector(device, sizes->trained, &vectors->accumulated));

out:
    return status;
}

static void release_all(fth_device *device, float *const *vectors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (vectors[i])
            device->backend->release(device, vectors[i]);
}

/* Parameters, buffers and state, unless they are borrowed. */
static void release_model(fth_model_vectors *vectors)
{
    if (vectors->borrowed)
        return;
    release_all(vectors->device, (float *[]){vectors->parameters, vectors->buffers}, 2);
    release_all(vectors->device, vectors->state, FTH_COUNT_OF(vectors->state));
}

/* The vector that an update uses. */
static float **used_gradients(fth_model_vectors *vectors)
{
    return vectors->accumulated ? &vectors->accumulated : &vectors->gradients;
}

void fth_model_vectors_release(fth_model_vectors *vectors)
{
    release_model(vectors);
    if (vectors->lent_gradients)
        *used_gradients(vectors) = NULL;
    release_all(vectors->device, (float *[]){vectors->gradients, vectors->accumulated}, 2);
}

fth_status fth_model_vectors_initialize(fth_model_vectors *vectors, const fth_graph *graph, uint64_t seed)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = vectors->device->backend;
    float *parameters = NULL, *buffers = NULL;
    size_t parameter_bytes = vectors->sizes.parameters * sizeof(float);
    size_t buffer_bytes = vectors->sizes.buffers * sizeof(float);

    if (backend->host_memory) { /* in place: a copy would take half of the time */
        fth_graph_initialize(graph, seed, vectors->parameters, vectors->buffers);
        return FTH_OK;
    }
    FTH_TRY(fth_allocate_aligned(parameter_bytes + 1, &parameters));
    FTH_TRY(fth_allocate_aligned(buffer_bytes + 1, &buffers));
    fth_graph_initialize(graph, seed, parameters, buffers);
    FTH_TRY(backend->copy_in(vectors->device, vectors->parameters, parameters, parameter_bytes));
    if (buffer_bytes > 0)
        FTH_TRY(backend->copy_in(vectors->device, vectors->buffers, buffers, buffer_bytes));

out:
    free(parameters);
    free(buffers);
    return status;
}

fth_vectors fth_model_vectors_for_plans(const fth_model_vectors *vectors)
{
    return (fth_vectors){
        .parameters = vectors->parameters, .gradients = vectors->gradients, .buffers = vectors->buffers};
}

float *fth_model_vectors_get_gradients(const fth_model_vectors *vectors)
{
    return vectors->accumulated ? vectors->accumulated : vectors->gradients;
}

fth_status fth_model_vectors_accumulate(fth_model_vectors *vectors, bool first)
{
    return fth_model_vectors_accumulate_range(vectors, first, 0, vectors->sizes.trained);
}

fth_status fth_model_vectors_accumulate_range(fth_model_vectors *vectors, bool first, size_t begin, size_t end)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = vectors->device->backend;
    float *sums = vectors->accumulated;

    if (!sums)
        return FTH_OK;
    if (first)
        FTH_TRY(backend->fill_zero(vectors->device, sums + begin, (end - begin) * sizeof(float)));
    FTH_TRY(backend->add(vectors->device, sums + begin, vectors->gradients + begin, end - begin));

out:
    return status;
}

static fth_status copy_vector(fth_device *from, const float *source, fth_device *to, float *target, size_t floats)
{
    fth_status status = FTH_OK;
    float *host = NULL;
    size_t bytes = floats * sizeof(float);

    if (bytes == 0)
        return FTH_OK;
    if (from->backend->host_memory)
        return to->backend->copy_in(to, target, source, bytes);
    FTH_TRY(fth_allocate_aligned(bytes, &host));
    FTH_TRY(from->backend->copy_out(from, host, source, bytes));
    FTH_TRY(to->backend->copy_in(to, target, host, bytes));

out:
    free(host);
    return status;
}

fth_status fth_model_vectors_copy_weights(const fth_model_vectors *from, fth_model_vectors *to)
{
    fth_status status = FTH_OK;
    const fth_engine_sizes *sizes = &from->sizes;

    FTH_REQUIRE(sizes->parameters == to->sizes.parameters && sizes->buffers == to->sizes.buffers, FTH_INVALID,
                "the two engines hold different models");
    FTH_TRY(copy_vector(from->device, from->parameters, to->device, to->parameters, sizes->parameters));
    FTH_TRY(copy_vector(from->device, from->buffers, to->device, to->buffers, sizes->buffers));

out:
    return status;
}

fth_status fth_model_vectors_move(fth_model_vectors *vectors, const fth_engine_vectors *to)
{
    fth_status status = FTH_OK;
    const fth_engine_sizes *sizes = &vectors->sizes;

    FTH_TRY(require_host_memory(vectors->device));
    memcpy(to->parameters, vectors->parameters, sizes->parameters * sizeof(float));
    memcpy(to->buffers, vectors->buffers, sizes->buffers * sizeof(float));
    for (int i = 0; i < sizes->state_count; i++)
        memcpy(to->state[i], vectors->state[i], sizes->trained * sizeof(float));
    release_model(vectors);
    borrow(vectors, to);

out:
    return status;
}

fth_status fth_model_vectors_move_gradients(fth_model_vectors *vectors, float *to)
{
    float **used = used_gradients(vectors);
    fth_status status = require_host_memory(vectors->device);
    if (status != FTH_OK)
        return status;
    if (!vectors->lent_gradients)
        vectors->device->backend->release(vectors->device, *used);
    *used = to;
    vectors->lent_gradients = true;
    return FTH_OK;
}
