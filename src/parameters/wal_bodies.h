/* Bodies of pushes in the log's other file: copied there once, as they arrive, and checked and
 * applied from there.
 *
 *     log-000000001200.data    beside log-000000001200.wal, whose records say where in it their bodies are
 *
 * A place is taken by whoever receives a body, in any order; it counts when a record refers to it,
 * and is free again when none will. So a process killed at any moment leaves places that nothing
 * refers to, and no more. The file is mapped, and stays so when it is used again for the next log:
 * then a body is written and read like memory. */
#ifndef FTH_PARAMETERS_WAL_BODIES_H
#define FTH_PARAMETERS_WAL_BODIES_H

#include "base/base.h"

typedef struct fth_bodies fth_bodies; /* the file; closed when neither the log nor any body has it */

/* A body's place. All zero: none. */
typedef struct fth_body {
    fth_bodies *file;
    uint64_t offset, size_bytes;
    const char *bytes; /* mapped; NULL beyond what is mapped */
    uint64_t hash;     /* once it is filled */
    bool kept;         /* a record refers to it */
} fth_body;

/* Opens or makes a file whose first `used_bytes` are taken; `map_bytes` of it are mapped, whether
 * they are there or not yet. */
fth_status fth_bodies_open(const char *path, uint64_t used_bytes, size_t map_bytes, fth_bodies **bodies);
void fth_bodies_ref(fth_bodies *bodies);
void fth_bodies_unref(fth_bodies *bodies);                          /* NULL is fine */
bool fth_bodies_in_use(const fth_bodies *bodies);                   /* by more than one */
bool fth_bodies_are_at(const fth_bodies *bodies, const char *path); /* the same file */
bool fth_bodies_are_gone(const fth_bodies *bodies);                 /* the file has no name any more */
/* Nothing in it is taken any more, and it is called `path` now. Where it is not in use. */
fth_status fth_bodies_clear(fth_bodies *bodies, const char *path);
uint64_t fth_bodies_used_bytes(fth_bodies *bodies);
fth_status fth_bodies_sync(fth_bodies *bodies);

/* Safe from any thread, each for a body of its own. */
void fth_bodies_take(fth_bodies *bodies, uint64_t size_bytes, fth_body *body);
/* Copies the body there: from `bytes` or, where those are NULL, from the beginning of the file
 * `fd`. That may be memory which another process changes or takes away meanwhile: what counts is
 * what has arrived, and FTH_INVALID says that it was gone. *largest: no number behind the header of
 * a safetensors file, all taken as f32, is larger in magnitude; INFINITY where that is not
 * known. */
fth_status fth_body_fill(fth_body *body, const void *bytes, int fd, float *largest);
void fth_body_release(fth_body *body); /* its place is free again, unless it is kept */

/* Of a body anywhere, as in fth_body.hash. */
uint64_t fth_body_hash(const void *bytes, uint64_t size_bytes);

#endif
