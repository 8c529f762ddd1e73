/* Plans: a graph bound to a device, a batch and a mode.
 *
 * Creating a plan walks the nodes once. Each node's kernel sets the layouts of what it writes and adds steps that
 * say which values they read and write; from these the lifetimes follow, and every arena value gets its place.
 * Values that share memory (in-place results, views) form a family with one root; a family is placed as one area.
 *
 * Main plan values have the numbers of their graph values; values added by kernels come after them. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

typedef struct plan_value {
    fth_storage storage;
    size_t vector_offset; /* floats, for values in flat vectors */
    void *layout;
    size_t size_bytes;
    fth_plan_value alias_of; /* towards the family's root; -1 for a root */
    fth_plan_value copy_of;  /* -1: not a copy */
    int last_reader;         /* main values: last node that reads it; INT_MAX: kept to the end; -1: none */
    void *data;
} plan_value;

typedef struct plan_step {
    fth_step step;
    size_t ready_floats; /* gradients final once this step is done; 0: no more than before */
} plan_step;

struct fth_plan {
    const fth_graph *graph;
    fth_device *device;
    fth_plan_options options;
    int node_count; /* of the graph, in this mode */
    int threads;
    int current_node;

    plan_value *values;
    size_t value_count, value_capacity;
    plan_step *steps;
    size_t step_count, step_capacity;

    size_t arena_bytes;
    size_t *area_of; /* root -> offset in the arena */
    bool bound;
    void *captured[2]; /* the back end's recordings of one run, where it makes any: alone, and with an update */
    const fth_updater *updater; /* of the second */
};

/* ---- creating ---- */

static fth_plan_value root_of(const fth_plan *plan, fth_plan_value value)
{
    while (plan->values[value].alias_of >= 0)
        value = plan->values[value].alias_of;
    return value;
}

static fth_status add_main_values(fth_plan *plan)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = plan->device->backend;
    for (fth_value v = 0; v < fth_graph_value_count(plan->graph); v++) {
        const fth_value_info *info = fth_graph_value(plan->graph, v);
        fth_plan_value added;
        FTH_TRY(fth_plan_add_value(plan, &added));
        assert(added == v);
        plan_value *value = &plan->values[added];
        if (info->kind == FTH_VALUE_PARAMETER) {
            value->storage = FTH_IN_PARAMETERS;
            value->vector_offset = info->offset;
        } else if (info->kind == FTH_VALUE_BUFFER) {
            value->storage = FTH_IN_BUFFERS;
            value->vector_offset = info->offset;
        } else if (info->gradient_of != FTH_NO_VALUE) {
            value->storage = FTH_IN_GRADIENTS;
            value->vector_offset = fth_graph_value(plan->graph, info->gradient_of)->offset;
        }
        bool output = v == fth_graph_loss(plan->graph) || v == fth_graph_logits(plan->graph);
        if (output)
            value->last_reader = INT_MAX;
        if (output || info->kind != FTH_VALUE_RESULT || value->storage == FTH_IN_GRADIENTS)
            FTH_TRY(backend->describe_plain(plan, added));
    }
    for (int n = 0; n < plan->node_count; n++) {
        const fth_node *node = fth_graph_node(plan->graph, n);
        for (int i = 0; i < node->input_count; i++) {
            int *last = &plan->values[node->inputs[i]].last_reader;
            *last = *last == INT_MAX ? INT_MAX : n;
        }
    }
out:
    return status;
}

static const fth_kernel *find_kernel(const fth_backend *backend, const fth_op *op)
{
    for (const fth_kernel *const *kernel = backend->kernels; *kernel; kernel++) {
        if ((*kernel)->op == op)
            return *kernel;
    }
    return NULL;
}

