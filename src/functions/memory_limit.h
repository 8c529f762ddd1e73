/* How much memory the platform lets this process have, where it says so by no variable. */
#ifndef FTH_FUNCTIONS_MEMORY_LIMIT_H
#define FTH_FUNCTIONS_MEMORY_LIMIT_H

#include <stdint.h>

/* The least limit of the process's control group (v1 or v2) and of its address space and data
 * (ulimit -v, -d); 0: there is none. */
uint64_t fth_memory_limit_bytes(void);

/* Lets allocations beyond the limit fail, where else the platform would kill the process in the
 * midst of them: memory is also allocated by libraries, for what their input says. Limits that are
 * lower stay. */
void fth_memory_limit_enforce(uint64_t limit_bytes);

#endif
