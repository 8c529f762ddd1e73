/* Snapshots: the state of an engine as it was between two updates, on the host, under PyTorch's
 * names.
 *
 * A snapshot's memory is laid out as the safetensors file that it becomes, so a checkpoint costs
 * training one copy of the flat vectors, or not even that where the device can copy its own memory:
 *
 *     created --begin--> begun (maybe still on the device) --finish--> on the host: views, as_file
 *        ^                                                                 |
 *        +----------------------------- begin again -----------------------+
 *
 * `finish` may be called by another thread than `begin`; everything else is up to one thread at a
 * time. A snapshot is freed before its engine. */
#ifndef FTH_TRAIN_SNAPSHOT_H
#define FTH_TRAIN_SNAPSHOT_H

#include "train/engine/engine.h"

typedef struct fth_snapshot fth_snapshot;

/* Copies the model (parameters, buffers, counters) to the host; `whole`: the optimizer's state too,
 * under "optimizer.<vector>.<parameter>". `batches` is what num_batches_tracked counters say. */
fth_status fth_engine_take_snapshot(fth_engine *engine, bool whole, int64_t batches, fth_snapshot **snapshot);

/* The same in parts, for memory that is used again and training that does not wait. `begin` holds
 * the state as it is now; `finish`, by any thread, waits until it is on the host, while the engine
 * computes. A snapshot may be begun again unless a thread is finishing it. Preparing it first, by
 * any thread, spares the first `begin` its page faults and allocations. */
fth_status fth_engine_create_snapshot(fth_engine *engine, bool whole, fth_snapshot **snapshot);
void fth_snapshot_prepare(fth_snapshot *snapshot);
fth_status fth_snapshot_begin(fth_snapshot *snapshot, int64_t batches);
fth_status fth_snapshot_finish(fth_snapshot *snapshot);

/* The model as it is, without a copy where the device's memory is the host's: valid until the
 * engine changes it. Only for fth_snapshot_views(). */
fth_status fth_engine_lend_model(fth_engine *engine, int64_t batches, fth_snapshot **snapshot);

void fth_snapshot_free(fth_snapshot *snapshot);

const fth_tensor_view *fth_snapshot_views(const fth_snapshot *snapshot, size_t *count);
/* The same and, unless the snapshot is whole, what only model files have (fth_file_tensor): its
 * numbers need not be finite. */
const fth_tensor_view *fth_snapshot_file_views(const fth_snapshot *snapshot, size_t *count);
size_t fth_snapshot_size_bytes(const fth_snapshot *snapshot);
/* A whole snapshot as a safetensors file in memory, without a copy: valid until the snapshot is
 * started again or freed. */
fth_status fth_snapshot_as_file(fth_snapshot *snapshot, const void **bytes, size_t *size_bytes);
/* FTH_DIVERGED, naming the first tensor and place, if a number in it is not finite. */
fth_status fth_snapshot_check_finite(const fth_snapshot *snapshot);

#endif
