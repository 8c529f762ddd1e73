/* matrix_product: one product for each sample; its gradients are such products as well. See
 * ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_matrix_product_attributes *attributes = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the left matrix", 3));
    FTH_TRY(fth_rule_check_float(&inputs[1], "the right matrix", 3));
    const fth_shape *a = &inputs[0].shape, *b = &inputs[1].shape;
    FTH_REQUIRE(a->dims[0] == b->dims[0] &&
                    a->dims[attributes->transpose_a ? 1 : 2] == b->dims[attributes->transpose_b ? 2 : 1],
                FTH_INVALID, "the matrices %s%s and %s%s cannot be multiplied", FTH_SHAPE_TEXT(a),
                attributes->transpose_a ? ", transposed," : "", FTH_SHAPE_TEXT(b),
                attributes->transpose_b ? ", transposed," : "");
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(a->dims[0], a->dims[attributes->transpose_a ? 2 : 1],
                                               b->dims[attributes->transpose_b ? 1 : 2])};

out:
    return status;
}

static fth_status add(fth_graph *graph, fth_value a, bool transpose_a, fth_value b, bool transpose_b, fth_value *y)
{
    return fth_op_add_matrix_product(graph, (fth_matrix_product_attributes){transpose_a, transpose_b}, a, b, y);
}

/* With A and B as they are multiplied: dA = dY · Bᵀ, dB = Aᵀ · dY; transposed where they were given
 * so. */
static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const fth_matrix_product_attributes *attributes = node->attributes;
    const bool ta = attributes->transpose_a, tb = attributes->transpose_b;
    const fth_value a = node->inputs[0], b = node->inputs[1], dy = output_gradients[0];

    if (fth_rule_wants(graph, node, 0)) {
        if (ta)
            FTH_TRY(add(graph, b, tb, dy, true, &input_gradients[0]));
        else
            FTH_TRY(add(graph, dy, false, b, !tb, &input_gradients[0]));
    }
    if (fth_rule_wants(graph, node, 1)) {
        if (tb)
            FTH_TRY(add(graph, dy, true, a, ta, &input_gradients[1]));
        else
            FTH_TRY(add(graph, a, !ta, dy, false, &input_gradients[1]));
    }

out:
    return status;
}

const fth_op fth_op_matrix_product = {
    .name = "matrix_product",
    .attributes_size = sizeof(fth_matrix_product_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

fth_status fth_op_add_matrix_product(fth_graph *graph, fth_matrix_product_attributes attributes, fth_value a,
                                     fth_value b, fth_value *y)
{
    return fth_graph_add_node(graph, &fth_op_matrix_product, &attributes, (fth_value[]){a, b}, 2, y);
}
