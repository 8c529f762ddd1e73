/* Steps made of one launch (step.c). */
#ifndef FTH_BACKEND_CUDA_STEP_H
#define FTH_BACKEND_CUDA_STEP_H

#include "backend/cuda/arrange_kernels.h"
#include "backend/cuda/attention.h"
#include "backend/cuda/layout.h"
#include "backend/cuda/text_kernels.h"

enum { CUDA_MAX_CALL_VALUES = 12 };

/* A step whose state is a copy of `call` with the addresses of `values` filled in. */
typedef struct cuda_call {
    cudaError_t (*run)(const struct cuda_call *call);
    cuda_device *device;
    void *data[CUDA_MAX_CALL_VALUES];
    fth_plan_value values[CUDA_MAX_CALL_VALUES]; /* or none */
    int value_count, write_count;                /* the last `write_count` values are written, the others read */
    union {
        cuda_norm norm;
        cuda_pool pool;
        cuda_resizing resize;
        cuda_depthwise depthwise;
        cuda_direct direct;
        cuda_row_norm row_norm;
        cuda_lookup lookup;
        cuda_row_op row_op;
        cuda_product_attention product_attention;
        cuda_strided strided;
        cuda_entries entries;
        struct {
            cuda_layout from, to;
        } convert;
        struct {
            int64_t sizes[8];
            float numbers[4];
            uint32_t id;
            cuda_type type;
            int what;
        };
    };
} cuda_call;

fth_status cuda_add_call(fth_plan *plan, const char *name, const cuda_call *call);
/* Fills the part of a step that lists the values of a call. */
void cuda_list_values(fth_step *step, const fth_plan_value *values, int value_count, int write_count);

#endif
