/* Layer norm, including the dropout and residual before it: one pass over memory forward and one
 * backward, with each row in the nearest cache.
 *
 * Dropout's mask is recomputed for the gradient, never stored. Each thread sums the gradients of
 * scale and shift over its rows, and the threads' sums are added in order: results are the same
 * from run to run. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend/cpu/drop.h"
#include "backend/cpu/rows.h"

enum { X, SCALE, SHIFT, RESIDUAL };
enum { Y, SUM, STATISTICS };
enum { DX, DSCALE, DSHIFT, DRESIDUAL };

/* Rows of floats in each thread's scratch: one per bf16 operand; for the gradient also its sums. */
enum { ROW_BUFFERS = 4, GRADIENT_BUFFERS = 6 };

/* Describes both passes; kept in a call's block. */
typedef struct norm {
    int64_t rows, features;
    float epsilon, probability; /* of dropout; 0: none */
    uint32_t dropout;
    int64_t graph_rows; /* fth_plan_graph_rows() */
    bool bf16;
} norm;

/* sum = dropout(x) + residual; `number` is that of the row's first element in the whole batch.
 * `drop` and `residual` may be NULL. */
CPU_VECTORIZED static void add_row(const float *x, const float *residual, const cpu_drop *drop, uint64_t number,
                                   int64_t count, float *sum)
{
    cpu_draws draws;
    for (int64_t begin = 0; begin < count; begin += CPU_DRAWS) {
        const int64_t length = count - begin < CPU_DRAWS ? count - begin : CPU_DRAWS;
        const float *from = x + begin;
        float *to = sum + begin;
        if (drop) {
            const uint32_t *bits = cpu_draw(drop, number + (uint64_t)begin, length, &draws);
            const cpu_drop rule = *drop;
            FTH_INDEPENDENT
            for (int64_t i = 0; i < length; i++)
                to[i] = from[i] * cpu_drop_factor(&rule, bits[i]);
            from = to;
        }
        if (residual) {
            FTH_INDEPENDENT
            for (int64_t i = 0; i < length; i++)
                to[i] = from[i] + residual[begin + i];
        } else if (from != to) {
            memcpy(to, from, (size_t)length * sizeof *to);
        }
    }
}

/* y = normalized row * scale + shift; y may be the row. */
CPU_VECTORIZED static void normalize_row(const float *row, const float *scale, const float *shift, int64_t count,
                                         float epsilon, float *y, float statistics[2])
{
    float total = 0, squares = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < count; i++)
        total += row[i];
    const float mean = total / (float)count;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < count; i++)
        squares += (row[i] - mean) * (row[i] - mean);
    const float inverse = 1 / sqrtf(squares / (float)count + epsilon);
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        y[i] = (row[i] - mean) * inverse * scale[i] + shift[i];
    statistics[0] = mean;
    statistics[1] = inverse;
}

/* The gradient of one row, dsum, which may be dy; adds to the gradients of scale and shift. Without
 * fused multiply-adds: a difference that should be 0 must be, since the inverse may be a
 * million. */
FTH_VECTORIZED_EXACT static void differentiate_row(const float *sum, const float *dy, const float *scale,
                                                   const float statistics[2], int64_t count, float *dsum, float *dscale,
                                                   float *dshift)
{
    const float mean = statistics[0], inverse = statistics[1];
    float gradient = 0, product = 0;
#pragma omp simd reduction(+ : gradient, product)
    for (int64_t i = 0; i < count; i++) {
        const float normalized = (sum[i] - mean) * inverse, g = dy[i] * scale[i];
        gradient += g;
        product += g * normalized;
        dscale[i] += dy[i] * normalized;
        dshift[i] += dy[i];
    }
    gradient /= (float)count;
    product /= (float)count;
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        const float normalized = (sum[i] - mean) * inverse;
        dsum[i] = inverse * (dy[i] * scale[i] - gradient - normalized * product);
    }
}

static norm norm_of(const cpu_call *call)
{
    norm n;
    CPU_GET_BLOCK(call, &n);
    return n;
}

static cpu_rows rows_of(const norm *n, void *data)
{
    return (cpu_rows){data, n->features, n->bf16};
}

static uint64_t first_element(const norm *n, const fth_run *run)
{
    return fth_run_first_row(run, n->graph_rows) * (uint64_t)n->features;
}

