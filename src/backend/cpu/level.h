/* Our own kernels: one table per level of vector instructions (vector/level.h). The files in level/
 * are compiled once per level, and once more for AVX-512 with AVX512_BF16, which rounds to bf16 in
 * one instruction. Each file defines the table of one concept; the struct is in that concept's
 * header. */
#ifndef FTH_BACKEND_CPU_LEVEL_H
#define FTH_BACKEND_CPU_LEVEL_H

#include <stdint.h>

#include "backend/vector/level.h"

/* Every table: its type and name. To add one, write level/NAME.c, which defines AT_LEVEL(NAME), and
 * add a row here. */
#define CPU_LEVEL_TABLES(ROW)                                                                                          \
    ROW(batch_norm_kernels, batch_norm)                                                                                \
    ROW(block_weights_kernels, block_weights)                                                                          \
    ROW(blocked_kernels, depthwise)                                                                                    \
    ROW(expression_kernels, expression)                                                                                \
    ROW(long_linear_kernels, long_linear)                                                                              \
    ROW(nan_max_pool_kernels, nan_max_pool)                                                                            \
    ROW(narrow_kernels, narrow)                                                                                        \
    ROW(blocked_kernels, pixelwise)                                                                                    \
    ROW(plain_max_pool_kernels, plain_max_pool)                                                                        \
    ROW(blocked_kernels, pointwise)                                                                                    \
    ROW(blocked_kernels, strided)                                                                                      \
    ROW(strided_copy_kernels, strided_copy)                                                                            \
    ROW(thin_linear_kernels, thin_linear)                                                                              \
    ROW(winograd_kernels, winograd)

typedef struct cpu_level {
    fth_vector_level level;
    int64_t lanes; /* floats in a vector, and channels in a block of our kernels' images */
#define MEMBER(type, name) const struct type *name;
    CPU_LEVEL_TABLES(MEMBER)
#undef MEMBER
} cpu_level;

fth_status cpu_level_choose(const cpu_level **level);
/* The tables for a processor with AVX512_BF16; `level` itself if it is not AVX-512, or if those
 * were not compiled. */
const cpu_level *cpu_level_with_bf16(const cpu_level *level);

#endif
