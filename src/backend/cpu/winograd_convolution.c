/* Steps of our own Winograd convolutions (winograd.h): 3×3, stride 1, whole blocks of channels on
 * both sides. */
#include "backend/cpu/winograd_convolution.h"
#include "backend/cpu/winograd.h"

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    const int64_t lanes = cpu_level_of(plan)->lanes, *weight = shapes.weight.dims;
    return a->groups == 1 && weight[2] == 3 && weight[3] == 3 && a->stride[0] == 1 && a->stride[1] == 1 &&
           a->dilation[0] == 1 && a->dilation[1] == 1 && shapes.x.dims[1] % lanes == 0 && shapes.y.dims[1] % lanes == 0;
}

/* Winograd loses where tiles of 4×4 outputs are mostly padding, on maps up to 3×3, and where they
 * are too few for the cost of transforming the weights, which are 4 times as many then. Measured on
 * one Sapphire Rapids core, oneDNN's direct kernels over these, forward, grad_input, grad_weights:
 *
 *     channels, map, batch       tiles   AVX-512          AVX2
 *     64, 16×16, 1 and 4         16, 64  1.4, 1.5, 1.1    1.8, 1.7, 1.4
 *     64, 56×56, 4               784     2.3, 2.7, 2.1    2.5, 3.0, 2.4
 *     128, 8×8, 1                4       0.4, 0.3, 0.3    0.7, 0.6, 0.5
 *     128, 8×8, 4                16      0.8, 1.0, 1.1    1.5, 1.5, 1.4
 *     128, 28×28, 4              196     2.1, 2.6, 1.8    2.3, 2.8, 2.1
 *     256, 4×4, 4                4       0.3, 0.2, 0.5    0.7, 0.6, 0.7
 *     256, 14×14, 4              64      1.1, 1.2, 1.4    1.9, 1.9, 1.6
 *     256, 4×4, 64               64      1.4, 1.3, 2.0    2.7, 2.5, 1.7
 *     512, 7×7, 4                16      0.4, 0.4, 0.8    1.0, 0.9, 1.0
 *     512, 7×7, 12               48      0.8, 0.8, 1.3    1.9, 1.4, 1.2
 *     512, 14×14, 4              64      1.2, 1.0, 1.2    2.1, 1.9, 1.6
 *     512, 28×28, 4              196     2.3, 2.1, 1.8    3.3, 3.0, 2.8
 *
 * oneDNN 2.6's Winograd, which 3.2 no longer has, takes 1.0 to 1.5 times as long as these forward
 * and in grad_input.
 *
 * Where oneDNN's kernels are twice as fast in bf16, these must be so too: they are with four times
 * as many tiles. */
bool cpu_winograd_pays(int64_t lanes, const winograd_images *x, const winograd_images *y)
{
    const int64_t pairs = x->planes * y->planes, map_tiles = ((y->height + 3) / 4) * ((y->width + 3) / 4);
    const int64_t asked = pairs / 1024, fewest = lanes > 16 ? lanes : 16;
    const int64_t least_tiles = asked < fewest ? fewest : asked > 4 * lanes ? 4 * lanes : asked;
    const int64_t least_planes = map_tiles == 1 ? 64 : lanes < 8 ? 32 : 16;
    const double used = (double)(y->height * y->width) / (double)(map_tiles * 16);
    return x->planes >= least_planes && (map_tiles > 1 || y->planes >= 64) && pairs > 16 * 16 && used > 0.57 &&
           y->batch * map_tiles >= least_tiles;
}

static winograd_images images_of(const fth_shape *shape)
{
    return (winograd_images){shape->dims[0], shape->dims[1], shape->dims[2], shape->dims[3]};
}

static bool is_bf16(const fth_plan *plan)
{
    return cpu_compute_dtype(plan) == dnnl_bf16;
}

static bool pays(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    const winograd_images x = images_of(&shapes.x), y = images_of(&shapes.y);
    return cpu_winograd_pays(cpu_level_of(plan)->lanes, &x, &y);
}

/* The gradient of a convolution's output: itself, or the pooled one and the places of the
 * maxima. */
static fth_status read_gradient(fth_plan *plan, fth_value dy, fth_plan_value *values, fth_plan_value *where)
{
    const fth_node *pool_gradient = cpu_winograd_pool_gradient(plan, dy);
    *where = pool_gradient ? fth_plan_value_of(plan, pool_gradient->inputs[1]) : FTH_NO_PLAN_VALUE;
    return pool_gradient ? cpu_read_blocked(plan, pool_gradient->inputs[0], values) : cpu_read_stored(plan, dy, values);
}

/* ---- forward ---- */

