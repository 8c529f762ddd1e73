/* Images in f32 or bf16, read and written as vectors of floats: kernels that compute in f32 serve
 * plans of both dtypes. */
#ifndef FTH_BACKEND_CPU_LEVEL_STORED_H
#define FTH_BACKEND_CPU_LEVEL_STORED_H

#include <stdbool.h>

#include "backend/vector/vector.h"

typedef struct stored {
    const void *numbers;
    bool bf16; /* else f32 */
} stored;

/* Loads the numbers from `at` on. */
INLINE vector load_stored(const stored *from, int64_t at)
{
    return from->bf16 ? load_bf16_part((const uint16_t *)from->numbers + at, LANES)
                      : load((const float *)from->numbers + at);
}

INLINE vector load_stored_part(const stored *from, int64_t at, int64_t count)
{
    return from->bf16 ? load_bf16_part((const uint16_t *)from->numbers + at, count)
                      : load_part((const float *)from->numbers + at, count);
}

INLINE void store_rounded(void *to, int64_t at, vector v, const bool bf16)
{
    if (bf16)
        store_bf16_part((uint16_t *)to + at, v, LANES);
    else
        store((float *)to + at, v);
}

#endif
