/* Dropout: the mask is computed from the element's number, never stored; one draw serves two
 * elements. */
#include "backend/cpu/drop.h"
#include "backend/cpu/rows.h"

/* Drops from `count` elements, at most CPU_DRAWS, the first of which has the number `number`; y may
 * be x. */
CPU_VECTORIZED static void drop_elements(const cpu_drop *drop, const float *x, float *y, int64_t count, uint64_t number)
{
    cpu_draws draws;
    const uint32_t *bits = cpu_draw(drop, number, count, &draws);
    const cpu_drop rule = *drop;
    FTH_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] * cpu_drop_factor(&rule, bits[i]);
}

/* Sizes: elements, those of a row, fth_plan_graph_rows(), whether elements are bf16. Values: x,
 * y. */
static fth_status run_dropout(const cpu_call *call, const fth_run *run)
{
    const int64_t count = call->sizes[0];
    const uint64_t first = fth_run_first_row(run, call->sizes[2]) * (uint64_t)call->sizes[1]; /* in the whole batch */
    const cpu_rows x = {.data = call->data[0], .bf16 = call->sizes[3]}, y = {.data = call->data[1], .bf16 = x.bf16};
    const cpu_drop drop = cpu_drop_of(run->seed, run->step, (uint32_t)call->id, call->numbers[0]);
#pragma omp parallel for if (count > 4 * CPU_DRAWS)
    for (int64_t begin = 0; begin < count; begin += CPU_DRAWS) {
        float buffers[2][CPU_DRAWS];
        const int64_t length = count - begin < CPU_DRAWS ? count - begin : CPU_DRAWS;
        float *to = cpu_begin_floats(&y, begin, buffers[1]);
        drop_elements(&drop, cpu_read_floats(&x, begin, length, buffers[0]), to, length, first + (uint64_t)begin);
        cpu_end_floats(&y, begin, length, to);
    }
    return FTH_OK;
}

static fth_status prepare_dropout(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_dropout_attributes *a = node->attributes;
    fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    fth_plan_value x, y;
    if (fth_plan_get_options(plan).mode == FTH_PLAN_EVALUATE || a->probability == 0) {
        const cpu_format layout = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
        if (!cpu_layout(plan, fth_plan_value_of(plan, node->outputs[0]))) {
            FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, node->outputs[0]), &layout));
            fth_plan_set_view(plan, fth_plan_value_of(plan, node->outputs[0]),
                              fth_plan_value_of(plan, node->inputs[0]));
        } else {
            FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]),
                                  fth_plan_value_of(plan, node->inputs[0])));
        }
        goto out;
    }
    FTH_TRY(cpu_read_rows(plan, node->inputs[0], &x));
    FTH_TRY(cpu_begin_rows(plan, node->outputs[0], &y));
    fth_plan_may_overwrite(plan, y, x);
    const cpu_call call = {.run = run_dropout,
                           .values = {x, y},
                           .value_count = 2,
                           .write_count = 1,
                           .sizes = {fth_shape_count(&shape), fth_shape_count(&shape) / shape.dims[0],
                                     fth_plan_graph_rows(plan, node->outputs[0]), cpu_compute_dtype(plan) == dnnl_bf16},
                           .numbers = {a->probability},
                           .id = a->id};
    FTH_TRY(cpu_add_call(plan, "dropout", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

const fth_kernel cpu_dropout = {&fth_op_dropout, prepare_dropout};
