/* What the two files of batch norm share: how images lie in memory, and the residual's gradient. */
#ifndef FTH_BACKEND_CPU_BATCH_NORM_H
#define FTH_BACKEND_CPU_BATCH_NORM_H

#include "backend/cpu/cpu_internal.h"

/* How an image lies: element (n, c, h, w) is at n * image + c / block * group + c % block + h * row + w * column. */
typedef struct cpu_image_layout {
    int64_t batch, channels, height, width, block, image, group, row, column;
} cpu_image_layout;

cpu_image_layout cpu_image_layout_of(const cpu_format *layout);

/* dresidual = dy, but 0 where y <= 0: the gradient before the sum, which the residual and the normalization share. */
fth_status cpu_add_residual_gradient(fth_plan *plan, const fth_node *node, const cpu_format *layout);

/* batch_norm in training, and its gradient, by the statistics of a batch of which peers have parts
 * (synchronized_batch_norm.c). */
fth_status cpu_prepare_synchronized_norm(fth_plan *plan, const fth_node *node);
fth_status cpu_prepare_synchronized_norm_grad(fth_plan *plan, const fth_node *node);

#endif
