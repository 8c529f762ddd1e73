/* 1×1 convolutions by our own kernels (level/pointwise.c): any stride, no padding. */
#include "backend/cpu/pointwise_convolution.h"
#include "backend/cpu/blocked_convolution.h"
#include "backend/cpu/neighbours.h"

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const blocked_convolution c = cpu_blocked_convolution_of(plan, node);
    return cpu_blocked_convolution_fits(plan, node) && c.kernel[0] == 1 && c.kernel[1] == 1 && c.padding[0] == 0 &&
           c.padding[1] == 0;
}

/* Measured on one Sapphire Rapids core: oneDNN's time, including the reorders of weights that it
 * needs, over that of these kernels, for forward, grad_input, grad_weights. In parentheses, the
 * share in % of the speed of a bare loop of multiply-adds that these kernels reach.
 *
 *     channels, map, batch        AVX-512                              AVX2
 *     64 to 256, 56×56, 4         0.97 (91), 1.01 (94), 1.14 (96)      0.94 (89), 1.03 (94), 0.99 (92)
 *     256 to 64, 56×56, 4         0.99 (89), 0.96 (89), 1.06 (91)      0.97 (91), 0.95 (90), 1.04 (94)
 *     256 to 512, 56×56 by 2, 4   0.94 (85), 0.97 (71), 1.05 (85)      1.01 (88), 0.89 (71), 1.01 (85)
 *     128 to 512, 28×28, 4        0.98 (93), 1.04 (92), 1.05 (95)      1.01 (90), 1.01 (93), 0.99 (92)
 *     1024 to 256, 14×14, 4       0.96 (89), 0.99 (92), 1.42 (93)      1.01 (91), 0.99 (91), 1.00 (94)
 *     1024 to 512, 14×14, 1       0.94 (78), 0.97 (78), 2.33 (80)      1.00 (87), 0.99 (89), 0.96 (86)
 *     2048 to 512, 7×7, 4         0.98 (77), 1.05 (77), 2.47 (83)      0.95 (76), 0.97 (82), 0.99 (86)
 *     2048 to 512, 7×7, 1         0.91 (54), 1.02 (53), 5.04 (59)      0.90 (63), 0.97 (68), 1.02 (71)
 *     1024 to 512, 4×4, 1         0.82 (28), 0.98 (29), 7.83 (32)      0.87 (44), 0.78 (41), 0.93 (47)
 *
 * Ratios below 1 are made up for by grad_input, which adds the gradient of another branch at no
 * cost: a residual network's additions of gradients (1.5 % of resnet50) take no time. On one Zen 4
 * core, the three passes of resnet50 at batch 16 take 1879 ms, 94 % of that loop's speed, and
 * oneDNN's 1897 ms with their reorders and additions. With SSE alone (baseline), forward takes 1.25
 * times as long as oneDNN's, and grad_input 1.1 times. On other processors oneDNN has plain
 * loops. */
static bool pays(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    /* In bf16, oneDNN multiplies pairs: on Zen 4 it reaches 98 %, 98 % and 89 % of the
     * instruction's speed. */
    if (cpu_product_dtype(plan) != dnnl_f32)
        return false;
#if defined(__x86_64__)
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    const int64_t pixels = shapes.y.dims[0] * shapes.y.dims[2] * shapes.y.dims[3];
    switch (cpu_level_of(plan)->level) {
    case FTH_LEVEL_AVX512: return pixels >= 64 || pass == CPU_GRAD_WEIGHTS;
    case FTH_LEVEL_AVX2: return pixels >= 64;
    default: return pixels >= 64 && pass == CPU_GRAD_WEIGHTS;
    }
#else
    (void)node;
    (void)pass;
    return true;
#endif
}

/* ---- the sum after grad_input ---- */

const fth_node *cpu_pointwise_sum_of(const fth_plan *plan, const fth_node *grad_input)
{
    const fth_value dx = grad_input->outputs[0];
    const fth_node *sum = cpu_only_reader_behind(plan, dx);
    const fth_add_attributes *a = sum ? sum->attributes : NULL;
    return sum && sum->op == &fth_op_add && !a->relu && sum->inputs[0] != sum->inputs[1] ? sum : NULL;
}

bool cpu_pointwise_makes_sum(const fth_plan *plan, const fth_node *sum)
{
    for (int i = 0; i < 2; i++) {
        const fth_node *node = cpu_producer_of(plan, sum->inputs[i]);
        if (node && node->op == &fth_op_convolution_grad_input &&
            cpu_convolution_chosen(plan, node, CPU_GRAD_INPUT) == &cpu_pointwise_convolution &&
            cpu_pointwise_sum_of(plan, node) == sum)
            return true;
    }
    return false;
}

/* ---- steps ---- */

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_forward(plan, node, "convolution pointwise", cpu_level_of(plan)->pointwise);
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    const fth_node *sum = cpu_pointwise_sum_of(plan, node);
    return cpu_add_blocked_grad_input(
        plan, node, sum, sum ? "convolution_grad_input, add pointwise" : "convolution_grad_input pointwise",
        cpu_level_of(plan)->pointwise);
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_grad_weights(plan, node, "convolution_grad_weights pointwise",
                                        cpu_level_of(plan)->pointwise);
}

const cpu_convolution_algorithm cpu_pointwise_convolution = {.name = "pointwise",
                                                             .fits = fits,
                                                             .pays = pays,
                                                             .forward = forward,
                                                             .grad_input = grad_input,
                                                             .grad_weights = grad_weights};
