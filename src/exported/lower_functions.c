/* Elementwise functions: each becomes an expression (graph/expression.h), which broadcasts as
 * PyTorch's operators do. Chains of them are fused later. */
#include <math.h>
#include <string.h>

#include "exported/lowering.h"

enum { MOST_OPERANDS = 4 };

/* ---- shared ---- */

fth_status lowering_apply(lowering *l, const fth_expression *expression, fth_view *x)
{
    return fth_op_add_pointwise(lowering_graph(l), expression, &x->value, 1, NULL, &x->value);
}

fth_status lowering_combine(lowering *l, const fth_expression *expression, fth_view *const *views, int count,
                            fth_view *y)
{
    fth_status status = FTH_OK;
    fth_alignment alignment;
    fth_value values[FTH_EXPRESSION_INPUTS];

    FTH_REQUIRE(count <= FTH_EXPRESSION_FUSED_INPUTS, FTH_UNSUPPORTED, "it has %d operands", count);
    FTH_TRY(fth_view_align(lowering_graph(l), views, count, &alignment));
    for (int i = 0; i < count; i++)
        values[i] = views[i]->value;
    *y = alignment.result;
    FTH_TRY(fth_op_add_pointwise(lowering_graph(l), expression, values, count, &alignment.shape, &y->value));
out:
    return status;
}

fth_status lowering_binary(lowering *l, fth_expression_function function, fth_view *a, fth_view *b, fth_view *y)
{
    fth_expression expression = {0};
    fth_expression_apply(&expression, function, fth_expression_input(0), fth_expression_input(1), FTH_NO_OPERAND);
    return lowering_combine(l, &expression, (fth_view *const[]){a, b}, 2, y);
}

/* ---- operands ---- */

typedef struct operands {
    fth_view views[MOST_OPERANDS];
    fth_view *list[MOST_OPERANDS];
    int count;
} operands;

/* A tensor or a number, as an operand of the expression; `otherwise` where there is none. Integers are
 * computed as f32: they are ids and positions, exact up to 2^24. */
static fth_status operand(lowering *l, const char *name, double otherwise, fth_expression *expression, operands *all,
                          fth_operand *made)
{
    fth_status status = FTH_OK;
    if (lowering_lacks(l, name) || lowering_is_number(l, name)) {
        *made = fth_expression_number(expression, lowering_number(l, name, otherwise));
        goto out;
    }
    const fth_host_tensor *constant = lowering_constant(l, name);
    if (constant && constant->shape.rank == 0) {
        *made = fth_expression_number(expression, constant->numbers[0]);
        goto out;
    }
    fth_view *view = &all->views[all->count];
    FTH_TRY(lowering_tensor(l, name, view));
    all->list[all->count] = view;
    *made = fth_expression_input(all->count++);
out:
    return status;
}

static fth_status finish(lowering *l, const fth_expression *expression, operands *all)
{
    fth_status status = FTH_OK;
    fth_view y;
    FTH_REQUIRE(all->count > 0, FTH_UNSUPPORTED, "none of its arguments is a tensor");
    if (all->count == 1) {
        y = all->views[0];
        FTH_TRY(lowering_apply(l, expression, &y));
        const fth_exported_value *output = lowering_output(l, 0);
        while (y.rank < output->rank)
            FTH_TRY(fth_view_insert(&y, 0));
    } else {
        FTH_TRY(lowering_combine(l, expression, all->list, all->count, &y));
    }
    lowering_set(l, 0, &y);
out:
    return status;
}

/* ---- functions with nothing but operands ---- */

