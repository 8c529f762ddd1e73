/* Where the files of an uncompressed zip archive lie, for reading them in place. Archives for
 * images go through libarchive; this one exists because tensors are used where they are, and
 * libarchive copies. */
#ifndef FTH_TENSOR_ZIP_INTERNAL_H
#define FTH_TENSOR_ZIP_INTERNAL_H

#include "base/base.h"

typedef struct fth_zip_entry {
    const char *name; /* in the archive, not terminated */
    size_t name_length;
    bool compressed; /* and then of no use but to be complained of */
    const unsigned char *data;
    uint64_t size_bytes; /* in the archive */
} fth_zip_entry;

typedef struct fth_zip {
    fth_zip_entry *entries; /* sorted by name, all different */
    size_t count;
} fth_zip;

bool fth_zip_recognize(const void *bytes, size_t size_bytes);

/* Fully validated: everything lies within the archive and nothing overlaps. The bytes must outlive
 * it. Encrypted entries are refused. Checksums are left alone: PyTorch can be told not to compute
 * them, and checking would read every page of a file of which few may be needed. */
fth_status fth_zip_parse(const void *bytes, size_t size_bytes, const char *origin, fth_zip *zip);
void fth_zip_release(fth_zip *zip);

const fth_zip_entry *fth_zip_find(const fth_zip *zip, const char *name, size_t name_length); /* or NULL */

#endif
