/* Ops that move elements: concat, slice, pad and permute are strided copies between any two
 * layouts, one launch each; gather and its gradient. Along channels, rows of channels are copied by
 * a kernel of their own (convert.cu). */
#include <string.h>

#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"
#include "backend/strided_copy.h"
#include "base/half.h"

/* The layout in which a kernel of this file reads or writes `value`. */
static cuda_layout layout_of(const fth_plan *plan, fth_value value)
{
    const fth_type type = fth_plan_type(plan, value);
    return type.dtype == FTH_I32 ? cuda_plain(&type.shape, CUDA_TYPE_I32) : cuda_standard(plan, value);
}

static fth_status read_input(fth_plan *plan, const fth_node *node, int input, fth_plan_value *as)
{
    const cuda_layout wanted = layout_of(plan, node->inputs[input]);
    return cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[input]), &wanted, as);
}

/* ---- along channels ---- */

static cudaError_t run_copy_channels(const cuda_call *call)
{
    return cuda_launch_copy_channels(call->device->launch.stream, call->type, call->sizes[0], call->data[0],
                                     call->sizes[1], call->sizes[2], call->data[1], call->sizes[3], call->sizes[4],
                                     call->sizes[5], call->sizes[6]);
}

/* Channels [from_begin, from_begin + count) of `from` become those of `to` from to_begin on;
 * `last`: what comes after them in `to` is padding. */
static fth_status add_copy(fth_plan *plan, const char *name, fth_plan_value from, int64_t from_begin, fth_plan_value to,
                           int64_t to_begin, int64_t count, bool last)
{
    const cuda_layout *source = cuda_layout_of(plan, from), *target = cuda_layout_of(plan, to);
    cuda_call call = {.run = run_copy_channels, .values = {from, to}, .value_count = 2, .write_count = 1};
    const int64_t sizes[] = {
        cuda_rows(source),           source->channels, from_begin, target->channels, to_begin, count,
        last ? to_begin + count : -1};
    for (size_t i = 0; i < FTH_COUNT_OF(sizes); i++)
        call.sizes[i] = sizes[i];
    call.type = source->type;
    return cuda_add_call(plan, name, &call);
}

/* Along axis 1 of features or images, channels are adjacent; what is filled in must be 0. */
static bool moves_channels(const fth_plan *plan, const fth_node *node, int axis)
{
    const fth_type type = fth_plan_type(plan, node->outputs[0]);
    return axis == 1 && (type.shape.rank == 2 || type.shape.rank == 4) && type.dtype == FTH_F32;
}

static fth_status concat_channels(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    fth_plan_value y, part;
    int64_t begin = 0;
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &y));
    for (int i = 0; i < node->input_count; i++) {
        int64_t channels = fth_plan_type(plan, node->inputs[i]).shape.dims[1];
        FTH_TRY(cuda_read(plan, node->inputs[i], &part));
        FTH_TRY(add_copy(plan, "concat", part, 0, y, begin, channels, i == node->input_count - 1));
        begin += channels;
    }
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

static fth_status slice_channels(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_slice_attributes *a = node->attributes;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    fth_plan_value x, y;
    FTH_TRY(cuda_read(plan, node->inputs[0], &x));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &y));
    FTH_TRY(add_copy(plan, "slice", x, a->begin, y, 0, a->end - a->begin, true));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

/* Zeros everywhere, then the input's channels into their place. */
static fth_status pad_channels(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_pad_attributes *a = node->attributes;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    const int64_t channels = fth_plan_type(plan, node->inputs[0]).shape.dims[1];
    fth_plan_value x, y;
    FTH_TRY(cuda_read(plan, node->inputs[0], &x));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &y));
    FTH_TRY(add_copy(plan, "pad", x, 0, y, 0, 0, true));
    FTH_TRY(add_copy(plan, "pad", x, 0, y, a->before, channels, false));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

/* ---- along any axis ---- */

static fth_strides strides_of(const cuda_layout *layout, const fth_shape *shape)
{
    fth_strides strides = fth_strides_plain(shape);
    if (!layout->nhwc)
        return strides;
    const int64_t pixel = layout->channels, row = layout->w * pixel;
    const int64_t of_axis[] = {layout->h * row, 1, row, pixel};
    memcpy(strides.of_axis, of_axis, sizeof of_axis);
    return strides;
}

static cudaError_t run_strided(const cuda_call *call)
{
    return cuda_launch_strided_copy(call->device->launch.stream, &call->strided, call->data[0], call->data[1]);
}

