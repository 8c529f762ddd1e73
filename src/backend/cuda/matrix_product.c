/* One product for each sample. In columns, y' (P, M) = b' (P, K) * a' (K, M). */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/product.h"

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_matrix_product_attributes *attributes = node->attributes;
    const fth_shape left = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->outputs[0]).shape;
    const cuda_layout layout = cuda_product_layout(plan, node->outputs[0]);
    fth_plan_value a, b;
    FTH_TRY(cuda_read(plan, node->inputs[0], &a));
    FTH_TRY(cuda_read(plan, node->inputs[1], &b));
    FTH_TRY(cuda_set_layout(plan, fth_plan_value_of(plan, node->outputs[0]), &layout));
    FTH_TRY(cuda_add_product(plan, &(cuda_product){.name = "matrix_product",
                                                   .m = y.dims[2],
                                                   .n = y.dims[1],
                                                   .k = left.dims[attributes->transpose_a ? 1 : 2],
                                                   .batch = y.dims[0],
                                                   .transpose_a = attributes->transpose_b,
                                                   .transpose_b = attributes->transpose_a,
                                                   .a = b,
                                                   .b = a,
                                                   .d = fth_plan_value_of(plan, node->outputs[0]),
                                                   .bias = FTH_NO_PLAN_VALUE,
                                                   .ab_type = cuda_compute_type(plan),
                                                   .d_type = layout.type}));
out:
    return status;
}

const fth_kernel cuda_matrix_product = {&fth_op_matrix_product, prepare};
