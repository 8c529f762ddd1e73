/* Expressions: see expression.h. */
#include "graph/expression.h"

#include <math.h>
#include <string.h>

/* ---- functions, in double ---- */

static double logistic(double a)
{
    return 1 / (1 + exp(-a));
}

static double normal_cdf(double a)
{
    return 0.5 * erfc(-a * 0.70710678118654752440);
}

static double normal_density(double a)
{
    return 0.39894228040143267794 * exp(-0.5 * a * a);
}

/* log(1 + exp(beta a)) / beta, or a where that is as good as the same. */
static double softplus(double a, double beta, double threshold)
{
    return a * beta > threshold ? a : log1p(exp(a * beta)) / beta;
}

/* tanh(log(1 + e)) */
static double mish_factor(double e)
{
    return e * (e + 2) / (e * (e + 2) + 2);
}

/* Derivatives: of a s, where s is the logistic function; of a Φ(a); and of a s, where s is the
 * logistic function of 2 sqrt(2/π) (a + 0.044715 a³). */
static double silu_slope(double a, double s)
{
    return s * (1 + a * (1 - s));
}

static double gelu_slope(double a)
{
    return normal_cdf(a) + a * normal_density(a);
}

static double gelu_tanh_slope(double a, double s)
{
    return s * (1 + a * (1 - s) * (1.5957691216057308 + 3 * 0.07135481627260025 * a * a));
}

#define NUM(number) number
#define F(name)     name

#define ROW(NAME, name, arity, formula)                                                                                \
    static double evaluate_##name(double a, double b, double c)                                                        \
    {                                                                                                                  \
        (void)b;                                                                                                       \
        (void)c;                                                                                                       \
        return formula;                                                                                                \
    }
FTH_FUNCTIONS(ROW)
#undef ROW

static const struct {
    const char *name;
    int arity;
    double (*evaluate)(double a, double b, double c);
} functions[FTH_FUNCTION_COUNT] = {
#define ROW(NAME, name, arity, formula) {#name, arity, evaluate_##name},
    FTH_FUNCTIONS(ROW)
#undef ROW
};

const char *fth_expression_function_name(fth_expression_function function)
{
    return functions[function].name;
}

int fth_expression_function_arity(fth_expression_function function)
{
    return functions[function].arity;
}

/* ---- building ---- */

bool fth_operand_equal(fth_operand a, fth_operand b)
{
    return a.kind == b.kind && a.index == b.index;
}

fth_operand fth_expression_input(int input)
{
    return (fth_operand){FTH_OPERAND_INPUT, (uint8_t)input};
}

fth_operand fth_expression_number(fth_expression *expression, double number)
{
    for (uint8_t i = 0; i < expression->number_count; i++)
        if (memcmp(&expression->numbers[i], &number, sizeof number) == 0) /* tells -0 from 0, and finds NaN */
            return (fth_operand){FTH_OPERAND_NUMBER, i};
    if (expression->number_count == FTH_EXPRESSION_NUMBERS) {
        expression->overfull = true;
        return (fth_operand){FTH_OPERAND_NUMBER, 0};
    }
    expression->numbers[expression->number_count] = number;
    return (fth_operand){FTH_OPERAND_NUMBER, expression->number_count++};
}

/* Whether the operand is that number. */
static bool is_number(const fth_expression *expression, fth_operand operand, double number)
{
    return operand.kind == FTH_OPERAND_NUMBER && expression->numbers[operand.index] == number;
}

/* The step itself, unless it is there already. */
static fth_operand add_step(fth_expression *expression, fth_expression_function function, const fth_operand operands[3])
{
    fth_expression_step step = {.function = (uint8_t)function};
    for (int i = 0; i < 3; i++)
        step.operands[i] = i < functions[function].arity ? operands[i] : FTH_NO_OPERAND;
    for (uint8_t s = 0; s < expression->step_count; s++)
        if (memcmp(&expression->steps[s], &step, sizeof step) == 0) /* bytes alone: no padding */
            return (fth_operand){FTH_OPERAND_STEP, s};
    if (expression->step_count == FTH_EXPRESSION_STEPS) {
        expression->overfull = true;
        return (fth_operand){FTH_OPERAND_STEP, FTH_EXPRESSION_STEPS - 1};
    }
    expression->steps[expression->step_count] = step;
    return (fth_operand){FTH_OPERAND_STEP, expression->step_count++};
}

static fth_operand add_unary(fth_expression *expression, fth_expression_function function, fth_operand a)
{
    return add_step(expression, function, (fth_operand[]){a, FTH_NO_OPERAND, FTH_NO_OPERAND});
}

