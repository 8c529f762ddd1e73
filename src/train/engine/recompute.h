/* --recompute: whether layers are computed again for their gradients, which takes less memory and
 * more time. Either way every number is the same, so a run may be resumed with another choice, or
 * on a machine that makes another. */
#ifndef FTH_TRAIN_RECOMPUTE_H
#define FTH_TRAIN_RECOMPUTE_H

#include "train/engine/engine.h"

/* What the options ask for. For FTH_RECOMPUTE_AUTO: true if training on the largest batch, with
 * all that is kept, would take more than nine tenths of the device's free memory, and says so in
 * the log. `graph` is the one that keeps everything. */
fth_status fth_recompute_choose(const fth_engine_options *options, const fth_graph *graph, fth_device *device,
                                fth_precision precision, bool *recompute);

#endif
