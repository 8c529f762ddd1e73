/* The step that all plain kernels share. */
#include "backend/plain/plain.h"

#include <stdio.h>
#include <stdlib.h>

static plain_tensor tensor_of(const fth_plan *plan, fth_value value, fth_plan_value held_by)
{
    fth_type type = fth_plan_type(plan, value);
    return (plain_tensor){.value = held_by,
                          .dtype = type.dtype,
                          .shape = type.shape,
                          .graph_rows = fth_plan_graph_rows(plan, value),
                          .count = fth_shape_count(&type.shape)};
}

static fth_status bind_step(void *state, const fth_plan *plan)
{
    plain_call *call = state;
    for (int i = 0; i < call->input_count; i++)
        call->inputs[i].data = fth_plan_data(plan, call->inputs[i].value);
    for (int i = 0; i < call->output_count; i++)
        call->outputs[i].data = fth_plan_data(plan, call->outputs[i].value);
    return FTH_OK;
}

static fth_status run_step(void *state, const fth_run *run)
{
    const plain_call *call = state;
    return call->run(call, run);
}

fth_status plain_add_step(fth_plan *plan, const fth_node *node, const plain_kernel *kernel,
                          const fth_plan_value *inputs)
{
    fth_status status = FTH_OK;
    plain_call *call = NULL;
    fth_step step = {.bind = bind_step, .run = run_step, .release = free};
    const fth_backend *backend = fth_plan_device(plan)->backend;

    FTH_REQUIRE(node->input_count <= FTH_MAX_STEP_VALUES && node->output_count <= FTH_MAX_STEP_VALUES / 2,
                FTH_UNSUPPORTED, "%s with %d inputs: the %s back end takes at most %d", node->op->name,
                node->input_count, backend->name, FTH_MAX_STEP_VALUES);
    FTH_TRY(fth_allocate(1, sizeof *call, &call));
    call->run = kernel->run;
    call->attributes = node->attributes;
    call->training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN;
    call->synchronized = fth_plan_get_options(plan).synchronized;
    call->input_count = node->input_count;
    call->output_count = node->output_count;
    for (int i = 0; i < node->input_count; i++) {
        call->inputs[i] = tensor_of(plan, node->inputs[i], inputs[i]);
        step.reads[step.read_count++] = inputs[i];
        if (call->training && (kernel->updated_inputs >> i & 1) != 0)
            step.writes[step.write_count++] = inputs[i];
    }
    for (int i = 0; i < node->output_count; i++) {
        call->outputs[i] = tensor_of(plan, node->outputs[i], fth_plan_value_of(plan, node->outputs[i]));
        if (fth_plan_layout(plan, call->outputs[i].value) == NULL)
            FTH_TRY(backend->describe_plain(plan, node->outputs[i]));
        step.writes[step.write_count++] = call->outputs[i].value;
    }
    snprintf(step.name, sizeof step.name, "%s, plain", node->op->name);
    step.state = call;
    call = NULL; /* the plan's from here on */
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    free(call);
    return status;
}
