/* The geometry of a transform: all its steps that move pixels amount to one window of the source,
 * resampled once. Formulas and rounding are those of torchvision. */
#include <math.h>

#include "data/image/resample.h"

enum { DRAWS_A_STEP = 64, CROP_TRIES = 10 };

static void centre(fth_crop_axis *axis, int count)
{
    int spare = axis->count - count;
    axis->first += spare >= 0 ? (int)rint(spare / 2.0) : -(-spare / 2);
    axis->count = count;
}

static void resize(fth_geometry *geometry, int width, int height)
{
    geometry->x.size = geometry->x.count = width;
    geometry->y.size = geometry->y.count = height;
}

static int longer_side(int shorter, int longer_before, int shorter_before)
{
    int64_t side = (int64_t)shorter * longer_before / shorter_before;
    return side > 1 << 24 ? 1 << 24 : (int)side;
}

static void resize_shorter(fth_geometry *geometry, int side)
{
    int width = geometry->x.count, height = geometry->y.count;
    if (width <= height)
        resize(geometry, side, longer_side(side, height, width));
    else
        resize(geometry, longer_side(side, width, height), side);
}

/* Resizes an image that has another size to cover the output, then crops the middle. */
static void fit(fth_geometry *geometry, int width, int height)
{
    fth_crop_axis *x = &geometry->x, *y = &geometry->y;
    if (x->count == width && y->count == height)
        return;
    bool untouched =
        x->size == x->high - x->low && y->size == y->high - y->low && x->count == x->size && y->count == y->size;
    if (untouched) {
        double scale = fmax((double)width / x->count, (double)height / y->count);
        int wide = (int)fmin(rint(x->count * scale), 1 << 24), high = (int)fmin(rint(y->count * scale), 1 << 24);
        resize(geometry, wide < width ? width : wide, high < height ? height : high);
    }
    centre(x, width);
    centre(y, height);
}

/* RandomResizedCrop.get_params */
static void crop_randomly(fth_geometry *geometry, int side, double least_share, fth_random_key key, uint64_t counter)
{
    const double least_ratio = 3.0 / 4, greatest_ratio = 4.0 / 3;
    int width = geometry->x.count, height = geometry->y.count;
    int left = 0, top = 0, w = width, h = height;
    bool found = false;
    for (int i = 0; i < CROP_TRIES && !found; i++, counter += 4) {
        double area = (double)width * height * (least_share + (1 - least_share) * fth_random_uniform(key, counter));
        double low = log(least_ratio), high = log(greatest_ratio);
        double ratio = exp(low + (high - low) * fth_random_uniform(key, counter + 1));
        w = (int)rint(sqrt(area * ratio));
        h = (int)rint(sqrt(area / ratio));
        found = w > 0 && w <= width && h > 0 && h <= height;
        if (found) {
            top = (int)fth_random_below(key, counter + 2, (uint64_t)(height - h + 1));
            left = (int)fth_random_below(key, counter + 3, (uint64_t)(width - w + 1));
        }
    }
    if (!found) {
        double ratio = (double)width / height;
        w = ratio > greatest_ratio ? (int)rint(height * greatest_ratio) : width;
        h = ratio < least_ratio ? (int)rint(width / least_ratio) : height;
        left = (width - w) / 2;
        top = (height - h) / 2;
    }
    geometry->x = (fth_crop_axis){left, left + w, side, 0, side};
    geometry->y = (fth_crop_axis){top, top + h, side, 0, side};
}

static void pad_and_crop(fth_geometry *geometry, int padding, fth_random_key key, uint64_t counter)
{
    geometry->y.first += (int)fth_random_below(key, counter, 2 * (uint64_t)padding + 1) - padding;
    geometry->x.first += (int)fth_random_below(key, counter + 1, 2 * (uint64_t)padding + 1) - padding;
}

void fth_geometry_plan(const fth_transform *transform, int width, int height, fth_random_key key,
                       fth_geometry *geometry)
{
    *geometry = (fth_geometry){.x = {0, width, width, 0, width}, .y = {0, height, height, 0, height}};
    for (int i = 0; i < transform->step_count; i++) {
        const fth_transform_step *step = &transform->steps[i];
        uint64_t counter = (uint64_t)i * DRAWS_A_STEP;
        int value = (int)step->values[0];
        switch (step->kind) {
        case FTH_TRANSFORM_RESIZE:
            if (step->values[1] > 0)
                resize(geometry, (int)step->values[1], value);
            else
                resize_shorter(geometry, value);
            break;
        case FTH_TRANSFORM_CENTRE_CROP:
            centre(&geometry->x, value);
            centre(&geometry->y, value);
            break;
        case FTH_TRANSFORM_RANDOM_RESIZED_CROP: crop_randomly(geometry, value, step->values[1], key, counter); break;
        case FTH_TRANSFORM_PAD_CROP:
            fit(geometry, transform->width, transform->height);
            pad_and_crop(geometry, value, key, counter);
            break;
        case FTH_TRANSFORM_FLIP: geometry->flip = fth_random_bits(key, counter) & 1; break;
        case FTH_TRANSFORM_COLOUR_JITTER: break;
        }
    }
    fit(geometry, transform->width, transform->height);
}

/* Reduced decoding makes one pixel of every 8 / eighths, rounding up, so the scale is exact for any
 * size. */
void fth_geometry_reduce(fth_geometry *geometry, int eighths)
{
    double factor = eighths / 8.0;
    geometry->x.low *= factor;
    geometry->x.high *= factor;
    geometry->y.low *= factor;
    geometry->y.high *= factor;
}
