/* Our kernels for AMX, where there is one. */
#include "backend/cpu/amx.h"

#include "backend/vector/tiles_supported.h"

#ifdef FTH_COMPILED_FOR_AMX
extern const amx_kernels amx_convolution_kernels;

const amx_kernels *amx_kernels_of_machine(void)
{
    return fth_tiles_are_supported() ? &amx_convolution_kernels : NULL;
}

#else

const amx_kernels *amx_kernels_of_machine(void)
{
    return NULL;
}

#endif
