/* Pooling on oneDNN, except for the forward pass of max pooling (nan_max_pool.c). Adaptive pooling
 * is average pooling where the sizes divide evenly (which includes global pooling), and plain loops
 * of our own elsewhere. */
#include "backend/cpu/cpu_internal.h"
#include "backend/cpu/nan_max_pool.h"
#include "backend/cpu/plain_max_pool.h"
#include "backend/cpu/winograd_convolution.h"
#include "backend/plain/plain.h"

static cpu_pool_description window_of(const fth_pool_attributes *a, const fth_shape *x, const fth_shape *y,
                                      dnnl_alg_kind_t algorithm)
{
    cpu_pool_description window = {.algorithm = algorithm};
    for (int i = 0; i < 2; i++) {
        window.strides[i] = a->stride[i];
        window.kernel[i] = a->kernel[i];
        window.padding_begin[i] = a->padding[i];
        window.padding_end[i] = (y->dims[2 + i] - 1) * a->stride[i] + a->kernel[i] - x->dims[2 + i] - a->padding[i];
    }
    return window;
}

static fth_status describe(const fth_plan *plan, const cpu_pool_description *window, const cpu_format *x,
                           const cpu_format *y, cpu_pass pass, dnnl_primitive_desc_t *descriptor)
{
    cpu_pool_description description = *window;
    description.training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN;
    description.x = *x;
    description.y = *y;
    return cpu_describe_pool(cpu_device_of(plan)->engine, &description, pass, descriptor);
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node, const cpu_pool_description *window,
                                  const char *name)
{
    fth_status status = FTH_OK;
    dnnl_primitive_desc_t descriptor = NULL;
    const cpu_format x = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    const cpu_format chosen = cpu_like(&x, &shape, x.data_type);
    fth_plan_value y;
    FTH_TRY(describe(plan, window, &x, &chosen, CPU_FORWARD, &descriptor));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &chosen, &y));
    const cpu_argument arguments[] = {{DNNL_ARG_SRC, fth_plan_value_of(plan, node->inputs[0]), false, NULL},
                                      {DNNL_ARG_DST, y, true, NULL}};
    FTH_TRY(cpu_add_primitive(plan, name, &descriptor, arguments, 2));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

static fth_status prepare_backward(fth_plan *plan, const fth_node *node, const cpu_pool_description *window,
                                   const char *name)
{
    fth_status status = FTH_OK;
    dnnl_primitive_desc_t descriptor = NULL;
    bool max = window->algorithm == dnnl_pooling_max;
    fth_shape x_shape = fth_plan_type(plan, node->outputs[0]).shape;
    fth_shape y_shape = fth_plan_type(plan, node->inputs[0]).shape;
    dnnl_data_type_t dtype = cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]))->data_type;
    /* The backward pass uses the layout of the forward pass's workspace. Averages have a choice:
     * the convolutions that read dx want blocks, and dy, the smaller side, is cheaper to
     * reorder. */
    const cpu_format blocked = cpu_blocked(plan, &y_shape, dtype);
    const cpu_format *like = max ? cpu_layout(plan, fth_plan_value_of(plan, node->inputs[1])) : &blocked;
    const cpu_format y_layout = cpu_like(like, &y_shape, dtype), x_layout = cpu_like(like, &x_shape, dtype);
    fth_plan_value dy, dx;
    FTH_TRY(describe(plan, window, &x_layout, &y_layout, CPU_GRAD_INPUT, &descriptor));
    FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &y_layout, &dy));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &x_layout, &dx));
    cpu_argument arguments[3] = {{DNNL_ARG_DIFF_DST, dy, false, NULL}, {DNNL_ARG_DIFF_SRC, dx, true, NULL}};
    int count = 2;
    if (max)
        arguments[count++] = (cpu_argument){DNNL_ARG_WORKSPACE, fth_plan_value_of(plan, node->inputs[1]), false, NULL};
    FTH_TRY(cpu_add_primitive(plan, name, &descriptor, arguments, count));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dx));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

static dnnl_alg_kind_t average_algorithm(const fth_pool_attributes *a)
{
    return a->count_padding && !a->ceil ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding;
}

