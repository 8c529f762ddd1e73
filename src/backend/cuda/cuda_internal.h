/* What the CUDA back end's files share: the device, layouts, steps, and the way to cuDNN and cuBLASLt.
 *
 * Images lie as NHWC in the plan's compute type (f32, f16 or bf16), channels padded to whole 16-byte vectors in the
 * 16-bit types (images of up to 4 channels to 4); padding is zero and stays zero. Features are rows. The layout of a
 * value follows from the graph alone (cuda_standard), so kernels agree without asking each other: they read inputs
 * through cuda_read_as(), which converts only where layouts differ, and write through cuda_begin_write() and
 * cuda_end_write(). Weights stay f32 in the flat vector; all of a plan's weights are cast by a few launches at
 * its start, and gradients of weights go back the same way (weights.c). */
#ifndef FTH_BACKEND_CUDA_INTERNAL_H
#define FTH_BACKEND_CUDA_INTERNAL_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "backend/cuda/kernels.h"
#include "backend/kernel.h"

typedef struct cuda_tuning cuda_tuning;

/* A buffer on the device between the bus and the batch's place. */
typedef struct cuda_ahead {
    void *memory;
    size_t size_bytes;
    cudaEvent_t arrived, taken;
} cuda_ahead;

typedef struct cuda_device {
    fth_device base; /* first: backend.h hands out pointers to it */
    int index;
    struct cudaDeviceProp properties;
    cuda_launch launch; /* the stream, counters */
    cudnnHandle_t cudnn;
    cublasLtHandle_t blas;
    double timeout_s;  /* of a wait */
    _Atomic bool lost; /* hung or broken: nothing more is asked of it */
    uint64_t fault_run;
    double fault_s;

    cuda_run_values *run_values; /* device memory */
    cuda_run_values last_run_values;
    bool run_values_set;
    double *norm_scratch;
    bool capturing;

    uint64_t sequence; /* of the last replay */
    bool replayed;     /* the last run was one */
    cuda_announcement *announcement;

    cudaStream_t copy_stream;
    void *staging[2]; /* pinned: large copies in go through these in turn */
    cudaEvent_t staging_free[2];
    int staging_next;
    cuda_ahead ahead[2]; /* batches that arrived before they are needed */
    int ahead_next;
    void *small; /* pinned: a ring for small copies in */
    cudaEvent_t small_done[2];
    uint64_t small_next;
    void *out; /* pinned: copies out land here */
    cudaEvent_t done;
    void *recipes; /* device memory */
    size_t recipe_bytes;

    /* Around the runs since the time was last taken, which is busy_s from then on. */
    cudaEvent_t runs_begin, runs_end;
    bool runs_pending;
    double busy_s;

    bool nvml_asked;
    void *nvml, *nvml_handle; /* NULL: not there */
    int (*nvml_utilization)(void *handle, void *utilization);

    cuda_tuning *tuning;
} cuda_device;

static inline cuda_device *cuda_device_of(const fth_plan *plan)
{
    return (cuda_device *)fth_plan_device(plan);
}

/* Statuses of the three libraries as ours; `what` names the call. */
fth_status cuda_status(cudaError_t error, const char *what);
fth_status cuda_dnn_status(cudnnStatus_t error, const char *what);
fth_status cuda_blas_status(cublasStatus_t error, const char *what);

#define CUDA_TRY(call)      FTH_TRY(cuda_status((call), #call))
#define CUDA_DNN_TRY(call)  FTH_TRY(cuda_dnn_status((call), #call))
#define CUDA_BLAS_TRY(call) FTH_TRY(cuda_blas_status((call), #call))

/* Brings run_values on the device up to date; nothing while capturing, when the replay does it. */
fth_status cuda_set_run_values(cuda_device *device, const fth_run *run);
cuda_run_values cuda_run_values_of(const fth_run *run, uint64_t sequence);

/* ---- waiting (wait.c) ---- */

void cuda_read_environment(cuda_device *cuda);
/* What an error of the device means; FTH_PEER_LOST names it and marks it as lost. */
fth_status cuda_lose(cuda_device *cuda, cudaError_t error);
fth_deadline cuda_deadline(const cuda_device *cuda);
fth_status cuda_wait(cuda_device *cuda, cudaEvent_t event, fth_deadline deadline);
fth_status cuda_synchronize(fth_device *device, fth_deadline deadline);
fth_status cuda_wait_for_loss(cuda_device *cuda, uint64_t sequence);
/* Queues the fault that a test asked for before this run. */
fth_status cuda_make_fault(cuda_device *cuda);

/* ---- memory and copies (memory.c): entries of the table, and their opening and closing ---- */

