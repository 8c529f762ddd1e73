/* Shards of training data in a function: downloaded from a presigned URL, kept between invocations
 * by ETag, opened as a data set.
 *
 * archive_set.h describes the formats and the handling of hostile archives. Programs in an archive
 * are ignored; nothing that was downloaded is executed. Redirects are not followed. Messages name
 * URLs without their query.
 *
 * Processes may share the folder. A shard appears in it complete, with its ETag and a checksum, so
 * a killed process leaves nothing that is mistaken for one. The least recently used files make
 * room. Without a writable folder, shards are held in memory for one invocation. One thread at a
 * time. */
#ifndef FTH_FUNCTIONS_SHARD_CACHE_H
#define FTH_FUNCTIONS_SHARD_CACHE_H

#include "data/data.h"

typedef struct fth_shard_cache fth_shard_cache;

typedef struct fth_shard_request {
    const char *url; /* http(s)://, or file:// and a path */
    bool foreign; /* another machine chose the URL: it must not lead to files, services or link-local addresses of this
                     one */
    const char *etag;                       /* expected; NULL or "": any */
    int64_t first, count;                   /* the range of samples; count 0: all from `first` on */
    bool ranged;                            /* use this range; else the archive may have its own */
    const fth_normalization *normalization; /* NULL: the set's own */
    int height, width;                      /* of the network's input; 0: the set's own */
    uint64_t max_bytes;                     /* of the samples in memory; 0: 1 GiB */
    fth_deadline deadline;
    const fth_stop *stop; /* may be NULL */
} fth_shard_request;

typedef struct fth_shard_facts {
    char etag[128];          /* "": none */
    uint64_t received_bytes; /* 0: from the cache */
    double seconds;          /* fetching and opening */
    int64_t first, count;    /* the range of samples in the data set */
} fth_shard_facts;

/* Creates `folder` if necessary; does not use one that other users own or may write to.
 * `limit_bytes`: of the folder and of each shard; 0: 400 MB. */
fth_status fth_shard_cache_open(const char *folder, uint64_t limit_bytes, fth_shard_cache **cache);
void fth_shard_cache_free(fth_shard_cache *cache);
/* Lends the data set until the next call; the same request gets the same set. All samples are in
 * FTH_TRAIN. A cached shard with the expected ETag costs no request, any other cached shard a
 * request without a transfer (If-None-Match). */
fth_status fth_shard_cache_get(fth_shard_cache *cache, const fth_shard_request *request, fth_dataset **dataset,
                               fth_shard_facts *facts);

#endif
