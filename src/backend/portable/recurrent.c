/* LSTM and GRU (recurrence.h). */
#include "backend/portable/portable.h"
#include "backend/portable/recurrence.h"

typedef struct recurrent_call {
    portable_call call;
    recurrence recurrence;
} recurrent_call;

static fth_status run_forward(const portable_call *call, const fth_run *run)
{
    const recurrence *r = &((const recurrent_call *)call)->recurrence;
    (void)run;
    recurrence_begin(r, call->data);
    recurrence_run(r, call->data, 0, r->sequences);
    return FTH_OK;
}

static fth_status run_gradient(const portable_call *call, const fth_run *run)
{
    const recurrence *r = &((const recurrent_call *)call)->recurrence;
    (void)run;
    recurrence_begin_gradient(r, call->data);
    recurrence_run_gradient(r, call->data, 0, r->sequences);
    for (int64_t part = 0; part < recurrence_weight_parts(r); part++)
        recurrence_run_weights(r, call->data, part);
    recurrence_end_gradient(r, call->data);
    return FTH_OK;
}

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const bool gradient = node->op == &fth_op_recurrent_grad;
    const int writes = gradient ? (int)RECURRENT_GRAD_WRITES : (int)RECURRENT_WRITES;
    const int count = gradient ? (int)RECURRENT_GRAD_VALUES : (int)RECURRENT_VALUES, scratch = count - 1;
    recurrent_call c = {
        .call = {.run = gradient ? run_gradient : run_forward, .value_count = count, .write_count = writes},
        .recurrence = recurrence_of(plan, node, portable_get_level(plan))};
    fth_value values[PORTABLE_MAX_VALUES];

    recurrence_list(plan, node, values);
    for (int i = 0; i < scratch; i++) {
        c.call.values[i] = FTH_NO_PLAN_VALUE;
        if (values[i] != FTH_NO_VALUE)
            FTH_TRY(
                (i < count - writes ? portable_read : portable_begin_write)(plan, values[i], false, &c.call.values[i]));
    }
    FTH_TRY(portable_add_scratch(plan, (size_t)recurrence_scratch_floats(&c.recurrence, gradient),
                                 &c.call.values[scratch]));
    if (!gradient)
        fth_plan_may_overwrite(plan, c.call.values[RECURRENT_GATES], c.call.values[RECURRENT_PROJECTED]);
    FTH_TRY(portable_add_call(plan, node, &c.call, sizeof c));
    for (int i = count - writes; i < scratch; i++)
        if (values[i] != FTH_NO_VALUE)
            FTH_TRY(portable_end_write(plan, values[i], c.call.values[i]));
out:
    return status;
}

const fth_kernel portable_recurrent = {&fth_op_recurrent, prepare};
const fth_kernel portable_recurrent_grad = {&fth_op_recurrent_grad, prepare};
