/* reduce: sums, means, largest and smallest numbers of an expression of inputs, which are
 * broadcast.
 *
 * The axes of what is reduced are walked through as far as possible in the order in which they lie
 * (expression_walk.h): those that stay outside, then those that are reduced, then a row. A row is
 * reduced to one number, or to one for each channel of a block; or it stays, and rows are added up.
 * Results that are too few to give every thread some are made in parts.
 *
 * Sums are accurate: of at most a chunk in f32, then in double. How they are divided into parts
 * depends on sizes alone, so that the number of threads changes nothing. */
#include <math.h>
#include <stdlib.h>

#include "backend/cpu/expression_walk.h"

typedef enum row_kind {
    ROW_REDUCED, /* to one number */
    ROW_BLOCKS,  /* to one for each place in a block */
    ROW_KEPT     /* to itself */
} row_kind;

typedef struct reduce_step {
    expression_walk walk;
    walk_axes kept, reduced; /* outside of a row */
    fth_reduction reduction;
    row_kind kind;
    int64_t chunk;        /* numbers of a row that are computed at once: a multiple of blocks */
    int64_t count;        /* numbers that each result is reduced from */
    int64_t columns;      /* results of a unit, at most */
    int64_t units, parts; /* what threads do: a unit is a place in `kept`, and a chunk of a row that stays */
    int64_t blocks;       /* of channels; of the last, walk.kept are not padding */
    bool narrow;          /* the result is stored as bf16 */
    int threads;
    void *result;
    double *scratch; /* parts of results: (units, parts, columns) */
    fth_plan_value inputs[FTH_EXPRESSION_INPUTS], value, scratch_value;
} reduce_step;

static fth_status bind_step(void *state, const fth_plan *plan)
{
    reduce_step *step = state;
    for (int i = 0; i < step->walk.input_count; i++)
        step->walk.data[i] = fth_plan_data(plan, step->inputs[i]);
    step->result = fth_plan_data(plan, step->value);
    step->scratch = fth_plan_value_exists(step->scratch_value) ? fth_plan_data(plan, step->scratch_value) : NULL;
    return FTH_OK;
}

/* ---- running ---- */

static double start_of(fth_reduction reduction)
{
    return reduction == FTH_REDUCE_MAX ? -INFINITY : reduction == FTH_REDUCE_MIN ? INFINITY : 0;
}

static double combine(fth_reduction reduction, double a, double b)
{
    switch (reduction) {
    case FTH_REDUCE_MAX: return a != a || a > b ? a : b;
    case FTH_REDUCE_MIN: return a != a || a < b ? a : b;
    case FTH_REDUCE_SUM:
    case FTH_REDUCE_MEAN: break;
    }
    return a + b;
}

/* Adds `floats` to `totals`, and starts again with them. */
static void flush(fth_reduction reduction, float *floats, int64_t count, double *totals)
{
    const float start = (float)start_of(reduction);
    if (reduction == FTH_REDUCE_SUM || reduction == FTH_REDUCE_MEAN)
        for (int64_t i = 0; i < count; i++)
            totals[i] += (double)floats[i];
    else
        for (int64_t i = 0; i < count; i++)
            totals[i] = combine(reduction, totals[i], (double)floats[i]);
    for (int64_t i = 0; i < count; i++)
        floats[i] = start;
}

/* One part of a unit: chunks [begin, end) of those that are reduced. Gives `columns` numbers. */
typedef struct reduce_part {
    const reduce_step *step;
    walk_buffers *buffers;
    int64_t at, columns; /* ROW_KEPT: of the row */
    int64_t channels;    /* of a block that are not padding */
    float *floats;
    double *totals;
} reduce_part;

