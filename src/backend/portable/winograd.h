/* Convolutions of 3 x 3, stride 1, with 16 instead of 36 multiplications for a square of 2 x 2
 * (level/winograd.h). */
#ifndef FTH_BACKEND_PORTABLE_WINOGRAD_H
#define FTH_BACKEND_PORTABLE_WINOGRAD_H

#include "backend/portable/level/level.h"

/* y (height, width, filters) = x (height + 2 and width + 2, or one more where those are odd;
 * channels) * weights, image by image. Weight (c, o, tap) is at weight[c * channel_step + o *
 * filter_step + tap], from the last tap to the first if `flipped`. */
typedef struct portable_winograd {
    const portable_level *level;
    int64_t height, width, channels, filters;
    int64_t channel_step, filter_step;
    bool flipped;
} portable_winograd;

/* Floats of the three areas of scratch memory. */
int64_t portable_winograd_weights_floats(const portable_winograd *w);
int64_t portable_winograd_input_floats(const portable_winograd *w);
int64_t portable_winograd_output_floats(const portable_winograd *w);

/* Before the first image. */
void portable_winograd_pack(const portable_winograd *w, const float *weight, float *weights);
/* One image; rows of x are `line` floats apart. */
void portable_winograd_run(const portable_winograd *w, const float *x, int64_t line, const float *weights, float *input,
                           float *output, const float *bias, bool relu, float *y);

/* Adds what one image contributes to the gradient of the transformed weights, (16, channels,
 * filters); the first one sets it. */
void portable_winograd_add_gradient(const portable_winograd *w, const float *x, int64_t line, const float *dy,
                                    bool is_first, float *input, float *output, float *gradient);
/* And that as the gradient of the weights. */
void portable_winograd_unpack(const portable_winograd *w, const float *gradient, float *weight);

#endif