static fth_status prepare_nodes(fth_plan *plan)
{
    const fth_backend *backend = plan->device->backend;
    for (int n = 0; n < plan->node_count; n++) {
        const fth_node *node = fth_graph_node(plan->graph, n);
        const fth_kernel *kernel = find_kernel(backend, node->op);
        if (!kernel)
            return fth_fail(FTH_UNSUPPORTED, "back end '%s' has no kernel for %s", backend->name, node->op->name);
        plan->current_node = n;
        fth_status status = kernel->prepare(plan, node);
        if (status != FTH_OK)
            return fth_fail_within(status, "planning %s (node %d)", node->op->name, n);
    }
    return FTH_OK;
}

static void extend_lifetime(fth_plan *plan, fth_area *areas, fth_plan_value value, int step)
{
    fth_area *area = &areas[root_of(plan, value)];
    if (step < area->first_step)
        area->first_step = step;
    if (step > area->last_step)
        area->last_step = step;
}

static fth_status place_values(fth_plan *plan)
{
    fth_status status = FTH_OK;
    fth_area *areas = NULL;
    FTH_TRY(fth_allocate(plan->value_count, sizeof *areas, &areas));
    FTH_TRY(fth_allocate(plan->value_count, sizeof *plan->area_of, &plan->area_of));
    for (size_t v = 0; v < plan->value_count; v++)
        areas[v] = (fth_area){.first_step = INT_MAX, .last_step = -1};
    for (size_t s = 0; s < plan->step_count; s++) {
        const fth_step *step = &plan->steps[s].step;
        for (int i = 0; i < step->read_count; i++)
            extend_lifetime(plan, areas, step->reads[i], (int)s);
        for (int i = 0; i < step->write_count; i++)
            extend_lifetime(plan, areas, step->writes[i], (int)s);
    }
    for (int v = 0; v < fth_graph_value_count(plan->graph); v++) {
        if (fth_graph_value(plan->graph, v)->kind == FTH_VALUE_INPUT)
            extend_lifetime(plan, areas, v, 0); /* filled before the first step */
        if (plan->values[v].last_reader == INT_MAX)
            extend_lifetime(plan, areas, v, (int)plan->step_count); /* read after the last */
    }
    for (size_t v = 0; v < plan->value_count; v++) {
        fth_plan_value root = root_of(plan, (fth_plan_value)v);
        if (plan->values[root].storage != FTH_IN_ARENA)
            continue;
        if (plan->values[v].size_bytes > areas[root].size_bytes)
            areas[root].size_bytes = plan->values[v].size_bytes;
    }
    FTH_TRY(fth_memory_plan(areas, plan->value_count, &plan->arena_bytes));
    for (size_t v = 0; v < plan->value_count; v++)
        plan->area_of[v] = areas[v].offset;
out:
    free(areas);
    return status;
}

/* Parameters lie in the order in which their gradients are finished, so what is final is always a prefix of the
 * vector. The order in which steps finish them may differ a little (a reorder after the next gradient's kernel): a
 * range counts once all before it are final too. */
static fth_status find_ready_ranges(fth_plan *plan)
{
    fth_status status = FTH_OK;
    int *finished_by = NULL; /* by parameter value: the last step that writes its gradient */
    int value_count = fth_graph_value_count(plan->graph);
    FTH_TRY(fth_allocate((size_t)value_count, sizeof *finished_by, &finished_by));
    for (size_t s = 0; s < plan->step_count; s++) {
        const fth_step *step = &plan->steps[s].step;
        for (int i = 0; i < step->write_count; i++) {
            fth_plan_value root = root_of(plan, step->writes[i]);
            if (plan->values[root].storage == FTH_IN_GRADIENTS)
                finished_by[fth_graph_value(plan->graph, root)->gradient_of] = (int)s;
        }
    }
    /* A gradient finished by step s is ready with all before it: walk parameters by offset, keep the latest step. */
    for (int v = 0; v < value_count; v++) {
        const fth_value_info *info = fth_graph_value(plan->graph, v);
        if (info->kind != FTH_VALUE_PARAMETER || info->gradient == FTH_NO_VALUE)
            continue;
        int latest = finished_by[v];
        for (int u = 0; u < value_count; u++) {
            const fth_value_info *other = fth_graph_value(plan->graph, u);
            if (other->kind == FTH_VALUE_PARAMETER && other->gradient != FTH_NO_VALUE && other->offset < info->offset &&
                finished_by[u] > latest)
                latest = finished_by[u];
        }
        size_t end =
            info->offset + fth_align_up((size_t)fth_shape_count(&info->type.shape), FTH_ALIGNMENT / sizeof(float));
        if (end > plan->steps[latest].ready_floats)
            plan->steps[latest].ready_floats = end;
    }
out:
    free(finished_by);
    return status;
}

