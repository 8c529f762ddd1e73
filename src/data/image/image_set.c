/* Opens sets of image files and chooses the size and the transforms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/image_set.h"
#include "data/loader/loader.h"

enum { SIZE_SAMPLES = 32, SMALL_SIDE = 96 };

static void free_set(void *state)
{
    fth_image_set *set = state;
    if (!set)
        return;
    fth_image_index_free(&set->index);
    fth_image_source_free(&set->places);
    fth_decoded_cache_free(set->cache);
    free(set->source);
    free(set);
}

/* ---- samples ---- */

size_t fth_image_set_find(const fth_dataset *dataset, fth_split split, int64_t sample)
{
    const fth_image_set *set = dataset->state;
    int64_t first = dataset->held_out.any ? 0 : set->index.first[split];
    return (size_t)(first + fth_held_out_place(&dataset->held_out, split, sample));
}

static int32_t find_label(const fth_dataset *dataset, fth_split split, int64_t index)
{
    const fth_image_set *set = dataset->state;
    return fth_image_index_class(&set->index, fth_image_set_find(dataset, split, index));
}

static char *describe_sample(const fth_dataset *dataset, fth_split split, int64_t index)
{
    const fth_image_set *set = dataset->state;
    return fth_image_index_path(&set->index, &set->index.entries[fth_image_set_find(dataset, split, index)]);
}

static fth_status read_sample(const fth_dataset *dataset, const fth_sample_request *request, int64_t index,
                              fth_image_worker *worker, fth_raw_sample *raw)
{
    const fth_image_set *set = dataset->state;
    const size_t entry = fth_image_set_find(dataset, request->split, index);
    fth_status status = fth_image_set_load(set, entry, worker, raw);
    raw->label = fth_image_index_class(&set->index, entry);
    return status;
}

static size_t expect(const fth_dataset *dataset, void *session, fth_split split, const int64_t *samples, size_t count,
                     double needed_s)
{
    enum { PART = 64 };
    const fth_image_set *set = dataset->state;
    (void)session;
    for (size_t begin = 0, noted = 0; begin < count; begin += noted) {
        size_t numbers[PART], part = count - begin < PART ? count - begin : PART;
        for (size_t i = 0; i < part; i++)
            numbers[i] = fth_image_set_find(dataset, split, samples[begin + i]);
        noted = set->places.kind->expect(set->places.state, &set->index, numbers, part, needed_s);
        if (noted < part)
            return begin + noted;
    }
    return count;
}

void fth_image_set_expect_next(const fth_image_set *set, size_t entry)
{
    enum { AHEAD = 512, PART = 64 };
    if (!set->places.kind->expect || entry % PART != 0)
        return;
    for (size_t at = entry == 0 ? 0 : entry + AHEAD - PART; at < entry + AHEAD && at < set->index.count; at++)
        set->places.kind->expect(set->places.state, &set->index, &at, 1,
                                 0); /* if there is no room, it is read when it is needed */
}

/* ---- sizes and transforms ---- */

/* The common size of some images spread over the set, if there is one and it is small; else 0. */
static fth_status find_common_size(const fth_image_set *set, const fth_stop *stop, int *width, int *height)
{
    fth_status status = FTH_OK;
    fth_image_worker *worker = NULL;
    int64_t count = set->index.counts[FTH_TRAIN], looked = count < SIZE_SAMPLES ? count : SIZE_SAMPLES;
    bool first = true;

    size_t numbers[SIZE_SAMPLES];

    *width = *height = 0;
    FTH_TRY(fth_image_worker_create(&worker));
    worker->patience.stop = stop ? &stop->asked : NULL;
    for (int64_t i = 0; i < looked; i++)
        numbers[i] = (size_t)(i * count / looked);
    if (set->places.kind->expect)
        set->places.kind->expect(set->places.state, &set->index, numbers, (size_t)looked, 0);
    for (int64_t i = 0; i < looked; i++) {
        const uint8_t *bytes;
        size_t size_bytes;
        fth_image_header header;
        status = fth_image_set_read(set, numbers[i], worker, &bytes, &size_bytes);
        if (status == FTH_OK)
            status = fth_decoder_begin(worker->decoder, bytes, size_bytes, &header);
        if (status != FTH_OK && status != FTH_CORRUPT)
            goto out;
        bool bad = status != FTH_OK;
        status = FTH_OK;
        if (bad)
            continue; /* the loader will count it */
        if (header.width > SMALL_SIDE || header.height > SMALL_SIDE ||
            (!first && (header.width != *width || header.height != *height))) {
            *width = *height = 0;
            break;
        }
        *width = header.width;
        *height = header.height;
        first = false;
    }

out:
    fth_image_worker_free(worker);
    return status;
}

