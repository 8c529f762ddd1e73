/* Our own kernels as one table for each level of vector instructions (vector/level.h). The files of level/ are compiled once per
 * level, and once more for AVX-512 with AVX512_BF16, which rounds to bf16 in one instruction; each defines the table of one concept,
 * whose struct is in that concept's header. */
#ifndef FTH_BACKEND_CPU_LEVEL_H
#define FTH_BACKEND_CPU_LEVEL_H

#include <stdint.h>

#include "backend/vector/level.h"

/* Every table: its type and name. A new one is a file level/NAME.c that defines AT_LEVEL(NAME), and its row here. */
#define CPU_LEVEL_TABLES(ROW)                                                                                          \
    ROW(batch_norm_kernels, batch_norm)                                                                                \
    ROW(block_weights_kernels, block_weights)                                                                          \
    ROW(long_linear_kernels, long_linear)                                                                              \
    ROW(nan_max_pool_kernels, nan_max_pool)                                                                            \
    ROW(narrow_kernels, narrow)                                                                                        \
    ROW(blocked_kernels, pixelwise)                                                                                    \
    ROW(plain_max_pool_kernels, plain_max_pool)                                                                        \
    ROW(blocked_kernels, pointwise)                                                                                    \
    ROW(blocked_kernels, strided)                                                                                      \
    ROW(thin_linear_kernels, thin_linear)                                                                              \
    ROW(winograd_kernels, winograd)

typedef struct cpu_level {
    fth_vector_level level;
    int64_t lanes; /* floats in a vector: our kernels take images in blocks of as many channels */
#define MEMBER(type, name) const struct type *name;
    CPU_LEVEL_TABLES(MEMBER)
#undef MEMBER
} cpu_level;

fth_status cpu_level_choose(const cpu_level **level);
/* The tables for a processor with AVX512_BF16; `level` itself if it is not AVX-512, or if they were not compiled. */
const cpu_level *cpu_level_with_bf16(const cpu_level *level);

#endif
