/* A data set kept on the device: batches are then made there, from recipes, and only those cross the bus.
 *
 * For sets that are in memory as bytes. What comes out is what the loader would have made, bit for bit, so a run may go
 * on with or without it. */
#include <stdlib.h>
#include <string.h>

#include "train/engine_internal.h"

/* Reads `count` images from `first` on. */
static fth_status read_images(const fth_dataset *dataset, fth_split split, int64_t first, int64_t count, size_t size,
                              uint8_t *pixels)
{
    bool failed = false;
#pragma omp parallel for schedule(dynamic, 64)
    for (int64_t i = 0; i < count; i++) {
        int32_t label;
        if (fth_dataset_read(dataset, split, first + i, pixels + (size_t)i * size, &label) != FTH_OK) {
#pragma omp atomic write
            failed = true; /* messages belong to a thread: this one reads it again */
        }
    }
    fth_status status = FTH_OK;
    for (int64_t i = 0; failed && status == FTH_OK && i < count; i++) {
        int32_t label;
        status = fth_dataset_read(dataset, split, first + i, pixels + (size_t)i * size, &label);
    }
    return status;
}

static fth_status copy_split(fth_engine *engine, const fth_dataset *dataset, fth_split split, uint8_t *pixels)
{
    enum { PIECE_BYTES = 16 << 20 };
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const size_t size = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
    const int64_t count = info->count[split], piece = PIECE_BYTES / (int64_t)size > 0 ? PIECE_BYTES / (int64_t)size : 1;
    uint8_t *host = NULL;

    FTH_TRY(fth_allocate((size_t)piece, size, &host));
    for (int64_t first = 0; first < count; first += piece) {
        int64_t some = count - first < piece ? count - first : piece;
        FTH_TRY(read_images(dataset, split, first, some, size, host));
        FTH_TRY(engine->backend->copy_in(engine->device, pixels + (size_t)first * size, host, (size_t)some * size));
    }

out:
    free(host);
    return status;
}

/* A quarter of the memory that is free, so that a plan is never too large because of it. */
bool fth_engine_has_room(fth_engine *engine, size_t size_bytes)
{
    size_t free_bytes, total_bytes;
    const fth_backend_accelerator *accelerator = engine->backend->accelerator;
    if (!accelerator) /* the device is the machine itself */
        return true;
    return accelerator->free_memory(engine->device, &free_bytes, &total_bytes) == FTH_OK &&
           size_bytes <= free_bytes / 4;
}

fth_status fth_engine_keep_data(fth_engine *engine, const fth_dataset *dataset, bool *kept)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const size_t size = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
    const char *asked = getenv("FARTHING_DATA_ON_DEVICE");
    bool wanted = !asked || strcmp(asked, "0") != 0;

    *kept = false;
    if (!wanted || !engine->backend->batches || fth_dataset_is_transformed(dataset) ||
        info->channels > FTH_GATHER_CHANNELS || info->count[FTH_TRAIN] > INT32_MAX ||
        !fth_engine_has_room(engine, size * (size_t)(info->count[FTH_TRAIN] + info->count[FTH_VALIDATION])))
        return FTH_OK;
    engine->gather = (fth_gather){.channels = info->channels, .height = info->height, .width = info->width};
    for (int c = 0; c < info->channels; c++)
        fth_dataset_normalization(info, c, &engine->gather.scale[c], &engine->gather.shift[c]);
    for (int split = 0; split < 2; split++) {
        void *memory = NULL;
        FTH_TRY(engine->backend->allocate(engine->device, size * (size_t)info->count[split], &memory));
        engine->data[split] = memory;
        FTH_TRY(copy_split(engine, dataset, (fth_split)split, engine->data[split]));
    }
    *kept = true;

out:
    return status;
}

fth_status fth_engine_gather(fth_engine *engine, const fth_batch *batch, fth_plan_mode mode, fth_plan *plan)
{
    fth_split split = mode == FTH_PLAN_TRAIN ? FTH_TRAIN : FTH_VALIDATION;
    if (engine->options.dataset && engine->backend->host_memory && batch->recipes)
        return fth_dataset_make_images(engine->options.dataset, split, batch->recipes, batch->count,
                                       fth_plan_input(plan, engine->images));
    fth_gather gather = engine->gather;
    gather.pixels = engine->data[split];
    gather.recipes = batch->recipes;
    gather.count = batch->count;
    if (!gather.pixels || !batch->recipes)
        return fth_fail(FTH_INVALID, "batch %lld has neither images nor data on the device to make them from",
                        (long long)batch->number);
    return fth_plan_gather_input(plan, engine->images, &gather);
}
