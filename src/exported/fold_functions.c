/* Functions that are computed number by number, of operands that are broadcast: a row for each. */
#include <math.h>
#include <string.h>

#include "exported/fold_internal.h"

/* The formula of the operands; a missing one is NaN. */
typedef double formula(double a, double b, double c);

#define FORMULA(name, expression)                                                                                      \
    static double name(double a, double b, double c)                                                                   \
    {                                                                                                                  \
        (void)a, (void)b, (void)c;                                                                                     \
        return (expression);                                                                                           \
    }

static double product(double a, double b)
{
    return a * b;
}

static double remainder_of(double a, double b)
{
    const double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* In the order of torch.minimum: NaN wins. */
static double least(double a, double b)
{
    return isnan(a) ? a : isnan(b) ? b : a < b ? a : b;
}

/* A bound that is left out is NaN; the upper one wins. */
static double bounded(double a, double low, double high)
{
    if (a < low)
        a = low;
    return a > high ? high : a;
}

FORMULA(add, a + b * c)
FORMULA(subtract, a - b * c)
FORMULA(subtract_from, b - a * c)
FORMULA(multiply, product(a, b))
FORMULA(divide, c == 1 ? floor(a / b) : c == 2 ? trunc(a / b) : a / b)
FORMULA(floor_divide, floor(a / b))
FORMULA(modulo, remainder_of(a, b))
FORMULA(truncated_modulo, fmod(a, b))
FORMULA(power, pow(a, b))
FORMULA(minimum, least(a, b))
FORMULA(maximum, -least(-a, -b))
FORMULA(clamp, bounded(a, b, c))
FORMULA(equal, a == b)
FORMULA(not_equal, a != b)
FORMULA(less, a < b)
FORMULA(less_equal, a <= b)
FORMULA(greater, a > b)
FORMULA(greater_equal, a >= b)
FORMULA(both, a != 0 && b != 0)
FORMULA(either, a != 0 || b != 0)
FORMULA(one_of, (a != 0) != (b != 0))
FORMULA(and_bits, (double)((int64_t)a &(int64_t)b))
FORMULA(or_bits, (double)((int64_t)a | (int64_t)b))
FORMULA(xor_bits, (double)((int64_t)a ^ (int64_t)b))
FORMULA(choose, a != 0 ? b : c)
FORMULA(fill_masked, b != 0 ? c : a)
FORMULA(second, b)
FORMULA(zero, 0)
FORMULA(negate, -a)
FORMULA(magnitude, fabs(a))
FORMULA(exponential, exp(a))
FORMULA(exponential_minus_1, expm1(a))
FORMULA(logarithm, log(a))
FORMULA(logarithm_2, log2(a))
FORMULA(logarithm_10, log10(a))
FORMULA(logarithm_plus_1, log1p(a))
FORMULA(square_root, sqrt(a))
FORMULA(reciprocal_square_root, 1 / sqrt(a))
FORMULA(reciprocal, 1 / a)
FORMULA(square, product(a, a))
FORMULA(sine, sin(a))
FORMULA(cosine, cos(a))
FORMULA(tangent, tan(a))
FORMULA(arc_tangent, atan(a))
FORMULA(hyperbolic_tangent, tanh(a))
FORMULA(sigmoid, 1 / (1 + exp(-a)))
FORMULA(rectify, a > 0 || isnan(a) ? a : 0)
FORMULA(round_down, floor(a))
FORMULA(round_up, ceil(a))
FORMULA(round_even, nearbyint(a))
FORMULA(truncate_number, trunc(a))
FORMULA(sign_of, a > 0 ? 1 : a < 0 ? -1 : a)
FORMULA(negation, a == 0)
FORMULA(invert_bits, (double)~(int64_t)a)
FORMULA(is_nan, isnan(a))
FORMULA(is_infinite, isinf(a))
FORMULA(is_finite, isfinite(a))

typedef struct function {
    const char *name, *operands[3]; /* the names of arguments; NULL: none */
    formula *compute;
    double otherwise;  /* for a last operand that is left out; NaN where none may be */
    bool integers;     /* of integers alone */
    formula *of_truth; /* in place of `compute` where the first operand is boolean */
} function;

#define UNARY(name, compute)                                                                                           \
    {                                                                                                                  \
        name, {"self"}, compute, NAN, false, NULL                                                                      \
    }
#define BINARY(name, compute)                                                                                          \
    {                                                                                                                  \
        name, {"self", "other"}, compute, NAN, false, NULL                                                             \
    }

static const function functions[] = {
    {"add", {"self", "other", "alpha"}, add, 1, false, NULL},
    {"sub", {"self", "other", "alpha"}, subtract, 1, false, NULL},
    {"rsub", {"self", "other", "alpha"}, subtract_from, 1, false, NULL},
    BINARY("mul", multiply),
    {"div", {"self", "other", "rounding_mode"}, divide, 0, false, NULL},
    {"divide", {"self", "other", "rounding_mode"}, divide, 0, false, NULL},
    BINARY("true_divide", divide),
    BINARY("floor_divide", floor_divide),
    BINARY("remainder", modulo),
    BINARY("fmod", truncated_modulo),
    {"pow", {"self", "exponent"}, power, NAN, false, NULL},
    BINARY("minimum", minimum),
    BINARY("maximum", maximum),
    {"clamp", {"self", "min", "max"}, clamp, NAN, false, NULL},
    {"clamp_min", {"self", "min"}, maximum, NAN, false, NULL},
    {"clamp_max", {"self", "max"}, minimum, NAN, false, NULL},
    BINARY("eq", equal),
    BINARY("ne", not_equal),
    BINARY("not_equal", not_equal),
    BINARY("lt", less),
    BINARY("le", less_equal),
    BINARY("gt", greater),
    BINARY("ge", greater_equal),
    BINARY("logical_and", both),
    BINARY("logical_or", either),
    BINARY("logical_xor", one_of),
    {"bitwise_and", {"self", "other"}, and_bits, NAN, true, both},
    {"bitwise_or", {"self", "other"}, or_bits, NAN, true, either},
    {"bitwise_xor", {"self", "other"}, xor_bits, NAN, true, one_of},
    {"__and__", {"self", "other"}, and_bits, NAN, true, both},
    {"__or__", {"self", "other"}, or_bits, NAN, true, either},
    {"__xor__", {"self", "other"}, xor_bits, NAN, true, one_of},
    {"where", {"condition", "self", "other"}, choose, NAN, false, NULL},
    {"masked_fill", {"self", "mask", "value"}, fill_masked, NAN, false, NULL},
    {"fill", {"self", "value"}, second, NAN, false, NULL},
    {"copy", {"self", "src"}, second, NAN, false, NULL},
    UNARY("zero", zero),
    UNARY("neg", negate),
    UNARY("abs", magnitude),
    UNARY("exp", exponential),
    UNARY("expm1", exponential_minus_1),
    UNARY("log", logarithm),
    UNARY("log2", logarithm_2),
    UNARY("log10", logarithm_10),
    UNARY("log1p", logarithm_plus_1),
    UNARY("sqrt", square_root),
    UNARY("rsqrt", reciprocal_square_root),
    UNARY("reciprocal", reciprocal),
    UNARY("square", square),
    UNARY("sin", sine),
    UNARY("cos", cosine),
    UNARY("tan", tangent),
    UNARY("atan", arc_tangent),
    UNARY("tanh", hyperbolic_tangent),
    UNARY("sigmoid", sigmoid),
    UNARY("relu", rectify),
    UNARY("floor", round_down),
    UNARY("ceil", round_up),
    UNARY("round", round_even),
    UNARY("trunc", truncate_number),
    UNARY("sign", sign_of),
    UNARY("logical_not", negation),
    {"bitwise_not", {"self"}, invert_bits, NAN, true, negation},
    UNARY("isnan", is_nan),
    UNARY("isinf", is_infinite),
    UNARY("isfinite", is_finite),
};

static const function *find_function(const char *name)
{
    for (size_t i = 0; i < FTH_COUNT_OF(functions); i++) {
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    }
    return NULL;
}

bool fold_has_function(const char *name)
{
    return find_function(name) != NULL;
}

/* One operand: a tensor, a number, or what stands for one that is left out. */
typedef struct operand {
    const fth_host_tensor *tensor;
    double number;
} operand;

/* The modes of div() as numbers. */
static bool find_mode(const fth_exported_argument *argument, double *mode)
{
    *mode = strcmp(argument->text, "floor") == 0 ? 1 : strcmp(argument->text, "trunc") == 0 ? 2 : 0;
    return *mode > 0;
}

static bool find_operand(const fold *f, const function *row, int which, operand *found)
{
    const char *name = row->operands[which];
    const fth_exported_argument *argument = name ? fth_exported_find_argument(f->node, name) : NULL;
    const bool is_last = which == 2 || !row->operands[which + 1];
    found->number = is_last ? row->otherwise : NAN;
    if (!name || !argument || argument->kind == FTH_ARGUMENT_NONE)
        return !name || row->compute == clamp || (is_last && !isnan(row->otherwise));
    if (argument->kind == FTH_ARGUMENT_STRING)
        return row->compute == divide && find_mode(argument, &found->number);
    found->tensor = fold_tensor(f, name);
    return found->tensor || fold_number(f, name, &found->number);
}

static bool is_integer(const operand *x)
{
    return x->tensor ? !fth_torch_dtype_is_float(x->tensor->torch_dtype) : x->number == trunc(x->number);
}

/* False if the node has an argument that the formula does not know. */
static bool knows_arguments(const fold *f, const function *row)
{
    for (size_t i = 0; i < f->node->argument_count; i++) {
        const char *name = f->node->arguments[i].name;
        bool known = f->node->arguments[i].kind == FTH_ARGUMENT_NONE || strcmp(name, "non_blocking") == 0;
        for (int k = 0; k < 3; k++)
            known = known || (row->operands[k] && strcmp(row->operands[k], name) == 0);
        if (!known)
            return false;
    }
    return true;
}

/* PyTorch computes with scalars as with numbers of the tensors' type. */
static void round_scalars(const fold *f, operand operands[3])
{
    bool is_double = fth_exported_get_value(f->program, f->node->outputs[0])->torch_dtype == FTH_TORCH_F64;
    for (int i = 0; i < 3; i++)
        is_double = is_double || (operands[i].tensor && operands[i].tensor->torch_dtype == FTH_TORCH_F64);
    for (int i = 0; i < 3 && !is_double; i++) {
        if (operands[i].number != trunc(operands[i].number))
            operands[i].number = (float)operands[i].number;
    }
}

bool fold_function(fold *f)
{
    const function *row = find_function(f->name);
    operand operands[3] = {{.number = 0}};
    fold_walk walk = {.index = {0}};
    if (!knows_arguments(f, row) || !fold_output_shape(f, 0, &walk.shape))
        return false;
    for (int i = 0; i < 3; i++) {
        if (!find_operand(f, row, i, &operands[i]) ||
            (row->integers && row->operands[i] && !is_integer(&operands[i])) ||
            (operands[i].tensor && !fold_broadcast(&walk, i, &operands[i].tensor->shape)))
            return false;
    }
    const bool truth = operands[0].tensor && operands[0].tensor->torch_dtype == FTH_TORCH_BOOL;
    round_scalars(f, operands);
    formula *compute = row->of_truth && truth ? row->of_truth : row->compute;
    double *numbers = fold_allocate(f, &walk.shape);
    const int64_t count = fth_shape_count(&walk.shape);
    for (int64_t i = 0; numbers && i < count; i++, fold_next(&walk)) {
        double values[3];
        for (int k = 0; k < 3; k++)
            values[k] = operands[k].tensor ? operands[k].tensor->numbers[walk.places[k]] : operands[k].number;
        numbers[i] = compute(values[0], values[1], values[2]);
    }
    return fold_set(f, 0, numbers);
}
