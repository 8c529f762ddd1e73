/* Derivatives of expressions: the chain rule, backwards through the steps, as further steps. */
#include <math.h>

#include "graph/expression.h"

/* One step whose gradient is asked for: y = f(x[0], x[1], x[2]), and dy. */
typedef struct derivation {
    fth_expression *e;
    fth_operand x[3], y, dy;
} derivation;

static fth_operand number(derivation *d, double value)
{
    return fth_expression_number(d->e, value);
}

static fth_operand unary(derivation *d, fth_expression_function function, fth_operand a)
{
    return fth_expression_apply(d->e, function, a, FTH_NO_OPERAND, FTH_NO_OPERAND);
}

static fth_operand binary(derivation *d, fth_expression_function function, fth_operand a, fth_operand b)
{
    return fth_expression_apply(d->e, function, a, b, FTH_NO_OPERAND);
}

static fth_operand add(derivation *d, fth_operand a, fth_operand b)
{
    return binary(d, FTH_FUNCTION_ADD, a, b);
}

static fth_operand subtract(derivation *d, fth_operand a, fth_operand b)
{
    return binary(d, FTH_FUNCTION_SUB, a, b);
}

static fth_operand multiply(derivation *d, fth_operand a, fth_operand b)
{
    return binary(d, FTH_FUNCTION_MUL, a, b);
}

static fth_operand where(derivation *d, fth_operand condition, fth_operand a, fth_operand b)
{
    return fth_expression_apply(d->e, FTH_FUNCTION_WHERE, condition, a, b);
}

/* dy times a derivative. */
static fth_operand times(derivation *d, fth_operand slope)
{
    return multiply(d, d->dy, slope);
}

/* dy where the condition holds, 0 elsewhere; and the reverse. */
static fth_operand pass(derivation *d, fth_operand condition)
{
    return where(d, condition, d->dy, number(d, 0));
}

static fth_operand stop(derivation *d, fth_operand condition)
{
    return where(d, condition, number(d, 0), d->dy);
}

static fth_operand compare(derivation *d, fth_expression_function function, fth_operand a, double with)
{
    return binary(d, function, a, number(d, with));
}

/* ---- the rules: the gradient of operand `of`; none: 0 everywhere ---- */

static fth_operand derive_power(derivation *d, int of)
{
    const fth_operand a = d->x[0], b = d->x[1], zero = number(d, 0);
    if (of == 0) {
        const fth_operand slope =
            multiply(d, b, fth_expression_apply(d->e, FTH_FUNCTION_POW, a, subtract(d, b, number(d, 1)), zero));
        return b.kind == FTH_OPERAND_NUMBER ? times(d, slope)
                                            : where(d, compare(d, FTH_FUNCTION_EQ, b, 0), zero, times(d, slope));
    }
    const fth_operand at_zero =
        binary(d, FTH_FUNCTION_AND, compare(d, FTH_FUNCTION_EQ, a, 0), compare(d, FTH_FUNCTION_GE, b, 0));
    return where(d, at_zero, zero, times(d, multiply(d, d->y, unary(d, FTH_FUNCTION_LOG, a))));
}

/* The larger, or smaller, gets the gradient; equal ones get half of it each. */
static fth_operand pass_extreme(derivation *d, fth_operand own, fth_operand other, fth_expression_function loses,
                                fth_operand dy)
{
    return where(d, binary(d, FTH_FUNCTION_EQ, own, other), multiply(d, dy, number(d, 0.5)),
                 where(d, binary(d, loses, own, other), number(d, 0), dy));
}

static fth_operand derive_extreme(derivation *d, int of, fth_expression_function loses)
{
    return pass_extreme(d, d->x[of], d->x[1 - of], loses, d->dy);
}

static bool is_infinite(const derivation *d, fth_operand x)
{
    return x.kind == FTH_OPERAND_NUMBER && isinf(d->e->numbers[x.index]);
}

/* Between numbers, 0 at them, too; between other operands as min(max(a, low), high). */
static fth_operand derive_clamp(derivation *d, int of)
{
    const fth_operand a = d->x[0], low = d->x[1], high = d->x[2];
    if (low.kind == FTH_OPERAND_NUMBER && high.kind == FTH_OPERAND_NUMBER) {
        const fth_operand above = is_infinite(d, low) ? number(d, 1) : binary(d, FTH_FUNCTION_GT, a, low);
        const fth_operand below = is_infinite(d, high) ? above : binary(d, FTH_FUNCTION_LT, a, high);
        return of != 0 ? FTH_NO_OPERAND
                       : pass(d, is_infinite(d, low) ? below : binary(d, FTH_FUNCTION_AND, above, below));
    }
    const fth_operand raised = binary(d, FTH_FUNCTION_MAX, a, low);
    if (of == 2)
        return pass_extreme(d, high, raised, FTH_FUNCTION_GT, d->dy);
    const fth_operand dy = pass_extreme(d, raised, high, FTH_FUNCTION_GT, d->dy);
    return of == 0 ? pass_extreme(d, a, low, FTH_FUNCTION_LT, dy) : pass_extreme(d, low, a, FTH_FUNCTION_LT, dy);
}

