/* How much memory the platform lets this process have, where it says so by no variable. */
#ifndef FTH_FUNCTIONS_MEMORY_LIMIT_H
#define FTH_FUNCTIONS_MEMORY_LIMIT_H

#include <stdint.h>

/* The least limit of the process's control group (v1 or v2) and of its address space (ulimit -v); 0: there is none. */
uint64_t fth_memory_limit_bytes(void);

#endif
