/* From the stored form of an image to a normalized tensor: encoded bytes -> header -> window of the
 * transform -> minimal decoding -> resampled, normalized planes. Stored pixels skip the
 * decoding. */
#include <stdlib.h>
#include <string.h>

#include "data/image/image_set.h"

/* ---- workers ---- */

fth_status fth_image_worker_create(fth_image_worker **worker)
{
    fth_status status = fth_allocate(1, sizeof **worker, worker);
    if (status != FTH_OK)
        return status;
    status = fth_decoder_create(&(*worker)->decoder);
    if (status != FTH_OK) {
        fth_image_worker_free(*worker);
        *worker = NULL;
    }
    return status;
}

void fth_image_worker_free(fth_image_worker *worker)
{
    if (!worker)
        return;
    fth_decoder_free(worker->decoder);
    fth_resampler_free(&worker->resampler);
    free(worker->file.bytes);
    free(worker);
}

/* ---- reading ---- */

fth_status fth_image_set_read(const fth_image_set *set, size_t number, fth_image_worker *worker, const uint8_t **bytes,
                              size_t *size_bytes)
{
    double begin = fth_clock_seconds(), fetch_seconds = -1;
    fth_status status = set->places.kind->read(set->places.state, &set->index, number, &worker->patience, &worker->file,
                                               bytes, size_bytes, &fetch_seconds);
    double seconds = fth_clock_seconds() - begin;
    worker->read_seconds += seconds;
    worker->fetch_seconds += fetch_seconds >= 0 ? fetch_seconds : seconds;
    return status;
}

/* ---- decoding ---- */

/* The smallest size at which the window has the output's pixels and a quarter more, for the filter:
 * photographs then differ from full decoding by 0.3 of 255 levels on average (1.1 without). */
static int choose_eighths(const fth_geometry *geometry)
{
    const double margin = 1.25;
    double x = (geometry->x.high - geometry->x.low) / geometry->x.size;
    double y = (geometry->y.high - geometry->y.low) / geometry->y.size;
    double shrink = (x < y ? x : y) / margin;
    return shrink >= 8 ? 1 : shrink >= 4 ? 2 : shrink >= 2 ? 4 : 8;
}

static fth_status fill_taps(fth_resampler *resampler, const fth_geometry *geometry)
{
    fth_status status = fth_taps_fill(&resampler->x, &geometry->x, geometry->flip);
    return status == FTH_OK ? fth_taps_fill(&resampler->y, &geometry->y, false) : status;
}

fth_status fth_image_decode_whole(fth_image_worker *worker, const uint8_t *bytes, size_t size_bytes,
                                  fth_picture *picture)
{
    fth_status status = FTH_OK;
    fth_image_header header;
    double begin = fth_clock_seconds();

    FTH_TRY(fth_decoder_begin(worker->decoder, bytes, size_bytes, &header));
    fth_decode_request request = {.eighths = 8, .width = header.width, .height = header.height, .smooth_chroma = true};
    FTH_TRY(fth_decoder_finish(worker->decoder, &request, picture));

out:
    worker->decode_seconds += fth_clock_seconds() - begin;
    return status;
}

static fth_status decode_window(fth_image_worker *worker, const uint8_t *bytes, size_t size_bytes,
                                const fth_transform *transform, fth_random_key key, fth_picture *picture)
{
    fth_status status = FTH_OK;
    fth_image_header header;
    fth_geometry geometry;
    double begin = fth_clock_seconds();

    FTH_TRY(fth_decoder_begin(worker->decoder, bytes, size_bytes, &header));
    fth_geometry_plan(transform, header.width, header.height, key, &geometry);
    fth_decode_request request = {.eighths = 8};
    if (fth_decoder_can_reduce(worker->decoder))
        request.eighths = choose_eighths(&geometry);
    if (request.eighths < 8)
        fth_geometry_reduce(&geometry, request.eighths);
    /* Interpolated colour matters for images that keep their size or grow; shrinking averages
     * neighbours anyway. */
    request.smooth_chroma = (geometry.x.high - geometry.x.low) < geometry.x.size * 1.1 ||
                            (geometry.y.high - geometry.y.low) < geometry.y.size * 1.1;
    FTH_TRY(fill_taps(&worker->resampler, &geometry));
    const fth_taps *x = &worker->resampler.x, *y = &worker->resampler.y;
    request.left = x->low;
    request.width = x->high - x->low;
    request.top = y->low;
    request.height = y->high - y->low;
    FTH_TRY(fth_decoder_finish(worker->decoder, &request, picture));

out:
    worker->decode_seconds += fth_clock_seconds() - begin;
    return status;
}

