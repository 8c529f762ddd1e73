/* Fused attention: threads share the heads of all sequences. Each head is computed by the loops of
 * portable/level/attention.h in the plan's dtype, f32 or bf16. */
#include "backend/portable/packed_attention.h"

#include <omp.h>

#include "backend/cpu/cpu_internal.h"
#include "backend/portable/portable.h"

enum { QKV, ENDS, DY, STATISTICS, SCRATCH, RESULT, VALUES };

/* Sizes: floats of scratch per thread. */
static fth_status run_attention(const cpu_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    packed_attention p;
    CPU_GET_BLOCK(call, &p);
    const bool gradient = call->data[DY] != NULL;
    const packed_tensors tensors = {.qkv = call->data[QKV],
                                    .ends = call->data[ENDS],
                                    .statistics = call->data[STATISTICS],
                                    .dy = call->data[DY],
                                    .y = gradient ? NULL : call->data[RESULT],
                                    .dqkv = gradient ? call->data[RESULT] : NULL};
    const int64_t heads = p.sequences * p.attributes.heads;

    FTH_TRY(packed_attention_begin(&p, &tensors));
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t at = 0; at < heads; at++)
        packed_attention_run_head(&p, &tensors, run, at,
                                  (float *)call->data[SCRATCH] + omp_get_thread_num() * call->sizes[0]);
out:
    return status;
}

/* Inputs qkv, ends -> y, statistics; or qkv, ends, y, statistics, dy -> dqkv. */
static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const bool gradient = node->op == &fth_op_attention_grad;
    const dnnl_data_type_t dtype = cpu_compute_dtype(plan);
    const fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    const cpu_format layout = cpu_plain(&shape, dtype);
    const fth_plan_value target = fth_plan_value_of(plan, node->outputs[0]);
    cpu_call call = {.run = run_attention, .value_count = VALUES, .write_count = gradient ? 2 : 3};
    const portable_level *level;

    FTH_TRY(portable_choose_level(&level));
    const packed_attention p = packed_attention_of(plan, node, level, dtype == dnnl_bf16);
    CPU_SET_BLOCK(&call, &p);
    call.values[DY] = FTH_NO_PLAN_VALUE;
    call.values[ENDS] = fth_plan_value_of(plan, node->inputs[1]);
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dtype, &call.values[QKV]));
    if (gradient) {
        call.values[STATISTICS] = fth_plan_value_of(plan, node->inputs[3]);
        FTH_TRY(cpu_read_plain(plan, node->inputs[4], dtype, &call.values[DY]));
    } else {
        FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
        call.values[STATISTICS] = fth_plan_value_of(plan, node->outputs[1]);
    }
    call.sizes[0] = (int64_t)fth_align_up((size_t)packed_attention_scratch_floats(&p, gradient), 16);
    FTH_TRY(cpu_add_scratch_floats(plan, fth_plan_threads(plan) * call.sizes[0], &call.values[SCRATCH]));
    FTH_TRY(cpu_begin_write(plan, target, &layout, &call.values[RESULT]));
    if (gradient)
        fth_plan_may_overwrite(plan, call.values[RESULT], call.values[QKV]);
    FTH_TRY(cpu_add_call(plan, node->op->name, &call));
    FTH_TRY(cpu_end_write(plan, target, call.values[RESULT]));
out:
    return status;
}

const fth_kernel cpu_attention = {&fth_op_attention, prepare};
const fth_kernel cpu_attention_grad = {&fth_op_attention_grad, prepare};
