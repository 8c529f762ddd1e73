/* Creates plans: a graph bound to a device, a batch and a mode.
 *
 * Creating a plan walks the nodes once. Each node's kernel sets the layouts of its results and adds
 * steps that say which values they read and write; lifetimes follow from these, and every arena
 * value gets its place (plan_memory.c). Running is in plan_run.c. */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "backend/plan_internal.h"

/* ---- creating ---- */

fth_plan_value fth_plan_root(const fth_plan *plan, fth_plan_value value)
{
    while (fth_plan_value_exists(plan->values[value.index].alias_of))
        value = plan->values[value.index].alias_of;
    return value;
}

void fth_plan_enter(const fth_plan *plan)
{
    plan->device->backend->enter(plan->device, plan->threads);
}

static fth_status add_main_values(fth_plan *plan)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = plan->device->backend;
    for (fth_value v = 0; v < fth_graph_value_count(plan->graph); v++) {
        const fth_value_info *info = fth_graph_value(plan->graph, v);
        fth_plan_value added;
        FTH_TRY(fth_plan_add_value(plan, &added));
        assert(added.index == v);
        plan_value *value = &plan->values[added.index];
        if (info->kind == FTH_VALUE_PARAMETER) {
            value->storage = FTH_IN_PARAMETERS;
            value->vector_offset = info->offset;
        } else if (info->kind == FTH_VALUE_BUFFER) {
            value->storage = FTH_IN_BUFFERS;
            value->vector_offset = info->offset;
        } else if (info->kind == FTH_VALUE_CONSTANT) {
            value->storage = FTH_IN_CONSTANTS;
            value->vector_offset = plan->constant_floats;
            plan->constant_floats +=
                fth_align_up((size_t)fth_shape_count(&info->type.shape), FTH_ALIGNMENT / sizeof(float));
        } else if (info->gradient_of != FTH_NO_VALUE) {
            value->storage = FTH_IN_GRADIENTS;
            value->vector_offset = fth_graph_value(plan->graph, info->gradient_of)->offset;
        }
        bool output = v == fth_graph_loss(plan->graph) || v == fth_graph_logits(plan->graph);
        if (output)
            value->last_reader = INT_MAX;
        if (output || info->kind != FTH_VALUE_RESULT || value->storage == FTH_IN_GRADIENTS)
            FTH_TRY(backend->describe_plain(plan, v));
    }
out:
    return status;
}

/* True if a later node, which is needed, reads one of the node's results, or the plan keeps one; or
 * if the node changes buffers. Others are left out. */
static bool is_needed(const fth_plan *plan, const fth_node *node)
{
    for (int i = 0; i < node->output_count; i++) {
        const plan_value *value = &plan->values[node->outputs[i]];
        if (value->last_reader >= 0 || value->storage == FTH_IN_GRADIENTS)
            return true;
    }
    for (int i = 0; i < node->input_count; i++)
        if (fth_graph_value(plan->graph, node->inputs[i])->kind == FTH_VALUE_BUFFER)
            return true;
    return false;
}

/* From the last node to the first: those that read a value are known before the one that computes
 * it. */
static fth_status find_readers(fth_plan *plan)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_allocate((size_t)plan->node_count, sizeof *plan->needed, &plan->needed));
    for (int n = plan->node_count; n-- > 0;) {
        const fth_node *node = fth_graph_node(plan->graph, n);
        plan->needed[n] = is_needed(plan, node);
        for (int i = 0; plan->needed[n] && i < node->input_count; i++) {
            int *last = &plan->values[node->inputs[i]].last_reader;
            *last = *last < 0 ? n : *last;
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
        fth_status status = fth_plan_check_time(plan->options.deadline, plan->options.stop);
        if (status != FTH_OK)
            return status;
        if (!plan->needed[n])
            continue;
        if (!kernel)
            return fth_fail(FTH_UNSUPPORTED, "back end '%s' has no kernel for %s", backend->name, node->op->name);
        plan->current_node = n;
        status = kernel->prepare(plan, node);
        if (status != FTH_OK)
            return fth_fail_within(status, "planning %s (node %d)", node->op->name, n);
    }
    return FTH_OK;
}

