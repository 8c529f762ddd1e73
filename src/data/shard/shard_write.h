/* Splits the training samples of a set into shards for workers that each take one at a time:
 * archives in a store, and their list (shard_manifest.h), which archive_set.h opens again.
 *
 * Every shard has each class in about the same proportion, and its samples in an order of their
 * own; both follow from the seed, and so do the bytes. The list is written last: a run that was
 * interrupted is finished by the same call. */
#ifndef FTH_DATA_SHARD_WRITE_H
#define FTH_DATA_SHARD_WRITE_H

#include "data/data.h"
#include "data/shard/shard_manifest.h"

enum { FTH_MOST_PARTS = 9999 };

typedef struct fth_shard_write_options {
    int parts;
    uint64_t seed;
    const char *format;   /* one of fth_shard_formats */
    bool replace;         /* other shards at that place are removed; else they are FTH_INVALID */
    const fth_stop *stop; /* may be NULL */
} fth_shard_write_options;

/* What a shard holds: "auto", "idx" (grey images of up to 10 classes, as MNIST), "cifar" (32 × 32
 * in colour, up to 256 classes) or "images" (class folders of the files as they are).
 * NULL-terminated. */
extern const char *const fth_shard_formats[];

/* *manifest is what was written, or was there already (*written is then 0); release it in any
 * case. */
fth_status fth_dataset_write_shards(const fth_dataset *dataset, fth_store *store,
                                    const fth_shard_write_options *options, fth_shard_manifest *manifest, int *written);

#endif
