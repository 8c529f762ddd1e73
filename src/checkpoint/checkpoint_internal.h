/* What the files of src/checkpoint share; the manifest also with its fuzz target. */
#ifndef FTH_CHECKPOINT_CHECKPOINT_INTERNAL_H
#define FTH_CHECKPOINT_CHECKPOINT_INTERNAL_H

#include "checkpoint/checkpoint.h"

/* ---- manifests ---- */

enum { FTH_MANIFEST_FORMAT = 1, FTH_MAX_MANIFEST_BYTES = 16 << 20 };

/* {"format": 1, "step": 1200, "fence": 3, "tensors": {"file": "step-….safetensors", "bytes": …,
 * "sha256": "…"}, "state": {…}}; no fence where there is none */
typedef struct fth_manifest {
    int64_t step, fence;
    char file[64]; /* beside the manifest, never a path */
    uint64_t size_bytes;
    char sha256[65];
    json_t *state;
} fth_manifest;

/* `origin` names the bytes in errors. */
fth_status fth_manifest_parse(const char *bytes, size_t size, const char *origin, fth_manifest *manifest);
void fth_manifest_release(fth_manifest *manifest);

/* The caller frees the text with free(). */
fth_status fth_manifest_format(const fth_manifest *manifest, char **text);

/* ---- listing.c: what is in a place ---- */

/* A folder as a place without a prefix that keeps one checkpoint; fth_store_free(place->store). */
fth_status fth_checkpoint_open_folder(const char *folder, fth_checkpoint_place *place);

typedef struct fth_checkpoint_entry {
    int64_t step, fence;
    bool manifest; /* else tensors */
    bool second;   /* tensors of a step that was saved twice by one owner */
    double modified_s;
    uint64_t size_bytes;
} fth_checkpoint_entry;

typedef struct fth_checkpoint_listing {
    fth_checkpoint_entry *entries; /* the newest first: by fence, then by step; manifests before tensors */
    size_t count, capacity;
} fth_checkpoint_listing;

fth_status fth_checkpoint_list(const fth_checkpoint_place *place, fth_checkpoint_listing *listing);
/* The object's name without the prefix: "step-000000001200-f000003.json". */
void fth_checkpoint_name(const fth_checkpoint_entry *entry, char *name, size_t size);
char *fth_checkpoint_key(const fth_checkpoint_place *place, const char *name); /* free() it */
/* Where an object is, for messages; free() it. */
char *fth_checkpoint_describe(const fth_checkpoint_place *place, const char *name);

/* The manifest of (step, fence); *found false if there is none. */
fth_status fth_checkpoint_read_manifest(const fth_checkpoint_place *place, int64_t step, int64_t fence,
                                        fth_manifest *manifest, bool *found);

fth_status fth_checkpoint_remove_entry(const fth_checkpoint_place *place, const fth_checkpoint_entry *entry);
/* Removes tensors that no manifest names, and counts them: for the one process that saves there,
 * between two saves. */
fth_status fth_checkpoint_remove_unnamed(const fth_checkpoint_place *place, const fth_checkpoint_listing *listing,
                                         size_t *removed);
/* Removes what a process that was killed while writing or fetching has left in a folder. */
void fth_checkpoint_remove_temporaries(const char *folder);
/* Removes what is not to be kept any more now that (step, place->fence) is saved, and what a kill
 * left behind. */
fth_status fth_checkpoint_tidy(const fth_checkpoint_place *place, int64_t step);

/* ---- space.c ---- */

/* As fth_checkpoint_make_room, but tensors without a manifest go first; see
 * fth_checkpoint_remove_unnamed. */
bool fth_checkpoint_make_room_to_save(const fth_checkpoint_place *place, bool *tried_again);

#endif