/* `count` numbers from `at` on of the row at those offsets: in place, or computed. */
static const float *compute(const reduce_part *part, const int64_t *offsets, int64_t at, int64_t count)
{
    const expression_walk *walk = &part->step->walk;
    const float *inputs[FTH_EXPRESSION_INPUTS] = {NULL};
    for (int i = 0; i < walk->input_count; i++)
        inputs[i] = walk_get(walk, i, offsets[i], at, count, part->channels, part->buffers);
    if (walk->program.step_count == 0 && walk->program.result < FTH_PROGRAM_NUMBERS)
        return inputs[walk->program.result];
    walk->kernels->evaluate(&walk->program, inputs, part->buffers->numbers[0], part->buffers->slots[0], count,
                            part->buffers->result);
    return part->buffers->result;
}

static void reduce_chunk(const reduce_part *part, const int64_t *offsets, int64_t at, int64_t count)
{
    const reduce_step *step = part->step;
    const expression_kernels *kernels = step->walk.kernels;
    const float *x = compute(part, offsets, at, count);
    switch (step->kind) {
    case ROW_REDUCED:
        part->totals[0] =
            combine(step->reduction, part->totals[0], (double)kernels->reduce((int)step->reduction, x, count));
        break;
    case ROW_BLOCKS:
        kernels->reduce_blocks((int)step->reduction, x, count, step->walk.block, part->floats);
        flush(step->reduction, part->floats, step->walk.block, part->totals);
        break;
    case ROW_KEPT: kernels->combine((int)step->reduction, x, count, part->floats); break;
    }
}

static void run_part(reduce_part *part, const walk_place *place, int64_t begin, int64_t end)
{
    enum { ROWS_AT_ONCE = 16 }; /* that are added up in f32 */
    const reduce_step *step = part->step;
    const int64_t chunks = step->kind == ROW_KEPT ? 1 : (step->walk.row + step->chunk - 1) / step->chunk;
    walk_place inner;

    for (int64_t i = 0; i < part->columns; i++) {
        part->totals[i] = start_of(step->reduction);
        part->floats[i] = (float)start_of(step->reduction);
    }
    walk_locate(&step->reduced, begin / chunks, &inner);
    for (int64_t n = begin; n < end; n++) {
        int64_t offsets[FTH_EXPRESSION_INPUTS];
        for (int i = 0; i < step->walk.input_count; i++)
            offsets[i] = place->offsets[i] + inner.offsets[i];
        const int64_t at = step->kind == ROW_KEPT ? part->at : n % chunks * step->chunk;
        const int64_t left = step->walk.row - at;
        reduce_chunk(part, offsets, at,
                     step->kind == ROW_KEPT ? part->columns
                     : left < step->chunk   ? left
                                            : step->chunk);
        if (step->kind == ROW_KEPT && ((n - begin) % ROWS_AT_ONCE == ROWS_AT_ONCE - 1 || n == end - 1))
            flush(step->reduction, part->floats, part->columns, part->totals);
        if ((n + 1) % chunks == 0)
            walk_advance(&step->reduced, &inner);
    }
}

static void write_results(const reduce_step *step, const double *totals, int64_t count, int64_t offset)
{
    const int64_t stride = step->walk.row_strides[WALK_RESULT][1];
    for (int64_t i = 0; i < count; i++) {
        float result = (float)(step->reduction == FTH_REDUCE_MEAN ? totals[i] / (double)step->count : totals[i]);
        if (step->narrow)
            step->walk.kernels->narrow(&result, 1, (uint16_t *)step->result + offset + i * stride);
        else
            ((float *)step->result)[offset + i * stride] = result;
    }
}

/* Where a unit is, and how many results it has. */
static int64_t locate_unit(const reduce_step *step, int64_t unit, walk_place *place, int64_t *at, int64_t *channels)
{
    const int64_t pieces = step->kind == ROW_KEPT ? (step->walk.row + step->columns - 1) / step->columns : 1;
    const int64_t number = unit / pieces;
    walk_locate(&step->kept, number, place);
    *at = unit % pieces * step->columns;
    *channels = number % step->blocks == step->blocks - 1 ? step->walk.kept : step->walk.block;
    if (step->kind == ROW_BLOCKS)
        return step->walk.block;
    const int64_t left = step->walk.row - *at;
    return step->kind == ROW_REDUCED ? 1 : left < step->columns ? left : step->columns;
}