static cpu_pool_description node_window(const fth_plan *plan, const fth_node *node, bool backward,
                                        dnnl_alg_kind_t algorithm)
{
    fth_shape x = fth_plan_type(plan, backward ? node->outputs[0] : node->inputs[0]).shape;
    fth_shape y = fth_plan_type(plan, backward ? node->inputs[0] : node->outputs[0]).shape;
    return window_of(node->attributes, &x, &y, algorithm);
}

/* The forward pass is our own. It leaves the workspace that oneDNN's backward pass expects. */
static fth_status prepare_nan_max(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    dnnl_primitive_desc_t descriptor = NULL;
    const cpu_format x = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    const fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    const cpu_format y = cpu_like(&x, &shape, x.data_type);
    cpu_format where;
    const bool training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN;
    const cpu_pool_description window = node_window(plan, node, false, dnnl_pooling_max);
    if (training) {
        FTH_TRY(describe(plan, &window, &x, &y, CPU_FORWARD, &descriptor));
        where = cpu_query(descriptor, dnnl_query_workspace_md);
    }
    FTH_TRY(cpu_nan_max_pool(plan, node, &y, training ? &where : NULL));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

static fth_status prepare_max(fth_plan *plan, const fth_node *node)
{
    const fth_node *convolution = cpu_winograd_of_pool(plan, node);
    if (convolution)
        return cpu_winograd_forward(plan, convolution, node);
    if (cpu_plain_max_pool_fits(node->attributes, cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]))))
        return cpu_plain_max_pool(plan, node);
    return prepare_nan_max(plan, node);
}

static fth_status prepare_max_grad(fth_plan *plan, const fth_node *node)
{
    if (cpu_winograd_of_pool(plan, node))
        return FTH_OK; /* the convolution's gradients read this node's inputs */
    if (cpu_plain_max_pool_made(cpu_layout(plan, fth_plan_value_of(plan, node->inputs[1]))))
        return cpu_plain_max_pool_grad(plan, node);
    cpu_pool_description window = node_window(plan, node, true, dnnl_pooling_max);
    return prepare_backward(plan, node, &window, "max_pool_grad");
}

/* oneDNN divides by the whole window where padding counts; PyTorch leaves out what lies beyond
 * the padding. */
static bool divides_by_less(const fth_pool_attributes *a)
{
    return a->ceil && a->count_padding && (a->padding[0] > 0 || a->padding[1] > 0);
}

static fth_status prepare_average(fth_plan *plan, const fth_node *node)
{
    if (divides_by_less(node->attributes))
        return cpu_add_plain(plan, node, &plain_average_pool);
    cpu_pool_description window = node_window(plan, node, false, average_algorithm(node->attributes));
    return prepare_forward(plan, node, &window, "average_pool");
}

static fth_status prepare_average_grad(fth_plan *plan, const fth_node *node)
{
    if (divides_by_less(node->attributes))
        return cpu_add_plain(plan, node, &plain_average_pool_grad);
    cpu_pool_description window = node_window(plan, node, true, average_algorithm(node->attributes));
    return prepare_backward(plan, node, &window, "average_pool_grad");
}

/* ---- adaptive ---- */

static bool divides(const fth_shape *x, const fth_shape *y)
{
    return x->dims[2] % y->dims[2] == 0 && x->dims[3] % y->dims[3] == 0;
}

static cpu_pool_description dividing_window(const fth_shape *x, const fth_shape *y)
{
    int kernel[2] = {(int)(x->dims[2] / y->dims[2]), (int)(x->dims[3] / y->dims[3])};
    const fth_pool_attributes attributes = {.kernel = {kernel[0], kernel[1]}, .stride = {kernel[0], kernel[1]}};
    return window_of(&attributes, x, y, dnnl_pooling_avg_exclude_padding);
}

typedef struct span {
    int64_t begin, end;
} span;

/* The input cells of output cell i, with `in` cells in and `out` cells out: PyTorch's rule. */
static span adaptive_span(int64_t i, int64_t out, int64_t in)
{
    return (span){i * in / out, ((i + 1) * in + out - 1) / out};
}

