/* How an image of a batch is made from a data set of bytes: made by the loader, followed by a
 * device. */
#ifndef FTH_TENSOR_RECIPE_H
#define FTH_TENSOR_RECIPE_H

#include <stdint.h>

/* The part of image `sample` that begins at (down, right), as large as the image, black outside it;
 * then mirrored. */
typedef struct fth_recipe {
    int32_t sample;
    int16_t down, right;
    int32_t flip;
} fth_recipe;

#endif
