/* Checkpoints: whole, verified, and the newest good one found again.
 *
 * A checkpoint of step 1200 in a store is two objects:
 *
 *     step-000000001200.safetensors   every tensor: parameters, buffers, optimizer state
 *     step-000000001200.json          the manifest: size and SHA-256 of the tensors, and the run's
 *                                     state; written last and removed first, so it is the mark of a
 *                                     whole checkpoint
 *
 * Where machines take turns on a run, names and manifests carry the owner's fencing number
 * (step-000000001200-f000003): the newest checkpoint is the one of the highest fence, and among
 * those of the highest step. So whatever a machine that lost the run still manages to write, it
 * never wins over its successor's.
 *
 * A kill at any moment leaves the previous checkpoint intact.
 *
 * publish.c    puts a checkpoint into a store (listing.c: names and retention; manifest.c; space.c:
 *              full disks)
 * load.c       finds the newest good one
 * move.c       brings one from a folder to a store
 * writer.h     the thread that does this during training */
#ifndef FTH_CHECKPOINT_CHECKPOINT_H
#define FTH_CHECKPOINT_CHECKPOINT_H

#include <jansson.h>

#include "base/base.h"
#include "store/store.h"
#include "tensor/tensor.h"

/* Where checkpoints go, and under which rules. What it points to outlives it. */
typedef struct fth_checkpoint_place {
    fth_store *store;
    const char *prefix; /* of the keys: "checkpoints/", or "" */
    int64_t fence;      /* 0: the run has one owner only */
    int keep;           /* the newest so many stay; at least 1 */
    double keep_for_s;  /* and of those the ones not older than this, the newest always; 0: any age */
    bool unconditional; /* the store cannot do conditional writes, and the user knows */
    /* Asked right before every write: anything but FTH_OK ends the save. May be NULL. */
    fth_status (*guard)(void *context);
    void *guard_context;
} fth_checkpoint_place;

/* Saves `bytes`, a safetensors file in memory. `state` is stored in the manifest as it is. Then
 * removes what is no longer to be kept; failing at that is a warning. A failure leaves earlier
 * checkpoints alone, except that on a full disk older ones than the newest make room, one by one.
 * `progress` (may be NULL) can cancel the upload of the tensors. */
fth_status fth_checkpoint_put(const fth_checkpoint_place *place, int64_t step, const void *bytes, size_t size_bytes,
                              const json_t *state, const fth_store_progress *progress);

/* Warns where the disk of a folder cannot hold as many checkpoints of `size_bytes` as are to be
 * kept. */
void fth_checkpoint_warn_of_space(const fth_checkpoint_place *place, uint64_t size_bytes);
/* After FTH_NO_SPACE: removes the oldest checkpoint of a folder that is not the newest whole one.
 * True: write again. Where there is none that may be removed it is true once, as *tried_again says
 * (false at first): another thread may have made room meanwhile. The message of the failure before
 * stays. */
bool fth_checkpoint_make_room(const fth_checkpoint_place *place, bool *tried_again);

typedef struct fth_checkpoint {
    int64_t step, fence;
    json_t *state;
    fth_safetensors *tensors;
} fth_checkpoint;

/* Loads the newest checkpoint whose manifest and checksum hold; others are skipped with a warning
 * that names them and why. None at all: FTH_OK and tensors == NULL. All bad: FTH_CORRUPT. Tensors
 * from elsewhere pass through a file in `download_folder` that is gone when the call returns.
 * FTH_INTERRUPTED if `stop` (may be NULL) is asked. */
fth_status fth_checkpoint_get_latest(const fth_checkpoint_place *place, const char *download_folder,
                                     const fth_stop *stop, fth_checkpoint *checkpoint);
/* The same from a folder. */
fth_status fth_checkpoint_load_latest(const char *folder, fth_checkpoint *checkpoint);
void fth_checkpoint_release(fth_checkpoint *checkpoint);

/* Moves the newest complete checkpoint of the folder `from` to `to`, under its own fence, unless
 * the run has continued without it: if `last_owner`, the last in the run's record, came later,
 * or if `to` has that checkpoint or a newer one. `from` is empty afterwards. *step: of the
 * checkpoint in `from`; -1: there was none. */
fth_status fth_checkpoint_move(const fth_checkpoint_place *from, const fth_checkpoint_place *to, int64_t last_owner,
                               const fth_stop *stop, int64_t *step, bool *moved);
fth_status fth_checkpoint_remove_all(const fth_checkpoint_place *place);

/* Writes a model file (parameters and buffers under PyTorch's names) atomically. The
 * caller has checked that they are finite. */
fth_status fth_model_file_save(const char *path, const fth_tensor_view *views, size_t view_count,
                               const fth_metadata_entry *metadata, size_t metadata_count);

#endif
