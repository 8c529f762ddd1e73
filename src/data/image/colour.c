/* Colour jitter on planes of floats in 0..1, like torchvision's ColorJitter on tensors: brightness,
 * contrast, saturation and hue, with factors and order drawn for each image. */
#include <math.h>

#include "data/image/resample.h"

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, ADJUSTMENTS };

static inline float unit(float value)
{
    value = value < 0 ? 0 : value;
    return value > 1 ? 1 : value;
}

static inline float grey_of(float red, float green, float blue)
{
    return 0.2989f * red + 0.587f * green + 0.114f * blue;
}

FTH_VECTORIZED static void brighten(float factor, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = unit(values[i] * factor);
}

FTH_VECTORIZED static void blend(float factor, float other, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = unit(values[i] * factor + other);
}

static void contrast(float factor, int channels, int64_t area, float *planes)
{
    double sum = 0;
    for (int64_t i = 0; i < area; i++)
        sum += channels == FTH_IMAGE_CHANNELS ? grey_of(planes[i], planes[area + i], planes[2 * area + i]) : planes[i];
    float mean = (float)(sum / (double)area);
    blend(factor, (1 - factor) * mean, channels * area, planes);
}

FTH_VECTORIZED static void saturate(float factor, int64_t area, float *restrict red, float *restrict green,
                                    float *restrict blue)
{
    for (int64_t i = 0; i < area; i++) {
        float grey = (1 - factor) * grey_of(red[i], green[i], blue[i]);
        red[i] = unit(red[i] * factor + grey);
        green[i] = unit(green[i] * factor + grey);
        blue[i] = unit(blue[i] * factor + grey);
    }
}

/* One channel of HSV to RGB without branches: offset 5 for red, 3 for green, 1 for blue. */
static inline float from_hue(float offset, float hue6, float saturation, float value)
{
    float k = offset + hue6;
    k = k >= 6 ? k - 6 : k;
    float ramp = k < 4 - k ? k : 4 - k;
    return value - value * saturation * unit(ramp);
}

FTH_VECTORIZED static void turn_hue(float turn, int64_t area, float *restrict red, float *restrict green,
                                    float *restrict blue)
{
    for (int64_t i = 0; i < area; i++) {
        float r = red[i], g = green[i], b = blue[i];
        float most = r > g ? r : g, least = r < g ? r : g;
        most = most > b ? most : b;
        least = least < b ? least : b;
        float range = most - least;
        float divisor = range > 0 ? range : 1, top = most > 0 ? most : 1;
        float hue6 = most == r ? (g - b) / divisor : most == g ? 2 + (b - r) / divisor : 4 + (r - g) / divisor;
        hue6 += 6 * turn;
        hue6 = hue6 < 0 ? hue6 + 6 : hue6;
        hue6 = hue6 < 0 ? hue6 + 6 : hue6;
        hue6 = hue6 >= 6 ? hue6 - 6 : hue6;
        float saturation = range / top;
        red[i] = from_hue(5, hue6, saturation, most);
        green[i] = from_hue(3, hue6, saturation, most);
        blue[i] = from_hue(1, hue6, saturation, most);
    }
}

void fth_colour_adjust(int which, float factor, int channels, int64_t area, float *planes)
{
    bool coloured = channels == FTH_IMAGE_CHANNELS; /* grey has neither saturation nor hue */
    switch (which) {
    case BRIGHTNESS: brighten(factor, channels * area, planes); break;
    case CONTRAST: contrast(factor, channels, area, planes); break;
    case SATURATION:
        if (coloured)
            saturate(factor, area, planes, planes + area, planes + 2 * area);
        break;
    case HUE:
        if (coloured)
            turn_hue(factor, area, planes, planes + area, planes + 2 * area);
        break;
    }
}

void fth_colour_jitter(const fth_transform_step *step, fth_random_key key, int channels, int64_t area, float *planes)
{
    int order[ADJUSTMENTS] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    for (int i = ADJUSTMENTS - 1; i > 0; i--) {
        int other = (int)fth_random_below(key, (uint64_t)i, (uint64_t)i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < ADJUSTMENTS; i++) {
        double reach = step->values[order[i]], draw = fth_random_uniform(key, (uint64_t)(ADJUSTMENTS + order[i]));
        double low = order[i] == HUE ? -reach : fmax(0, 1 - reach), high = order[i] == HUE ? reach : 1 + reach;
        if (reach > 0)
            fth_colour_adjust(order[i], (float)(low + (high - low) * draw), channels, area, planes);
    }
}

FTH_VECTORIZED static void scale_plane(float scale, float shift, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = values[i] * scale + shift;
}

void fth_colour_normalize(const fth_normalization *normalization, int64_t area, float *planes)
{
    for (int channel = 0; channel < normalization->channels; channel++) {
        float deviation = normalization->deviation[channel];
        scale_plane(1 / deviation, -normalization->mean[channel] / deviation, area, planes + channel * area);
    }
}
