/* Reads the entries of an archive in order: tar or zip, as a whole or entry by entry compressed
 * (gzip, xz, zstd, bzip2). The archive is in memory or mapped. (tar_scan.h finds the members of a
 * plain tar without reading through it.)
 *
 *     open -> next -> [decompress] -> read or skip, any number of times -> next ... -> free
 *
 * Reading fails with FTH_INTERRUPTED or FTH_TIMEOUT within about 64 KiB after a stop is asked or
 * the deadline has passed, and with FTH_CORRUPT where the archive is damaged or expands too far. */
#ifndef FTH_DATA_ARCHIVE_READER_H
#define FTH_DATA_ARCHIVE_READER_H

#include "data/archive/entry_path.h"

enum {
    FTH_ARCHIVE_ENTRIES = 1, /* tar and zip */
    FTH_ARCHIVE_SINGLE = 2   /* a file that is no archive counts as a single entry */
};

typedef struct fth_archive_input {
    const uint8_t *bytes;
    size_t size_bytes;
    const char *name; /* begins error messages */
    int forms;
    uint64_t most_bytes;   /* limit of what entries expand to, with 512 for each header; 0: none */
    const fth_stop *stop;  /* or NULL */
    fth_deadline deadline; /* at_seconds 0: none */
} fth_archive_input;

typedef enum fth_entry_kind { FTH_ENTRY_FILE, FTH_ENTRY_FOLDER, FTH_ENTRY_OTHER /* a link or device */ } fth_entry_kind;

/* Lent until the next entry. */
typedef struct fth_archive_entry {
    const char *raw_path; /* "" if there is none */
    const char *raw_name; /* its last part */
    const fth_entry_path *path;
    fth_path_kind path_kind; /* whether `path` can be used */
    fth_entry_kind kind;
    bool has_size; /* the archive states its size */
    bool single;   /* the input is this file and no archive */
} fth_archive_entry;

typedef struct fth_archive fth_archive;

/* `input` is copied; what it points to outlives the archive. */
fth_status fth_archive_open(const fth_archive_input *input, fth_archive **archive);
void fth_archive_free(fth_archive *archive);
/* The next entry; *entry is NULL after the last. */
fth_status fth_archive_next(fth_archive *archive, const fth_archive_entry **entry);
/* Reads of this entry give its decompressed bytes if its name ends in .gz or .xz. */
fth_status fth_archive_decompress_entry(fth_archive *archive);
/* Up to `size_bytes` bytes of the entry; fewer only at its end. */
fth_status fth_archive_read(fth_archive *archive, void *into, size_t size_bytes, size_t *got);
fth_status fth_archive_skip(fth_archive *archive, uint64_t size_bytes, uint64_t *skipped);

/* Turns FTH_CORRUPT into FTH_INTERRUPTED or FTH_TIMEOUT if reading was ended early. */
fth_status fth_archive_explain(const fth_archive_input *input, fth_status status);

#endif
