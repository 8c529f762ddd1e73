/* Opens data sets: built-in ones by name, folders by what lies in them. A new format is a file with
 * an fth_file_format and a row in `formats`; a new built-in set is a file with an fth_generator and
 * a row in `generators`.
 *
 * A set of such files stays as their bytes; a sample is a pointer into them. Sets of image files
 * (image_set.c) may also be an archive or a URL, and are decoded for every batch. Where a set has
 * no validation part, samples are held out for it (held_out.h). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "data/image/image_set.h"
#include "data/source/provided_set.h"
#include "data/text/text_files.h"
#include "data/text/text_set.h"
#include "store/store.h"

static const fth_file_format *const formats[] = {&fth_format_idx, &fth_format_cifar, &fth_format_images,
                                                 &fth_format_text};

static const fth_generator *const generators[] = {&fth_generator_digits, &fth_generator_shapes,
                                                  &fth_generator_shapes_20};

const fth_dataset_builtin fth_dataset_builtins[] = {
    {"digits", "handwriting-like digits, 28×28 grey, 10 classes, 20000 + 4000 images, drawn as needed"},
    {"shapes", "coloured shapes, 32×32 colour, 10 classes, 20000 + 4000 images, drawn as needed"},
    {"shapes-20", "the same shapes, filled or drawn as a line, 20 classes, 20000 + 4000 images, drawn as needed"},
    {NULL, NULL},
};

fth_choice fth_dataset_choice(size_t index)
{
    if (index >= FTH_COUNT_OF(fth_dataset_builtins))
        return (fth_choice){0};
    return (fth_choice){fth_dataset_builtins[index].name, fth_dataset_builtins[index].summary};
}

/* Of a sample among all those for training. */
static int32_t get_class(const void *context, int64_t sample)
{
    const fth_dataset *dataset = context;
    if (dataset->images) {
        const fth_image_index *index = &dataset->images->index;
        return index->folders[index->entries[sample].folder].class_index;
    }
    if (dataset->memory) {
        const uint8_t *pixels;
        int32_t label;
        fth_memory_set_look(dataset->memory, FTH_TRAIN, sample, 0, &pixels, &label);
        return label;
    }
    const fth_segment *segment = dataset->parts[FTH_TRAIN].segments;
    for (; sample >= segment->count; segment++)
        sample -= segment->count;
    return segment->labels[(size_t)sample * segment->label_stride];
}

static fth_status hold_out(const fth_dataset_options *options, const char *folder, fth_dataset *dataset)
{
    const fth_sample_classes classes = {.classes = dataset->info.classes, .get = get_class, .context = dataset};
    return fth_held_out_choose(options, folder, "image", &classes, &dataset->info, &dataset->held_out);
}

static fth_status open_files(const fth_file_format *format, const char *folder, const fth_dataset_options *options,
                             fth_dataset *dataset)
{
    fth_status status = format->open(folder, options, dataset);
    if (status != FTH_OK)
        return status;
    if (dataset->text)
        return FTH_OK; /* which has held out what it has to */
    for (int split = 0; split < 2 && !dataset->images; split++) {
        dataset->info.count[split] = 0;
        for (int i = 0; i < dataset->parts[split].segment_count; i++)
            dataset->info.count[split] += dataset->parts[split].segments[i].count;
    }
    return dataset->info.count[FTH_VALIDATION] > 0 || options->whole ? FTH_OK : hold_out(options, folder, dataset);
}

/* "; skipped 2 files ..." for a folder without a data set, which may be one of images in other
 * formats; free() it. */
static char *describe_skipped(const char *folder)
{
    fth_image_index index = {0};
    char *text = NULL, *clause = NULL;
    if (fth_image_folder_scan(folder, &index) == FTH_OK && index.skipped.count > 0)
        text = fth_skipped_files_describe(&index.skipped);
    if (text)
        clause = fth_format("; %s", text);
    free(text);
    fth_image_index_free(&index);
    return clause;
}

static fth_status open_folder(const char *folder, const fth_dataset_options *options, fth_dataset *dataset)
{
    char looked_for[512] = "";
    for (size_t i = 0; i < FTH_COUNT_OF(formats); i++) {
        if (formats[i]->probe(folder))
            return open_files(formats[i], folder, options, dataset);
        char *inner = formats[i]->subfolder ? fth_path_join(folder, formats[i]->subfolder) : NULL;
        if (inner && formats[i]->probe(inner)) {
            fth_status status = open_files(formats[i], inner, options, dataset);
            free(inner);
            return status;
        }
        free(inner);
        size_t used = strlen(looked_for);
        snprintf(looked_for + used, sizeof looked_for - used, "%s%s (%s)", used ? "; " : "", formats[i]->files,
                 formats[i]->name);
    }
    char *skipped = describe_skipped(folder);
    fth_status status =
        fth_fail(FTH_INVALID, "no data set in the folder %s: looked for %s; MNIST and CIFAR-10 plain, .gz or .xz%s",
                 folder, looked_for, skipped ? skipped : "");
    free(skipped);
    return status;
}