/* ---- values ---- */

/* Scaling applied while resampling. Colours are jittered in 0..1, so normalization is then done
 * later. */
typedef struct value_plan {
    float scale[FTH_MAX_CHANNELS], shift[FTH_MAX_CHANNELS];
    int jitter; /* index of the step; -1: none */
} value_plan;

static value_plan plan_values(const fth_transform *transform, const fth_normalization *normalization)
{
    value_plan plan = {.jitter = -1};
    for (int i = 0; i < transform->step_count; i++)
        if (transform->steps[i].kind == FTH_TRANSFORM_COLOUR_JITTER)
            plan.jitter = i;
    for (int channel = 0; channel < normalization->channels; channel++) {
        float deviation = plan.jitter < 0 ? normalization->deviation[channel] : 1;
        plan.scale[channel] = 1 / (255 * deviation);
        plan.shift[channel] = plan.jitter < 0 ? -normalization->mean[channel] / deviation : 0;
    }
    return plan;
}

static void jitter_values(const value_plan *plan, const fth_transform *transform,
                          const fth_normalization *normalization, fth_random_key key, float *planes)
{
    int64_t area = (int64_t)transform->width * transform->height;
    if (plan->jitter < 0)
        return;
    fth_random_key own = fth_random_fork(key, (uint64_t)plan->jitter);
    fth_colour_jitter(&transform->steps[plan->jitter], own, normalization->channels, area, planes);
    fth_colour_normalize(normalization, area, planes);
}

/* Resamples a picture, or the part of one that the taps need. */
static fth_status resample_values(const fth_picture *picture, fth_image_worker *worker, const fth_transform *transform,
                                  const fth_normalization *normalization, fth_random_key key, float *planes)
{
    const value_plan plan = plan_values(transform, normalization);
    fth_status status =
        fth_resample(&worker->resampler, picture, transform->width, transform->height, plan.scale, plan.shift, planes);
    if (status == FTH_OK)
        jitter_values(&plan, transform, normalization, key, planes);
    return status;
}

static fth_status transform_picture(const fth_picture *picture, fth_image_worker *worker,
                                    const fth_transform *transform, const fth_normalization *normalization,
                                    fth_random_key key, float *planes)
{
    fth_geometry geometry;
    fth_geometry_plan(transform, picture->width, picture->height, key, &geometry);
    fth_status status = fill_taps(&worker->resampler, &geometry);
    return status == FTH_OK ? resample_values(picture, worker, transform, normalization, key, planes) : status;
}

fth_status fth_encoded_transform(const uint8_t *bytes, size_t size_bytes, fth_image_worker *worker,
                                 const fth_transform *transform, const fth_normalization *normalization,
                                 fth_random_key key, float *planes)
{
    fth_picture picture = {0};
    fth_status status = decode_window(worker, bytes, size_bytes, transform, key, &picture);
    return status == FTH_OK ? resample_values(&picture, worker, transform, normalization, key, planes) : status;
}

fth_status fth_image_set_load(const fth_image_set *set, size_t entry, fth_image_worker *worker, fth_raw_sample *raw)
{
    fth_status status = FTH_OK;
    fth_picture picture = {0};

    *raw = (fth_raw_sample){0};
    if (!set->cache || !fth_decoded_cache_find(set->cache, entry, &picture)) {
        FTH_TRY(fth_image_set_read(set, entry, worker, &raw->bytes, &raw->size_bytes));
        if (!set->cache)
            goto out;
        FTH_TRY(fth_image_decode_whole(worker, raw->bytes, raw->size_bytes, &picture));
        fth_decoded_cache_keep(set->cache, entry, &picture);
    }
    fth_raw_sample_set_picture(raw, &picture);

out:
    return status;
}

