/* Products of matrices, one for each sample. */
#include "backend/plain/plain.h"

/* y[n,i,j] = sum over k of a[n,i,k] * b[n,k,j], with a and b transposed where they are given so */
static fth_status run_matrix_product(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_matrix_product_attributes *attributes = call->attributes;
    const bool ta = attributes->transpose_a, tb = attributes->transpose_b;
    const fth_shape *shape = &call->outputs[0].shape;
    const int64_t rows = shape->dims[1], columns = shape->dims[2];
    const int64_t depth = call->inputs[0].shape.dims[ta ? 1 : 2];
    float *y = call->outputs[0].floats;
    for (int64_t n = 0; n < shape->dims[0]; n++) {
        const float *a = call->inputs[0].floats + n * rows * depth, *b = call->inputs[1].floats + n * depth * columns;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                double sum = 0;
                for (int64_t k = 0; k < depth; k++)
                    sum += (double)a[ta ? k * rows + i : i * depth + k] * b[tb ? j * depth + k : k * columns + j];
                y[(n * rows + i) * columns + j] = (float)sum;
            }
    }
    return FTH_OK;
}

const plain_kernel plain_matrix_product = {&fth_op_matrix_product, run_matrix_product, 0};