/* An operator, its function, and the operands with what they are where the file leaves them out. */
#define FUNCTIONS(ROW)                                                                                                 \
    ROW(neg, NEG, {"self", 0})                                                                                         \
    ROW(abs, ABS, {"self", 0})                                                                                         \
    ROW(exp, EXP, {"self", 0})                                                                                         \
    ROW(log, LOG, {"self", 0})                                                                                         \
    ROW(sqrt, SQRT, {"self", 0})                                                                                       \
    ROW(rsqrt, RSQRT, {"self", 0})                                                                                     \
    ROW(reciprocal, RECIPROCAL, {"self", 0})                                                                           \
    ROW(square, SQUARE, {"self", 0})                                                                                   \
    ROW(sigmoid, SIGMOID, {"self", 0})                                                                                 \
    ROW(silu, SILU, {"self", 0})                                                                                       \
    ROW(relu6, HARDTANH, {"self", 0})                                                                                  \
    ROW(hardsigmoid, HARDSIGMOID, {"self", 0})                                                                         \
    ROW(hardswish, HARDSWISH, {"self", 0})                                                                             \
    ROW(mish, MISH, {"self", 0})                                                                                       \
    ROW(erf, ERF, {"self", 0})                                                                                         \
    ROW(sin, SIN, {"self", 0})                                                                                         \
    ROW(cos, COS, {"self", 0})                                                                                         \
    ROW(log1p, LOG1P, {"self", 0})                                                                                     \
    ROW(expm1, EXPM1, {"self", 0})                                                                                     \
    ROW(sign, SIGN, {"self", 0})                                                                                       \
    ROW(floor, FLOOR, {"self", 0})                                                                                     \
    ROW(ceil, CEIL, {"self", 0})                                                                                       \
    ROW(round, ROUND, {"self", 0})                                                                                     \
    ROW(trunc, TRUNC, {"self", 0})                                                                                     \
    ROW(logical_not, NOT, {"self", 0})                                                                                 \
    ROW(mul, MUL, {"self", 0}, {"other", 0})                                                                           \
    ROW(maximum, MAX, {"self", 0}, {"other", 0})                                                                       \
    ROW(minimum, MIN, {"self", 0}, {"other", 0})                                                                       \
    ROW(eq, EQ, {"self", 0}, {"other", 0})                                                                             \
    ROW(ne, NE, {"self", 0}, {"other", 0})                                                                             \
    ROW(lt, LT, {"self", 0}, {"other", 0})                                                                             \
    ROW(le, LE, {"self", 0}, {"other", 0})                                                                             \
    ROW(gt, GT, {"self", 0}, {"other", 0})                                                                             \
    ROW(ge, GE, {"self", 0}, {"other", 0})                                                                             \
    ROW(logical_and, AND, {"self", 0}, {"other", 0})                                                                   \
    ROW(logical_or, OR, {"self", 0}, {"other", 0})                                                                     \
    ROW(pow, POW, {"self", 0}, {"exponent", 1})                                                                        \
    ROW(where, WHERE, {"condition", 0}, {"self", 0}, {"other", 0})                                                     \
    ROW(hardtanh, HARDTANH, {"self", 0}, {"min_val", -1}, {"max_val", 1})                                              \
    ROW(leaky_relu, LEAKY_RELU, {"self", 0}, {"negative_slope", 0.01})                                                 \
    ROW(softplus, SOFTPLUS, {"self", 0}, {"beta", 1}, {"threshold", 20})                                               \
    ROW(masked_fill, WHERE, {"mask", 0}, {"value", 0}, {"self", 0})

static const struct {
    const char *name;
    fth_expression_function function;
    struct {
        const char *name;
        double otherwise;
    } operands[3];
} functions[] = {
#define ROW(name, FUNCTION, ...) {#name, FTH_FUNCTION_##FUNCTION, {__VA_ARGS__}},
    FUNCTIONS(ROW)
#undef ROW
};

