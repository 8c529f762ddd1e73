/* Levels of vector instructions: what kernels are compiled for, and which of them a device takes. */
#ifndef FTH_BACKEND_VECTOR_LEVEL_H
#define FTH_BACKEND_VECTOR_LEVEL_H

#include "base/base.h"

typedef enum fth_vector_level {
    FTH_LEVEL_BASELINE, /* what every processor of the architecture has: SSE2, NEON */
    FTH_LEVEL_AVX2,     /* with FMA */
    FTH_LEVEL_AVX512,   /* F, DQ, BW and VL */
    FTH_LEVEL_COUNT
} fth_vector_level;

fth_vector_level fth_vector_level_best(void); /* of the processor */
/* The best, or the one that FARTHING_MAX_ISA allows. */
fth_status fth_vector_level_choose(fth_vector_level *level);
/* Whether FARTHING_MAX_ISA allows AMX (tiles.h) beside the best level: it says amx, or nothing. */
bool fth_vector_level_allows_tiles(void);
const char *fth_vector_level_name(fth_vector_level level);

#endif
