/* See length_order.h. One window is kept sorted, since positions are usually consecutive. */
#include "data/text/length_order.h"

#include <stdlib.h>

enum { WINDOW_BATCHES = 50 }; /* as in Hugging Face's group_by_length */

struct fth_length_order {
    fth_sampler sampler;
    const uint32_t *lengths;
    int64_t batch, samples; /* of an epoch of the share */
    int64_t *window;        /* (size) samples of the window, in order */
    int64_t *scratch;
    uint64_t *keys;              /* length and position in the window */
    int64_t size;                /* of a whole window */
    int64_t epoch, begin, count; /* of the kept window; count 0: none */
};

fth_status fth_length_order_create(const fth_sampler *sampler, const uint32_t *lengths, int64_t batch,
                                   fth_length_order **order)
{
    fth_status status = FTH_OK;
    fth_length_order *created = NULL;

    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    created->sampler = *sampler;
    created->lengths = lengths;
    created->batch = batch;
    created->samples = fth_share_samples(sampler->share, sampler->count);
    created->size = WINDOW_BATCHES * batch < created->samples ? WINDOW_BATCHES * batch : created->samples;
    FTH_TRY(fth_allocate((size_t)created->size, sizeof *created->window, &created->window));
    FTH_TRY(fth_allocate((size_t)created->size, sizeof *created->scratch, &created->scratch));
    FTH_TRY(fth_allocate((size_t)created->size, sizeof *created->keys, &created->keys));
    *order = created;
    created = NULL;

out:
    fth_length_order_free(created);
    return status;
}

void fth_length_order_free(fth_length_order *order)
{
    if (!order)
        return;
    free(order->window);
    free(order->scratch);
    free(order->keys);
    free(order);
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void sort_window(fth_length_order *order, int64_t epoch, int64_t begin)
{
    const int64_t left = order->samples - begin, whole = WINDOW_BATCHES * order->batch;
    const int64_t count = left < whole ? left : whole, full = count / order->batch;
    const fth_random_key key = fth_random_fork(
        fth_random_fork(fth_random_key_for(order->sampler.seed, FTH_RANDOM_BATCH_ORDER), (uint64_t)epoch),
        (uint64_t)begin);

    fth_sampler_indices(&order->sampler, epoch, begin, count, order->scratch);
    for (int64_t i = 0; i < count; i++)
        order->keys[i] = (uint64_t)order->lengths[order->scratch[i]] << 32 | (uint64_t)i;
    qsort(order->keys, (size_t)count, sizeof *order->keys, compare_keys);
    for (int64_t i = 0; i < count; i++) {
        int64_t batch = i / order->batch;
        if (order->sampler.shuffle && batch < full)
            batch = (int64_t)fth_random_permute(key, (uint64_t)full, (uint64_t)batch);
        order->window[batch * order->batch + i % order->batch] = order->scratch[order->keys[i] & UINT32_MAX];
    }
    order->epoch = epoch;
    order->begin = begin;
    order->count = count;
}

void fth_length_order_get(fth_length_order *order, int64_t epoch, int64_t position, int64_t count, int64_t *samples)
{
    const int64_t begin = position - position % (WINDOW_BATCHES * order->batch);
    if (order->count == 0 || order->epoch != epoch || order->begin != begin)
        sort_window(order, epoch, begin);
    for (int64_t i = 0; i < count; i++)
        samples[i] = order->window[position - begin + i];
}