fth_status cuda_open_copies(cuda_device *cuda);
void cuda_close_copies(cuda_device *cuda);
fth_status cuda_allocate(fth_device *device, size_t size_bytes, void **memory);
void cuda_release(fth_device *device, void *memory); /* NULL is fine */
fth_status cuda_copy_in(fth_device *device, void *to, const void *from, size_t size_bytes);
fth_status cuda_copy_batch(fth_device *device, void *to, const void *from, size_t size_bytes);
fth_status cuda_copy_out(fth_device *device, void *to, const void *from, size_t size_bytes);
fth_status cuda_free_memory(fth_device *device, size_t *free_bytes, size_t *total_bytes);
fth_status cuda_fill_zero(fth_device *device, void *memory, size_t size_bytes);

/* ---- entries of the table ---- */

extern const fth_backend_planning cuda_planning;   /* weights.c */
extern const fth_backend_capture cuda_capture;     /* capture.c */
extern const fth_backend_updater cuda_updater;     /* updater.c */
extern const fth_backend_snapshots cuda_snapshots; /* snapshot.c */
fth_status cuda_sample(fth_device *device, fth_device_sample *result);
fth_status cuda_gather(fth_device *device, const fth_gather *gather, float *images);

/* ---- layouts (layout.c) ---- */

typedef struct cuda_layout {
    cuda_type type;
    bool nhwc;             /* else plain; always false where both are the same */
    int n, c, h, w;        /* logical; features are (n, c, 1, 1), weights (O, I, KH, KW) */
    int batch, channels;   /* physical n and c */
    bool is_weight;        /* of a first layer: spread its way */
    cuda_spreading spread; /* images that a first layer reads, and its weights */
} cuda_layout;

cuda_type cuda_compute_type(const fth_plan *plan);
static inline size_t cuda_type_size(cuda_type type)
{
    return type == CUDA_TYPE_F32 || type == CUDA_TYPE_I32 ? 4 : type == CUDA_TYPE_U8 ? 1 : 2;
}

const cuda_layout *cuda_layout_of(const fth_plan *plan, fth_plan_value value);
fth_status cuda_set_layout(fth_plan *plan, fth_plan_value value, const cuda_layout *layout);
bool cuda_layout_equal(const cuda_layout *a, const cuda_layout *b);
int64_t cuda_layout_elements(const cuda_layout *layout); /* physical */
static inline int64_t cuda_rows(const cuda_layout *layout)
{
    return (int64_t)layout->n * layout->h * layout->w;
}

/* Channels padded for the compute type. */
int cuda_padded_channels(cuda_type type, int channels, bool image);
cuda_layout cuda_plain(const fth_shape *shape, cuda_type type);
cuda_layout cuda_channels_last(const fth_shape *shape, cuda_type type, int channels);
/* The layout that every kernel uses for `value` in this plan. */
cuda_layout cuda_standard(const fth_plan *plan, fth_value value);

fth_status cuda_read_as(fth_plan *plan, fth_plan_value value, const cuda_layout *wanted, fth_plan_value *as);
fth_status cuda_read(fth_plan *plan, fth_value value, fth_plan_value *as); /* in its standard layout */
fth_status cuda_begin_write(fth_plan *plan, fth_plan_value value, const cuda_layout *layout, fth_plan_value *as);
fth_status cuda_end_write(fth_plan *plan, fth_plan_value value, fth_plan_value as);
/* Lets output `to` take over the memory of input `from`, which is read as `as`. */
bool cuda_write_in_place(fth_plan *plan, fth_value from, fth_plan_value as, fth_value to);
fth_status cuda_add_scratch(fth_plan *plan, size_t size_bytes, fth_plan_value *scratch);
/* Gives an output whose layout is not fixed a plain one in f32. */
fth_status cuda_fix_plain(fth_plan *plan, fth_value value);

/* The node after the current one that alone reads `value`, or NULL. */
const fth_node *cuda_only_reader(const fth_plan *plan, fth_value value);

/* ---- steps (step.c) ---- */

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
        cuda_direct direct;
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

/* ---- weights and their gradients (weights.c) ---- */

/* `parameter` (a weight or bias) in `wanted`; the first call casts all of the plan's. */
fth_status cuda_read_weight(fth_plan *plan, fth_value parameter, const cuda_layout *wanted, fth_plan_value *as);
/* Where to write the gradient of weights: the vector itself if the layout is its own, or a buffer that is cast soon. */
fth_status cuda_begin_gradient(fth_plan *plan, fth_value gradient, const cuda_layout *layout, fth_plan_value *as);
fth_status cuda_end_gradient(fth_plan *plan, fth_value gradient, fth_plan_value as);
/* The layout in which a convolution reads its weights. */
cuda_layout cuda_weight_layout(const fth_plan *plan, const fth_convolution_attributes *attributes,
                               const fth_shape *weight, fth_value x);
