/* See text_feed.h. */
#include "data/text/text_feed.h"

#include <stdlib.h>
#include <string.h>

#include "data/text/length_order.h"
#include "data/text/text_pack.h"
#include "data/text/text_set.h"

struct fth_text_feed {
    const fth_text_set *set;
    fth_split split;
    int classes;
    fth_sampler sampler;
    fth_length_order *by_length; /* NULL: in the sampler's order */
    int64_t *samples;            /* (batch) of the whole batch */
    fth_text_pack pack;          /* room for a batch of the longest */
    int32_t *labels;             /* (batch) */
    float *targets;              /* (batch, classes) */
    fth_batch batch;             /* the one that is lent */
};

fth_status fth_text_feed_create(const fth_dataset *dataset, const fth_loader_options *options,
                                const fth_sampler *sampler, fth_text_feed **feed)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = &dataset->info;
    const size_t batch = (size_t)options->batch;
    fth_text_feed *created = NULL;

    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    created->set = dataset->text;
    created->split = options->split;
    created->classes = info->classes;
    created->sampler = *sampler;
    if (options->by_length)
        FTH_TRY(fth_length_order_create(sampler, fth_text_set_lengths(dataset->text, options->split), options->batch,
                                        &created->by_length));
    FTH_TRY(fth_allocate(batch, sizeof *created->samples, &created->samples));
    FTH_TRY(fth_text_pack_reserve(&created->pack, options->batch, options->batch * info->text.longest));
    if (info->text.label == FTH_LABEL_CLASS)
        FTH_TRY(fth_allocate(batch, sizeof *created->labels, &created->labels));
    else
        FTH_TRY(fth_allocate(batch * (size_t)info->classes, sizeof *created->targets, &created->targets));
    *feed = created;
    created = NULL;

out:
    fth_text_feed_free(created);
    return status;
}

void fth_text_feed_free(fth_text_feed *feed)
{
    if (!feed)
        return;
    fth_length_order_free(feed->by_length);
    free(feed->samples);
    fth_text_pack_release(&feed->pack);
    free(feed->labels);
    free(feed->targets);
    free(feed);
}

const fth_batch *fth_text_feed_fill(fth_text_feed *feed, int64_t epoch, int64_t position, const fth_batch *described)
{
    const double began = fth_clock_seconds();
    fth_batch *batch = &feed->batch;
    const uint32_t *lengths = fth_text_set_lengths(feed->set, feed->split);
    int64_t first_token = 0;

    *batch = *described;
    if (feed->by_length)
        fth_length_order_get(feed->by_length, epoch, position, batch->whole, feed->samples);
    else
        fth_sampler_indices(&feed->sampler, epoch, position, batch->whole, feed->samples);
    for (int64_t i = 0; i < batch->first; i++)
        first_token += lengths[feed->samples[i]];
    feed->pack.count = feed->pack.token_count = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        const fth_text_sample sample = fth_text_set_get(feed->set, feed->split, feed->samples[batch->first + i]);
        fth_text_pack_add(&feed->pack, sample.tokens, sample.count, sample.first_count);
        if (feed->labels)
            feed->labels[i] = sample.label;
        else
            memcpy(feed->targets + i * feed->classes, sample.targets, (size_t)feed->classes * sizeof(float));
    }
    batch->text = fth_text_pack_get(&feed->pack, first_token);
    batch->labels = feed->labels;
    batch->targets = feed->targets;
    batch->decode_seconds = fth_clock_seconds() - began;
    return batch;
}
