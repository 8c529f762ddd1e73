/* Expressions of chunks of numbers, a function at a time: each is a loop over numbers that are in
 * the nearest cache, which the compiler vectorizes (vector_math.h), so that a chain of cheap
 * functions takes no longer than to read and write memory once. */
#include "backend/cpu/expression.h"

#include <math.h>

#include "backend/cpu/vector_math.h"
#include "backend/vector/vector.h"
#include "base/vectorized.h"

#define fabs_of            __builtin_fabsf
#define exp_of             vector_exp_unlimited
#define log_of             vector_log
#define sqrt_of            __builtin_sqrtf
#define pow_of             powf
#define logistic_of        vector_logistic
#define tanh_of            vector_tanh
#define expm1_of           vector_expm1
#define log1p_of           vector_log1p
#define erf_of             vector_erf
#define sin_of             sinf
#define cos_of             cosf
#define floor_of           __builtin_floorf
#define ceil_of            __builtin_ceilf
#define rint_of            __builtin_rintf
#define trunc_of           __builtin_truncf
#define normal_cdf_of      normal_cdf
#define normal_density_of  normal_density
#define softplus_of        softplus
#define mish_factor_of     mish_factor
#define silu_slope_of      silu_slope
#define gelu_slope_of      gelu_slope
#define gelu_tanh_slope_of gelu_tanh_slope

#define NUM(number) number##f
#define F(name)     name##_of

static inline float normal_cdf(float a)
{
    return vector_normal_of(a).distribution;
}

static inline float normal_density(float a)
{
    return 0.398942280f * vector_exp(-0.5f * a * a);
}

static inline float softplus(float a, float beta, float threshold)
{
    const float scaled = a * beta, y = vector_log1p(vector_exp_unlimited(scaled)) / beta;
    return scaled > threshold ? a : y;
}

static inline float mish_factor(float e)
{
    return e * (e + 2) / (e * (e + 2) + 2);
}

static inline float silu_slope(float a, float s)
{
    return s * (1 + a * (1 - s));
}

static inline float gelu_slope(float a)
{
    const vector_normal normal = vector_normal_of(a);
    return normal.distribution + a * normal.density;
}

static inline float gelu_tanh_slope(float a, float s)
{
    return s * (1 + a * (1 - s) * (1.5957691216f + 3 * 0.0713548163f * a * a));
}

#define ROW(NAME, name, arity, formula)                                                                                \
    static void run_##name(const float *x, const float *y, const float *z, int64_t count, float *r)                    \
    {                                                                                                                  \
        FTH_INDEPENDENT                                                                                                \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const float a = x[i], b = (arity) > 1 ? y[i] : 0, c = (arity) > 2 ? z[i] : 0;                              \
            (void)b;                                                                                                   \
            (void)c;                                                                                                   \
            r[i] = formula;                                                                                            \
        }                                                                                                              \
    }
FTH_FUNCTIONS(ROW)
#undef ROW

typedef void chunk_function(const float *x, const float *y, const float *z, int64_t count, float *r);

static chunk_function *const functions[FTH_FUNCTION_COUNT] = {
#define ROW(NAME, name, arity, formula) [FTH_FUNCTION_##NAME] = run_##name,
    FTH_FUNCTIONS(ROW)
#undef ROW
};

static const float *operand(int operand, const float *const *inputs, const float *numbers, const float *slots,
                            const float *last)
{
    if (operand == FTH_PROGRAM_LAST)
        return last;
    if (operand == FTH_PROGRAM_NONE)
        return NULL;
    if (operand >= FTH_PROGRAM_SLOTS)
        return slots + (int64_t)(operand - FTH_PROGRAM_SLOTS) * EXPRESSION_CHUNK;
    return operand >= FTH_PROGRAM_NUMBERS ? numbers + (int64_t)(operand - FTH_PROGRAM_NUMBERS) * EXPRESSION_CHUNK
                                          : inputs[operand];
}

static void evaluate(const fth_program *program, const float *const *inputs, const float *numbers, float *slots,
                     int64_t count, float *result)
{
    float *spare = slots + (int64_t)program->slot_count * EXPRESSION_CHUNK, *last = spare;
    if (program->step_count == 0)
        memmove(result, operand(program->result, inputs, numbers, slots, NULL), (size_t)count * sizeof *result);
    for (int s = 0; s < program->step_count; s++) {
        const fth_program_step *step = &program->steps[s];
        float *to = s == program->step_count - 1     ? result
                    : step->slot == FTH_PROGRAM_NONE ? spare
                                                     : slots + (int64_t)step->slot * EXPRESSION_CHUNK;
        functions[step->function](operand(step->operands[0], inputs, numbers, slots, last),
                                  operand(step->operands[1], inputs, numbers, slots, last),
                                  operand(step->operands[2], inputs, numbers, slots, last), count, to);
        last = to;
    }
}

