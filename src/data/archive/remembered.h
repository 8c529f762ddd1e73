/* Results that took long to find, kept as text in the cache folder: listings of buckets, members of
 * tars. Files carry a checksum; a damaged one is ignored. */
#ifndef FTH_DATA_REMEMBERED_H
#define FTH_DATA_REMEMBERED_H

#include <stddef.h>

#include "base/base.h"

/* The path of the file for `what`, below `folder` in the cache folder, which is created if needed.
 * free() it. */
fth_status fth_remembered_path(const char *folder, const char *what, char **path);
fth_status fth_remembered_write(const char *path, const char *text, size_t size_bytes);
/* The text without its checksum; NULL if there is none that is intact. free() it. */
char *fth_remembered_read(const char *path);

#endif
