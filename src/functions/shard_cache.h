/* Shards of training data in a function: downloaded from a presigned URL, kept between invocations
 * by ETag, opened as a data set.
 *
 * What is understood, and what becomes of hostile archives, is archive_set.h's; programs in an
 * archive are passed over, and nothing that was downloaded is executed. Redirects are not followed.
 * URLs are named in messages without their query.
 *
 * Processes may share the folder. A shard appears in it whole, with its ETag and a checksum, so
 * kill -9 leaves nothing that is taken for one; when there is no room the files that were used
 * longest ago are removed. Without a folder that can be written to, shards are held in memory for
 * one invocation. One thread at a time. */
#ifndef FTH_FUNCTIONS_SHARD_CACHE_H
#define FTH_FUNCTIONS_SHARD_CACHE_H

#include "data/data.h"

typedef struct fth_shard_cache fth_shard_cache;

typedef struct fth_shard_request {
    const char *url; /* http(s)://, or file:// and a path where data is local */
    bool
        foreign; /* another machine chose the URL: it must lead to no file, service or link-local address of this one */
    const char *etag;     /* that it must have; NULL or "": whatever it has */
    int64_t first, count; /* the range of samples that is meant; count 0: all from `first` on */
    bool ranged;          /* that is asked for, even if it is all; else the archive may have its own */
    const fth_normalization *normalization; /* NULL: the set's own */
    int height, width;                      /* of the network's input; 0: the set's own */
    uint64_t max_bytes;                     /* that the samples may take in memory; 0: 1 GiB */
    fth_deadline deadline;
    const fth_stop *stop; /* may be NULL */
} fth_shard_request;

typedef struct fth_shard_facts {
    char etag[128];          /* "": the server gives none */
    uint64_t received_bytes; /* 0: it was in the cache */
    double seconds;          /* fetching and opening */
    int64_t first, count;    /* the range, as far as there are samples: the data set has these alone */
} fth_shard_facts;

/* `folder` is made if need be; one that other users own or may write to is as good as none.
 * `limit_bytes`: on the disk, also of any one shard; 0: 400 MB. */
fth_status fth_shard_cache_open(const char *folder, uint64_t limit_bytes, fth_shard_cache **cache);
void fth_shard_cache_free(fth_shard_cache *cache);
/* Lends the data set until the next call, which gives the same one where it is asked for the same.
 * All of its samples are in FTH_TRAIN. A shard with the ETag that was asked for, in the cache,
 * costs no request; another one that is there costs a request without a transfer
 * (If-None-Match). */
fth_status fth_shard_cache_get(fth_shard_cache *cache, const fth_shard_request *request, fth_dataset **dataset,
                               fth_shard_facts *facts);

#endif
