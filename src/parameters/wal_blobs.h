/* WAL blobs: large bodies of pushes in the log's second file, copied there once as they arrive, and
 * checked and applied from there.
 *
 *     log-000000001200.data    beside log-000000001200.wal, whose records say where their blobs are
 *
 * Blobs are reserved in any order. A blob counts when a record refers to it, and is freed when no
 * record will. A process killed at any moment leaves at most blobs that nothing refers to. The file
 * is mapped, and stays mapped when it is recycled for the next log, so that blobs are written and
 * read like memory. */
#ifndef FTH_PARAMETERS_WAL_BLOBS_H
#define FTH_PARAMETERS_WAL_BLOBS_H

#include "base/base.h"

typedef struct fth_wal_blobs fth_wal_blobs; /* the file; closed with its last reference */

/* All zero: none. */
typedef struct fth_wal_blob {
    fth_wal_blobs *file;
    uint64_t offset, size_bytes;
    const char *bytes; /* mapped; NULL beyond the mapping */
    uint64_t hash;     /* once it is filled */
    bool kept;         /* a record refers to it */
} fth_wal_blob;

/* Opens or creates a file whose first `used_bytes` are taken, and maps `map_bytes`, whether the
 * file has them yet or not. */
fth_status fth_wal_blobs_open(const char *path, uint64_t used_bytes, size_t map_bytes, fth_wal_blobs **blobs);
void fth_wal_blobs_unref(fth_wal_blobs *blobs);                          /* NULL is fine */
bool fth_wal_blobs_in_use(const fth_wal_blobs *blobs);                   /* there are several references */
bool fth_wal_blobs_are_at(const fth_wal_blobs *blobs, const char *path); /* `path` is the same file */
bool fth_wal_blobs_are_gone(const fth_wal_blobs *blobs);                 /* the file was unlinked */
/* Frees all blobs; the file is now called `path`. Only if it is not in use. */
fth_status fth_wal_blobs_clear(fth_wal_blobs *blobs, const char *path);
uint64_t fth_wal_blobs_used_bytes(fth_wal_blobs *blobs);
fth_status fth_wal_blobs_sync(fth_wal_blobs *blobs);

/* From any thread, each with a blob of its own. */
void fth_wal_blobs_take(fth_wal_blobs *blobs, uint64_t size_bytes, fth_wal_blob *blob);
/* Fills the blob from `bytes` or, if NULL, from the start of the file `fd`, which may be memory
 * that another process changes or truncates meanwhile: what counts is what was read, and
 * FTH_INVALID means that it was truncated. *largest: an upper bound of the magnitude of the numbers
 * after the safetensors header, read as f32; INFINITY: unknown. */
fth_status fth_wal_blob_fill(fth_wal_blob *blob, const void *bytes, int fd, float *largest);
void fth_wal_blob_release(fth_wal_blob *blob); /* frees its place unless a record keeps it */

/* The hash of any body, as in fth_wal_blob.hash. */
uint64_t fth_wal_blob_hash(const void *bytes, uint64_t size_bytes);

#endif
