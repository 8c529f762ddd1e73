/* Levels of vector instructions: what kernels are compiled for, and which level a device uses. */
#ifndef FTH_BACKEND_VECTOR_LEVEL_H
#define FTH_BACKEND_VECTOR_LEVEL_H

#include "base/base.h"

typedef enum fth_vector_level {
    FTH_LEVEL_BASELINE, /* present on every processor of the architecture: SSE2, NEON */
    FTH_LEVEL_AVX2,     /* with FMA */
    FTH_LEVEL_AVX512,   /* F, DQ, BW and VL */
    FTH_LEVEL_COUNT
} fth_vector_level;

fth_vector_level fth_vector_level_best(void); /* of the processor */
/* The processor's best, or the level that FARTHING_MAX_ISA limits it to. */
fth_status fth_vector_level_choose(fth_vector_level *level);
/* Whether FARTHING_MAX_ISA allows AMX (tiles.h) on top of the best level: it is "amx", or not
 * set. */
bool fth_vector_level_allows_tiles(void);
const char *fth_vector_level_name(fth_vector_level level);

#endif
