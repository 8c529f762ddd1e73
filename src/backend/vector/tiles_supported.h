/* Whether this machine has AMX (tiles.h). */
#ifndef FTH_BACKEND_VECTOR_TILES_SUPPORTED_H
#define FTH_BACKEND_VECTOR_TILES_SUPPORTED_H

#include <stdbool.h>

/* Also asks the system to let the process use it. */
bool fth_tiles_are_supported(void);

/* Some virtual machines announce AMX but hide the CPUID leaf that describes its tiles. oneDNN reads the number of tiles from there and
 * configures none; our own kernels need no such description. */
bool fth_tiles_are_hidden(void);

#endif
