/* Deleting files and folders. No delete leaves the folder it was given: each folder on the way is
 * entered through a descriptor of the one above, so that a symbolic link, also one that takes a
 * folder's place meanwhile, is refused and never followed. Whatever deletes more than one file that
 * it made itself does so through these functions. */
#ifndef FTH_BASE_REMOVE_H
#define FTH_BASE_REMOVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Opens (O_PATH) the folder that the first `length` bytes of `path` name below the open folder `root` ("" is `root`
 * itself), without following a link: a link on the way is FTH_INVALID. If there is no such folder: FTH_OK and *folder
 * -1. `where` is the path of `root`, for messages. The caller closes *folder. */
fth_status fth_folder_enter(int root, const char *where, const char *path, size_t length, int *folder);

/* Opens (O_RDONLY) the folder `name` in the open folder `parent`, to go through what is in it.
 * Neither a link nor the root of a mount: -1 with errno ELOOP, ENOTDIR or EXDEV. */
int fth_folder_open_below(int parent, const char *name);

/* True if something, a single file perhaps, is mounted at `name` in `parent`; false where the
 * kernel does not say (before 5.8). */
bool fth_entry_is_mount(int parent, const char *name);
/* True if `folder`, opened from `parent`, is the root of a mount. */
bool fth_folder_is_mount(int folder, int parent);

/* Deletes the folder that the first `length` bytes of `path` name below `root`, and those above it
 * up to but without `root`, as long as they are empty. Stops silently at the first that is not. */
void fth_remove_empty_folders(int root, const char *path, size_t length);

/* Is `name`, in a folder called `folder`, to be deleted? A folder of which this is false is not
 * entered. */
typedef bool fth_remove_wanted(const char *folder, const char *name, bool is_folder);

/* Deletes `name` in the open folder `parent` (or at a path, with AT_FDCWD), and if it is a folder
 * all in it for which `wanted` (NULL: everything) holds; a folder that is not empty then stays. A
 * link is deleted itself. Mounts are not entered. Goes on after a failure and returns the first;
 * absent is FTH_OK. `path` is for messages; *freed_bytes (may be NULL) is added to. */
fth_status fth_remove_tree_at(int parent, const char *name, const char *path, fth_remove_wanted *wanted,
                              uint64_t *freed_bytes);

/* Deletes all that is in the open folder, in the same way; the folder stays. */
fth_status fth_remove_inside(int folder, const char *path);

/* Deletes all that can be deleted at `path` and below it, for folders that the caller made. Links
 * in the way to its last part are followed. NULL and missing are fine; cannot fail, and leaves the
 * error message as it is. */
void fth_remove_tree(const char *path);

#endif
