/* Deleting files and folders. No deletion leaves the folder it was given: each folder on the way is
 * entered through a descriptor of the one above, so a symbolic link is never followed, even if it
 * replaces a folder meanwhile. All code that deletes more than a single file of its own uses these
 * functions. */
#ifndef FTH_BASE_REMOVE_H
#define FTH_BASE_REMOVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Opens (O_PATH) the folder below the open folder `root` that the first `length` bytes of `path`
 * name ("" is `root` itself). A link on the way is FTH_INVALID. If there is no such folder: FTH_OK
 * with -1 in *folder. `where` is the path of `root`, for messages. The caller closes *folder. */
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

/* Deletes `name` in the open folder `parent` (or at a path, with AT_FDCWD). Of a folder, deletes
 * everything for which `wanted` holds (NULL: everything), and then the folder if it is empty. A
 * link itself is deleted, not its target. Mounts are not entered. Continues after a failure and
 * returns the first; FTH_OK if `name` is absent. `path` is for messages; *freed_bytes (may be NULL)
 * is added to. */
fth_status fth_remove_tree_at(int parent, const char *name, const char *path, fth_remove_wanted *wanted,
                              uint64_t *freed_bytes);

/* Deletes all that is in the open folder, in the same way; the folder stays. */
fth_status fth_remove_inside(int folder, const char *path);

/* Deletes all that can be deleted at `path` and below it, for folders that the caller made. Links
 * in the way to its last part are followed. NULL and missing are fine; cannot fail, and leaves the
 * error message as it is. */
void fth_remove_tree(const char *path);

#endif
