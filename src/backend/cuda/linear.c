/* Dense layers through cuBLASLt, bias and ReLU in its epilogue.
 *
 * cuBLASLt counts in columns: a row-major (R, K) matrix is its (K, R). With x (N, F), weight (O, F), y (N, O):
 *     y'  (O, N) = weight (F, O)^T * x' (F, N)
 *     dx' (F, N) = weight (F, O)   * dy' (O, N)
 *     dw' (F, O) = x' (F, N)       * dy' (O, N)^T */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"
#include "backend/cuda/weights.h"

enum { WORKSPACE_BYTES = 32 << 20 };

typedef struct product_step {
    cuda_device *device;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a_layout, b_layout, d_layout;
    cublasLtMatmulAlgo_t algorithm;
    fth_plan_value a, b, d, bias, workspace; /* or none */
    void *a_data, *b_data, *d_data, *workspace_data;
} product_step;

typedef struct product {
    const char *name;
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    fth_plan_value a, b, d, bias;
    cuda_type ab_type, d_type;
} product;

static void release_product(void *state)
{
    product_step *step = state;
    if (!step)
        return;
    if (step->operation)
        cublasLtMatmulDescDestroy(step->operation);
    if (step->a_layout)
        cublasLtMatrixLayoutDestroy(step->a_layout);
    if (step->b_layout)
        cublasLtMatrixLayoutDestroy(step->b_layout);
    if (step->d_layout)
        cublasLtMatrixLayoutDestroy(step->d_layout);
    free(step);
}

