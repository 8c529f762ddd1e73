/* Attention: one head after the other. */
#include "backend/portable/packed_attention.h"

#include "backend/portable/portable.h"

typedef struct attention_call {
    portable_call call;
    packed_attention packed;
} attention_call;

enum { QKV, ENDS, DY, STATISTICS, SCRATCH, RESULT, VALUES };

static fth_status run_attention(const portable_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const packed_attention *p = &((const attention_call *)call)->packed;
    const bool gradient = call->data[DY] != NULL;
    const packed_tensors tensors = {.qkv = call->data[QKV],
                                    .ends = (const int32_t *)call->data[ENDS],
                                    .statistics = call->data[STATISTICS],
                                    .dy = call->data[DY],
                                    .y = gradient ? NULL : call->data[RESULT],
                                    .dqkv = gradient ? call->data[RESULT] : NULL};
    FTH_TRY(packed_attention_begin(p, &tensors));
    for (int64_t at = 0; at < p->sequences * p->attributes.heads; at++)
        packed_attention_run_head(p, &tensors, run, at, call->data[SCRATCH]);
out:
    return status;
}

/* Inputs qkv, ends -> y, statistics; or qkv, ends, y, statistics, dy -> dqkv. */
static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const bool gradient = node->op == &fth_op_attention_grad;
    attention_call c = {.call = {.run = run_attention, .value_count = VALUES, .write_count = gradient ? 2 : 3},
                        .packed = packed_attention_of(plan, node, portable_get_level(plan), false)};
    fth_plan_value *values = c.call.values;

    values[DY] = FTH_NO_PLAN_VALUE;
    FTH_TRY(portable_read(plan, node->inputs[0], false, &values[QKV]));
    FTH_TRY(portable_read(plan, node->inputs[1], false, &values[ENDS]));
    if (gradient) {
        FTH_TRY(portable_read(plan, node->inputs[3], false, &values[STATISTICS]));
        FTH_TRY(portable_read(plan, node->inputs[4], false, &values[DY]));
    } else {
        FTH_TRY(portable_begin_write(plan, node->outputs[1], false, &values[STATISTICS]));
    }
    FTH_TRY(portable_add_scratch(plan, (size_t)packed_attention_scratch_floats(&c.packed, gradient), &values[SCRATCH]));
    FTH_TRY(portable_begin_write(plan, node->outputs[0], false, &values[RESULT]));
    if (gradient)
        fth_plan_may_overwrite(plan, values[RESULT], values[QKV]);
    FTH_TRY(portable_add_call(plan, node, &c.call, sizeof c));
    FTH_TRY(portable_end_write(plan, node->outputs[0], values[RESULT]));
out:
    return status;
}

const fth_kernel portable_attention = {&fth_op_attention, prepare};
const fth_kernel portable_attention_grad = {&fth_op_attention_grad, prepare};
