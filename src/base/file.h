/* Files that are either complete or absent.
 *
 * A file being written lives under a temporary name beside its target; publishing syncs it, renames
 * it over the target and syncs the folder, so a reader after any crash sees the old file or the new
 * one.
 *
 *     create -> write ... -> publish -> free        published
 *     create -> write ... -> free                   temporary deleted, target untouched
 *
 * Publishing syncs what was written. Call fth_file_sync() first where publishing must be quick
 * (under a lock). After a crash a temporary may be left: names that begin with FTH_FILE_TEMPORARY
 * are not data. A NULL path is FTH_NO_MEMORY (path.h). */
#ifndef FTH_BASE_FILE_H
#define FTH_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define FTH_FILE_TEMPORARY ".tmp-"

/* Opens (O_RDWR) an empty file of a temporary name beside `path`, which the caller renames or
 * deletes; free() its path. */
fth_status fth_file_open_temporary(const char *path, char **temporary, int *descriptor);
/* Is `name` such a name? Other programs, too, begin names with FTH_FILE_TEMPORARY; those are not
 * ours to delete. */
bool fth_file_is_temporary(const char *name);

typedef struct fth_file fth_file;

fth_status fth_file_create(const char *path, fth_file **file);
/* The same for a name that the user gave, which may stand for a device, a pipe, a link or standard
 * output (output.h). Anything but a regular file is written directly, and publishing only closes
 * it. */
fth_status fth_file_create_output(const char *name, fth_file **file);
fth_status fth_file_write(fth_file *file, const void *bytes, size_t size_bytes);
fth_status fth_file_sync(fth_file *file); /* ends writing */
fth_status fth_file_publish(fth_file *file);
/* Publishes unless the target exists: then *exists is set, and the file can only be freed. One of
 * several that try at once wins. FTH_UNSUPPORTED on file systems that have neither hard links nor a
 * rename that replaces nothing. */
fth_status fth_file_publish_new(fth_file *file, bool *exists);
void fth_file_free(fth_file *file);

const char *fth_file_temporary(const fth_file *file); /* the path it has now; NULL once published */
/* Bytes written so far, and their SHA-256 as 64 hex digits plus NUL (computed while writing). */
uint64_t fth_file_size_bytes(const fth_file *file);
void fth_file_sha256(const fth_file *file, char hex[65]);

/* Write a whole small file through the steps above. */
fth_status fth_file_write_all(const char *path, const void *bytes, size_t size_bytes);
fth_status fth_file_write_output(const char *name, const void *bytes, size_t size_bytes);

/* Reads a whole file; more than `max_bytes` is an error. A NUL follows the last byte. free() the
 * bytes. */
fth_status fth_file_read_all(const char *path, size_t max_bytes, char **bytes, size_t *size_bytes);

/* Maps a file read-only. An empty file gives NULL and 0. */
fth_status fth_file_map(const char *path, const void **bytes, size_t *size_bytes);
void fth_file_unmap(const void *bytes, size_t size_bytes);

fth_status fth_file_sha256_of(const char *path, char hex[65], uint64_t *size_bytes);

bool fth_file_exists(const char *path);

#endif