static fth_status fail_unknown(const char *name)
{
    const char *names[FTH_COUNT_OF(generators) + 1] = {NULL};
    char list[128] = "";
    for (size_t i = 0; i < FTH_COUNT_OF(generators); i++) {
        names[i] = generators[i]->info.name;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", names[i]);
    }
    if (strchr(name, '/') || strchr(name, '.'))
        return fth_fail(FTH_INVALID, "there is no file or folder %s; the built-in sets are %s", name, list);
    const char *nearest = fth_nearest_name(name, names);
    return fth_fail(FTH_INVALID, "'%s' is neither a built-in data set nor a folder%s%s%s; the built-in sets are %s",
                    name, nearest ? " (did you mean '" : "", nearest ? nearest : "", nearest ? "'?)" : "", list);
}

/* Images in memory go through nothing, unless a transform or another size is asked for. */
fth_status fth_dataset_prepare(const fth_dataset_options *options, const fth_raw_images *raw, fth_dataset *dataset)
{
    fth_dataset_info *info = &dataset->info;
    const fth_transform *transforms = dataset->transforms;
    fth_status status = fth_transforms_resolve(options, raw, dataset->transforms);
    if (status != FTH_OK)
        return status;
    dataset->raw_height = raw->height;
    dataset->raw_width = raw->width;
    dataset->raw_normalization = raw->normalization;
    dataset->files = raw->files;
    dataset->transformed = raw->files || !fth_transform_is_identity(&transforms[FTH_TRAIN], raw->height, raw->width) ||
                           !fth_transform_is_identity(&transforms[FTH_VALIDATION], raw->height, raw->width);
    info->height = transforms[FTH_TRAIN].height;
    info->width = transforms[FTH_TRAIN].width;
    info->normalization = transforms[FTH_TRAIN].normalization;
    return FTH_OK;
}

static fth_status prepare_memory(const fth_dataset_options *options, fth_dataset *dataset)
{
    const fth_dataset_info *info = &dataset->info;
    return fth_dataset_prepare(options,
                               &(fth_raw_images){.channels = info->channels,
                                                 .height = info->height,
                                                 .width = info->width,
                                                 .normalization = info->normalization},
                               dataset);
}

/* What is asked for images cannot be done with text. */
static fth_status refuse_transforms(const fth_dataset_options *options, const fth_dataset *dataset)
{
    const char *option = options->image_size > 0                                           ? "--image-size"
                         : options->transform && *options->transform                       ? "--transform"
                         : options->validation_transform && *options->validation_transform ? "--validation-transform"
                         : options->normalization.channels > 0                             ? "--normalize"
                                                                                           : NULL;
    return option ? fth_fail(FTH_INVALID, "%s is for images; %s is text", option, dataset->info.name) : FTH_OK;
}

/* Who opens the address, if that is not this folder; NULL: nobody. */
static const fth_dataset_scheme *find_scheme(const fth_dataset_options *options, const char *address)
{
    for (size_t i = 0; options->schemes && options->schemes[i]; i++)
        if (options->schemes[i]->fits(address))
            return options->schemes[i];
    return NULL;
}

static bool may_go_on(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const fth_stop *stop = context;
    (void)done_bytes;
    (void)total_bytes;
    return !(stop && stop->asked);
}

/* Requests of this thread end when the stop is asked, unless the caller has a switch of its own for
 * that. */
static fth_status use_switch(const fth_dataset_options *options, fth_dataset *opening)
{
    if (fth_store_switch_used())
        return FTH_OK;
    opening->stopping = (fth_store_progress){.context = (void *)options->stop, .moved = may_go_on};
    fth_status status = fth_store_switch_create(&opening->stopping, NULL, &opening->requests);
    fth_store_switch_use(opening->requests);
    return status;
}

fth_status fth_dataset_open(const char *given, const fth_dataset_options *options, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    fth_dataset *opened = NULL;
    const fth_dataset *own = NULL;
    const fth_generator *generator = NULL;
    const fth_dataset_scheme *scheme = find_scheme(options, given);
    if (scheme)
        return scheme->open(given, options, dataset);
    char *name = fth_address_public(given);

    FTH_REQUIRE(name, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_address_remember(given));
    for (size_t i = 0; i < FTH_COUNT_OF(generators); i++)
        if (strcmp(name, generators[i]->info.name) == 0)
            generator = generators[i];
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    own = opened;
    FTH_TRY(use_switch(options, opened));
    if (generator) {
        opened->info = generator->info;
        FTH_TRY(fth_gallery_create(generator, &opened->gallery));
    } else if (fth_folder_exists(name)) {
        FTH_TRY(open_folder(name, options, opened));
    } else if (strstr(name, "://") || fth_file_exists(name)) {
        bool text = false;
        FTH_TRY(fth_text_address_probe(name, options, &text));
        FTH_TRY(open_files(text ? &fth_format_text : &fth_format_images, name, options, opened));
    } else {
        FTH_TRY(fail_unknown(name));
    }
    if (opened->text)
        FTH_TRY(refuse_transforms(options, opened));
    else if (!opened->images)
        FTH_TRY(prepare_memory(options, opened));
    *dataset = opened;
    opened = NULL;

out:
    if (own && own->requests)
        fth_store_switch_use(NULL);
    free(name);
    fth_dataset_free(opened);
    return status;
}