static void finish_unit(const reduce_step *step, int64_t unit, const walk_place *place, int64_t at, int64_t columns,
                        int64_t channels, double *totals)
{
    for (int64_t p = 0; p < step->parts && step->parts > 1; p++) {
        const double *part = step->scratch + (unit * step->parts + p) * step->columns;
        for (int64_t i = 0; i < columns; i++)
            totals[i] = p == 0 ? part[i] : combine(step->reduction, totals[i], part[i]);
    }
    write_results(step, totals, step->kind == ROW_BLOCKS ? channels : columns,
                  place->offsets[WALK_RESULT] + at * step->walk.row_strides[WALK_RESULT][1]);
}

static fth_status run_step(void *state, const fth_run *run)
{
    const reduce_step *step = state;
    const int64_t chunks = step->kind == ROW_KEPT ? 1 : (step->walk.row + step->chunk - 1) / step->chunk;
    const int64_t size = step->reduced.count * chunks, tasks = step->units * step->parts;
    (void)run;
#pragma omp parallel num_threads(step->threads) if (tasks > 1 && step->threads > 1)
    {
        walk_buffers buffers;
        float floats[EXPRESSION_CHUNK];
        double totals[EXPRESSION_CHUNK];
        walk_place place;
        walk_begin(&step->walk, &buffers);
#pragma omp for schedule(static)
        for (int64_t task = 0; task < tasks; task++) {
            const int64_t unit = task / step->parts, p = task % step->parts;
            double *to = step->parts > 1 ? step->scratch + task * step->columns : totals;
            reduce_part part = {.step = step, .buffers = &buffers, .floats = floats, .totals = to};
            part.columns = locate_unit(step, unit, &place, &part.at, &part.channels);
            run_part(&part, &place, size * p / step->parts, size * (p + 1) / step->parts);
            if (step->parts == 1)
                finish_unit(step, unit, &place, part.at, part.columns, part.channels, to);
        }
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < (step->parts > 1 ? step->units : 0); unit++) {
            int64_t at, channels;
            const int64_t columns = locate_unit(step, unit, &place, &at, &channels);
            finish_unit(step, unit, &place, at, columns, channels, totals);
        }
    }
    return FTH_OK;
}

/* ---- preparing ---- */

/* The layout in which to walk: blocks of channels only where pixels are reduced, and their padding
 * not with them. */
static cpu_format choose_base(const fth_plan *plan, const fth_node *node, const fth_shape *whole, unsigned axes)
{
    enum { CHANNELS = 2, PIXELS = 12 };
    const cpu_format base = cpu_expression_base(plan, node, whole);
    const bool padded = base.block > 1 && base.padded_dims[1] != base.dims[1];
    if (base.block <= 1 || ((axes & PIXELS) == PIXELS && ((axes & CHANNELS) == 0 || !padded)))
        return base;
    return cpu_plain(whole, dnnl_f32);
}

/* Where a result has its elements along the dimensions; results are plain. */
static void set_result_strides(walk_dimension *dimensions, int count, const fth_shape *whole, unsigned axes,
                               const cpu_format *base)
{
    int64_t strides[FTH_MAX_RANK], stride = 1;
    for (int axis = whole->rank - 1; axis >= 0; axis--) {
        strides[axis] = axes >> axis & 1 ? 0 : stride;
        stride *= axes >> axis & 1 ? 1 : whole->dims[axis];
    }
    for (int i = 0; i < count; i++) {
        const bool of_blocks = base->block > 1 && i < count - 1 && dimensions[i].axis == 1;
        dimensions[i].strides[WALK_RESULT] = strides[dimensions[i].axis] * (of_blocks ? base->block : 1);
    }
}