/* Multiplications by weights in a forward pass: each output takes a whole row of the weights (O, ...). */
static double count_multiplications(const fth_plan *plan)
{
    double total = 0;
    for (int n = 0; n < fth_graph_forward_node_count(plan->graph); n++) {
        const fth_node *node = fth_graph_node(plan->graph, n);
        for (int i = 0; i < node->input_count; i++) {
            fth_type weight = fth_plan_type(plan, node->inputs[i]), result = fth_plan_type(plan, node->outputs[0]);
            if (fth_graph_value(plan->graph, node->inputs[i])->kind == FTH_VALUE_PARAMETER && weight.shape.rank >= 2)
                total += (double)fth_shape_count(&result.shape) * (double)fth_shape_count(&weight.shape) /
                         (double)weight.shape.dims[0];
        }
    }
    return total;
}

/* Waking and joining threads costs about 10 µs a step, and a second thread competes with the loader: a plan of less
 * than a quarter of a millisecond is as fast on one. By arithmetic and not by a clock, so that a resumed run does the
 * same. Measured (2 cores, loader running): cifar-cnn with batch 4, 2.6 million multiplications, trains at 18,800
 * samples/s on one thread and 13,400 on two; with batch 64 at 23,500 and 41,800. */
static int choose_threads(const fth_plan *plan)
{
    enum { SMALL_FORWARD = 5000000 };
    return count_multiplications(plan) < SMALL_FORWARD ? 1 : plan->device->threads;
}

static void enter(const fth_plan *plan)
{
    if (plan->device->backend->enter)
        plan->device->backend->enter(plan->device, plan->threads);
}

fth_status fth_plan_create(const fth_graph *graph, fth_device *device, fth_plan_options options, fth_plan **plan)
{
    fth_status status = FTH_OK;
    fth_plan *made = NULL;
    FTH_REQUIRE(options.batch >= 1 && options.batch <= INT_MAX, FTH_INVALID, "a batch of %lld is not possible",
                (long long)options.batch);
    FTH_TRY(device->backend->check_precision(device, options.precision));
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->graph = graph;
    made->device = device;
    made->options = options;
    made->node_count =
        options.mode == FTH_PLAN_TRAIN ? fth_graph_node_count(graph) : fth_graph_forward_node_count(graph);
    made->threads = choose_threads(made);
    enter(made);
    FTH_TRY(add_main_values(made));
    FTH_TRY(prepare_nodes(made));
    FTH_TRY(place_values(made));
    if (options.mode == FTH_PLAN_TRAIN)
        FTH_TRY(find_ready_ranges(made));
    *plan = made;
    made = NULL;
out:
    fth_plan_free(made);
    return status;
}

static void release_step(const fth_step *step)
{
    if (step->release)
        step->release(step->state);
    else
        free(step->state);
}

static void drop_recording(fth_plan *plan, int which)
{
    if (plan->captured[which])
        plan->device->backend->capture_free(plan->device, plan->captured[which]);
    plan->captured[which] = NULL;
}

static void drop_recordings(fth_plan *plan)
{
    drop_recording(plan, 0);
    drop_recording(plan, 1);
}

void fth_plan_free(fth_plan *plan)
{
    if (!plan)
        return;
    drop_recordings(plan);
    for (size_t s = 0; s < plan->step_count; s++)
        release_step(&plan->steps[s].step);
    for (size_t v = 0; v < plan->value_count; v++)
        free(plan->values[v].layout);
    free(plan->steps);
    free(plan->values);
    free(plan->area_of);
    free(plan);
}

/* ---- binding and running ---- */

