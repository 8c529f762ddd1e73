/* attention within each sequence of a packed batch, and its gradient. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

enum { LONGEST = 1 << 16 }; /* a fourth of what a row of scores has draws of dropout for */

/* What both ops begin with: the attributes, qkv (T, 3 H D), ends. */
static fth_status check(const fth_attention_attributes *attributes, const fth_type *inputs)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_check_dropout(attributes->probability));
    FTH_REQUIRE(attributes->longest >= 1 && attributes->longest <= LONGEST, FTH_INVALID,
                "sequences of up to %d tokens; it must be 1 to %d", attributes->longest, LONGEST);
    FTH_TRY(fth_rule_check_float(&inputs[0], "the queries, keys and values", 2));
    FTH_TRY(fth_rule_check_integers(&inputs[1], "the ends", 0));
    FTH_REQUIRE(attributes->heads >= 1 && inputs[0].shape.dims[1] % (3 * (int64_t)attributes->heads) == 0, FTH_INVALID,
                "queries, keys and values %s cannot be parted into %s", FTH_SHAPE_TEXT(&inputs[0].shape),
                FTH_COUNTED(attributes->heads, "head"));
out:
    return status;
}

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_attention_attributes *attributes = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(check(attributes, inputs));
    const fth_shape *qkv = &inputs[0].shape;
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(qkv->dims[0], qkv->dims[1] / 3)};
    outputs[1] = (fth_type){FTH_F32, FTH_SHAPE(qkv->dims[0], attributes->heads)};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    if (output_gradients[1] != FTH_NO_VALUE)
        return fth_fail(FTH_UNSUPPORTED, "only the first output has a gradient");
    return fth_graph_add_node(
        graph, &fth_op_attention_grad, node->attributes,
        (fth_value[]){node->inputs[0], node->inputs[1], node->outputs[0], node->outputs[1], output_gradients[0]}, 5,
        &input_gradients[0]);
}

const fth_op fth_op_attention = {
    .name = "attention",
    .attributes_size = sizeof(fth_attention_attributes),
    .output_count = 2,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_attention_attributes *attributes = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 5, 5));
    FTH_TRY(check(attributes, inputs));
    const fth_shape *qkv = &inputs[0].shape, y = FTH_SHAPE(qkv->dims[0], qkv->dims[1] / 3);
    FTH_TRY(fth_rule_check_shape(&inputs[2], "the output", &y));
    FTH_TRY(fth_rule_check_shape(&inputs[3], "the statistics", &FTH_SHAPE(qkv->dims[0], attributes->heads)));
    FTH_TRY(fth_rule_check_shape(&inputs[4], "the output's gradient", &y));
    outputs[0] = inputs[0];

out:
    return status;
}

const fth_op fth_op_attention_grad = {
    .name = "attention_grad",
    .attributes_size = sizeof(fth_attention_attributes),
    .output_count = 1,
    .infer = infer_grad,
};

fth_status fth_op_add_attention(fth_graph *graph, fth_attention_attributes attributes, fth_value qkv, fth_value ends,
                                fth_value *y)
{
    fth_value outputs[2];
    attributes.dropout = fth_rule_next_dropout(graph);
    fth_status status = fth_graph_add_node(graph, &fth_op_attention, &attributes, (fth_value[]){qkv, ends}, 2, outputs);
    if (status == FTH_OK)
        *y = outputs[0];
    return status;
}
