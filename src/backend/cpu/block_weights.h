/* Converts weights of 1×1 convolutions, (outputs, channels) in f32, to and from the blocks that
 * oneDNN's bf16 kernels for AVX-512 expect. For those of resnet50, oneDNN takes 40 ms a step on one
 * Zen 4 core, 2 % of the step at batch 16; these functions take 14 ms. */
#ifndef FTH_BACKEND_CPU_BLOCK_WEIGHTS_H
#define FTH_BACKEND_CPU_BLOCK_WEIGHTS_H

#include "backend/cpu/cpu_internal.h"

/* Outputs and channels are multiples of the level's lanes; a block has as many rows and columns as
 * the level has lanes. */
typedef struct block_weights_kernels {
    /* To bf16 in blocks (outputs, channels) of pairs of channels (8, outputs, 2): OIhw8i16o2i. */
    void (*to_forward)(int64_t outputs, int64_t channels, const void *from, void *to);
    /* To bf16 in blocks (channels, outputs) of pairs of outputs (8, channels, 2): IOhw8o16i2o. */
    void (*to_backward)(int64_t outputs, int64_t channels, const void *from, void *to);
    /* From f32 in blocks (outputs, channels) of (channels, outputs): OIhw16i16o. */
    void (*from_gradient)(int64_t outputs, int64_t channels, const void *from, void *to);
} block_weights_kernels;

/* Whether one of these functions converts `from` to `to`; if not, oneDNN has to reorder. */
bool cpu_can_block_weights(const fth_plan *plan, const cpu_format *from, const cpu_format *to);
fth_status cpu_add_block_weights(fth_plan *plan, fth_plan_value from, fth_plan_value to);

#endif
