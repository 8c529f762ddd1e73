/* 3×3 convolutions with stride 2, by Winograd's method: see level/strided_tile.h. */
#ifndef FTH_BACKEND_CPU_STRIDED_H
#define FTH_BACKEND_CPU_STRIDED_H

#include "backend/cpu/blocked_kernels.h"

/* Whether they are faster than a direct convolution, and accurate enough
 * (tests/unit/test_backend_winograd.c). */
bool cpu_strided_pays(const blocked_convolution *c);

#endif
