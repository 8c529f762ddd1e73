/* Batch norm over a batch of which peers have a part each (fth_plan_options.synchronized): what
 * they sum up, the same on every back end, so that a GPU and a processor can be peers.
 *
 *     forward    elements of a channel, sum of x (C), sum of x * x (C)
 *     backward   elements of a channel, sum of g (C), sum of g * normalized x (C); g is dy, 0 where ReLU cut
 *
 * Everything is a double. Each peer takes its sums around a value near its mean and moves them to 0
 * at the end, so that only doubles meet the cancellation between sum(x * x) and the square of
 * sum(x): it costs digits that an f32 does not have. A part of different size, or empty, needs no
 * special treatment. Gradients of scale and shift are of a peer's own part, as all gradients of
 * parameters are until they are summed.
 *
 * All peers make these sums in the order of the graph's nodes. */
#ifndef FTH_BACKEND_BATCH_NORM_SUMS_H
#define FTH_BACKEND_BATCH_NORM_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/clip_and_scale.h"

static inline size_t fth_batch_norm_sum_count(int64_t channels)
{
    return (size_t)(1 + 2 * channels);
}

typedef struct fth_channel_statistics {
    double mean, variance; /* biased, as the normalization takes it */
    double unbiased;       /* variance, as the running one takes it; the biased one, 0, for a single element */
} fth_channel_statistics;

static inline FTH_ON_BOTH fth_channel_statistics fth_batch_norm_statistics(const double *sums, int64_t c,
                                                                           int64_t channels)
{
    const double elements = sums[0], mean = sums[1 + c] / elements;
    const double found = sums[1 + channels + c] / elements - mean * mean;
    const double variance = found < 0 ? 0 : found; /* NaN stays */
    const double unbiased = elements > 1 ? variance * (elements / (elements - 1)) : variance;
    const fth_channel_statistics statistics = {mean, variance, unbiased};
    return statistics;
}

static inline FTH_ON_BOTH void fth_batch_norm_move(float *running, double found, float momentum)
{
    *running = (float)(*running + momentum * (found - *running));
}

#endif
