/* pointwise: an expression of inputs that are broadcast, in whatever layout those of the result's
 * shape share: plain, channels last, or blocks of channels, whose padding stays 0.
 *
 * The result's elements are computed in the order in which they lie, a chunk at a time. */
#include "backend/cpu/expression_walk.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct pointwise_step {
    expression_walk walk;
    walk_axes rows; /* outside of a row */
    int64_t blocks; /* of channels; every blocks-th part of the rows ends with padding */
    int64_t rows_of_block;
    bool same[FTH_EXPRESSION_INPUTS]; /* it has its elements in the order of the result */
    bool narrow;                      /* the result is stored as bf16 */
    int threads;
    void *result;
    fth_plan_value inputs[FTH_EXPRESSION_INPUTS], value;
} pointwise_step;

static fth_status bind_step(void *state, const fth_plan *plan)
{
    pointwise_step *step = state;
    for (int i = 0; i < step->walk.input_count; i++)
        step->walk.data[i] = fth_plan_data(plan, step->inputs[i]);
    step->result = fth_plan_data(plan, step->value);
    return FTH_OK;
}

/* ---- running ---- */

/* How many numbers of each block are not padding in row `row`. */
static int64_t kept_in(const pointwise_step *step, int64_t row)
{
    const bool is_last =
        step->walk.kept < step->walk.block && row / step->rows_of_block % step->blocks == step->blocks - 1;
    return is_last ? step->walk.kept : step->walk.block;
}

/* Computes `count` numbers from number `at` of row `row` on: of that row, or of `rows` whole
 * ones. */
static void run_chunk(const pointwise_step *step, int64_t row, int64_t rows, int64_t at, int64_t count,
                      walk_place *place, walk_buffers *buffers)
{
    const expression_walk *walk = &step->walk;
    const int64_t first = row * walk->row + at;
    const float *inputs[FTH_EXPRESSION_INPUTS] = {NULL};
    float *result = step->narrow ? buffers->result : (float *)step->result + first;

    for (int i = 0; i < walk->input_count; i++) {
        if (step->same[i])
            inputs[i] = walk_get_contiguous(walk, i, first, count, buffers->inputs[i]);
        else if (rows == 1)
            inputs[i] = walk_get(walk, i, place->offsets[i], at, count, kept_in(step, row), buffers);
        else
            inputs[i] = buffers->inputs[i];
    }
    for (int64_t r = 0; r < rows && rows > 1; r++) {
        for (int i = 0; i < walk->input_count; i++)
            if (!step->same[i])
                walk_copy(walk, i, place->offsets[i], 0, walk->row, kept_in(step, row + r),
                          buffers->inputs[i] + r * walk->row);
        walk_advance(&step->rows, place);
    }
    walk->kernels->evaluate(&walk->program, inputs, buffers->numbers[0], buffers->slots[0], count, result);
    for (int64_t r = 0; r < rows; r++)
        if (kept_in(step, row + r) < walk->block)
            walk->kernels->pad(result + r * walk->row, rows == 1 ? count : walk->row, walk->block, walk->kept);
    if (step->narrow)
        walk->kernels->narrow(result, count, (uint16_t *)step->result + first);
}

/* A task is a part of a row that is long, or some rows: about 16,000 numbers. */
static int64_t task_size(const pointwise_step *step)
{
    enum { CHUNKS = 32 };
    return CHUNKS * walk_chunk(&step->walk);
}

static void run_task(const pointwise_step *step, int64_t task, walk_buffers *buffers)
{
    const int64_t size = step->walk.row, chunk = walk_chunk(&step->walk), most = task_size(step);
    const int64_t parts = (size + most - 1) / most, rows = parts > 1 ? 1 : most / size,
                  together = size <= EXPRESSION_CHUNK / 2 ? EXPRESSION_CHUNK / size : 1;
    const int64_t first = parts > 1 ? task / parts : task * rows;
    const int64_t end = first + rows < step->rows.count ? first + rows : step->rows.count;
    const int64_t begin_at = parts > 1 ? task % parts * most : 0;
    const int64_t end_at = begin_at + most < size ? begin_at + most : size;
    walk_place place;
    walk_locate(&step->rows, first, &place);
    if (together > 1) {
        for (int64_t row = first; row < end; row += together) {
            const int64_t count = end - row < together ? end - row : together;
            run_chunk(step, row, count, 0, count * size, &place, buffers);
            if (count == 1)
                walk_advance(&step->rows, &place);
        }
        return;
    }
    for (int64_t row = first; row < end; row++, walk_advance(&step->rows, &place))
        for (int64_t at = begin_at; at < end_at; at += chunk)
            run_chunk(step, row, 1, at, end_at - at < chunk ? end_at - at : chunk, &place, buffers);
}

static fth_status run_step(void *state, const fth_run *run)
{
    const pointwise_step *step = state;
    const int64_t size = step->walk.row, rows = step->rows.count, most = task_size(step);
    const int64_t parts = (size + most - 1) / most;
    const int64_t tasks = parts > 1 ? rows * parts : (rows + most / size - 1) / (most / size);
    (void)run;
#pragma omp parallel num_threads(step->threads) if (tasks > 1 && step->threads > 1)
    {
        walk_buffers buffers;
        walk_begin(&step->walk, &buffers);
#pragma omp for schedule(static)
        for (int64_t task = 0; task < tasks; task++)
            run_task(step, task, &buffers);
    }
    return FTH_OK;
}

/* ---- preparing ---- */

static bool has_shape(const cpu_format *layout, const fth_shape *shape)
{
    bool same = layout->ndims == shape->rank;
    for (int i = 0; i < shape->rank && same; i++)
        same = layout->dims[i] == shape->dims[i];
    return same;
}

