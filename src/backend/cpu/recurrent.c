/* LSTM and GRU (portable/recurrence.h): threads share the sequences, then the rows of the weight's
 * gradient. All is computed and kept in f32. */
#include "backend/portable/recurrence.h"

#include "backend/cpu/cpu_internal.h"
#include "backend/portable/portable.h"

/* The sequences of a thread, in whole blocks of rows of a product. */
static int64_t share_of(const recurrence *r, int threads)
{
    enum { BLOCK = 6 };
    const int64_t each = (r->sequences + threads - 1) / threads;
    return (each + BLOCK - 1) / BLOCK * BLOCK;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    recurrence r;
    CPU_GET_BLOCK(call, &r);
    (void)run;
    float *const *data = (float *const *)call->data;
    const int64_t share = share_of(&r, call->threads);
    recurrence_begin(&r, data);
#pragma omp parallel for num_threads(call->threads) schedule(static, 1)
    for (int64_t first = 0; first < r.sequences; first += share)
        recurrence_run(&r, data, first, smaller(first + share, r.sequences));
    return FTH_OK;
}

static fth_status run_gradient(const cpu_call *call, const fth_run *run)
{
    recurrence r;
    CPU_GET_BLOCK(call, &r);
    (void)run;
    float *const *data = (float *const *)call->data;
    const int64_t share = share_of(&r, call->threads), parts = recurrence_weight_parts(&r);
    recurrence_begin_gradient(&r, data);
#pragma omp parallel for num_threads(call->threads) schedule(static, 1)
    for (int64_t first = 0; first < r.sequences; first += share)
        recurrence_run_gradient(&r, data, first, smaller(first + share, r.sequences));
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t part = 0; part < parts; part++)
        recurrence_run_weights(&r, data, part);
    recurrence_end_gradient(&r, data);
    return FTH_OK;
}

static fth_status begin_write(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    const cpu_format plain = cpu_plain(&shape, dnnl_f32);
    return cpu_begin_write(plan, fth_plan_value_of(plan, value), &plain, as);
}

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const bool gradient = node->op == &fth_op_recurrent_grad;
    const int writes = gradient ? (int)RECURRENT_GRAD_WRITES : (int)RECURRENT_WRITES;
    const int count = gradient ? (int)RECURRENT_GRAD_VALUES : (int)RECURRENT_VALUES, scratch = count - 1;
    cpu_call call = {.run = gradient ? run_gradient : run_forward, .value_count = count, .write_count = writes};
    fth_value values[CPU_MAX_CALL_VALUES];
    const portable_level *level;

    FTH_TRY(portable_choose_level(&level));
    const recurrence r = recurrence_of(plan, node, level);
    CPU_SET_BLOCK(&call, &r);
    recurrence_list(plan, node, values);
    for (int i = 0; i < scratch; i++) {
        call.values[i] = FTH_NO_PLAN_VALUE;
        if (values[i] == FTH_NO_VALUE)
            continue;
        if (i < count - writes)
            FTH_TRY(cpu_read_plain(plan, values[i], dnnl_f32, &call.values[i]));
        else
            FTH_TRY(begin_write(plan, values[i], &call.values[i]));
    }
    FTH_TRY(cpu_add_scratch_floats(plan, recurrence_scratch_floats(&r, gradient), &call.values[scratch]));
    if (!gradient)
        fth_plan_may_overwrite(plan, call.values[RECURRENT_GATES], call.values[RECURRENT_PROJECTED]);
    FTH_TRY(cpu_add_call(plan, node->op->name, &call));
    for (int i = count - writes; i < scratch; i++)
        if (values[i] != FTH_NO_VALUE)
            FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, values[i]), call.values[i]));
out:
    return status;
}

const fth_kernel cpu_recurrent = {&fth_op_recurrent, prepare};
const fth_kernel cpu_recurrent_grad = {&fth_op_recurrent_grad, prepare};
