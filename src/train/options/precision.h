/* Precisions by their names on the command line, and which of them a network is trained in. */
#ifndef FTH_TRAIN_PRECISION_H
#define FTH_TRAIN_PRECISION_H

#include "backend/backend.h"
#include "train/train_options.h"

fth_choice fth_precision_choice(size_t index);           /* the choices of --precision */
const char *fth_precision_name(fth_precision precision); /* "bf16" */

/* `asked`, a precision or FTH_PRECISION_AUTO. For the latter: the one called `before`, which is
 * what the run began with and may be NULL, as long as the device supports it; else the one in
 * which the device is fastest. FTH_UNSUPPORTED if the device does not support it. */
fth_status fth_precision_choose(unsigned asked, const char *before, fth_device *device, const fth_graph *graph,
                                fth_precision *precision);

/* Warns if training would be faster in f32 than in `asked`. */
void fth_precision_advise(unsigned asked, fth_device *device, const fth_graph *graph, int64_t batch);

#endif
