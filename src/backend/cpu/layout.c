/* Layouts of values, and the reorders between them. See cpu_internal.h. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/block_weights.h"
#include "backend/cpu/cpu_internal.h"
#include "backend/cpu/strided_copy.h"

dnnl_data_type_t cpu_compute_dtype(const fth_plan *plan)
{
    return fth_plan_get_options(plan).precision == FTH_PRECISION_BF16 ? dnnl_bf16 : dnnl_f32;
}

dnnl_data_type_t cpu_product_dtype(const fth_plan *plan)
{
    return cpu_device_of(plan)->bf16_gain > 1 ? cpu_compute_dtype(plan) : dnnl_f32;
}

const cpu_format *cpu_layout(const fth_plan *plan, fth_plan_value value)
{
    return fth_plan_layout(plan, value);
}

fth_status cpu_set_layout(fth_plan *plan, fth_plan_value value, const cpu_format *layout)
{
    return fth_plan_set_layout(plan, value, layout, sizeof *layout, cpu_format_size(layout));
}

/* oneDNN reads dims as an array of its maximum rank. */
static void copy_dims(const fth_shape *shape, dnnl_dims_t dims)
{
    memset(dims, 0, sizeof(dnnl_dims_t));
    memcpy(dims, shape->dims, (size_t)shape->rank * sizeof dims[0]);
}

/* A format that must exist. */
static cpu_format make_format(int rank, const dnnl_dims_t dims, dnnl_data_type_t dtype, dnnl_format_tag_t tag)
{
    cpu_format format = {0};
    bool made = cpu_format_make(rank, dims, dtype, tag, &format);
    assert(made);
    (void)made;
    return format;
}

cpu_format cpu_plain(const fth_shape *shape, dnnl_data_type_t dtype)
{
    static const dnnl_format_tag_t tags[] = {0,          dnnl_a,      dnnl_ab,      dnnl_abc,     dnnl_abcd,
                                             dnnl_abcde, dnnl_abcdef, dnnl_abcdefg, dnnl_abcdefgh};
    dnnl_dims_t dims;
    if (shape->rank == 0) /* one number */
        return make_format(1, (const dnnl_dims_t){1}, dtype, dnnl_a);
    copy_dims(shape, dims);
    assert(shape->rank >= 1 && shape->rank <= FTH_MAX_RANK);
    return make_format(shape->rank, dims, dtype, tags[shape->rank]);
}

cpu_format cpu_any(const fth_shape *shape, dnnl_data_type_t dtype)
{
    dnnl_dims_t dims;
    copy_dims(shape, dims);
    return make_format(shape->rank, dims, dtype, dnnl_format_tag_any);
}

cpu_format cpu_padded_blocks(const fth_plan *plan, const fth_shape *image, dnnl_data_type_t dtype)
{
    const int64_t lanes = cpu_level_of(plan)->lanes;
    const dnnl_format_tag_t tag = lanes == 16 ? dnnl_nChw16c : lanes == 8 ? dnnl_nChw8c : dnnl_nChw4c;
    dnnl_dims_t dims;
    copy_dims(image, dims);
    return make_format(4, dims, dtype, tag);
}

cpu_format cpu_blocked(const fth_plan *plan, const fth_shape *image, dnnl_data_type_t dtype)
{
    const bool whole = image->dims[1] % cpu_level_of(plan)->lanes == 0;
    return whole ? cpu_padded_blocks(plan, image, dtype) : cpu_plain(image, dtype);
}

cpu_format cpu_channels_last(const fth_shape *image, dnnl_data_type_t dtype)
{
    dnnl_dims_t dims;
    copy_dims(image, dims);
    return make_format(4, dims, dtype, dnnl_nhwc);
}

static fth_shape shape_of(const cpu_format *layout)
{
    fth_shape shape = {.rank = layout->ndims};
    memcpy(shape.dims, layout->dims, (size_t)layout->ndims * sizeof shape.dims[0]);
    return shape;
}

bool cpu_is_plain(const cpu_format *layout)
{
    const fth_shape shape = shape_of(layout);
    const cpu_format plain = cpu_plain(&shape, layout->data_type);
    return cpu_format_equal(&plain, layout);
}

cpu_format cpu_like(const cpu_format *like, const fth_shape *shape, dnnl_data_type_t dtype)
{
    dnnl_dims_t dims;
    copy_dims(shape, dims);
    static const dnnl_format_tag_t tags[] = {dnnl_nChw16c, dnnl_nChw8c, dnnl_nChw4c, dnnl_nhwc};
    for (size_t i = 0; like->ndims == 4 && shape->rank == 4 && i < FTH_COUNT_OF(tags); i++) {
        cpu_format probe;
        if (cpu_format_make(4, like->dims, like->data_type, tags[i], &probe) && cpu_format_equal(&probe, like))
            return make_format(4, dims, dtype, tags[i]);
    }
    return cpu_plain(shape, dtype);
}

size_t cpu_physical_count(const cpu_format *layout)
{
    return cpu_format_size(layout) / (layout->data_type == dnnl_bf16 ? 2 : layout->data_type == dnnl_u8 ? 1 : 4);
}