size_t fth_plan_arena_bytes(const fth_plan *plan)
{
    return plan->arena_bytes;
}

fth_status fth_plan_bind(fth_plan *plan, void *arena, fth_vectors vectors)
{
    fth_status status = FTH_OK;
    float *const bases[] = {[FTH_IN_PARAMETERS] = vectors.parameters,
                            [FTH_IN_GRADIENTS] = vectors.gradients,
                            [FTH_IN_BUFFERS] = vectors.buffers};
    enter(plan);
    drop_recordings(plan); /* they hold the old addresses */
    for (size_t v = 0; v < plan->value_count; v++) {
        fth_plan_value root = root_of(plan, (fth_plan_value)v);
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
    plan->bound = true;
out:
    return status;
}

fth_status fth_plan_set_input(fth_plan *plan, fth_value input, const void *host)
{
    assert(plan->bound && fth_graph_value(plan->graph, input)->kind == FTH_VALUE_INPUT);
    const fth_backend *backend = plan->device->backend;
    return (backend->copy_batch ? backend->copy_batch : backend->copy_in)(plan->device, plan->values[input].data, host,
                                                                          plan->values[input].size_bytes);
}

fth_status fth_plan_gather_input(fth_plan *plan, fth_value input, const fth_gather *gather)
{
    assert(plan->bound && fth_graph_value(plan->graph, input)->kind == FTH_VALUE_INPUT);
    assert(gather->count == plan->options.batch);
    enter(plan);
    return plan->device->backend->gather(plan->device, gather, plan->values[input].data);
}

fth_status fth_plan_read_loss(fth_plan *plan, float loss[2])
{
    if (!plan->device->backend->read_loss)
        return fth_plan_get_output(plan, fth_graph_loss(plan->graph), loss);
    enter(plan);
    return plan->device->backend->read_loss(plan->device, loss);
}

fth_status fth_plan_get_output(fth_plan *plan, fth_value output, float *host)
{
    assert(plan->bound && plan->values[output].last_reader == INT_MAX);
    return plan->device->backend->copy_out(plan->device, host, plan->values[output].data,
                                           plan->values[output].size_bytes);
}

static fth_status run_steps(fth_plan *plan, const fth_run *run)
{
    fth_status status = FTH_OK;
    for (size_t s = 0; s < plan->step_count; s++) {
        const plan_step *at = &plan->steps[s];
        status = at->step.run(at->step.state, run);
        if (status != FTH_OK)
            return fth_fail_within(status, "running %s", at->step.name);
        if (at->ready_floats && run->gradients_ready)
            run->gradients_ready(run->gradients_context, at->ready_floats);
    }
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

/* Records the steps, and the update behind them if the run has one. */
static fth_status record(fth_plan *plan, const fth_run *run, void **captured)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = plan->device->backend;
    char message[1024] = ""; /* of the step that failed: ending the capture may fail too, for that reason */

    FTH_TRY(backend->capture_begin(plan->device));
    status = run_steps(plan, run);
    if (status == FTH_OK && run->updater)
        status = backend->updater_queue(run->updater, plan->values[fth_graph_loss(plan->graph)].data);
    if (status != FTH_OK)
        snprintf(message, sizeof message, "%s", fth_error_message());
    fth_status ended = backend->capture_end(plan->device, captured); /* also after a failure */
    if (status != FTH_OK && *captured) {                             /* a part only, never to be run */
        backend->capture_free(plan->device, *captured);
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
    const fth_backend *backend = plan->device->backend;
    assert(plan->bound && (!run->updater || (!run->step_seconds && !run->gradients_ready)));
    enter(plan);
    if (run->step_seconds)
        return run_timed(plan, run);
    if (!backend->capture_begin || run->gradients_ready)
        return run_steps(plan, run);
    int which = run->updater != NULL;
    if (run->updater && plan->updater != run->updater) {
        drop_recording(plan, which);
        plan->updater = run->updater;
    }
    if (!plan->captured[which])
        FTH_TRY(record(plan, run, &plan->captured[which]));
    FTH_TRY(backend->capture_replay(plan->device, plan->captured[which], run));
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

/* ---- for kernels ---- */

fth_status fth_plan_add_step(fth_plan *plan, const fth_step *step)
{
    fth_status status = fth_grow(&plan->steps, plan->step_count, &plan->step_capacity, sizeof *plan->steps);
    if (status != FTH_OK) {
        release_step(step);
        return status;
    }
    plan->steps[plan->step_count++] = (plan_step){.step = *step};
    return FTH_OK;
}

fth_device *fth_plan_device(const fth_plan *plan)
{
    return plan->device;
}

fth_plan_options fth_plan_get_options(const fth_plan *plan)
{
    return plan->options;
}

const fth_graph *fth_plan_graph(const fth_plan *plan)
{
    return plan->graph;
}

fth_plan_value fth_plan_value_of(const fth_plan *plan, fth_value value)
{
    (void)plan; /* numbers are the same */
    return value;
}

fth_status fth_plan_add_value(fth_plan *plan, fth_plan_value *value)
{
    fth_status status = fth_grow(&plan->values, plan->value_count, &plan->value_capacity, sizeof *plan->values);
    if (status != FTH_OK)
        return status;
    plan->values[plan->value_count] = (plan_value){.alias_of = -1, .copy_of = -1, .last_reader = -1};
    *value = (fth_plan_value)plan->value_count++;
    return FTH_OK;
}

fth_type fth_plan_type(const fth_plan *plan, fth_value value)
{
    fth_type type = fth_graph_value(plan->graph, value)->type;
    type.shape = fth_shape_with_batch(&type.shape, plan->options.batch);
    return type;
}

const void *fth_plan_layout(const fth_plan *plan, fth_plan_value value)
{
    return plan->values[value].layout;
}

fth_status fth_plan_set_layout(fth_plan *plan, fth_plan_value value, const void *layout, size_t layout_size,
                               size_t size_bytes)
{
    void *copy = malloc(layout_size);
    if (!copy)
        return fth_fail(FTH_NO_MEMORY, "no memory for a layout");
    memcpy(copy, layout, layout_size);
    free(plan->values[value].layout);
    plan->values[value].layout = copy;
    plan->values[value].size_bytes = size_bytes;
    return FTH_OK;
}

void fth_plan_note_copy(fth_plan *plan, fth_plan_value copy, fth_plan_value of)
{
    plan->values[copy].copy_of = of;
}

fth_plan_value fth_plan_next_copy(const fth_plan *plan, fth_plan_value of, fth_plan_value previous)
{
    for (size_t v = (size_t)(previous + 1); v < plan->value_count; v++) {
        if (plan->values[v].copy_of == of)
            return (fth_plan_value)v;
    }
    return -1;
}

bool fth_plan_dies_here(const fth_plan *plan, fth_value value)
{
    if (fth_graph_value(plan->graph, value)->kind != FTH_VALUE_RESULT)
        return false;
    fth_plan_value root = root_of(plan, value);
    if (plan->values[root].storage != FTH_IN_ARENA)
        return false;
    /* Everything that shares the memory must be done with it too. */
    for (int v = 0; v < fth_graph_value_count(plan->graph); v++) {
        if (root_of(plan, v) == root && plan->values[v].last_reader > plan->current_node)
            return false;
    }
    return root < fth_graph_value_count(plan->graph); /* a copy may have readers of its own */
}

void fth_plan_alias(fth_plan *plan, fth_plan_value value, fth_plan_value of)
{
    assert(plan->values[value].alias_of < 0 && root_of(plan, of) != value);
    plan->values[value].alias_of = of;
}

bool fth_plan_is_used(const fth_plan *plan, fth_value value)
{
    return plan->values[value].last_reader > plan->current_node || plan->values[value].storage == FTH_IN_GRADIENTS;
}

fth_storage fth_plan_storage(const fth_plan *plan, fth_plan_value value)
{
    return plan->values[root_of(plan, value)].storage;
}

void *fth_plan_data(const fth_plan *plan, fth_plan_value value)
{
    return plan->values[value].data;
}
