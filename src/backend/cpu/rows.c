/* Conversions between f32 and bf16. See rows.h. */
#include "backend/cpu/rows.h"

CPU_VECTORIZED void cpu_widen(const uint16_t *from, float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = cpu_from_bf16(from[i]);
}

CPU_VECTORIZED void cpu_narrow(const float *from, uint16_t *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = cpu_to_bf16(from[i]);
}
