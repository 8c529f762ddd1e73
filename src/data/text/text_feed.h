/* Batches of text, packed: the tokens of their samples one behind the other. Tokens are in memory,
 * so a batch is made when it is asked for, in microseconds: there are no threads. */
#ifndef FTH_DATA_TEXT_FEED_H
#define FTH_DATA_TEXT_FEED_H

#include "data/data.h"

typedef struct fth_text_feed fth_text_feed;

/* `sampler` is copied. The data set outlives the feed. */
fth_status fth_text_feed_create(const fth_dataset *dataset, const fth_loader_options *options,
                                const fth_sampler *sampler, fth_text_feed **feed);
void fth_text_feed_free(fth_text_feed *feed);

/* Fills a batch of which `described` says count, whole, first and so on: its samples are those of
 * the epoch's order from `position` on, which is where the whole batch begins. Lent until the next
 * call. */
const fth_batch *fth_text_feed_fill(fth_text_feed *feed, int64_t epoch, int64_t position, const fth_batch *described);

#endif
