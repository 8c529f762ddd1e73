/* Resampling with the triangle filter, widened where the image shrinks, as Pillow's BILINEAR and torchvision's
 * antialias=True; straight into normalized planes.
 *
 * One output row at a time: the source rows it needs are summed into one row of floats, which stays in the first-level
 * cache; that row is summed along x, one RGB pixel in a vector register; and the result is scaled and split into
 * planes. Vertical first, as that loop is long and regular. A mirrored image costs nothing: its taps are written in
 * reverse. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/image_internal.h"

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

void fth_taps_free(fth_taps *taps)
{
    free(taps->starts);
    free(taps->weights);
    *taps = (fth_taps){0};
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

/* The weights of output position `position`, as Pillow's precompute_coeffs; gives their number. */
static int weigh(const fth_axis *axis, int position, int width, int32_t *start, float *weights)
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

fth_status fth_taps_fill(fth_taps *taps, const fth_axis *axis, bool mirror)
{
    fth_status status = FTH_OK;
    double scale = (axis->high - axis->low) / axis->size;
    bool plain = axis->size == axis->high - axis->low && axis->low == floor(axis->low);
    size_t width = plain ? 1 : (size_t)ceil(scale < 1 ? 1 : scale) * 2 + 1;
    int begin = clamp(-axis->first, 0, axis->count), end = clamp(axis->size - axis->first, begin, axis->count);

    FTH_TRY(reserve(&taps->starts, &taps->starts_capacity, (size_t)axis->count, sizeof *taps->starts));
    FTH_TRY(reserve(&taps->weights, &taps->weights_capacity, (size_t)axis->count * width, sizeof *taps->weights));
    taps->plain = plain && !mirror;
    taps->width = (int)width;
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
        taps->low = taps->starts[at] < taps->low ? taps->starts[at] : taps->low;
        taps->high = taps->starts[at] + used > taps->high ? taps->starts[at] + used : taps->high;
    }
    taps->begin = mirror ? axis->count - end : begin;
    taps->end = mirror ? axis->count - begin : end;
    if (begin == end)
        taps->high = 1; /* all padding: any pixel will do */

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

/* Three channels and one that belongs to the next pixel; that one is overwritten by it. */
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

FTH_VECTORIZED static void split_bytes(const uint8_t *row, int count, const float *scale, const float *shift,
                                       float *restrict red, float *restrict green, float *restrict blue)
{
    float a = scale[0], b = scale[1], c = scale[2], d = shift[0], e = shift[1], f = shift[2];
    for (int x = 0; x < count; x++) {
        red[x] = (float)row[3 * x] * a + d;
        green[x] = (float)row[3 * x + 1] * b + e;
        blue[x] = (float)row[3 * x + 2] * c + f;
    }
}

/* ---- the whole ---- */

void fth_resampler_free(fth_resampler *resampler)
{
    fth_taps_free(&resampler->x);
    fth_taps_free(&resampler->y);
    free(resampler->rows);
    *resampler = (fth_resampler){0};
}

static void fill(float *out, int count, float value)
{
    for (int i = 0; i < count; i++)
        out[i] = value;
}

static void reverse(float *values, int count)
{
    for (int i = 0, j = count - 1; i < j; i++, j--) {
        float value = values[i];
        values[i] = values[j];
        values[j] = value;
    }
}

fth_status fth_resample(fth_resampler *resampler, const fth_picture *picture, int width, int height,
                        const float scale[FTH_IMAGE_CHANNELS], const float shift[FTH_IMAGE_CHANNELS], float *planes)
{
    fth_status status = FTH_OK;
    const fth_taps *x = &resampler->x, *y = &resampler->y;
    size_t area = (size_t)width * (size_t)height;
    int columns = x->high - x->low, shown = x->end - x->begin;
    /* Taps of weight 0 may lie beyond the last column: the row ends in zeros for them. */
    size_t slack = FTH_IMAGE_CHANNELS * (size_t)x->width + 4;
    size_t row_floats = (size_t)columns * FTH_IMAGE_CHANNELS + slack;

    FTH_TRY(reserve(&resampler->rows, &resampler->rows_capacity, row_floats + (size_t)width * FTH_IMAGE_CHANNELS + 4,
                    sizeof *resampler->rows));
    float *row = resampler->rows, *mixed = row + row_floats;
    memset(row + (size_t)columns * FTH_IMAGE_CHANNELS, 0, slack * sizeof *row);
    bool copies = x->width == 1 && y->width == 1; /* no resampling: one pixel each, in order or mirrored */
    for (int i = 0; i < height; i++) {
        float *out[FTH_IMAGE_CHANNELS];
        for (int channel = 0; channel < FTH_IMAGE_CHANNELS; channel++) {
            out[channel] = planes + (size_t)channel * area + (size_t)i * (size_t)width;
            bool visible = i >= y->begin && i < y->end;
            fill(out[channel], visible ? x->begin : width, shift[channel]);
            if (visible)
                fill(out[channel] + x->end, width - x->end, shift[channel]);
            out[channel] += x->begin;
        }
        if (i < y->begin || i >= y->end || shown == 0)
            continue;
        const uint8_t *from = picture->pixels + (size_t)(y->starts[i] - picture->top) * picture->stride +
                              FTH_IMAGE_CHANNELS * (size_t)(x->low - picture->left);
        if (copies) {
            split_bytes(from, shown, scale, shift, out[0], out[1], out[2]);
            if (!x->plain)
                for (int channel = 0; channel < FTH_IMAGE_CHANNELS; channel++)
                    reverse(out[channel], shown);
            continue;
        }
        const float *weights = y->weights + (size_t)i * (size_t)y->width;
        int taps = y->width;
        while (taps > 1 && weights[taps - 1] == 0)
            taps--;
        sum_rows(from, picture->stride, weights, taps, columns * FTH_IMAGE_CHANNELS, row);
        sum_columns(row, x->starts + x->begin, x->low, x->weights + (size_t)x->begin * (size_t)x->width, x->width,
                    shown, mixed);
        split_floats(mixed, shown, scale, shift, out[0], out[1], out[2]);
    }

out:
    return status;
}
