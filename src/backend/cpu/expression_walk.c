/* Walks through the elements of values in different layouts: see expression_walk.h. */
#include "backend/cpu/expression_walk.h"

/* ---- axes ---- */

bool walk_knows(const cpu_format *layout)
{
    fth_shape shape = {.rank = layout->ndims};
    for (int i = 0; i < layout->ndims; i++)
        shape.dims[i] = layout->dims[i];
    const cpu_format like = cpu_like(layout, &shape, layout->data_type);
    return cpu_format_equal(&like, layout);
}

/* Outer before inner; a dimension of one element may be anywhere. */
static bool comes_before(const cpu_format *base, int a, int b)
{
    return base->strides[a] != base->strides[b] ? base->strides[a] > base->strides[b] : a < b;
}

int walk_list_dimensions(const cpu_format *base, const fth_shape *shape, walk_dimension dimensions[WALK_AXES])
{
    int count = 0;
    for (int axis = 0; axis < shape->rank; axis++) {
        int to = count++;
        const bool has_blocks = base->block > 1 && axis == 1;
        while (to > 0 && comes_before(base, axis, dimensions[to - 1].axis)) {
            dimensions[to] = dimensions[to - 1];
            to--;
        }
        dimensions[to] =
            (walk_dimension){.axis = axis, .size = has_blocks ? base->padded_dims[1] / base->block : shape->dims[axis]};
    }
    if (base->block > 1)
        dimensions[count++] = (walk_dimension){.axis = 1, .size = base->block};
    return count;
}

void walk_set_strides(walk_dimension *dimensions, int count, const fth_shape *shape, const cpu_format *base,
                      const cpu_format *layout, int operand)
{
    for (int i = 0; i < count; i++) {
        walk_dimension *d = &dimensions[i];
        const int axis = d->axis - shape->rank + layout->ndims; /* aligned at the last */
        const bool in_block = base->block > 1 && i == count - 1,
                   of_blocks = base->block > 1 && !in_block && d->axis == 1;
        if (axis < 0 || layout->dims[axis] == 1)
            d->strides[operand] = 0;
        else if (layout->block > 1 && axis == 1) /* in the base's blocks (walk_read) */
            d->strides[operand] = in_block ? 1 : layout->strides[axis];
        else
            d->strides[operand] = layout->strides[axis] * (of_blocks ? base->block : 1);
    }
}

static bool has_shape(const cpu_format *layout, const fth_shape *shape)
{
    bool same = layout->ndims == shape->rank;
    for (int i = 0; i < shape->rank && same; i++)
        same = layout->dims[i] == shape->dims[i];
    return same;
}

fth_status walk_read(fth_plan *plan, fth_value input, const fth_shape *shape, const cpu_format *base,
                     fth_plan_value *as)
{
    *as = fth_plan_value_of(plan, input);
    const cpu_format own = *cpu_layout(plan, *as);
    if (own.data_type != dnnl_s32 && has_shape(&own, shape)) {
        const cpu_format wanted = cpu_like(base, shape, own.data_type);
        return cpu_read_as(plan, *as, &wanted, as);
    }
    if (walk_knows(&own) && (own.block <= 1 || (own.ndims == shape->rank && own.block == base->block)))
        return FTH_OK;
    return cpu_read_plain(plan, input, own.data_type, as);
}

void walk_add_axis(walk_axes *axes, const walk_dimension *d)
{
    const int last = axes->rank - 1;
    bool joins = last >= 0;
    if (axes->rank == 0)
        axes->count = 1;
    axes->count *= d->size;
    if (d->size == 1 && axes->rank > 0)
        return;
    for (int i = 0; i < WALK_OPERANDS; i++)
        joins = joins && (axes->sizes[last] == 1 || axes->strides[i][last] == d->strides[i] * d->size);
    const int to = joins ? last : axes->rank++;
    axes->sizes[to] = joins ? axes->sizes[to] * d->size : d->size;
    for (int i = 0; i < WALK_OPERANDS; i++)
        axes->strides[i][to] = d->strides[i];
}

walk_type walk_type_of(const cpu_format *layout)
{
    return layout->data_type == dnnl_bf16 ? WALK_BF16 : layout->data_type == dnnl_s32 ? WALK_I32 : WALK_F32;
}

/* ---- walking ---- */

void walk_begin(const expression_walk *walk, walk_buffers *buffers)
{
    unsigned used = 0;
    for (int s = 0; s < walk->program.step_count; s++)
        for (int i = 0; i < 3; i++) {
            const int operand = walk->program.steps[s].operands[i] - FTH_PROGRAM_NUMBERS;
            if (operand >= 0 && operand < FTH_EXPRESSION_NUMBERS)
                used |= 1u << operand;
        }
    if (walk->program.step_count == 0 && walk->program.result >= FTH_PROGRAM_NUMBERS)
        used |= 1u << (walk->program.result - FTH_PROGRAM_NUMBERS);
    for (int n = 0; n < FTH_EXPRESSION_NUMBERS; n++)
        for (int i = 0; i < EXPRESSION_CHUNK && (used >> n & 1) != 0; i++)
            buffers->numbers[n][i] = walk->program.numbers[n];
    for (int i = 0; i < FTH_EXPRESSION_INPUTS; i++)
        buffers->repeated[i] = -1;
}