/* Powers that PyTorch, too, computes by other means. */
static fth_operand add_power(fth_expression *expression, fth_operand a, fth_operand b)
{
    if (is_number(expression, b, 0))
        return fth_expression_number(expression, 1);
    if (is_number(expression, b, 1))
        return a;
    if (is_number(expression, b, 2))
        return add_unary(expression, FTH_FUNCTION_SQUARE, a);
    if (is_number(expression, b, 3))
        return add_step(expression, FTH_FUNCTION_MUL,
                        (fth_operand[]){add_unary(expression, FTH_FUNCTION_SQUARE, a), a, FTH_NO_OPERAND});
    if (is_number(expression, b, 0.5))
        return add_unary(expression, FTH_FUNCTION_SQRT, a);
    if (is_number(expression, b, -0.5))
        return add_unary(expression, FTH_FUNCTION_RSQRT, a);
    if (is_number(expression, b, -1))
        return add_unary(expression, FTH_FUNCTION_RECIPROCAL, a);
    if (is_number(expression, b, -2))
        return add_unary(expression, FTH_FUNCTION_RECIPROCAL, add_unary(expression, FTH_FUNCTION_SQUARE, a));
    return add_step(expression, FTH_FUNCTION_POW, (fth_operand[]){a, b, FTH_NO_OPERAND});
}

static fth_operand simplify(fth_expression *expression, fth_expression_function function, const fth_operand operands[3])
{
    const fth_operand a = operands[0], b = operands[1];
    const int arity = functions[function].arity;
    double numbers[3] = {0};
    bool constant = true;
    for (int i = 0; i < arity; i++) {
        constant = constant && operands[i].kind == FTH_OPERAND_NUMBER;
        if (operands[i].kind == FTH_OPERAND_NUMBER)
            numbers[i] = expression->numbers[operands[i].index];
    }
    if (constant)
        return fth_expression_number(expression, functions[function].evaluate(numbers[0], numbers[1], numbers[2]));
    switch (function) {
    case FTH_FUNCTION_ADD:
        if (is_number(expression, a, 0))
            return b;
        return is_number(expression, b, 0) ? a : add_step(expression, function, operands);
    case FTH_FUNCTION_MUL:
        if (is_number(expression, a, 1))
            return b;
        return is_number(expression, b, 1) ? a : add_step(expression, function, operands);
    case FTH_FUNCTION_SUB: return is_number(expression, b, 0) ? a : add_step(expression, function, operands);
    case FTH_FUNCTION_DIV: return is_number(expression, b, 1) ? a : add_step(expression, function, operands);
    case FTH_FUNCTION_POW: return add_power(expression, a, b);
    case FTH_FUNCTION_NEG:
        if (a.kind == FTH_OPERAND_STEP && expression->steps[a.index].function == FTH_FUNCTION_NEG)
            return expression->steps[a.index].operands[0];
        return add_step(expression, function, operands);
    case FTH_FUNCTION_WHERE:
        if (a.kind == FTH_OPERAND_NUMBER)
            return numbers[0] != 0 ? b : operands[2];
        return fth_operand_equal(b, operands[2]) ? b : add_step(expression, function, operands);
    default: return add_step(expression, function, operands);
    }
}

fth_operand fth_expression_apply(fth_expression *expression, fth_expression_function function, fth_operand a,
                                 fth_operand b, fth_operand c)
{
    expression->result = simplify(expression, function, (fth_operand[]){a, b, c});
    return expression->result;
}

fth_operand fth_expression_append(fth_expression *expression, const fth_expression *inner,
                                  const fth_operand inputs[FTH_EXPRESSION_INPUTS])
{
    fth_operand results[FTH_EXPRESSION_STEPS], operands[4];
    expression->overfull = expression->overfull || inner->overfull;
    for (int s = 0; s <= inner->step_count; s++) { /* the last time around: the result alone */
        const fth_expression_step *step = &inner->steps[s];
        const int count = s < inner->step_count ? functions[step->function].arity : 1;
        for (int i = 0; i < count; i++) {
            const fth_operand from = s < inner->step_count ? step->operands[i] : inner->result;
            operands[i] = from.kind == FTH_OPERAND_INPUT ? inputs[from.index]
                          : from.kind == FTH_OPERAND_STEP
                              ? results[from.index]
                              : fth_expression_number(expression, inner->numbers[from.index]);
        }
        if (s < inner->step_count)
            results[s] = fth_expression_apply(expression, (fth_expression_function)step->function, operands[0],
                                              count > 1 ? operands[1] : FTH_NO_OPERAND,
                                              count > 2 ? operands[2] : FTH_NO_OPERAND);
    }
    expression->result = operands[0];
    return expression->result;
}

/* ---- reading ---- */

static double value_of(const fth_expression *expression, fth_operand operand, const double *inputs,
                       const double *results)
{
    switch ((fth_operand_kind)operand.kind) {
    case FTH_OPERAND_INPUT: return inputs[operand.index];
    case FTH_OPERAND_STEP: return results[operand.index];
    case FTH_OPERAND_NUMBER: return expression->numbers[operand.index];
    case FTH_OPERAND_NONE: break;
    }
    return 0;
}

