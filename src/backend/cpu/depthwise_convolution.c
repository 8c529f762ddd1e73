/* Depthwise convolutions, and others with few channels a group, by our own kernels:
 * level/depthwise.c, level/depthwise_weights.c. */
#include "backend/cpu/blocked_convolution.h"
#include "backend/cpu/depthwise.h"

/* As many channels in a group on both sides, of which a vector holds whole groups. */
static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    const fth_convolution_attributes *a = node->attributes;
    const blocked_convolution c = cpu_blocked_convolution_of(plan, node);
    if (a->groups == 1 || c.outputs != c.channels || cpu_level_of(plan)->lanes % c.group != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        if (c.stride[i] > 2 || c.kernel[i] < c.stride[i] || c.kernel[i] > DEPTHWISE_MAX_KERNEL || c.dilation[i] > 1)
            return false;
    }
    const bool known_columns = c.kernel[1] == 3 || (c.group == 1 && (c.kernel[1] == 5 || c.kernel[1] == 7));
    return pass != CPU_GRAD_WEIGHTS || (known_columns && c.kernel[0] <= 7);
}

/* oneDNN multiplies by blocks of weights that are mostly zero where a group has fewer channels than
 * a vector has lanes: with 8 of 16 it is as fast as these kernels. */
static bool pays(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    return cpu_blocked_convolution_of(plan, node).group <= 4;
}

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_forward(plan, node, "convolution depthwise", cpu_level_of(plan)->depthwise);
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_grad_input(plan, node, NULL, "convolution_grad_input depthwise",
                                      cpu_level_of(plan)->depthwise);
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_grad_weights(plan, node, "convolution_grad_weights depthwise",
                                        cpu_level_of(plan)->depthwise);
}

const cpu_convolution_algorithm cpu_depthwise_convolution = {.name = "depthwise",
                                                             .fits = fits,
                                                             .pays = pays,
                                                             .forward = forward,
                                                             .grad_input = grad_input,
                                                             .grad_weights = grad_weights};
