/* Finds the members of a plain tar by its headers alone, wherever the tar is: in memory, mapped, or
 * in a store. */
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
    /* Gives `size_bytes` bytes from `offset` on, which are inside the tar; valid until the next
     * call. */
    fth_status (*at)(void *context, uint64_t offset, size_t size_bytes, const uint8_t **bytes);
    void *context;
} fth_tar_input;

/* Visits the members in order. Reads ustar, GNU's long names and pax. Sparse files are
 * FTH_UNSUPPORTED; a file that is no tar or is truncated is FTH_CORRUPT. `name` begins messages. */
fth_status fth_tar_scan(const fth_tar_input *input, const char *name,
                        fth_status (*visit)(void *context, const fth_tar_member *member), void *context);

#endif
