/* Threads that fetch what will be needed soon, so that a slow place is as good as a fast one.
 *
 * Whoever knows what comes next says so with fth_fetch_pool_expect(); whoever needs it takes it.
 * Pieces are fetched in the order of need, whoever expects them, and once for all who expect them
 * for some time. What nobody takes is dropped after a while. */
#ifndef FTH_DATA_FETCH_POOL_H
#define FTH_DATA_FETCH_POOL_H

#include "data/image/decode.h"
#include "data/source/provider.h"

typedef struct fth_fetch_pool fth_fetch_pool;

/* A piece of an object; `entry` is what it is known by. */
typedef struct fth_fetch {
    size_t entry, object;
    uint64_t offset;
    size_t size_bytes; /* 0: unknown, or none: fetched by itself */
    double needed_s;   /* fth_clock_seconds() when it is needed; pieces needed at the same time come in the order in which
                        * they were expected. 0: at once, by a single reader, which reads it again when it needs it again */
} fth_fetch;

/* How pieces are fetched; from any thread. */
typedef struct fth_fetch_source {
    void *context;
    /* True if it need not be fetched: its bytes are in `buffer`. */
    bool (*find)(void *context, const fth_fetch *fetch, fth_pixel_buffer *buffer, size_t *size_bytes);
    /* Fetches a piece. */
    fth_status (*get)(void *context, const fth_fetch *fetch, fth_pixel_buffer *buffer, size_t *size_bytes);
    /* Fetches a part of an object that has several of them, for which get() is not called then. */
    fth_status (*get_run)(void *context, size_t object, uint64_t offset, size_t size_bytes, uint8_t *into);
    /* Told of each piece that was fetched. */
    void (*keep)(void *context, const fth_fetch *fetch, const uint8_t *bytes, size_t size_bytes);
    void (*begin_thread)(void *context); /* called first by each thread of the pool */
    /* What requests are up against, for a message, and whether they are known to fail; false:
     * nothing is known. Optional. */
    bool (*explain)(void *context, bool *failing, char *text, size_t size);
} fth_fetch_source;

typedef struct fth_fetch_limits {
    int threads;
    size_t pieces;      /* at most so many are waited for or ready */
    uint64_t bytes;     /* and so many bytes of them, but one always fits */
    uint64_t run_bytes; /* neighbouring pieces are fetched together up to so many bytes ... */
    uint64_t gap_bytes; /* ... if so many lie between them at most */
    double forgotten_s; /* what is ready and not taken for so long is dropped when there is no room */
} fth_fetch_limits;

fth_status fth_fetch_pool_create(const fth_fetch_source *source, const fth_fetch_limits *limits, fth_fetch_pool **pool);
/* Waits for requests under way; the source ends them early if it can. */
void fth_fetch_pool_free(fth_fetch_pool *pool);

/* How many of the pieces, from the first on, are taken note of: fewer than all where there is no
 * room. Never waits. */
size_t fth_fetch_pool_expect(fth_fetch_pool *pool, const fth_fetch *pieces, size_t count);
/* Takes a piece, waiting for it as long as `patience` (may be NULL) allows; what was not expected
 * is fetched first of all, beyond the limits. *buffer gets its bytes, *seconds what fetching it
 * took. */
fth_status fth_fetch_pool_take(fth_fetch_pool *pool, const fth_fetch *piece, const fth_patience *patience,
                               fth_pixel_buffer *buffer, size_t *size_bytes, double *seconds);

#endif
