/* Pixelwise convolutions (level/pixelwise.c): any kernel, stride and dilation, whole blocks of
 * channels on both sides. They pay on small maps, where much of the kernel falls into the
 * padding. */
#include "backend/cpu/blocked_convolution.h"
#include "backend/cpu/pixelwise.h"

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const blocked_convolution c = cpu_blocked_convolution_of(plan, node);
    return cpu_blocked_convolution_fits(plan, node) && c.kernel[0] * c.kernel[1] <= PIXELWISE_MAX_TAPS;
}

/* Products of pixels along one axis: counts the taps that fall into the map. */
static int64_t products_along(int64_t from, int64_t to, int32_t kernel, int32_t stride, int32_t padding,
                              int32_t dilation)
{
    int64_t count = 0;
    for (int64_t at = 0; at < to; at++) {
        for (int64_t tap = 0; tap < kernel; tap++) {
            const int64_t reached = at * stride - padding + tap * dilation;
            count += reached >= 0 && reached < from;
        }
    }
    return count;
}

/* Measured on one Sapphire Rapids core (batch 64, 3×3, padding 1): time of oneDNN's direct kernels
 * over these, for forward, grad_input, grad_weights. `used` is the share of products that do not
 * fall into the padding.
 *
 *     map                      used   AVX-512          AVX2
 *     2×2, 512 to 512          0.44   2.1, 1.4, 5.2    2.3, 2.9, 4.8
 *     4×4 by 2, 256 to 512     0.69   1.4, 2.0, 3.8    1.7, 2.3, 2.9
 *     8×8 by 2, 128 to 256     0.84   0.8, 1.3, 1.1    1.2, 1.2, 1.1
 *     14×14 by 2, 512 to 512   0.91   0.9, 1.1, 1.0    1.4, 1.1, 0.8   (batch 12)
 *     16×16 by 2, 64 to 128    0.92   0.7, 0.8, 0.8    0.9, 1.0, 0.8
 *
 * Where oneDNN's kernels are twice as fast in bf16, only the gradient of the weights still wins.
 *
 * With 4 images these take as long or longer, since the weights are packed in any case. They win
 * from 8 images on with AVX2, and from about 16 on with AVX-512. */
static bool pays(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    const blocked_convolution c = cpu_blocked_convolution_of(plan, node);
    const int64_t products =
        products_along(c.height, c.out_height, c.kernel[0], c.stride[0], c.padding[0], c.dilation[0]) *
        products_along(c.width, c.out_width, c.kernel[1], c.stride[1], c.padding[1], c.dilation[1]);
    const double used = (double)products / (double)(c.out_height * c.out_width * c.kernel[0] * c.kernel[1]);
    const int64_t lanes = cpu_level_of(plan)->lanes;
    const double gain = cpu_convolution_gain(plan);
    if (gain > 1 && (gain > 2 || pass != CPU_GRAD_WEIGHTS))
        return false;
    return c.batch >= lanes && used < (pass == CPU_FORWARD && lanes == 16 ? 0.75 : 0.88);
}

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_forward(plan, node, "convolution pixelwise", cpu_level_of(plan)->pixelwise);
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_grad_input(plan, node, NULL, "convolution_grad_input pixelwise",
                                      cpu_level_of(plan)->pixelwise);
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    return cpu_add_blocked_grad_weights(plan, node, "convolution_grad_weights pixelwise",
                                        cpu_level_of(plan)->pixelwise);
}

const cpu_convolution_algorithm cpu_pixelwise_convolution = {.name = "pixelwise",
                                                             .fits = fits,
                                                             .pays = pays,
                                                             .forward = forward,
                                                             .grad_input = grad_input,
                                                             .grad_weights = grad_weights};
