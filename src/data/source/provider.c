/* Data sets whose samples somebody else provides (provider.h): their samples go the way of files
 * and of images in memory, from the moment that those have their bytes. */
#include "data/source/provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/image_set.h"
#include "data/source/provided_set.h"

/* A sample that cannot be had in this time ends the loading. It is asked for in short steps, so
 * that a loader that is closed does not wait for it. */
#define TAKE_TIMEOUT_S 60
#define TAKE_STEP_S    0.5

struct fth_provided_samples {
    fth_dataset_provider provider;
    char *name, *source, *version;
    char **class_names;
    int classes;
    fth_bad_images *bad;
};

void fth_provided_samples_free(fth_provided_samples *samples)
{
    if (!samples)
        return;
    if (samples->provider.free)
        samples->provider.free(samples->provider.context);
    for (int i = 0; samples->class_names && i < samples->classes; i++)
        free(samples->class_names[i]);
    free(samples->class_names);
    free(samples->name);
    free(samples->source);
    free(samples->version);
    fth_bad_images_free(samples->bad);
    free(samples);
}

/* ---- opening ---- */

static fth_status copy_text(const char *text, char **copy)
{
    *copy = fth_format("%s", text ? text : "");
    return *copy ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the names of a data set");
}

static fth_status copy_names(const fth_provided_set *set, fth_provided_samples *samples, fth_dataset_info *info)
{
    fth_status status = FTH_OK;

    FTH_TRY(copy_text(set->info.name, &samples->name));
    FTH_TRY(copy_text(set->source, &samples->source));
    FTH_TRY(copy_text(set->version, &samples->version));
    FTH_TRY(fth_allocate((size_t)set->info.classes + 1, sizeof *samples->class_names, &samples->class_names));
    samples->classes = set->info.classes;
    for (int i = 0; i < set->info.classes; i++)
        FTH_TRY(copy_text(set->info.class_names[i], &samples->class_names[i]));
    info->name = samples->name;
    info->class_names = (const char *const *)samples->class_names;

out:
    return status;
}

static fth_status check_set(const fth_provided_set *set)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = &set->info;
    const char *source = set->source ? set->source : "a data set";

    FTH_REQUIRE(info->classes >= 1 && info->class_names, FTH_INVALID, "%s has no classes", source);
    FTH_REQUIRE(info->count[FTH_TRAIN] >= 0 && info->count[FTH_VALIDATION] >= 0, FTH_INVALID,
                "%s has a negative number of images", source);
    FTH_REQUIRE(info->channels >= 1 && info->channels <= FTH_MAX_CHANNELS, FTH_INVALID,
                "%s has images of %s; 1 to %d are possible", source, FTH_COUNTED(info->channels, "channel"),
                FTH_MAX_CHANNELS);
    FTH_REQUIRE(set->raw_height >= 0 && set->raw_height <= FTH_MAX_OUTPUT_SIDE && set->raw_width >= 0 &&
                    set->raw_width <= FTH_MAX_OUTPUT_SIDE &&
                    (set->files || (set->raw_height > 0 && set->raw_width > 0)),
                FTH_INVALID, "%s has images of %d × %d pixels; 1 to %d on each side are possible", source,
                set->raw_height, set->raw_width, FTH_MAX_OUTPUT_SIDE);

out:
    return status;
}

fth_status fth_dataset_create_provided(const fth_provided_set *set, const fth_dataset_provider *provider,
                                       const fth_dataset_options *options, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    fth_dataset *created = NULL;
    fth_provided_samples *samples = NULL;

    FTH_TRY(fth_allocate(1, sizeof *samples, &samples));
    samples->provider = *provider;
    FTH_TRY(check_set(set));
    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    created->info = set->info;
    FTH_TRY(copy_names(set, samples, &created->info));
    FTH_TRY(fth_bad_images_create(samples->source, set->info.count[FTH_TRAIN] + set->info.count[FTH_VALIDATION],
                                  options->max_bad_images, &samples->bad));
    fth_raw_images raw = {.channels = set->info.channels,
                          .height = set->raw_height,
                          .width = set->raw_width,
                          .files = set->files,
                          .normalization = set->info.normalization};
    FTH_TRY(fth_dataset_prepare(options, &raw, created));
    created->provided = samples;
    samples = NULL;
    *dataset = created;
    created = NULL;

out:
    if (!samples && status != FTH_OK && !created) /* not even memory to hold it */
        provider->free(provider->context);
    fth_provided_samples_free(samples);
    fth_dataset_free(created);
    return status;
}

