/* Steps of our own convolutions with stride 2 (strided.h): 3×3, whole blocks of channels on both sides. */
#include "backend/cpu/convolution.h"
#include "backend/cpu/strided.h"

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    const int64_t lanes = cpu_level_of(plan)->lanes, *weight = shapes.weight.dims;
    return a->groups == 1 && weight[2] == 3 && weight[3] == 3 && a->stride[0] == 2 && a->stride[1] == 2 &&
           a->dilation[0] == 1 && a->dilation[1] == 1 && shapes.x.dims[1] % lanes == 0 && shapes.y.dims[1] % lanes == 0;
}

static strided_convolution describe(const fth_plan *plan, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    const int64_t *x = shapes.x.dims, *y = shapes.y.dims;
    return (strided_convolution){.x = {x[0], x[1], x[2], x[3]},
                                 .y = {y[0], y[1], y[2], y[3]},
                                 .padding = {a->padding[0], a->padding[1]},
                                 .relu = a->relu,
                                 .bf16 = cpu_compute_dtype(plan) == dnnl_bf16};
}

/* Measured on one Zen 4 core (padding 1), oneDNN's direct kernels over these, forward, grad_input, grad_weights; `outputs` are
 * those of all images in one channel:
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
 * On maps like the last, of 2×2 outputs, much of the kernel falls into the padding, and pixelwise convolutions are faster still. With a
 * padding of 3 that is so on larger maps too: their direct sums are short, and these are up to four times as far off. */
bool cpu_strided_pays(const strided_convolution *c)
{
    return c->x.planes >= 32 && c->y.planes >= 32 && c->y.height > 2 && c->y.width > 2 && c->padding[0] <= 2 &&
           c->padding[1] <= 2 && c->y.batch * c->y.height * c->y.width >= 192;
}

/* Where oneDNN's kernels gain by bf16, they gain more than these. */
static bool pays(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const strided_convolution c = describe(plan, node);
    return cpu_convolution_gain(plan) <= 1 && cpu_strided_pays(&c);
}

static const strided_kernels *kernels_of(const fth_plan *plan)
{
    return cpu_level_of(plan)->strided;
}

/* Values: x, weight, bias or none, scratch, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const strided_kernels *kernels = call->kernels;
    strided_convolution c;
    CPU_GET_BLOCK(call, &c);
    kernels->forward(&c, call->data[0], call->data[1], call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    const strided_convolution c = describe(plan, node);
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_forward, .kernels = kernels_of(plan)};
    CPU_SET_BLOCK(&call, &c);
    return cpu_add_convolution(plan, node, "convolution strided", kernels_of(plan)->forward_floats(&c, threads), &call);
}

/* Values: dy, weight, scratch, dx. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const strided_kernels *kernels = call->kernels;
    strided_convolution c;
    CPU_GET_BLOCK(call, &c);
    kernels->grad_input(&c, call->data[0], call->data[1], call->data[2], call->data[3]);
    return FTH_OK;
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    const strided_convolution c = describe(plan, node);
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_grad_input, .kernels = kernels_of(plan)};
    CPU_SET_BLOCK(&call, &c);
    return cpu_add_convolution_grad_input(plan, node, "convolution_grad_input strided",
                                          kernels_of(plan)->grad_input_floats(&c, threads), &call);
}

/* Sizes: threads. Values: x, dy, scratch, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const strided_kernels *kernels = call->kernels;
    strided_convolution c;
    CPU_GET_BLOCK(call, &c);
    kernels->grad_weights(&c, call->data[0], call->data[1], (int)call->sizes[0], call->data[2], call->data[3],
                          call->data[4]);
    return FTH_OK;
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    const strided_convolution c = describe(plan, node);
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_grad_weights, .kernels = kernels_of(plan), .sizes = {threads}};
    CPU_SET_BLOCK(&call, &c);
    return cpu_add_convolution_grad_weights(plan, node, "convolution_grad_weights strided",
                                            kernels_of(plan)->grad_weights_floats(&c, threads), &call);
}

const cpu_convolution_algorithm cpu_strided_convolution = {.name = "strided",
                                                           .fits = fits,
                                                           .pays = pays,
                                                           .forward = forward,
                                                           .grad_input = grad_input,
                                                           .grad_weights = grad_weights};
