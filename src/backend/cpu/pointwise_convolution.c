/* Steps of our own 1×1 convolutions (pointwise.h): any stride, no padding, whole blocks of channels on both sides. */
#include "backend/cpu/pointwise_convolution.h"
#include "backend/cpu/neighbours.h"
#include "backend/cpu/pointwise.h"

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    const int64_t lanes = cpu_level_of(plan)->lanes, *weight = shapes.weight.dims;
    return a->groups == 1 && weight[2] == 1 && weight[3] == 1 && a->padding[0] == 0 && a->padding[1] == 0 &&
           shapes.x.dims[1] % lanes == 0 && shapes.y.dims[1] % lanes == 0;
}

/* Measured on one Sapphire Rapids core, oneDNN's kernels with the reorders of weights that they need over these, forward,
 * grad_input, grad_weights, and in parentheses the share of a bare loop of multiply-adds that these reach, in %:
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
 * What makes up for less than 1 is that grad_input adds the gradient of another branch in passing: a residual network's additions
 * of gradients (1.5 % of resnet50) take no time. On one Zen 4 core the three passes of resnet50 at batch 16 take 1879 ms, 94 % of
 * that loop's speed, and oneDNN's 1897 ms with their reorders and additions. With SSE alone (baseline) forward takes 1.25 times as
 * long as oneDNN's and grad_input 1.1 times. On other processors oneDNN has plain loops. */
static bool pays(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    /* Products of pairs in bf16: on Zen 4 oneDNN's reach 98 %, 98 % and 89 % of the speed of the instruction. */
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

static pointwise describe(const fth_plan *plan, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    return (pointwise){.batch = shapes.x.dims[0],
                       .channels = shapes.x.dims[1],
                       .height = shapes.x.dims[2],
                       .width = shapes.x.dims[3],
                       .outputs = shapes.y.dims[1],
                       .out_height = shapes.y.dims[2],
                       .out_width = shapes.y.dims[3],
                       .stride = {(int32_t)a->stride[0], (int32_t)a->stride[1]},
                       .relu = a->relu,
                       .bf16 = cpu_compute_dtype(plan) == dnnl_bf16};
}

/* ---- the sum behind grad_input ---- */

const fth_node *cpu_pointwise_sum_of(const fth_plan *plan, const fth_node *grad_input)
{
    const fth_value dx = grad_input->outputs[0];
    const fth_node *sum = cpu_only_reader_behind(plan, dx);
    const fth_add_attributes *a = sum ? sum->attributes : NULL;
    return sum && sum->op == &fth_op_add && !a->relu && sum->inputs[0] != sum->inputs[1] ? sum : NULL;
}

/* Which input of the addition such a grad_input makes; -1: none. */
static int input_made(const fth_plan *plan, const fth_node *sum)
{
    for (int i = 0; i < 2; i++) {
        const fth_node *node = cpu_producer_of(plan, sum->inputs[i]);
        if (node && node->op == &fth_op_convolution_grad_input &&
            cpu_convolution_chosen(plan, node, CPU_GRAD_INPUT) == &cpu_pointwise_convolution &&
            cpu_pointwise_sum_of(plan, node) == sum)
            return i;
    }
    return -1;
}

bool cpu_pointwise_makes_sum(const fth_plan *plan, const fth_node *sum)
{
    return input_made(plan, sum) >= 0;
}

/* Whether the steps below read and write the value itself; else they take a copy. */
static bool is_blocked(const fth_plan *plan, fth_value value)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    const cpu_format blocked = cpu_blocked(plan, &shape, cpu_compute_dtype(plan));
    return cpu_format_equal(cpu_layout(plan, fth_plan_value_of(plan, value)), &blocked);
}

void cpu_pointwise_sum_in_place(fth_plan *plan, const fth_node *sum)
{
    const fth_value added = sum->inputs[1 - input_made(plan, sum)], dx = sum->outputs[0];
    const fth_plan_value target = fth_plan_value_of(plan, dx);
    if (is_blocked(plan, added) && is_blocked(plan, dx) && fth_plan_storage(plan, target) == FTH_IN_ARENA &&
        fth_plan_dies_here(plan, added))
        fth_plan_alias(plan, target, fth_plan_value_of(plan, added));
}

/* ---- steps ---- */

static const pointwise_kernels *kernels_of(const fth_plan *plan)
{
    return cpu_level_of(plan)->pointwise;
}

/* Sizes: threads. Values: x, weight, bias or none, scratch, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const pointwise_kernels *kernels = call->kernels;
    pointwise c;
    CPU_GET_BLOCK(call, &c);
    kernels->forward(&c, call->data[0], call->data[1], call->data[2], (int)call->sizes[0], call->data[3],
                     call->data[4]);
    return FTH_OK;
}

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    const pointwise c = describe(plan, node);
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_forward, .kernels = kernels_of(plan), .sizes = {threads}};
    CPU_SET_BLOCK(&call, &c);
    return cpu_add_convolution(plan, node, "convolution pointwise", kernels_of(plan)->forward_floats(&c, threads),
                               &call);
}

/* Sizes: threads. Values: dy, weight, what is added or none, scratch, dx. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const pointwise_kernels *kernels = call->kernels;
    pointwise c;
    CPU_GET_BLOCK(call, &c);
    kernels->grad_input(&c, call->data[0], call->data[1], call->data[2], (int)call->sizes[0], call->data[3],
                        call->data[4]);
    return FTH_OK;
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const pointwise c = describe(plan, node);
    const fth_node *sum = cpu_pointwise_sum_of(plan, node);
    const fth_value dx = sum ? sum->outputs[0] : node->outputs[0];
    cpu_call call = {.run = run_grad_input,
                     .value_count = 5,
                     .write_count = 2,
                     .kernels = kernels_of(plan),
                     .sizes = {fth_plan_threads(plan)}};
    CPU_SET_BLOCK(&call, &c);
    FTH_TRY(cpu_read_stored(plan, node->inputs[0], &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[1]);
    call.values[2] = FTH_NO_PLAN_VALUE;
    if (sum)
        FTH_TRY(cpu_read_stored(plan, sum->inputs[sum->inputs[0] == node->outputs[0]], &call.values[2]));
    FTH_TRY(
        cpu_add_scratch_floats(plan, kernels_of(plan)->grad_input_floats(&c, fth_plan_threads(plan)), &call.values[3]));
    FTH_TRY(cpu_begin_write_stored(plan, dx, &call.values[4]));
    FTH_TRY(
        cpu_add_call(plan, sum ? "convolution_grad_input, add pointwise" : "convolution_grad_input pointwise", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, dx), call.values[4]));
out:
    return status;
}

/* Sizes: threads. Values: x, dy, scratch, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const pointwise_kernels *kernels = call->kernels;
    pointwise c;
    CPU_GET_BLOCK(call, &c);
    kernels->grad_weights(&c, call->data[0], call->data[1], (int)call->sizes[0], call->data[2], call->data[3],
                          call->data[4]);
    return FTH_OK;
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    const pointwise c = describe(plan, node);
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_grad_weights, .kernels = kernels_of(plan), .sizes = {threads}};
    CPU_SET_BLOCK(&call, &c);
    return cpu_add_convolution_grad_weights(plan, node, "convolution_grad_weights pointwise",
                                            kernels_of(plan)->grad_weights_floats(&c, threads), &call);
}

const cpu_convolution_algorithm cpu_pointwise_convolution = {.name = "pointwise",
                                                             .fits = fits,
                                                             .pays = pays,
                                                             .forward = forward,
                                                             .grad_input = grad_input,
                                                             .grad_weights = grad_weights};
