/* What an engine has for peers: processes that each compute with a part of every batch, sum their
 * gradients, and make the same update (--strategy data-parallel). */
#ifndef FTH_TRAIN_ENGINE_PEERS_H
#define FTH_TRAIN_ENGINE_PEERS_H

#include "train/engine/engine.h"

/* True with --batch-norm synchronized: then peers that have parts of each batch sum its statistics
 * in every compute() and step(). They must be set before the first of these, and again whenever the
 * group changes. Without, a batch is taken to be whole. */
bool fth_engine_is_synchronized(const fth_engine *engine);
fth_status fth_engine_set_peers(fth_engine *engine, fth_peers peers);
/* With peers that have a device group, the last batch of a group of accumulated batches has its
 * gradients summed over them, beside the backward pass. Waits for that; FTH_PEER_LOST and
 * FTH_TIMEOUT as fth_backend_collectives says. */
fth_status fth_engine_wait_for_sums(fth_engine *engine);

/* Called while gradients are computed, whenever more of them are final: floats [0, floats) of the
 * vector that the update uses. */
typedef struct fth_gradients_watch {
    void *context;
    void (*ready)(void *context, size_t floats);
} fth_gradients_watch;
/* fth_engine_compute() of the last batch of a group, whose gradients are passed on as they become
 * final; all of them have been when it returns FTH_OK or FTH_DIVERGED. */
fth_status fth_engine_compute_watched(fth_engine *engine, const fth_batch *batch, const fth_group *group,
                                      const fth_gradients_watch *watch, fth_step_result *result);

/* fth_engine_update() of floats [begin, end) of the trained parameters alone, where other processes
 * update the rest. Clipping and f16's scale are judged by all gradients. */
typedef struct fth_float_range {
    size_t begin, end;
} fth_float_range;
fth_status fth_engine_update_ranges(fth_engine *engine, double learning_rate, int64_t update,
                                    const fth_float_range *ranges, int count);

/* Moves the gradients that an update uses to `to`, which must stay valid as long as the engine
 * trains. For devices whose memory is the host's; FTH_UNSUPPORTED elsewhere. */
fth_status fth_engine_move_gradients(fth_engine *engine, float *to);
/* Where the vectors are, on the device; lent. */
fth_engine_vectors fth_engine_get_vectors(const fth_engine *engine);
/* The gradients that an update uses, on the device; lent, and for others to sum before the
 * update. */
float *fth_engine_get_gradients(const fth_engine *engine);

#endif