static fth_status resolve_transforms(const fth_dataset_options *options, const fth_image_set *set, fth_dataset *dataset)
{
    fth_status status = FTH_OK;
    fth_raw_images raw = {.channels = FTH_IMAGE_CHANNELS, .files = true};

    FTH_TRY(find_common_size(set, options->stop, &raw.width, &raw.height));
    FTH_TRY(fth_normalization_parse("imagenet", &raw.normalization));
    FTH_TRY(fth_dataset_prepare(options, &raw, dataset));

out:
    return status;
}

static fth_status add_version(const fth_dataset *dataset, fth_version_hash *hash)
{
    const fth_image_set *set = dataset->state;
    for (size_t i = 0; i < set->index.count; i++) {
        char *path = fth_image_index_path(&set->index, &set->index.entries[i]);
        if (!path)
            return fth_fail(FTH_NO_MEMORY, "no memory for a path");
        fth_version_add_text(hash, path);
        set->places.kind->add_version(set->places.state, &set->index, i, hash);
        free(path);
    }
    return FTH_OK;
}

static bool explain(const fth_dataset *dataset, char *text, size_t size)
{
    const fth_image_source *places = &((const fth_image_set *)dataset->state)->places;
    return places->kind->explain && places->kind->explain(places->state, text, size);
}

static const fth_dataset_kind kind = {.name = "images",
                                      .free = free_set,
                                      .label = find_label,
                                      .read = read_sample,
                                      .describe_sample = describe_sample,
                                      .add_version = add_version,
                                      .expect = expect,
                                      .explain = explain,
                                      .check_loader = fth_image_loader_check,
                                      .open_loader = fth_image_loader_open};

fth_image_set *fth_dataset_images(const fth_dataset *dataset)
{
    return dataset->kind == &kind ? dataset->state : NULL;
}

/* ---- the whole ---- */

/* The name for runs and records: "photos" for "/data/photos/". Lives as long as the set. */
static void describe(const fth_image_set *set, const fth_transform *transform, fth_dataset_info *info)
{
    const char *slash = strrchr(set->source, '/');
    *info = (fth_dataset_info){.name = slash && slash[1] ? slash + 1 : set->source,
                               .classes = set->index.classes,
                               .class_names = (const char *const *)set->index.class_names,
                               .channels = FTH_IMAGE_CHANNELS,
                               .height = transform->height,
                               .width = transform->width,
                               .count = {set->index.counts[0], set->index.counts[1]},
                               .normalization = transform->normalization};
}

static fth_status open_image_set(const char *source, const fth_dataset_options *options, fth_dataset *dataset)
{
    fth_status status = FTH_OK;
    fth_image_set *set = NULL;

    FTH_TRY(fth_allocate(1, sizeof *set, &set));
    dataset->kind = &kind;
    dataset->state = set; /* freed with it */
    set->source = fth_format("%s", source);
    for (size_t length = strlen(set->source); length > 1 && set->source[length - 1] == '/';)
        set->source[--length] = '\0';
    FTH_TRY(fth_image_source_open(source, options, &set->index, &set->places));
    FTH_TRY(fth_bad_images_create(set->source, (int64_t)set->index.count, options->max_bad_images, &dataset->bad));
    dataset->expects = set->places.kind->expect != NULL;
    FTH_TRY(resolve_transforms(options, set, dataset));
    if (options->decoded_cache_bytes > 0)
        FTH_TRY(fth_decoded_cache_create(set->index.count, options->decoded_cache_bytes, &set->cache));
    describe(set, &dataset->transforms[FTH_TRAIN], &dataset->info);
    if (dataset->info.count[FTH_VALIDATION] == 0 && !options->whole)
        FTH_TRY(fth_dataset_hold_out(options, source, dataset));

out:
    return status;
}

const fth_dataset_format fth_format_images = {
    .name = "image files",
    .files = "train/<class>/*.jpg and val/<class>/*.jpg, or <class>/*" FTH_IMAGE_EXTENSIONS,
    .probe = fth_image_folder_probe,
    .open = open_image_set,
};