void *fth_dataset_get_provider(const fth_dataset *dataset, void (*free_context)(void *context))
{
    const fth_provided_samples *samples = dataset->provided;
    return samples && samples->provider.free == free_context ? samples->provider.context : NULL;
}

void fth_dataset_describe_provided(const fth_dataset *dataset, fth_provided_set *set)
{
    *set = (fth_provided_set){.info = dataset->info,
                              .files = dataset->files,
                              .raw_height = dataset->raw_height,
                              .raw_width = dataset->raw_width,
                              .source = dataset->info.name};
    set->info.normalization = dataset->raw_normalization;
}

const char *fth_provided_version(const fth_provided_samples *samples)
{
    return samples->version;
}

bool fth_provided_expects(const fth_dataset *dataset)
{
    return dataset->provided->provider.expect != NULL;
}

size_t fth_provided_expect(const fth_dataset *dataset, void *session, const int64_t *samples, size_t count)
{
    return dataset->provided->provider.expect(session, samples, count);
}

bool fth_provided_explain(const fth_provided_samples *samples, char *text, size_t size)
{
    if (!samples->provider.explain)
        return false;
    samples->provider.explain(samples->provider.context, text, size);
    return true;
}

/* ---- samples ---- */

fth_bad_images *fth_provided_bad_images(const fth_provided_samples *samples)
{
    return samples->bad;
}

/* Among the samples of both splits. */
static int64_t number_sample(const fth_dataset *dataset, fth_split split, int64_t sample)
{
    return split == FTH_VALIDATION ? dataset->info.count[FTH_TRAIN] + sample : sample;
}

fth_status fth_dataset_note_bad_sample(const fth_dataset *dataset, fth_split split, int64_t sample, const char *name,
                                       const char *reason)
{
    if (!dataset->provided || sample < 0 || sample >= dataset->info.count[split])
        return fth_fail(FTH_INVALID, "%s: there is no %s sample %lld", dataset->info.name,
                        split == FTH_TRAIN ? "training" : "validation", (long long)sample);
    return fth_bad_images_note(dataset->provided->bad, number_sample(dataset, split, sample), split, name, reason);
}

static fth_status note_bad(const fth_dataset *dataset, fth_split split, int64_t sample, const char *name)
{
    char own[64];
    char *reason = fth_format("%s", fth_error_message());
    if (!reason)
        return fth_fail(FTH_NO_MEMORY, "no memory for a message");
    snprintf(own, sizeof own, "%s sample %lld", split == FTH_TRAIN ? "training" : "validation", (long long)sample);
    fth_status status = fth_dataset_note_bad_sample(dataset, split, sample, name ? name : own, reason);
    free(reason);
    return status;
}

static fth_status take(const fth_dataset *dataset, const fth_provided_request *request, int64_t sample,
                       fth_raw_sample *raw)
{
    const fth_dataset_provider *provider = &dataset->provided->provider;
    fth_deadline deadline = fth_deadline_in(TAKE_TIMEOUT_S);
    for (;;) {
        *raw = (fth_raw_sample){.unplanned = sample != request->sample};
        fth_status status = provider->take(provider->context, request->session, request->split, sample,
                                           fth_deadline_in(TAKE_STEP_S), raw);
        if (status != FTH_TIMEOUT || fth_deadline_passed(deadline))
            return status;
        if (request->stop && atomic_load_explicit(request->stop, memory_order_relaxed))
            return fth_fail(FTH_INTERRUPTED, "stopped");
    }
}

