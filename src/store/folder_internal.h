/* What the files of the folder store share. */
#ifndef FTH_STORE_FOLDER_INTERNAL_H
#define FTH_STORE_FOLDER_INTERNAL_H

#include <sys/stat.h>

#include "store/store.h"

#define FTH_FOLDER_LOCK ".farthing-lock" /* stands for its folder where that cannot be locked */

/* The part of a version that is made of inode, size and time; gives its length. */
int fth_folder_begin_version(const struct stat *facts, fth_store_version *version);
/* Names of temporaries and of the lock, which are no objects. */
bool fth_folder_is_reserved(const char *name);
/* Visits the objects below `root` whose keys begin with `prefix`, in order of keys; deletes temporaries that a killed
 * writer left a day ago or earlier. Versions have no checksums, which would cost opening every file. */
fth_status fth_folder_list(const char *root, const char *prefix, bool (*visit)(void *context, const fth_store_object *),
                           void *context);

#endif
