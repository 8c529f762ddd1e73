/* See device_data.h. */
#include "train/engine/device_data.h"

#include <stdlib.h>
#include <string.h>

struct fth_device_data {
    fth_device *device;
    uint8_t *pixels[2]; /* by fth_split */
    fth_gather gather;  /* without a batch */
};

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

static fth_status copy_split(fth_device *device, const fth_dataset *dataset, fth_split split, uint8_t *pixels)
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
        FTH_TRY(device->backend->copy_in(device, pixels + (size_t)first * size, host, (size_t)some * size));
    }

out:
    free(host);
    return status;
}

/* True if the device can make batches of this set and has room for it. */
static bool can_hold(fth_device *device, const fth_dataset *dataset, size_t image_bytes)
{
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const char *asked = getenv("FARTHING_DATA_ON_DEVICE");
    if (asked && strcmp(asked, "0") == 0)
        return false;
    return device->backend->batches && !fth_dataset_is_transformed(dataset) && info->channels <= FTH_GATHER_CHANNELS &&
           info->count[FTH_TRAIN] <= INT32_MAX &&
           fth_device_has_room(device, image_bytes * (size_t)(info->count[FTH_TRAIN] + info->count[FTH_VALIDATION]));
}

fth_status fth_device_data_create(fth_device *device, const fth_dataset *dataset, fth_device_data **result)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const size_t size = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
    fth_device_data *data = NULL;

    *result = NULL;
    if (!can_hold(device, dataset, size))
        return FTH_OK;
    FTH_TRY(fth_allocate(1, sizeof *data, &data));
    data->device = device;
    data->gather = (fth_gather){.channels = info->channels, .height = info->height, .width = info->width};
    for (int c = 0; c < info->channels; c++)
        fth_dataset_normalization(info, c, &data->gather.scale[c], &data->gather.shift[c]);
    for (int split = 0; split < 2; split++) {
        void *memory = NULL;
        FTH_TRY(device->backend->allocate(device, size * (size_t)info->count[split], &memory));
        data->pixels[split] = memory;
        FTH_TRY(copy_split(device, dataset, (fth_split)split, data->pixels[split]));
    }
    *result = data;
    data = NULL;

out:
    fth_device_data_free(data);
    return status;
}

void fth_device_data_free(fth_device_data *data)
{
    if (!data)
        return;
    for (size_t i = 0; i < FTH_COUNT_OF(data->pixels); i++)
        if (data->pixels[i])
            data->device->backend->release(data->device, data->pixels[i]);
    free(data);
}

fth_status fth_device_data_gather(const fth_device_data *data, fth_split split, const fth_batch *batch, fth_plan *plan,
                                  fth_value images)
{
    fth_gather gather = data->gather;
    gather.pixels = data->pixels[split];
    gather.recipes = batch->recipes;
    gather.count = batch->count;
    return fth_plan_gather_input(plan, images, &gather);
}
