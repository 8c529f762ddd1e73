/* Convolutions: cuDNN where it has an engine, the plain kernels of direct.cu where it has none.
 * Bias and ReLU run inside the convolution if that was measured to be faster than a pass of their
 * own. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/convolution.h"
#include "backend/cuda/depthwise.h"
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"
#include "backend/cuda/weights.h"

typedef struct conv_step {
    cuda_device *device;
    cuda_conv_plan *plan;
    fth_plan_value x, w, y, bias, workspace; /* or none */
} conv_step;

static fth_status bind_conv(void *state, const fth_plan *plan)
{
    conv_step *step = state;
    cuda_tuning_save(step->device->tuning);
    cuda_tuning_release(step->device);
    return cuda_conv_bind(step->plan, fth_plan_data(plan, step->x), fth_plan_data(plan, step->w),
                          fth_plan_data(plan, step->y),
                          fth_plan_value_exists(step->bias) ? fth_plan_data(plan, step->bias) : NULL,
                          fth_plan_value_exists(step->workspace) ? fth_plan_data(plan, step->workspace) : NULL);
}

static fth_status run_conv(void *state, const fth_run *run)
{
    (void)run;
    const conv_step *step = state;
    return cuda_conv_run(step->device, step->plan);
}

static void release_conv(void *state)
{
    conv_step *step = state;
    cuda_conv_free(step->plan);
    free(step);
}

/* What a convolution is in physical sizes. */
typedef struct geometry {
    cuda_layout x, w, y;
    const fth_convolution_attributes *attributes;
} geometry;

static void set_dims(int64_t dims[4], int64_t n, int64_t c, int64_t h, int64_t w)
{
    dims[0] = n;
    dims[1] = c;
    dims[2] = h;
    dims[3] = w;
}

static cuda_conv describe(const fth_plan *plan, const geometry *g, cuda_conv_kind kind)
{
    const fth_plan_options options = fth_plan_get_options(plan);
    cuda_conv conv = {.kind = kind,
                      .type = g->x.type,
                      .tf32 = options.precision == FTH_PRECISION_TF32,
                      .unmeasured = options.unmeasured};
    const fth_convolution_attributes *a = g->attributes;
    const cuda_spreading *s = &g->x.spread;
    set_dims(conv.y, g->y.n, g->y.channels, g->y.h, g->y.w);
    if (s->how != CUDA_NOT_SPREAD) {
        const int taps = s->how == CUDA_FOLDED ? s->taps : 1;
        set_dims(conv.x, g->x.n, g->x.channels, s->out_height + taps - 1, s->out_width);
        set_dims(conv.w, g->w.batch, g->w.channels, taps, 1);
    } else {
        set_dims(conv.x, g->x.n, g->x.channels, g->x.h, g->x.w);
        set_dims(conv.w, g->w.batch, g->w.channels, g->w.h, g->w.w);
    }
    for (int axis = 0; axis < 2; axis++) {
        conv.padding[axis] = s->how != CUDA_NOT_SPREAD ? 0 : a->padding[axis];
        conv.stride[axis] = s->how != CUDA_NOT_SPREAD ? 1 : a->stride[axis];
        conv.dilation[axis] = a->dilation[axis];
    }
    return conv;
}

static cuda_direct describe_direct(const cuda_conv *conv)
{
    cuda_direct d = {.type = conv->type,
                     .batch = (int)conv->x[0],
                     .channels = (int)conv->x[1],
                     .height = (int)conv->x[2],
                     .width = (int)conv->x[3],
                     .outputs = (int)conv->y[1],
                     .out_height = (int)conv->y[2],
                     .out_width = (int)conv->y[3],
                     .group_inputs = (int)conv->w[1],
                     .group_outputs = (int)(conv->w[0] * conv->w[1] / conv->x[1])};
    for (int axis = 0; axis < 2; axis++) {
        d.kernel[axis] = (int)conv->w[2 + axis];
        d.stride[axis] = (int)conv->stride[axis];
        d.padding[axis] = (int)conv->padding[axis];
        d.dilation[axis] = (int)conv->dilation[axis];
    }
    return d;
}

static cudaError_t run_direct_forward(const cuda_call *call)
{
    return cuda_launch_direct_forward(call->device->launch.stream, &call->direct, call->data[0], call->data[1],
                                      call->data[2]);
}

static cudaError_t run_direct_data(const cuda_call *call)
{
    return cuda_launch_direct_data(call->device->launch.stream, &call->direct, call->data[0], call->data[1],
                                   call->data[2]);
}

static cudaError_t run_direct_filter(const cuda_call *call)
{
    return cuda_launch_direct_filter(call->device->launch.stream, &call->direct, call->data[0], call->data[1],
                                     call->data[2]);
}

/* Adds the step; takes *taken. Without an engine, the plain kernel. `x`, `w` and `y` are in cuDNN's
 * roles. */