static fth_operand derive_softplus(derivation *d)
{
    const fth_operand scaled = multiply(d, d->x[0], d->x[1]);
    return where(d, binary(d, FTH_FUNCTION_GT, scaled, d->x[2]), d->dy,
                 times(d, unary(d, FTH_FUNCTION_SIGMOID, scaled)));
}

/* t + a s (1 - t²), where t = tanh(softplus(a)). */
static fth_operand derive_mish(derivation *d)
{
    const fth_operand a = d->x[0];
    const fth_operand t =
        unary(d, FTH_FUNCTION_TANH, fth_expression_apply(d->e, FTH_FUNCTION_SOFTPLUS, a, number(d, 1), number(d, 20)));
    const fth_operand slope = subtract(d, number(d, 1), unary(d, FTH_FUNCTION_SQUARE, t));
    return times(d, add(d, t, multiply(d, unary(d, FTH_FUNCTION_SILU, a), slope)));
}

static fth_operand derive_arithmetic(derivation *d, fth_expression_function function, int of)
{
    switch (function) {
    case FTH_FUNCTION_ADD: return d->dy;
    case FTH_FUNCTION_SUB: return of == 0 ? d->dy : unary(d, FTH_FUNCTION_NEG, d->dy);
    case FTH_FUNCTION_MUL: return times(d, d->x[1 - of]);
    case FTH_FUNCTION_DIV:
        if (of == 0)
            return binary(d, FTH_FUNCTION_DIV, d->dy, d->x[1]);
        return unary(d, FTH_FUNCTION_NEG, times(d, binary(d, FTH_FUNCTION_DIV, d->y, d->x[1])));
    case FTH_FUNCTION_NEG: return unary(d, FTH_FUNCTION_NEG, d->dy);
    case FTH_FUNCTION_ABS: return times(d, unary(d, FTH_FUNCTION_SIGN, d->x[0]));
    case FTH_FUNCTION_SQRT: return binary(d, FTH_FUNCTION_DIV, d->dy, multiply(d, d->y, number(d, 2)));
    case FTH_FUNCTION_RSQRT:
        return times(d, multiply(d, multiply(d, unary(d, FTH_FUNCTION_SQUARE, d->y), d->y), number(d, -0.5)));
    case FTH_FUNCTION_RECIPROCAL: return unary(d, FTH_FUNCTION_NEG, times(d, unary(d, FTH_FUNCTION_SQUARE, d->y)));
    case FTH_FUNCTION_SQUARE: return times(d, multiply(d, d->x[0], number(d, 2)));
    case FTH_FUNCTION_POW: return derive_power(d, of);
    case FTH_FUNCTION_MIN: return derive_extreme(d, of, FTH_FUNCTION_GT);
    case FTH_FUNCTION_MAX: return derive_extreme(d, of, FTH_FUNCTION_LT);
    default: return FTH_NO_OPERAND;
    }
}

static fth_operand derive_transcendental(derivation *d, fth_expression_function function)
{
    const fth_operand a = d->x[0];
    switch (function) {
    case FTH_FUNCTION_EXP: return times(d, d->y);
    case FTH_FUNCTION_LOG: return binary(d, FTH_FUNCTION_DIV, d->dy, a);
    case FTH_FUNCTION_ERF:
        return times(
            d, multiply(d, number(d, 2 / sqrt(acos(-1.0))),
                        unary(d, FTH_FUNCTION_EXP, unary(d, FTH_FUNCTION_NEG, unary(d, FTH_FUNCTION_SQUARE, a)))));
    case FTH_FUNCTION_SIN: return times(d, unary(d, FTH_FUNCTION_COS, a));
    case FTH_FUNCTION_COS: return unary(d, FTH_FUNCTION_NEG, times(d, unary(d, FTH_FUNCTION_SIN, a)));
    case FTH_FUNCTION_LOG1P: return binary(d, FTH_FUNCTION_DIV, d->dy, add(d, a, number(d, 1)));
    case FTH_FUNCTION_EXPM1: return times(d, add(d, d->y, number(d, 1)));
    case FTH_FUNCTION_NORMAL_CDF: return times(d, unary(d, FTH_FUNCTION_NORMAL_DENSITY, a));
    case FTH_FUNCTION_NORMAL_DENSITY: return unary(d, FTH_FUNCTION_NEG, times(d, multiply(d, a, d->y)));
    default: return FTH_NO_OPERAND;
    }
}

