/* Ops that move elements: concat, slice, pad and permute are one step of strided copies, which
 * reads and writes channels in any order, unless the result is a view. */
#include <stdlib.h>

#include "backend/cpu/rows.h"
#include "backend/cpu/strided_copy.h"

/* A layout for an output in the order of `like`; plain where its channels do not divide into
 * blocks. */
static cpu_format layout_like(const fth_plan *plan, const cpu_format *like, fth_value output)
{
    const fth_shape shape = fth_plan_type(plan, output).shape;
    const cpu_format layout = cpu_like(like, &shape, like->data_type);
    return layout.block > 1 && shape.dims[1] % layout.block != 0 ? cpu_plain(&shape, like->data_type) : layout;
}

/* What the node copies from an input, which is read in another layout where its own does not
 * allow it: one or two parts. False if `to` does not. */
static fth_status make_input(fth_plan *plan, const fth_node *node, int input, const cpu_format *to, bool *possible,
                             cpu_copy_part parts[2], int *count)
{
    fth_status status = FTH_OK;
    const fth_box box = fth_box_of(fth_plan_graph(plan), node, input);
    const fth_shape shape = fth_plan_type(plan, node->inputs[input]).shape;
    const fth_strides plain = fth_strides_plain(&shape);
    const cpu_format *from = cpu_layout(plan, fth_plan_value_of(plan, node->inputs[input]));
    fth_plan_value x = fth_plan_value_of(plan, node->inputs[input]);
    fth_strides source, result;

    *possible = cpu_get_strides(to, &result);
    if (*possible && from->data_type == to->data_type && cpu_get_strides(from, &source) &&
        cpu_make_parts(&box, &source, &result, x, parts, count))
        return FTH_OK;
    *possible = *possible && cpu_make_parts(&box, &plain, &result, x, parts, count);
    if (!*possible)
        return FTH_OK;
    FTH_TRY(cpu_read_plain(plan, node->inputs[input], to->data_type, &x));
    for (int i = 0; i < *count; i++)
        parts[i].from = x;
out:
    return status;
}

/* Parts that fill what is around x; false if `to` does not allow them. */
static bool make_padding(const fth_plan *plan, const fth_node *node, const cpu_format *to, cpu_copy_part *parts)
{
    const fth_pad_attributes *a = node->attributes;
    fth_strides result;
    uint32_t filling;
    fth_box box;
    bool possible = cpu_get_strides(to, &result);
    if (to->data_type == dnnl_s32)
        memcpy(&filling, &(int32_t){(int32_t)a->value}, sizeof filling);
    else
        memcpy(&filling, &a->value, sizeof filling);
    if (to->data_type == dnnl_bf16)
        filling = cpu_to_bf16(a->value);
    for (int i = 0; fth_box_of_padding(fth_plan_graph(plan), node, i, &box); i++) {
        parts[i].from = FTH_NO_PLAN_VALUE;
        parts[i].filling = filling;
        possible = possible && fth_strided_copy_make(&box, &result, &result, &parts[i].copy);
    }
    return possible;
}

/* The parts of the node's output in the layout `to`. */
static fth_status make_parts(fth_plan *plan, const fth_node *node, const cpu_format *to, bool *possible,
                             cpu_copy_part *parts, int *count)
{
    fth_status status = FTH_OK;
    int more = 0;
    *count = 0;
    *possible = true;
    if (node->op == &fth_op_pad) {
        *possible = make_padding(plan, node, to, parts);
        *count = 2 + (int)((const fth_pad_attributes *)node->attributes)->between;
    }
    for (int i = 0; i < node->input_count && *possible; i++) {
        FTH_TRY(make_input(plan, node, i, to, possible, parts + *count, &more));
        *count += more;
    }
out:
    return status;
}

/* At most. */
static int count_parts(const fth_node *node)
{
    const int padding = node->op == &fth_op_pad ? 2 + (int)((const fth_pad_attributes *)node->attributes)->between : 0;
    return 2 * node->input_count + padding;
}

/* Writes the output in `wanted`, or plain where blocks do not allow that. */
static fth_status add_copies(fth_plan *plan, const fth_node *node, cpu_format wanted)
{
    fth_status status = FTH_OK;
    int count = count_parts(node);
    const fth_plan_value output = fth_plan_value_of(plan, node->outputs[0]);
    cpu_copy_part *parts = NULL;
    fth_plan_value y;
    bool possible;

    FTH_TRY(fth_allocate((size_t)count, sizeof *parts, &parts));
    FTH_TRY(make_parts(plan, node, &wanted, &possible, parts, &count));
    if (!possible) {
        const fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
        wanted = cpu_plain(&shape, wanted.data_type);
        FTH_TRY(make_parts(plan, node, &wanted, &possible, parts, &count));
    }
    FTH_REQUIRE(possible, FTH_UNSUPPORTED, "no order of elements allows this copy");
    FTH_TRY(cpu_begin_write(plan, output, &wanted, &y));
    FTH_TRY(cpu_add_copies(plan, node->op->name, parts, count, y));
    FTH_TRY(cpu_end_write(plan, output, y));
out:
    free(parts);
    return status;
}

/* In the order of the largest input; one dtype for all. */
static fth_status prepare_in_order(fth_plan *plan, const fth_node *node)
{
    const cpu_format *like = cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    for (int i = 1; i < node->input_count; i++) {
        const cpu_format *other = cpu_layout(plan, fth_plan_value_of(plan, node->inputs[i]));
        if (cpu_format_size(other) > cpu_format_size(like))
            like = other;
    }
    return add_copies(plan, node, layout_like(plan, like, node->outputs[0]));
}

/* ---- permute ---- */

/* Whether elements lie in `layout` as the axes of `from` in another order; axes of one entry lie
 * anywhere. */
static bool is_view(const cpu_format *from, const int *axes, const cpu_format *layout)
{
    bool same = from->block == 1 && layout->block == 1;
    for (int i = 0; i < layout->ndims; i++)
        same = same && (layout->dims[i] == 1 || layout->strides[i] == from->strides[axes[i]]);
    return same;
}

/* Plain and channels-last images become each other without a copy, as do tensors of which only
 * axes of one entry change places. */
static fth_status prepare_permute(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_permute_attributes *a = node->attributes;
    const fth_plan_value x = fth_plan_value_of(plan, node->inputs[0]), y = fth_plan_value_of(plan, node->outputs[0]);
    const cpu_format from = *cpu_layout(plan, x);
    const fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    const cpu_format plain = cpu_plain(&shape, from.data_type);
    const cpu_format last = shape.rank == 4 ? cpu_channels_last(&shape, from.data_type) : plain;

    if (cpu_layout(plan, y) || !(is_view(&from, a->axes, &plain) || is_view(&from, a->axes, &last)))
        return add_copies(plan, node, plain);
    FTH_TRY(cpu_set_layout(plan, y, is_view(&from, a->axes, &plain) ? &plain : &last));
    fth_plan_set_view(plan, y, x);
out:
    return status;
}

const fth_kernel cpu_concat = {&fth_op_concat, prepare_in_order};
const fth_kernel cpu_slice = {&fth_op_slice, prepare_in_order};
const fth_kernel cpu_pad = {&fth_op_pad, prepare_in_order};
const fth_kernel cpu_permute = {&fth_op_permute, prepare_permute};