void walk_locate(const walk_axes *axes, int64_t number, walk_place *place)
{
    *place = (walk_place){0};
    for (int axis = axes->rank - 1; axis >= 0; axis--) {
        place->at[axis] = number % axes->sizes[axis];
        number /= axes->sizes[axis];
        for (int i = 0; i < WALK_OPERANDS; i++)
            place->offsets[i] += place->at[axis] * axes->strides[i][axis];
    }
}

void walk_advance(const walk_axes *axes, walk_place *place)
{
    for (int axis = axes->rank - 1; axis >= 0; axis--) {
        const bool wraps = place->at[axis] == axes->sizes[axis] - 1;
        const int64_t by = wraps ? -place->at[axis] : 1;
        place->at[axis] += by;
        for (int i = 0; i < WALK_OPERANDS; i++)
            place->offsets[i] += by * axes->strides[i][axis];
        if (!wraps)
            return;
    }
}

static inline float number_at(const expression_walk *walk, int input, int64_t at)
{
    union {
        uint32_t bits;
        float number;
    } wide;
    switch (walk->types[input]) {
    case WALK_BF16: wide.bits = (uint32_t)((const uint16_t *)walk->data[input])[at] << 16; return wide.number;
    case WALK_I32: return (float)((const int32_t *)walk->data[input])[at];
    case WALK_F32: break;
    }
    return ((const float *)walk->data[input])[at];
}

const float *walk_get_contiguous(const expression_walk *walk, int input, int64_t at, int64_t count, float *buffer)
{
    switch (walk->types[input]) {
    case WALK_BF16: walk->kernels->widen((const uint16_t *)walk->data[input] + at, count, buffer); return buffer;
    case WALK_I32:
        for (int64_t i = 0; i < count; i++)
            buffer[i] = (float)((const int32_t *)walk->data[input])[at + i];
        return buffer;
    case WALK_F32: break;
    }
    return (const float *)walk->data[input] + at;
}

static bool is_contiguous(const expression_walk *walk, int input)
{
    return walk->row_strides[input][1] == 1 && (walk->block == walk->row || walk->row_strides[input][0] == walk->block);
}

/* Whether every block of the row has the same numbers. */
static bool is_repeated(const expression_walk *walk, int input)
{
    const int64_t *strides = walk->row_strides[input];
    return strides[0] == 0 && (strides[1] == 0 || (strides[1] == 1 && walk->block < walk->row));
}

/* `count` numbers of a block. */
static void copy_block(const expression_walk *walk, int input, int64_t offset, int64_t count, int64_t kept, float *to)
{
    const int64_t stride = walk->row_strides[input][1], there = count < kept ? count : kept;
    if (stride == 0) {
        const float number = number_at(walk, input, offset);
        for (int64_t k = 0; k < count; k++)
            to[k] = number;
        return;
    }
    for (int64_t k = 0; k < there; k++)
        to[k] = number_at(walk, input, offset + k * stride);
    for (int64_t k = there; k < count; k++)
        to[k] = 0;
}

void walk_copy(const expression_walk *walk, int input, int64_t offset, int64_t at, int64_t count, int64_t kept,
               float *to)
{
    const int64_t *strides = walk->row_strides[input], block = walk->block;
    if (is_contiguous(walk, input)) {
        const float *from = walk_get_contiguous(walk, input, offset + at, count, to);
        if (from != to)
            memcpy(to, from, (size_t)count * sizeof *to);
        return;
    }
    if (strides[1] == 0 && strides[0] == 0) {
        const float number = number_at(walk, input, offset);
        for (int64_t i = 0; i < count; i++)
            to[i] = number;
        return;
    }
    if (strides[0] == 0 && block < walk->row) {
        copy_block(walk, input, offset, count < block ? count : block, kept, to);
        for (int64_t i = block; i < count; i++)
            to[i] = to[i - block];
        return;
    }
    if (block == walk->row) {
        for (int64_t i = 0; i < count; i++)
            to[i] = number_at(walk, input, offset + (at + i) * strides[1]);
        return;
    }
    for (int64_t i = 0; i < count; i += block)
        copy_block(walk, input, offset + (at + i) / block * strides[0], count - i < block ? count - i : block, kept,
                   to + i);
}

const float *walk_get(const expression_walk *walk, int input, int64_t offset, int64_t at, int64_t count, int64_t kept,
                      walk_buffers *buffers)
{
    float *buffer = buffers->inputs[input];
    if (is_contiguous(walk, input))
        return walk_get_contiguous(walk, input, offset + at, count, buffer);
    if (is_repeated(walk, input)) { /* a whole chunk, for those that follow */
        if (buffers->repeated[input] != offset)
            walk_copy(walk, input, offset, 0, EXPRESSION_CHUNK, kept, buffer);
        buffers->repeated[input] = offset;
        return buffer;
    }
    walk_copy(walk, input, offset, at, count, kept, buffer);
    return buffer;
}
