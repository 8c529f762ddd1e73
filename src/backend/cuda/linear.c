/* Dense layers: products, the bias in their epilogue. With x (N, F), weight (O, F), y (N, O), in columns:
 *     y'  (O, N) = weight (F, O)^T * x' (F, N)
 *     dx' (F, N) = weight (F, O)   * dy' (O, N)
 *     dw' (F, O) = x' (F, N)       * dy' (O, N)^T */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/product.h"
#include "backend/cuda/weights.h"

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_linear_attributes *a = node->attributes;
    fth_shape weight = fth_plan_type(plan, node->inputs[1]).shape;
    const cuda_type type = cuda_compute_type(plan);
    const cuda_layout w_layout = cuda_plain(&weight, type), y_layout = cuda_product_layout(plan, node->outputs[0]);
    fth_plan_value x, w, bias = FTH_NO_PLAN_VALUE;
    FTH_TRY(cuda_read_weight(plan, node->inputs[1], &w_layout, &w));
    FTH_TRY(cuda_read(plan, node->inputs[0], &x));
    if (node->input_count > 2) {
        fth_shape shape = fth_plan_type(plan, node->inputs[2]).shape;
        const cuda_layout bias_layout = cuda_plain(&shape, y_layout.type);
        FTH_TRY(cuda_read_weight(plan, node->inputs[2], &bias_layout, &bias));
    }
    FTH_TRY(cuda_set_layout(plan, fth_plan_value_of(plan, node->outputs[0]), &y_layout));
    FTH_TRY(cuda_add_product(plan, &(cuda_product){.name = "linear",
                                                   .m = weight.dims[0],
                                                   .n = y_layout.n,
                                                   .k = weight.dims[1],
                                                   .transpose_a = true,
                                                   .a = w,
                                                   .b = x,
                                                   .d = fth_plan_value_of(plan, node->outputs[0]),
                                                   .bias = bias,
                                                   .ab_type = type,
                                                   .d_type = y_layout.type}));
    if (a->relu) /* cuBLASLt's own ReLU turns NaN into 0 */
        FTH_TRY(cuda_add_bias(plan, &y_layout, fth_plan_value_of(plan, node->outputs[0]), FTH_NO_PLAN_VALUE, true));
out:
    return status;
}

static fth_status prepare_grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_shape weight = fth_plan_type(plan, node->inputs[1]).shape;
    const cuda_type type = cuda_compute_type(plan);
    const cuda_layout w_layout = cuda_plain(&weight, type), dx_layout = cuda_product_layout(plan, node->outputs[0]);
    fth_plan_value dy, w;
    FTH_TRY(cuda_read_weight(plan, node->inputs[1], &w_layout, &w));
    FTH_TRY(cuda_read(plan, node->inputs[0], &dy));
    FTH_TRY(cuda_set_layout(plan, fth_plan_value_of(plan, node->outputs[0]), &dx_layout));
    FTH_TRY(cuda_add_product(plan, &(cuda_product){.name = "linear_grad_input",
                                                   .m = weight.dims[1],
                                                   .n = dx_layout.n,
                                                   .k = weight.dims[0],
                                                   .a = w,
                                                   .b = dy,
                                                   .d = fth_plan_value_of(plan, node->outputs[0]),
                                                   .bias = FTH_NO_PLAN_VALUE,
                                                   .ab_type = type,
                                                   .d_type = dx_layout.type}));
out:
    return status;
}

static fth_status prepare_grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_shape weight = fth_plan_type(plan, node->outputs[0]).shape;
    const cuda_type type = cuda_compute_type(plan);
    fth_plan_value x, dy;
    FTH_TRY(cuda_read(plan, node->inputs[0], &x));
    FTH_TRY(cuda_read(plan, node->inputs[1], &dy));
    if (fth_plan_is_used(plan, node->outputs[1]) && cuda_bias_taker(plan, node->inputs[1]) != node)
        FTH_TRY(cuda_add_bias_gradient(plan, dy, &node->outputs[1], 1));
    FTH_TRY(cuda_fix_plain(plan, node->outputs[0]));
    FTH_TRY(cuda_add_product(plan, &(cuda_product){.name = "linear_grad_weights",
                                                   .m = weight.dims[1],
                                                   .n = weight.dims[0],
                                                   .k = cuda_layout_of(plan, x)->n,
                                                   .transpose_b = true,
                                                   .a = x,
                                                   .b = dy,
                                                   .d = fth_plan_value_of(plan, node->outputs[0]),
                                                   .bias = FTH_NO_PLAN_VALUE,
                                                   .ab_type = type,
                                                   .d_type = CUDA_TYPE_F32}));
out:
    return status;
}

const fth_kernel cuda_linear = {&fth_op_linear, prepare_forward};
const fth_kernel cuda_linear_grad_input = {&fth_op_linear_grad_input, prepare_grad_input};
const fth_kernel cuda_linear_grad_weights = {&fth_op_linear_grad_weights, prepare_grad_weights};
