/* One sample of a data set: as it is stored, and through a loader's transform. All kinds of images
 * take this path, so they are treated alike:
 *
 *     kind->look   pixels in memory  ---------+    transform, or
 *                                             +--> augmentation of ----> planes
 *     kind->read   an encoded file or pixels -+    untransformed sets
 *                  unreadable: noted as bad, and the next sample takes its place */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/image_set.h"

static const char *name_split(fth_split split)
{
    return split == FTH_TRAIN ? "training" : "validation";
}

/* ---- as it is stored ---- */

static fth_status check_index(const fth_dataset *dataset, fth_split split, int64_t index)
{
    int64_t count = dataset->info.count[split];
    if (dataset->info.modality == FTH_MODALITY_TEXT)
        return fth_fail(FTH_UNSUPPORTED, "%s is text: it has no images to read", dataset->info.name);
    if (index >= 0 && index < count)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s: there is no sample %lld among the %lld for %s", dataset->info.name,
                    (long long)index, (long long)count, name_split(split));
}

fth_status fth_stored_sample_read(const fth_dataset *dataset, const fth_sample_request *request, int64_t index,
                                  fth_image_worker *worker, fth_raw_sample *raw)
{
    *raw = (fth_raw_sample){0};
    if (dataset->kind->read)
        return dataset->kind->read(dataset, request, index, worker, raw);
    fth_status status = fth_pixel_buffer_reserve(&worker->file, fth_raw_bytes(dataset));
    if (status != FTH_OK)
        return status;
    *raw = (fth_raw_sample){.size_bytes = fth_raw_bytes(dataset),
                            .width = dataset->raw.width,
                            .height = dataset->raw.height,
                            .channels = dataset->info.channels,
                            .planar = true};
    return fth_dataset_look(dataset, request->split, index, worker->file.bytes, &raw->bytes, &raw->label);
}

void fth_stored_sample_give_back(const fth_dataset *dataset, fth_raw_sample *raw)
{
    if (dataset->kind->give_back)
        dataset->kind->give_back(dataset, raw);
}

/* For images that are used without a transform. */
static fth_status check_pixels(const fth_dataset *dataset, const fth_raw_sample *raw)
{
    bool fits = raw->planar && raw->channels == dataset->info.channels && raw->height == dataset->raw.height &&
                raw->width == dataset->raw.width && raw->size_bytes == fth_raw_bytes(dataset);
    return fits ? FTH_OK
                : fth_fail(FTH_CORRUPT, "%zu bytes for %d × %d × %d pixels instead of %zu for %d × %d × %d",
                           raw->size_bytes, raw->channels, raw->height, raw->width, fth_raw_bytes(dataset),
                           dataset->info.channels, dataset->raw.height, dataset->raw.width);
}

fth_status fth_dataset_look(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *scratch,
                            const uint8_t **pixels, int32_t *label)
{
    fth_status status = check_index(dataset, split, index);
    if (status != FTH_OK)
        return status;
    if (dataset->kind->look)
        return dataset->kind->look(dataset, split, index, scratch, pixels, label);
    const fth_sample_request request = {.split = split, .sample = index};
    fth_raw_sample raw = {0};
    status = dataset->kind->read(dataset, &request, index, NULL, &raw);
    if (status == FTH_OK)
        status = check_pixels(dataset, &raw);
    if (status == FTH_OK) {
        memcpy(scratch, raw.bytes, raw.size_bytes);
        *pixels = scratch;
        *label = raw.label;
    }
    fth_stored_sample_give_back(dataset, &raw);
    return status;
}

/* ---- as a loader gives it ---- */

static fth_status finish(const fth_dataset *dataset, const fth_sample_request *request, const fth_raw_sample *raw,
                         fth_image_worker *worker, float *planes)
{
    fth_status status = FTH_OK;

    FTH_REQUIRE(raw->label >= 0 && raw->label < dataset->info.classes, FTH_CORRUPT, "its label is %d; there are %s",
                (int)raw->label, FTH_COUNTED(dataset->info.classes, "class"));
    if (dataset->transformed)
        return fth_raw_sample_transform(raw, worker, request->transform, &request->transform->normalization,
                                        request->key, planes);
    FTH_TRY(check_pixels(dataset, raw));
    fth_augment(&dataset->info, &request->augmentation, request->seed, request->epoch, request->sample, raw->bytes,
                planes);

out:
    return status;
}

/* A number for each sample of both splits. */
static int64_t number_sample(const fth_dataset *dataset, fth_split split, int64_t index)
{
    return split == FTH_VALIDATION ? dataset->info.count[FTH_TRAIN] + index : index;
}

fth_status fth_dataset_note_bad_sample(const fth_dataset *dataset, fth_split split, int64_t sample, const char *name,
                                       const char *reason)
{
    if (!dataset->bad || sample < 0 || sample >= dataset->info.count[split])
        return fth_fail(FTH_INVALID, "%s: there is no %s sample %lld", dataset->info.name, name_split(split),
                        (long long)sample);
    return fth_bad_images_note(dataset->bad, number_sample(dataset, split, sample),
                               dataset->held_out.any ? FTH_TRAIN : split, name, reason);
}

static bool is_known_bad(const fth_dataset *dataset, fth_split split, int64_t index)
{
    return dataset->bad && fth_bad_images_has(dataset->bad, number_sample(dataset, split, index));
}