/* Describes the values and has the kernels add their steps. */
static fth_status build(fth_plan *plan)
{
    fth_status status = FTH_OK;
    const fth_backend_planning *planning = plan->device->backend->planning;
    if (planning)
        FTH_TRY(planning->plan_begin(plan, &plan->notes));
    status = add_main_values(plan);
    if (status == FTH_OK)
        status = find_readers(plan);
    if (status == FTH_OK)
        status = prepare_nodes(plan);
    if (planning) {
        fth_status ended = planning->plan_end(plan, plan->notes, status != FTH_OK);
        status = status != FTH_OK ? status : ended;
        plan->notes = NULL;
    }
out:
    return status;
}

/* Multiplications by weights in a forward pass: each output takes a whole row of the weights (O,
 * ...). */
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

/* Waking and joining threads costs about 10 µs a step, and a second thread competes with the
 * loader: a plan of less than a quarter of a millisecond is as fast on one. Decided by arithmetic
 * and not by a clock, so that a resumed run does the same. Measured (2 cores, loader running):
 * cifar-cnn with batch 4, 2.6 million multiplications, trains at 18,800 samples/s on one thread and
 * 13,400 on two; with batch 64 at 23,500 and 41,800. */
static int choose_threads(const fth_plan *plan)
{
    enum { SMALL_FORWARD = 5000000 };
    return count_multiplications(plan) < SMALL_FORWARD ? 1 : plan->device->threads;
}

int64_t fth_text_capacity(int64_t tokens)
{
    int64_t unit = 16;
    while (unit * 2 <= tokens / 16)
        unit *= 2;
    return (tokens + unit - 1) / unit * unit;
}

