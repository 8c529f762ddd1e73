/* Transforms and their text. For the files of this folder. */
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
    int height, width; /* output size; 0: not determined by the steps */
} fth_transform;

/* Reads "random-resized-crop=224,flip,normalize=imagenet". */
fth_status fth_transform_parse(const char *text, fth_transform *transform);

/* True if images of that size are only normalized. */
bool fth_transform_is_identity(const fth_transform *transform, int height, int width);

/* ---- transforms of a data set (preparation.c) ---- */

/* The stored images of a set, and their default transform. */
typedef struct fth_raw_images {
    int channels;
    int height, width; /* 0: they differ, or are too large to be used untransformed */
    bool files;        /* files: training images are cropped and mirrored by default */
    fth_normalization normalization;
} fth_raw_images;

/* The transforms by fth_split, with one size and one normalization. */
fth_status fth_transforms_resolve(const fth_dataset_options *options, const fth_raw_images *raw,
                                  fth_transform transforms[2]);

/* Parses the result of fth_dataset_describe_preparation(). `as_is`: images in memory that are not
 * resampled, but augmented by fth_augment(). */
fth_status fth_preparation_parse(const char *text, int channels, fth_transform *transform, bool *as_is);

/* The source of all random numbers of a sample. */
static inline fth_random_key fth_augment_key(uint64_t seed, int64_t epoch, int64_t sample)
{
    fth_random_key key = fth_random_key_for(seed, FTH_RANDOM_AUGMENT);
    return fth_random_fork(fth_random_fork(key, (uint64_t)epoch), (uint64_t)sample);
}

/* Adds --augment to the steps of images in memory; `raw_height` is their stored height. */
fth_status fth_transform_augment(const fth_augmentation *augmentation, int raw_height, fth_transform *transform);

#endif
