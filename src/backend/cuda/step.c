/* Steps made of one launch, and the numbers that change from run to run. */
#include <stdio.h>

#include "backend/cuda/recording.h"
#include "backend/cuda/step.h"

cuda_run_values cuda_run_values_of(const fth_run *run, uint64_t sequence)
{
    cuda_run_values values = {.seed = run->seed,
                              .step = run->step,
                              .first_sample = run->first_sample,
                              .first_token = run->first_token,
                              .sequence = sequence,
                              .gradient_scale = run->gradient_scale};
    if (run->updater)
        cuda_updater_fill_values(run, &values);
    return values;
}

fth_status cuda_set_run_values(cuda_device *device, const fth_run *run)
{
    const cuda_run_values *last = &device->last_run_values;
    if (device->capturing || (device->run_values_set && last->seed == run->seed && last->step == run->step &&
                              last->first_sample == run->first_sample && last->first_token == run->first_token &&
                              last->gradient_scale == run->gradient_scale))
        return FTH_OK;
    const cuda_run_values values = cuda_run_values_of(run, device->sequence);
    fth_status status = cuda_status(cuda_launch_run_values(device->launch.stream, device->run_values, values),
                                    "setting a run's numbers");
    device->last_run_values = values;
    device->run_values_set = status == FTH_OK;
    device->replayed = false; /* steps one by one: whoever wants the loss waits for all of them */
    return status;
}

static fth_status bind_call(void *state, const fth_plan *plan)
{
    cuda_call *call = state;
    for (int i = 0; i < call->value_count; i++)
        call->data[i] = fth_plan_value_exists(call->values[i]) ? fth_plan_data(plan, call->values[i]) : NULL;
    return FTH_OK;
}

static fth_status run_call(void *state, const fth_run *run)
{
    const cuda_call *call = state;
    fth_status status = cuda_set_run_values(call->device, run);
    return status != FTH_OK ? status : cuda_status(call->run(call), "launching a kernel");
}

void cuda_list_values(fth_step *step, const fth_plan_value *values, int value_count, int write_count)
{
    for (int i = 0; i < value_count; i++) {
        if (!fth_plan_value_exists(values[i]))
            continue;
        if (i < value_count - write_count)
            step->reads[step->read_count++] = values[i];
        else
            step->writes[step->write_count++] = values[i];
    }
}

fth_status cuda_add_call(fth_plan *plan, const char *name, const cuda_call *call)
{
    fth_status status = FTH_OK;
    cuda_call *state = NULL;
    fth_step step = {.bind = bind_call, .run = run_call};
    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    *state = *call;
    state->device = cuda_device_of(plan);
    cuda_list_values(&step, call->values, call->value_count, call->write_count);
    snprintf(step.name, sizeof step.name, "%s", name);
    step.state = state;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    return status;
}
