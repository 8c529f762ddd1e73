/* Whether this machine has AMX (tiles.h). */
#ifndef FTH_BACKEND_VECTOR_TILES_SUPPORTED_H
#define FTH_BACKEND_VECTOR_TILES_SUPPORTED_H

#include <stdbool.h>

/* Also requests the kernel's permission to use it, for the whole process. */
bool fth_tiles_are_supported(void);

/* Some virtual machines report AMX but hide the CPUID leaf that describes its tiles. oneDNN reads
 * the number of tiles there and configures none; our own kernels do not need the description. */
bool fth_tiles_are_hidden(void);

#endif
