/* Batches of text, packed: the tokens of their samples one after the other. Tokens are in memory,
 * so a batch is made when it is asked for, in microseconds, without threads. */
#include <stdlib.h>
#include <string.h>

#include "data/loader/loader.h"
#include "data/text/length_order.h"
#include "data/text/text_pack.h"
#include "data/text/text_set.h"

typedef struct text_loader {
    fth_loader base;
    const fth_text_set *set;
    fth_split split;
    int classes;
    fth_batch_sequence sequence;
    int64_t next;                /* the place of the next batch */
    fth_length_order *by_length; /* NULL: in the sampler's order */
    int64_t *samples;            /* (batch) the samples of the whole batch */
    fth_text_pack pack;          /* room for a batch of the longest samples */
    int32_t *labels;             /* (batch) */
    float *targets;              /* (batch, classes) */
    fth_batch batch;             /* the one that is lent */
} text_loader;

fth_status fth_text_loader_check(const fth_dataset *dataset, const fth_loader_options *options)
{
    fth_status status = FTH_OK;
    const char *name = dataset->info.name;
    FTH_REQUIRE(!options->augmentation.flip && options->augmentation.crop_padding == 0, FTH_INVALID,
                "--augment is for images; %s is text", name);
    FTH_REQUIRE(!options->by_index && !options->recipes, FTH_UNSUPPORTED,
                "%s is text, which comes in batches and not as single images", name);
    FTH_REQUIRE(options->batch <= INT32_MAX / (dataset->info.text.longest + 1), FTH_INVALID,
                "a batch of %lld texts of up to %s is too large", (long long)options->batch,
                FTH_COUNTED(dataset->info.text.longest, "token"));

out:
    return status;
}

static void free_loader(fth_loader *base)
{
    text_loader *loader = (text_loader *)base;
    fth_length_order_free(loader->by_length);
    free(loader->samples);
    fth_text_pack_release(&loader->pack);
    free(loader->labels);
    free(loader->targets);
    free(loader);
}

static void fill(text_loader *loader)
{
    const double began_s = fth_clock_seconds();
    fth_batch *batch = &loader->batch;
    const uint32_t *lengths = fth_text_set_lengths(loader->set, loader->split);
    const int64_t epoch = fth_batch_sequence_epoch(&loader->sequence, batch),
                  position = fth_batch_sequence_position(&loader->sequence, batch);
    int64_t first_token = 0;

    if (loader->by_length)
        fth_length_order_get(loader->by_length, epoch, position, batch->whole, loader->samples);
    else
        fth_sampler_indices(&loader->sequence.sampler, epoch, position, batch->whole, loader->samples);
    for (int64_t i = 0; i < batch->first; i++)
        first_token += lengths[loader->samples[i]];
    loader->pack.count = loader->pack.token_count = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        const fth_text_sample sample = fth_text_set_get(loader->set, loader->split, loader->samples[batch->first + i]);
        fth_text_pack_add(&loader->pack, sample.tokens, sample.count, sample.first_count);
        if (loader->labels)
            loader->labels[i] = sample.label;
        else
            memcpy(loader->targets + i * loader->classes, sample.targets, (size_t)loader->classes * sizeof(float));
    }
    batch->text = fth_text_pack_get(&loader->pack, first_token);
    batch->labels = loader->labels;
    batch->targets = loader->targets;
    batch->decode_seconds = fth_clock_seconds() - began_s;
}

static fth_status next(fth_loader *base, fth_deadline deadline, const fth_batch **batch)
{
    text_loader *loader = (text_loader *)base;
    (void)deadline;
    if (loader->next >= loader->sequence.end)
        return FTH_OK;
    loader->batch = fth_batch_sequence_describe(&loader->sequence, loader->next++);
    fill(loader);
    *batch = &loader->batch;
    return FTH_OK;
}

static const fth_loader_kind kind = {.next = next, .free = free_loader};

fth_status fth_text_loader_open(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **opened)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = &dataset->info;
    const size_t batch = (size_t)options->batch;
    text_loader *loader = NULL;

    FTH_TRY(fth_allocate(1, sizeof *loader, &loader));
    loader->base.kind = &kind;
    loader->set = dataset->state;
    loader->split = options->split;
    loader->classes = info->classes;
    loader->sequence = fth_batch_sequence_create(dataset, options);
    loader->next = options->first_batch;
    if (options->by_length)
        FTH_TRY(fth_length_order_create(&loader->sequence.sampler, fth_text_set_lengths(loader->set, options->split),
                                        options->batch, &loader->by_length));
    FTH_TRY(fth_allocate(batch, sizeof *loader->samples, &loader->samples));
    FTH_TRY(fth_text_pack_reserve(&loader->pack, options->batch, options->batch * info->text.longest));
    if (info->text.label == FTH_LABEL_CLASS)
        FTH_TRY(fth_allocate(batch, sizeof *loader->labels, &loader->labels));
    else
        FTH_TRY(fth_allocate(batch * (size_t)info->classes, sizeof *loader->targets, &loader->targets));
    *opened = &loader->base;
    loader = NULL;

out:
    if (loader)
        free_loader(&loader->base);
    return status;
}
