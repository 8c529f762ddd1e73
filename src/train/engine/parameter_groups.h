/* Which parameters have a learning rate or a weight decay of their own: --no-decay and
 * --layer-decay, as groups of the flat vector. */
#ifndef FTH_TRAIN_PARAMETER_GROUPS_H
#define FTH_TRAIN_PARAMETER_GROUPS_H

#include "backend/update.h"
#include "train/train.h"

typedef struct fth_parameter_groups fth_parameter_groups;

/* For the parameters of a graph that is differentiated. FTH_INVALID if a pattern matches none of
 * them, or there are no layers to tell apart. */
fth_status fth_parameter_groups_create(const fth_train_options *options, const fth_graph *graph,
                                       fth_parameter_groups **groups);
void fth_parameter_groups_free(fth_parameter_groups *groups);

/* Lent; without any where all parameters are updated alike. */
fth_update_groups fth_parameter_groups_get(const fth_parameter_groups *groups);

/* The first range that ends behind `at`, which is within the vector. There must be groups. */
int fth_update_groups_find(const fth_update_groups *groups, size_t at);

#endif
