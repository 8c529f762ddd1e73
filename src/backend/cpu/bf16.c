/* Our kernels for products in bf16, for the best instructions that there are. */
#include "backend/cpu/bf16.h"

#include "backend/vector/tiles_supported.h"

#ifdef FTH_COMPILED_FOR_AMX
extern const bf16_kernels bf16_kernels_amx, bf16_kernels_dot;

const bf16_kernels *bf16_kernels_of_machine(bool amx, bool dot)
{
    if (amx && fth_tiles_are_supported())
        return &bf16_kernels_amx;
    return dot && fth_bf16_dots_are_supported() ? &bf16_kernels_dot : NULL;
}

#else

const bf16_kernels *bf16_kernels_of_machine(bool amx, bool dot)
{
    (void)amx, (void)dot;
    return NULL;
}

#endif
