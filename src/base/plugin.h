/* Plugins: parts of the program in separate files, farthing_<name>.so, that need libraries which
 * not every machine has. They are loaded on demand, use functions of the program or library that
 * loads them, and stay loaded for the life of the process: unloading code that may own threads is
 * not safe. */
#ifndef FTH_BASE_PLUGIN_H
#define FTH_BASE_PLUGIN_H

#include "base/status.h"

enum { FTH_PLUGIN_PATH_SIZE = 3584 };

/* Looks for farthing_<name>.so in $FARTHING_PLUGINS, beside the program or library, and in
 * lib/farthing as seen from where that is installed. FTH_INVALID, naming the folders, if it is in
 * none of them. */
fth_status fth_plugin_find(const char *name, char path[FTH_PLUGIN_PATH_SIZE]);
/* Loads the file and finds `symbol` in it. FTH_UNSUPPORTED, with the linker's reason, if that
 * fails. */
fth_status fth_plugin_load(const char *path, const char *symbol, const void **found);

#endif
