/* The elementwise functions of expressions (expression.h), for C and CUDA: a row is NAME, name,
 * how many operands it takes, and its formula in a, b and c.
 *
 * Every back end makes its loops from this list, so that a function is added here, with its
 * derivative in expression_gradient.c and its ONNX nodes in export/onnx_pointwise.c. Formulas are
 * written for any type of number: the including file defines NUM(1.5), a constant of its type, and
 * F(exp), its version of the function of C's library of that name. Beyond the library, it provides
 * F(normal_cdf), F(normal_density), F(logistic), F(softplus) and F(mish_factor). Comparisons with
 * NaN are false, and the formulas are arranged so that NaN stays NaN. */
#ifndef FTH_GRAPH_FUNCTION_LIST_H
#define FTH_GRAPH_FUNCTION_LIST_H

#define FTH_FUNCTIONS(ROW)                                                                                             \
    ROW(ADD, add, 2, a + b)                                                                                            \
    ROW(SUB, sub, 2, a - b)                                                                                            \
    ROW(MUL, mul, 2, a *b)                                                                                             \
    ROW(DIV, div, 2, a / b)                                                                                            \
    ROW(NEG, neg, 1, -a)                                                                                               \
    ROW(ABS, abs, 1, F(fabs)(a))                                                                                       \
    ROW(EXP, exp, 1, F(exp)(a))                                                                                        \
    ROW(LOG, log, 1, F(log)(a))                                                                                        \
    ROW(SQRT, sqrt, 1, F(sqrt)(a))                                                                                     \
    ROW(RSQRT, rsqrt, 1, 1 / F(sqrt)(a))                                                                               \
    ROW(RECIPROCAL, reciprocal, 1, 1 / a)                                                                              \
    ROW(SQUARE, square, 1, a *a)                                                                                       \
    ROW(POW, pow, 2, F(pow)(a, b))                                                                                     \
    ROW(MIN, min, 2, (a != a) | (a < b) ? a : b)                                                                       \
    ROW(MAX, max, 2, (a != a) | (a > b) ? a : b)                                                                       \
    ROW(SIGMOID, sigmoid, 1, F(logistic)(a))                                                                           \
    ROW(TANH, tanh, 1, F(tanh)(a))                                                                                     \
    ROW(SILU, silu, 1, a *F(logistic)(a))                                                                              \
    ROW(RELU, relu, 1, a < 0 ? 0 : a)                                                                                  \
    ROW(CLAMP, clamp, 3, a<b ? (b > c ? c : b) : a> c ? c : a) /* to [b, c] */                                         \
    ROW(HARDTANH, hardtanh, 3, a<b ? b : a> c ? c : a)         /* the same, but the gradient is 0 at b and c */        \
    ROW(HARDSIGMOID, hardsigmoid, 1, (a < -3 ? 0 : a > 3 ? 6 : a + 3) / 6)                                             \
    ROW(HARDSWISH, hardswish, 1, a *(a < -3 ? 0 : a > 3 ? 6 : a + 3) / 6)                                              \
    ROW(LEAKY_RELU, leaky_relu, 2, a > 0 ? a : a * b) /* b: slope */                                                   \
    ROW(ELU, elu, 2, a > 0 ? a : b * F(expm1)(a))     /* b: alpha */                                                   \
    ROW(SOFTPLUS, softplus, 3, F(softplus)(a, b, c))  /* b: beta, c: threshold */                                      \
    ROW(MISH, mish, 1, a > 20 ? a : a * F(mish_factor)(F(exp)(a)))                                                     \
    ROW(GELU, gelu, 1, a *F(normal_cdf)(a))                                                                            \
    ROW(GELU_TANH, gelu_tanh, 1, a *F(logistic)(NUM(1.5957691216057308) * (a + NUM(0.044715) * a * a * a)))            \
    ROW(ERF, erf, 1, F(erf)(a))                                                                                        \
    ROW(SIN, sin, 1, F(sin)(a))                                                                                        \
    ROW(COS, cos, 1, F(cos)(a))                                                                                        \
    ROW(LOG1P, log1p, 1, F(log1p)(a))                                                                                  \
    ROW(EXPM1, expm1, 1, F(expm1)(a))                                                                                  \
    ROW(SIGN, sign, 1, a > 0 ? 1 : a < 0 ? -1 : 0)                                                                     \
    ROW(FLOOR, floor, 1, F(floor)(a))                                                                                  \
    ROW(CEIL, ceil, 1, F(ceil)(a))                                                                                     \
    ROW(ROUND, round, 1, F(rint)(a)) /* halves to even */                                                              \
    ROW(TRUNC, trunc, 1, F(trunc)(a))                                                                                  \
    ROW(WHERE, where, 3, a != 0 ? b : c)                                                                               \
    ROW(EQ, eq, 2, a == b ? 1 : 0) /* comparisons and what follows give 1 or 0 */                                      \
    ROW(NE, ne, 2, a != b ? 1 : 0)                                                                                     \
    ROW(LT, lt, 2, a < b ? 1 : 0)                                                                                      \
    ROW(LE, le, 2, a <= b ? 1 : 0)                                                                                     \
    ROW(GT, gt, 2, a > b ? 1 : 0)                                                                                      \
    ROW(GE, ge, 2, a >= b ? 1 : 0)                                                                                     \
    ROW(NOT, not, 1, a == 0 ? 1 : 0)                                                                                   \
    ROW(AND, and, 2, (a != 0) & (b != 0) ? 1 : 0)                                                                      \
    ROW(OR, or, 2, (a != 0) | (b != 0) ? 1 : 0)                                                                        \
    ROW(NORMAL_CDF, normal_cdf, 1, F(normal_cdf)(a)) /* of the standard normal distribution */                         \
    ROW(NORMAL_DENSITY, normal_density, 1, F(normal_density)(a))                                                       \
    ROW(SILU_SLOPE, silu_slope, 1, F(silu_slope)(a, F(logistic)(a))) /* derivatives that are worth a function */       \
    ROW(HARDSWISH_SLOPE, hardswish_slope, 1, a <= -3 ? 0 : a < 3 ? a / 3 + NUM(0.5) : 1)                               \
    ROW(GELU_SLOPE, gelu_slope, 1, F(gelu_slope)(a))                                                                   \
    ROW(GELU_TANH_SLOPE, gelu_tanh_slope, 1,                                                                           \
        F(gelu_tanh_slope)(a, F(logistic)(NUM(1.5957691216057308) * (a + NUM(0.044715) * a * a * a))))

typedef enum fth_expression_function {
#define ROW(NAME, name, arity, formula) FTH_FUNCTION_##NAME,
    FTH_FUNCTIONS(ROW)
#undef ROW
        FTH_FUNCTION_COUNT
} fth_expression_function;

/* What several numbers become by the op reduce. */
typedef enum fth_reduction { FTH_REDUCE_SUM, FTH_REDUCE_MEAN, FTH_REDUCE_MAX, FTH_REDUCE_MIN } fth_reduction;

/* An expression that is made by fusing is smaller than the most there can be, so that its
 * gradient, which has an input more and repeats its steps, still fits. */
enum {
    FTH_EXPRESSION_INPUTS = 9,
    FTH_EXPRESSION_STEPS = 64,
    FTH_EXPRESSION_NUMBERS = 24,
    FTH_EXPRESSION_FUSED_INPUTS = 8,
    FTH_EXPRESSION_FUSED_STEPS = 32,
};

#endif