/* `from` may be none: `filling` then. */
static fth_status add_strided(fth_plan *plan, const char *name, const fth_strided_copy *copy, fth_plan_value from,
                              uint32_t filling, fth_plan_value to)
{
    _Static_assert((int)CUDA_COPY_RANK >= (int)FTH_MAX_COPY_RANK, "a copy must hold all loops");
    cuda_call call = {.run = run_strided, .values = {from, to}, .value_count = 2, .write_count = 1};
    call.strided = (cuda_strided){.rank = copy->rank,
                                  .item_bytes = (int)cuda_type_size(cuda_layout_of(plan, to)->type),
                                  .from_begin = copy->from_begin,
                                  .to_begin = copy->to_begin,
                                  .fills = !fth_plan_value_exists(from),
                                  .filling = filling};
    for (int i = 0; i < copy->rank; i++) {
        call.strided.sizes[i] = copy->sizes[i];
        call.strided.from[i] = copy->from[i];
        call.strided.to[i] = copy->to[i];
    }
    return cuda_add_call(plan, name, &call);
}

/* The bits of a number in a type. */
static uint32_t bits_of(cuda_type type, float value)
{
    const int32_t whole = (int32_t)value;
    uint32_t bits;
    memcpy(&bits, type == CUDA_TYPE_I32 ? (const void *)&whole : (const void *)&value, sizeof bits);
    if (type == CUDA_TYPE_BF16)
        return fth_bf16_from_float(value);
    return type == CUDA_TYPE_F16 ? fth_f16_from_float(value) : bits;
}

/* Zeros in the channels that only the layout has. */
static fth_status clear_channel_padding(fth_plan *plan, const fth_node *node, fth_plan_value y)
{
    const cuda_layout *layout = cuda_layout_of(plan, y);
    const fth_strided_copy all = {.rank = 1, .sizes = {cuda_layout_elements(layout)}, .from = {1}, .to = {1}};
    return layout->channels == layout->c ? FTH_OK : add_strided(plan, node->op->name, &all, FTH_NO_PLAN_VALUE, 0, y);
}

/* Fills what is around the input of a pad. */
static fth_status add_padding(fth_plan *plan, const fth_node *node, const fth_strides *to, fth_plan_value y)
{
    fth_status status = FTH_OK;
    const fth_pad_attributes *a = node->attributes;
    fth_strided_copy copy;
    fth_box box;
    for (int i = 0; fth_box_of_padding(fth_plan_graph(plan), node, i, &box); i++) {
        if (box.count == 0)
            continue;
        FTH_REQUIRE(fth_strided_copy_make(&box, to, to, &copy), FTH_UNSUPPORTED, "these layouts have blocks");
        FTH_TRY(
            add_strided(plan, "pad", &copy, FTH_NO_PLAN_VALUE, bits_of(cuda_layout_of(plan, y)->type, a->value), y));
    }
out:
    return status;
}

static fth_status copy_strided(fth_plan *plan, const fth_node *node, const cuda_layout *layout)
{
    fth_status status = FTH_OK;
    const fth_plan_value output = fth_plan_value_of(plan, node->outputs[0]);
    const fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    const fth_strides to = strides_of(layout, &shape);
    fth_strided_copy copy;
    fth_plan_value x, y;
    FTH_TRY(cuda_begin_write(plan, output, layout, &y));
    FTH_TRY(clear_channel_padding(plan, node, y));
    if (node->op == &fth_op_pad)
        FTH_TRY(add_padding(plan, node, &to, y));
    for (int i = 0; i < node->input_count; i++) {
        const fth_shape from_shape = fth_plan_type(plan, node->inputs[i]).shape;
        const fth_box box = fth_box_of(fth_plan_graph(plan), node, i);
        FTH_TRY(read_input(plan, node, i, &x));
        const fth_strides from = strides_of(cuda_layout_of(plan, x), &from_shape);
        FTH_REQUIRE(fth_strided_copy_make(&box, &from, &to, &copy), FTH_UNSUPPORTED, "these layouts have blocks");
        FTH_TRY(add_strided(plan, node->op->name, &copy, x, 0, y));
    }
    FTH_TRY(cuda_end_write(plan, output, y));
out:
    return status;
}

static fth_status prepare_concat(fth_plan *plan, const fth_node *node)
{
    const fth_concat_attributes *a = node->attributes;
    const cuda_layout layout = layout_of(plan, node->outputs[0]);
    return moves_channels(plan, node, a->axis) ? concat_channels(plan, node) : copy_strided(plan, node, &layout);
}

static fth_status prepare_slice(fth_plan *plan, const fth_node *node)
{
    const fth_slice_attributes *a = node->attributes;
    const cuda_layout layout = layout_of(plan, node->outputs[0]);
    return moves_channels(plan, node, a->axis) && a->step == 1 ? slice_channels(plan, node)
                                                               : copy_strided(plan, node, &layout);
}

static fth_status prepare_pad(fth_plan *plan, const fth_node *node)
{
    const fth_pad_attributes *a = node->attributes;
    const cuda_layout layout = layout_of(plan, node->outputs[0]);
    return moves_channels(plan, node, a->axis) && a->between == 0 && a->value == 0 ? pad_channels(plan, node)
                                                                                   : copy_strided(plan, node, &layout);
}

/* ---- permute ---- */

