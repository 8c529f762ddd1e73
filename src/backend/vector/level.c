/* Chooses a device's level of vector instructions. */
#include <stdlib.h>
#include <string.h>

#include "backend/vector/level.h"

static const char *const names[FTH_LEVEL_COUNT] = {"baseline", "avx2", "avx512"};

const char *fth_vector_level_name(fth_vector_level level)
{
    return names[level];
}

fth_vector_level fth_vector_level_best(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return FTH_LEVEL_BASELINE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return FTH_LEVEL_AVX512;
    return FTH_LEVEL_AVX2;
#else
    return FTH_LEVEL_BASELINE;
#endif
}

bool fth_vector_level_allows_tiles(void)
{
    const char *most = getenv("FARTHING_MAX_ISA");
    return !most || *most == '\0' || strcmp(most, "amx") == 0;
}

fth_status fth_vector_level_choose(fth_vector_level *level)
{
    const char *most = getenv("FARTHING_MAX_ISA");
    *level = fth_vector_level_best();
    if (fth_vector_level_allows_tiles())
        return FTH_OK;
    for (int i = 0; i < FTH_LEVEL_COUNT; i++) {
        if (strcmp(most, names[i]) != 0)
            continue;
        if ((fth_vector_level)i < *level)
            *level = (fth_vector_level)i;
        return FTH_OK;
    }
    return fth_fail(FTH_INVALID, "FARTHING_MAX_ISA is '%s'; use amx, avx512, avx2 or baseline", most);
}
