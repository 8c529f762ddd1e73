/* See strided_copy.h. */
#include "backend/strided_copy.h"

fth_strides fth_strides_plain(const fth_shape *shape)
{
    fth_strides strides = {.shape = *shape, .block = 1};
    for (int i = shape->rank - 1; i >= 0; i--)
        strides.of_axis[i] = i == shape->rank - 1 ? 1 : strides.of_axis[i + 1] * shape->dims[i + 1];
    return strides;
}

/* ---- boxes ---- */

static const fth_shape *shape_of(const fth_graph *graph, fth_value value)
{
    return &fth_graph_value(graph, value)->type.shape;
}

/* Everything, from the first entry of `axis` on. */
static fth_box whole(const fth_shape *shape, int axis)
{
    fth_box box = {.axis = axis, .count = shape->dims[axis], .from_step = 1, .to_step = 1};
    for (int i = 0; i < FTH_MAX_RANK; i++)
        box.axes[i] = i;
    return box;
}

fth_box fth_box_of(const fth_graph *graph, const fth_node *node, int input)
{
    const fth_shape *x = shape_of(graph, node->inputs[input]), *y = shape_of(graph, node->outputs[0]);
    fth_box box;
    if (node->op == &fth_op_slice) {
        const fth_slice_attributes *a = node->attributes;
        box = whole(y, a->axis);
        box.from_begin = a->begin;
        box.from_step = a->step;
    } else if (node->op == &fth_op_pad) {
        const fth_pad_attributes *a = node->attributes;
        box = whole(x, a->axis);
        box.to_begin = a->before;
        box.to_step = a->between + 1;
    } else if (node->op == &fth_op_concat) {
        const fth_concat_attributes *a = node->attributes;
        box = whole(x, a->axis);
        for (int i = 0; i < input; i++)
            box.to_begin += shape_of(graph, node->inputs[i])->dims[a->axis];
    } else {
        const fth_permute_attributes *a = node->attributes;
        box = whole(y, 0);
        box.axis = -1;
        for (int i = 0; i < y->rank; i++)
            box.axes[i] = a->axes[i];
    }
    return box;
}

bool fth_box_of_padding(const fth_graph *graph, const fth_node *pad, int number, fth_box *box)
{
    const fth_pad_attributes *a = pad->attributes;
    const fth_shape *x = shape_of(graph, pad->inputs[0]), *y = shape_of(graph, pad->outputs[0]);
    *box = whole(x, a->axis);
    if (number == 0) {
        box->count = a->before;
    } else if (number == 1) {
        box->count = a->after;
        box->to_begin = y->dims[a->axis] - a->after;
    } else {
        box->count = x->dims[a->axis] - 1;
        box->to_begin = a->before + number - 1;
        box->to_step = a->between + 1;
    }
    return number < 2 + a->between;
}

/* ---- loops ---- */

static void add_loop(fth_strided_copy *copy, int64_t size, int64_t from, int64_t to)
{
    if (size == 1)
        return;
    int at = copy->rank++;
    for (; at > 0 && (copy->to[at - 1] < to || (copy->to[at - 1] == to && copy->from[at - 1] < from)); at--) {
        copy->sizes[at] = copy->sizes[at - 1];
        copy->from[at] = copy->from[at - 1];
        copy->to[at] = copy->to[at - 1];
    }
    copy->sizes[at] = size;
    copy->from[at] = from;
    copy->to[at] = to;
}

static void merge_loops(fth_strided_copy *copy)
{
    int kept = 0;
    for (int i = 1; i < copy->rank; i++) {
        if (copy->to[kept] == copy->to[i] * copy->sizes[i] && copy->from[kept] == copy->from[i] * copy->sizes[i]) {
            copy->sizes[kept] *= copy->sizes[i];
        } else {
            kept++;
            copy->sizes[kept] = copy->sizes[i];
        }
        copy->from[kept] = copy->from[i];
        copy->to[kept] = copy->to[i];
    }
    copy->rank = copy->rank > 0 ? kept + 1 : 0;
}

/* Part of an axis: `size` entries, and where they are on one side. */
typedef struct side {
    int64_t begin, step, stride, block; /* block 1: none */
} side;

static side side_of(const fth_strides *strides, int axis, int64_t begin, int64_t step)
{
    const bool blocked = strides->block > 1 && strides->blocked_axis == axis;
    return (side){begin, step, strides->of_axis[axis], blocked ? strides->block : 1};
}

static bool is_whole_blocks(const side *s, int64_t size)
{
    return s->block == 1 || (s->begin % s->block == 0 && size % s->block == 0);
}

static bool is_within_block(const side *s, int64_t size)
{
    return s->block == 1 || s->begin % s->block + (size - 1) * s->step < s->block;
}

static int64_t place_of(const side *s)
{
    return s->begin / s->block * s->stride + s->begin % s->block;
}

static bool add_axis(fth_strided_copy *copy, int64_t size, const side *from, const side *to)
{
    const int64_t block = from->block > to->block ? from->block : to->block;
    const bool same = from->block == 1 || to->block == 1 || from->block == to->block;
    copy->from_begin += place_of(from);
    copy->to_begin += place_of(to);
    if (is_within_block(from, size) && is_within_block(to, size)) {
        add_loop(copy, size, from->block > 1 ? from->step : from->stride * from->step,
                 to->block > 1 ? to->step : to->stride * to->step);
        return true;
    }
    if (!same || from->step != 1 || to->step != 1 || size % block != 0 || !is_whole_blocks(from, size) ||
        !is_whole_blocks(to, size))
        return false;
    add_loop(copy, size / block, from->block > 1 ? from->stride : from->stride * block,
             to->block > 1 ? to->stride : to->stride * block);
    add_loop(copy, block, from->block > 1 ? 1 : from->stride, to->block > 1 ? 1 : to->stride);
    return true;
}

bool fth_strided_copy_make(const fth_box *box, const fth_strides *from, const fth_strides *to, fth_strided_copy *copy)
{
    *copy = (fth_strided_copy){0};
    for (int i = 0; i < to->shape.rank; i++) {
        const bool part = i == box->axis;
        const side source = side_of(from, box->axes[i], part ? box->from_begin : 0, part ? box->from_step : 1);
        const side target = side_of(to, i, part ? box->to_begin : 0, part ? box->to_step : 1);
        if (!add_axis(copy, part ? box->count : to->shape.dims[i], &source, &target))
            return false;
    }
    merge_loops(copy);
    return true;
}
