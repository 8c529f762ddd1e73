/* Ops that move elements in ONNX: see onnx_internal.h. Integers are INT64 there, as PyTorch's. */
#include <stdlib.h>

#include "export/onnx_internal.h"

static fth_onnx_name add_integers(fth_onnx_writer *writer, const int64_t *values, int64_t count)
{
    return fth_onnx_add_constant(writer, FTH_ONNX_INT64, &count, 1, values, (size_t)count * sizeof *values);
}

static const fth_type *type_of(const fth_onnx_writer *writer, fth_value value)
{
    return &fth_graph_value(writer->graph, value)->type;
}

fth_status fth_onnx_write_constant(fth_onnx_writer *writer, const fth_value_info *value, fth_onnx_name *name)
{
    fth_status status = FTH_OK;
    const fth_shape *shape = &value->type.shape;
    const size_t count = (size_t)fth_shape_count(shape);
    int64_t *integers = NULL;

    if (value->type.dtype == FTH_F32) {
        *name = fth_onnx_add_constant(writer, FTH_ONNX_FLOAT, shape->dims, (size_t)shape->rank, value->data,
                                      count * sizeof(float));
        return FTH_OK;
    }
    FTH_TRY(fth_allocate(count, sizeof *integers, &integers));
    for (size_t i = 0; i < count; i++)
        integers[i] = ((const int32_t *)value->data)[i];
    *name = fth_onnx_add_constant(writer, FTH_ONNX_INT64, shape->dims, (size_t)shape->rank, integers,
                                  count * sizeof *integers);

out:
    free(integers);
    return status;
}

static fth_status write_concat(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_concat_attributes *a = node->attributes;
    fth_protobuf concat = fth_onnx_begin_node("Concat", NULL, 0);
    for (int i = 0; i < node->input_count; i++)
        fth_onnx_add_input(&concat, fth_onnx_input_name(writer, node, i));
    fth_onnx_add_integer(&concat, "axis", a->axis);
    fth_onnx_end_node(writer, &concat, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_status write_slice(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_slice_attributes *a = node->attributes;
    fth_onnx_name begin = add_integers(writer, &a->begin, 1), end = add_integers(writer, &a->end, 1);
    fth_onnx_name axis = add_integers(writer, (int64_t[]){a->axis}, 1), step = add_integers(writer, &a->step, 1);
    const char *inputs[] = {fth_onnx_input_name(writer, node, 0), begin.text, end.text, axis.text, step.text};
    fth_protobuf slice = fth_onnx_begin_node("Slice", inputs, (int)FTH_COUNT_OF(inputs));
    fth_onnx_end_node(writer, &slice, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

/* ONNX's pads are those before each axis, then those after. */
static fth_status write_pad(fth_onnx_writer *writer, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_pad_attributes *a = node->attributes;
    const fth_type *type = type_of(writer, node->inputs[0]);
    const int rank = type->shape.rank;
    const int64_t whole = (int64_t)a->value;
    int64_t pads[2 * FTH_MAX_RANK] = {0};

    FTH_REQUIRE(a->between == 0, FTH_UNSUPPORTED, "entries between those of an axis have no translation to ONNX");
    pads[a->axis] = a->before;
    pads[rank + a->axis] = a->after;
    fth_onnx_name amounts = add_integers(writer, pads, 2 * (int64_t)rank);
    fth_onnx_name value = type->dtype == FTH_F32
                              ? fth_onnx_add_number(writer, a->value)
                              : fth_onnx_add_constant(writer, FTH_ONNX_INT64, NULL, 0, &whole, sizeof whole);
    const char *inputs[] = {fth_onnx_input_name(writer, node, 0), amounts.text, value.text};
    fth_protobuf pad = fth_onnx_begin_node("Pad", inputs, (int)FTH_COUNT_OF(inputs));
    fth_onnx_end_node(writer, &pad, fth_onnx_output_name(writer, node));

out:
    return status;
}

static fth_status write_permute(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_permute_attributes *a = node->attributes;
    int64_t axes[FTH_MAX_RANK];
    const int rank = type_of(writer, node->outputs[0])->shape.rank;
    for (int i = 0; i < rank; i++)
        axes[i] = a->axes[i];
    fth_protobuf transpose =
        fth_onnx_begin_node("Transpose", (const char *[]){fth_onnx_input_name(writer, node, 0)}, 1);
    fth_onnx_add_integers(&transpose, "perm", axes, (size_t)rank);
    fth_onnx_end_node(writer, &transpose, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_status write_gather(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_gather_attributes *a = node->attributes;
    const char *inputs[] = {fth_onnx_input_name(writer, node, 0), fth_onnx_input_name(writer, node, 1)};
    fth_protobuf gather = fth_onnx_begin_node("Gather", inputs, 2);
    fth_onnx_add_integer(&gather, "axis", a->axis);
    fth_onnx_end_node(writer, &gather, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_status write_reshape(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_shape *from = &type_of(writer, node->inputs[0])->shape;
    const fth_shape *to = &((const fth_reshape_attributes *)node->attributes)->shape;
    const char *x = fth_onnx_input_name(writer, node, 0);
    const bool keeps_rows = from->dims[0] == to->dims[0];
    if (to->rank == 2 && keeps_rows) {
        fth_protobuf flatten = fth_onnx_begin_node("Flatten", &x, 1);
        fth_onnx_add_integer(&flatten, "axis", 1);
        fth_onnx_end_node(writer, &flatten, fth_onnx_output_name(writer, node));
        return FTH_OK;
    }
    int64_t dims[FTH_MAX_RANK];
    for (int i = 0; i < to->rank; i++)
        dims[i] = i > 0 || to->dims[0] >= 0 ? to->dims[i] : keeps_rows ? 0 : -1; /* the input's; what is left */
    fth_onnx_name shape = add_integers(writer, dims, to->rank);
    fth_onnx_add_plain(writer, "Reshape", x, shape.text, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

const fth_onnx_op fth_onnx_arrange_ops[] = {
    {&fth_op_concat, write_concat},
    {&fth_op_slice, write_slice},
    {&fth_op_pad, write_pad},
    {&fth_op_permute, write_permute},
    {&fth_op_gather, write_gather},
    {&fth_op_reshape, write_reshape},
    {NULL, NULL},
};
