/* Which level of vector instructions a device takes. */
#include <stdlib.h>
#include <string.h>

#include "backend/portable/portable.h"

static bool has_avx2(void)
{
#ifdef PORTABLE_X86_LEVELS
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

static bool has_avx512(void)
{
#ifdef PORTABLE_X86_LEVELS
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && has_avx2();
#else
    return false;
#endif
}

fth_status portable_choose_level(const portable_level **level)
{
    const char *most = getenv("FARTHING_MAX_ISA");
    *level = &portable_level_baseline;
    if (!most || *most == '\0')
        most = "avx512";
    if (strcmp(most, "avx512") != 0 && strcmp(most, "avx2") != 0 && strcmp(most, "baseline") != 0)
        return fth_fail(FTH_INVALID, "FARTHING_MAX_ISA is '%s'; use avx512, avx2 or baseline", most);
#ifdef PORTABLE_X86_LEVELS
    if (strcmp(most, "baseline") != 0 && has_avx2())
        *level = &portable_level_avx2;
    if (strcmp(most, "avx512") == 0 && has_avx512())
        *level = &portable_level_avx512;
#endif
    return FTH_OK;
}
