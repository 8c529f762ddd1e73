/* Our own kernels as one table for each level of vector instructions (vector/level.h). The files of level/ are compiled once per
 * level; each defines the table of one concept, whose struct is in that concept's header. */
#ifndef FTH_BACKEND_CPU_LEVEL_H
#define FTH_BACKEND_CPU_LEVEL_H

#include <stdint.h>

#include "backend/vector/level.h"

/* Every table; a new one is a file level/NAME.c that defines AT_LEVEL(NAME), and its row here. */
#define CPU_LEVEL_TABLES(ROW)                                                                                          \
    ROW(batch_norm)                                                                                                    \
    ROW(long_linear)                                                                                                   \
    ROW(nan_max_pool)                                                                                                  \
    ROW(narrow)                                                                                                        \
    ROW(pixelwise)                                                                                                     \
    ROW(plain_max_pool)                                                                                                \
    ROW(pointwise)                                                                                                     \
    ROW(thin_linear)                                                                                                   \
    ROW(winograd)

typedef struct cpu_level {
    fth_vector_level level;
    int64_t lanes; /* floats in a vector: our kernels take images in blocks of as many channels */
#define MEMBER(name) const struct name##_kernels *name;
    CPU_LEVEL_TABLES(MEMBER)
#undef MEMBER
} cpu_level;

fth_status cpu_level_choose(const cpu_level **level);

#endif
