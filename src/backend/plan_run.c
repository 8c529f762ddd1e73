/* Binds a plan to memory and runs it: step by step, timed, or as a recording that the back end
 * replays. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>

#include "backend/plan_internal.h"

static void drop_recording(fth_plan *plan, int which)
{
    if (plan->captured[which])
        plan->device->backend->capture->free(plan->device, plan->captured[which]);
    plan->captured[which] = NULL;
}

void fth_plan_drop_recordings(fth_plan *plan)
{
    drop_recording(plan, 0);
    drop_recording(plan, 1);
}

size_t fth_plan_arena_bytes(const fth_plan *plan)
{
    return plan->arena_bytes;
}

/* Puts the graph's constants on the device, once for all binds. */
static fth_status place_constants(fth_plan *plan)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = plan->device->backend;

    if (plan->constants || plan->constant_floats == 0)
        return FTH_OK;
    FTH_TRY(backend->allocate(plan->device, plan->constant_floats * sizeof(float), &plan->constants));
    for (fth_value v = 0; v < fth_graph_value_count(plan->graph); v++) {
        const fth_value_info *info = fth_graph_value(plan->graph, v);
        if (info->kind == FTH_VALUE_CONSTANT)
            FTH_TRY(
                backend->copy_in(plan->device, (float *)plan->constants + plan->values[v].vector_offset, info->data,
                                 (size_t)fth_shape_count(&info->type.shape) * fth_dtype_size_bytes(info->type.dtype)));
    }
out:
    return status;
}

fth_status fth_plan_bind(fth_plan *plan, void *arena, fth_vectors vectors)
{
    fth_status status = FTH_OK;
    fth_plan_enter(plan);
    FTH_TRY(place_constants(plan));
    float *const bases[] = {[FTH_IN_PARAMETERS] = vectors.parameters,
                            [FTH_IN_GRADIENTS] = vectors.gradients,
                            [FTH_IN_BUFFERS] = vectors.buffers,
                            [FTH_IN_CONSTANTS] = plan->constants};
    fth_plan_drop_recordings(plan); /* they hold the old addresses */
    for (size_t v = 0; v < plan->value_count; v++) {
        const int32_t root = fth_plan_root(plan, (fth_plan_value){(int32_t)v}).index;
        const plan_value *home = &plan->values[root];
        if (home->storage == FTH_IN_ARENA)
            plan->values[v].data = (char *)arena + plan->area_of[root];
        else
            plan->values[v].data = bases[home->storage] ? bases[home->storage] + home->vector_offset : NULL;
    }
    for (size_t s = 0; s < plan->step_count; s++) {
        const fth_step *step = &plan->steps[s].step;
        if (step->bind)
            FTH_TRY(step->bind(step->state, plan));
    }
    plan->gradients = vectors.gradients;
    plan->bound = true;
out:
    return status;
}

void *fth_plan_input(const fth_plan *plan, fth_value input)
{
    assert(plan->bound && fth_graph_value(plan->graph, input)->kind == FTH_VALUE_INPUT);
    return plan->values[input].data;
}

fth_status fth_plan_set_input(fth_plan *plan, fth_value input, const void *host)
{
    assert(plan->bound && fth_graph_value(plan->graph, input)->kind == FTH_VALUE_INPUT);
    const fth_backend *backend = plan->device->backend;
    return (backend->batches ? backend->batches->copy : backend->copy_in)(plan->device, plan->values[input].data, host,
                                                                          plan->values[input].size_bytes);
}

fth_status fth_plan_gather_input(fth_plan *plan, fth_value input, const fth_gather *gather)
{
    assert(plan->bound && fth_graph_value(plan->graph, input)->kind == FTH_VALUE_INPUT);
    assert(gather->count == plan->options.batch);
    fth_plan_enter(plan);
    return plan->device->backend->batches->gather(plan->device, gather, plan->values[input].data);
}

fth_status fth_plan_read_loss(fth_plan *plan, float loss[2])
{
    if (!plan->device->backend->capture)
        return fth_plan_get_output(plan, fth_graph_loss(plan->graph), loss);
    fth_plan_enter(plan);
    return plan->device->backend->capture->read_loss(plan->device, loss);
}

fth_status fth_plan_get_output(fth_plan *plan, fth_value output, float *host)
{
    assert(plan->bound && plan->values[output].last_reader == INT_MAX);
    return plan->device->backend->copy_out(plan->device, host, plan->values[output].data,
                                           plan->values[output].size_bytes);
}

fth_status fth_plan_sum_over_peers(const fth_run *run, double *values, size_t count)
{
    return run->peers ? run->peers->sum(run->peers->context, values, count) : FTH_OK;
}

