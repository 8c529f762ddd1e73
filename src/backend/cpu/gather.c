/* Entries of an axis by constant indices, and the sums of their gradient.
 *
 * Tensors are (outer, size of the axis, inner) in row-major order; rows of `inner` items are copied
 * or added. Each sum is made by one thread, in the order that the graph gives. */
#include <omp.h>

#include "backend/cpu/rows.h"

enum { OUTER, FROM_SIZE, TO_SIZE, INNER, ITEM }; /* sizes of a call; ITEM: bytes */

static void set_sizes(const fth_shape *from, const fth_shape *to, int axis, int64_t *sizes)
{
    sizes[OUTER] = sizes[INNER] = 1;
    for (int i = 0; i < from->rank; i++)
        sizes[i < axis ? OUTER : INNER] *= i == axis ? 1 : from->dims[i];
    sizes[FROM_SIZE] = from->dims[axis];
    sizes[TO_SIZE] = to->dims[axis];
}

/* Single items, of which a call of memcpy() each would be slow. */
CPU_VECTORIZED static void gather_items(const int32_t *indices, int64_t count, const uint32_t *from, uint32_t *to)
{
    for (int64_t k = 0; k < count; k++)
        to[k] = from[indices[k]];
}

/* Values: x, indices, y. */
static fth_status run_gather(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const int64_t outer = call->sizes[OUTER], from_size = call->sizes[FROM_SIZE], to_size = call->sizes[TO_SIZE];
    const int64_t inner = call->sizes[INNER], bytes = inner * call->sizes[ITEM];
    const int32_t *indices = call->data[1];
    const char *x = call->data[0];
    char *y = call->data[2];
    if (bytes == sizeof(uint32_t)) {
#pragma omp parallel for schedule(static) if (outer * to_size > 1 << 14)
        for (int64_t n = 0; n < outer; n++)
            gather_items(indices, to_size, (const uint32_t *)(const void *)x + n * from_size,
                         (uint32_t *)(void *)y + n * to_size);
        return FTH_OK;
    }
#pragma omp parallel for schedule(static) if (outer * to_size * bytes > 1 << 16)
    for (int64_t row = 0; row < outer * to_size; row++) {
        const int64_t from = row / to_size * from_size + indices[row % to_size];
        memcpy(y + row * bytes, x + from * bytes, (size_t)bytes);
    }
    return FTH_OK;
}

CPU_VECTORIZED static void add_floats(const float *from, float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

enum { MOST_FEATURES = 2048 }; /* of a row at a time */

/* Values: dy, order, ends, dx. */
static fth_status run_gradient(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const int64_t outer = call->sizes[OUTER], from_size = call->sizes[FROM_SIZE], to_size = call->sizes[TO_SIZE];
    const int64_t inner = call->sizes[INNER];
    const bool bf16 = call->sizes[ITEM] == 2;
    const cpu_rows dy = {call->data[0], inner, bf16}, dx = {call->data[3], inner, bf16};
    const int32_t *order = call->data[1], *ends = call->data[2];
#pragma omp parallel for schedule(static) if (outer * from_size * inner > 1 << 14)
    for (int64_t row = 0; row < outer * to_size; row++) {
        const int64_t n = row / to_size, i = row % to_size;
        float sums[MOST_FEATURES], widened[MOST_FEATURES];
        for (int64_t begin = 0; begin < inner; begin += MOST_FEATURES) {
            const int64_t length = inner - begin < MOST_FEATURES ? inner - begin : MOST_FEATURES;
            float *to = cpu_begin_floats(&dx, row * inner + begin, sums);
            memset(to, 0, (size_t)length * sizeof *to);
            for (int32_t e = i == 0 ? 0 : ends[i - 1]; e < ends[i]; e++)
                add_floats(cpu_read_floats(&dy, (n * from_size + order[e]) * inner + begin, length, widened), to,
                           length);
            cpu_end_floats(&dx, row * inner + begin, length, to);
        }
    }
    return FTH_OK;
}

/* Both have the first input and the output in one dtype, and constants between them. */
static fth_status prepare(fth_plan *plan, const fth_node *node, cpu_call call)
{
    fth_status status = FTH_OK;
    const fth_gather_attributes *a = node->attributes;
    const fth_shape from = fth_plan_type(plan, node->inputs[0]).shape, to = fth_plan_type(plan, node->outputs[0]).shape;
    const dnnl_data_type_t dtype = cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]))->data_type;
    const cpu_format plain = cpu_plain(&to, dtype);
    const fth_plan_value output = fth_plan_value_of(plan, node->outputs[0]);

    set_sizes(&from, &to, a->axis, call.sizes);
    call.sizes[ITEM] = dtype == dnnl_bf16 ? 2 : 4;
    call.value_count = node->input_count + 1;
    call.write_count = 1;
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dtype, &call.values[0]));
    for (int i = 1; i < node->input_count; i++)
        FTH_TRY(cpu_read_plain(plan, node->inputs[i], dnnl_s32, &call.values[i]));
    fth_plan_value *y = &call.values[node->input_count];
    FTH_TRY(cpu_begin_write(plan, output, &plain, y));
    FTH_TRY(cpu_add_call(plan, node->op->name, &call));
    FTH_TRY(cpu_end_write(plan, output, *y));
out:
    return status;
}

static fth_status prepare_gather(fth_plan *plan, const fth_node *node)
{
    return prepare(plan, node, (cpu_call){.run = run_gather});
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    return prepare(plan, node, (cpu_call){.run = run_gradient});
}

const fth_kernel cpu_gather = {&fth_op_gather, prepare_gather};
const fth_kernel cpu_gather_grad = {&fth_op_gather_grad, prepare_gradient};
