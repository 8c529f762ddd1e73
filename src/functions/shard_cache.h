/* Shards of training data in a function: downloaded from a presigned URL, kept between invocations by ETag, opened as a data
 * set.
 *
 * Understood are .tar.gz, .tar or .zip archives of MNIST idx files, CIFAR-10 binary files or class folders of images, at any
 * depth (the prototype's dataset_dl/data/MNIST/raw/ too), and single such files. Everything else in an archive, programs
 * included, is skipped; nothing that was downloaded is executed, and no entry is written outside the cache folder. */
#ifndef FTH_FUNCTIONS_SHARD_CACHE_H
#define FTH_FUNCTIONS_SHARD_CACHE_H

#include "data/data.h"

typedef struct fth_shard_cache fth_shard_cache;

typedef struct fth_shard_request {
    const char *url;                        /* http(s)://, or file:// and a path where data is local */
    const char *etag;                       /* that it must have; NULL or "": whatever it has */
    int64_t first, count;                   /* the range of samples that is meant; count 0: all from `first` on */
    const fth_normalization *normalization; /* NULL: the set's own */
    fth_deadline deadline;
    const fth_stop *stop; /* may be NULL */
} fth_shard_request;

typedef struct fth_shard_facts {
    char etag[128];          /* "": the server gives none */
    uint64_t received_bytes; /* 0: it was in the cache */
    double seconds;          /* fetching and opening */
    int64_t first, count;    /* the range, as far as there are samples */
} fth_shard_facts;

fth_status fth_shard_cache_open(const char *folder, uint64_t limit_bytes, fth_shard_cache **cache);
void fth_shard_cache_free(fth_shard_cache *cache);
/* Lends the data set until the next call. All of its samples are in the split FTH_SPLIT_TRAIN. */
fth_status fth_shard_cache_get(fth_shard_cache *cache, const fth_shard_request *request, fth_dataset **dataset,
                               fth_shard_facts *facts);

#endif
