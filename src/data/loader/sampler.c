/* The order of samples: a keyed permutation per epoch, computed one position at a time. */
#include "data/data.h"

/* A position of the share as a position in the whole order. */
static int64_t place_in_whole(const fth_sampler *sampler, int64_t position)
{
    if (sampler->share.of > 1)
        position = sampler->share.index + position * sampler->share.of;
    return sampler->rotation > 0 ? (position + sampler->rotation) % sampler->count : position;
}

static fth_random_key key_of(const fth_sampler *sampler, int64_t epoch)
{
    return fth_random_fork(fth_random_key_for(sampler->seed, FTH_RANDOM_SHUFFLE), (uint64_t)epoch);
}

int64_t fth_sampler_index(const fth_sampler *sampler, int64_t epoch, int64_t position)
{
    position = place_in_whole(sampler, position);
    if (!sampler->shuffle)
        return position;
    return (int64_t)fth_random_permute(key_of(sampler, epoch), (uint64_t)sampler->count, (uint64_t)position);
}

void fth_sampler_indices(const fth_sampler *sampler, int64_t epoch, int64_t position, int64_t count, int64_t *samples)
{
    for (int64_t i = 0; i < count; i++)
        samples[i] = place_in_whole(sampler, position + i);
    if (sampler->shuffle)
        fth_random_permute_all(key_of(sampler, epoch), (uint64_t)sampler->count, samples, (size_t)count);
}

int64_t fth_share_samples(fth_share share, int64_t count)
{
    return share.of > 1 ? (count - share.index + share.of - 1) / share.of : count;
}

int64_t fth_part_begin(fth_share part, int64_t count)
{
    return part.of > 1 ? count * part.index / part.of : 0;
}

int64_t fth_part_samples(fth_share part, int64_t count)
{
    fth_share next = {part.index + 1, part.of};
    return part.of > 1 ? fth_part_begin(next, count) - fth_part_begin(part, count) : count;
}

int64_t fth_batches_per_epoch(int64_t sample_count, int64_t batch)
{
    return sample_count / batch + (sample_count % batch != 0);
}
