/* Attention among sequences of one length (dot_product_attention.cu). */
#include "backend/cuda/attention.h"

#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

enum { QUERY, KEY, VALUE, MASK };
enum { Y, STATISTICS, DY, DQUERY, DKEY, DVALUE, DMASK, SCRATCH, VALUES };
enum { FIRST = MASK + 1 }; /* where a call has y; its operands are before that */

static int64_t features_of(const fth_plan *plan, fth_value rows)
{
    return fth_plan_type(plan, rows).shape.dims[1];
}

/* Everything but the addresses. */
static fth_status describe(const fth_plan *plan, const fth_node *node, cuda_product_attention *to)
{
    fth_status status = FTH_OK;
    const fth_dot_product_attention_attributes *a = node->attributes;
    const fth_value query = node->inputs[0], value = node->inputs[a->packed ? 0 : VALUE];
    const int64_t parts = a->packed ? 3 : 1;
    const int64_t size = features_of(plan, query) / parts / a->heads;
    const int64_t value_size = features_of(plan, value) / parts / a->heads;
    const int largest = cuda_attention_largest_head();
    FTH_REQUIRE(size <= largest && value_size <= largest, FTH_UNSUPPORTED,
                "attention on this GPU takes heads of up to %d numbers, not %lld; use more heads, or --device cpu",
                largest, (long long)(size > value_size ? size : value_size));
    *to = (cuda_product_attention){.type = cuda_compute_type(plan),
                                   .sequences = fth_plan_type(plan, query).shape.dims[0] / a->queries,
                                   .queries = (int)a->queries,
                                   .keys = (int)a->keys,
                                   .heads = a->heads,
                                   .size = (int)size,
                                   .value_size = (int)value_size,
                                   .query_stride = features_of(plan, query),
                                   .key_stride = features_of(plan, query), /* as wide */
                                   .value_stride = features_of(plan, value),
                                   .causal = a->causal,
                                   .scale = a->scale,
                                   .dropout = a->dropout,
                                   .origin = cuda_row_origin_of(plan, query)};
    if (fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN) {
        to->probability = a->probability;
        to->threshold = fth_attention_threshold(a->probability);
    }
    if (a->mask) {
        const fth_shape mask = fth_plan_type(plan, node->inputs[a->packed ? 1 : MASK]).shape;
        to->mask_entries = mask.dims[0];
        to->mask_heads = (int)mask.dims[1];
        to->mask_queries = (int)mask.dims[2];
    }
out:
    return status;
}

/* Where the second and the third part of a packed row begin. */
static const void *column(const cuda_product_attention *a, const void *row, int part)
{
    return (const char *)row + (int64_t)part * a->heads * a->size * (int64_t)cuda_type_size(a->type);
}

/* With the addresses of a call's operands. */
static cuda_product_attention attention_of(const cuda_call *call)
{
    cuda_product_attention a = call->product_attention;
    a.query = call->data[QUERY];
    a.key = call->data[KEY] ? call->data[KEY] : column(&a, a.query, 1);
    a.value = call->data[VALUE] ? call->data[VALUE] : column(&a, a.query, 2);
    a.mask = call->data[MASK];
    return a;
}

static cudaError_t run_forward(const cuda_call *call)
{
    const cuda_product_attention a = attention_of(call);
    return cuda_launch_product_attention(call->device->launch.stream, &a, call->data[FIRST + Y],
                                         call->data[FIRST + STATISTICS], call->device->run_values);
}

static cudaError_t run_gradient(const cuda_call *call)
{
    const cuda_product_attention a = attention_of(call);
    void *const *data = call->data + FIRST;
    void *dquery = data[DQUERY];
    return cuda_launch_product_attention_grad(call->device->launch.stream, &a, data[Y], data[STATISTICS], data[DY],
                                              dquery, data[DKEY] ? data[DKEY] : (void *)column(&a, dquery, 1),
                                              data[DVALUE] ? data[DVALUE] : (void *)column(&a, dquery, 2), data[DMASK],
                                              data[SCRATCH], call->device->run_values);
}