static fth_status run_adaptive(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->data[0];
    float *y = call->data[1];
    const int64_t planes = call->sizes[0], in_h = call->sizes[1], in_w = call->sizes[2];
    const int64_t out_h = call->sizes[3], out_w = call->sizes[4];
#pragma omp parallel for
    for (int64_t p = 0; p < planes; p++) {
        for (int64_t i = 0; i < out_h; i++) {
            for (int64_t j = 0; j < out_w; j++) {
                span rows = adaptive_span(i, out_h, in_h), columns = adaptive_span(j, out_w, in_w);
                float sum = 0;
                for (int64_t r = rows.begin; r < rows.end; r++) {
                    for (int64_t c = columns.begin; c < columns.end; c++)
                        sum += x[(p * in_h + r) * in_w + c];
                }
                y[(p * out_h + i) * out_w + j] = sum / (float)((rows.end - rows.begin) * (columns.end - columns.begin));
            }
        }
    }
    return FTH_OK;
}

static fth_status run_adaptive_grad(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const float *dy = call->data[0];
    float *dx = call->data[1];
    const int64_t planes = call->sizes[0], in_h = call->sizes[1], in_w = call->sizes[2];
    const int64_t out_h = call->sizes[3], out_w = call->sizes[4];
#pragma omp parallel for
    for (int64_t p = 0; p < planes; p++) {
        float *plane = dx + p * in_h * in_w;
        for (int64_t i = 0; i < in_h * in_w; i++)
            plane[i] = 0;
        for (int64_t i = 0; i < out_h; i++) {
            for (int64_t j = 0; j < out_w; j++) {
                span rows = adaptive_span(i, out_h, in_h), columns = adaptive_span(j, out_w, in_w);
                float share =
                    dy[(p * out_h + i) * out_w + j] / (float)((rows.end - rows.begin) * (columns.end - columns.begin));
                for (int64_t r = rows.begin; r < rows.end; r++) {
                    for (int64_t c = columns.begin; c < columns.end; c++)
                        plane[r * in_w + c] += share;
                }
            }
        }
    }
    return FTH_OK;
}

/* `from` -> `to` by plain f32 loops; x and y are the op's input and output shapes. */
static fth_status add_adaptive_call(fth_plan *plan, fth_value from, fth_value to, const fth_shape *x,
                                    const fth_shape *y, fth_status (*run)(const cpu_call *, const fth_run *),
                                    const char *name)
{
    fth_status status = FTH_OK;
    fth_shape shape = fth_plan_type(plan, to).shape;
    cpu_format layout = cpu_plain(&shape, dnnl_f32);
    fth_plan_value source, target;
    FTH_TRY(cpu_read_plain(plan, from, dnnl_f32, &source));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, to), &layout, &target));
    const cpu_call call = {.run = run,
                           .values = {source, target},
                           .value_count = 2,
                           .write_count = 1,
                           .sizes = {x->dims[0] * x->dims[1], x->dims[2], x->dims[3], y->dims[2], y->dims[3]}};
    FTH_TRY(cpu_add_call(plan, name, &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, to), target));
out:
    return status;
}

static fth_status prepare_adaptive(fth_plan *plan, const fth_node *node)
{
    fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->outputs[0]).shape;
    if (divides(&x, &y)) {
        cpu_pool_description window = dividing_window(&x, &y);
        return prepare_forward(plan, node, &window, "adaptive_average_pool");
    }
    return add_adaptive_call(plan, node->inputs[0], node->outputs[0], &x, &y, run_adaptive, "adaptive_average_pool");
}

static fth_status prepare_adaptive_grad(fth_plan *plan, const fth_node *node)
{
    fth_shape x = fth_plan_type(plan, node->outputs[0]).shape, y = fth_plan_type(plan, node->inputs[0]).shape;
    if (divides(&x, &y)) {
        cpu_pool_description window = dividing_window(&x, &y);
        return prepare_backward(plan, node, &window, "adaptive_average_pool_grad");
    }
    return add_adaptive_call(plan, node->inputs[0], node->outputs[0], &x, &y, run_adaptive_grad,
                             "adaptive_average_pool_grad");
}

const fth_kernel cpu_max_pool = {&fth_op_max_pool, prepare_max};
const fth_kernel cpu_max_pool_grad = {&fth_op_max_pool_grad, prepare_max_grad};
const fth_kernel cpu_average_pool = {&fth_op_average_pool, prepare_average};
const fth_kernel cpu_average_pool_grad = {&fth_op_average_pool_grad, prepare_average_grad};
const fth_kernel cpu_adaptive_average_pool = {&fth_op_adaptive_average_pool, prepare_adaptive};
const fth_kernel cpu_adaptive_average_pool_grad = {&fth_op_adaptive_average_pool_grad, prepare_adaptive_grad};