static fth_status bind_product(void *state, const fth_plan *plan)
{
    fth_status status = FTH_OK;
    product_step *step = state;
    step->a_data = fth_plan_data(plan, step->a);
    step->b_data = fth_plan_data(plan, step->b);
    step->d_data = fth_plan_data(plan, step->d);
    step->workspace_data = fth_plan_data(plan, step->workspace);
    if (fth_plan_value_exists(step->bias)) {
        const void *bias = fth_plan_data(plan, step->bias);
        CUDA_BLAS_TRY(
            cublasLtMatmulDescSetAttribute(step->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
out:
    return status;
}

static fth_status run_product(void *state, const fth_run *run)
{
    (void)run;
    const product_step *step = state;
    const float one = 1, zero = 0;
    return cuda_blas_status(cublasLtMatmul(step->device->blas, step->operation, &one, step->a_data, step->a_layout,
                                           step->b_data, step->b_layout, &zero, step->d_data, step->d_layout,
                                           step->d_data, step->d_layout, &step->algorithm, step->workspace_data,
                                           WORKSPACE_BYTES, step->device->launch.stream),
                            "cublasLtMatmul");
}

static cudaDataType_t blas_type(cuda_type type)
{
    return type == CUDA_TYPE_BF16 ? CUDA_R_16BF : type == CUDA_TYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static fth_status describe_operation(const fth_plan *plan, const product *p, product_step *step)
{
    fth_status status = FTH_OK;
    bool tf32 = fth_plan_get_options(plan).precision == FTH_PRECISION_TF32;
    cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const int32_t a_op = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, b_op = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t epilogue = fth_plan_value_exists(p->bias) ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    const int32_t bias_type = (int32_t)blas_type(p->d_type);
    CUDA_BLAS_TRY(cublasLtMatmulDescCreate(&step->operation, compute, CUDA_R_32F));
    CUDA_BLAS_TRY(cublasLtMatmulDescSetAttribute(step->operation, CUBLASLT_MATMUL_DESC_TRANSA, &a_op, sizeof a_op));
    CUDA_BLAS_TRY(cublasLtMatmulDescSetAttribute(step->operation, CUBLASLT_MATMUL_DESC_TRANSB, &b_op, sizeof b_op));
    CUDA_BLAS_TRY(
        cublasLtMatmulDescSetAttribute(step->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (fth_plan_value_exists(p->bias))
        CUDA_BLAS_TRY(cublasLtMatmulDescSetAttribute(step->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                                                     sizeof bias_type));
    const int64_t a_rows = p->transpose_a ? p->k : p->m, a_columns = p->transpose_a ? p->m : p->k;
    const int64_t b_rows = p->transpose_b ? p->n : p->k, b_columns = p->transpose_b ? p->k : p->n;
    CUDA_BLAS_TRY(cublasLtMatrixLayoutCreate(&step->a_layout, blas_type(p->ab_type), (uint64_t)a_rows,
                                             (uint64_t)a_columns, a_rows));
    CUDA_BLAS_TRY(cublasLtMatrixLayoutCreate(&step->b_layout, blas_type(p->ab_type), (uint64_t)b_rows,
                                             (uint64_t)b_columns, b_rows));
    CUDA_BLAS_TRY(
        cublasLtMatrixLayoutCreate(&step->d_layout, blas_type(p->d_type), (uint64_t)p->m, (uint64_t)p->n, p->m));
out:
    return status;
}

static fth_status choose_algorithm(const product *p, product_step *step)
{
    fth_status status = FTH_OK;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[1];
    const uint64_t workspace = WORKSPACE_BYTES;
    const uint32_t alignment = 16; /* of the arena and the vectors at least */
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    int count = 0;
    CUDA_BLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    CUDA_BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                       sizeof workspace));
    for (size_t i = 0; i < FTH_COUNT_OF(alignments); i++)
        CUDA_BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment, sizeof alignment));
    CUDA_BLAS_TRY(cublasLtMatmulAlgoGetHeuristic(step->device->blas, step->operation, step->a_layout, step->b_layout,
                                                 step->d_layout, step->d_layout, preference, 1, found, &count));
    FTH_REQUIRE(count > 0, FTH_UNSUPPORTED, "cuBLASLt has no algorithm for %s of %lld x %lld x %lld", p->name,
                (long long)p->m, (long long)p->n, (long long)p->k);
    step->algorithm = found[0].algo;
out:
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static fth_status add_product(fth_plan *plan, const product *p)
{
    fth_status status = FTH_OK;
    product_step *state = NULL;
    fth_step step = {.bind = bind_product, .run = run_product, .release = release_product};
    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    state->device = cuda_device_of(plan);
    state->a = p->a;
    state->b = p->b;
    state->d = p->d;
    state->bias = p->bias;
    FTH_TRY(describe_operation(plan, p, state));
    FTH_TRY(choose_algorithm(p, state));
    FTH_TRY(cuda_add_scratch(plan, WORKSPACE_BYTES, &state->workspace));
    const fth_plan_value values[] = {p->a, p->b, p->bias, p->d, state->workspace};
    cuda_list_values(&step, values, 5, 2);
    snprintf(step.name, sizeof step.name, "%s %lldx%lldx%lld", p->name, (long long)p->m, (long long)p->n,
             (long long)p->k);
    step.state = state;
    state = NULL;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    release_product(state);
    return status;
}

/* Gradients that are not a flat vector's, and outputs that are fixed, are f32; the rest is the compute type. */
static cuda_layout output_layout(const fth_plan *plan, fth_value value)
{
    const cuda_layout *fixed = cuda_layout_of(plan, fth_plan_value_of(plan, value));
    return fixed ? *fixed : cuda_standard(plan, value);
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_linear_attributes *a = node->attributes;
    fth_shape weight = fth_plan_type(plan, node->inputs[1]).shape;
    const cuda_type type = cuda_compute_type(plan);
    const cuda_layout w_layout = cuda_plain(&weight, type), y_layout = output_layout(plan, node->outputs[0]);
    fth_plan_value x, w, bias = FTH_NO_PLAN_VALUE;
    FTH_TRY(cuda_read_weight(plan, node->inputs[1], &w_layout, &w));
    FTH_TRY(cuda_read(plan, node->inputs[0], &x));
    if (node->input_count > 2) {
        fth_shape shape = fth_plan_type(plan, node->inputs[2]).shape;
        const cuda_layout bias_layout = cuda_plain(&shape, y_layout.type);
        FTH_TRY(cuda_read_weight(plan, node->inputs[2], &bias_layout, &bias));
    }
    FTH_TRY(cuda_set_layout(plan, fth_plan_value_of(plan, node->outputs[0]), &y_layout));
    FTH_TRY(add_product(plan, &(product){.name = "linear",
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
    const cuda_layout w_layout = cuda_plain(&weight, type), dx_layout = output_layout(plan, node->outputs[0]);
    fth_plan_value dy, w;
    FTH_TRY(cuda_read_weight(plan, node->inputs[1], &w_layout, &w));
    FTH_TRY(cuda_read(plan, node->inputs[0], &dy));
    FTH_TRY(cuda_set_layout(plan, fth_plan_value_of(plan, node->outputs[0]), &dx_layout));
    FTH_TRY(add_product(plan, &(product){.name = "linear_grad_input",
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
    if (fth_plan_is_used(plan, node->outputs[1]) && !cuda_relu_grad_makes_bias_gradient(plan, node->inputs[1], node))
        FTH_TRY(cuda_add_bias_gradient(plan, dy, node->outputs[1]));
    FTH_TRY(cuda_fix_plain(plan, node->outputs[0]));
    FTH_TRY(add_product(plan, &(product){.name = "linear_grad_weights",
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
