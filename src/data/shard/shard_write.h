/* Splits the training samples of a set into shards for workers that take one at a time: archives in
 * a store (opened by archive_set.h) and their manifest (shard_manifest.h).
 *
 * Every shard has about the same share of each class, in a random order. Both, and the bytes,
 * depend only on the seed. The manifest is written last; calling again finishes an interrupted
 * run. */
#ifndef FTH_DATA_SHARD_WRITE_H
#define FTH_DATA_SHARD_WRITE_H

#include "data/data.h"
#include "data/shard/shard_manifest.h"

enum { FTH_MOST_PARTS = 9999 };

typedef struct fth_shard_write_options {
    int parts;
    uint64_t seed;
    const char *format;   /* one of fth_shard_formats */
    bool replace;         /* remove other shards at that place; otherwise they are FTH_INVALID */
    const fth_stop *stop; /* may be NULL */
} fth_shard_write_options;

/* The formats of shards: "auto", "idx" (grey images of up to 10 classes, as MNIST), "cifar" (32 ×
 * 32 in colour, up to 256 classes) or "images" (class folders of the files). Ends with NULL. */
extern const char *const fth_shard_formats[];

/* *manifest describes the shards, whether they were written now or before (*written is then 0);
 * release it in any case. */
fth_status fth_dataset_write_shards(const fth_dataset *dataset, fth_store *store,
                                    const fth_shard_write_options *options, fth_shard_manifest *manifest, int *written);

#endif
