/* How gradients become new weights: the optimizer's rule with its numbers, f16's loss scale, and
 * the updater of a back end that makes updates a part of the recorded step. Whatever the way, the
 * numbers are the same. */
#ifndef FTH_TRAIN_WEIGHT_UPDATE_H
#define FTH_TRAIN_WEIGHT_UPDATE_H

#include "train/engine/engine_peers.h"
#include "train/engine/model_vectors.h"
#include "train/options/optimizer.h"
#include "train/engine/server_support.h"

typedef struct fth_weight_update fth_weight_update;

/* By the options' optimizer, for the parameters of `graph`; options and device must outlive it.
 * `scales_loss` is for f16. FTH_UNSUPPORTED if the device has no kernel for the optimizer. */
fth_status fth_weight_update_create(const fth_train_options *options, const fth_graph *graph, fth_device *device,
                                    bool scales_loss, fth_weight_update **update);
void fth_weight_update_free(fth_weight_update *update);

const fth_optimizer *fth_weight_update_get_optimizer(const fth_weight_update *update);
/* How many vectors of state the optimizer has: fth_engine_sizes.state_count. */
int fth_weight_update_state_count(const fth_weight_update *update);
/* The optimizer's numbers for one update; those of groups of parameters are no larger. */
fth_update_arguments fth_weight_update_get_arguments(const fth_weight_update *update, double learning_rate,
                                                     int64_t number, float gradient_scale);

/* Clips and applies the gradients of `vectors`; `number` is 1 for the first update. FTH_DIVERGED if
 * they are not finite, except for an overflow in f16, which leaves the update out. */
fth_status fth_weight_update_apply(fth_weight_update *update, fth_model_vectors *vectors, double learning_rate,
                                   int64_t number);
/* See fth_engine_update_ranges(). */
fth_status fth_weight_update_apply_ranges(fth_weight_update *update, fth_model_vectors *vectors, double learning_rate,
                                          int64_t number, const fth_float_range *ranges, int count);
/* See fth_service_update(). */
fth_status fth_weight_update_apply_pieces(fth_weight_update *update, fth_model_vectors *vectors,
                                          const fth_update_arguments *arguments, const fth_gradient_piece *pieces,
                                          size_t count);

/* False once an update left a parameter that is not finite; until that update is taken back.
 * Devices with memory of their own report it through fth_weight_update_check() alone. */
bool fth_weight_update_left_finite(const fth_weight_update *update);
void fth_weight_update_take_back(fth_weight_update *update);

/* True if the back end makes updates a part of the run. */
bool fth_weight_update_has_updater(const fth_weight_update *update);
/* The updater, opened for these vectors with the first call. The update keeps it. */
fth_status fth_weight_update_get_updater(fth_weight_update *update, fth_model_vectors *vectors, fth_updater **updater);
/* FTH_DIVERGED if the updater found the gradients so. The outcome of updates still queued may not
 * be known yet. */
fth_status fth_weight_update_check(fth_weight_update *update);

/* 0 where gradients are not scaled; then setting it does nothing. */
fth_loss_scale fth_weight_update_get_loss_scale(fth_weight_update *update);
void fth_weight_update_set_loss_scale(fth_weight_update *update, fth_loss_scale scale);

#endif
