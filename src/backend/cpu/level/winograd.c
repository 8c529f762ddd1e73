/* The table of Winograd kernels at one level. */
#include "backend/cpu/level/winograd_level.h"

const winograd_kernels AT_LEVEL(winograd) = {.correlate = AT_LEVEL(winograd_correlate),
                                             .correlate_floats = AT_LEVEL(winograd_correlate_floats),
                                             .grad_weights = AT_LEVEL(winograd_grad_weights),
                                             .grad_weights_floats = AT_LEVEL(winograd_grad_weights_floats)};
