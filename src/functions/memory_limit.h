/* How much memory the platform allows this process, if no variable says so. */
#ifndef FTH_FUNCTIONS_MEMORY_LIMIT_H
#define FTH_FUNCTIONS_MEMORY_LIMIT_H

#include <stdint.h>

/* The smallest limit of the control group (v1 or v2), the address space and the data (ulimit -v,
 * -d); 0: none. */
uint64_t fth_memory_limit_bytes(void);

/* Makes allocations beyond the limit fail, so that the platform does not kill the process:
 * libraries also allocate what their input asks for. Keeps lower limits. */
void fth_memory_limit_enforce(uint64_t limit_bytes);

#endif
