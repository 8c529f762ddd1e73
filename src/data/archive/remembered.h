/* Small things that took long to find out, kept as text in the cache folder: lists of buckets, the
 * members of tars. A file is whole and carries a checksum; what cannot be read is found out
 * again. */
#ifndef FTH_DATA_REMEMBERED_H
#define FTH_DATA_REMEMBERED_H

#include <stddef.h>

#include "base/base.h"

/* The file for `what`, under `folder` of the cache folder, made if need be. free() it. */
fth_status fth_remembered_path(const char *folder, const char *what, char **path);
fth_status fth_remembered_write(const char *path, const char *text, size_t size_bytes);
/* The text, without its checksum; NULL if there is none that is whole. free() it. */
char *fth_remembered_read(const char *path);

#endif
