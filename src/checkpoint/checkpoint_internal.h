/* The manifest of a checkpoint; shared with its fuzz target. */
#ifndef FTH_CHECKPOINT_CHECKPOINT_INTERNAL_H
#define FTH_CHECKPOINT_CHECKPOINT_INTERNAL_H

#include "checkpoint/checkpoint.h"

enum { FTH_MANIFEST_FORMAT = 1, FTH_MAX_MANIFEST_BYTES = 16 << 20 };

/* {"format": 1, "step": 1200, "tensors": {"file": "step-….safetensors", "bytes": …, "sha256": "…"}, "state": {…}} */
typedef struct fth_manifest {
    int64_t step;
    char file[64]; /* in the manifest's own folder, never a path */
    uint64_t size_bytes;
    char sha256[65];
    json_t *state;
} fth_manifest;

/* `origin` names the bytes in errors. */
fth_status fth_manifest_parse(const char *bytes, size_t size, const char *origin, fth_manifest *manifest);
void fth_manifest_release(fth_manifest *manifest);

/* The caller frees the text with free(). */
fth_status fth_manifest_format(const fth_manifest *manifest, char **text);

#endif
