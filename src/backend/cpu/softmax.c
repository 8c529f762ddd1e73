/* Softmax, its logarithm and normalize: rows shared by the threads, each one read and written once
 * while it is in the nearest cache. */
#include <math.h>
#include <omp.h>

#include "backend/cpu/row_softmax.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/vector_math.h"

/* ---- one row ---- */

enum { WIDTH = 16, BLOCK = 1024 }; /* sums kept apart, and numbers that are added up in f32 */

CPU_VECTORIZED float cpu_row_largest(const float *row, int64_t count)
{
    float lanes[WIDTH], largest;
    int64_t i = 0;
    for (int l = 0; l < WIDTH; l++)
        lanes[l] = l < count ? row[l] : row[0];
    for (i = WIDTH; i + WIDTH <= count; i += WIDTH)
        for (int l = 0; l < WIDTH; l++)
            lanes[l] = row[i + l] > lanes[l] ? row[i + l] : lanes[l];
    largest = lanes[0];
    for (int l = 1; l < WIDTH; l++)
        largest = lanes[l] > largest ? lanes[l] : largest;
    for (; i < count; i++)
        largest = row[i] > largest ? row[i] : largest;
    return largest;
}

CPU_VECTORIZED static float exponentials(const float *row, float largest, int64_t count, float *to)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
        const float x = row[i] - largest;
        const float power = x < -87.3f ? 0 : vector_exp(x);
        to[i] = power;
        sum += power;
    }
    return sum;
}

double cpu_row_exponentials(const float *row, float largest, int64_t count, float *to)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i += BLOCK)
        sum += exponentials(row + i, largest, count - i < BLOCK ? count - i : BLOCK, to + i);
    return sum;
}

CPU_VECTORIZED static float sum_block(const float *row, int64_t count)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += row[i];
    return sum;
}

double cpu_row_sum(const float *row, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i += BLOCK)
        sum += sum_block(row + i, count - i < BLOCK ? count - i : BLOCK);
    return sum;
}

CPU_VECTORIZED static float dot_block(const float *a, const float *b, int64_t count)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static double dot(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i += BLOCK)
        sum += dot_block(a + i, b + i, count - i < BLOCK ? count - i : BLOCK);
    return sum;
}

CPU_VECTORIZED static float squares_block(const float *x, float mean, int64_t count)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

static double squares(const float *x, float mean, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i += BLOCK)
        sum += squares_block(x + i, mean, count - i < BLOCK ? count - i : BLOCK);
    return sum;
}

/* y = (x - shift) * factor; y may be x. */
CPU_VECTORIZED static void shift_and_scale(const float *x, float shift, float factor, int64_t count, float *y)
{
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        y[i] = (x[i] - shift) * factor;
}

static void soften(const float *x, bool log_of_it, int64_t count, float *y)
{
    const float largest = cpu_row_largest(x, count);
    const double sum = cpu_row_exponentials(x, largest, count, y);
    if (log_of_it)
        shift_and_scale(x, largest + (float)log(sum), 1, count, y);
    else
        shift_and_scale(y, 0, (float)(1 / sum), count, y);
}

CPU_VECTORIZED static void softmax_slopes(const float *y, const float *dy, float sum, int64_t count, float *dx)
{
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        dx[i] = y[i] * (dy[i] - sum);
}

CPU_VECTORIZED static void log_softmax_slopes(const float *y, const float *dy, float sum, int64_t count, float *dx)
{
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        dx[i] = dy[i] - (y[i] < -87.3f ? 0 : vector_exp(y[i])) * sum;
}

/* Without fused multiply-adds, as in layer_norm.c. */
FTH_VECTORIZED_EXACT static void normalize_slopes(const float *y, const float *dy, float mean, float product,
                                                  float inverse, int64_t count, float *dx)
{
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        dx[i] = inverse * (dy[i] - mean - y[i] * product);
}

/* ---- steps ---- */

enum { ROW_BUFFERS = 3 };

/* Kept in a call's block. */
typedef struct row_op {
    int64_t rows, features;
    float epsilon;
    bool bf16, option; /* option: log, rms */
} row_op;

