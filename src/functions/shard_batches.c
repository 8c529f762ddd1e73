/* See shard_batches.h. */
#include "functions/shard_batches.h"

#include <stdlib.h>

struct fth_shard_batches {
    fth_loader *loader;
    fth_sampler sampler;
    int64_t epoch;
    int64_t number; /* of the epoch's first batch, in the loader */
    int64_t base;   /* added to batch numbers, so that each shard has its own, and its own dropout */
    size_t image_floats;
    int64_t *samples;
    float *images;
    int32_t *labels;
};

/* A number for each name, of 24 bits (FNV-1a, folded). */
static int64_t hash_name(const char *name)
{
    uint32_t hash = 2166136261u;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        hash = (hash ^ *c) * 16777619u;
    return (int64_t)((hash >> 24) ^ (hash & 0xffffff));
}

fth_status fth_shard_batches_open(const fth_dataset *dataset, const fth_shard_lease *lease, int64_t batch,
                                  fth_shard_batches **result)
{
    fth_status status = FTH_OK;
    fth_shard_batches *batches = NULL;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const int64_t samples = info->count[FTH_TRAIN];
    const int64_t loaded = batch < samples ? batch : samples; /* a loader's batch is at most its set */

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *batches, &batches));
    batches->sampler = fth_shard_sampler(lease->seed, lease->shard, lease->samples);
    batches->epoch = lease->epoch;
    batches->number = lease->epoch * fth_batches_per_epoch(samples, loaded);
    batches->base = hash_name(lease->shard) << 38 | (lease->epoch * lease->samples & (((int64_t)1 << 37) - 1));
    batches->image_floats = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
    FTH_TRY(fth_allocate((size_t)batch, sizeof *batches->samples, &batches->samples));
    FTH_TRY(fth_allocate((size_t)batch, sizeof *batches->labels, &batches->labels));
    FTH_TRY(fth_allocate_aligned((size_t)batch * batches->image_floats * sizeof(float), &batches->images));
    FTH_TRY(fth_loader_open(
        dataset, &(fth_loader_options){.split = FTH_TRAIN, .batch = loaded, .seed = lease->seed, .by_index = true},
        &batches->loader));
    *result = batches;
    batches = NULL;

out:
    fth_shard_batches_free(batches);
    return status;
}

void fth_shard_batches_free(fth_shard_batches *batches)
{
    if (!batches)
        return;
    fth_loader_free(batches->loader);
    free(batches->samples);
    free(batches->images);
    free(batches->labels);
    free(batches);
}

fth_status fth_shard_batches_get(fth_shard_batches *batches, int64_t position, int64_t count, fth_batch *batch)
{
    fth_status status = FTH_OK;

    fth_sampler_indices(&batches->sampler, batches->epoch, position, count, batches->samples);
    for (int64_t i = 0; i < count; i++)
        FTH_TRY(fth_loader_get(batches->loader, batches->number, batches->samples[i],
                               batches->images + (size_t)i * batches->image_floats, &batches->labels[i]));
    *batch = (fth_batch){.images = batches->images,
                         .labels = batches->labels,
                         .count = count,
                         .number = batches->base + position,
                         .epoch = batches->epoch};

out:
    return status;
}