fth_status fth_dataset_create(const fth_image_arrays *arrays, const fth_dataset_options *options, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    fth_dataset *created = NULL;

    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    FTH_TRY(fth_memory_set_create(arrays, &created->info, &created->memory));
    if (created->info.count[FTH_VALIDATION] == 0 && !options->whole)
        FTH_TRY(hold_out(options, arrays->name, created));
    FTH_TRY(prepare_memory(options, created));
    *dataset = created;
    created = NULL;

out:
    fth_dataset_free(created);
    return status;
}

void fth_dataset_free(fth_dataset *dataset)
{
    if (!dataset)
        return;
    for (int i = 0; i < dataset->blob_count; i++)
        fth_blob_free(&dataset->blobs[i]);
    fth_gallery_free(dataset->gallery);
    fth_image_set_free(dataset->images);
    fth_memory_set_free(dataset->memory);
    fth_provided_samples_free(dataset->provided);
    fth_text_set_free(dataset->text);
    fth_held_out_release(&dataset->held_out);
    fth_store_switch_free(dataset->requests);
    free(dataset->class_name_text);
    free(dataset);
}

const fth_blob *fth_dataset_keep(fth_dataset *dataset, fth_load *load)
{
    assert(dataset->blob_count < FTH_MAX_BLOBS);
    fth_blob *blob = &dataset->blobs[dataset->blob_count++];
    *blob = load->blob;
    load->blob = (fth_blob){0};
    return blob;
}

bool fth_dataset_is_transformed(const fth_dataset *dataset)
{
    return dataset->transformed || dataset->provided;
}

const fth_dataset_info *fth_dataset_get_info(const fth_dataset *dataset)
{
    return &dataset->info;
}

static fth_status check_index(const fth_dataset *dataset, fth_split split, int64_t index)
{
    int64_t count = dataset->info.count[split];
    if (dataset->text)
        return fth_fail(FTH_UNSUPPORTED, "%s is text: it has no images to read", dataset->info.name);
    if (index >= 0 && index < count)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s: there is no sample %lld among the %lld for %s", dataset->info.name,
                    (long long)index, (long long)count, split == FTH_TRAIN ? "training" : "validation");
}

fth_status fth_dataset_look(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *scratch,
                            const uint8_t **pixels, int32_t *label)
{
    fth_status status = check_index(dataset, split, index);
    if (status != FTH_OK)
        return status;
    if (dataset->gallery) {
        fth_gallery_look(dataset->gallery, split, index, scratch, pixels, label);
        return FTH_OK;
    }
    if (dataset->provided) {
        *pixels = scratch;
        return fth_provided_look(dataset, split, index, scratch, label);
    }
    index = fth_held_out_place(&dataset->held_out, split, index);
    if (dataset->held_out.any)
        split = FTH_TRAIN;
    if (dataset->memory) {
        fth_memory_set_look(dataset->memory, split, index, fth_raw_bytes(dataset), pixels, label);
        return FTH_OK;
    }
    const fth_part *part = &dataset->parts[split];
    const fth_segment *segment = part->segments;
    for (; index >= segment->count; segment++)
        index -= segment->count;
    *pixels = segment->pixels + (size_t)index * segment->pixel_stride;
    *label = segment->labels[(size_t)index * segment->label_stride];
    return FTH_OK;
}

fth_status fth_dataset_read(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *pixels, int32_t *label)
{
    const uint8_t *found;
    fth_status status = check_index(dataset, split, index);
    if (status != FTH_OK)
        return status;
    if (dataset->transformed)
        return fth_sample_read(dataset, split, index, pixels, label);
    status = fth_dataset_look(dataset, split, index, pixels, &found, label);
    if (status == FTH_OK && found != pixels)
        memcpy(pixels, found, fth_image_bytes(&dataset->info));
    return status;
}

static fth_bad_images *find_bad_images(const fth_dataset *dataset)
{
    return dataset->images     ? dataset->images->bad
           : dataset->provided ? fth_provided_bad_images(dataset->provided)
                               : NULL;
}

const fth_skipped_files *fth_dataset_get_skipped_files(const fth_dataset *dataset)
{
    return dataset->images ? &dataset->images->index.skipped : NULL;
}

int64_t fth_dataset_bad_image_count(const fth_dataset *dataset)
{
    fth_bad_images *bad = find_bad_images(dataset);
    return bad ? fth_bad_images_count(bad) : 0;
}

const fth_bad_image *fth_dataset_get_bad_image(const fth_dataset *dataset, int64_t number)
{
    fth_bad_images *bad = find_bad_images(dataset);
    return bad ? fth_bad_images_get(bad, number) : NULL;
}