static void widen(const uint16_t *from, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i += LANES)
        store_part(to + i, load_bf16_part(from + i, count - i < LANES ? count - i : LANES),
                   count - i < LANES ? count - i : LANES);
}

static void narrow(const float *from, int64_t count, uint16_t *to)
{
    for (int64_t i = 0; i < count; i += LANES) {
        const int64_t part = count - i < LANES ? count - i : LANES;
        store_bf16_part(to + i, load_part(from + i, part), part);
    }
}

static void pad(float *x, int64_t count, int64_t block, int64_t kept)
{
    for (int64_t i = 0; i < count; i += block)
        for (int64_t k = kept; k < block; k++)
            x[i + k] = 0;
}

/* ---- reductions ---- */

/* The larger, or smaller, number; NaN if one is. */
static inline float larger(float a, float b)
{
    return (a != a) | (a > b) ? a : b;
}

static inline float smaller(float a, float b)
{
    return (a != a) | (a < b) ? a : b;
}

/* Numbers that are combined at once, each with those at its place. */
enum { WIDE = 4 * LANES };

#define REDUCE(name, start, combined)                                                                                  \
    static float name(const float *x, int64_t count)                                                                   \
    {                                                                                                                  \
        float parts[WIDE];                                                                                             \
        int64_t i = 0;                                                                                                 \
        for (int k = 0; k < WIDE; k++)                                                                                 \
            parts[k] = start;                                                                                          \
        for (; i + WIDE <= count; i += WIDE)                                                                           \
            for (int k = 0; k < WIDE; k++) {                                                                           \
                const float a = parts[k], b = x[i + k];                                                                \
                parts[k] = combined;                                                                                   \
            }                                                                                                          \
        for (int k = 0; i + k < count; k++) {                                                                          \
            const float a = parts[k], b = x[i + k];                                                                    \
            parts[k] = combined;                                                                                       \
        }                                                                                                              \
        for (int width = WIDE / 2; width > 0; width /= 2)                                                              \
            for (int k = 0; k < width; k++) {                                                                          \
                const float a = parts[k], b = parts[k + width];                                                        \
                parts[k] = combined;                                                                                   \
            }                                                                                                          \
        return parts[0];                                                                                               \
    }                                                                                                                  \
    static void name##_each(const float *x, int64_t count, float *to)                                                  \
    {                                                                                                                  \
        FTH_INDEPENDENT                                                                                                \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const float a = to[i], b = x[i];                                                                           \
            to[i] = combined;                                                                                          \
        }                                                                                                              \
    }

REDUCE(sum, 0, a + b)
REDUCE(largest, -INFINITY, larger(a, b))
REDUCE(smallest, INFINITY, smaller(a, b))

static float reduce(int reduction, const float *x, int64_t count)
{
    return reduction == FTH_REDUCE_MAX   ? largest(x, count)
           : reduction == FTH_REDUCE_MIN ? smallest(x, count)
                                         : sum(x, count);
}

static void combine(int reduction, const float *x, int64_t count, float *to)
{
    if (reduction == FTH_REDUCE_MAX)
        largest_each(x, count, to);
    else if (reduction == FTH_REDUCE_MIN)
        smallest_each(x, count, to);
    else
        sum_each(x, count, to);
}

/* Four short blocks at once, each to sums of its own, while there are as many: additions need not wait
 * for the one before. */
static void reduce_blocks(int reduction, const float *x, int64_t count, int64_t block, float *to)
{
    float parts[4 * 16];
    int64_t i = 4 * block;
    if (count < 2 * i || block > 16) {
        for (i = 0; i < count; i += block)
            combine(reduction, x + i, block, to);
        return;
    }
    memcpy(parts, x, (size_t)i * sizeof *x);
    if (reduction == FTH_REDUCE_SUM && block == LANES) {
        vector sums[4];
        for (int k = 0; k < 4; k++)
            sums[k] = load(x + k * LANES);
        for (; i + 4 * LANES <= count; i += 4 * LANES)
            for (int k = 0; k < 4; k++)
                sums[k] += load(x + i + k * LANES);
        for (int k = 0; k < 4; k++)
            store(parts + k * LANES, sums[k]);
    }
    for (; i + 4 * block <= count; i += 4 * block)
        combine(reduction, x + i, 4 * block, parts);
    for (; i < count; i += block)
        combine(reduction, x + i, block, parts);
    combine(reduction, parts + 2 * block, 2 * block, parts);
    combine(reduction, parts + block, block, parts);
    combine(reduction, parts, block, to);
}

const expression_kernels AT_LEVEL(expression) = {.evaluate = evaluate,
                                                 .widen = widen,
                                                 .narrow = narrow,
                                                 .pad = pad,
                                                 .reduce = reduce,
                                                 .combine = combine,
                                                 .reduce_blocks = reduce_blocks};
