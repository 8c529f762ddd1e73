/* Matrix products through cuBLASLt. Algorithms are chosen by its heuristics: plans are made often
 * (text has one for each number of tokens), so nothing is measured. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/product.h"
#include "backend/cuda/step.h"

enum { WORKSPACE_BYTES = 32 << 20 };

typedef struct product_step {
    cuda_device *device;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a_layout, b_layout, d_layout;
    cublasLtMatmulAlgo_t algorithm;
    fth_plan_value a, b, d, bias, workspace; /* or none */
    size_t b_offset;
    void *a_data, *b_data, *d_data, *workspace_data;
} product_step;

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
    step->b_data = (char *)fth_plan_data(plan, step->b) + step->b_offset;
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

static fth_status describe_matrix(const cuda_product *p, cuda_type type, int64_t rows, int64_t columns, int64_t stride,
                                  cublasLtMatrixLayout_t *layout)
{
    fth_status status = FTH_OK;
    const int32_t count = (int32_t)p->batch;
    const int64_t each = rows * columns;
    CUDA_BLAS_TRY(cublasLtMatrixLayoutCreate(layout, blas_type(type), (uint64_t)rows, (uint64_t)columns, stride));
    if (p->batch > 0) {
        CUDA_BLAS_TRY(
            cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
        CUDA_BLAS_TRY(
            cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &each, sizeof each));
    }
out:
    return status;
}

static fth_status describe_operation(const fth_plan *plan, const cuda_product *p, product_step *step)
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
    FTH_TRY(describe_matrix(p, p->ab_type, a_rows, a_columns, a_rows, &step->a_layout));
    FTH_TRY(describe_matrix(p, p->ab_type, b_rows, b_columns, p->b_stride > 0 ? p->b_stride : b_rows, &step->b_layout));
    FTH_TRY(describe_matrix(p, p->d_type, p->m, p->n, p->m, &step->d_layout));
out:
    return status;
}

static fth_status choose_algorithm(const cuda_product *p, product_step *step)
{
    fth_status status = FTH_OK;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[1];
    const uint64_t workspace = WORKSPACE_BYTES;
    /* Of the arena and the vectors at least; of a part of b's rows it depends on where that
     * begins. */
    const uint32_t whole = 16, part = step->b_offset % whole == 0 ? whole : (uint32_t)cuda_type_size(p->ab_type);
    const struct {
        cublasLtMatmulPreferenceAttributes_t of;
        const uint32_t *bytes;
    } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &whole},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &part},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &whole},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &whole}};
    int count = 0;
    CUDA_BLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    CUDA_BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                       sizeof workspace));
    for (size_t i = 0; i < FTH_COUNT_OF(alignments); i++)
        CUDA_BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i].of, alignments[i].bytes,
                                                           sizeof *alignments[i].bytes));
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

fth_status cuda_add_product(fth_plan *plan, const cuda_product *p)
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
    state->b_offset = (size_t)p->b_first * cuda_type_size(p->ab_type);
    FTH_TRY(describe_operation(plan, p, state));
    FTH_TRY(choose_algorithm(p, state));
    FTH_TRY(cuda_add_scratch(plan, WORKSPACE_BYTES, &state->workspace));
    const fth_plan_value values[] = {p->a, p->b, p->bias, p->d, state->workspace};
    cuda_list_values(&step, values, 5, 2);
    for (int i = 0; i < p->behind_d_count; i++)
        step.writes[step.write_count++] = p->behind_d[i];
    snprintf(step.name, sizeof step.name, "%s %lldx%lldx%lld", p->name, (long long)p->m, (long long)p->n,
             (long long)p->k);
    step.state = state;
    state = NULL;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    release_product(state);
    return status;
}

cuda_layout cuda_product_layout(const fth_plan *plan, fth_value value)
{
    const cuda_layout *fixed = cuda_layout_of(plan, fth_plan_value_of(plan, value));
    return fixed ? *fixed : cuda_standard(plan, value);
}
