/* Steps of convolutions pixel by pixel (level/pixelwise.c): any kernel, stride and dilation, whole blocks of channels on both
 * sides. They pay on small maps, where much of a kernel falls into the padding. */
#include "backend/cpu/convolution.h"
#include "backend/cpu/pixelwise.h"

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    const int64_t lanes = cpu_level_of(plan)->lanes;
    return a->groups == 1 && shapes.x.dims[1] % lanes == 0 && shapes.y.dims[1] % lanes == 0 &&
           shapes.weight.dims[2] * shapes.weight.dims[3] <= PIXELWISE_MAX_TAPS;
}

static pixelwise describe(const fth_plan *plan, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    pixelwise c = {.batch = shapes.x.dims[0],
                   .channels = shapes.x.dims[1],
                   .height = shapes.x.dims[2],
                   .width = shapes.x.dims[3],
                   .outputs = shapes.y.dims[1],
                   .out_height = shapes.y.dims[2],
                   .out_width = shapes.y.dims[3],
                   .relu = a->relu,
                   .bf16 = cpu_compute_dtype(plan) == dnnl_bf16};
    for (int i = 0; i < 2; i++) {
        c.kernel[i] = (int32_t)shapes.weight.dims[2 + i];
        c.stride[i] = (int32_t)a->stride[i];
        c.padding[i] = (int32_t)a->padding[i];
        c.dilation[i] = (int32_t)a->dilation[i];
    }
    return c;
}

/* How many products of pixels there are along one axis: those of taps that fall into the map. */
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

/* Measured on one Sapphire Rapids core (batch 64, 3×3, padding 1), oneDNN's direct kernels over these, forward, grad_input,
 * grad_weights; `used` is the share of products that do not fall into the padding:
 *
 *     map                      used   AVX-512          AVX2
 *     2×2, 512 to 512          0.44   2.1, 1.4, 5.2    2.3, 2.9, 4.8
 *     4×4 by 2, 256 to 512     0.69   1.4, 2.0, 3.8    1.7, 2.3, 2.9
 *     8×8 by 2, 128 to 256     0.84   0.8, 1.3, 1.1    1.2, 1.2, 1.1
 *     14×14 by 2, 512 to 512   0.91   0.9, 1.1, 1.0    1.4, 1.1, 0.8   (batch 12)
 *     16×16 by 2, 64 to 128    0.92   0.7, 0.8, 0.8    0.9, 1.0, 0.8
 *
 * Where oneDNN's kernels are twice as fast in bf16, the gradient of the weights alone still wins.
 *
 * With 4 images they take as long or longer, as the weights are packed in any case; from 8 on they win with AVX2, from about 16 on
 * with AVX-512. */
static bool pays(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    const pixelwise c = describe(plan, node);
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

static const pixelwise_kernels *kernels_of(const fth_plan *plan)
{
    return cpu_level_of(plan)->pixelwise;
}

/* Values: x, weight, bias or none, scratch, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const pixelwise_kernels *kernels = call->kernels;
    pixelwise c;
    CPU_GET_BLOCK(call, &c);
    kernels->forward(&c, call->data[0], call->data[1], call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    const pixelwise c = describe(plan, node);
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_forward, .kernels = kernels_of(plan)};
    CPU_SET_BLOCK(&call, &c);
    return cpu_add_convolution(plan, node, "convolution pixelwise", kernels_of(plan)->forward_floats(&c, threads),
                               &call);
}

/* Values: dy, weight, scratch, dx. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const pixelwise_kernels *kernels = call->kernels;
    pixelwise c;
    CPU_GET_BLOCK(call, &c);
    kernels->grad_input(&c, call->data[0], call->data[1], call->data[2], call->data[3]);
    return FTH_OK;
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    const pixelwise c = describe(plan, node);
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_grad_input, .kernels = kernels_of(plan)};
    CPU_SET_BLOCK(&call, &c);
    return cpu_add_convolution_grad_input(plan, node, "convolution_grad_input pixelwise",
                                          kernels_of(plan)->grad_input_floats(&c, threads), &call);
}

/* Values: x, dy, scratch, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const pixelwise_kernels *kernels = call->kernels;
    pixelwise c;
    CPU_GET_BLOCK(call, &c);
    kernels->grad_weights(&c, call->data[0], call->data[1], call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    const pixelwise c = describe(plan, node);
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_grad_weights, .kernels = kernels_of(plan)};
    CPU_SET_BLOCK(&call, &c);
    return cpu_add_convolution_grad_weights(plan, node, "convolution_grad_weights pixelwise",
                                            kernels_of(plan)->grad_weights_floats(&c, threads), &call);
}

const cpu_convolution_algorithm cpu_pixelwise_convolution = {.name = "pixelwise",
                                                             .fits = fits,
                                                             .pays = pays,
                                                             .forward = forward,
                                                             .grad_input = grad_input,
                                                             .grad_weights = grad_weights};
