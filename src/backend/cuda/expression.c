/* pointwise and reduce: expressions of values in whatever layout each has (expression.cu). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/expression_kernels.h"
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/recording.h"
#include "backend/cuda/step.h"

_Static_assert((int)CUDA_MAX_AXES == (int)FTH_MAX_RANK, "axes of both kinds are as many");

typedef struct expression_step {
    cuda_device *device;
    cuda_expression expression;
    fth_plan_value inputs[FTH_EXPRESSION_INPUTS], scratch, result;
    void *scratch_data, *result_data;
} expression_step;

static fth_status bind_step(void *state, const fth_plan *plan)
{
    expression_step *step = state;
    for (int i = 0; i < step->expression.input_count; i++)
        step->expression.inputs[i] = fth_plan_data(plan, step->inputs[i]);
    step->result_data = fth_plan_data(plan, step->result);
    step->scratch_data = fth_plan_value_exists(step->scratch) ? fth_plan_data(plan, step->scratch) : NULL;
    return FTH_OK;
}

static fth_status run_step(void *state, const fth_run *run)
{
    fth_status status = FTH_OK;
    const expression_step *step = state;
    FTH_TRY(cuda_set_run_values(step->device, run));
    if (step->expression.reduced.rank == 0)
        FTH_TRY(cuda_status(cuda_launch_pointwise(&step->device->launch, &step->expression, step->result_data),
                            "launching a kernel"));
    else
        FTH_TRY(cuda_status(
            cuda_launch_reduce(&step->device->launch, &step->expression, step->scratch_data, step->result_data),
            "launching a kernel"));
out:
    return status;
}

/* How far apart the elements of a value lie along the axes of its own shape. */
static void find_strides(const cuda_layout *layout, const fth_shape *shape, int64_t strides[FTH_MAX_RANK])
{
    if (layout->nhwc) {
        const int64_t channels = layout->channels;
        strides[0] = layout->h * layout->w * channels;
        strides[1] = 1;
        strides[2] = layout->w * channels;
        strides[3] = channels;
        return;
    }
    int64_t stride = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= shape->dims[i];
    }
}

/* The same along the axes of `whole`, to which it is broadcast. */
static void broadcast_strides(const cuda_layout *layout, const fth_shape *shape, const fth_shape *whole,
                              int64_t strides[FTH_MAX_RANK])
{
    int64_t own[FTH_MAX_RANK] = {0};
    find_strides(layout, shape, own);
    for (int i = 1; i <= whole->rank; i++)
        strides[whole->rank - i] = i <= shape->rank && shape->dims[shape->rank - i] != 1 ? own[shape->rank - i] : 0;
}

/* Adds an axis behind the others; joins it with the one before if every input goes through both as
 * through one. */
static void add_axis(cuda_axes *axes, int inputs, int64_t size, int64_t strides[][FTH_MAX_RANK], int axis, bool joins)
{
    const int last = axes->rank - 1;
    axes->count *= size;
    if (size == 1 && axes->rank > 0)
        return;
    joins = joins && last >= 0;
    for (int i = 0; i < inputs; i++)
        joins = joins && (axes->sizes[last] == 1 || axes->strides[i][last] == strides[i][axis] * size);
    const int to = joins ? last : axes->rank++;
    axes->sizes[to] = joins ? axes->sizes[to] * size : size;
    for (int i = 0; i < inputs; i++)
        axes->strides[i][to] = strides[i][axis];
}

/* The axes of `whole` that `which` names, in the order of the result's layout: with channels last,
 * axis 1 is. */
static void list_axes(cuda_axes *axes, const fth_shape *whole, unsigned which, int inputs,
                      int64_t strides[][FTH_MAX_RANK], int last_axis, int64_t last_size)
{
    *axes = (cuda_axes){.count = 1};
    for (int axis = 0; axis < whole->rank; axis++)
        if (which >> axis & 1 && axis != last_axis)
            add_axis(axes, inputs, whole->dims[axis], strides, axis, true);
    if (last_axis >= 0 && which >> last_axis & 1)
        add_axis(axes, inputs, last_size, strides, last_axis, last_size == whole->dims[last_axis]);
}

