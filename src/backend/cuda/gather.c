/* Batches from a data set on the device: the recipes go there in one small copy, one launch makes
 * the images. */
#include "backend/cuda/memory.h"
#include "backend/cuda/recording.h"

static fth_status grow_recipes(cuda_device *cuda, size_t size_bytes)
{
    fth_status status = FTH_OK;
    if (size_bytes <= cuda->recipe_bytes)
        return FTH_OK;
    cuda_release(&cuda->base, cuda->recipes); /* waits for what may read it */
    cuda->recipes = NULL;
    cuda->recipe_bytes = 0;
    FTH_TRY(cuda_allocate(&cuda->base, size_bytes, &cuda->recipes));
    cuda->recipe_bytes = size_bytes;
out:
    return status;
}

fth_status cuda_gather_batch(fth_device *device, const fth_gather *gather, float *images)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    const size_t size_bytes = (size_t)gather->count * sizeof *gather->recipes;
    FTH_TRY(grow_recipes(cuda, size_bytes));
    FTH_TRY(cuda_copy_in(device, cuda->recipes, gather->recipes, size_bytes));
    cuda_gathering gathering = {.pixels = gather->pixels,
                                .channels = gather->channels,
                                .height = gather->height,
                                .width = gather->width,
                                .recipes = cuda->recipes,
                                .count = gather->count};
    for (int c = 0; c < CUDA_GATHER_CHANNELS; c++) {
        gathering.scale[c] = gather->scale[c];
        gathering.shift[c] = gather->shift[c];
    }
    CUDA_TRY(cuda_launch_gather(&cuda->launch, &gathering, images));
out:
    return status;
}
