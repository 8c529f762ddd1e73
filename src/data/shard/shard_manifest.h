/* The manifest of a data set's shards, `shards.json`, which lies beside them: the set's properties,
 * and the name, samples, size and checksum of each shard. `farthing data shard` writes it last, so
 * a manifest implies complete shards.
 *
 *     {"format": 1, "dataset": "mnist", "classes": 10, "class_names": ["0", ...], "channels": 1,
 *      "height": 28, "width": 28, "normalization": {"mean": [0.1307], "std": [0.3081]},
 *      "samples": 60000, "seed": 0, "held_out": {"fraction": 0.1, "seed": 1, "by_class": true},
 *      "shards": [{"name": "part-0001.tar.gz", "samples": 10000, "size_bytes": 1650000,
 *                  "sha256": "..."}, ...]}
 *
 * "held_out" is present if the set has no validation part: validation must hold out the same
 * samples.
 *
 * Reading is strict: an inconsistent manifest, a name that could lead elsewhere or a value beyond
 * the limits below is FTH_CORRUPT. Unknown members are ignored; another format is
 * FTH_UNSUPPORTED. */
#ifndef FTH_DATA_SHARD_MANIFEST_H
#define FTH_DATA_SHARD_MANIFEST_H

#include <stdint.h>

#include "base/base.h"
#include "data/data.h"
#include "store/store.h"

#define FTH_SHARD_MANIFEST_NAME "shards.json"

enum {
    FTH_SHARD_MANIFEST_BYTES = 32 << 20, /* of the file */
    FTH_SHARD_MANIFEST_SHARDS = 65536,
    FTH_SHARD_MANIFEST_CLASSES = 65536,
    FTH_SHARD_NAME_BYTES = 255 /* of a shard's or class's name, without NUL */
};

typedef struct fth_listed_shard {
    char *name; /* relative to the manifest; letters, digits and ._-+=, not beginning with '.' */
    int64_t samples;
    uint64_t size_bytes;
    char sha256[65];
} fth_listed_shard;

/* Zeroed: empty. Owns its pointers. */
typedef struct fth_shard_manifest {
    char *dataset; /* name of the set */
    int classes;
    char **class_names;          /* (classes) */
    int channels, height, width; /* of a network's input */
    fth_normalization normalization;
    int64_t samples;       /* of all shards together */
    uint64_t seed;         /* that assigned samples to shards */
    fth_held_out held_out; /* the samples that the shards leave out for validation */
    fth_listed_shard *shards;
    size_t shard_count;
} fth_shard_manifest;

void fth_shard_manifest_release(fth_shard_manifest *manifest);

/* `source` begins error messages. On failure the manifest is empty. */
fth_status fth_shard_manifest_parse(const char *text, size_t size_bytes, const char *source,
                                    fth_shard_manifest *manifest);
/* As text that ends with a newline; equal manifests give equal bytes. FTH_INVALID if it could not
 * be read back. free() it. */
fth_status fth_shard_manifest_format(const fth_shard_manifest *manifest, char **text);

/* Reads the manifest of a store. Absent: FTH_OK and *found false. */
fth_status fth_shard_manifest_read(fth_store *store, fth_shard_manifest *manifest, bool *found);

/* A URL from which the shard can be downloaded: presigned for `seconds` in a bucket, file:// for a
 * folder, its own on a web server. free() it. */
fth_status fth_shard_make_url(fth_store *store, const char *name, double seconds, char **url);

#endif
