/* What the files of the folder store share. */
#ifndef FTH_STORE_FOLDER_INTERNAL_H
#define FTH_STORE_FOLDER_INTERNAL_H

#include "store/store.h"

#define FTH_FOLDER_LOCK ".farthing-lock" /* stands for its folder where that cannot be locked */

/* Names of temporaries and of the lock, which are no objects. */
bool fth_folder_is_reserved(const char *name);
/* Visits the objects below `root` whose keys begin with `prefix`, in order of keys; deletes temporaries that a killed
 * writer left a day ago or earlier. Versions are left unknown: they would cost opening every file. */
fth_status fth_folder_list(const char *root, const char *prefix, bool (*visit)(void *context, const fth_store_object *),
                           void *context);

#endif
