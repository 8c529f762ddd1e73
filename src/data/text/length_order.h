/* Batches of samples of like length, where text is not padded but longer sequences take more than
 * their share of time and memory.
 *
 * The order of a sampler is taken in windows of some batches. The samples of a window are sorted by
 * length and cut into batches, which come in an order of their own; the smaller batch at the end of
 * an epoch stays there. It is a pure function of (sampler, batch, epoch, position), and each sample
 * comes once an epoch. */
#ifndef FTH_DATA_LENGTH_ORDER_H
#define FTH_DATA_LENGTH_ORDER_H

#include "data/data.h"

typedef struct fth_length_order fth_length_order;

/* `lengths`, by sample, outlive it. */
fth_status fth_length_order_create(const fth_sampler *sampler, const uint32_t *lengths, int64_t batch,
                                   fth_length_order **order);
void fth_length_order_free(fth_length_order *order);

/* The samples at the `count` positions from `position` on, which are of one batch. One thread at a
 * time. */
void fth_length_order_get(fth_length_order *order, int64_t epoch, int64_t position, int64_t count, int64_t *samples);

#endif
