/* Folders: creating them, making them durable, temporary ones, and the one for downloads. A NULL
 * path is FTH_NO_MEMORY (path.h). */
#ifndef FTH_BASE_FOLDER_H
#define FTH_BASE_FOLDER_H

#include <stdbool.h>

#include "base/status.h"

bool fth_folder_exists(const char *path);
fth_status fth_folder_create(const char *path); /* with its parents; fine if it exists */
/* Makes the entries of a folder durable, as far as its file system can. */
fth_status fth_folder_sync(const char *path);
fth_status fth_folder_sync_at(int folder, const char *path); /* one that is open for reading; `path` for messages */

/* Makes a folder under $TMPDIR, or /tmp, of its own; the caller removes it. free() its path. */
fth_status fth_folder_create_temporary(char **folder);

/* Where downloads are kept: $FARTHING_CACHE, $XDG_CACHE_HOME/farthing or ~/.cache/farthing, made if
 * need be. free() it. */
fth_status fth_cache_folder(char **folder);

#endif
