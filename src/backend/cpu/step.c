/* Steps: a oneDNN primitive with its arguments, or a call of one of our own kernels. See
 * cpu_internal.h. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_internal.h"

typedef struct primitive_step {
    cpu_device *device;
    dnnl_primitive_t primitive;
    int count;
    dnnl_exec_arg_t arguments[CPU_MAX_ARGUMENTS];
    fth_plan_value values[CPU_MAX_ARGUMENTS];
} primitive_step;

fth_status cpu_read_chosen(fth_plan *plan, fth_plan_value value, const_dnnl_primitive_desc_t descriptor,
                           dnnl_query_t what, fth_plan_value *as)
{
    const cpu_format chosen = cpu_query(descriptor, what);
    return cpu_read_as(plan, value, &chosen, as);
}

fth_status cpu_write_chosen(fth_plan *plan, fth_plan_value value, const_dnnl_primitive_desc_t descriptor,
                            dnnl_query_t what, fth_plan_value *as)
{
    const cpu_format chosen = cpu_query(descriptor, what);
    return cpu_begin_write_rounded(plan, value, &chosen, as);
}

static fth_status bind_primitive(void *state, const fth_plan *plan)
{
    fth_status status = FTH_OK;
    primitive_step *step = state;
    for (int i = 0; i < step->count; i++)
        CPU_TRY(dnnl_memory_set_data_handle(step->arguments[i].memory, fth_plan_data(plan, step->values[i])));
out:
    return status;
}

static fth_status run_primitive(void *state, const fth_run *run)
{
    (void)run;
    const primitive_step *step = state;
    return cpu_status(dnnl_primitive_execute(step->primitive, step->device->stream, step->count, step->arguments),
                      "dnnl_primitive_execute");
}

static void release_primitive(void *state)
{
    primitive_step *step = state;
    if (!step)
        return;
    for (int i = 0; i < step->count; i++) {
        if (step->arguments[i].memory)
            dnnl_memory_destroy(step->arguments[i].memory);
    }
    if (step->primitive)
        dnnl_primitive_destroy(step->primitive);
    free(step);
}

static fth_status add_argument(primitive_step *state, fth_step *step, int name, fth_plan_value value, bool written,
                               const cpu_format *layout)
{
    assert(state->count < CPU_MAX_ARGUMENTS);
    state->arguments[state->count].arg = name;
    state->values[state->count] = value;
    if (written)
        step->writes[step->write_count++] = value;
    else
        step->reads[step->read_count++] = value;
    return cpu_make_memory(layout, state->device->engine, &state->arguments[state->count++].memory);
}

fth_status cpu_add_primitive(fth_plan *plan, const char *name, dnnl_primitive_desc_t *taken,
                             const cpu_argument *arguments, int argument_count)
{
    fth_status status = FTH_OK;
    dnnl_primitive_desc_t descriptor = *taken;
    *taken = NULL;
    primitive_step *state = NULL;
    fth_step step = {.bind = bind_primitive, .run = run_primitive, .release = release_primitive};
    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    state->device = cpu_device_of(plan);
    CPU_TRY(dnnl_primitive_create(&state->primitive, descriptor));
    const char *implementation = "";
    dnnl_primitive_desc_query(descriptor, dnnl_query_impl_info_str, 0, &implementation);
    for (int i = 0; i < argument_count; i++) {
        const cpu_argument *a = &arguments[i];
        FTH_TRY(add_argument(state, &step, a->name, a->value, a->written,
                             a->layout ? a->layout : cpu_layout(plan, a->value)));
    }
    cpu_format scratchpad;
    size_t scratch_bytes = cpu_scratchpad_size(descriptor, &scratchpad);
    if (scratch_bytes > 0) {
        fth_plan_value scratch;
        FTH_TRY(cpu_add_scratch(plan, scratch_bytes, &scratch));
        FTH_TRY(add_argument(state, &step, DNNL_ARG_SCRATCHPAD, scratch, true, &scratchpad));
    }
    snprintf(step.name, sizeof step.name, "%s %s", name, implementation);
    step.state = state;
    state = NULL;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    release_primitive(state);
    dnnl_primitive_desc_destroy(descriptor);
    return status;
}

static fth_status bind_call(void *state, const fth_plan *plan)
{
    cpu_call *call = state;
    for (int i = 0; i < call->value_count; i++)
        call->data[i] = fth_plan_value_exists(call->values[i]) ? fth_plan_data(plan, call->values[i]) : NULL;
    return FTH_OK;
}

static fth_status run_call(void *state, const fth_run *run)
{
    const cpu_call *call = state;
    return call->run(call, run);
}

fth_status cpu_add_call(fth_plan *plan, const char *name, const cpu_call *call)
{
    fth_status status = FTH_OK;
    cpu_call *state = NULL;
    fth_step step = {.bind = bind_call, .run = run_call};
    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    *state = *call;
    state->threads = fth_plan_threads(plan);
    for (int i = 0; i < call->value_count; i++) {
        if (!fth_plan_value_exists(call->values[i]))
            continue;
        if (i < call->value_count - call->write_count)
            step.reads[step.read_count++] = call->values[i];
        else
            step.writes[step.write_count++] = call->values[i];
    }
    snprintf(step.name, sizeof step.name, "%s%s%s", name, call->kernels ? ":" : "",
             call->kernels ? fth_vector_level_name(cpu_level_of(plan)->level) : "");
    step.state = state;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    return status;
}