/* Values: x, scale, shift, residual or none, scratch, sum or none, statistics or none, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    const norm n = norm_of(call);
    const cpu_rows x = rows_of(&n, call->data[0]), residual = rows_of(&n, call->data[3]);
    const cpu_rows sum = rows_of(&n, call->data[5]), y = rows_of(&n, call->data[7]);
    const float *scale = call->data[1], *shift = call->data[2];
    float *scratch = call->data[4], *statistics = call->data[6];
    const cpu_drop drop = cpu_drop_of(run->seed, run->step, n.dropout, n.probability);
    const bool adds = n.probability > 0 || residual.data;
    const uint64_t first = first_element(&n, run);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < n.rows; r++) {
        float *buffers = scratch + omp_get_thread_num() * ROW_BUFFERS * n.features;
        float *added = buffers + 2 * n.features, *normalized = buffers + 3 * n.features, unused[2];
        const float *row = cpu_read_row(&x, r, buffers);
        if (adds) {
            float *place = sum.data ? cpu_begin_row(&sum, r, added) : added;
            add_row(row, cpu_read_row(&residual, r, buffers + n.features), n.probability > 0 ? &drop : NULL,
                    first + (uint64_t)(r * n.features), n.features, place);
            cpu_end_row(&sum, r, place);
            row = place;
        }
        float *to = cpu_begin_row(&y, r, normalized);
        normalize_row(row, scale, shift, n.features, n.epsilon, to, statistics ? statistics + 2 * r : unused);
        cpu_end_row(&y, r, to);
    }
    return FTH_OK;
}

/* Adds the threads' sums, `stride` apart in `parts`. */
CPU_VECTORIZED static void add_parts(const float *parts, int threads, int64_t stride, int64_t count, float *total)
{
    memcpy(total, parts, (size_t)count * sizeof *total);
    for (int t = 1; t < threads; t++)
        for (int64_t i = 0; i < count; i++)
            total[i] += parts[t * stride + i];
}

/* Values: sum, dy, scale, statistics, scratch, dscale, dshift and dresidual, each or none, dx. */
static fth_status run_gradient(const cpu_call *call, const fth_run *run)
{
    const norm n = norm_of(call);
    const cpu_rows sum = rows_of(&n, call->data[0]), dy = rows_of(&n, call->data[1]);
    const cpu_rows dresidual = rows_of(&n, call->data[7]), dx = rows_of(&n, call->data[8]);
    const float *scale = call->data[2], *statistics = call->data[3];
    float *scratch = call->data[4], *dscale = call->data[5], *dshift = call->data[6];
    const int64_t stride = GRADIENT_BUFFERS * n.features;
    const cpu_drop drop = cpu_drop_of(run->seed, run->step, n.dropout, n.probability);
    const uint64_t first = first_element(&n, run);
    const int threads = call->threads;
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        float *parts = scratch + t * stride, *buffers = parts + 2 * n.features;
        memset(parts, 0, 2 * (size_t)n.features * sizeof *parts);
        for (int64_t r = n.rows * t / threads; r < n.rows * (t + 1) / threads; r++) {
            float *gradient = cpu_begin_row(dresidual.data ? &dresidual : &dx, r, buffers + 2 * n.features);
            differentiate_row(cpu_read_row(&sum, r, buffers), cpu_read_row(&dy, r, buffers + n.features), scale,
                              statistics + 2 * r, n.features, gradient, parts, parts + n.features);
            cpu_end_row(&dresidual, r, gradient);
            float *to = cpu_begin_row(&dx, r, buffers + 3 * n.features);
            add_row(gradient, NULL, n.probability > 0 ? &drop : NULL, first + (uint64_t)(r * n.features), n.features,
                    to);
            cpu_end_row(&dx, r, to);
        }
    }
    if (dscale)
        add_parts(scratch, threads, stride, n.features, dscale);
    if (dshift)
        add_parts(scratch + n.features, threads, stride, n.features, dshift);
    return FTH_OK;
}

/* The value, or none if nothing uses it. */
static fth_plan_value if_used(const fth_plan *plan, fth_value value)
{
    return fth_plan_is_used(plan, value) ? fth_plan_value_of(plan, value) : FTH_NO_PLAN_VALUE;
}

