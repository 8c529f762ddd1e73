/* 3×3 convolutions with stride 2 by our own kernels: level/strided_tile.h. */
#include "backend/cpu/blocked_convolution.h"
#include "backend/cpu/strided.h"

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const blocked_convolution c = cpu_blocked_convolution_of(plan, node);
    return cpu_blocked_convolution_fits(plan, node) && c.kernel[0] == 3 && c.kernel[1] == 3 && c.stride[0] == 2 &&
           c.stride[1] == 2 && c.dilation[0] == 1 && c.dilation[1] == 1;
}

/* Measured on one Zen 4 core (padding 1): time of oneDNN's direct kernels over these, for forward,
 * grad_input, grad_weights. `outputs` counts those of all images in one channel.
 *
 *     channels, map, batch       outputs   AVX-512          AVX2             baseline
 *     128 to 128, 56×56, 16      12544     1.4, 1.5, 1.4    1.5, 1.6, 1.5    1.2, 1.4, 1.6   (batch 4)
 *     256 to 256, 28×28, 16      3136      1.5, 1.4, 1.5    1.4, 1.6, 1.6    1.3, 1.4, 1.4
 *     512 to 512, 14×14, 16      784       1.2, 1.3, 1.5    1.6, 1.7, 1.8    1.3, 1.7, 1.4
 *     512 to 512, 14×14, 4       196       1.0, 1.1, 1.3    1.2, 1.3, 1.7    1.0, 1.4, 1.3
 *     512 to 512, 14×14, 1       49        0.5, 0.6, 0.7    0.7, 0.7, 1.0    0.6, 0.8, 0.9
 *     256 to 256, 28×28, 1       196       1.1, 1.1, 1.2    1.1, 1.2, 1.4    1.1, 1.1, 1.4
 *     64 to 64, 32×32, 1         256       1.1, 1.1, 1.2    1.2, 1.2, 1.2    1.1, 1.3, 1.6
 *     128 to 256, 8×8, 64        1024      1.2, 1.3, 1.7    1.7, 1.7, 2.0    1.2, 1.5, 1.7
 *     128 to 256, 8×8, 16        256       1.1, 1.2, 1.5    1.6, 1.5, 1.8    1.1, 1.5, 1.6
 *     128 to 256, 8×8, 4         64        0.7, 0.7, 0.9    1.0, 0.9, 1.2    0.8, 1.1, 1.2
 *     32 to 64, 16×16, 64        4096      1.2, 1.2, 1.2    1.2, 1.3, 1.2    1.1, 1.4, 1.5
 *     16 to 32, 32×32, 64        16384     1.0, 1.0, 0.9    0.9, 0.9, 0.8    0.9, 1.4, 1.6
 *     256 to 512, 4×4, 64        256       0.7, 0.9, 1.2    1.2, 1.3, 1.7    0.7, 1.6, 1.4
 *
 * On maps like the last, with 2×2 outputs, much of the kernel falls into the padding, and pixelwise
 * convolutions are faster still. With a padding of 3 the same holds for larger maps: their direct
 * sums are short, and the errors of these kernels are up to four times as large. */
bool cpu_strided_pays(const blocked_convolution *c)
{
    return c->channels >= 32 && c->outputs >= 32 && c->out_height > 2 && c->out_width > 2 && c->padding[0] <= 2 &&
           c->padding[1] <= 2 && c->batch * c->out_height * c->out_width >= 192;
}

/* Where bf16 makes oneDNN's kernels faster, they gain more than these. */
static bool pays(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const blocked_convolution c = cpu_blocked_convolution_of(plan, node);
    return cpu_convolution_gain(plan) <= 1 && cpu_strided_pays(&c);
}

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_forward(plan, node, "convolution strided", cpu_level_of(plan)->strided);
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_grad_input(plan, node, NULL, "convolution_grad_input strided", cpu_level_of(plan)->strided);
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_grad_weights(plan, node, "convolution_grad_weights strided", cpu_level_of(plan)->strided);
}

const cpu_convolution_algorithm cpu_strided_convolution = {.name = "strided",
                                                           .fits = fits,
                                                           .pays = pays,
                                                           .forward = forward,
                                                           .grad_input = grad_input,
                                                           .grad_weights = grad_weights};
