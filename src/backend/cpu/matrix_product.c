/* Products of two batches of matrices: oneDNN's matmul, which reads a transposed operand in
 * place. */
#include "backend/cpu/rows.h"

/* The format of an operand as the product sees it; `stored` is its shape in memory, with rows and
 * columns swapped if `transposed`. */
static cpu_format operand_format(const fth_shape *stored, bool transposed, dnnl_data_type_t dtype)
{
    const dnnl_dims_t dims = {stored->dims[0], stored->dims[transposed ? 2 : 1], stored->dims[transposed ? 1 : 2]};
    cpu_format format = {0};
    cpu_format_make(3, dims, dtype, transposed ? dnnl_acb : dnnl_abc, &format);
    return format;
}

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_matrix_product_attributes *attributes = node->attributes;
    const dnnl_data_type_t dtype = cpu_compute_dtype(plan);
    const fth_shape a_shape = fth_plan_type(plan, node->inputs[0]).shape;
    const fth_shape b_shape = fth_plan_type(plan, node->inputs[1]).shape;
    const fth_shape y_shape = fth_plan_type(plan, node->outputs[0]).shape;
    const cpu_format a_format = operand_format(&a_shape, attributes->transpose_a, dtype);
    const cpu_format b_format = operand_format(&b_shape, attributes->transpose_b, dtype);
    const cpu_format y_format = cpu_plain(&y_shape, dtype);
    dnnl_primitive_desc_t descriptor = NULL;
    fth_plan_value a, b, y;
    FTH_TRY(cpu_describe_matrix_product(cpu_device_of(plan)->engine, &a_format, &b_format, &y_format, &descriptor));
    FTH_TRY(cpu_read_rows(plan, node->inputs[0], &a));
    FTH_TRY(cpu_read_rows(plan, node->inputs[1], &b));
    FTH_TRY(cpu_begin_rows(plan, node->outputs[0], &y));
    const cpu_argument arguments[] = {
        {DNNL_ARG_SRC, a, false, &a_format}, {DNNL_ARG_WEIGHTS, b, false, &b_format}, {DNNL_ARG_DST, y, true, NULL}};
    FTH_TRY(cpu_add_primitive(plan, "matrix_product", &descriptor, arguments, 3));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

const fth_kernel cpu_matrix_product = {&fth_op_matrix_product, prepare};
