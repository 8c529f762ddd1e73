/* Folders for sockets and secrets. */
#ifndef FTH_BASE_PRIVATE_FOLDER_H
#define FTH_BASE_PRIVATE_FOLDER_H

#include "base/status.h"

/* Makes a folder, in one that exists, that only this user can enter. FTH_INVALID if there is
 * something else of that name. */
fth_status fth_folder_create_private(const char *path);

#endif