/* Values: x, weight (outputs, channels, 3, 3), bias or none, scratch, y, places of the maxima or
 * none. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const winograd_kernels *kernels = call->kernels;
    winograd_correlation c;
    CPU_GET_BLOCK(call, &c);
    const winograd_weights weights = {.values = call->data[1], .stride_n = c.in.planes * 9, .stride_k = 9};
    const winograd_source x = {.values = call->data[0]};
    const winograd_target y = {.values = call->data[4], .where = call->data[5]};
    kernels->correlate(&c, &x, &weights, call->data[2], call->data[3], &y);
    return FTH_OK;
}

fth_status cpu_winograd_forward(fth_plan *plan, const fth_node *convolution, const fth_node *pool)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = convolution->attributes;
    const fth_value y = pool ? pool->outputs[0] : convolution->outputs[0];
    fth_shape in = fth_plan_type(plan, convolution->inputs[0]).shape;
    fth_shape out = fth_plan_type(plan, convolution->outputs[0]).shape, written = fth_plan_type(plan, y).shape;
    const cpu_format where = cpu_blocked(plan, &written, dnnl_u8);
    const winograd_correlation c = {.in = images_of(&in),
                                    .out = images_of(&out),
                                    .begin_row = -a->padding[0],
                                    .begin_column = -a->padding[1],
                                    .relu = a->relu,
                                    .pool = pool != NULL,
                                    .bf16 = is_bf16(plan)};
    cpu_call call = {.run = run_forward, .kernels = cpu_level_of(plan)->winograd, .value_count = 6, .write_count = 3};
    CPU_SET_BLOCK(&call, &c);
    FTH_TRY(cpu_read_stored(plan, convolution->inputs[0], &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, convolution->inputs[1]);
    call.values[2] = cpu_convolution_bias(plan, convolution);
    FTH_TRY(cpu_add_scratch_floats(plan, cpu_level_of(plan)->winograd->correlate_floats(&c, fth_plan_threads(plan)),
                                   &call.values[3]));
    FTH_TRY(cpu_begin_write_stored(plan, y, &call.values[4]));
    call.values[5] = FTH_NO_PLAN_VALUE;
    if (pool && fth_plan_is_used(plan, pool->outputs[1])) {
        FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, pool->outputs[1]), &where));
        call.values[5] = fth_plan_value_of(plan, pool->outputs[1]);
    }
    FTH_TRY(cpu_add_call(plan, pool ? "convolution, max_pool winograd" : "convolution winograd", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, y), call.values[4]));
out:
    return status;
}

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    return cpu_winograd_pool_of(plan, node) ? FTH_OK : cpu_winograd_forward(plan, node, NULL);
}

/* ---- gradients ---- */

/* Values: dy, places of the maxima or none, weight, a ReLU's output or none, scratch, dx. The
 * kernel is turned around and its sides exchanged. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const winograd_kernels *kernels = call->kernels;
    winograd_correlation c;
    CPU_GET_BLOCK(call, &c);
    const winograd_weights weights = {
        .values = call->data[2], .stride_n = 9, .stride_k = c.out.planes * 9, .turned = true};
    const winograd_source dy = {.values = call->data[0], .where = call->data[1]};
    const winograd_target dx = {.values = call->data[5], .mask = call->data[3]};
    kernels->correlate(&c, &dy, &weights, NULL, call->data[4], &dx);
    return FTH_OK;
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = node->attributes;
    fth_shape x = fth_plan_type(plan, node->outputs[0]).shape, y = fth_plan_type(plan, node->inputs[0]).shape;
    const winograd_correlation c = {.in = images_of(&y),
                                    .out = images_of(&x),
                                    .begin_row = a->padding[0] - 2,
                                    .begin_column = a->padding[1] - 2,
                                    .bf16 = is_bf16(plan)};
    const fth_node *relu = cpu_winograd_relu_gradient_of(plan, node);
    const fth_value dx = relu ? relu->outputs[0] : node->outputs[0];
    cpu_call call = {
        .run = run_grad_input, .kernels = cpu_level_of(plan)->winograd, .value_count = 6, .write_count = 2};
    CPU_SET_BLOCK(&call, &c);
    FTH_TRY(read_gradient(plan, node->inputs[0], &call.values[0], &call.values[1]));
    call.values[2] = fth_plan_value_of(plan, node->inputs[1]);
    call.values[3] = FTH_NO_PLAN_VALUE;
    if (relu)
        FTH_TRY(cpu_read_stored(plan, relu->inputs[0], &call.values[3]));
    FTH_TRY(cpu_add_scratch_floats(plan, cpu_level_of(plan)->winograd->correlate_floats(&c, fth_plan_threads(plan)),
                                   &call.values[4]));
    FTH_TRY(cpu_begin_write_stored(plan, dx, &call.values[5]));
    FTH_TRY(cpu_add_call(plan, relu ? "convolution_grad_input, relu_grad winograd" : "convolution_grad_input winograd",
                         &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, dx), call.values[5]));
out:
    return status;
}

/* Values: x, dy, places of the maxima or none, scratch, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const winograd_kernels *kernels = call->kernels;
    winograd_correlation c;
    CPU_GET_BLOCK(call, &c);
    const winograd_source dy = {.values = call->data[1], .where = call->data[2]};
    kernels->grad_weights(&c, call->data[0], &dy, call->threads, call->data[3], call->data[4], call->data[5]);
    return FTH_OK;
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = node->attributes;
    fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->inputs[1]).shape;
    const winograd_correlation c = {.in = images_of(&x),
                                    .out = images_of(&y),
                                    .begin_row = -a->padding[0],
                                    .begin_column = -a->padding[1],
                                    .bf16 = is_bf16(plan)};
    const int threads = fth_plan_threads(plan);
    cpu_call call = {
        .run = run_grad_weights, .kernels = cpu_level_of(plan)->winograd, .value_count = 6, .write_count = 3};
    CPU_SET_BLOCK(&call, &c);
    FTH_TRY(cpu_read_stored(plan, node->inputs[0], &call.values[0]));
    FTH_TRY(read_gradient(plan, node->inputs[1], &call.values[1], &call.values[2]));
    FTH_TRY(
        cpu_add_scratch_floats(plan, cpu_level_of(plan)->winograd->grad_weights_floats(&c, threads), &call.values[3]));
    FTH_TRY(cpu_convolution_place_gradients(plan, node, &call.values[4], &call.values[5]));
    FTH_TRY(cpu_add_call(plan, "convolution_grad_weights winograd", &call));
out:
    return status;
}

const cpu_convolution_algorithm cpu_winograd_convolution = {.name = "winograd",
                                                            .fits = fits,
                                                            .pays = pays,
                                                            .forward = forward,
                                                            .grad_input = grad_input,
                                                            .grad_weights = grad_weights};
