/* The table of kernels of 3×3 convolutions with stride 2 at one level. */
#include "backend/cpu/level/strided_level.h"

const blocked_kernels AT_LEVEL(strided) = {.forward = AT_LEVEL(strided_forward),
                                           .forward_floats = AT_LEVEL(strided_forward_floats),
                                           .grad_input = AT_LEVEL(strided_grad_input),
                                           .grad_input_floats = AT_LEVEL(strided_grad_input_floats),
                                           .grad_weights = AT_LEVEL(strided_grad_weights),
                                           .grad_weights_floats = AT_LEVEL(strided_grad_weights_floats)};
