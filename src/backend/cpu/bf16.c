/* Our kernels for products in bf16, if this machine can run them. */
#include "backend/cpu/bf16.h"

#include "backend/vector/tiles_supported.h"

const bf16_kernels *bf16_kernels_of_machine(void)
{
#ifdef FTH_COMPILED_FOR_AMX
    if (fth_tiles_are_supported())
        return &bf16_kernels_amx;
#endif
    return NULL;
}
