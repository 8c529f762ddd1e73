/* Transforms: their text, and what a data set's images go through. For the files of this folder. */
#ifndef FTH_DATA_TRANSFORM_H
#define FTH_DATA_TRANSFORM_H

#include "data/data.h"

enum { FTH_MAX_OUTPUT_SIDE = 4096 };

typedef enum fth_transform_kind {
    FTH_TRANSFORM_RESIZE,
    FTH_TRANSFORM_CENTRE_CROP,
    FTH_TRANSFORM_RANDOM_RESIZED_CROP,
    FTH_TRANSFORM_PAD_CROP,
    FTH_TRANSFORM_FLIP,
    FTH_TRANSFORM_COLOUR_JITTER
} fth_transform_kind;

enum { FTH_MAX_TRANSFORMS = 8 };

typedef struct fth_transform_step {
    fth_transform_kind kind;
    double values[4];
} fth_transform_step;

typedef struct fth_transform {
    fth_transform_step steps[FTH_MAX_TRANSFORMS];
    int step_count;
    fth_normalization normalization;
    int height, width; /* what comes out; 0: not said by the steps */
} fth_transform;

/* Reads "random-resized-crop=224,flip,normalize=imagenet". */
fth_status fth_transform_parse(const char *text, fth_transform *transform);

/* True if images of that size come out as they are, but for their normalization. */
bool fth_transform_is_identity(const fth_transform *transform, int height, int width);

/* ---- what a set's images go through (preparation.c) ---- */

/* A set's images as they are stored, and what is done to them unless options say otherwise. */
typedef struct fth_raw_images {
    int channels;
    int height, width; /* 0: they differ, or are too large to be used as they are */
    bool files;        /* then training images are cropped and mirrored by default */
    fth_normalization normalization;
} fth_raw_images;

/* The transforms by fth_split, of one size, and with one normalization for all channels. */
fth_status fth_transforms_resolve(const fth_dataset_options *options, const fth_raw_images *raw,
                                  fth_transform transforms[2]);

/* Reads what fth_dataset_describe_preparation() wrote, for images of `channels`. `as_is`: images in
 * memory that are not resampled, but augmented as fth_augment() does. */
fth_status fth_preparation_parse(const char *text, int channels, fth_transform *transform, bool *as_is);

/* From which everything random about a sample is drawn. */
static inline fth_random_key fth_augment_key(uint64_t seed, int64_t epoch, int64_t sample)
{
    fth_random_key key = fth_random_key_for(seed, FTH_RANDOM_AUGMENT);
    return fth_random_fork(fth_random_fork(key, (uint64_t)epoch), (uint64_t)sample);
}

/* Adds --augment to the steps that images in memory go through; `raw_height` is theirs. */
fth_status fth_transform_augment(const fth_augmentation *augmentation, int raw_height, fth_transform *transform);

#endif