static cpu_rows rows_of(const row_op *op, void *data)
{
    return (cpu_rows){data, op->features, op->bf16};
}

/* Calls `one` for each row, with a thread's buffers. */
static fth_status each_row(const cpu_call *call, int scratch,
                           void (*one)(const cpu_call *call, const row_op *op, int64_t row, float *buffers))
{
    row_op op;
    CPU_GET_BLOCK(call, &op);
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (int64_t r = 0; r < op.rows; r++)
        one(call, &op, r, (float *)call->data[scratch] + omp_get_thread_num() * ROW_BUFFERS * op.features);
    return FTH_OK;
}

/* Values: x, scratch, y. */
static void softmax_row(const cpu_call *call, const row_op *op, int64_t r, float *buffers)
{
    const cpu_rows x = rows_of(op, call->data[0]), y = rows_of(op, call->data[2]);
    float *to = cpu_begin_row(&y, r, buffers + op->features);
    const float *from = cpu_read_row(&x, r, buffers);
    if (op->option && from == to) { /* in place, and both are needed */
        memcpy(buffers, from, (size_t)op->features * sizeof *from);
        from = buffers;
    }
    soften(from, op->option, op->features, to);
    cpu_end_row(&y, r, to);
}

/* Values: y, dy, scratch, dx. */
static void softmax_gradient_row(const cpu_call *call, const row_op *op, int64_t r, float *buffers)
{
    const cpu_rows y = rows_of(op, call->data[0]), dy = rows_of(op, call->data[1]), dx = rows_of(op, call->data[3]);
    const float *result = cpu_read_row(&y, r, buffers), *slopes = cpu_read_row(&dy, r, buffers + op->features);
    float *to = cpu_begin_row(&dx, r, buffers + 2 * op->features);
    if (op->option)
        log_softmax_slopes(result, slopes, (float)cpu_row_sum(slopes, op->features), op->features, to);
    else
        softmax_slopes(result, slopes, (float)dot(result, slopes, op->features), op->features, to);
    cpu_end_row(&dx, r, to);
}

/* Values: x, scratch, inverse or none, y. */
static void normalize_row(const cpu_call *call, const row_op *op, int64_t r, float *buffers)
{
    const cpu_rows x = rows_of(op, call->data[0]), y = rows_of(op, call->data[3]);
    const float *from = cpu_read_row(&x, r, buffers);
    float *to = cpu_begin_row(&y, r, buffers + op->features), *inverses = call->data[2];
    const double count = (double)op->features;
    const float mean = op->option ? 0 : (float)(cpu_row_sum(from, op->features) / count);
    const float inverse = (float)(1 / sqrt(squares(from, mean, op->features) / count + (double)op->epsilon));
    shift_and_scale(from, mean, inverse, op->features, to);
    if (inverses)
        inverses[r] = inverse;
    cpu_end_row(&y, r, to);
}

/* Values: y, dy, inverse, scratch, dx. */
static void normalize_gradient_row(const cpu_call *call, const row_op *op, int64_t r, float *buffers)
{
    const cpu_rows y = rows_of(op, call->data[0]), dy = rows_of(op, call->data[1]), dx = rows_of(op, call->data[4]);
    const float *result = cpu_read_row(&y, r, buffers), *slopes = cpu_read_row(&dy, r, buffers + op->features);
    const float *inverses = call->data[2];
    float *to = cpu_begin_row(&dx, r, buffers + 2 * op->features);
    const double count = (double)op->features;
    const float mean = op->option ? 0 : (float)(cpu_row_sum(slopes, op->features) / count);
    const float product = (float)(dot(result, slopes, op->features) / count);
    normalize_slopes(result, slopes, mean, product, inverses[r], op->features, to);
    cpu_end_row(&dx, r, to);
}

static fth_status run_softmax(const cpu_call *call, const fth_run *run)
{
    (void)run;
    return each_row(call, 1, softmax_row);
}

static fth_status run_softmax_gradient(const cpu_call *call, const fth_run *run)
{
    (void)run;
    return each_row(call, 2, softmax_gradient_row);
}

static fth_status run_normalize(const cpu_call *call, const fth_run *run)
{
    (void)run;
    return each_row(call, 1, normalize_row);
}

