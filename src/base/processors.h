/* How many processors there are to work with, and what they can do. */
#ifndef FTH_BASE_PROCESSORS_H
#define FTH_BASE_PROCESSORS_H

#include <stdbool.h>

/* Those that this process may run on (taskset, cpusets of containers); at least 1. */
int fth_processors_usable(void);
/* Those of the machine that are online; at least 1. */
int fth_processors_online(void);

typedef struct fth_processor {
    char name[200];        /* "AMD EPYC 9R14", "Arm Neoverse V1"; "unknown" if the system does not say */
    char features[100];    /* of its vector instructions: "avx2 avx512f", "asimd sve bf16"; "": none worth naming */
    bool has_wide_vectors; /* those of every machine of the last ten years */
    bool has_bf16;         /* instructions for products of bf16 */
} fth_processor;
void fth_processor_describe(fth_processor *processor);

#endif
