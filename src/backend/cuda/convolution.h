/* Convolutions through cuDNN: whole ones (parts.c), engines (cudnn.c), what is known of them
 * (tuning.c). */
#ifndef FTH_BACKEND_CUDA_CONVOLUTION_H
#define FTH_BACKEND_CUDA_CONVOLUTION_H

#include "backend/cuda/cuda_device.h"

enum { CUDA_MAX_PARTS = 64 };

typedef enum cuda_conv_kind { CUDA_CONV_FORWARD, CUDA_CONV_DATA, CUDA_CONV_FILTER } cuda_conv_kind;

typedef struct cuda_conv {
    cuda_conv_kind kind;
    cuda_type type;
    bool tf32, bias, relu;    /* bias, relu: forward only, fused behind it */
    bool accumulate;          /* the result is added to what is there */
    bool unmeasured;          /* of a plan that is made to know its size: engines are not measured */
    int64_t x[4], w[4], y[4]; /* (N, C, H, W) */
    int64_t padding[2], stride[2], dilation[2];
} cuda_conv;

typedef struct cuda_conv_plan cuda_conv_plan;

/* *plan stays NULL if cuDNN has no engine. */
fth_status cuda_conv_create(cuda_device *device, const cuda_conv *conv, cuda_conv_plan **plan);
void cuda_conv_free(cuda_conv_plan *plan);
size_t cuda_conv_workspace_bytes(const cuda_conv_plan *plan);
const char *cuda_conv_name(const cuda_conv_plan *plan);
double cuda_conv_microseconds(const cuda_conv_plan *plan); /* as measured; 0 unknown */
fth_status cuda_conv_bind(cuda_conv_plan *plan, void *x, void *w, void *y, void *bias, void *workspace);
fth_status cuda_conv_run(cuda_device *device, const cuda_conv_plan *plan);

typedef struct cuda_engine cuda_engine;

/* The fastest engine for `conv`, measured or remembered; *engine stays NULL if cuDNN has none. It
 * is bound to as many parts of a batch as it is run for. */
fth_status cuda_engine_create(cuda_device *device, const cuda_conv *conv, cuda_engine **engine);
void cuda_engine_free(cuda_engine *engine);
size_t cuda_engine_workspace_bytes(const cuda_engine *engine);
const char *cuda_engine_name(const cuda_engine *engine);
double cuda_engine_microseconds(const cuda_engine *engine);
fth_status cuda_engine_bind(cuda_engine *engine, int part, void *x, void *w, void *y, void *bias, void *workspace);
fth_status cuda_engine_run(cuda_device *device, const cuda_engine *engine, int part);

/* Choices made earlier, on disk by device and library versions. A choice is an engine and its knobs
 * as text. */
fth_status cuda_tuning_open(cuda_device *device, cuda_tuning **tuning);
const char *cuda_tuning_find(const cuda_tuning *tuning, const char *key);
void cuda_tuning_add(cuda_tuning *tuning, const char *key, const char *choice);
void cuda_tuning_save(cuda_tuning *tuning); /* best effort: says so in the log if it fails */
void cuda_tuning_free(cuda_tuning *tuning);
/* Device memory for measuring, at least `size_bytes`; given back by cuda_tuning_release. */
fth_status cuda_tuning_memory(cuda_device *device, size_t size_bytes, void **memory);
void cuda_tuning_release(cuda_device *device);

#endif