/* The layout of the first input of the result's shape that is not plain, in any dtype. */
cpu_format cpu_expression_base(const fth_plan *plan, const fth_node *node, const fth_shape *shape)
{
    for (int i = 0; i < node->input_count; i++) {
        const cpu_format *layout = cpu_layout(plan, fth_plan_value_of(plan, node->inputs[i]));
        if (has_shape(layout, shape) && walk_knows(layout) && !cpu_is_plain(layout))
            return *layout;
    }
    return cpu_plain(shape, dnnl_f32);
}

void cpu_expression_name(const fth_node *node, const fth_expression *expression, char *name, size_t size)
{
    int length = snprintf(name, size, "%s", node->op->name);
    for (int s = 0; s < expression->step_count && length < (int)size - 24; s++)
        length += snprintf(name + length, size - (size_t)length, "%s %s", s > 0 ? "," : "",
                           fth_expression_function_name((fth_expression_function)expression->steps[s].function));
}

/* Splits the dimensions into axes outside of rows and a row. */
static void make_rows(pointwise_step *step, const walk_dimension *dimensions, int count, const cpu_format *base)
{
    expression_walk *walk = &step->walk;
    const bool padded = base->block > 1 && base->padded_dims[1] != base->dims[1];
    walk_axes all = {0};
    int inside = 1;

    for (int i = 0; i < count; i++) {
        const bool is_apart = padded && i > 0 && (dimensions[i].axis == 1 || dimensions[i - 1].axis == 1);
        walk_dimension d = dimensions[i];
        if (is_apart && all.rank > 0) { /* blocks of channels, what is in them, and pixels are not joined */
            walk_axes single = {0};
            walk_add_axis(&single, &d);
            all.count *= d.size;
            all.sizes[all.rank] = d.size;
            for (int k = 0; k < WALK_OPERANDS; k++)
                all.strides[k][all.rank] = d.strides[k];
            all.rank++;
        } else {
            walk_add_axis(&all, &d);
        }
    }
    if (all.rank == 0)
        walk_add_axis(&all, &(walk_dimension){.size = 1});
    if (all.rank > 1 && all.sizes[all.rank - 1] <= WALK_BLOCK)
        inside = 2;
    walk->block = all.sizes[all.rank - 1];
    walk->row = inside == 2 ? walk->block * all.sizes[all.rank - 2] : walk->block;
    for (int k = 0; k < WALK_OPERANDS; k++) {
        walk->row_strides[k][1] = all.strides[k][all.rank - 1];
        walk->row_strides[k][0] = inside == 2 ? all.strides[k][all.rank - 2] : 0;
    }
    step->rows = all;
    step->rows.rank -= inside;
    step->rows.count = all.count / walk->row;
    walk->kept = walk->block;
    step->blocks = step->rows_of_block = 1;
    if (padded) {
        step->blocks = base->padded_dims[1] / base->block;
        step->rows_of_block = step->rows.count / (base->dims[0] * step->blocks);
        walk->kept = base->dims[1] - (step->blocks - 1) * base->block;
    }
}

static fth_status add_inputs(fth_plan *plan, const fth_node *node, const fth_shape *shape, const cpu_format *base,
                             pointwise_step *state, fth_step *step)
{
    fth_status status = FTH_OK;
    walk_dimension dimensions[WALK_AXES];
    const int count = walk_list_dimensions(base, shape, dimensions);

    for (int i = 0; i < node->input_count; i++) {
        FTH_TRY(walk_read(plan, node->inputs[i], shape, base, &state->inputs[i]));
        const cpu_format *layout = cpu_layout(plan, state->inputs[i]);
        state->walk.types[i] = walk_type_of(layout);
        walk_set_strides(dimensions, count, shape, base, layout, i);
        const cpu_format like = cpu_like(base, shape, layout->data_type == dnnl_s32 ? dnnl_f32 : layout->data_type);
        state->same[i] = layout->data_type != dnnl_s32 && cpu_format_equal(&like, layout);
        step->reads[step->read_count++] = state->inputs[i];
    }
    make_rows(state, dimensions, count, base);
out:
    return status;
}

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_pointwise_attributes *a = node->attributes;
    const fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    const fth_plan_value y = fth_plan_value_of(plan, node->outputs[0]);
    const cpu_format base = cpu_layout(plan, y) ? *cpu_layout(plan, y) : cpu_expression_base(plan, node, &shape);
    const cpu_format layout = cpu_layout(plan, y) ? base : cpu_like(&base, &shape, cpu_compute_dtype(plan));
    fth_step step = {.bind = bind_step, .run = run_step, .release = free};
    pointwise_step *state = NULL;

    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    fth_program_compile(&a->expression, &state->walk.program);
    state->walk.kernels = cpu_level_of(plan)->expression;
    state->walk.input_count = node->input_count;
    state->threads = fth_plan_threads(plan);
    FTH_TRY(add_inputs(plan, node, &shape, &layout, state, &step));
    FTH_TRY(cpu_begin_write(plan, y, &layout, &state->value));
    state->narrow = layout.data_type == dnnl_bf16;
    for (int i = 0, over = 0; i < node->input_count && over < 2; i++) {
        if (!state->same[i] || cpu_layout(plan, state->inputs[i])->data_type != layout.data_type)
            continue;
        fth_plan_may_overwrite(plan, state->value, state->inputs[i]);
        over++;
    }
    step.writes[step.write_count++] = state->value;
    cpu_expression_name(node, &a->expression, step.name, sizeof step.name);
    step.state = state;
    state = NULL;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    free(state);
    return status;
}

const fth_kernel cpu_pointwise = {&fth_op_pointwise, prepare};
