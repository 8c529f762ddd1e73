/* Activations that need more than arithmetic: GELU, exact and by tanh, and tanh. y = f(x), and the
 * gradient (x or y, dy) -> dx, element by element in whatever layout the input has, padding
 * included: all map 0 to 0. Results are written in place where nothing else needs the operand.
 *
 * These are our own loops: oneDNN's exact GELU is accurate to 1e-7 of 1, not of the result, and
 * leaves few correct digits where x is well below 0. */
#include "backend/cpu/rows.h"
#include "backend/cpu/vector_math.h"

enum { CHUNK = 2048 };

typedef void forward_function(const float *x, float *y, int64_t count);
/* `of` is what the op's gradient reads: x, or y for tanh. */
typedef void gradient_function(const float *of, const float *dy, float *dx, int64_t count);

CPU_VECTORIZED static void gelu(const float *x, float *y, int64_t count)
{
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] * vector_normal_of(x[i]).distribution;
}

CPU_VECTORIZED static void gelu_gradient(const float *x, const float *dy, float *dx, int64_t count)
{
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        const vector_normal normal = vector_normal_of(x[i]);
        dx[i] = dy[i] * (normal.distribution + x[i] * normal.density);
    }
}

/* x * (1 + tanh(z)) / 2 is x times the logistic function of 2 z. */
static inline float gelu_tanh_argument(float x)
{
    return 0.797884561f * (x + 0.044715f * x * x * x);
}

static inline float logistic(float x)
{
    return 1 / (1 + vector_exp(-x));
}

CPU_VECTORIZED static void gelu_tanh(const float *x, float *y, int64_t count)
{
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] * logistic(2 * gelu_tanh_argument(x[i]));
}

CPU_VECTORIZED static void gelu_tanh_gradient(const float *x, const float *dy, float *dx, int64_t count)
{
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        const float s = logistic(2 * gelu_tanh_argument(x[i]));
        const float slope = 0.797884561f * (1 + 3 * 0.044715f * x[i] * x[i]);
        dx[i] = dy[i] * (s + 2 * x[i] * s * (1 - s) * slope);
    }
}

CPU_VECTORIZED static void hyperbolic_tangent(const float *x, float *y, int64_t count)
{
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        y[i] = vector_tanh(x[i]);
}

CPU_VECTORIZED static void hyperbolic_tangent_gradient(const float *y, const float *dy, float *dx, int64_t count)
{
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        dx[i] = dy[i] * (1 - y[i] * y[i]);
}

/* One of the two is NULL. */
typedef struct activation {
    forward_function *forward;
    gradient_function *gradient;
} activation;

typedef enum activation_kind {
    GELU,
    GELU_TANH,
    TANH,
    GELU_GRADIENT,
    GELU_TANH_GRADIENT,
    TANH_GRADIENT
} activation_kind;

static const activation activations[] = {
    [GELU] = {.forward = gelu},
    [GELU_TANH] = {.forward = gelu_tanh},
    [TANH] = {.forward = hyperbolic_tangent},
    [GELU_GRADIENT] = {.gradient = gelu_gradient},
    [GELU_TANH_GRADIENT] = {.gradient = gelu_tanh_gradient},
    [TANH_GRADIENT] = {.gradient = hyperbolic_tangent_gradient},
};

/* Sizes: elements, whether they are bf16, the activation. Values: x or y, dy or none, result. */
static fth_status run_activation(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const int64_t count = call->sizes[0];
    const bool bf16 = call->sizes[1];
    const activation a = activations[call->sizes[2]];
    const cpu_rows of = {.data = call->data[0], .bf16 = bf16}, dy = {.data = call->data[1], .bf16 = bf16};
    const cpu_rows result = {.data = call->data[2], .bf16 = bf16};
#pragma omp parallel for schedule(static) if (count > 2 * CHUNK)
    for (int64_t at = 0; at < count; at += CHUNK) {
        float buffers[3][CHUNK];
        const int64_t length = count - at < CHUNK ? count - at : CHUNK;
        const float *operand = cpu_read_floats(&of, at, length, buffers[0]);
        const float *gradient = cpu_read_floats(&dy, at, length, buffers[1]);
        float *to = cpu_begin_floats(&result, at, buffers[2]);
        if (a.forward)
            a.forward(operand, to, length);
        else
            a.gradient(operand, gradient, to, length);
        cpu_end_floats(&result, at, length, to);
    }
    return FTH_OK;
}

