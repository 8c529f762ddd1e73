/* Embeddings: sums of rows of f32 tables, and the gradients of the tables.
 *
 * The gradient adds rows in the order of tokens. Threads share the columns, not the tokens: no two
 * write the same number, and the sums are the same for any number of threads. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/rows.h"
#include "backend/plain/plain.h"

CPU_VECTORIZED static void add_floats(const float *from, float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

CPU_VECTORIZED static void add_bf16(const uint16_t *from, float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += cpu_from_bf16(from[i]);
}

enum { MOST_FEATURES = 2048 }; /* of a row at a time */

enum { TOKENS, FEATURES, BF16, TABLES, ROWS }; /* sizes of a call; from ROWS on, one for each table */
enum { PADDING = ROWS + 1 };                   /* of a gradient's call: a row that has none, or -1 */

/* Values: ids of each table, the tables, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    fth_status status = FTH_OK;
    const int64_t tokens = call->sizes[TOKENS], features = call->sizes[FEATURES], count = call->sizes[TABLES];
    const cpu_rows y = {call->data[2 * count], features, call->sizes[BF16]};
    for (int64_t i = 0; i < count; i++)
        FTH_TRY(plain_check_ids(call->data[i], tokens, call->sizes[ROWS + i]));
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        float buffer[MOST_FEATURES];
        for (int64_t begin = 0; begin < features; begin += MOST_FEATURES) {
            const int64_t length = features - begin < MOST_FEATURES ? features - begin : MOST_FEATURES;
            float *to = cpu_begin_floats(&y, t * features + begin, buffer);
            for (int64_t i = 0; i < count; i++) {
                const int32_t *ids = call->data[i];
                const float *row = (const float *)call->data[count + i] + ids[t] * features + begin;
                if (i == 0)
                    memcpy(to, row, (size_t)length * sizeof *to);
                else
                    add_floats(row, to, length);
            }
            cpu_end_floats(&y, t * features + begin, length, to);
        }
    }
out:
    return status;
}

/* Values: ids, which the forward pass has checked, dy, dtable. */
static fth_status run_gradient(const cpu_call *call, const fth_run *run)
{
    (void)run;
    enum { LINE = 16 }; /* floats; threads write different cache lines */
    const int32_t *ids = call->data[0];
    const int64_t tokens = call->sizes[TOKENS], features = call->sizes[FEATURES], rows = call->sizes[ROWS];
    const bool bf16 = call->sizes[BF16];
    float *table = call->data[2];
    const int64_t lines = (features + LINE - 1) / LINE;
    const int threads = call->threads;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static, 1)
        for (int t = 0; t < threads; t++) {
            const int64_t begin = rows * t / threads, end = rows * (t + 1) / threads;
            memset(table + begin * features, 0, (size_t)((end - begin) * features) * sizeof *table);
        }
#pragma omp for schedule(static, 1)
        for (int t = 0; t < threads; t++) {
            const int64_t begin = lines * t / threads * LINE, next = lines * (t + 1) / threads * LINE;
            const int64_t length = (next < features ? next : features) - begin;
            for (int64_t token = 0; length > 0 && token < tokens; token++) {
                const int64_t at = token * features + begin;
                float *to = table + ids[token] * features + begin;
                if (bf16)
                    add_bf16((const uint16_t *)call->data[1] + at, to, length);
                else
                    add_floats((const float *)call->data[1] + at, to, length);
            }
        }
    }
    if (call->sizes[PADDING] >= 0)
        memset(table + call->sizes[PADDING] * features, 0, (size_t)features * sizeof *table);
    return FTH_OK;
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    const int count = node->input_count / 2;
    cpu_call call = {.run = run_forward,
                     .value_count = node->input_count + 1,
                     .write_count = 1,
                     .sizes = {shape.dims[0], shape.dims[1], cpu_compute_dtype(plan) == dnnl_bf16, count}};
    _Static_assert(2 * FTH_MAX_EMBEDDINGS + 1 <= CPU_MAX_CALL_VALUES, "the call must hold the tables");
    _Static_assert(ROWS + FTH_MAX_EMBEDDINGS <= FTH_COUNT_OF(call.sizes), "and their sizes");
    for (int i = 0; i < count; i++)
        call.sizes[ROWS + i] = fth_plan_type(plan, node->inputs[count + i]).shape.dims[0];
    for (int i = 0; i < node->input_count; i++) /* all plain: inputs and parameters */
        FTH_TRY(cpu_read_plain(plan, node->inputs[i], i < count ? dnnl_s32 : dnnl_f32, &call.values[i]));
    fth_plan_value *y = &call.values[node->input_count];
    FTH_TRY(cpu_begin_rows(plan, node->outputs[0], y));
    FTH_TRY(cpu_add_call(plan, "embedding", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), *y));
out:
    return status;
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_shape dy = fth_plan_type(plan, node->inputs[1]).shape;
    const fth_embedding_attributes *a = node->attributes;
    cpu_call call = {.run = run_gradient,
                     .value_count = 3,
                     .write_count = 1,
                     .sizes = {dy.dims[0], dy.dims[1], cpu_compute_dtype(plan) == dnnl_bf16, 1, a->rows, a->padding}};
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_s32, &call.values[0]));
    FTH_TRY(cpu_read_rows(plan, node->inputs[1], &call.values[1]));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[0]));
    call.values[2] = fth_plan_value_of(plan, node->outputs[0]);
    FTH_TRY(cpu_add_call(plan, "embedding_grad", &call));
out:
    return status;
}

const fth_kernel cpu_embedding = {&fth_op_embedding, prepare_forward};
const fth_kernel cpu_embedding_grad = {&fth_op_embedding_grad, prepare_gradient};