/* Notes the sample that the thread's error message is about. */
static fth_status note_bad(const fth_dataset *dataset, fth_split split, int64_t index, const char *given_name)
{
    char *reason = fth_format("%s", fth_error_message());
    char *name = given_name                       ? fth_format("%s", given_name)
                 : dataset->kind->describe_sample ? dataset->kind->describe_sample(dataset, split, index)
                                                  : fth_format("%s sample %lld", name_split(split), (long long)index);
    fth_status status = name && reason ? fth_dataset_note_bad_sample(dataset, split, index, name, reason)
                                       : fth_fail(FTH_NO_MEMORY, "no memory for the name of a sample");
    free(name);
    free(reason);
    return status;
}

static fth_status load_one(const fth_dataset *dataset, const fth_sample_request *request, int64_t index,
                           fth_image_worker *worker, float *planes, int32_t *label, bool *unreadable)
{
    fth_raw_sample raw;
    fth_status status = fth_stored_sample_read(dataset, request, index, worker, &raw);
    if (status == FTH_OK)
        status = finish(dataset, request, &raw, worker, planes);
    *label = raw.label;
    *unreadable = status == FTH_CORRUPT && dataset->bad && !request->exact;
    if (*unreadable)
        status = note_bad(dataset, request->split, index, raw.name);
    fth_stored_sample_give_back(dataset, &raw);
    return status;
}

fth_status fth_sample_load(const fth_dataset *dataset, const fth_sample_request *request, fth_image_worker *worker,
                           float *planes, int32_t *label)
{
    const int64_t count = dataset->info.count[request->split];
    for (int64_t tries = 0; tries < count; tries++) {
        const int64_t index = (request->sample + tries) % count;
        bool unreadable = false;
        if (!request->exact && is_known_bad(dataset, request->split, index))
            continue;
        fth_status status = load_one(dataset, request, index, worker, planes, label, &unreadable);
        if (status != FTH_OK || !unreadable)
            return status;
    }
    return fth_fail(FTH_CORRUPT, "%s: none of %s for %s can be read", fth_bad_images_source(dataset->bad),
                    FTH_COUNTED(count, "image"), name_split(request->split));
}

/* ---- for programs ---- */

/* Through the validation transform. An unreadable file is an error that names it. */
static fth_status read_transformed(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *pixels,
                                   int32_t *label)
{
    const float to_bytes = 1.0f / 255;
    fth_status status = FTH_OK;
    fth_image_worker *worker = NULL;
    float *planes = NULL;
    size_t size = fth_image_bytes(&dataset->info);
    fth_transform transform = dataset->transforms[FTH_VALIDATION];

    FTH_TRY(fth_image_worker_create(&worker));
    FTH_TRY(fth_allocate(size, sizeof *planes, &planes));
    FTH_TRY(fth_normalization_spread(&(fth_normalization){1, {0}, {to_bytes}}, dataset->info.channels,
                                     &transform.normalization));
    status = fth_sample_load(
        dataset, &(fth_sample_request){.split = split, .sample = index, .transform = &transform, .exact = true}, worker,
        planes, label);
    if (status != FTH_OK && dataset->kind->describe_sample) {
        char *name = dataset->kind->describe_sample(dataset, split, index);
        status = fth_fail_within(status, "%s: %s", fth_bad_images_source(dataset->bad), name ? name : "a sample");
        free(name);
    }
    for (size_t i = 0; status == FTH_OK && i < size; i++)
        pixels[i] = (uint8_t)(planes[i] < 0 ? 0 : planes[i] > 255 ? 255 : planes[i] + 0.5f);

out:
    fth_image_worker_free(worker);
    free(planes);
    return status;
}

fth_status fth_dataset_read(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *pixels, int32_t *label)
{
    const uint8_t *found;
    fth_status status = check_index(dataset, split, index);
    if (status != FTH_OK)
        return status;
    if (dataset->transformed)
        return read_transformed(dataset, split, index, pixels, label);
    status = fth_dataset_look(dataset, split, index, pixels, &found, label);
    if (status == FTH_OK && found != pixels)
        memcpy(pixels, found, fth_image_bytes(&dataset->info));
    return status;
}

size_t fth_dataset_expect(const fth_dataset *dataset, fth_split split, const int64_t *samples, size_t count,
                          double needed_s)
{
    return fth_dataset_expect_for_session(dataset, NULL, split, samples, count, needed_s);
}

size_t fth_dataset_expect_for_session(const fth_dataset *dataset, void *session, fth_split split,
                                      const int64_t *samples, size_t count, double needed_s)
{
    enum { PART = 64 };
    if (!dataset->expects)
        return count;
    for (size_t begin = 0; begin < count; begin += PART) {
        int64_t readable[PART];
        size_t positions[PART], good = 0;
        for (size_t i = begin; i < count && i < begin + PART; i++) {
            if (is_known_bad(dataset, split, samples[i]))
                continue; /* it will not be read */
            readable[good] = samples[i];
            positions[good++] = i;
        }
        size_t noted = dataset->kind->expect(dataset, session, split, readable, good, needed_s);
        if (noted < good)
            return positions[noted];
    }
    return count;
}

bool fth_dataset_explain(const fth_dataset *dataset, char *text, size_t size)
{
    return dataset->kind->explain && dataset->kind->explain(dataset, text, size);
}

bool fth_dataset_is_transformed(const fth_dataset *dataset)
{
    return dataset->transformed || dataset->kind->read;
}

int64_t fth_dataset_bad_image_count(const fth_dataset *dataset)
{
    return dataset->bad ? fth_bad_images_count(dataset->bad) : 0;
}

const fth_bad_image *fth_dataset_get_bad_image(const fth_dataset *dataset, int64_t number)
{
    return dataset->bad ? fth_bad_images_get(dataset->bad, number) : NULL;
}
