/* Batches of samples of similar length. Text is not padded, but long sequences take more than their
 * share of time and memory.
 *
 * The sampler's order is divided into windows of some batches. The samples of a window are sorted
 * by length and cut into batches, which are then shuffled; the smaller last batch of an epoch stays
 * last. The order is a pure function of (sampler, batch, epoch, position), and has each sample once
 * an epoch. */
#ifndef FTH_DATA_LENGTH_ORDER_H
#define FTH_DATA_LENGTH_ORDER_H

#include "data/data.h"

typedef struct fth_length_order fth_length_order;

/* `lengths`, by sample, outlives the order. */
fth_status fth_length_order_create(const fth_sampler *sampler, const uint32_t *lengths, int64_t batch,
                                   fth_length_order **order);
void fth_length_order_free(fth_length_order *order);

/* The samples at `count` positions from `position` on, all of one batch. One thread at a time. */
void fth_length_order_get(fth_length_order *order, int64_t epoch, int64_t position, int64_t count, int64_t *samples);

#endif