fth_status fth_plan_sum_gradients(fth_device *device, const fth_run *run, float *gradients, size_t ready, size_t count,
                                  size_t *summed)
{
    fth_status status = FTH_OK;
    const size_t bucket = run->peers->bucket_floats > 0 ? run->peers->bucket_floats : count;
    while (*summed + bucket <= ready || (ready == count && *summed < count)) {
        const size_t left = count - *summed, part = left < bucket ? left : bucket;
        FTH_TRY(device->backend->collectives->all_reduce(run->peers->group, gradients + *summed, part));
        *summed += part;
    }
out:
    return status;
}

/* Reports gradients that are final after a step, and has the device sum them. */
static fth_status report_gradients(fth_plan *plan, const fth_run *run, size_t ready, size_t *summed)
{
    if (run->gradients_ready)
        run->gradients_ready(run->gradients_context, ready);
    if (!run->sum_gradients)
        return FTH_OK;
    return fth_plan_sum_gradients(plan->device, run, plan->gradients, ready, fth_graph_trained_floats(plan->graph),
                                  summed);
}

fth_status fth_plan_check_time(fth_deadline deadline, const fth_stop *stop)
{
    if (stop && stop->asked)
        return fth_fail(FTH_INTERRUPTED, "stopped");
    if (deadline.at_seconds > 0 && fth_deadline_passed(deadline))
        return fth_fail(FTH_TIMEOUT, "a batch could not be computed in time");
    return FTH_OK;
}

static fth_status run_steps(fth_plan *plan, const fth_run *run)
{
    fth_status status = FTH_OK;
    size_t summed = 0;
    for (size_t s = 0; s < plan->step_count; s++) {
        const plan_step *at = &plan->steps[s];
        FTH_TRY(fth_plan_check_time(run->deadline, run->stop));
        status = at->step.run(at->step.state, run);
        if (status != FTH_OK)
            return fth_fail_within(status, "running %s", at->step.name);
        if (at->ready_floats)
            FTH_TRY(report_gradients(plan, run, at->ready_floats, &summed));
    }
    if (run->sum_gradients) {
        const size_t count = fth_graph_trained_floats(plan->graph);
        FTH_TRY(fth_plan_sum_gradients(plan->device, run, plan->gradients, count, count, &summed));
        FTH_TRY(plan->device->backend->collectives->join(run->peers->group,
                                                         plan->values[fth_graph_loss(plan->graph)].data));
    }
out:
    return status;
}

static fth_status run_timed(fth_plan *plan, const fth_run *run)
{
    fth_status status = FTH_OK;
    for (size_t s = 0; s < plan->step_count; s++) {
        double begun = fth_clock_seconds();
        FTH_TRY(plan->steps[s].step.run(plan->steps[s].step.state, run));
        FTH_TRY(plan->device->backend->synchronize(plan->device, fth_deadline_in(60)));
        run->step_seconds[s] += fth_clock_seconds() - begun;
    }
out:
    return status;
}

/* Records the steps, and the update after them if the run has one. */
static fth_status record(fth_plan *plan, const fth_run *run, void **captured)
{
    fth_status status = FTH_OK;
    const fth_backend_capture *capture = plan->device->backend->capture;
    char message[1024] = ""; /* of the failed step; ending the capture may then fail as well */

    FTH_TRY(capture->begin(plan->device));
    status = run_steps(plan, run);
    if (status == FTH_OK && run->updater)
        status = capture->updater->queue(run->updater, plan->values[fth_graph_loss(plan->graph)].data);
    if (status != FTH_OK)
        snprintf(message, sizeof message, "%s", fth_error_message());
    fth_status ended = capture->end(plan->device, captured); /* also after a failure */
    if (status != FTH_OK && *captured) {                     /* incomplete: must not be run */
        capture->free(plan->device, *captured);
        *captured = NULL;
    }
    FTH_REQUIRE(status == FTH_OK, status, "%s", message);
    FTH_TRY(ended);
out:
    return status;
}

fth_status fth_plan_run(fth_plan *plan, const fth_run *run)
{
    fth_status status = FTH_OK;
    const fth_backend_capture *capture = plan->device->backend->capture;
    assert(plan->bound && (!run->updater || (!run->step_seconds && !run->gradients_ready)));
    fth_plan_enter(plan);
    if (run->step_seconds)
        return run_timed(plan, run);
    /* Steps that involve the host cannot be recorded. */
    if (!capture || run->gradients_ready || (plan->options.synchronized && run->peers && !run->peers->group))
        return run_steps(plan, run);
    int which = run->updater != NULL;
    if (run->updater && plan->updater != run->updater) {
        drop_recording(plan, which);
        plan->updater = run->updater;
    }
    if (!plan->captured[which])
        FTH_TRY(record(plan, run, &plan->captured[which]));
    FTH_TRY(capture->replay(plan->device, plan->captured[which], run));
out:
    return status;
}

int fth_plan_step_count(const fth_plan *plan)
{
    return (int)plan->step_count;
}

const char *fth_plan_step_name(const fth_plan *plan, int step)
{
    return plan->steps[step].step.name;
}

int fth_plan_step_node(const fth_plan *plan, int step)
{
    return plan->steps[step].node;
}
