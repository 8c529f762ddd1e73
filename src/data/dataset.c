/* Opens data sets: built-in ones by name, others by their files. A new file format is a file
 * with an fth_dataset_format and a row of FTH_DATASET_FORMATS; a new built-in set is a file with
 * an fth_generator and a row of FTH_GENERATORS. */
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "data/archive/blob.h"
#include "data/array/generator.h"
#include "data/image/image_set.h"

#define FTH_LIST(name) &fth_format_##name,
static const fth_dataset_format *const formats[] = {FTH_DATASET_FORMATS(FTH_LIST)};
#undef FTH_LIST

#define FTH_LIST(name) &fth_generator_##name,
static const fth_generator *const generators[] = {FTH_GENERATORS(FTH_LIST)};
#undef FTH_LIST

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

/* ---- folders ---- */

/* "; skipped 2 files ..." for a folder that may hold images in other formats only. free() it. */
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
            return formats[i]->open(folder, options, dataset);
        char *inner = formats[i]->subfolder ? fth_path_join(folder, formats[i]->subfolder) : NULL;
        if (inner && formats[i]->probe(inner)) {
            fth_status status = formats[i]->open(inner, options, dataset);
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

/* ---- files and addresses ---- */

/* Image sets are the fallback: the name of an archive need not tell what it is. */
static fth_status open_address(const char *address, const fth_dataset_options *options, fth_dataset *dataset)
{
    fth_status status = FTH_OK;
    const fth_dataset_format *chosen = &fth_format_images;
    for (size_t i = 0; i < FTH_COUNT_OF(formats); i++) {
        bool fits = false;
        if (formats[i]->probe_address)
            FTH_TRY(formats[i]->probe_address(address, options, &fits));
        if (fits)
            chosen = formats[i];
    }
    FTH_TRY(chosen->open(address, options, dataset));

out:
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

/* ---- what all sets share ---- */

fth_status fth_dataset_prepare(const fth_dataset_options *options, const fth_raw_images *raw, fth_dataset *dataset)
{
    fth_dataset_info *info = &dataset->info;
    const fth_transform *transforms = dataset->transforms;
    fth_status status = fth_transforms_resolve(options, raw, dataset->transforms);
    if (status != FTH_OK)
        return status;
    dataset->raw = *raw;
    dataset->transformed = raw->files || !fth_transform_is_identity(&transforms[FTH_TRAIN], raw->height, raw->width) ||
                           !fth_transform_is_identity(&transforms[FTH_VALIDATION], raw->height, raw->width);
    info->height = transforms[FTH_TRAIN].height;
    info->width = transforms[FTH_TRAIN].width;
    info->normalization = transforms[FTH_TRAIN].normalization;
    return FTH_OK;
}

static int32_t get_class(const void *context, int64_t sample)
{
    const fth_dataset *dataset = context;
    return dataset->kind->label(dataset, FTH_TRAIN, sample);
}

fth_status fth_dataset_hold_out(const fth_dataset_options *options, const char *name, fth_dataset *dataset)
{
    const fth_sample_classes classes = {.classes = dataset->info.classes, .get = get_class, .context = dataset};
    return fth_held_out_choose(options, name, "image", &classes, &dataset->info, &dataset->held_out);
}

/* Refuses options for images. */
static fth_status refuse_transforms(const fth_dataset_options *options, const fth_dataset *dataset)
{
    const char *option = options->image_size > 0                                           ? "--image-size"
                         : options->transform && *options->transform                       ? "--transform"
                         : options->validation_transform && *options->validation_transform ? "--validation-transform"
                         : options->normalization.channels > 0                             ? "--normalize"
                                                                                           : NULL;
    return option ? fth_fail(FTH_INVALID, "%s is for images; %s is text", option, dataset->info.name) : FTH_OK;
}

static const fth_dataset_scheme *find_scheme(const fth_dataset_options *options, const char *address)
{
    for (size_t i = 0; options->schemes && options->schemes[i]; i++)
        if (options->schemes[i]->fits(address))
            return options->schemes[i];
    return NULL;
}

/* ---- opening ---- */

/* Requests of this thread end when the stop is asked, unless the caller already uses a switch. */
static fth_status use_switch(const fth_dataset_options *options, fth_dataset *opening)
{
    if (fth_store_switch_used())
        return FTH_OK;
    opening->stopping = fth_stop_progress(options->stop);
    fth_status status = fth_store_switch_create(&opening->stopping, NULL, &opening->requests);
    fth_store_switch_use(opening->requests);
    return status;
}

static const fth_generator *find_generator(const char *name)
{
    for (size_t i = 0; i < FTH_COUNT_OF(generators); i++)
        if (strcmp(name, generators[i]->info.name) == 0)
            return generators[i];
    return NULL;
}

fth_status fth_dataset_open(const char *given, const fth_dataset_options *options, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    fth_dataset *opened = NULL;
    bool switched = false;
    const fth_dataset_scheme *scheme = find_scheme(options, given);
    if (scheme)
        return scheme->open(given, options, dataset);
    char *name = fth_address_public(given);

    FTH_REQUIRE(name, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_address_remember(given));
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    FTH_TRY(use_switch(options, opened));
    switched = opened->requests != NULL;
    if (find_generator(name))
        FTH_TRY(fth_generated_set_open(find_generator(name), options, opened));
    else if (fth_folder_exists(name))
        FTH_TRY(open_folder(name, options, opened));
    else if (strstr(name, "://") || fth_file_exists(name))
        FTH_TRY(open_address(name, options, opened));
    else
        FTH_TRY(fail_unknown(name));
    if (opened->info.modality == FTH_MODALITY_TEXT)
        FTH_TRY(refuse_transforms(options, opened));
    *dataset = opened;
    opened = NULL;

out:
    if (switched)
        fth_store_switch_use(NULL);
    free(name);
    fth_dataset_free(opened);
    return status;
}

void fth_dataset_free(fth_dataset *dataset)
{
    if (!dataset)
        return;
    if (dataset->kind)
        dataset->kind->free(dataset->state);
    fth_bad_images_free(dataset->bad);
    fth_held_out_release(&dataset->held_out);
    fth_store_switch_free(dataset->requests);
    free(dataset);
}

const fth_dataset_info *fth_dataset_get_info(const fth_dataset *dataset)
{
    return &dataset->info;
}

const fth_skipped_files *fth_dataset_get_skipped_files(const fth_dataset *dataset)
{
    const fth_image_set *images = fth_dataset_images(dataset);
    return images ? &images->index.skipped : NULL;
}