/* Describes the node in `call`, with scratch for `buffers` rows of each thread as value 4. */
static fth_status begin_call(fth_plan *plan, const fth_node *node, int buffers, cpu_call *call)
{
    const fth_layer_norm_attributes *a = node->attributes;
    const fth_shape shape = fth_plan_type(plan, node->inputs[0]).shape;
    const norm n = {.rows = shape.dims[0],
                    .features = shape.dims[1],
                    .epsilon = a->epsilon,
                    .probability = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN ? a->probability : 0,
                    .dropout = a->dropout,
                    .bf16 = cpu_compute_dtype(plan) == dnnl_bf16,
                    .graph_rows = fth_plan_graph_rows(plan, node->inputs[0])};
    CPU_SET_BLOCK(call, &n);
    return cpu_add_scratch_floats(plan, buffers * n.features * fth_plan_threads(plan), &call->values[4]);
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_layer_norm_attributes *a = node->attributes;
    cpu_call call = {.run = run_forward, .value_count = 8, .write_count = 4};
    const fth_value sum = node->outputs[SUM], y = node->outputs[Y];
    const bool keeps_sum = fth_plan_is_used(plan, sum);
    FTH_TRY(begin_call(plan, node, ROW_BUFFERS, &call));
    FTH_TRY(cpu_read_rows(plan, node->inputs[X], &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[SCALE]);
    call.values[2] = fth_plan_value_of(plan, node->inputs[SHIFT]);
    call.values[3] = FTH_NO_PLAN_VALUE;
    if (a->residual)
        FTH_TRY(cpu_read_rows(plan, node->inputs[RESIDUAL], &call.values[3]));
    call.values[5] = FTH_NO_PLAN_VALUE;
    if (keeps_sum)
        FTH_TRY(cpu_begin_rows(plan, sum, &call.values[5]));
    call.values[6] = if_used(plan, node->outputs[STATISTICS]);
    FTH_TRY(cpu_fix_plain(plan, node->outputs[STATISTICS]));
    FTH_TRY(cpu_begin_rows(plan, y, &call.values[7]));
    /* Not the residual: add_row() writes dropout(x) before it reads that. */
    fth_plan_may_overwrite(plan, call.values[keeps_sum ? 5 : 7], call.values[0]);
    FTH_TRY(cpu_add_call(plan, "layer_norm", &call));
    if (keeps_sum)
        FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, sum), call.values[5]));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, y), call.values[7]));
out:
    return status;
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    cpu_call call = {.run = run_gradient, .value_count = 9, .write_count = 5};
    const fth_value sum = node->inputs[0], dy = node->inputs[1], dx = node->outputs[DX];
    const bool twice = fth_plan_is_used(plan, node->outputs[DRESIDUAL]);
    FTH_TRY(begin_call(plan, node, GRADIENT_BUFFERS, &call));
    FTH_TRY(cpu_read_rows(plan, sum, &call.values[0]));
    FTH_TRY(cpu_read_rows(plan, dy, &call.values[1]));
    call.values[2] = fth_plan_value_of(plan, node->inputs[2]);
    call.values[3] = fth_plan_value_of(plan, node->inputs[3]);
    FTH_TRY(cpu_fix_plain(plan, node->outputs[DSCALE]));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[DSHIFT]));
    call.values[5] = if_used(plan, node->outputs[DSCALE]);
    call.values[6] = if_used(plan, node->outputs[DSHIFT]);
    call.values[7] = FTH_NO_PLAN_VALUE;
    if (twice)
        FTH_TRY(cpu_begin_rows(plan, node->outputs[DRESIDUAL], &call.values[7]));
    FTH_TRY(cpu_begin_rows(plan, dx, &call.values[8]));
    fth_plan_may_overwrite(plan, call.values[7], call.values[1]);
    fth_plan_may_overwrite(plan, call.values[8], call.values[twice ? 0 : 1]);
    FTH_TRY(cpu_add_call(plan, "layer_norm_grad", &call));
    if (twice)
        FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[DRESIDUAL]), call.values[7]));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, dx), call.values[8]));
out:
    return status;
}

const fth_kernel cpu_layer_norm = {&fth_op_layer_norm, prepare_forward};
const fth_kernel cpu_layer_norm_grad = {&fth_op_layer_norm_grad, prepare_gradient};
