/* See loader.h: what all loaders share. */
#include "data/loader/loader.h"

fth_status fth_loader_check(const fth_dataset *dataset, const fth_loader_options *options)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = &dataset->info;
    const bool text = info->modality == FTH_MODALITY_TEXT;
    const char *noun = text ? "text" : "image";
    int64_t count = fth_share_samples(options->share, info->count[options->split]);

    FTH_REQUIRE(count > 0, FTH_INVALID, "the data set %s has zero %ss to load", info->name, noun);
    FTH_REQUIRE(options->batch >= 1, FTH_INVALID, "a batch of %lld samples; it needs at least 1",
                (long long)options->batch);
    FTH_REQUIRE(options->batch <= count, FTH_INVALID, "a batch of %lld is larger than the %lld %s %ss of %s",
                (long long)options->batch, (long long)count, options->split == FTH_TRAIN ? "training" : "validation",
                noun, info->name);
    FTH_REQUIRE(options->threads >= 0 && options->threads <= FTH_MAX_LOADER_THREADS, FTH_INVALID,
                "%d loader threads; there may be 1 to %d, or 0 to have it chosen", options->threads,
                FTH_MAX_LOADER_THREADS);
    FTH_REQUIRE(options->first_batch >= 0 && options->batch_limit >= 0, FTH_INVALID,
                "the first batch (%lld) and the limit of batches (%lld) cannot be negative",
                (long long)options->first_batch, (long long)options->batch_limit);
    FTH_REQUIRE(options->stride >= 0, FTH_INVALID, "every %lld-th batch: the stride cannot be negative",
                (long long)options->stride);
    FTH_REQUIRE(!options->by_length || text, FTH_INVALID, "batches by length are for text; %s has images", info->name);
    FTH_TRY(dataset->kind->check_loader(dataset, options));

out:
    return status;
}

fth_status fth_loader_open(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **loader)
{
    fth_status status = fth_loader_check(dataset, options);
    return status == FTH_OK ? dataset->kind->open_loader(dataset, options, loader) : status;
}

fth_status fth_loader_open_for_session(const fth_dataset *dataset, const fth_loader_options *options, void *session,
                                       fth_loader **loader)
{
    fth_status status = fth_loader_check(dataset, options);
    return status == FTH_OK ? fth_image_loader_open_for_session(dataset, options, session, false, loader) : status;
}

void fth_loader_free(fth_loader *loader)
{
    if (loader)
        loader->kind->free(loader);
}

fth_status fth_loader_next(fth_loader *loader, fth_deadline deadline, const fth_batch **batch)
{
    *batch = NULL;
    return loader->kind->next(loader, deadline, batch);
}

fth_status fth_loader_get(fth_loader *loader, int64_t number, int64_t sample, float *image, int32_t *label)
{
    return loader->kind->get ? loader->kind->get(loader, number, sample, image, label)
                             : fth_fail(FTH_INVALID, "sample %lld of batch %lld: this loader gives batches only",
                                        (long long)sample, (long long)number);
}

/* ---- which samples a batch has ---- */

static int64_t find_end(const fth_loader_options *options, int64_t stride)
{
    if (options->batch_limit == 0)
        return INT64_MAX;
    int64_t left = options->batch_limit > options->first_batch ? options->batch_limit - options->first_batch : 0;
    return options->first_batch + (left + stride - 1) / stride;
}

fth_batch_sequence fth_batch_sequence_create(const fth_dataset *dataset, const fth_loader_options *options)
{
    fth_batch_sequence sequence = {.sampler = {.seed = options->own_order ? options->order_seed : options->seed,
                                               .count = dataset->info.count[options->split],
                                               .shuffle = options->shuffle,
                                               .share = options->share},
                                   .part = options->part,
                                   .batch = options->batch,
                                   .first = options->first_batch,
                                   .stride = options->stride > 0 ? options->stride : 1};
    if (options->own_order && options->rotation > 0) {
        sequence.sampler.rotation = options->rotation % sequence.sampler.count;
        sequence.epochs_later = options->rotation / sequence.sampler.count;
    }
    sequence.samples = fth_share_samples(options->share, sequence.sampler.count);
    sequence.batches_per_epoch = fth_batches_per_epoch(sequence.samples, options->batch);
    sequence.end = find_end(options, sequence.stride);
    return sequence;
}

int64_t fth_batch_sequence_number(const fth_batch_sequence *sequence, int64_t place)
{
    return sequence->first + (place - sequence->first) * sequence->stride;
}

fth_batch fth_batch_sequence_describe(const fth_batch_sequence *sequence, int64_t place)
{
    int64_t number = fth_batch_sequence_number(sequence, place);
    int64_t left = sequence->samples - number % sequence->batches_per_epoch * sequence->batch;
    int64_t whole = left < sequence->batch ? left : sequence->batch;
    return (fth_batch){.count = fth_part_samples(sequence->part, whole),
                       .whole = whole,
                       .first = fth_part_begin(sequence->part, whole),
                       .number = number,
                       .epoch = number / sequence->batches_per_epoch};
}

int64_t fth_batch_sequence_epoch(const fth_batch_sequence *sequence, const fth_batch *batch)
{
    return batch->epoch + sequence->epochs_later;
}

int64_t fth_batch_sequence_position(const fth_batch_sequence *sequence, const fth_batch *batch)
{
    return batch->number % sequence->batches_per_epoch * sequence->batch;
}