static fth_status add_step(fth_plan *plan, const geometry *g, cuda_conv_kind kind, cuda_conv_plan **taken,
                           fth_plan_value x, fth_plan_value w, fth_plan_value y, fth_plan_value bias)
{
    static const char *const names[] = {"convolution", "convolution_grad_input", "convolution_grad_weights"};
    fth_status status = FTH_OK;
    conv_step *state = NULL;
    fth_step step = {.bind = bind_conv, .run = run_conv, .release = release_conv};
    const fth_plan_value written = kind == CUDA_CONV_FORWARD ? y : kind == CUDA_CONV_DATA ? x : w;
    if (!*taken) {
        cuda_call call = {.value_count = 3, .write_count = 1};
        const fth_plan_value reads[3][2] = {{x, w}, {y, w}, {x, y}};
        call.run = kind == CUDA_CONV_FORWARD ? run_direct_forward
                   : kind == CUDA_CONV_DATA  ? run_direct_data
                                             : run_direct_filter;
        call.values[0] = reads[kind][0];
        call.values[1] = reads[kind][1];
        call.values[2] = written;
        const cuda_conv conv = describe(plan, g, kind);
        call.direct = describe_direct(&conv);
        char name[64];
        snprintf(name, sizeof name, "%s direct", names[kind]);
        return cuda_add_call(plan, name, &call);
    }
    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    *state = (conv_step){cuda_device_of(plan), *taken, x, w, y, bias, FTH_NO_PLAN_VALUE};
    snprintf(step.name, sizeof step.name, "%s %d>%d %dx%d s%d @%d %s", names[kind], g->x.c, g->w.n, g->w.h, g->w.w,
             g->attributes->stride[0], g->x.h, cuda_conv_name(*taken));
    if (cuda_conv_workspace_bytes(*taken) > 0)
        FTH_TRY(cuda_add_scratch(plan, cuda_conv_workspace_bytes(*taken), &state->workspace));
    const fth_plan_value values[] = {x, w, y, bias};
    for (int i = 0; i < 4; i++)
        if (fth_plan_value_exists(values[i]) && !fth_plan_value_equal(values[i], written))
            step.reads[step.read_count++] = values[i];
    step.writes[step.write_count++] = written;
    if (fth_plan_value_exists(state->workspace))
        step.writes[step.write_count++] = state->workspace;
    step.state = state;
    *taken = NULL;
    state = NULL;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    free(state);
    return status;
}

/* The engine to use: with bias and ReLU inside if that is faster than a pass over the output. */
static fth_status choose(fth_plan *plan, const geometry *g, bool bias, bool relu, cuda_conv_plan **chosen, bool *fused)
{
    fth_status status = FTH_OK;
    cuda_device *device = cuda_device_of(plan);
    cuda_conv conv = describe(plan, g, CUDA_CONV_FORWARD);
    cuda_conv_plan *whole = NULL;
    FTH_TRY(cuda_conv_create(device, &conv, chosen));
    *fused = false;
    if (!bias && !relu)
        goto out;
    conv.bias = bias;
    conv.relu = relu;
    FTH_TRY(cuda_conv_create(device, &conv, &whole));
    if (!whole)
        goto out;
    /* A pass reads and writes the output: about 3 TB/s on a current device, and 2 us to begin
     * with. */
    double pass_us = 2 + 2.0 * (double)cuda_layout_elements(&g->y) * (double)cuda_type_size(g->y.type) / 3e6;
    if (!*chosen || cuda_conv_microseconds(whole) <= cuda_conv_microseconds(*chosen) + pass_us) {
        cuda_conv_free(*chosen);
        *chosen = whole;
        whole = NULL;
        *fused = true;
    }
out:
    cuda_conv_free(whole);
    return status;
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = node->attributes;
    const bool bias = node->input_count > 2;
    fth_shape weight = fth_plan_type(plan, node->inputs[1]).shape;
    const geometry g = {cuda_convolution_input(plan, a, node->inputs[0]),
                        cuda_weight_layout(plan, a, &weight, node->inputs[0]),
                        cuda_convolution_output(plan, a, node->outputs[0]), a};
    cuda_conv_plan *engine = NULL;
    fth_plan_value x, w, y, b = FTH_NO_PLAN_VALUE, standard;
    bool fused = false;
    if (cuda_depthwise_fits(a, &weight))
        return cuda_depthwise_forward(plan, node);
    FTH_TRY(cuda_read_weight(plan, node->inputs[1], &g.w, &w));
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &g.x, &x));
    FTH_TRY(choose(plan, &g, bias, a->relu, &engine, &fused));
    if (bias && fused) {
        cuda_layout layout = cuda_bias_layout(plan, g.y.channels, node->inputs[2]);
        FTH_TRY(cuda_read_weight(plan, node->inputs[2], &layout, &b));
    }
    /* The output in its standard layout; grouped convolutions write without padding first. */
    cuda_layout wanted = cuda_standard(plan, node->outputs[0]);
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &wanted, &standard));
    FTH_TRY(cuda_begin_write(plan, standard, &g.y, &y));
    FTH_TRY(add_step(plan, &g, CUDA_CONV_FORWARD, &engine, x, w, y, b));
    if ((bias || a->relu) && !fused)
        FTH_TRY(
            cuda_add_bias(plan, &g.y, y, bias ? fth_plan_value_of(plan, node->inputs[2]) : FTH_NO_PLAN_VALUE, a->relu));
    FTH_TRY(cuda_end_write(plan, standard, y));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), standard));
