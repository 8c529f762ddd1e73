/* The tables of our own kernels, and which of them the device uses. */
#include "backend/cpu/level.h"

#define DECLARE(type, name) extern const struct type name##_baseline, name##_avx2, name##_avx512, name##_avx512_bf16;
CPU_LEVEL_TABLES(DECLARE)
#undef DECLARE

#define BASELINE(type, name)    .name = &name##_baseline,
#define AVX2(type, name)        .name = &name##_avx2,
#define AVX512(type, name)      .name = &name##_avx512,
#define AVX512_BF16(type, name) .name = &name##_avx512_bf16,

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

const cpu_level *cpu_level_with_bf16(const cpu_level *level)
{
#ifdef FTH_COMPILED_FOR_AVX512_BF16
    static const cpu_level with_bf16 = {.level = FTH_LEVEL_AVX512, .lanes = 16, CPU_LEVEL_TABLES(AVX512_BF16)};
    if (level->level == FTH_LEVEL_AVX512)
        return &with_bf16;
#endif
    return level;
}
