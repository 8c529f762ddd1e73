/* Attention among sequences of one length: one task after the other (product_attention.h). */
#include "backend/portable/portable.h"
#include "backend/portable/product_attention.h"

typedef struct attention_call {
    portable_call call;
    product_attention attention;
} attention_call;

/* The last ones are written; of the op, those of the gradient are none. */
enum { QUERY, KEY, VALUE, MASK, DY, STATISTICS, SCRATCH, RESULT, DKEY, DVALUE, DMASK, MASK_SUMS, VALUES };

static fth_status run_attention(const portable_call *call, const fth_run *run)
{
    const product_attention *p = &((const attention_call *)call)->attention;
    const bool gradient = call->data[DY] != NULL;
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
                                     .mask_sums = call->data[MASK_SUMS]};
    for (int64_t at = 0; at < product_attention_tasks(p); at++)
        product_attention_run_task(p, &tensors, run, at, call->data[SCRATCH]);
    product_attention_end(p, &tensors);
    return FTH_OK;
}

static fth_status read_if(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    return value == FTH_NO_VALUE ? FTH_OK : portable_read(plan, value, false, as);
}

static fth_status begin_if(fth_plan *plan, fth_value value, fth_plan_value over, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    if (value == FTH_NO_VALUE)
        return FTH_OK;
    FTH_TRY(portable_begin_write(plan, value, false, as));
    fth_plan_may_overwrite(plan, *as, over);
out:
    return status;
}

static fth_status end_if(fth_plan *plan, fth_value value, fth_plan_value as)
{
    return value == FTH_NO_VALUE ? FTH_OK : portable_end_write(plan, value, as);
}

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const product_values v = product_attention_values(plan, node);
    const bool gradient = v.dy != FTH_NO_VALUE;
    attention_call c = {.call = {.run = run_attention,
                                 .value_count = VALUES,
                                 .write_count = VALUES - (gradient ? SCRATCH : STATISTICS)},
                        .attention = product_attention_of(plan, node, portable_get_level(plan), false)};
    const product_attention *p = &c.attention;
    fth_plan_value *values = c.call.values;
    const fth_value result = gradient ? v.dquery : v.y;

    for (int i = 0; i < VALUES; i++)
        values[i] = FTH_NO_PLAN_VALUE;
    FTH_TRY(read_if(plan, v.query, &values[QUERY]));
    FTH_TRY(read_if(plan, v.key, &values[KEY]));
    FTH_TRY(read_if(plan, v.value, &values[VALUE]));
    FTH_TRY(read_if(plan, v.mask, &values[MASK]));
    FTH_TRY(read_if(plan, v.dy, &values[DY]));
    if (gradient)
        FTH_TRY(read_if(plan, v.statistics, &values[STATISTICS]));
    else
        FTH_TRY(portable_begin_write(plan, v.statistics, false, &values[STATISTICS]));
    FTH_TRY(portable_add_scratch(plan, (size_t)product_attention_scratch_floats(p, gradient), &values[SCRATCH]));
    if (product_attention_mask_floats(p) > 0)
        FTH_TRY(portable_add_scratch(plan, (size_t)product_attention_mask_floats(p), &values[MASK_SUMS]));
    FTH_TRY(begin_if(plan, result, gradient ? values[QUERY] : FTH_NO_PLAN_VALUE, &values[RESULT]));
    FTH_TRY(begin_if(plan, v.dkey, values[KEY], &values[DKEY]));
    FTH_TRY(begin_if(plan, v.dvalue, values[VALUE], &values[DVALUE]));
    FTH_TRY(begin_if(plan, v.dmask, FTH_NO_PLAN_VALUE, &values[DMASK]));
    FTH_TRY(portable_add_call(plan, node, &c.call, sizeof c));
    FTH_TRY(end_if(plan, result, values[RESULT]));
    FTH_TRY(end_if(plan, v.dkey, values[DKEY]));
    FTH_TRY(end_if(plan, v.dvalue, values[DVALUE]));
    FTH_TRY(end_if(plan, v.dmask, values[DMASK]));
out:
    return status;
}

const fth_kernel portable_dot_product_attention = {&fth_op_dot_product_attention, prepare};
const fth_kernel portable_dot_product_attention_grad = {&fth_op_dot_product_attention_grad, prepare};
