/* Prepares single image files for predictions, as a data set's images are prepared. */
#include <stdlib.h>
#include <string.h>

#include "data/image/image_set.h"

/* Brightness according to ITU-R BT.601, like Pillow's grey images. */
static void make_grey(const float *planes, int64_t area, float mean, float deviation, float *grey)
{
    for (int64_t i = 0; i < area; i++) {
        float brightness = 0.299F * planes[i] + 0.587F * planes[area + i] + 0.114F * planes[2 * area + i];
        grey[i] = (brightness - mean) / deviation;
    }
}

fth_status fth_image_load(const char *path, const fth_image_target *target, float *planes)
{
    fth_status status = FTH_OK;
    fth_image_worker *worker = NULL;
    fth_transform transform;
    fth_normalization normalization = target->normalization;
    const void *bytes = NULL;
    size_t size_bytes = 0;
    float *colours = NULL;
    bool grey = target->channels == 1;
    int64_t area = (int64_t)target->height * target->width;

    FTH_REQUIRE(grey || target->channels == FTH_IMAGE_CHANNELS, FTH_UNSUPPORTED,
                "image files have 3 channels, or 1 if they are grey; the model needs %d", target->channels);
    FTH_TRY(fth_transform_parse(target->transform, &transform));
    transform.height = target->height;
    transform.width = target->width;
    if (grey) /* computed from normalized colours */
        FTH_TRY(fth_normalization_spread(&(fth_normalization){1, {0}, {1}}, FTH_IMAGE_CHANNELS, &normalization));
    FTH_TRY(fth_file_map(path, &bytes, &size_bytes));
    FTH_REQUIRE(size_bytes <= FTH_MAX_IMAGE_FILE, FTH_CORRUPT, "%s: %zu bytes are more than an image may have", path,
                size_bytes);
    FTH_TRY(fth_image_worker_create(&worker));
    if (grey)
        FTH_TRY(fth_allocate((size_t)area * FTH_IMAGE_CHANNELS, sizeof *colours, &colours));

    status = fth_encoded_transform(bytes, size_bytes, worker, &transform, &normalization, (fth_random_key){0},
                                   grey ? colours : planes);
    if (status != FTH_OK) {
        status = fth_fail_within(status, "%s", path);
        goto out;
    }
    if (grey)
        make_grey(colours, area, target->normalization.mean[0], target->normalization.deviation[0], planes);

out:
    fth_image_worker_free(worker);
    fth_file_unmap(bytes, size_bytes);
    free(colours);
    return status;
}
