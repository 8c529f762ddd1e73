/* Whether this machine has AMX (tiles.h). */
#ifndef FTH_BACKEND_VECTOR_TILES_SUPPORTED_H
#define FTH_BACKEND_VECTOR_TILES_SUPPORTED_H

#include <stdbool.h>

/* Also asks the system to let the process use it. */
bool fth_tiles_are_supported(void);

#endif
