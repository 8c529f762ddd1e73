/* Bodies of pushes in the log's other file: copied there once, as they arrive, and checked and
 * applied from there.
 *
 *     log-000000001200.data    beside log-000000001200.wal, whose records say where in it their bodies are
 *
 * A place is taken by whoever receives a body, in any order; it counts when a record refers to it,
 * and is free again when none will. So a process killed at any moment leaves places that nothing
 * refers to, and no more. The file is mapped, and stays so when it is used again for the next log:
 * then a body is written and read like memory. */
#ifndef FTH_PARAMETERS_WAL_BLOBS_H
#define FTH_PARAMETERS_WAL_BLOBS_H

#include "base/base.h"

typedef struct fth_wal_blobs fth_wal_blobs; /* the file; closed when neither the log nor any body has it */

/* A body's place. All zero: none. */
typedef struct fth_wal_blob {
    fth_wal_blobs *file;
    uint64_t offset, size_bytes;
    const char *bytes; /* mapped; NULL beyond what is mapped */
    uint64_t hash;     /* once it is filled */
    bool kept;         /* a record refers to it */
} fth_wal_blob;

/* Opens or makes a file whose first `used_bytes` are taken; `map_bytes` of it are mapped, whether
 * they are there or not yet. */
fth_status fth_wal_blobs_open(const char *path, uint64_t used_bytes, size_t map_bytes, fth_wal_blobs **blobs);
void fth_wal_blobs_ref(fth_wal_blobs *blobs);
void fth_wal_blobs_unref(fth_wal_blobs *blobs);                          /* NULL is fine */
bool fth_wal_blobs_in_use(const fth_wal_blobs *blobs);                   /* by more than one */
bool fth_wal_blobs_are_at(const fth_wal_blobs *blobs, const char *path); /* the same file */
bool fth_wal_blobs_are_gone(const fth_wal_blobs *blobs);                 /* the file has no name any more */
/* Nothing in it is taken any more, and it is called `path` now. Where it is not in use. */
fth_status fth_wal_blobs_clear(fth_wal_blobs *blobs, const char *path);
uint64_t fth_wal_blobs_used_bytes(fth_wal_blobs *blobs);
fth_status fth_wal_blobs_sync(fth_wal_blobs *blobs);

/* Safe from any thread, each for a body of its own. */
void fth_wal_blobs_take(fth_wal_blobs *blobs, uint64_t size_bytes, fth_wal_blob *blob);
/* Copies the body there: from `bytes` or, where those are NULL, from the beginning of the file
 * `fd`. That may be memory which another process changes or takes away meanwhile: what counts is
 * what has arrived, and FTH_INVALID says that it was gone. *largest: no number behind the header of
 * a safetensors file, all taken as f32, is larger in magnitude; INFINITY where that is not
 * known. */
fth_status fth_wal_blob_fill(fth_wal_blob *blob, const void *bytes, int fd, float *largest);
void fth_wal_blob_release(fth_wal_blob *blob); /* its place is free again, unless it is kept */

/* Of a body anywhere, as in fth_wal_blob.hash. */
uint64_t fth_wal_blob_hash(const void *bytes, uint64_t size_bytes);

#endif
