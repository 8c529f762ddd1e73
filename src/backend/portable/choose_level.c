/* Which level of vector instructions a device takes. */
#include "backend/portable/portable.h"
#include "backend/vector/level.h"

fth_status portable_choose_level(const portable_level **level)
{
    static const portable_level *const levels[FTH_LEVEL_COUNT] = {
        [FTH_LEVEL_BASELINE] = &portable_level_baseline,
#if defined(__x86_64__)
        [FTH_LEVEL_AVX2] = &portable_level_avx2,
        [FTH_LEVEL_AVX512] = &portable_level_avx512,
#endif
    };
    fth_vector_level chosen;
    fth_status status = fth_vector_level_choose(&chosen);
    if (status == FTH_OK)
        *level = levels[chosen];
    return status;
}
