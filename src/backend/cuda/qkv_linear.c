/* Three dense layers of one input as one product over their weights, which are cast one behind the
 * other. The gradients go straight into the flat vector where it has the three in a row, as it has
 * if all are trained. */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/product.h"
#include "backend/cuda/step.h"
#include "backend/cuda/weights.h"

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_shape weight = fth_plan_type(plan, node->inputs[1]).shape;
    const cuda_layout y_layout = cuda_product_layout(plan, node->outputs[0]);
    fth_plan_value x, weights, bias;
    FTH_TRY(cuda_read_weights(plan, &node->inputs[1], 3, cuda_compute_type(plan), &weights));
    FTH_TRY(cuda_read_weights(plan, &node->inputs[4], 3, y_layout.type, &bias));
    FTH_TRY(cuda_read(plan, node->inputs[0], &x));
    FTH_TRY(cuda_set_layout(plan, fth_plan_value_of(plan, node->outputs[0]), &y_layout));
    FTH_TRY(cuda_add_product(plan, &(cuda_product){.name = "qkv_linear",
                                                   .m = 3 * weight.dims[0],
                                                   .n = y_layout.n,
                                                   .k = weight.dims[1],
                                                   .transpose_a = true,
                                                   .a = weights,
                                                   .b = x,
                                                   .d = fth_plan_value_of(plan, node->outputs[0]),
                                                   .bias = bias,
                                                   .ab_type = cuda_compute_type(plan),
                                                   .d_type = y_layout.type}));
out:
    return status;
}

static fth_status prepare_grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_shape weight = fth_plan_type(plan, node->inputs[1]).shape;
    const cuda_layout dx_layout = cuda_product_layout(plan, node->outputs[0]);
    fth_plan_value dy, weights;
    FTH_TRY(cuda_read_weights(plan, &node->inputs[1], 3, cuda_compute_type(plan), &weights));
    FTH_TRY(cuda_read(plan, node->inputs[0], &dy));
    FTH_TRY(cuda_set_layout(plan, fth_plan_value_of(plan, node->outputs[0]), &dx_layout));
    FTH_TRY(cuda_add_product(plan, &(cuda_product){.name = "qkv_linear_grad_input",
                                                   .m = weight.dims[1],
                                                   .n = dx_layout.n,
                                                   .k = 3 * weight.dims[0],
                                                   .a = weights,
                                                   .b = dy,
                                                   .d = fth_plan_value_of(plan, node->outputs[0]),
                                                   .bias = FTH_NO_PLAN_VALUE,
                                                   .ab_type = cuda_compute_type(plan),
                                                   .d_type = dx_layout.type}));
out:
    return status;
}

/* The gradient of `count` neighbouring weights, from the part of dy that belongs to them. */
static fth_status add_weight_gradient(fth_plan *plan, fth_plan_value x, fth_plan_value dy, const fth_value *dweights,
                                      int first, int count)
{
    const fth_shape weight = fth_plan_type(plan, dweights[0]).shape;
    cuda_product product = {.name = "qkv_linear_grad_weights",
                            .m = weight.dims[1],
                            .n = count * weight.dims[0],
                            .k = cuda_layout_of(plan, x)->n,
                            .transpose_b = true,
                            .a = x,
                            .b = dy,
                            .b_first = first * weight.dims[0],
                            .b_stride = 3 * weight.dims[0],
                            .d = fth_plan_value_of(plan, dweights[0]),
                            .bias = FTH_NO_PLAN_VALUE,
                            .ab_type = cuda_compute_type(plan),
                            .d_type = CUDA_TYPE_F32};
    for (int i = 1; i < count; i++)
        product.behind_d[product.behind_d_count++] = fth_plan_value_of(plan, dweights[i]);
    return cuda_add_product(plan, &product);
}

static fth_status prepare_grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_value *dweights = node->outputs, *dbiases = node->outputs + 3;
    bool biases = false;
    fth_plan_value x, dy;
    FTH_TRY(cuda_read(plan, node->inputs[0], &x));
    FTH_TRY(cuda_read(plan, node->inputs[1], &dy));
    for (int i = 0; i < 3; i++) {
        biases = biases || fth_plan_is_used(plan, dbiases[i]);
        FTH_TRY(cuda_fix_plain(plan, dweights[i]));
    }
    if (biases)
        FTH_TRY(cuda_add_bias_gradient(plan, dy, dbiases, 3));
    if (cuda_gradients_in_a_row(plan, dweights, 3)) {
        FTH_TRY(add_weight_gradient(plan, x, dy, dweights, 0, 3));
        goto out;
    }
    for (int i = 0; i < 3; i++)
        if (fth_plan_is_used(plan, dweights[i]))
            FTH_TRY(add_weight_gradient(plan, x, dy, &dweights[i], i, 1));
out:
    return status;
}

const fth_kernel cuda_qkv_linear = {&fth_op_qkv_linear, prepare_forward};
const fth_kernel cuda_qkv_linear_grad_input = {&fth_op_qkv_linear_grad_input, prepare_grad_input};
const fth_kernel cuda_qkv_linear_grad_weights = {&fth_op_qkv_linear_grad_weights, prepare_grad_weights};
