/* From a decoded picture to the planes of a tensor: geometry (geometry.c), resampling (resample.c)
 * and colours (colour.c). See transform.h for transforms. */
#ifndef FTH_DATA_RESAMPLE_H
#define FTH_DATA_RESAMPLE_H

#include "base/vectorized.h"
#include "data/image/decode.h"

/* One axis of an image: the source's [low, high) is resampled to `size`, of which the output shows
 * `count` from `first` on; positions outside 0..size are padding. */
typedef struct fth_crop_axis {
    double low, high;
    int size, first, count;
} fth_crop_axis;

/* What a transform does to one image. */
typedef struct fth_geometry {
    fth_crop_axis x, y;
    bool flip;
} fth_geometry;

/* Random numbers come from `key`, which belongs to (seed, epoch, sample). */
void fth_geometry_plan(const fth_transform *transform, int width, int height, fth_random_key key,
                       fth_geometry *geometry);
/* The same window at a reduced size. */
void fth_geometry_reduce(fth_geometry *geometry, int eighths);

/* For each output position along an axis, the first source position and the weights of the sum. */
typedef struct fth_taps {
    int begin, end;  /* output positions without padding */
    int low, high;   /* source positions needed */
    int width;       /* weights for each position */
    bool is_move;    /* every position copies one source pixel, in order or mirrored */
    bool plain;      /* in order */
    int32_t *starts; /* (count) */
    float *weights;  /* (count, width) */
    size_t starts_capacity, weights_capacity;
} fth_taps;

fth_status fth_taps_fill(fth_taps *taps, const fth_crop_axis *axis, bool mirror);

typedef struct fth_resampler {
    fth_taps x, y;
    float *rows; /* one row, first of the vertical sums, then of the horizontal ones */
    size_t rows_capacity;
} fth_resampler;
void fth_resampler_free(fth_resampler *resampler);
/* Resamples `picture`, which covers what the taps need, into planes of `height` × `width` floats:
 * sum * scale + shift for each channel. */
fth_status fth_resample(fth_resampler *resampler, const fth_picture *picture, int width, int height,
                        const float scale[FTH_IMAGE_CHANNELS], const float shift[FTH_IMAGE_CHANNELS], float *planes);
/* The same for one channel that begins at `pixels`. */
fth_status fth_resample_plane(fth_resampler *resampler, const uint8_t *pixels, size_t stride, int width, int height,
                              float scale, float shift, float *plane);

/* Jitters 1 or 3 planes of values in 0..1 like torchvision. */
void fth_colour_jitter(const fth_transform_step *step, fth_random_key key, int channels, int64_t area, float *planes);
/* One adjustment: 0 brightness, 1 contrast, 2 saturation, 3 hue. */
void fth_colour_adjust(int which, float factor, int channels, int64_t area, float *planes);
void fth_colour_normalize(const fth_normalization *normalization, int64_t area, float *planes);

#endif