/* Pixels of an image that is used as it is. */
static fth_status check_pixels(const fth_dataset *dataset, const fth_raw_sample *raw)
{
    bool fits = raw->planar && raw->channels == dataset->info.channels && raw->height == dataset->raw_height &&
                raw->width == dataset->raw_width && raw->size_bytes == fth_raw_bytes(dataset);
    return fits ? FTH_OK
                : fth_fail(FTH_CORRUPT, "%zu bytes for %d × %d × %d pixels instead of %zu for %d × %d × %d",
                           raw->size_bytes, raw->channels, raw->height, raw->width, fth_raw_bytes(dataset),
                           dataset->info.channels, dataset->raw_height, dataset->raw_width);
}

static fth_status finish(const fth_dataset *dataset, const fth_provided_request *request, const fth_raw_sample *raw,
                         fth_image_worker *worker, float *planes)
{
    fth_status status = FTH_OK;

    FTH_REQUIRE(raw->label >= 0 && raw->label < dataset->info.classes, FTH_CORRUPT, "its label is %d; there are %s",
                (int)raw->label, FTH_COUNTED(dataset->info.classes, "class"));
    if (dataset->transformed) {
        FTH_TRY(fth_raw_sample_transform(raw, worker, request->transform, &request->transform->normalization,
                                         request->key, planes));
    } else {
        FTH_TRY(check_pixels(dataset, raw));
        fth_augment(&dataset->info, &request->augmentation, request->seed, request->epoch, request->sample, raw->bytes,
                    planes);
    }

out:
    return status;
}

fth_status fth_provided_load(const fth_dataset *dataset, const fth_provided_request *request, fth_image_worker *worker,
                             float *planes, int32_t *label)
{
    fth_provided_samples *samples = dataset->provided;
    const int64_t count = dataset->info.count[request->split];
    for (int64_t tries = 0; tries < count; tries++) {
        int64_t sample = (request->sample + tries) % count;
        fth_raw_sample raw = {0};
        if (fth_bad_images_has(samples->bad, number_sample(dataset, request->split, sample)))
            continue;
        fth_status status = take(dataset, request, sample, &raw);
        bool taken = status == FTH_OK;
        if (taken)
            status = finish(dataset, request, &raw, worker, planes);
        *label = raw.label;
        if (status == FTH_CORRUPT && !request->exact)
            status = note_bad(dataset, request->split, sample, raw.name);
        else
            tries = count; /* it is this one, or an error */
        if (taken || raw.lease)
            samples->provider.give_back(samples->provider.context, &raw);
        if (status != FTH_OK || tries == count)
            return status;
    }
    return fth_fail(FTH_CORRUPT, "%s: none of %s for %s can be read", samples->source, FTH_COUNTED(count, "image"),
                    request->split == FTH_TRAIN ? "training" : "validation");
}

fth_status fth_provided_look(const fth_dataset *dataset, fth_split split, int64_t sample, uint8_t *pixels,
                             int32_t *label)
{
    fth_status status = FTH_OK;
    const fth_dataset_provider *provider = &dataset->provided->provider;
    const fth_provided_request request = {.split = split, .sample = sample};
    fth_raw_sample raw;

    FTH_TRY(take(dataset, &request, sample, &raw));
    status = check_pixels(dataset, &raw);
    if (status == FTH_OK) {
        memcpy(pixels, raw.bytes, raw.size_bytes);
        *label = raw.label;
    }
    provider->give_back(provider->context, &raw);

out:
    return status;
}

/* ---- sessions ---- */

fth_status fth_provided_open_session(const fth_dataset *dataset, fth_loader_options *options, bool *finished,
                                     void **session)
{
    const fth_dataset_provider *provider = &dataset->provided->provider;
    *finished = false;
    *session = NULL;
    return provider->open_session ? provider->open_session(provider->context, dataset, options, finished, session)
                                  : FTH_OK;
}

void fth_provided_close_session(const fth_dataset *dataset, void *session)
{
    if (session)
        dataset->provided->provider.close_session(dataset->provided->provider.context, session);
}

fth_status fth_provided_next(const fth_dataset *dataset, void *session, fth_deadline deadline, const fth_batch **batch)
{
    return dataset->provided->provider.next(session, deadline, batch);
}

void fth_provided_moved(const fth_dataset *dataset, void *session, int64_t next)
{
    if (session && dataset->provided->provider.moved)
        dataset->provided->provider.moved(session, next);
}