/* All have the same layout. */
static fth_status add_activation(fth_plan *plan, const char *name, activation_kind kind, fth_plan_value of,
                                 fth_plan_value dy, fth_plan_value result)
{
    const cpu_format *layout = cpu_layout(plan, of);
    fth_plan_may_overwrite(plan, result, dy);
    fth_plan_may_overwrite(plan, result, of);
    const cpu_call call = {.run = run_activation,
                           .values = {of, dy, result},
                           .value_count = 3,
                           .write_count = 1,
                           .sizes = {(int64_t)cpu_physical_count(layout), layout->data_type == dnnl_bf16, kind}};
    return cpu_add_call(plan, name, &call);
}

static fth_status prepare(fth_plan *plan, const fth_node *node, activation_kind kind)
{
    fth_status status = FTH_OK;
    const fth_plan_value x = fth_plan_value_of(plan, node->inputs[0]), y = fth_plan_value_of(plan, node->outputs[0]);
    const cpu_format layout = *cpu_layout(plan, x);
    fth_plan_value written;
    FTH_TRY(cpu_begin_write(plan, y, &layout, &written));
    FTH_TRY(add_activation(plan, node->op->name, kind, x, FTH_NO_PLAN_VALUE, written));
    FTH_TRY(cpu_end_write(plan, y, written));
out:
    return status;
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node, activation_kind kind)
{
    fth_status status = FTH_OK;
    fth_plan_value dy, dx;
    FTH_TRY(cpu_begin_gradient(plan, node, &dy, &dx));
    FTH_TRY(add_activation(plan, node->op->name, kind, fth_plan_value_of(plan, node->inputs[0]), dy, dx));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dx));
out:
    return status;
}

fth_status cpu_read_again(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    const fth_graph *graph = fth_plan_graph(plan);
    const int producer = fth_graph_value(graph, value)->producer;
    const fth_node *node = producer >= 0 ? fth_graph_node(graph, producer) : NULL;
    *as = fth_plan_value_of(plan, value);
    if (!node || (node->op != &fth_op_gelu && node->op != &fth_op_gelu_tanh) ||
        !fth_plan_is_used(plan, node->inputs[0]))
        goto out;
    const fth_plan_value x = fth_plan_value_of(plan, node->inputs[0]);
    const cpu_format layout = *cpu_layout(plan, x);
    FTH_TRY(fth_plan_add_value(plan, as));
    FTH_TRY(cpu_set_layout(plan, *as, &layout));
    FTH_TRY(add_activation(plan, "gelu again", node->op == &fth_op_gelu ? GELU : GELU_TANH, x, FTH_NO_PLAN_VALUE, *as));
out:
    return status;
}

#define DEFINE(name, which)                                                                                            \
    static fth_status prepare_##name(fth_plan *plan, const fth_node *node)                                             \
    {                                                                                                                  \
        return prepare(plan, node, which);                                                                             \
    }                                                                                                                  \
    static fth_status prepare_##name##_grad(fth_plan *plan, const fth_node *node)                                      \
    {                                                                                                                  \
        return prepare_gradient(plan, node, which##_GRADIENT);                                                         \
    }                                                                                                                  \
    const fth_kernel cpu_##name = {&fth_op_##name, prepare_##name};                                                    \
    const fth_kernel cpu_##name##_grad = {&fth_op_##name##_grad, prepare_##name##_grad};

DEFINE(gelu, GELU)
DEFINE(gelu_tanh, GELU_TANH)
DEFINE(tanh, TANH)
