/* Steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/portable/portable.h"

static fth_status bind_call(void *state, const fth_plan *plan)
{
    portable_call *call = state;
    for (int i = 0; i < call->value_count; i++)
        if (fth_plan_value_exists(call->values[i]))
            call->data[i] = fth_plan_data(plan, call->values[i]);
    return FTH_OK;
}

static fth_status run_call(void *state, const fth_run *run)
{
    const portable_call *call = state;
    return call->run(call, run);
}

static fth_status add_step(fth_plan *plan, const char *name, const void *attributes, const portable_call *call,
                           size_t size_bytes)
{
    fth_status status = FTH_OK;
    portable_call *copy = NULL;
    fth_step step = {.bind = bind_call, .run = run_call, .release = free};

    FTH_TRY(fth_allocate(1, size_bytes, &copy));
    memcpy(copy, call, size_bytes);
    copy->level = portable_get_level(plan);
    copy->attributes = attributes;
    for (int i = 0; i < call->value_count; i++) {
        if (!fth_plan_value_exists(call->values[i]))
            continue;
        if (i < call->value_count - call->write_count)
            step.reads[step.read_count++] = call->values[i];
        else
            step.writes[step.write_count++] = call->values[i];
    }
    snprintf(step.name, sizeof step.name, "%s, portable", name);
    step.state = copy; /* the plan's from here on */
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    return status;
}

fth_status portable_add_call(fth_plan *plan, const fth_node *node, const portable_call *call, size_t size_bytes)
{
    return add_step(plan, node->op->name, node->attributes, call, size_bytes);
}

fth_status portable_add_named_call(fth_plan *plan, const char *name, const portable_call *call, size_t size_bytes)
{
    return add_step(plan, name, NULL, call, size_bytes);
}

fth_status portable_add_plain(fth_plan *plan, const fth_node *node, const plain_kernel *kernel)
{
    fth_status status = FTH_OK;
    fth_plan_value inputs[FTH_MAX_STEP_VALUES];

    for (int i = 0; i < node->input_count && i < FTH_MAX_STEP_VALUES; i++)
        FTH_TRY(portable_read(plan, node->inputs[i], false, &inputs[i]));
    FTH_TRY(plain_add_step(plan, node, kernel, inputs));
out:
    return status;
}

enum { SUM_COLUMNS = 128 };

void portable_sum_columns(const portable_level *level, const float *x, int64_t rows, int64_t columns, float *sums)
{
    for (int64_t begin = 0; begin < columns; begin += SUM_COLUMNS) {
        double totals[SUM_COLUMNS] = {0};
        const int64_t count = columns - begin < SUM_COLUMNS ? columns - begin : SUM_COLUMNS;
        level->sum_columns(x + begin, rows, count, columns, totals);
        for (int64_t i = 0; i < count; i++)
            sums[begin + i] = (float)totals[i];
    }
}