/* The axis of `whole` that is axis 1 of the result, whose layout has it last; -1: it is not. */
static int find_last_axis(const cuda_layout *layout, const fth_shape *whole, unsigned dropped)
{
    int seen = 0;
    for (int axis = 0; layout->nhwc && axis < whole->rank; axis++)
        if ((dropped >> axis & 1) == 0 && seen++ == 1)
            return axis;
    return -1;
}

static fth_status prepare(fth_plan *plan, const fth_node *node, const fth_expression *expression,
                          const fth_shape *whole, unsigned reduced, unsigned dropped, fth_reduction reduction)
{
    fth_status status = FTH_OK;
    const fth_value y = node->outputs[0];
    const cuda_layout layout = cuda_standard(plan, y);
    const int last_axis = find_last_axis(&layout, whole, dropped);
    int64_t strides[FTH_EXPRESSION_INPUTS][FTH_MAX_RANK] = {{0}};
    expression_step *state = NULL;
    fth_step step = {.bind = bind_step, .run = run_step, .release = free};

    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    cuda_expression *e = &state->expression;
    state->device = cuda_device_of(plan);
    state->scratch = FTH_NO_PLAN_VALUE;
    fth_program_compile(expression, &e->program);
    e->input_count = node->input_count;
    e->type = (int)layout.type;
    e->reduction = (int)reduction;
    for (int i = 0; i < node->input_count; i++) {
        const fth_type type = fth_plan_type(plan, node->inputs[i]);
        if (type.dtype == FTH_I32)
            state->inputs[i] = fth_plan_value_of(plan, node->inputs[i]);
        else
            FTH_TRY(cuda_read(plan, node->inputs[i], &state->inputs[i]));
        const cuda_layout *own = cuda_layout_of(plan, state->inputs[i]);
        e->types[i] = (int)own->type;
        broadcast_strides(own, &type.shape, whole, strides[i]);
        step.reads[step.read_count++] = state->inputs[i];
    }
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, y), &layout, &state->result));
    e->channels = layout.nhwc ? layout.channels : 1;
    e->logical = layout.nhwc ? layout.c : 1;
    list_axes(&e->axes, whole, ~reduced, e->input_count, strides, last_axis, e->channels);
    if (reduced != 0) {
        list_axes(&e->reduced, whole, reduced, e->input_count, strides, -1, 0);
        FTH_TRY(cuda_add_scratch(plan, cuda_reduce_floats(&state->device->launch, e) * sizeof(float), &state->scratch));
        step.writes[step.write_count++] = state->scratch;
    }
    step.writes[step.write_count++] = state->result;
    snprintf(step.name, sizeof step.name, "%s", node->op->name);
    const fth_plan_value result = state->result;
    step.state = state;
    state = NULL;
    FTH_TRY(fth_plan_add_step(plan, &step));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, y), result));
out:
    free(state);
    return status;
}

static fth_status prepare_pointwise(fth_plan *plan, const fth_node *node)
{
    const fth_pointwise_attributes *a = node->attributes;
    const fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    return prepare(plan, node, &a->expression, &shape, 0, 0, FTH_REDUCE_SUM);
}

static fth_status prepare_reduce(fth_plan *plan, const fth_node *node)
{
    const fth_reduce_attributes *a = node->attributes;
    fth_shape whole = {0};
    for (int i = 0; i < node->input_count; i++) {
        const fth_shape shape = fth_plan_type(plan, node->inputs[i]).shape;
        (void)fth_shape_broadcast(&whole, &shape);
    }
    return prepare(plan, node, &a->expression, &whole, a->axes, a->axes & ~a->kept, a->reduction);
}

const fth_kernel cuda_pointwise = {&fth_op_pointwise, prepare_pointwise};
const fth_kernel cuda_reduce = {&fth_op_reduce, prepare_reduce};