/* A bias in the compute type, padded to `channels`. */
cuda_layout cuda_bias_layout(const fth_plan *plan, int channels, fth_value bias);
/* The layout in which a convolution reads its input, or writes its output. */
cuda_layout cuda_convolution_input(const fth_plan *plan, const fth_convolution_attributes *attributes, fth_value x);
cuda_layout cuda_convolution_output(const fth_plan *plan, const fth_convolution_attributes *attributes, fth_value y);

/* ---- convolutions through cuDNN: whole ones (parts.c), engines (cudnn.c), what is known of them (tuning.c) ---- */

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

/* The fastest engine for `conv`, measured or remembered; *engine stays NULL if cuDNN has none. It is bound to as many
 * parts of a batch as it is run for. */
fth_status cuda_engine_create(cuda_device *device, const cuda_conv *conv, cuda_engine **engine);
void cuda_engine_free(cuda_engine *engine);
size_t cuda_engine_workspace_bytes(const cuda_engine *engine);
const char *cuda_engine_name(const cuda_engine *engine);
double cuda_engine_microseconds(const cuda_engine *engine);
fth_status cuda_engine_bind(cuda_engine *engine, int part, void *x, void *w, void *y, void *bias, void *workspace);
fth_status cuda_engine_run(cuda_device *device, const cuda_engine *engine, int part);

/* Choices made earlier, on disk by device and library versions. A choice is an engine and its knobs as text. */
fth_status cuda_tuning_open(cuda_device *device, cuda_tuning **tuning);
const char *cuda_tuning_find(const cuda_tuning *tuning, const char *key);
void cuda_tuning_add(cuda_tuning *tuning, const char *key, const char *choice);
void cuda_tuning_save(cuda_tuning *tuning); /* best effort: says so in the log if it fails */
void cuda_tuning_free(cuda_tuning *tuning);
/* Device memory for measuring, at least `size_bytes`; given back by cuda_tuning_release. */
fth_status cuda_tuning_memory(cuda_device *device, size_t size_bytes, void **memory);
void cuda_tuning_release(cuda_device *device);

/* ---- kernels, one file each ---- */

extern const fth_kernel cuda_convolution, cuda_convolution_grad_input, cuda_convolution_grad_weights;
extern const fth_kernel cuda_linear, cuda_linear_grad_input, cuda_linear_grad_weights;
extern const fth_kernel cuda_batch_norm, cuda_batch_norm_grad;
extern const fth_kernel cuda_relu, cuda_relu_grad, cuda_gelu, cuda_gelu_grad, cuda_add;
extern const fth_kernel cuda_max_pool, cuda_max_pool_grad, cuda_average_pool, cuda_average_pool_grad;
extern const fth_kernel cuda_adaptive_average_pool, cuda_adaptive_average_pool_grad;
extern const fth_kernel cuda_concat, cuda_slice, cuda_pad, cuda_reshape, cuda_dropout;
extern const fth_kernel cuda_softmax_cross_entropy, cuda_softmax_cross_entropy_grad;

/* y = [relu](y + bias), in place; bias: may be none. NaN stays NaN. */
fth_status cuda_add_bias(fth_plan *plan, const cuda_layout *layout, fth_plan_value y, fth_plan_value bias, bool relu);

/* Sums of the columns of dy, the gradient of a bias; nothing if nobody wants it or relu_grad made it already. */
fth_status cuda_add_bias_gradient(fth_plan *plan, fth_plan_value dy, fth_value dbias);
/* The two terms of a sum that was left to its reader; false if `value` was computed. */
bool cuda_is_deferred_sum(const fth_plan *plan, fth_value value, fth_value terms[2]);
/* The max_pool_grad that was left to the relu_grad which reads `dx`, or NULL; *pooled is the pool's output. */
const fth_node *cuda_deferred_pool(const fth_plan *plan, fth_value dx, fth_value *pooled);
/* The step of a max_pool_grad from `dy` to `result`. */
fth_status cuda_add_max_pool_grad(fth_plan *plan, const fth_node *node, fth_plan_value dy, fth_value result);
/* True if the bias gradient of `node` (a grad_weights) is made by the relu_grad before it. */
bool cuda_relu_grad_makes_bias_gradient(const fth_plan *plan, fth_value dy, const fth_node *node);

/* Flat vectors and updaters (updater.c). */
extern const fth_update_kernel cuda_updates[];
void cuda_updater_fill_values(const fth_run *run, cuda_run_values *values);
fth_status cuda_vector_add(fth_device *device, float *to, const float *from, size_t count);
fth_status cuda_vector_norm(fth_device *device, const float *values, size_t count, double *norm);

/* What the driver knows (nvml.c). Opening never fails: utilization is NAN where it is not known. */
void cuda_nvml_open(cuda_device *device);
void cuda_nvml_close(cuda_device *device);
double cuda_nvml_utilization(const cuda_device *device);

/* The plugin's one exported symbol. */
extern const fth_backend fth_backend_plugin;

#endif
