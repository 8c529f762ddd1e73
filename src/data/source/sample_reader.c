/* Stored, decoded or finished samples of a data set, for its providers (provider.h). Choices that a
 * loader makes are the caller's. The last few preparations are kept parsed, since a job's samples
 * come in succession. */
#include <stdlib.h>
#include <string.h>

#include "data/image/image_set.h"

enum { KEPT_PREPARATIONS = 8 };

typedef struct preparation {
    char *text; /* NULL: unused */
    fth_transform transform;
    bool as_is;
} preparation;

struct fth_sample_reader {
    const fth_dataset *dataset;
    fth_image_worker *worker;
    char *name;              /* of the sample read last */
    fth_pixel_buffer pixels; /* decoded, rows without gaps */
    preparation kept[KEPT_PREPARATIONS];
    int next; /* the next of `kept` to be replaced */
};

fth_status fth_sample_reader_create(const fth_dataset *dataset, fth_sample_reader **reader)
{
    fth_status status = fth_allocate(1, sizeof **reader, reader);
    if (status != FTH_OK)
        return status;
    (*reader)->dataset = dataset;
    status = fth_image_worker_create(&(*reader)->worker);
    if (status != FTH_OK) {
        fth_sample_reader_free(*reader);
        *reader = NULL;
    }
    return status;
}

void fth_sample_reader_free(fth_sample_reader *reader)
{
    if (!reader)
        return;
    for (int i = 0; i < KEPT_PREPARATIONS; i++)
        free(reader->kept[i].text);
    fth_image_worker_free(reader->worker);
    free(reader->pixels.bytes);
    free(reader->name);
    free(reader);
}

/* ---- reading ---- */

fth_status fth_sample_reader_read(fth_sample_reader *reader, fth_split split, int64_t sample,
                                  const fth_patience *patience, fth_raw_sample *raw)
{
    const fth_dataset_info *info = &reader->dataset->info;
    *raw = (fth_raw_sample){0};
    reader->worker->patience = patience ? *patience : (fth_patience){0};
    if (sample < 0 || sample >= info->count[split])
        return fth_fail(FTH_INVALID, "%s: there is no sample %lld among %lld", info->name, (long long)sample,
                        (long long)info->count[split]);
    const fth_sample_request request = {.split = split, .sample = sample};
    const fth_dataset *dataset = reader->dataset;
    fth_status status = fth_stored_sample_read(dataset, &request, sample, reader->worker, raw);
    if (!raw->name && dataset->kind->describe_sample) {
        char *reason = status == FTH_OK ? NULL : fth_format("%s", fth_error_message());
        free(reader->name);
        raw->name = reader->name = dataset->kind->describe_sample(dataset, split, sample);
        if (reason)
            fth_set_error("%s", reason);
        free(reason);
    }
    return status;
}

void fth_sample_reader_expect(fth_sample_reader *reader, fth_split split, const int64_t *samples, int64_t count,
                              double needed_s)
{
    fth_dataset_expect(reader->dataset, split, samples, (size_t)count,
                       needed_s); /* if there is no room, they are read when needed */
}

static fth_status remove_gaps(fth_sample_reader *reader, fth_raw_sample *pixels)
{
    const size_t row = (size_t)pixels->width * FTH_IMAGE_CHANNELS;
    if (pixels->stride == 0 || pixels->stride == row)
        return FTH_OK;
    fth_status status = fth_pixel_buffer_reserve(&reader->pixels, pixels->size_bytes + FTH_PICTURE_SLACK);
    if (status != FTH_OK)
        return status;
    for (size_t y = 0; y < (size_t)pixels->height; y++)
        memcpy(reader->pixels.bytes + y * row, pixels->bytes + y * pixels->stride, row);
    pixels->bytes = reader->pixels.bytes;
    pixels->stride = row;
    return FTH_OK;
}

