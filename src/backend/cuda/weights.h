/* Weights and their gradients (weights.c). */
#ifndef FTH_BACKEND_CUDA_WEIGHTS_H
#define FTH_BACKEND_CUDA_WEIGHTS_H

#include "backend/cuda/layout.h"

/* `parameter` (a weight or bias) in `wanted`; the first call casts all of the plan's. */
fth_status cuda_read_weight(fth_plan *plan, fth_value parameter, const cuda_layout *wanted, fth_plan_value *as);
/* `count` parameters of one shape as one tensor in which they lie one behind the other. */
fth_status cuda_read_weights(fth_plan *plan, const fth_value *parameters, int count, cuda_type type,
                             fth_plan_value *as);
/* True if these gradients follow one another in the flat vector without a gap. */
bool cuda_gradients_in_a_row(const fth_plan *plan, const fth_value *gradients, int count);
/* Where to write the gradient of weights: the vector itself if the layout is its own, or a buffer
 * that is cast soon. */
fth_status cuda_begin_gradient(fth_plan *plan, fth_value gradient, const cuda_layout *layout, fth_plan_value *as);
fth_status cuda_end_gradient(fth_plan *plan, fth_value gradient, fth_plan_value as);
/* The layout in which a convolution reads its weights. */
cuda_layout cuda_weight_layout(const fth_plan *plan, const fth_convolution_attributes *attributes,
                               const fth_shape *weight, fth_value x);
/* A bias in the compute type, padded to `channels`. */
cuda_layout cuda_bias_layout(const fth_plan *plan, int channels, fth_value bias);
/* The layout in which a convolution reads its input, or writes its output. */
cuda_layout cuda_convolution_input(const fth_plan *plan, const fth_convolution_attributes *attributes, fth_value x);
cuda_layout cuda_convolution_output(const fth_plan *plan, const fth_convolution_attributes *attributes, fth_value y);

#endif
