/* Attention among sequences of one length: threads share the tasks of portable/product_attention.h,
 * in the plan's dtype, f32 or bf16. */
#include "backend/portable/product_attention.h"

#include <omp.h>

#include "backend/cpu/cpu_internal.h"
#include "backend/portable/portable.h"

/* The last ones are written; of the op, those of the gradient are none. */
enum { QUERY, KEY, VALUE, MASK, DY, STATISTICS, SCRATCH, RESULT, DKEY, DVALUE, DMASK, VALUES };

/* Sizes: floats of scratch per thread, and of all threads, behind which are the mask's sums. */
static fth_status run_attention(const cpu_call *call, const fth_run *run)
{
    product_attention p;
    CPU_GET_BLOCK(call, &p);
    const bool gradient = call->data[DY] != NULL;
    float *scratch = call->data[SCRATCH];
    const product_tensors tensors = {.query = call->data[QUERY],
                                     .key = call->data[KEY],
                                     .value = call->data[VALUE],
                                     .mask = call->data[MASK],
                                     .y = gradient ? NULL : call->data[RESULT],
                                     .statistics = call->data[STATISTICS],
                                     .dy = call->data[DY],
                                     .dquery = gradient ? call->data[RESULT] : NULL,
                                     .dkey = call->data[DKEY],
                                     .dvalue = call->data[DVALUE],
                                     .dmask = call->data[DMASK],
                                     .mask_sums = scratch + call->sizes[1]};
    const int64_t tasks = product_attention_tasks(&p);
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t at = 0; at < tasks; at++)
        product_attention_run_task(&p, &tensors, run, at, scratch + omp_get_thread_num() * call->sizes[0]);
    product_attention_end(&p, &tensors);
    return FTH_OK;
}

/* Reads in the plan's dtype; the mask stays f32. */
static fth_status read_if(fth_plan *plan, fth_value value, dnnl_data_type_t dtype, fth_plan_value *as)
{
    return value == FTH_NO_VALUE ? FTH_OK : cpu_read_plain(plan, value, dtype, as);
}

static fth_status begin_if(fth_plan *plan, fth_value value, dnnl_data_type_t dtype, fth_plan_value over,
                           fth_plan_value *as)
{
    fth_status status = FTH_OK;
    if (value == FTH_NO_VALUE)
        return FTH_OK;
    const fth_shape shape = fth_plan_type(plan, value).shape;
    const cpu_format layout = cpu_plain(&shape, dtype);
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, value), &layout, as));
    fth_plan_may_overwrite(plan, *as, over);
out:
    return status;
}

static fth_status end_if(fth_plan *plan, fth_value value, fth_plan_value as)
{
    return value == FTH_NO_VALUE ? FTH_OK : cpu_end_write(plan, fth_plan_value_of(plan, value), as);
}

static fth_status read_all(fth_plan *plan, const product_values *v, fth_plan_value *values)
{
    fth_status status = FTH_OK;
    const dnnl_data_type_t dtype = cpu_compute_dtype(plan);
    FTH_TRY(read_if(plan, v->query, dtype, &values[QUERY]));
    FTH_TRY(read_if(plan, v->key, dtype, &values[KEY]));
    FTH_TRY(read_if(plan, v->value, dtype, &values[VALUE]));
    FTH_TRY(read_if(plan, v->mask, dnnl_f32, &values[MASK]));
    FTH_TRY(read_if(plan, v->dy, dtype, &values[DY]));
    values[STATISTICS] = fth_plan_value_of(plan, v->statistics);
    if (v->dy == FTH_NO_VALUE)
        FTH_TRY(cpu_fix_plain(plan, v->statistics));
out:
    return status;
}

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const dnnl_data_type_t dtype = cpu_compute_dtype(plan);
    const product_values v = product_attention_values(plan, node);
    const bool gradient = v.dy != FTH_NO_VALUE;
    const fth_value result = gradient ? v.dquery : v.y;
    cpu_call call = {
        .run = run_attention, .value_count = VALUES, .write_count = VALUES - (gradient ? SCRATCH : STATISTICS)};
    fth_plan_value *values = call.values;
    const portable_level *level;

    for (int i = 0; i < VALUES; i++)
        values[i] = FTH_NO_PLAN_VALUE;
    FTH_TRY(portable_choose_level(&level));
    const product_attention p = product_attention_of(plan, node, level, dtype == dnnl_bf16);
    CPU_SET_BLOCK(&call, &p);
    FTH_TRY(read_all(plan, &v, values));
    call.sizes[0] = (int64_t)fth_align_up((size_t)product_attention_scratch_floats(&p, gradient), 16);
    call.sizes[1] = fth_plan_threads(plan) * call.sizes[0];
    FTH_TRY(cpu_add_scratch_floats(plan, call.sizes[1] + product_attention_mask_floats(&p), &values[SCRATCH]));
    FTH_TRY(begin_if(plan, result, dtype, gradient ? values[QUERY] : FTH_NO_PLAN_VALUE, &values[RESULT]));
    FTH_TRY(begin_if(plan, v.dkey, dtype, values[KEY], &values[DKEY]));
    FTH_TRY(begin_if(plan, v.dvalue, dtype, values[VALUE], &values[DVALUE]));
    FTH_TRY(begin_if(plan, v.dmask, dnnl_f32, FTH_NO_PLAN_VALUE, &values[DMASK]));
    FTH_TRY(cpu_add_call(plan, node->op->name, &call));
    FTH_TRY(end_if(plan, result, values[RESULT]));
    FTH_TRY(end_if(plan, v.dkey, values[DKEY]));
    FTH_TRY(end_if(plan, v.dvalue, values[DVALUE]));
    FTH_TRY(end_if(plan, v.dmask, values[DMASK]));
out:
    return status;
}

const fth_kernel cpu_dot_product_attention = {&fth_op_dot_product_attention, prepare};
const fth_kernel cpu_dot_product_attention_grad = {&fth_op_dot_product_attention_grad, prepare};