/* Adds an axis inside of the others, not joined with the last one. */
static void add_apart(walk_axes *axes, const walk_dimension *d)
{
    axes->count *= d->size;
    axes->sizes[axes->rank] = d->size;
    for (int k = 0; k < WALK_OPERANDS; k++)
        axes->strides[k][axes->rank] = d->strides[k];
    axes->rank++;
}

/* Takes the last axis away from others. */
static void drop_last(walk_axes *axes)
{
    axes->rank--;
    axes->count /= axes->sizes[axes->rank];
}

/* Splits the dimensions into axes that are kept, axes that are reduced, and a row. */
static void make_axes(reduce_step *step, const walk_dimension *dimensions, int count, unsigned axes,
                      const cpu_format *base)
{
    expression_walk *walk = &step->walk;
    int last = count - 1;
    while (last > 0 && dimensions[last].size == 1)
        last--;
    const bool last_is_reduced = count == 0 || (axes >> dimensions[last].axis & 1) != 0;
    const bool is_blocked = base->block > 1 && !last_is_reduced;

    step->kept.count = step->reduced.count = 1;
    for (int i = 0; i < count - is_blocked; i++)
        walk_add_axis(axes >> dimensions[i].axis & 1 ? &step->reduced : &step->kept, &dimensions[i]);
    step->blocks = is_blocked ? base->padded_dims[1] / base->block : 1;
    if (is_blocked) /* what a block has is kept, too */
        add_apart(&step->kept, &dimensions[count - 1]);
    walk_axes *inner = last_is_reduced ? &step->reduced : &step->kept;
    step->kind = last_is_reduced ? ROW_REDUCED : ROW_KEPT;
    walk->row = walk->block = inner->sizes[inner->rank - 1];
    for (int k = 0; k < WALK_OPERANDS; k++)
        walk->row_strides[k][1] = inner->strides[k][inner->rank - 1];
    drop_last(inner);
    if (step->kind == ROW_KEPT && walk->block <= WALK_BLOCK) {
        const int last_reduced = step->reduced.rank - 1;
        step->kind = ROW_BLOCKS;
        walk->row = walk->block * step->reduced.sizes[last_reduced];
        for (int k = 0; k < WALK_OPERANDS; k++)
            walk->row_strides[k][0] = step->reduced.strides[k][last_reduced];
        drop_last(&step->reduced);
    }
    walk->kept = is_blocked ? base->dims[1] - (step->blocks - 1) * base->block : walk->block;
}

/* How threads share the work. Results that are many are made one after the other; what few are
 * reduced from is cut into parts. */
static void divide(reduce_step *step)
{
    enum { ENOUGH_UNITS = 32, MOST_PARTS = 64, PART = 1 << 15 };
    const int64_t row = step->walk.row, whole = row * step->kept.count * step->reduced.count;
    int64_t pieces = 1, chunks = 1;

    step->chunk = walk_chunk(&step->walk);
    step->columns = step->kind == ROW_BLOCKS ? step->walk.block : 1;
    if (step->kind == ROW_KEPT) {
        pieces = (row + EXPRESSION_CHUNK - 1) / EXPRESSION_CHUNK;
        step->columns = row < EXPRESSION_CHUNK ? row : EXPRESSION_CHUNK;
    } else {
        chunks = (row + step->chunk - 1) / step->chunk;
    }
    step->units = step->kept.count * pieces;
    const int64_t most = step->reduced.count * chunks, wanted = whole / PART;
    step->parts = step->units >= ENOUGH_UNITS ? 1 : wanted < MOST_PARTS ? wanted : MOST_PARTS;
    step->parts = step->parts < 1 ? 1 : step->parts < most ? step->parts : most;
}