/* Whether elements lie in `to` as the axes of `from` in another order; axes of one entry lie
 * anywhere. */
static bool is_view(const fth_strides *from, const int *axes, const fth_strides *to)
{
    bool same = true;
    for (int i = 0; i < to->shape.rank; i++)
        same = same && (to->shape.dims[i] == 1 || to->of_axis[i] == from->of_axis[axes[i]]);
    return same;
}

/* Plain tensors and channels-last images become each other without a copy. What is copied becomes
 * plain, which most readers of permuted axes want, unless channels come to be the second axis. */
static fth_status prepare_permute(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_permute_attributes *a = node->attributes;
    const fth_plan_value output = fth_plan_value_of(plan, node->outputs[0]);
    const fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    const fth_shape from_shape = fth_plan_type(plan, node->inputs[0]).shape;
    const cuda_layout *stored = cuda_layout_of(plan, fth_plan_value_of(plan, node->inputs[0]));
    const cuda_layout standard = layout_of(plan, node->outputs[0]), plain = cuda_plain(&shape, standard.type);
    const bool to_image = shape.rank == 4 && a->axes[1] == 3;
    const fth_strides in_order = strides_of(&plain, &shape), as_image = strides_of(&standard, &shape);
    const fth_strides from = strides_of(stored, &from_shape);
    const bool viewable = !cuda_layout_of(plan, output) && stored->type == standard.type &&
                          stored->spread.how == CUDA_NOT_SPREAD && stored->channels == stored->c;

    if (viewable && is_view(&from, a->axes, &in_order)) {
        FTH_TRY(cuda_set_layout(plan, output, &plain));
        fth_plan_set_view(plan, output, fth_plan_value_of(plan, node->inputs[0]));
    } else if (viewable && standard.channels == standard.c && is_view(&from, a->axes, &as_image)) {
        FTH_TRY(cuda_set_layout(plan, output, &standard));
        fth_plan_set_view(plan, output, fth_plan_value_of(plan, node->inputs[0]));
    } else {
        FTH_TRY(copy_strided(plan, node, to_image ? &standard : &plain));
    }
out:
    return status;
}

/* ---- gather ---- */

static cudaError_t run_gather(const cuda_call *call)
{
    return cuda_launch_gather_entries(call->device->launch.stream, &call->entries, call->data[0], call->data[1],
                                      call->data[2]);
}

static cudaError_t run_gather_grad(const cuda_call *call)
{
    return cuda_launch_add_entries(call->device->launch.stream, &call->entries, call->data[0], call->data[1],
                                   call->data[2], call->data[3]);
}

/* Tensors are plain, and constants between the input and the output. */
static fth_status add_gather(fth_plan *plan, const fth_node *node, cuda_call call)
{
    fth_status status = FTH_OK;
    const int axis = ((const fth_gather_attributes *)node->attributes)->axis;
    const fth_shape from = fth_plan_type(plan, node->inputs[0]).shape, to = fth_plan_type(plan, node->outputs[0]).shape;
    const cuda_type type = layout_of(plan, node->outputs[0]).type;
    const cuda_layout source = cuda_plain(&from, type), target = cuda_plain(&to, type);
    const fth_plan_value output = fth_plan_value_of(plan, node->outputs[0]);
    const int count = node->input_count;

    call.entries =
        (cuda_entries){.type = type, .outer = 1, .from_size = from.dims[axis], .to_size = to.dims[axis], .inner = 1};
    for (int i = 0; i < to.rank; i++)
        *(i < axis ? &call.entries.outer : &call.entries.inner) *= i == axis ? 1 : to.dims[i];
    call.value_count = count + 1;
    call.write_count = 1;
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &source, &call.values[0]));
    for (int i = 1; i < count; i++)
        call.values[i] = fth_plan_value_of(plan, node->inputs[i]);
    FTH_TRY(cuda_begin_write(plan, output, &target, &call.values[count]));
    FTH_TRY(cuda_add_call(plan, node->op->name, &call));
    FTH_TRY(cuda_end_write(plan, output, call.values[count]));
out:
    return status;
}

static fth_status prepare_gather(fth_plan *plan, const fth_node *node)
{
    return add_gather(plan, node, (cuda_call){.run = run_gather});
}

static fth_status prepare_gather_grad(fth_plan *plan, const fth_node *node)
{
    return add_gather(plan, node, (cuda_call){.run = run_gather_grad});
}

const fth_kernel cuda_concat = {&fth_op_concat, prepare_concat};
const fth_kernel cuda_slice = {&fth_op_slice, prepare_slice};
const fth_kernel cuda_pad = {&fth_op_pad, prepare_pad};
const fth_kernel cuda_permute = {&fth_op_permute, prepare_permute};
const fth_kernel cuda_gather = {&fth_op_gather, prepare_gather};
const fth_kernel cuda_gather_grad = {&fth_op_gather_grad, prepare_gather_grad};
