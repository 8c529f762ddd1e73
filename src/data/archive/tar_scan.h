/* What lies where in a tar that can be read piece by piece: the members of one in a bucket are
 * found by their headers alone. (Of a tar in memory libarchive tells the same: image_archive.c.) */
#ifndef FTH_DATA_TAR_SCAN_H
#define FTH_DATA_TAR_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef struct fth_tar_member {
    const char *path;
    uint64_t offset, size_bytes; /* of its contents */
    enum { FTH_TAR_FILE, FTH_TAR_FOLDER, FTH_TAR_LINK } kind;
} fth_tar_member;

typedef struct fth_tar_input {
    uint64_t size_bytes;
    /* Gives `size_bytes` bytes from `offset` on, which lie inside; valid until the next call. */
    fth_status (*at)(void *context, uint64_t offset, size_t size_bytes, const uint8_t **bytes);
    void *context;
} fth_tar_input;

/* Visits the members in order. ustar, GNU's long names and pax are understood; sparse files are
 * FTH_UNSUPPORTED, and what is no tar, or is cut short, FTH_CORRUPT. `name` begins messages. */
fth_status fth_tar_scan(const fth_tar_input *input, const char *name,
                        fth_status (*visit)(void *context, const fth_tar_member *member), void *context);

#endif
