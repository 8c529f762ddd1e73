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
/* Opens (O_PATH) the folder at `address`, or fails with FTH_INVALID where its address has a part
 * ".." or leads through a symbolic link. If there is none: FTH_OK and *folder -1. *path (free()
 * it): its path from "/" on, without dots, "" for "/" itself. */
fth_status fth_folder_open_strictly(const char *address, char **path, int *folder);
/* A folder that may be deleted with all that is in it (folder_delete.c). */
typedef struct fth_folder_deletion {
    char *path;         /* from "/" on, without links or dots */
    int parent, folder; /* open */
    uint64_t files, bytes;
} fth_folder_deletion;
/* Zeroed but for the descriptors, -1, on failure as well. */
fth_status fth_folder_deletion_begin(const char *address, fth_folder_deletion *deletion);
fth_status fth_folder_deletion_perform(const fth_folder_deletion *deletion);
void fth_folder_deletion_release(fth_folder_deletion *deletion);
/* Visits the objects below the open folder `root` (`where`, for messages) whose keys begin with
 * `prefix`, in order of keys; deletes temporaries that a killed writer left a day ago or earlier.
 * *left_out is increased by each link to a folder, broken link and special file. Versions have no
 * checksums, which would cost opening every file. */
fth_status fth_folder_list(int root, const char *where, const char *prefix,
                           bool (*visit)(void *context, const fth_store_object *), void *context, uint64_t *left_out);

#endif
