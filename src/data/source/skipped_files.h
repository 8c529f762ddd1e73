/* Files among a set's images in formats that cannot be read: their number, and some names. */
#ifndef FTH_DATA_SKIPPED_FILES_H
#define FTH_DATA_SKIPPED_FILES_H

#include <jansson.h>
#include <stdint.h>

enum { FTH_SKIPPED_NAMED = 10, FTH_SKIPPED_NAME = 160 };

typedef struct fth_skipped_files {
    int64_t count;
    char names[FTH_SKIPPED_NAMED][FTH_SKIPPED_NAME]; /* the first in order; fth_skipped_files_named() are set */
} fth_skipped_files;

/* Counts a file, and keeps its path, relative to the set, if it is among the first in order. */
void fth_skipped_files_add(fth_skipped_files *skipped, const char *path);
int fth_skipped_files_named(const fth_skipped_files *skipped);
/* "skipped 2 files in formats that are not read: a.heic, b.webp"; free() it. NULL: no memory. */
char *fth_skipped_files_describe(const fth_skipped_files *skipped);
/* {"count", "names"}; the caller owns it. */
json_t *fth_skipped_files_to_json(const fth_skipped_files *skipped);

/* Copies a path into `text`, of at least FTH_SKIPPED_NAME bytes: a long path is shortened in the
 * middle. */
void fth_path_shorten(const char *path, char *text, size_t size);

#endif