static fth_status add_reorder(fth_plan *plan, fth_plan_value from, fth_plan_value to)
{
    fth_status status = FTH_OK;
    dnnl_primitive_desc_t descriptor = NULL;
    if (cpu_can_block_weights(plan, cpu_layout(plan, from), cpu_layout(plan, to)))
        return cpu_add_block_weights(plan, from, to);
    if (cpu_can_reorder(cpu_layout(plan, from), cpu_layout(plan, to)))
        return cpu_add_reorder(plan, from, to);
    FTH_TRY(
        cpu_describe_reorder(cpu_device_of(plan)->engine, cpu_layout(plan, from), cpu_layout(plan, to), &descriptor));
    const cpu_argument arguments[] = {{DNNL_ARG_FROM, from, false, NULL}, {DNNL_ARG_TO, to, true, NULL}};
    FTH_TRY(cpu_add_primitive(plan, "reorder", &descriptor, arguments, 2));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

/* An f32 copy of a value stored in bf16 is the larger of the two: not worth keeping from the
 * forward pass for the backward pass. */
static bool is_worth_keeping(const fth_plan *plan, fth_plan_value value, const cpu_format *copy)
{
    const fth_graph *graph = fth_plan_graph(plan);
    const bool is_wider = cpu_layout(plan, value)->data_type == dnnl_bf16 && copy->data_type == dnnl_f32;
    const bool is_main = value.index < fth_graph_value_count(graph);
    return !is_wider || !fth_plan_is_backward(plan) || !is_main ||
           fth_graph_value(graph, value.index)->producer >= fth_graph_forward_node_count(graph);
}

static fth_plan_value find_copy(const fth_plan *plan, fth_plan_value value, const cpu_format *wanted)
{
    fth_plan_value copy = FTH_NO_PLAN_VALUE;
    if (!is_worth_keeping(plan, value, wanted))
        return copy;
    do {
        copy = fth_plan_next_copy(plan, value, copy);
    } while (fth_plan_value_exists(copy) && !cpu_format_equal(cpu_layout(plan, copy), wanted));
    return copy;
}

fth_status cpu_read_as(fth_plan *plan, fth_plan_value value, const cpu_format *wanted, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    *as = cpu_format_equal(cpu_layout(plan, value), wanted) ? value : find_copy(plan, value, wanted);
    if (fth_plan_value_exists(*as))
        return FTH_OK;
    fth_plan_value copy;
    FTH_TRY(fth_plan_add_value(plan, &copy));
    FTH_TRY(cpu_set_layout(plan, copy, wanted));
    FTH_TRY(add_reorder(plan, value, copy));
    fth_plan_note_copy(plan, copy, value);
    *as = copy;
out:
    return status;
}

fth_status cpu_read_plain(fth_plan *plan, fth_value value, dnnl_data_type_t dtype, fth_plan_value *as)
{
    fth_type type = fth_plan_type(plan, value);
    cpu_format plain = cpu_plain(&type.shape, dtype);
    return cpu_read_as(plan, fth_plan_value_of(plan, value), &plain, as);
}

static cpu_format blocked_format(const fth_plan *plan, fth_value value, dnnl_data_type_t dtype)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    return cpu_blocked(plan, &shape, dtype);
}

fth_status cpu_read_blocked(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const cpu_format blocked = blocked_format(plan, value, dnnl_f32);
    return cpu_read_as(plan, fth_plan_value_of(plan, value), &blocked, as);
}

fth_status cpu_read_stored(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const cpu_format blocked = blocked_format(plan, value, cpu_compute_dtype(plan));
    return cpu_read_as(plan, fth_plan_value_of(plan, value), &blocked, as);
}

fth_status cpu_begin_write(fth_plan *plan, fth_plan_value value, const cpu_format *layout, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    const cpu_format *fixed = cpu_layout(plan, value);
    *as = value;
    if (!fixed)
        return cpu_set_layout(plan, value, layout);
    if (cpu_format_equal(fixed, layout))
        return FTH_OK;
    FTH_TRY(fth_plan_add_value(plan, as));
    FTH_TRY(cpu_set_layout(plan, *as, layout));
out:
    return status;
}

fth_status cpu_begin_write_rounded(fth_plan *plan, fth_plan_value value, const cpu_format *layout, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    const dnnl_data_type_t dtype = cpu_compute_dtype(plan);
    const fth_shape shape = shape_of(layout);
    const cpu_format kept = dtype == layout->data_type ? *layout : cpu_like(layout, &shape, dtype);
    if (!cpu_layout(plan, value))
        FTH_TRY(cpu_set_layout(plan, value, &kept));
    FTH_TRY(cpu_begin_write(plan, value, layout, as));
out:
    return status;
}

fth_status cpu_begin_write_stored(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const cpu_format blocked = blocked_format(plan, value, cpu_compute_dtype(plan));
    return cpu_begin_write(plan, fth_plan_value_of(plan, value), &blocked, as);
}

fth_status cpu_end_write(fth_plan *plan, fth_plan_value value, fth_plan_value as)
{
    return fth_plan_value_equal(as, value) ? FTH_OK : add_reorder(plan, as, value);
}

fth_status cpu_fix_plain(fth_plan *plan, fth_value value)
{
    if (cpu_layout(plan, fth_plan_value_of(plan, value)))
        return FTH_OK;
    fth_type type = fth_plan_type(plan, value);
    cpu_format plain = cpu_plain(&type.shape, dnnl_f32);
    return cpu_set_layout(plan, fth_plan_value_of(plan, value), &plain);
}

fth_status cpu_add_scratch_floats(fth_plan *plan, int64_t count, fth_plan_value *scratch)
{
    return cpu_add_scratch(plan, (size_t)count * sizeof(float), scratch);
}

fth_status cpu_add_scratch(fth_plan *plan, size_t size_bytes, fth_plan_value *scratch)
{
    fth_status status = FTH_OK;
    dnnl_dims_t dims = {(dnnl_dim_t)size_bytes};
    cpu_format layout = make_format(1, dims, dnnl_u8, dnnl_a);
    FTH_TRY(fth_plan_add_value(plan, scratch));
    FTH_TRY(cpu_set_layout(plan, *scratch, &layout));
out:
    return status;
}