static fth_status add_inputs(fth_plan *plan, const fth_node *node, const fth_shape *whole, const cpu_format *base,
                             walk_dimension *dimensions, int count, reduce_step *state, fth_step *step)
{
    fth_status status = FTH_OK;
    for (int i = 0; i < node->input_count; i++) {
        FTH_TRY(walk_read(plan, node->inputs[i], whole, base, &state->inputs[i]));
        const cpu_format *layout = cpu_layout(plan, state->inputs[i]);
        state->walk.types[i] = walk_type_of(layout);
        walk_set_strides(dimensions, count, whole, base, layout, i);
        step->reads[step->read_count++] = state->inputs[i];
    }
out:
    return status;
}

static fth_shape shape_of_whole(const fth_plan *plan, const fth_node *node)
{
    fth_shape whole = {0};
    for (int i = 0; i < node->input_count; i++) {
        const fth_shape shape = fth_plan_type(plan, node->inputs[i]).shape;
        (void)fth_shape_broadcast(&whole, &shape);
    }
    return whole;
}

/* The dtype of results. A largest number is one of the input's, in its dtype, so that the gradient
 * finds it again. */
static dnnl_data_type_t choose_dtype(const fth_plan *plan, const fth_node *node)
{
    const fth_reduce_attributes *a = node->attributes;
    const cpu_format *fixed = cpu_layout(plan, fth_plan_value_of(plan, node->outputs[0]));
    if (fixed)
        return fixed->data_type;
    if (a->reduction == FTH_REDUCE_SUM || a->reduction == FTH_REDUCE_MEAN)
        return cpu_compute_dtype(plan);
    if (a->expression.step_count > 0 || node->input_count > 1)
        return dnnl_f32;
    const cpu_format *x = cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    return x->data_type == dnnl_bf16 ? dnnl_bf16 : dnnl_f32;
}

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_reduce_attributes *a = node->attributes;
    const fth_shape whole = shape_of_whole(plan, node), shape = fth_plan_type(plan, node->outputs[0]).shape;
    const cpu_format base = choose_base(plan, node, &whole, a->axes);
    const fth_plan_value y = fth_plan_value_of(plan, node->outputs[0]);
    const cpu_format layout = cpu_plain(&shape, choose_dtype(plan, node));
    walk_dimension dimensions[WALK_AXES];
    const int count = walk_list_dimensions(&base, &whole, dimensions);
    fth_step step = {.bind = bind_step, .run = run_step, .release = free};
    reduce_step *state = NULL;

    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    fth_program_compile(&a->expression, &state->walk.program);
    state->walk.kernels = cpu_level_of(plan)->expression;
    state->walk.input_count = node->input_count;
    state->reduction = a->reduction;
    state->threads = fth_plan_threads(plan);
    FTH_TRY(add_inputs(plan, node, &whole, &base, dimensions, count, state, &step));
    set_result_strides(dimensions, count, &whole, a->axes, &base);
    make_axes(state, dimensions, count, a->axes, &base);
    divide(state);
    state->count = fth_shape_count(&whole) / fth_shape_count(&shape);
    state->narrow = layout.data_type == dnnl_bf16;
    FTH_TRY(cpu_begin_write(plan, y, &layout, &state->value));
    state->scratch_value = FTH_NO_PLAN_VALUE;
    if (state->parts > 1) {
        FTH_TRY(cpu_add_scratch(plan, (size_t)(state->units * state->parts * state->columns) * sizeof(double),
                                &state->scratch_value));
        step.writes[step.write_count++] = state->scratch_value;
    }
    step.writes[step.write_count++] = state->value;
    cpu_expression_name(node, &a->expression, step.name, sizeof step.name);
    const fth_plan_value written = state->value;
    step.state = state;
    state = NULL;
    FTH_TRY(fth_plan_add_step(plan, &step));
    FTH_TRY(cpu_end_write(plan, y, written));
out:
    free(state);
    return status;
}

const fth_kernel cpu_reduce = {&fth_op_reduce, prepare};