double fth_expression_evaluate(const fth_expression *expression, const double *inputs)
{
    double results[FTH_EXPRESSION_STEPS];
    for (int s = 0; s < expression->step_count; s++) {
        const fth_expression_step *step = &expression->steps[s];
        results[s] = functions[step->function].evaluate(value_of(expression, step->operands[0], inputs, results),
                                                        value_of(expression, step->operands[1], inputs, results),
                                                        value_of(expression, step->operands[2], inputs, results));
    }
    return value_of(expression, expression->result, inputs, results);
}

bool fth_expression_equal(const fth_expression *a, const fth_expression *b)
{
    return fth_operand_equal(a->result, b->result) && a->step_count == b->step_count &&
           a->number_count == b->number_count && memcmp(a->steps, b->steps, a->step_count * sizeof a->steps[0]) == 0 &&
           memcmp(a->numbers, b->numbers, a->number_count * sizeof a->numbers[0]) == 0;
}

unsigned fth_expression_inputs(const fth_expression *expression)
{
    unsigned inputs = expression->result.kind == FTH_OPERAND_INPUT ? 1u << expression->result.index : 0;
    for (int s = 0; s < expression->step_count; s++)
        for (int i = 0; i < 3; i++)
            if (expression->steps[s].operands[i].kind == FTH_OPERAND_INPUT)
                inputs |= 1u << expression->steps[s].operands[i].index;
    return inputs;
}

void fth_expression_prune(fth_expression *expression)
{
    const fth_expression whole = *expression;
    bool needed[FTH_EXPRESSION_STEPS] = {false};
    fth_operand results[FTH_EXPRESSION_STEPS];

    if (whole.result.kind == FTH_OPERAND_STEP)
        needed[whole.result.index] = true;
    for (int s = whole.step_count - 1; s >= 0; s--)
        for (int i = 0; needed[s] && i < 3; i++)
            if (whole.steps[s].operands[i].kind == FTH_OPERAND_STEP)
                needed[whole.steps[s].operands[i].index] = true;
    *expression = (fth_expression){.overfull = whole.overfull};
    for (int s = 0; s <= whole.step_count; s++) { /* the last time around: the result */
        fth_operand operands[3] = {s < whole.step_count ? whole.steps[s].operands[0] : whole.result, FTH_NO_OPERAND,
                                   FTH_NO_OPERAND};
        if (s < whole.step_count && !needed[s])
            continue;
        for (int i = 1; i < 3 && s < whole.step_count; i++)
            operands[i] = whole.steps[s].operands[i];
        for (int i = 0; i < 3; i++) {
            if (operands[i].kind == FTH_OPERAND_NUMBER)
                operands[i] = fth_expression_number(expression, whole.numbers[operands[i].index]);
            else if (operands[i].kind == FTH_OPERAND_STEP)
                operands[i] = results[operands[i].index];
        }
        if (s < whole.step_count)
            results[s] = add_step(expression, (fth_expression_function)whole.steps[s].function, operands);
        else
            expression->result = operands[0];
    }
}

void fth_expression_renumber(fth_expression *expression, const int to[FTH_EXPRESSION_INPUTS])
{
    if (expression->result.kind == FTH_OPERAND_INPUT)
        expression->result.index = (uint8_t)to[expression->result.index];
    for (int s = 0; s < expression->step_count; s++)
        for (int i = 0; i < 3; i++) {
            fth_operand *operand = &expression->steps[s].operands[i];
            if (operand->kind == FTH_OPERAND_INPUT)
                operand->index = (uint8_t)to[operand->index];
        }
}

/* ---- broadcasting ---- */

bool fth_shape_broadcast(fth_shape *shape, const fth_shape *more)
{
    const fth_shape old = *shape;
    shape->rank = old.rank > more->rank ? old.rank : more->rank;
    for (int i = 1; i <= shape->rank; i++) {
        const int64_t a = i <= old.rank ? old.dims[old.rank - i] : 1;
        const int64_t b = i <= more->rank ? more->dims[more->rank - i] : 1;
        if (a != b && a != 1 && b != 1)
            return false;
        shape->dims[shape->rank - i] = a != 1 ? a : b;
    }
    return true;
}

void fth_shape_broadcast_strides(const fth_shape *input, const fth_shape *shape, int64_t strides[FTH_MAX_RANK])
{
    int64_t stride = 1;
    for (int i = 1; i <= shape->rank; i++) {
        const int64_t dim = i <= input->rank ? input->dims[input->rank - i] : 1;
        strides[shape->rank - i] = dim == 1 ? 0 : stride;
        stride *= dim;
    }
}
