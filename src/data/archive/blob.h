/* The bytes of files: mapped in place, or decompressed into memory. */
#ifndef FTH_DATA_BLOB_H
#define FTH_DATA_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "data/data.h"
#include "store/store.h"

typedef struct fth_blob {
    const uint8_t *bytes;
    size_t size_bytes;
    bool mapped;
} fth_blob;
void fth_blob_free(fth_blob *blob);

bool fth_is_compressed(const uint8_t *bytes, size_t size_bytes);
/* The size that the trailer of a gzip file states, modulo 4 GiB; 0 if it is no gzip file. */
size_t fth_gzip_stated_size(const uint8_t *bytes, size_t size_bytes);
/* Decompresses gzip, xz or zstd, recognized by their magic numbers. A result of more than
 * `max_bytes` is an error; no more than that is ever allocated, whatever headers promise. `name`
 * begins error messages. */
fth_status fth_decompress(const uint8_t *bytes, size_t size_bytes, size_t max_bytes, const char *name,
                          const fth_stop *stop, fth_blob *blob);

typedef struct fth_load {
    char *path; /* owned; NULL: nothing to load */
    size_t max_bytes;
    fth_blob blob; /* the result, owned */
} fth_load;

/* Loads files on up to options->threads threads. Release with fth_loads_free() in any case. */
fth_status fth_loads_run(fth_load *loads, int count, const fth_dataset_options *options);
void fth_loads_free(fth_load *loads, int count);

/* True if a file's name is one of `stems` (ends with NULL), plain, .gz or .xz. */
bool fth_name_fits(const char *name, const char *const *stems);
bool fth_has_file(const char *folder, const char *const *stems);
/* The path of the first of `stems` found in `folder`, plain, .gz or .xz; NULL: none. free() it. */
char *fth_find_file(const char *folder, const char *const *stems);

/* FTH_INTERRUPTED if `stop`, which may be NULL, is asked. */
fth_status fth_check_stop(const fth_stop *stop, const char *name);
/* Ends a transfer once `stop`, which may be NULL, is asked. */
fth_store_progress fth_stop_progress(const fth_stop *stop);

#endif
