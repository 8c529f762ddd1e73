/* The tables of our own kernels, and which of them the device takes. */
#include "backend/cpu/level.h"

#define DECLARE(name) extern const struct name##_kernels name##_baseline, name##_avx2, name##_avx512;
CPU_LEVEL_TABLES(DECLARE)
#undef DECLARE

#define BASELINE(name) .name = &name##_baseline,
#define AVX2(name)     .name = &name##_avx2,
#define AVX512(name)   .name = &name##_avx512,

static const cpu_level levels[FTH_LEVEL_COUNT] = {
    {.level = FTH_LEVEL_BASELINE, .lanes = 4, CPU_LEVEL_TABLES(BASELINE)},
#if defined(__x86_64__)
    {.level = FTH_LEVEL_AVX2, .lanes = 8, CPU_LEVEL_TABLES(AVX2)},
    {.level = FTH_LEVEL_AVX512, .lanes = 16, CPU_LEVEL_TABLES(AVX512)},
#endif
};

fth_status cpu_level_choose(const cpu_level **level)
{
    fth_vector_level chosen;
    fth_status status = fth_vector_level_choose(&chosen);
    if (status == FTH_OK)
        *level = &levels[chosen];
    return status;
}
