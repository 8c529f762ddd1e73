/* max_pool and its gradient. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"
#include "graph/rule_pool.h"

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_infer_pool(attributes, &inputs[0], &outputs[0]));
    outputs[1] = (fth_type){FTH_I32, outputs[0].shape};
out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    return fth_graph_add_node(graph, &fth_op_max_pool_grad, node->attributes,
                              (fth_value[]){output_gradients[0], node->outputs[1]}, 2, &input_gradients[0]);
}

const fth_op fth_op_max_pool = {
    .name = "max_pool",
    .attributes_size = sizeof(fth_pool_attributes),
    .output_count = 2,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_pool_attributes *attributes = attributes_pointer;
    fth_type x = {FTH_F32, attributes->input_shape}, y;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_infer_pool(attributes, &x, &y));
    FTH_TRY(fth_rule_check_shape(&inputs[0], "the output's gradient", &y.shape));
    FTH_REQUIRE(inputs[1].dtype == FTH_I32 && fth_shape_equal(&inputs[1].shape, &y.shape), FTH_INVALID,
                "the places of the maxima have shape %s; they must be I32 %s", FTH_SHAPE_TEXT(&inputs[1].shape),
                FTH_SHAPE_TEXT(&y.shape));
    outputs[0] = x;

out:
    return status;
}

const fth_op fth_op_max_pool_grad = {
    .name = "max_pool_grad",
    .attributes_size = sizeof(fth_pool_attributes),
    .output_count = 1,
    .infer = infer_grad,
};

fth_status fth_op_add_max_pool(fth_graph *graph, fth_pool_attributes attributes, fth_value x, fth_value *y)
{
    fth_value outputs[2];
    fth_rule_complete_pool(graph, x, &attributes);
    fth_status status = fth_graph_add_node(graph, &fth_op_max_pool, &attributes, &x, 1, outputs);
    if (status == FTH_OK)
        *y = outputs[0];
    return status;
}