out:
    cuda_conv_free(engine);
    return status;
}

/* The node whose gradient this is: its input decides how weights lie. */
static fth_value forward_input(const fth_plan *plan, fth_value weight, const fth_convolution_attributes *a)
{
    const fth_graph *graph = fth_plan_graph(plan);
    for (int n = 0; n < fth_graph_forward_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        if (node->op == &fth_op_convolution && node->inputs[1] == weight &&
            fth_shape_equal(&((const fth_convolution_attributes *)node->attributes)->input_shape, &a->input_shape))
            return node->inputs[0];
    }
    return FTH_NO_VALUE;
}

static fth_status prepare_grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = node->attributes;
    fth_shape weight = fth_plan_type(plan, node->inputs[1]).shape;
    fth_value input = forward_input(plan, node->inputs[1], a);
    cuda_conv_plan *engine = NULL;
    fth_plan_value dy, w, dx, standard;
    /* dx is never an image's gradient in a model; if it is, its layout is that of any other
     * value. A transposed convolution has no input of that kind. */
    const bool has_input =
        input != FTH_NO_VALUE && fth_graph_value(fth_plan_graph(plan), input)->kind != FTH_VALUE_INPUT;
    const fth_value as = has_input ? input : node->outputs[0];
    const geometry g = {cuda_convolution_input(plan, a, as), cuda_weight_layout(plan, a, &weight, as),
                        cuda_convolution_output(plan, a, node->inputs[0]), a};
    const cuda_conv conv = describe(plan, &g, CUDA_CONV_DATA);
    if (cuda_depthwise_fits(a, &weight))
        return cuda_depthwise_grad_input(plan, node);
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &g.y, &dy));
    FTH_TRY(cuda_read_weight(plan, node->inputs[1], &g.w, &w));
    FTH_TRY(cuda_conv_create(cuda_device_of(plan), &conv, &engine));
    cuda_layout wanted = cuda_standard(plan, node->outputs[0]);
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &wanted, &standard));
    FTH_TRY(cuda_begin_write(plan, standard, &g.x, &dx));
    FTH_TRY(add_step(plan, &g, CUDA_CONV_DATA, &engine, dx, w, dy, FTH_NO_PLAN_VALUE));
    FTH_TRY(cuda_end_write(plan, standard, dx));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), standard));
out:
    cuda_conv_free(engine);
    return status;
}

static fth_status prepare_grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = node->attributes;
    fth_shape weight = fth_plan_type(plan, node->outputs[0]).shape;
    const geometry g = {cuda_convolution_input(plan, a, node->inputs[0]),
                        cuda_weight_layout(plan, a, &weight, node->inputs[0]),
                        cuda_convolution_output(plan, a, node->inputs[1]), a};
    const cuda_conv conv = describe(plan, &g, CUDA_CONV_FILTER);
    cuda_conv_plan *engine = NULL;
    fth_plan_value x, dy, dw, standard_dy;
    if (cuda_depthwise_fits(a, &weight))
        return cuda_depthwise_grad_weights(plan, node);
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &g.x, &x));
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[1]), &g.y, &dy));
    if (fth_plan_is_used(plan, node->outputs[1]) && cuda_bias_taker(plan, node->inputs[1]) != node) {
        FTH_TRY(cuda_read(plan, node->inputs[1], &standard_dy));
        FTH_TRY(cuda_add_bias_gradient(plan, standard_dy, &node->outputs[1], 1));
    }
    FTH_TRY(cuda_conv_create(cuda_device_of(plan), &conv, &engine));
    FTH_TRY(cuda_begin_gradient(plan, node->outputs[0], &g.w, &dw));
    FTH_TRY(add_step(plan, &g, CUDA_CONV_FILTER, &engine, x, dw, dy, FTH_NO_PLAN_VALUE));
    FTH_TRY(cuda_end_gradient(plan, node->outputs[0], dw));
out:
    cuda_conv_free(engine);
    return status;
}

const fth_kernel cuda_convolution = {&fth_op_convolution, prepare_forward};
const fth_kernel cuda_convolution_grad_input = {&fth_op_convolution_grad_input, prepare_grad_input};
const fth_kernel cuda_convolution_grad_weights = {&fth_op_convolution_grad_weights, prepare_grad_weights};
