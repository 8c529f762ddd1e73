/* Threads that fetch samples ahead of need, to hide the latency of a store.
 *
 * Readers announce what they will need with fth_fetch_pool_expect() and take it later. Pieces are
 * fetched in the order of need, and once for all readers that expect them within some time. Pieces
 * that nobody takes are dropped after a while. */
#ifndef FTH_DATA_FETCH_POOL_H
#define FTH_DATA_FETCH_POOL_H

#include "data/image/decode.h"
#include "data/source/provider.h"

typedef struct fth_fetch_pool fth_fetch_pool;

/* A part of an object, identified by `entry`. */
typedef struct fth_fetch {
    size_t entry, object;
    uint64_t offset;
    size_t size_bytes; /* 0: unknown or none; fetched by a request of its own */
    /* fth_clock_seconds() when it is needed; equal times keep the order of announcement. 0: now, by
     * one reader, which announces it again for the next time. */
    double needed_s;
} fth_fetch;

/* How pieces are fetched. Any thread. */
typedef struct fth_fetch_source {
    void *context;
    /* True if the bytes are available already; they are then in `buffer`. */
    bool (*find)(void *context, const fth_fetch *fetch, fth_pixel_buffer *buffer, size_t *size_bytes);
    /* Fetches one piece. */
    fth_status (*get)(void *context, const fth_fetch *fetch, fth_pixel_buffer *buffer, size_t *size_bytes);
    /* Fetches several pieces of an object at once, instead of get(). */
    fth_status (*get_run)(void *context, size_t object, uint64_t offset, size_t size_bytes, uint8_t *into);
    /* Called with each fetched piece. */
    void (*keep)(void *context, const fth_fetch *fetch, const uint8_t *bytes, size_t size_bytes);
    void (*begin_thread)(void *context); /* called first by each thread of the pool */
    /* Why requests take long, for a message, and whether they are known to fail; false: unknown.
     * Optional. */
    bool (*explain)(void *context, bool *failing, char *text, size_t size);
} fth_fetch_source;

typedef struct fth_fetch_limits {
    int threads;
    size_t pieces;      /* most pieces that are waiting or ready */
    uint64_t bytes;     /* most bytes of them; one piece always fits */
    uint64_t run_bytes; /* most bytes of neighbouring pieces that are fetched together ... */
    uint64_t gap_bytes; /* ... and the most bytes between them */
    double forgotten_s; /* age after which an untaken piece may be dropped for others */
} fth_fetch_limits;

fth_status fth_fetch_pool_create(const fth_fetch_source *source, const fth_fetch_limits *limits, fth_fetch_pool **pool);
/* Waits for requests in progress; the source ends them early if it can. */
void fth_fetch_pool_free(fth_fetch_pool *pool);

/* Returns how many of the pieces, from the first on, are accepted: fewer if there is no room. Never
 * waits. */
size_t fth_fetch_pool_expect(fth_fetch_pool *pool, const fth_fetch *pieces, size_t count);
/* Takes a piece, waiting as long as `patience` (may be NULL) allows. An unexpected piece is fetched
 * first, whatever the limits. *seconds is the time that fetching took. */
fth_status fth_fetch_pool_take(fth_fetch_pool *pool, const fth_fetch *piece, const fth_patience *patience,
                               fth_pixel_buffer *buffer, size_t *size_bytes, double *seconds);

#endif
