/* Detects AMX. Compiled for every processor. */
#include "backend/vector/tiles_supported.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FEATURES = 7 };

/* tiles.h uses AVX512_BF16 and other AVX-512 extensions to pack numbers. */
static bool packing_is_supported(void)
{
    enum { AVX512_BF16 = 1 << 5 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __get_cpuid_count(FEATURES, 1, &a, &b, &c, &d) && (a & AVX512_BF16);
}

/* The processor must have AMX, and the kernel must save the tile state, which a process has to
 * request. */
bool fth_tiles_are_supported(void)
{
    enum { BF16 = 1 << 22, TILES = 1 << 24 };
    enum { ARCH_REQUEST_STATE = 0x1023, TILE_DATA = 18 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!packing_is_supported() || !__get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) ||
        (d & (BF16 | TILES)) != (BF16 | TILES))
        return false;
    return syscall(SYS_arch_prctl, ARCH_REQUEST_STATE, TILE_DATA) == 0;
}

bool fth_tiles_are_hidden(void)
{
    enum { TILES = 1 << 24, DESCRIPTION = 0x1d };
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) || !(d & TILES))
        return false;
    return !__get_cpuid_count(DESCRIPTION, 0, &a, &b, &c, &d) || a == 0;
}

#else

bool fth_tiles_are_supported(void)
{
    return false;
}

bool fth_tiles_are_hidden(void)
{
    return false;
}

#endif