/* Planar pixels, (channels, height, width). */
static fth_status transform_planar(const fth_raw_sample *raw, fth_resampler *resampler, const fth_transform *transform,
                                   const fth_normalization *normalization, fth_random_key key, float *planes)
{
    fth_status status = FTH_OK;
    fth_geometry geometry;
    const value_plan plan = plan_values(transform, normalization);
    size_t raw_area = (size_t)raw->width * (size_t)raw->height;
    size_t area = (size_t)transform->width * (size_t)transform->height;

    fth_geometry_plan(transform, raw->width, raw->height, key, &geometry);
    FTH_TRY(fill_taps(resampler, &geometry));
    for (size_t channel = 0; channel < (size_t)raw->channels; channel++)
        FTH_TRY(fth_resample_plane(resampler, raw->bytes + channel * raw_area, (size_t)raw->width, transform->width,
                                   transform->height, plan.scale[channel], plan.shift[channel],
                                   planes + channel * area));
    jitter_values(&plan, transform, normalization, key, planes);

out:
    return status;
}

/* Copies RGB pixels to where readable bytes follow them. */
static fth_status pad_pixels(const fth_raw_sample *raw, fth_image_worker *worker, const uint8_t **pixels)
{
    fth_status status = fth_pixel_buffer_reserve(&worker->file, raw->size_bytes + FTH_PICTURE_SLACK);
    if (status != FTH_OK)
        return status;
    memcpy(worker->file.bytes, raw->bytes, raw->size_bytes);
    *pixels = worker->file.bytes;
    return FTH_OK;
}

void fth_raw_sample_set_picture(fth_raw_sample *raw, const fth_picture *picture)
{
    raw->bytes = picture->pixels;
    raw->size_bytes = (size_t)picture->width * (size_t)picture->height * FTH_IMAGE_CHANNELS;
    raw->stride = picture->stride;
    raw->width = picture->width;
    raw->height = picture->height;
    raw->channels = FTH_IMAGE_CHANNELS;
    raw->planar = false;
    raw->padded = true;
}

static fth_status check_pixels(const fth_raw_sample *raw)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(raw->width >= 1 && raw->height >= 1 && raw->width <= FTH_MAX_IMAGE_SIDE &&
                    raw->height <= FTH_MAX_IMAGE_SIDE && raw->channels >= 1 && raw->channels <= FTH_MAX_CHANNELS &&
                    (raw->planar || raw->channels == FTH_IMAGE_CHANNELS) &&
                    raw->size_bytes == (size_t)raw->width * (size_t)raw->height * (size_t)raw->channels,
                FTH_CORRUPT, "%zu bytes are no image of %d × %d pixels with %s", raw->size_bytes, raw->height,
                raw->width, FTH_COUNTED(raw->channels, "channel"));

out:
    return status;
}

fth_status fth_raw_sample_transform(const fth_raw_sample *raw, fth_image_worker *worker, const fth_transform *transform,
                                    const fth_normalization *normalization, fth_random_key key, float *planes)
{
    fth_status status = FTH_OK;

    if (raw->width == 0)
        return fth_encoded_transform(raw->bytes, raw->size_bytes, worker, transform, normalization, key, planes);
    FTH_TRY(check_pixels(raw));
    FTH_REQUIRE(raw->channels == normalization->channels, FTH_CORRUPT, "%s instead of %d",
                FTH_COUNTED(raw->channels, "channel"), normalization->channels);
    if (raw->planar) {
        FTH_TRY(transform_planar(raw, &worker->resampler, transform, normalization, key, planes));
    } else {
        fth_picture picture = {.pixels = raw->bytes,
                               .stride = raw->stride > 0 ? raw->stride : (size_t)raw->width * FTH_IMAGE_CHANNELS,
                               .width = raw->width,
                               .height = raw->height};
        if (!raw->padded)
            FTH_TRY(pad_pixels(raw, worker, &picture.pixels));
        FTH_TRY(transform_picture(&picture, worker, transform, normalization, key, planes));
    }

out:
    return status;
}