fth_status lowering_simple_function(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand made[3] = {FTH_NO_OPERAND, FTH_NO_OPERAND, FTH_NO_OPERAND};
    size_t row = 0;

    while (!lowering_is(l, functions[row].name))
        row++;
    for (int i = 0; i < 3 && functions[row].operands[i].name; i++)
        FTH_TRY(operand(l, functions[row].operands[i].name, functions[row].operands[i].otherwise, &expression, &all,
                        &made[i]));
    if (lowering_is(l, "relu6")) {
        made[1] = fth_expression_number(&expression, 0);
        made[2] = fth_expression_number(&expression, 6);
    }
    fth_expression_apply(&expression, functions[row].function, made[0], made[1], made[2]);
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

/* ---- with something of their own ---- */

/* self + alpha * other, self - alpha * other, other - alpha * self */
static fth_status sum_of(lowering *l, fth_expression_function function, bool reversed)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand a, b;

    FTH_TRY(operand(l, reversed ? "other" : "self", 0, &expression, &all, &a));
    FTH_TRY(operand(l, reversed ? "self" : "other", 0, &expression, &all, &b));
    const fth_operand alpha = fth_expression_number(&expression, lowering_number(l, "alpha", 1));
    b = fth_expression_apply(&expression, FTH_FUNCTION_MUL, b, alpha, FTH_NO_OPERAND);
    fth_expression_apply(&expression, function, a, b, FTH_NO_OPERAND);
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

static bool has_size(const fth_view *view, const fth_exported_value *value)
{
    if (view->rank != value->rank)
        return false;
    for (int d = 0; d < view->rank; d++) {
        const fth_exported_dim dim = fth_view_dim(view, d);
        if (dim.factor != value->dims[d].factor || dim.batch != value->dims[d].batch)
            return false;
    }
    return true;
}

/* A batch norm takes in the residual that is added behind it. */
static fth_status add_to_batch_norm(lowering *l, const char *norm, const char *residual, bool *done)
{
    fth_status status = FTH_OK;
    const lowering_pending *waiting = lowering_pending_of(l, norm);
    lowering_pending pending;
    fth_view y, x;

    *done = false;
    if (!waiting || waiting->kind != LOWERING_BATCH_NORM || waiting->inputs[5] != FTH_NO_VALUE)
        goto out;
    FTH_TRY(lowering_tensor(l, residual, &x));
    if (x.rank != 4 || !has_size(&x, lowering_argument(l, norm)) || !has_size(&x, lowering_output(l, 0)) ||
        !lowering_take_pending(l, norm, &pending, &y))
        goto out;
    FTH_TRY(fth_view_arrange_plain(lowering_graph(l), &x));
    pending.inputs[5] = x.value;
    FTH_TRY(lowering_set_pending(l, &pending, &y));
    *done = true;
out:
    return status;
}

static fth_status add(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view a, b;
    fth_alignment alignment;
    bool done = false;

    if (lowering_lacks(l, "other") || lowering_is_number(l, "other") || lowering_is_number(l, "self") ||
        lowering_number(l, "alpha", 1) != 1 || lowering_constant(l, "self") || lowering_constant(l, "other"))
        return sum_of(l, FTH_FUNCTION_ADD, false);
    FTH_TRY(add_to_batch_norm(l, "self", "other", &done));
    if (!done)
        FTH_TRY(add_to_batch_norm(l, "other", "self", &done));
    if (done)
        goto out;
    FTH_TRY(lowering_tensor(l, "self", &a));
    FTH_TRY(lowering_tensor(l, "other", &b));
    if (!has_size(&a, lowering_output(l, 0)) || !has_size(&b, lowering_output(l, 0)))
        return sum_of(l, FTH_FUNCTION_ADD, false);
    FTH_TRY(fth_view_align(lowering_graph(l), (fth_view *const[]){&a, &b}, 2, &alignment));
    const lowering_pending pending = {.kind = LOWERING_ADD, .inputs = {a.value, b.value}};
    const fth_graph *graph = lowering_graph(l);
    if (!fth_shape_equal(&fth_graph_value(graph, a.value)->type.shape, &fth_graph_value(graph, b.value)->type.shape))
        return sum_of(l, FTH_FUNCTION_ADD, false);
    FTH_TRY(lowering_set_pending(l, &pending, &alignment.result));
out:
    return status;
}

static fth_status subtract(lowering *l)
{
    return sum_of(l, FTH_FUNCTION_SUB, false);
}

static fth_status subtract_from(lowering *l)
{
    return sum_of(l, FTH_FUNCTION_SUB, true);
}

static fth_status divide(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand a, b;
    const char *mode = lowering_text(l, "rounding_mode", "");
    bool done = false;

    FTH_TRY(lowering_divide_noise(l, &done));
    if (done)
        goto out;
    FTH_TRY(operand(l, "self", 0, &expression, &all, &a));
    FTH_TRY(operand(l, "other", 1, &expression, &all, &b));
    a = fth_expression_apply(&expression, FTH_FUNCTION_DIV, a, b, FTH_NO_OPERAND);
    if (*mode)
        fth_expression_apply(&expression, strcmp(mode, "floor") == 0 ? FTH_FUNCTION_FLOOR : FTH_FUNCTION_TRUNC, a,
                             FTH_NO_OPERAND, FTH_NO_OPERAND);
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

static fth_status clamp(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand x, low, high;

    FTH_TRY(operand(l, "self", 0, &expression, &all, &x));
    if (!lowering_lacks(l, "min") && !lowering_lacks(l, "max")) {
        FTH_TRY(operand(l, "min", 0, &expression, &all, &low));
        FTH_TRY(operand(l, "max", 0, &expression, &all, &high));
        fth_expression_apply(&expression, FTH_FUNCTION_CLAMP, x, low, high);
    } else if (!lowering_lacks(l, "min")) {
        FTH_TRY(operand(l, "min", 0, &expression, &all, &low));
        fth_expression_apply(&expression, FTH_FUNCTION_MAX, x, low, FTH_NO_OPERAND);
    } else {
        FTH_TRY(operand(l, "max", 0, &expression, &all, &high));
        fth_expression_apply(&expression, FTH_FUNCTION_MIN, x, high, FTH_NO_OPERAND);
    }
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

/* ELU, CELU and SELU: scale * (x > 0 ? x : alpha * (exp(x * input_scale) - 1)) */
static fth_status elu(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand x;
    double alpha = lowering_number(l, "alpha", 1), scale = lowering_number(l, "scale", 1);
    double input_scale = lowering_number(l, "input_scale", 1);

    if (lowering_is(l, "selu")) {
        alpha = 1.6732632423543772848170429916717;
        scale = 1.0507009873554804934193349852946;
    } else if (lowering_is(l, "celu")) {
        input_scale = 1 / alpha;
    }
    FTH_TRY(operand(l, "self", 0, &expression, &all, &x));
    if (input_scale != 1) { /* x and alpha are taken to the scaled input, and back by the scale */
        x = fth_expression_apply(&expression, FTH_FUNCTION_MUL, x, fth_expression_number(&expression, input_scale),
                                 FTH_NO_OPERAND);
        alpha *= input_scale;
        scale /= input_scale;
    }
    x = fth_expression_apply(&expression, FTH_FUNCTION_ELU, x, fth_expression_number(&expression, alpha),
                             FTH_NO_OPERAND);
    fth_expression_apply(&expression, FTH_FUNCTION_MUL, x, fth_expression_number(&expression, scale), FTH_NO_OPERAND);
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

static fth_status prelu(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    fth_view x, slope, y;

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_tensor(l, "weight", &slope));
    if (fth_view_dim(&slope, 0).factor > 1)
        FTH_TRY(lowering_along(l, slope.value, x.rank, 1, &slope));
    fth_expression_apply(&expression, FTH_FUNCTION_LEAKY_RELU, fth_expression_input(0), fth_expression_input(1),
                         FTH_NO_OPERAND);
    FTH_TRY(lowering_combine(l, &expression, (fth_view *const[]){&x, &slope}, 2, &y));
    lowering_set(l, 0, &y);
out:
    return status;
}

fth_status lowering_along(lowering *l, fth_value value, int rank, int dim, fth_view *y)
{
    fth_exported_dim dims[FTH_MAX_RANK];
    const fth_shape *shape = &fth_graph_value(lowering_graph(l), value)->type.shape;
    for (int i = 0; i < rank; i++)
        dims[i] = (fth_exported_dim){.factor = i == dim ? fth_shape_count(shape) : 1};
    return fth_view_create(value, rank, dims, y);
}

/* ~, & and | of truth values; of integers they would work on bits */
static fth_status truth(lowering *l, fth_expression_function function)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand a, b = FTH_NO_OPERAND;

    FTH_REQUIRE(lowering_output(l, 0)->torch_dtype == FTH_TORCH_BOOL, FTH_UNSUPPORTED, "on the bits of integers");
    FTH_TRY(operand(l, "self", 0, &expression, &all, &a));
    if (function != FTH_FUNCTION_NOT)
        FTH_TRY(operand(l, "other", 0, &expression, &all, &b));
    fth_expression_apply(&expression, function, a, b, FTH_NO_OPERAND);
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

static fth_status truth_not(lowering *l)
{
    return truth(l, FTH_FUNCTION_NOT);
}

static fth_status truth_and(lowering *l)
{
    return truth(l, FTH_FUNCTION_AND);
}

static fth_status truth_or(lowering *l)
{
    return truth(l, FTH_FUNCTION_OR);
}

/* start + weight * (end - start) */
static fth_status lerp(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand start, end, weight;

    FTH_TRY(operand(l, "self", 0, &expression, &all, &start));
    FTH_TRY(operand(l, "end", 0, &expression, &all, &end));
    FTH_TRY(operand(l, "weight", 0, &expression, &all, &weight));
    end = fth_expression_apply(&expression, FTH_FUNCTION_SUB, end, start, FTH_NO_OPERAND);
    end = fth_expression_apply(&expression, FTH_FUNCTION_MUL, weight, end, FTH_NO_OPERAND);
    fth_expression_apply(&expression, FTH_FUNCTION_ADD, start, end, FTH_NO_OPERAND);
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

/* self + value * tensor1 * tensor2, or tensor1 / tensor2 */
static fth_status add_of_two(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand x, a, b;

    FTH_TRY(operand(l, "self", 0, &expression, &all, &x));
    FTH_TRY(operand(l, "tensor1", 0, &expression, &all, &a));
    FTH_TRY(operand(l, "tensor2", 0, &expression, &all, &b));
    a = fth_expression_apply(&expression, lowering_is(l, "addcdiv") ? FTH_FUNCTION_DIV : FTH_FUNCTION_MUL, a, b,
                             FTH_NO_OPERAND);
    b = fth_expression_number(&expression, lowering_number(l, "value", 1));
    a = fth_expression_apply(&expression, FTH_FUNCTION_MUL, a, b, FTH_NO_OPERAND);
    fth_expression_apply(&expression, FTH_FUNCTION_ADD, x, a, FTH_NO_OPERAND);
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

/* floor(self / other), or what that leaves of self */
static fth_status remainder_of(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand a, b;

    FTH_TRY(operand(l, "self", 0, &expression, &all, &a));
    FTH_TRY(operand(l, "other", 1, &expression, &all, &b));
    fth_operand times = fth_expression_apply(&expression, FTH_FUNCTION_DIV, a, b, FTH_NO_OPERAND);
    times = fth_expression_apply(&expression, FTH_FUNCTION_FLOOR, times, FTH_NO_OPERAND, FTH_NO_OPERAND);
    if (lowering_is(l, "remainder")) {
        b = fth_expression_apply(&expression, FTH_FUNCTION_MUL, times, b, FTH_NO_OPERAND);
        fth_expression_apply(&expression, FTH_FUNCTION_SUB, a, b, FTH_NO_OPERAND);
    }
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

/* log2, log10, exp2 */
static fth_status of_another_base(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand x;
    const bool power = lowering_is(l, "exp2");

    FTH_TRY(operand(l, "self", 0, &expression, &all, &x));
    const double base = log(lowering_is(l, "log10") ? 10 : 2);
    const fth_operand factor = fth_expression_number(&expression, power ? base : 1 / base);
    if (!power)
        x = fth_expression_apply(&expression, FTH_FUNCTION_LOG, x, FTH_NO_OPERAND, FTH_NO_OPERAND);
    x = fth_expression_apply(&expression, FTH_FUNCTION_MUL, x, factor, FTH_NO_OPERAND);
    if (power)
        fth_expression_apply(&expression, FTH_FUNCTION_EXP, x, FTH_NO_OPERAND, FTH_NO_OPERAND);
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

/* -softplus(-x) */
static fth_status log_sigmoid(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    operands all = {.count = 0};
    fth_operand x;

    FTH_TRY(operand(l, "self", 0, &expression, &all, &x));
    x = fth_expression_apply(&expression, FTH_FUNCTION_NEG, x, FTH_NO_OPERAND, FTH_NO_OPERAND);
    x = fth_expression_apply(&expression, FTH_FUNCTION_SOFTPLUS, x, fth_expression_number(&expression, 1),
                             fth_expression_number(&expression, 20));
    fth_expression_apply(&expression, FTH_FUNCTION_NEG, x, FTH_NO_OPERAND, FTH_NO_OPERAND);
    FTH_TRY(finish(l, &expression, &all));
out:
    return status;
}

/* ---- with ops of their own ---- */

typedef fth_status add_op(fth_graph *graph, fth_value x, fth_value *y);

static fth_status activation(lowering *l, add_op *op)
{
    fth_status status = FTH_OK;
    fth_view x;
    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(op(lowering_graph(l), x.value, &x.value));
    lowering_set(l, 0, &x);
out:
    return status;
}

static fth_status relu(lowering *l)
{
    fth_status status = FTH_OK;
    lowering_pending pending;
    fth_view x;
    if (!lowering_take_pending(l, "self", &pending, &x))
        return activation(l, fth_op_add_relu);
    FTH_TRY(lowering_add_pending(l, &pending, true, &x.value));
    lowering_set(l, 0, &x);
out:
    return status;
}

static fth_status gelu(lowering *l)
{
    return activation(l, strcmp(lowering_text(l, "approximate", "none"), "tanh") == 0 ? fth_op_add_gelu_tanh
                                                                                      : fth_op_add_gelu);
}

static fth_status hyperbolic_tangent(lowering *l)
{
    return activation(l, fth_op_add_tanh);
}

const lowering_row lowering_functions[] = {
#define ROW(name, FUNCTION, ...) {#name, lowering_simple_function},
    FUNCTIONS(ROW)
#undef ROW
        {"add", add},
    {"sub", subtract},
    {"rsub", subtract_from},
    {"div", divide},
    {"true_divide", divide},
    {"clamp", clamp},
    {"clamp_min", clamp},
    {"clamp_max", clamp},
    {"elu", elu},
    {"celu", elu},
    {"selu", elu},
    {"prelu", prelu},
    {"bitwise_not", truth_not},
    {"bitwise_and", truth_and},
    {"__and__", truth_and},
    {"bitwise_or", truth_or},
    {"__or__", truth_or},
    {"remainder", remainder_of},
    {"floor_divide", remainder_of},
    {"log2", of_another_base},
    {"log10", of_another_base},
    {"exp2", of_another_base},
    {"lerp", lerp},
    {"addcmul", add_of_two},
    {"addcdiv", add_of_two},
    {"log_sigmoid", log_sigmoid},
    {"relu", relu},
    {"gelu", gelu},
    {"tanh", hyperbolic_tangent},
    {NULL, NULL},
};