fth_status fth_sample_reader_decode(fth_sample_reader *reader, const fth_raw_sample *raw, fth_raw_sample *pixels)
{
    fth_status status = FTH_OK;
    fth_picture picture;

    *pixels = *raw;
    pixels->lease = NULL;
    if (raw->width > 0)
        return remove_gaps(reader, pixels);
    FTH_TRY(fth_image_decode_whole(reader->worker, raw->bytes, raw->size_bytes, &picture));
    fth_raw_sample_set_picture(pixels, &picture);
    FTH_TRY(remove_gaps(reader, pixels));

out:
    return status;
}

/* ---- finishing ---- */

static fth_status find_preparation(fth_sample_reader *reader, const char *text, const preparation **found)
{
    for (int i = 0; i < KEPT_PREPARATIONS; i++)
        if (reader->kept[i].text && strcmp(reader->kept[i].text, text) == 0) {
            *found = &reader->kept[i];
            return FTH_OK;
        }
    preparation parsed = {0};
    fth_status status = fth_preparation_parse(text, reader->dataset->info.channels, &parsed.transform, &parsed.as_is);
    if (status != FTH_OK)
        return status;
    parsed.text = fth_format("%s", text);
    if (!parsed.text)
        return fth_fail(FTH_NO_MEMORY, "no memory for a transform");
    preparation *place = &reader->kept[reader->next];
    reader->next = (reader->next + 1) % KEPT_PREPARATIONS;
    free(place->text);
    *place = parsed;
    *found = place;
    return FTH_OK;
}

static fth_status finish_as_is(const fth_raw_sample *raw, const fth_finish *finish, const fth_transform *transform,
                               float *planes)
{
    const fth_dataset_info info = {.channels = transform->normalization.channels,
                                   .height = transform->height,
                                   .width = transform->width,
                                   .normalization = transform->normalization};
    if (!raw->planar || raw->width != info.width || raw->height != info.height || raw->channels != info.channels ||
        raw->size_bytes != fth_image_bytes(&info))
        return fth_fail(FTH_CORRUPT, "an image of %d × %d × %d instead of %d × %d × %d", raw->channels, raw->height,
                        raw->width, info.channels, info.height, info.width);
    fth_augment(&info, &finish->augmentation, finish->seed, finish->epoch, finish->sample, raw->bytes, planes);
    return FTH_OK;
}

fth_status fth_sample_reader_finish(fth_sample_reader *reader, const fth_raw_sample *raw, const fth_finish *finish,
                                    float *planes)
{
    fth_status status = FTH_OK;
    const preparation *kept = NULL;

    FTH_TRY(find_preparation(reader, finish->preparation, &kept));
    if (kept->as_is)
        return finish_as_is(raw, finish, &kept->transform, planes);
    fth_transform transform = kept->transform;
    if (raw->planar && raw->height > 0)
        FTH_TRY(fth_transform_augment(&finish->augmentation, raw->height, &transform));
    FTH_TRY(fth_raw_sample_transform(raw, reader->worker, &transform, &transform.normalization,
                                     fth_augment_key(finish->seed, finish->epoch, finish->sample), planes));

out:
    return status;
}

fth_status fth_sample_reader_shape(fth_sample_reader *reader, const char *preparation_text, int shape[3])
{
    const preparation *kept = NULL;
    const fth_dataset *dataset = reader->dataset;
    fth_status status = find_preparation(reader, preparation_text, &kept);
    if (status != FTH_OK)
        return status;
    if (kept->as_is && (dataset->raw.files || kept->transform.height != dataset->raw.height ||
                        kept->transform.width != dataset->raw.width))
        return fth_fail(FTH_INVALID, "images of %s cannot be used as they are as %d × %d", dataset->info.name,
                        kept->transform.height, kept->transform.width);
    shape[0] = kept->transform.normalization.channels;
    shape[1] = kept->transform.height;
    shape[2] = kept->transform.width;
    return FTH_OK;
}

double fth_sample_reader_decode_seconds(const fth_sample_reader *reader)
{
    return reader->worker->decode_seconds;
}