static fth_status run_normalize_gradient(const cpu_call *call, const fth_run *run)
{
    (void)run;
    return each_row(call, 3, normalize_gradient_row);
}

/* ---- plans ---- */

/* Describes the rows of the node's first input in `call`, with scratch as value `scratch`. */
static fth_status describe(fth_plan *plan, const fth_node *node, bool option, float epsilon, int scratch,
                           cpu_call *call)
{
    const fth_shape shape = fth_plan_type(plan, node->inputs[0]).shape;
    const int64_t features = shape.dims[shape.rank - 1];
    const row_op op = {.rows = fth_shape_count(&shape) / features,
                       .features = features,
                       .epsilon = epsilon,
                       .bf16 = cpu_compute_dtype(plan) == dnnl_bf16,
                       .option = option};
    CPU_SET_BLOCK(call, &op);
    return cpu_add_scratch_floats(plan, ROW_BUFFERS * features * fth_plan_threads(plan), &call->values[scratch]);
}

/* Adds the step, whose last value is the first output, to be written over the inputs in `over` if
 * possible. */
static fth_status add_step(fth_plan *plan, const fth_node *node, cpu_call *call, int over)
{
    fth_status status = FTH_OK;
    fth_plan_value *last = &call->values[call->value_count - 1];
    FTH_TRY(cpu_begin_rows(plan, node->outputs[0], last));
    for (int i = 0; i < over; i++)
        fth_plan_may_overwrite(plan, *last, call->values[i]);
    FTH_TRY(cpu_add_call(plan, node->op->name, call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), *last));
out:
    return status;
}

static fth_status prepare_softmax(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_softmax_attributes *a = node->attributes;
    cpu_call call = {.run = run_softmax, .value_count = 3, .write_count = 2};
    FTH_TRY(describe(plan, node, a->log, 0, 1, &call));
    FTH_TRY(cpu_read_rows(plan, node->inputs[0], &call.values[0]));
    FTH_TRY(add_step(plan, node, &call, 1));
out:
    return status;
}

static fth_status prepare_softmax_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_softmax_attributes *a = node->attributes;
    cpu_call call = {.run = run_softmax_gradient, .value_count = 4, .write_count = 2};
    FTH_TRY(describe(plan, node, a->log, 0, 2, &call));
    FTH_TRY(cpu_read_rows(plan, node->inputs[0], &call.values[0]));
    FTH_TRY(cpu_read_rows(plan, node->inputs[1], &call.values[1]));
    FTH_TRY(add_step(plan, node, &call, 2));
out:
    return status;
}

static fth_status prepare_normalize(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_normalize_attributes *a = node->attributes;
    cpu_call call = {.run = run_normalize, .value_count = 4, .write_count = 3};
    FTH_TRY(describe(plan, node, a->rms, a->epsilon, 1, &call));
    FTH_TRY(cpu_read_rows(plan, node->inputs[0], &call.values[0]));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
    call.values[2] = fth_plan_value_of(plan, node->outputs[1]);
    FTH_TRY(add_step(plan, node, &call, 1));
out:
    return status;
}

static fth_status prepare_normalize_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_normalize_attributes *a = node->attributes;
    cpu_call call = {.run = run_normalize_gradient, .value_count = 5, .write_count = 2};
    FTH_TRY(describe(plan, node, a->rms, a->epsilon, 3, &call));
    FTH_TRY(cpu_read_rows(plan, node->inputs[0], &call.values[0]));
    FTH_TRY(cpu_read_rows(plan, node->inputs[1], &call.values[1]));
    call.values[2] = fth_plan_value_of(plan, node->inputs[2]);
    FTH_TRY(add_step(plan, node, &call, 2));
out:
    return status;
}

const fth_kernel cpu_softmax = {&fth_op_softmax, prepare_softmax};
const fth_kernel cpu_softmax_grad = {&fth_op_softmax_grad, prepare_softmax_grad};
const fth_kernel cpu_normalize = {&fth_op_normalize, prepare_normalize};
const fth_kernel cpu_normalize_grad = {&fth_op_normalize_grad, prepare_normalize_grad};
