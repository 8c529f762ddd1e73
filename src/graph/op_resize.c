/* resize and its gradient. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_resize_attributes *attributes = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 4));
    FTH_REQUIRE(attributes->height >= 1 && attributes->width >= 1, FTH_INVALID,
                "a result of %d×%d; it must be at least 1×1", attributes->height, attributes->width);
    FTH_REQUIRE(attributes->scale_factors[0] >= 0 && attributes->scale_factors[1] >= 0, FTH_INVALID,
                "scale factors %g and %g; they must be at least 0", attributes->scale_factors[0],
                attributes->scale_factors[1]);
    FTH_REQUIRE(attributes->bilinear || !attributes->align_corners, FTH_INVALID,
                "only bilinear resizing can align corners");
    outputs[0] = (fth_type){
        FTH_F32, FTH_SHAPE(inputs[0].shape.dims[0], inputs[0].shape.dims[1], attributes->height, attributes->width)};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    return fth_graph_add_node(graph, &fth_op_resize_grad, node->attributes, &output_gradients[0], 1,
                              &input_gradients[0]);
}

const fth_op fth_op_resize = {
    .name = "resize",
    .attributes_size = sizeof(fth_resize_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_resize_attributes *attributes = attributes_pointer;
    fth_type x = {FTH_F32, attributes->input_shape}, y;

    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(infer(attributes, &x, 1, &y));
    FTH_TRY(fth_rule_check_shape(&inputs[0], "the output's gradient", &y.shape));
    outputs[0] = x;

out:
    return status;
}

const fth_op fth_op_resize_grad = {
    .name = "resize_grad",
    .attributes_size = sizeof(fth_resize_attributes),
    .output_count = 1,
    .infer = infer_grad,
};

fth_status fth_op_add_resize(fth_graph *graph, fth_resize_attributes attributes, fth_value x, fth_value *y)
{
    const fth_value_info *input = fth_graph_value(graph, x);
    if (input)
        attributes.input_shape = input->type.shape;
    return fth_graph_add_node(graph, &fth_op_resize, &attributes, &x, 1, y);
}