fth_status fth_plan_create(const fth_graph *graph, fth_device *device, fth_plan_options options, fth_plan **plan)
{
    fth_status status = FTH_OK;
    fth_plan *made = NULL;
    FTH_REQUIRE(options.batch >= 1 && options.batch <= INT_MAX, FTH_INVALID,
                "batch size %lld is out of range; use 1 to %d", (long long)options.batch, INT_MAX);
    FTH_REQUIRE(options.tokens >= 0 && options.tokens <= INT_MAX, FTH_INVALID,
                "%lld tokens in a batch are out of range; use 0 to %d", (long long)options.tokens, INT_MAX);
    FTH_TRY(device->backend->check_precision(device, options.precision));
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->graph = graph;
    made->device = device;
    made->options = options;
    made->node_count =
        options.mode == FTH_PLAN_TRAIN ? fth_graph_node_count(graph) : fth_graph_forward_node_count(graph);
    made->threads = options.threads > 0 ? options.threads : choose_threads(made);
    fth_plan_enter(made);
    FTH_TRY(build(made));
    FTH_TRY(fth_plan_place_values(made));
    if (options.mode == FTH_PLAN_TRAIN)
        FTH_TRY(fth_plan_find_ready_ranges(made));
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

void fth_plan_free(fth_plan *plan)
{
    if (!plan)
        return;
    fth_plan_drop_recordings(plan);
    for (size_t s = 0; s < plan->step_count; s++)
        release_step(&plan->steps[s].step);
    for (size_t v = 0; v < plan->value_count; v++)
        free(plan->values[v].layout);
    if (plan->constants)
        plan->device->backend->release(plan->device, plan->constants);
    free(plan->steps);
    free(plan->values);
    free(plan->area_of);
    free(plan->needed);
    free(plan);
}

/* ---- for kernels ---- */

fth_status fth_plan_add_step(fth_plan *plan, const fth_step *step)
{
    fth_status status = fth_grow(&plan->steps, plan->step_count, &plan->step_capacity, sizeof *plan->steps);
    if (status != FTH_OK) {
        release_step(step);
        return status;
    }
    plan->steps[plan->step_count++] = (plan_step){.step = *step, .node = plan->current_node};
    return FTH_OK;
}

fth_device *fth_plan_device(const fth_plan *plan)
{
    return plan->device;
}

int fth_plan_threads(const fth_plan *plan)
{
    return plan->threads;
}

fth_plan_options fth_plan_get_options(const fth_plan *plan)
{
    return plan->options;
}

const fth_graph *fth_plan_graph(const fth_plan *plan)
{
    return plan->graph;
}

void *fth_plan_notes(const fth_plan *plan)
{
    return plan->notes;
}

fth_plan_value fth_plan_value_of(const fth_plan *plan, fth_value value)
{
    (void)plan; /* the indices are the same */
    return (fth_plan_value){value};
}

fth_status fth_plan_add_value(fth_plan *plan, fth_plan_value *value)
{
    fth_status status = fth_grow(&plan->values, plan->value_count, &plan->value_capacity, sizeof *plan->values);
    if (status != FTH_OK)
        return status;
    plan->values[plan->value_count] =
        (plan_value){.alias_of = FTH_NO_PLAN_VALUE, .copy_of = FTH_NO_PLAN_VALUE, .last_reader = -1};
    *value = (fth_plan_value){(int32_t)plan->value_count++};
    return FTH_OK;
}

fth_type fth_plan_type(const fth_plan *plan, fth_value value)
{
    fth_type type = fth_graph_value(plan->graph, value)->type;
    type.shape = fth_shape_with_batch(&type.shape, plan->options.batch);
    type.shape = fth_shape_with_tokens(&type.shape, plan->options.tokens);
    return type;
}

int64_t fth_plan_graph_rows(const fth_plan *plan, fth_value value)
{
    const fth_shape *shape = &fth_graph_value(plan->graph, value)->type.shape;
    return shape->rank > 0 ? shape->dims[0] : 1;
}

const void *fth_plan_layout(const fth_plan *plan, fth_plan_value value)
{
    return plan->values[value.index].layout;
}

fth_status fth_plan_set_layout(fth_plan *plan, fth_plan_value value, const void *layout, size_t layout_size,
                               size_t size_bytes)
{
    void *copy = malloc(layout_size);
    if (!copy)
        return fth_fail(FTH_NO_MEMORY, "no memory for a layout");
    memcpy(copy, layout, layout_size);
    free(plan->values[value.index].layout);
    plan->values[value.index].layout = copy;
    plan->values[value.index].size_bytes = size_bytes;
    return FTH_OK;
}

void fth_plan_note_copy(fth_plan *plan, fth_plan_value copy, fth_plan_value of)
{
    plan->values[copy.index].copy_of = of;
}

fth_plan_value fth_plan_next_copy(const fth_plan *plan, fth_plan_value of, fth_plan_value previous)
{
    for (size_t v = (size_t)(previous.index + 1); v < plan->value_count; v++) {
        if (fth_plan_value_equal(plan->values[v].copy_of, of))
            return (fth_plan_value){(int32_t)v};
    }
    return FTH_NO_PLAN_VALUE;
}

bool fth_plan_is_backward(const fth_plan *plan)
{
    return plan->current_node >= fth_graph_forward_node_count(plan->graph);
}

void fth_plan_may_overwrite(fth_plan *plan, fth_plan_value written, fth_plan_value read)
{
    if (!fth_plan_value_exists(written) || !fth_plan_value_exists(read))
        return;
    plan_value *value = &plan->values[written.index];
    assert(value->over_count < MAX_OVERWRITTEN);
    value->over[value->over_count++] = read;
}

void fth_plan_set_view(fth_plan *plan, fth_plan_value value, fth_plan_value of)
{
    assert(!fth_plan_value_exists(plan->values[value.index].alias_of) &&
           !fth_plan_value_equal(fth_plan_root(plan, of), value));
    plan->values[value.index].alias_of = of;
}

bool fth_plan_is_used(const fth_plan *plan, fth_value value)
{
    return plan->values[value].last_reader > plan->current_node || plan->values[value].storage == FTH_IN_GRADIENTS;
}

fth_storage fth_plan_storage(const fth_plan *plan, fth_plan_value value)
{
    return plan->values[fth_plan_root(plan, value).index].storage;
}

void *fth_plan_data(const fth_plan *plan, fth_plan_value value)
{
    return plan->values[value.index].data;
}