static fth_operand derive_activation(derivation *d, fth_expression_function function, int of)
{
    const fth_operand a = d->x[0], b = d->x[1];
    switch (function) {
    case FTH_FUNCTION_SIGMOID: return times(d, multiply(d, subtract(d, number(d, 1), d->y), d->y));
    case FTH_FUNCTION_TANH: return times(d, subtract(d, number(d, 1), unary(d, FTH_FUNCTION_SQUARE, d->y)));
    case FTH_FUNCTION_SILU: return times(d, unary(d, FTH_FUNCTION_SILU_SLOPE, a));
    case FTH_FUNCTION_RELU: return stop(d, compare(d, FTH_FUNCTION_LE, a, 0));
    case FTH_FUNCTION_CLAMP: return derive_clamp(d, of);
    case FTH_FUNCTION_HARDTANH:
        return of > 0 ? FTH_NO_OPERAND
                      : stop(d, binary(d, FTH_FUNCTION_OR, binary(d, FTH_FUNCTION_LE, a, b),
                                       binary(d, FTH_FUNCTION_GE, a, d->x[2])));
    case FTH_FUNCTION_HARDSIGMOID: {
        const fth_operand inside =
            binary(d, FTH_FUNCTION_AND, compare(d, FTH_FUNCTION_GT, a, -3), compare(d, FTH_FUNCTION_LT, a, 3));
        return where(d, inside, times(d, number(d, 1.0 / 6)), number(d, 0));
    }
    case FTH_FUNCTION_HARDSWISH: return times(d, unary(d, FTH_FUNCTION_HARDSWISH_SLOPE, a));
    case FTH_FUNCTION_LEAKY_RELU: {
        const fth_operand positive = compare(d, FTH_FUNCTION_GT, a, 0);
        return of == 0 ? where(d, positive, d->dy, times(d, b)) : where(d, positive, number(d, 0), times(d, a));
    }
    case FTH_FUNCTION_ELU: {
        const fth_operand low = compare(d, FTH_FUNCTION_LE, a, 0);
        return of == 0 ? where(d, low, times(d, multiply(d, unary(d, FTH_FUNCTION_EXP, a), b)), d->dy)
                       : where(d, low, times(d, unary(d, FTH_FUNCTION_EXPM1, a)), number(d, 0));
    }
    case FTH_FUNCTION_SOFTPLUS: return of == 0 ? derive_softplus(d) : FTH_NO_OPERAND;
    case FTH_FUNCTION_MISH: return derive_mish(d);
    case FTH_FUNCTION_GELU: return times(d, unary(d, FTH_FUNCTION_GELU_SLOPE, a));
    case FTH_FUNCTION_GELU_TANH: return times(d, unary(d, FTH_FUNCTION_GELU_TANH_SLOPE, a));
    case FTH_FUNCTION_WHERE: return of == 0 ? FTH_NO_OPERAND : of == 1 ? pass(d, a) : stop(d, a);
    default: return FTH_NO_OPERAND; /* constant between its jumps */
    }
}

static fth_operand derive(derivation *d, fth_expression_function function, int of)
{
    fth_operand found = derive_arithmetic(d, function, of);
    if (found.kind == FTH_OPERAND_NONE)
        found = derive_transcendental(d, function);
    return found.kind == FTH_OPERAND_NONE ? derive_activation(d, function, of) : found;
}

/* ---- the chain rule ---- */

static void accumulate(fth_expression *e, fth_operand *sum, fth_operand more)
{
    if (more.kind == FTH_OPERAND_NONE)
        return;
    *sum = sum->kind == FTH_OPERAND_NONE ? more : fth_expression_apply(e, FTH_FUNCTION_ADD, *sum, more, FTH_NO_OPERAND);
}

bool fth_expression_differentiate(const fth_expression *expression, int of, int dy, fth_expression *gradient)
{
    fth_operand gradients[FTH_EXPRESSION_STEPS], total = FTH_NO_OPERAND;
    bool depends[FTH_EXPRESSION_STEPS] = {false};

    *gradient = *expression;
    for (int s = 0; s < expression->step_count; s++) {
        gradients[s] = FTH_NO_OPERAND;
        for (int i = 0; i < 3; i++) {
            const fth_operand x = expression->steps[s].operands[i];
            depends[s] = depends[s] || (x.kind == FTH_OPERAND_INPUT && x.index == of) ||
                         (x.kind == FTH_OPERAND_STEP && depends[x.index]);
        }
    }
    if (expression->result.kind == FTH_OPERAND_STEP)
        gradients[expression->result.index] = fth_expression_input(dy);
    else if (expression->result.kind == FTH_OPERAND_INPUT && expression->result.index == of)
        total = fth_expression_input(dy);
    for (int s = expression->step_count - 1; s >= 0; s--) {
        const fth_expression_step *step = &expression->steps[s];
        derivation d = {.e = gradient, .y = {FTH_OPERAND_STEP, (uint8_t)s}, .dy = gradients[s]};
        for (int i = 0; i < 3; i++)
            d.x[i] = step->operands[i];
        for (int i = 0; i < 3 && d.dy.kind != FTH_OPERAND_NONE; i++) {
            const fth_operand x = d.x[i];
            if (x.kind == FTH_OPERAND_INPUT && x.index == of)
                accumulate(gradient, &total, derive(&d, (fth_expression_function)step->function, i));
            else if (x.kind == FTH_OPERAND_STEP && depends[x.index])
                accumulate(gradient, &gradients[x.index], derive(&d, (fth_expression_function)step->function, i));
        }
    }
    gradient->result = total;
    fth_expression_prune(gradient);
    return total.kind != FTH_OPERAND_NONE;
}
