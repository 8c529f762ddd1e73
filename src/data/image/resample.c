/* Resampling with a triangle filter, widened for shrinking, like Pillow's BILINEAR and
 * torchvision's antialias=True; directly into normalized planes.
 *
 * One output row at a time: the source rows it needs are summed into one row of floats, which stays
 * in the first-level cache. That row is summed along x, one RGB pixel in a vector register; the
 * result is scaled and split into planes. The vertical sum comes first, as its loop is long and
 * regular. Mirroring is free: the taps are written in reverse. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/resample.h"

enum { LANES = 16 }; /* bytes in a vector */

/* ---- taps ---- */

static fth_status reserve(void *pointer_to_pointer, size_t *capacity, size_t count, size_t size)
{
    if (count <= *capacity)
        return FTH_OK;
    void *memory;
    memcpy(&memory, pointer_to_pointer, sizeof memory);
    free(memory);
    memset(pointer_to_pointer, 0, sizeof memory);
    *capacity = 0;
    fth_status status = fth_allocate(count + count / 4, size, pointer_to_pointer);
    if (status == FTH_OK)
        *capacity = count + count / 4;
    return status;
}

static void release_taps(fth_taps *taps)
{
    free(taps->starts);
    free(taps->weights);
    *taps = (fth_taps){0};
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

/* The weights of output position `position`, as in Pillow's precompute_coeffs; returns their
 * number. */
static int weigh(const fth_crop_axis *axis, int position, int width, int32_t *start, float *weights)
{
    double scale = (axis->high - axis->low) / axis->size, filter_scale = scale < 1 ? 1 : scale;
    double middle = axis->low + (position + 0.5) * scale;
    int low = (int)floor(axis->low), high = (int)ceil(axis->high - 1e-9);
    int begin = clamp((int)floor(middle - filter_scale + 0.5), low, high - 1);
    int end = clamp((int)floor(middle + filter_scale + 0.5), begin + 1, high);
    double sum = 0, inverse = 1 / filter_scale;
    if (end - begin > width)
        end = begin + width;
    for (int i = begin; i < end; i++) {
        double distance = fabs((i + 0.5 - middle) * inverse);
        weights[i - begin] = (float)(distance < 1 ? 1 - distance : 0);
        sum += weights[i - begin];
    }
    if (sum <= 0) {
        weights[0] = 1;
        sum = 1;
    }
    float share = (float)(1 / sum);
    for (int i = 0; i < end - begin; i++)
        weights[i] *= share;
    while (end - begin > 1 && weights[end - begin - 1] == 0)
        end--;
    *start = begin;
    return end - begin;
}

fth_status fth_taps_fill(fth_taps *taps, const fth_crop_axis *axis, bool mirror)
{
    fth_status status = FTH_OK;
    double scale = (axis->high - axis->low) / axis->size;
    bool plain = axis->size == axis->high - axis->low && axis->low == floor(axis->low);
    size_t width = plain ? 1 : (size_t)ceil(scale < 1 ? 1 : scale) * 2 + 1;
    int begin = clamp(-axis->first, 0, axis->count), end = clamp(axis->size - axis->first, begin, axis->count);
    int widest = 1;

    FTH_TRY(reserve(&taps->starts, &taps->starts_capacity, (size_t)axis->count, sizeof *taps->starts));
    FTH_TRY(reserve(&taps->weights, &taps->weights_capacity, (size_t)axis->count * width, sizeof *taps->weights));
    taps->is_move = plain;
    taps->plain = plain && !mirror;
    taps->low = begin < end ? INT32_MAX : 0;
    taps->high = 0;
    for (int i = begin; i < end; i++) {
        int at = mirror ? axis->count - 1 - i : i, used = 1;
        float *weights = taps->weights + (size_t)at * width;
        if (plain) {
            taps->starts[at] = (int32_t)axis->low + axis->first + i;
            weights[0] = 1;
        } else {
            memset(weights, 0, width * sizeof *weights);
            used = weigh(axis, axis->first + i, (int)width, &taps->starts[at], weights);
        }
        widest = used > widest ? used : widest;
        taps->low = taps->starts[at] < taps->low ? taps->starts[at] : taps->low;
        taps->high = taps->starts[at] + used > taps->high ? taps->starts[at] + used : taps->high;
    }
    if ((size_t)widest < width) /* fewer weights than the upper bound */
        for (size_t i = 1; i < (size_t)axis->count; i++)
            memmove(taps->weights + i * (size_t)widest, taps->weights + i * width, (size_t)widest * sizeof(float));
    taps->width = widest;
    taps->begin = mirror ? axis->count - end : begin;
    taps->end = mirror ? axis->count - begin : end;
    if (begin == end)
        taps->high = 1; /* all padding: any pixel is fine */

out:
    return status;
}

/* ---- sums ---- */

FTH_VECTORIZED static void sum_rows(const uint8_t *pixels, size_t stride, const float *weights, int taps, int count,
                                    float *out)
{
    int k = 0;
    if (taps & 1) {
        float a = weights[0];
        for (int i = 0; i < count; i++)
            out[i] = a * (float)pixels[i];
        k = 1;
    } else {
        float a = weights[0], b = weights[1];
        const uint8_t *next = pixels + stride;
        for (int i = 0; i < count; i++)
            out[i] = a * (float)pixels[i] + b * (float)next[i];
        k = 2;
    }
    for (; k < taps; k += 2) {
        float a = weights[k], b = weights[k + 1];
        const uint8_t *row = pixels + (size_t)k * stride, *next = row + stride;
        for (int i = 0; i < count; i++)
            out[i] += a * (float)row[i] + b * (float)next[i];
    }
}

typedef float pixel_vector __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) pixel_vector load(const float *from)
{
    pixel_vector value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* Writes three channels and one of the next pixel, which is then overwritten. */
FTH_VECTORIZED static void sum_columns(const float *row, const int32_t *starts, int low, const float *weights, int taps,
                                       int count, float *out)
{
    for (int x = 0; x < count; x++) {
        const float *from = row + FTH_IMAGE_CHANNELS * (starts[x] - low);
        const float *weight = weights + (size_t)x * (size_t)taps;
        pixel_vector sum = load(from) * weight[0];
        for (int k = 1; k < taps; k++)
            sum += load(from + FTH_IMAGE_CHANNELS * k) * weight[k];
        memcpy(out + FTH_IMAGE_CHANNELS * x, &sum, sizeof sum);
    }
}

FTH_VECTORIZED static void split_floats(const float *row, int count, const float *scale, const float *shift,
                                        float *restrict red, float *restrict green, float *restrict blue)
{
    float a = scale[0], b = scale[1], c = scale[2], d = shift[0], e = shift[1], f = shift[2];
    for (int x = 0; x < count; x++) {
        red[x] = row[3 * x] * a + d;
        green[x] = row[3 * x + 1] * b + e;
        blue[x] = row[3 * x + 2] * c + f;
    }
}

#if defined(__GNUC__) && !defined(__clang__) /* only GCC has __builtin_shuffle */
#define HAVE_SHUFFLE 1
#else
#define HAVE_SHUFFLE 0
#endif

#if HAVE_SHUFFLE
typedef uint8_t byte_vector __attribute__((vector_size(16)));

/* Bytes of one channel of 16 pixels, which lie in three vectors: those in `a` and `b`, then those
 * in `c`. */
#define FIRST_CHANNEL(i, channel)                                                                                      \
    (uint8_t)(FTH_IMAGE_CHANNELS * (i) + (channel) < 2 * LANES ? FTH_IMAGE_CHANNELS * (i) + (channel) : 0)
#define THEN_CHANNEL(i, channel)                                                                                       \
    (uint8_t)(FTH_IMAGE_CHANNELS * (i) + (channel) < 2 * LANES ? (i) : FTH_IMAGE_CHANNELS * (i) + (channel)-LANES)
#define EACH(macro, channel)                                                                                           \
    {                                                                                                                  \
        macro(0, channel), macro(1, channel), macro(2, channel), macro(3, channel), macro(4, channel),                 \
            macro(5, channel), macro(6, channel), macro(7, channel), macro(8, channel), macro(9, channel),             \
            macro(10, channel), macro(11, channel), macro(12, channel), macro(13, channel), macro(14, channel),        \
            macro(15, channel)                                                                                         \
    }

#endif

/* Splits a row of RGB bytes into three rows, in reverse if `mirror`. Compilers vectorize the plain
 * loop poorly, and for small images it dominates after decoding. */
FTH_VECTORIZED static void split_bytes(const uint8_t *row, int count, bool mirror, uint8_t *const *planes)
{
    int done = 0;
#if HAVE_SHUFFLE
    static const byte_vector first[FTH_IMAGE_CHANNELS] = {EACH(FIRST_CHANNEL, 0), EACH(FIRST_CHANNEL, 1),
                                                          EACH(FIRST_CHANNEL, 2)};
    static const byte_vector then[FTH_IMAGE_CHANNELS] = {EACH(THEN_CHANNEL, 0), EACH(THEN_CHANNEL, 1),
                                                         EACH(THEN_CHANNEL, 2)};
    static const byte_vector forwards = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const byte_vector order = mirror ? (LANES - 1) - forwards : forwards;
    while (count >= LANES && done < count) {
        int at = done + LANES <= count ? done : count - LANES; /* the last one overlaps the one before */
        byte_vector a, b, c;
        memcpy(&a, row + 3 * at, sizeof a);
        memcpy(&b, row + 3 * at + LANES, sizeof b);
        memcpy(&c, row + 3 * at + 2 * LANES, sizeof c);
        for (int channel = 0; channel < FTH_IMAGE_CHANNELS; channel++) {
            byte_vector bytes = __builtin_shuffle(__builtin_shuffle(a, b, first[channel]), c, then[channel]);
            bytes = __builtin_shuffle(bytes, order);
            memcpy(planes[channel] + (mirror ? count - LANES - at : at), &bytes, sizeof bytes);
        }
        done = at + LANES;
    }
#endif
    for (int x = done; x < count; x++)
        for (int channel = 0; channel < FTH_IMAGE_CHANNELS; channel++)
            planes[channel][mirror ? count - 1 - x : x] = row[FTH_IMAGE_CHANNELS * x + channel];
}

FTH_VECTORIZED static void scale_bytes(const uint8_t *bytes, int count, float scale, float shift, float *restrict out)
{
    for (int x = 0; x < count; x++)
        out[x] = (float)bytes[x] * scale + shift;
}

/* ---- the whole ---- */

void fth_resampler_free(fth_resampler *resampler)
{
    release_taps(&resampler->x);
    release_taps(&resampler->y);
    free(resampler->rows);
    *resampler = (fth_resampler){0};
}

/* Without resampling: pixels are moved into byte planes, with 0 for padding, which are then scaled
 * at once. */
static fth_status copy_pixels(fth_resampler *resampler, const fth_picture *picture, int width, int height,
                              const float *scale, const float *shift, float *planes)
{
    const fth_taps *x = &resampler->x, *y = &resampler->y;
    size_t area = (size_t)width * (size_t)height, floats = (FTH_IMAGE_CHANNELS * area + LANES) / sizeof(float) + 1;
    int shown = x->end - x->begin;
    bool padded = shown < width || y->end - y->begin < height;

    fth_status status = reserve(&resampler->rows, &resampler->rows_capacity, floats, sizeof *resampler->rows);
    if (status != FTH_OK)
        return status;
    uint8_t *bytes = (uint8_t *)resampler->rows;
    if (padded)
        memset(bytes, 0, FTH_IMAGE_CHANNELS * area);
    for (int i = y->begin; i < y->end && shown > 0; i++) {
        const uint8_t *from = picture->pixels + (size_t)(y->starts[i] - picture->top) * picture->stride +
                              FTH_IMAGE_CHANNELS * (size_t)(x->low - picture->left);
        uint8_t *to = bytes + (size_t)i * (size_t)width + x->begin;
        split_bytes(from, shown, !x->plain, (uint8_t *const[]){to, to + area, to + 2 * area});
    }
    for (size_t channel = 0; channel < FTH_IMAGE_CHANNELS; channel++)
        scale_bytes(bytes + channel * area, (int)area, scale[channel], shift[channel], planes + channel * area);
    return FTH_OK;
}

static void fill(float *out, int count, float value)
{
    for (int i = 0; i < count; i++)
        out[i] = value;
}

static fth_status sum_pixels(fth_resampler *resampler, const fth_picture *picture, int width, int height,
                             const float *scale, const float *shift, float *planes)
{
    const fth_taps *x = &resampler->x, *y = &resampler->y;
    size_t area = (size_t)width * (size_t)height;
    int columns = x->high - x->low, shown = x->end - x->begin;
    /* Taps of weight 0 may lie after the last column: the row ends with zeros for them. */
    size_t slack = FTH_IMAGE_CHANNELS * (size_t)x->width + 4;
    size_t row_floats = (size_t)columns * FTH_IMAGE_CHANNELS + slack;

    fth_status status = reserve(&resampler->rows, &resampler->rows_capacity,
                                row_floats + (size_t)width * FTH_IMAGE_CHANNELS + 4, sizeof *resampler->rows);
    if (status != FTH_OK)
        return status;
    float *row = resampler->rows, *mixed = row + row_floats;
    memset(row + (size_t)columns * FTH_IMAGE_CHANNELS, 0, slack * sizeof *row);
    for (int i = 0; i < height; i++) {
        float *out[FTH_IMAGE_CHANNELS];
        bool visible = i >= y->begin && i < y->end && shown > 0;
        for (int channel = 0; channel < FTH_IMAGE_CHANNELS; channel++) {
            out[channel] = planes + (size_t)channel * area + (size_t)i * (size_t)width;
            fill(out[channel], visible ? x->begin : width, shift[channel]);
            if (visible)
                fill(out[channel] + x->end, width - x->end, shift[channel]);
            out[channel] += x->begin;
        }
        if (!visible)
            continue;
        const uint8_t *from = picture->pixels + (size_t)(y->starts[i] - picture->top) * picture->stride +
                              FTH_IMAGE_CHANNELS * (size_t)(x->low - picture->left);
        const float *weights = y->weights + (size_t)i * (size_t)y->width;
        int taps = y->width;
        while (taps > 1 && weights[taps - 1] == 0)
            taps--;
        sum_rows(from, picture->stride, weights, taps, columns * FTH_IMAGE_CHANNELS, row);
        sum_columns(row, x->starts + x->begin, x->low, x->weights + (size_t)x->begin * (size_t)x->width, x->width,
                    shown, mixed);
        split_floats(mixed, shown, scale, shift, out[0], out[1], out[2]);
    }
    return FTH_OK;
}

fth_status fth_resample(fth_resampler *resampler, const fth_picture *picture, int width, int height,
                        const float scale[FTH_IMAGE_CHANNELS], const float shift[FTH_IMAGE_CHANNELS], float *planes)
{
    bool moves_only = resampler->x.is_move && resampler->y.is_move;
    return (moves_only ? copy_pixels : sum_pixels)(resampler, picture, width, height, scale, shift, planes);
}

/* ---- one channel ---- */

static void sum_plane_columns(const float *row, const fth_taps *x, float scale, float shift, float *out)
{
    for (int i = x->begin; i < x->end; i++) {
        const float *from = row + (x->starts[i] - x->low), *weights = x->weights + (size_t)i * (size_t)x->width;
        float sum = from[0] * weights[0];
        for (int k = 1; k < x->width; k++)
            sum += from[k] * weights[k];
        out[i] = sum * scale + shift;
    }
}

fth_status fth_resample_plane(fth_resampler *resampler, const uint8_t *pixels, size_t stride, int width, int height,
                              float scale, float shift, float *plane)
{
    const fth_taps *x = &resampler->x, *y = &resampler->y;
    int columns = x->high - x->low;
    size_t row_floats = (size_t)columns + (size_t)x->width; /* zeros for taps of weight 0 after the last column */

    fth_status status = reserve(&resampler->rows, &resampler->rows_capacity, row_floats, sizeof *resampler->rows);
    if (status != FTH_OK)
        return status;
    memset(resampler->rows + columns, 0, (size_t)x->width * sizeof *resampler->rows);
    for (int i = 0; i < height; i++) {
        float *out = plane + (size_t)i * (size_t)width;
        if (i < y->begin || i >= y->end || x->begin >= x->end) {
            fill(out, width, shift);
            continue;
        }
        const uint8_t *from = pixels + (size_t)y->starts[i] * stride + (size_t)x->low;
        const float *weights = y->weights + (size_t)i * (size_t)y->width;
        int taps = y->width;
        while (taps > 1 && weights[taps - 1] == 0)
            taps--;
        fill(out, x->begin, shift);
        fill(out + x->end, width - x->end, shift);
        sum_rows(from, stride, weights, taps, columns, resampler->rows);
        sum_plane_columns(resampler->rows, x, scale, shift, out);
    }
    return FTH_OK;
}