static fth_status read_f32(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    const cuda_layout plain = cuda_plain(&shape, CUDA_TYPE_F32);
    return cuda_read_as(plan, fth_plan_value_of(plan, value), &plain, as);
}

/* Reads what both nodes begin with; *next is the input behind it. */
static fth_status read_operands(fth_plan *plan, const fth_node *node, cuda_call *call, int *next)
{
    fth_status status = FTH_OK;
    const fth_dot_product_attention_attributes *a = node->attributes;
    for (int i = 0; i < FIRST + VALUES; i++)
        call->values[i] = FTH_NO_PLAN_VALUE;
    *next = a->packed ? 1 : MASK;
    for (int i = 0; i < *next; i++)
        FTH_TRY(cuda_read(plan, node->inputs[i], &call->values[i]));
    if (a->mask)
        FTH_TRY(read_f32(plan, node->inputs[(*next)++], &call->values[MASK]));
    FTH_TRY(describe(plan, node, &call->product_attention));
out:
    return status;
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cuda_layout layout = cuda_standard(plan, node->outputs[Y]);
    const fth_plan_value target = fth_plan_value_of(plan, node->outputs[Y]);
    cuda_call call = {.run = run_forward, .value_count = FIRST + DY, .write_count = 2};
    int next;
    FTH_TRY(read_operands(plan, node, &call, &next));
    FTH_TRY(cuda_begin_write(plan, target, &layout, &call.values[FIRST + Y]));
    if (fth_plan_is_used(plan, node->outputs[STATISTICS])) {
        FTH_TRY(cuda_fix_plain(plan, node->outputs[STATISTICS]));
        call.values[FIRST + STATISTICS] = fth_plan_value_of(plan, node->outputs[STATISTICS]);
    }
    FTH_TRY(cuda_add_call(plan, "dot_product_attention", &call));
    FTH_TRY(cuda_end_write(plan, target, call.values[FIRST + Y]));
out:
    return status;
}

static fth_status begin_gradient(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const cuda_layout layout = cuda_standard(plan, value);
    return cuda_begin_write(plan, fth_plan_value_of(plan, value), &layout, as);
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_dot_product_attention_attributes *a = node->attributes;
    const int operands = a->packed ? 1 : MASK;
    cuda_call call = {.run = run_gradient, .value_count = FIRST + VALUES, .write_count = VALUES - DQUERY};
    fth_plan_value *values = call.values + FIRST, mask = FTH_NO_PLAN_VALUE;
    int next;
    FTH_TRY(read_operands(plan, node, &call, &next));
    FTH_TRY(cuda_read(plan, node->inputs[next], &values[Y]));
    FTH_TRY(read_f32(plan, node->inputs[next + 1], &values[STATISTICS]));
    FTH_TRY(cuda_read(plan, node->inputs[next + 2], &values[DY]));
    for (int i = 0; i < operands; i++)
        FTH_TRY(begin_gradient(plan, node->outputs[i], &values[DQUERY + i]));
    if (a->mask && fth_plan_is_used(plan, node->outputs[MASK])) {
        const fth_shape shape = fth_plan_type(plan, node->outputs[MASK]).shape;
        const cuda_layout plain = cuda_plain(&shape, CUDA_TYPE_F32);
        mask = fth_plan_value_of(plan, node->outputs[MASK]);
        FTH_TRY(cuda_begin_write(plan, mask, &plain, &values[DMASK]));
    }
    const size_t scratch_bytes = cuda_product_attention_scratch_bytes(&call.product_attention);
    if (scratch_bytes > 0)
        FTH_TRY(cuda_add_scratch(plan, scratch_bytes, &values[SCRATCH]));
    FTH_TRY(cuda_add_call(plan, "dot_product_attention_grad", &call));
    for (int i = 0; i < operands; i++)
        FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[i]), values[DQUERY + i]));
    if (fth_plan_value_exists(mask))
        FTH_TRY(cuda_end_write(plan, mask, values[DMASK]));
out:
    return status;
}

const fth_kernel cuda_dot_product_attention = {&fth_op_dot_product_attention, prepare_forward};
const fth_kernel cuda_dot_product_attention_grad = {&fth_op_dot_product_attention_grad, prepare_gradient};
