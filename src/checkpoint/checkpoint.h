/* Checkpoints: whole, verified, and the newest good one found again.
 *
 * A checkpoint of step 1200 in a folder is two files:
 *
 *     step-000000001200.safetensors   every tensor: parameters, buffers, optimizer state
 *     step-000000001200.json          the manifest: size and SHA-256 of the tensors, and the run's state;
 *                                     written last and removed first, so it is the mark of a whole checkpoint
 *
 * Both are published atomically. A kill at any moment leaves the previous checkpoint intact. */
#ifndef FTH_CHECKPOINT_CHECKPOINT_H
#define FTH_CHECKPOINT_CHECKPOINT_H

#include <jansson.h>

#include "base/base.h"
#include "tensor/tensor.h"

/* Saves into `folder` (made if missing). `state` is stored in the manifest as it is. Then removes all but the
 * newest `keep` checkpoints; keep >= 1. A failure leaves earlier checkpoints alone. */
fth_status fth_checkpoint_save(const char *folder, int64_t step, const fth_tensor_view *views, size_t view_count,
                               const json_t *state, int keep);

typedef struct fth_checkpoint {
    int64_t step;
    json_t *state;
    fth_safetensors *tensors;
} fth_checkpoint;

/* Loads the newest checkpoint whose manifest and checksum hold; others are skipped with a warning that names
 * them and why. None at all: FTH_OK and tensors == NULL. All bad: FTH_CORRUPT. */
fth_status fth_checkpoint_load_latest(const char *folder, fth_checkpoint *checkpoint);
void fth_checkpoint_release(fth_checkpoint *checkpoint);

/* Writes a model file (parameters and buffers under PyTorch's names) atomically. */
fth_status fth_model_file_save(const char *path, const fth_tensor_view *views, size_t view_count,
                               const fth_metadata_entry *metadata, size_t metadata_count);

#endif
