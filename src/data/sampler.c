/* The order of samples: a keyed permutation per epoch, computed one position at a time. */
#include "data/data.h"

int64_t fth_sampler_index(const fth_sampler *sampler, int64_t epoch, int64_t position)
{
    if (sampler->share.of > 1)
        position = sampler->share.index + position * sampler->share.of;
    if (sampler->rotation > 0)
        position = (position + sampler->rotation) % sampler->count;
    if (!sampler->shuffle)
        return position;
    fth_random_key key = fth_random_fork(fth_random_key_for(sampler->seed, FTH_RANDOM_SHUFFLE), (uint64_t)epoch);
    return (int64_t)fth_random_permute(key, (uint64_t)sampler->count, (uint64_t)position);
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
