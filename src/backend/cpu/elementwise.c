/* ReLU and sums, element by element, in whatever layout the input has. They work in place where
 * possible.
 *
 * All are our own loops over the whole buffer, channel padding included. oneDNN's ReLU, alone or as
 * part of another primitive, turns NaN into 0, and its binary primitive with a ReLU computes wrong
 * numbers in place on padded channels. Like oneDNN's, these loops are limited by memory. */
#include "backend/cpu/pointwise_convolution.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/winograd_convolution.h"

fth_status cpu_begin_gradient(fth_plan *plan, const fth_node *node, fth_plan_value *dy, fth_plan_value *dx)
{
    fth_status status = FTH_OK;
    const cpu_format layout = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[1]), &layout, dy));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, dx));
out:
    return status;
}

enum { CHUNK = 16384 };

/* 0 for negative numbers; NaN stays NaN. */
static inline float positive(float x)
{
    return x < 0 ? 0 : x;
}

/* The same on bits: negative means the sign is set and the rest is at most infinity. */
static inline uint16_t positive_bf16(uint16_t x)
{
    return x >= 0x8000u && x <= 0xff80u ? 0 : x;
}

/* The result may overwrite an operand: elements do not depend on each other. */
CPU_VECTORIZED static void relu_f32(const float *x, float *y, size_t count)
{
    FTH_INDEPENDENT
    for (size_t i = 0; i < count; i++)
        y[i] = positive(x[i]);
}

CPU_VECTORIZED static void relu_bf16(const uint16_t *x, uint16_t *y, size_t count)
{
    FTH_INDEPENDENT
    for (size_t i = 0; i < count; i++)
        y[i] = positive_bf16(x[i]);
}

/* As in PyTorch, the gradient is 0 where y <= 0, which is false for NaN. */
CPU_VECTORIZED static void relu_gradient_f32(const float *y, const float *dy, float *dx, size_t count)
{
    FTH_INDEPENDENT
    for (size_t i = 0; i < count; i++)
        dx[i] = y[i] <= 0 ? 0 : dy[i];
}

CPU_VECTORIZED static void relu_gradient_bf16(const uint16_t *y, const uint16_t *dy, uint16_t *dx, size_t count)
{
    FTH_INDEPENDENT
    for (size_t i = 0; i < count; i++)
        dx[i] = positive_bf16(y[i]) == 0 ? 0 : dy[i];
}

/* The loop that each chunk goes through; the last value is the result. */
typedef enum loop { RELU, RELU_GRADIENT, SUM, SUM_RELU } loop;

CPU_VECTORIZED static void add_f32(const float *a, const float *b, float *sum, size_t count, bool relu)
{
    if (relu) {
        FTH_INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            float s = a[i] + b[i];
            sum[i] = positive(s);
        }
    } else {
        FTH_INDEPENDENT
        for (size_t i = 0; i < count; i++)
            sum[i] = a[i] + b[i];
    }
}

CPU_VECTORIZED static void add_bf16(const uint16_t *a, const uint16_t *b, uint16_t *sum, size_t count, bool relu)
{
    FTH_INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        float s = cpu_from_bf16(a[i]) + cpu_from_bf16(b[i]);
        sum[i] = cpu_to_bf16(relu ? positive(s) : s);
    }
}

static void run_chunk_f32(loop what, const float *a, const float *b, float *result, size_t count)
{
    switch (what) {
    case RELU: relu_f32(a, result, count); break;
    case RELU_GRADIENT: relu_gradient_f32(a, b, result, count); break;
    case SUM: add_f32(a, b, result, count, false); break;
    case SUM_RELU: add_f32(a, b, result, count, true); break;
    }
}

static void run_chunk_bf16(loop what, const uint16_t *a, const uint16_t *b, uint16_t *result, size_t count)
{
    switch (what) {
    case RELU: relu_bf16(a, result, count); break;
    case RELU_GRADIENT: relu_gradient_bf16(a, b, result, count); break;
    case SUM: add_bf16(a, b, result, count, false); break;
    case SUM_RELU: add_bf16(a, b, result, count, true); break;
    }
}

/* Sizes: elements, whether they are bf16, the loop. Values: a, b, result. */
static fth_status run_loop(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const size_t count = (size_t)call->sizes[0];
    const bool bf16 = call->sizes[1];
    const loop what = (loop)call->sizes[2];
    const size_t item = bf16 ? sizeof(uint16_t) : sizeof(float);
#pragma omp parallel for schedule(static) if (count > 2 * CHUNK)
    for (size_t at = 0; at < count; at += CHUNK) {
        const size_t length = count - at < CHUNK ? count - at : CHUNK;
        const void *a = (const char *)call->data[0] + at * item, *b = (const char *)call->data[1] + at * item;
        void *result = (char *)call->data[2] + at * item;
        if (bf16)
            run_chunk_bf16(what, a, b, result, length);
        else
            run_chunk_f32(what, a, b, result, length);
    }
    return FTH_OK;
}

/* All three have the same layout. A loop with one operand gets it twice. */
static fth_status add_loop(fth_plan *plan, const char *name, loop what, fth_plan_value a, fth_plan_value b,
                           fth_plan_value result)
{
    const cpu_format *layout = cpu_layout(plan, a);
    fth_plan_may_overwrite(plan, result, b);
    fth_plan_may_overwrite(plan, result, a);
    const cpu_call call = {.run = run_loop,
                           .values = {a, b, result},
                           .value_count = 3,
                           .write_count = 1,
                           .sizes = {(int64_t)cpu_physical_count(layout), layout->data_type == dnnl_bf16, what}};
    return cpu_add_call(plan, name, &call);
}

fth_status cpu_add_relu(fth_plan *plan, fth_plan_value x)
{
    return add_loop(plan, "relu", RELU, x, x, x);
}

static fth_status prepare_relu(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cpu_format layout = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    fth_plan_value y;
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &y));
    FTH_TRY(add_loop(plan, "relu", RELU, fth_plan_value_of(plan, node->inputs[0]),
                     fth_plan_value_of(plan, node->inputs[0]), y));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

static fth_status prepare_relu_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_plan_value dy, dx;
    if (cpu_winograd_makes_relu_gradient(plan, node))
        return FTH_OK; /* the convolution before it writes its output */
    FTH_TRY(cpu_begin_gradient(plan, node, &dy, &dx));
    FTH_TRY(add_loop(plan, "relu_grad", RELU_GRADIENT, fth_plan_value_of(plan, node->inputs[0]), dy, dx));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dx));
out:
    return status;
}

static fth_status prepare_add(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_add_attributes *a = node->attributes;
    const fth_plan_value first = fth_plan_value_of(plan, node->inputs[0]);
    const cpu_format layout = *cpu_layout(plan, first);
    fth_plan_value second, y;
    if (cpu_pointwise_makes_sum(plan, node))
        return FTH_OK; /* the convolution before it writes its output */
    FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[1]), &layout, &second));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &y));
    FTH_TRY(add_loop(plan, a->relu ? "add, relu" : "add", a->relu ? SUM_RELU : SUM, first, second, y));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

const fth_kernel cpu_relu = {&fth_op_relu, prepare_relu};
const fth_kernel cpu_relu_grad = {&fth_op_relu_grad, prepare_relu_grad};
const fth_kernel cpu_add = {&fth_op_add, prepare_add};
