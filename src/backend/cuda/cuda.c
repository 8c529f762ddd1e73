/* The CUDA back end: its table, device, memory and captured runs.
 *
 * One stream carries everything: copies in, plans, updates. copy_in takes its own copy of the bytes (through pinned
 * memory if they are many) and returns; copy_out and synchronize wait. A plan's run is recorded once as a CUDA
 * graph and replayed, with the numbers that change in a small struct on the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cuda_internal.h"

enum { STAGING_BYTES = 32 << 20, SMALL_COPY_BYTES = 64 << 10, OUT_BYTES = 4 << 20 };

/* ---- statuses ---- */

fth_status cuda_status(cudaError_t error, const char *what)
{
    switch (error) {
    case cudaSuccess: return FTH_OK;
    case cudaErrorMemoryAllocation:
        cudaGetLastError(); /* not sticky: clear it */
        return fth_fail(FTH_NO_MEMORY, "the GPU is out of memory in %.200s", what);
    case cudaErrorInsufficientDriver: {
        int driver = 0;
        cudaDriverGetVersion(&driver);
        return driver == 0 ? fth_fail(FTH_UNSUPPORTED, "CUDA cannot be used: there is no NVIDIA driver")
                           : fth_fail(FTH_UNSUPPORTED, "CUDA cannot be used: the driver (CUDA %d.%d) is too old",
                                      driver / 1000, driver % 1000 / 10);
    }
    case cudaErrorNoDevice:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorStubLibrary:
    case cudaErrorInitializationError:
        return fth_fail(FTH_UNSUPPORTED, "CUDA cannot be used: %s", cudaGetErrorString(error));
    case cudaErrorDevicesUnavailable:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
        return fth_fail(FTH_PEER_LOST, "the GPU is lost: %s in %.200s", cudaGetErrorString(error), what);
    default: return fth_fail(FTH_INVALID, "CUDA error %d (%s) in %.200s", (int)error, cudaGetErrorString(error), what);
    }
}

fth_status cuda_dnn_status(cudnnStatus_t error, const char *what)
{
    char reason[256] = "";
    switch (error) {
    case CUDNN_STATUS_SUCCESS: return FTH_OK;
    case CUDNN_STATUS_ALLOC_FAILED: return fth_fail(FTH_NO_MEMORY, "cuDNN is out of memory in %.200s", what);
    default: break;
    }
    cudnnGetLastErrorString(reason, sizeof reason);
    return fth_fail(FTH_UNSUPPORTED, "cuDNN: %s in %.200s: %s", cudnnGetErrorString(error), what, reason);
}

fth_status cuda_blas_status(cublasStatus_t error, const char *what)
{
    if (error == CUBLAS_STATUS_SUCCESS)
        return FTH_OK;
    return fth_fail(error == CUBLAS_STATUS_ALLOC_FAILED ? FTH_NO_MEMORY : FTH_UNSUPPORTED, "cuBLASLt: %s in %.200s",
                    cublasLtGetStatusString(error), what);
}

/* ---- opening and closing ---- */

static void close_device(fth_device *device)
{
    cuda_device *cuda = (cuda_device *)device;
    if (cuda->tuning)
        cuda_tuning_save(cuda->tuning);
    cuda_tuning_free(cuda->tuning);
    if (cuda->blas)
        cublasLtDestroy(cuda->blas);
    if (cuda->cudnn)
        cudnnDestroy(cuda->cudnn);
    for (int i = 0; i < 2; i++) {
        if (cuda->staging_free[i])
            cudaEventDestroy(cuda->staging_free[i]);
        if (cuda->staging[i])
            cudaFreeHost(cuda->staging[i]);
    }
    cudaEvent_t events[] = {cuda->done, cuda->runs_begin, cuda->runs_end};
    for (size_t i = 0; i < FTH_COUNT_OF(events); i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    cuda_nvml_close(cuda);
    if (cuda->out)
        cudaFreeHost(cuda->out);
    cudaFree(cuda->launch.counters);
    cudaFree(cuda->run_values);
    cudaFree(cuda->norm_scratch);
    if (cuda->launch.stream)
        cudaStreamDestroy(cuda->launch.stream);
    free(cuda);
}

static fth_status open_libraries(cuda_device *cuda)
{
    fth_status status = FTH_OK;
    CUDA_DNN_TRY(cudnnCreate(&cuda->cudnn));
    CUDA_DNN_TRY(cudnnSetStream(cuda->cudnn, cuda->launch.stream));
    CUDA_BLAS_TRY(cublasLtCreate(&cuda->blas));
    FTH_TRY(cuda_tuning_open(cuda, &cuda->tuning));
out:
    return status;
}

static fth_status open_memory(cuda_device *cuda)
{
    fth_status status = FTH_OK;
    CUDA_TRY(cudaMalloc((void **)&cuda->launch.counters, CUDA_COUNTERS * sizeof(unsigned)));
    CUDA_TRY(cudaMemset(cuda->launch.counters, 0, CUDA_COUNTERS * sizeof(unsigned)));
    CUDA_TRY(cudaMalloc((void **)&cuda->run_values, sizeof *cuda->run_values));
    CUDA_TRY(cudaMalloc((void **)&cuda->norm_scratch, (CUDA_NORM_BLOCKS + 1) * sizeof(double)));
    for (int i = 0; i < 2; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&cuda->staging_free[i], cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&cuda->done, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreate(&cuda->runs_begin));
    CUDA_TRY(cudaEventCreate(&cuda->runs_end));
    CUDA_TRY(cudaHostAlloc(&cuda->out, OUT_BYTES, cudaHostAllocDefault));
out:
    return status;
}

static fth_status open_device(const fth_device_options *options, fth_device **device)
{
    (void)options;
    fth_status status = FTH_OK;
    cuda_device *cuda = NULL;
    int count = 0, driver = 0;
    CUDA_TRY(cudaGetDeviceCount(&count));
    FTH_REQUIRE(count > 0, FTH_UNSUPPORTED, "there is no CUDA device");
    FTH_TRY(fth_allocate(1, sizeof *cuda, &cuda));
    cuda->base.backend = &fth_backend_plugin;
    cuda->base.threads = 1;
    CUDA_TRY(cudaSetDevice(cuda->index));
    CUDA_TRY(cudaGetDeviceProperties(&cuda->properties, cuda->index));
    CUDA_TRY(cudaDriverGetVersion(&driver));
    FTH_REQUIRE(cuda->properties.major >= 8, FTH_UNSUPPORTED, "%s has compute capability %d.%d; 8.0 or newer is needed",
                cuda->properties.name, cuda->properties.major, cuda->properties.minor);
    cuda->launch.processors = cuda->properties.multiProcessorCount;
    CUDA_TRY(cudaStreamCreateWithFlags(&cuda->launch.stream, cudaStreamNonBlocking));
    FTH_TRY(open_memory(cuda));
    FTH_TRY(open_libraries(cuda));
    size_t cudnn = cudnnGetVersion();
    snprintf(cuda->base.description, sizeof cuda->base.description, "%.80s, CUDA %d.%d, cuDNN %zu.%zu.%zu",
             cuda->properties.name, driver / 1000, driver % 1000 / 10, cudnn / 10000, cudnn / 100 % 100, cudnn % 100);
    *device = &cuda->base;
    cuda = NULL;
out:
    if (cuda)
        close_device(&cuda->base);
    return status;
}

/* The current device belongs to the thread; what is noted while building belongs to one plan. */
static void enter_device(fth_device *device, int threads)
{
    (void)threads;
    cudaSetDevice(((cuda_device *)device)->index);
}

/* ---- memory ---- */

static fth_status allocate(fth_device *device, size_t size_bytes, void **memory)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    void *made = NULL;
    cudaSetDevice(cuda->index);
    cudaError_t error = cudaMalloc(&made, size_bytes ? size_bytes : 1);
    if (error == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total_bytes = 0;
        cudaGetLastError();
        cudaMemGetInfo(&free_bytes, &total_bytes);
        status = fth_fail(
            FTH_NO_MEMORY,
            "%s has no room for %.2f GB more: %.2f of %.2f GB are free; a batch of %.0f%% of this one would fit",
            cuda->properties.name, (double)size_bytes / 1e9, (double)free_bytes / 1e9, (double)total_bytes / 1e9,
            90.0 * (double)free_bytes / (double)size_bytes);
        goto out;
    }
    CUDA_TRY(error);
    CUDA_TRY(cudaMemsetAsync(made, 0, size_bytes ? size_bytes : 1, cuda->launch.stream));
    *memory = made;
    made = NULL;
out:
    if (made)
        cudaFree(made);
    return status;
}

static void release(fth_device *device, void *memory)
{
    cuda_device *cuda = (cuda_device *)device;
    cudaSetDevice(cuda->index);
    cudaStreamSynchronize(cuda->launch.stream);
    cudaFree(memory);
}

/* Waits for an event without blocking in the driver, so that a hung device is a status and not a hang. */
static fth_status wait_for(cuda_device *cuda, cudaEvent_t event, fth_deadline deadline)
{
    enum { SPINS = 20000 };
    for (int spin = 0;; spin++) {
        cudaError_t state = cudaEventQuery(event);
        if (state != cudaErrorNotReady)
            return cuda_status(state, "waiting for the GPU");
        if (spin >= SPINS) {
            if (fth_deadline_passed(deadline))
                return fth_fail(FTH_TIMEOUT, "%s did not finish its work in time", cuda->properties.name);
            const struct timespec pause = {.tv_nsec = 20000};
            nanosleep(&pause, NULL);
        }
    }
}

static fth_status synchronize(fth_device *device, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    CUDA_TRY(cudaEventRecord(cuda->done, cuda->launch.stream));
    FTH_TRY(wait_for(cuda, cuda->done, deadline));
out:
    return status;
}

/* memcpy by several threads: one does not keep up with the bus. */
static void copy_bytes(char *to, const char *from, size_t size)
{
    enum { PIECE = 1 << 20 };
    const int64_t pieces = (int64_t)((size + PIECE - 1) / PIECE);
#pragma omp parallel for schedule(static) num_threads(8) if (pieces > 4)
    for (int64_t i = 0; i < pieces; i++) {
        size_t begin = (size_t)i * PIECE, length = size - begin < PIECE ? size - begin : PIECE;
        memcpy(to + begin, from + begin, length);
    }
}

static fth_status copy_staged(cuda_device *cuda, char *to, const char *from, size_t size_bytes)
{
    fth_status status = FTH_OK;
    while (size_bytes > 0) {
        int slot = cuda->staging_next;
        size_t part = size_bytes < STAGING_BYTES ? size_bytes : STAGING_BYTES;
        if (!cuda->staging[slot])
            CUDA_TRY(cudaHostAlloc(&cuda->staging[slot], STAGING_BYTES, cudaHostAllocDefault));
        else
            FTH_TRY(wait_for(cuda, cuda->staging_free[slot], fth_deadline_in(60)));
        copy_bytes(cuda->staging[slot], from, part);
        CUDA_TRY(cudaMemcpyAsync(to, cuda->staging[slot], part, cudaMemcpyHostToDevice, cuda->launch.stream));
        CUDA_TRY(cudaEventRecord(cuda->staging_free[slot], cuda->launch.stream));
        cuda->staging_next = 1 - slot;
        to += part;
        from += part;
        size_bytes -= part;
    }
out:
    return status;
}

/* `from` may also be memory of the device: a data set that is kept there. */
static fth_status copy_in(fth_device *device, void *to, const void *from, size_t size_bytes)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    struct cudaPointerAttributes attributes;
    if (size_bytes == 0)
        return FTH_OK;
    cudaSetDevice(cuda->index);
    CUDA_TRY(cudaPointerGetAttributes(&attributes, from));
    if (attributes.type == cudaMemoryTypeDevice)
        CUDA_TRY(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToDevice, cuda->launch.stream));
    else if (size_bytes <= SMALL_COPY_BYTES && attributes.type == cudaMemoryTypeUnregistered)
        CUDA_TRY(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, cuda->launch.stream));
    else
        FTH_TRY(copy_staged(cuda, to, from, size_bytes));
out:
    return status;
}

static fth_status copy_out(fth_device *device, void *to, const void *from, size_t size_bytes)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    if (size_bytes == 0)
        return FTH_OK;
    cudaSetDevice(cuda->index);
    /* Through pinned memory: the copy is queued behind the work, and waited for with it, under a deadline. */
    while (size_bytes > 0) {
        size_t part = size_bytes < OUT_BYTES ? size_bytes : OUT_BYTES;
        CUDA_TRY(cudaMemcpyAsync(cuda->out, from, part, cudaMemcpyDeviceToHost, cuda->launch.stream));
        FTH_TRY(synchronize(device, fth_deadline_in(600)));
        memcpy(to, cuda->out, part);
        to = (char *)to + part;
        from = (const char *)from + part;
        size_bytes -= part;
    }
out:
    return status;
}

static fth_status fill_zero(fth_device *device, void *memory, size_t size_bytes)
{
    const cuda_device *cuda = (cuda_device *)device;
    return cuda_status(cudaMemsetAsync(memory, 0, size_bytes, cuda->launch.stream), "cudaMemsetAsync");
}

static fth_status check_precision(fth_device *device, fth_precision precision)
{
    (void)device;
    (void)precision; /* compute capability 8.0 has all of them */
    return FTH_OK;
}

static fth_status describe_plain(fth_plan *plan, int plan_value)
{
    cuda_building *building = &cuda_device_of(plan)->building;
    fth_type type = fth_plan_type(plan, plan_value);
    cuda_layout layout = cuda_plain(&type.shape, type.dtype == FTH_I32  ? CUDA_TYPE_I32
                                                 : type.dtype == FTH_U8 ? CUDA_TYPE_U8
                                                                        : CUDA_TYPE_F32);
    /* Values are described in order, before any node is prepared: a lower number begins another plan. */
    if (plan_value <= building->last_described || building->weights_cast || building->deferred_count > 0)
        *building = (cuda_building){.last_described = -1};
    building->last_described = plan_value;
    return cuda_set_layout(plan, plan_value, &layout);
}

/* ---- captured runs ---- */

static fth_status capture_begin(fth_device *device)
{
    cuda_device *cuda = (cuda_device *)device;
    fth_status status = cuda_status(cudaStreamBeginCapture(cuda->launch.stream, cudaStreamCaptureModeRelaxed),
                                    "cudaStreamBeginCapture");
    cuda->capturing = status == FTH_OK;
    return status;
}

static fth_status capture_end(fth_device *device, void **captured)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t recorded = NULL;
    cuda->capturing = false;
    CUDA_TRY(cudaStreamEndCapture(cuda->launch.stream, &graph));
    CUDA_TRY(cudaGraphInstantiate(&recorded, graph, 0));
    *captured = recorded;
out:
    if (graph)
        cudaGraphDestroy(graph);
    return status;
}

/* Adds the time of the runs that are done. Runs that were queued one behind the other are timed as one. */
static fth_status count_busy(cuda_device *cuda)
{
    fth_status status = FTH_OK;
    float milliseconds = 0;
    if (!cuda->runs_pending)
        return FTH_OK;
    cudaError_t state = cudaEventQuery(cuda->runs_end);
    if (state == cudaErrorNotReady)
        return FTH_OK;
    CUDA_TRY(state);
    CUDA_TRY(cudaEventElapsedTime(&milliseconds, cuda->runs_begin, cuda->runs_end));
    cuda->busy_s += milliseconds / 1e3;
    cuda->runs_pending = false;
out:
    return status;
}

static fth_status capture_replay(fth_device *device, void *captured, const fth_run *run)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    FTH_TRY(cuda_set_run_values(cuda, run));
    FTH_TRY(count_busy(cuda));
    if (!cuda->runs_pending)
        CUDA_TRY(cudaEventRecord(cuda->runs_begin, cuda->launch.stream));
    CUDA_TRY(cudaGraphLaunch(captured, cuda->launch.stream));
    CUDA_TRY(cudaEventRecord(cuda->runs_end, cuda->launch.stream));
    cuda->runs_pending = true;
out:
    return status;
}

static fth_status sample(fth_device *device, fth_device_sample *result)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    size_t free_bytes = 0, total_bytes = 0;
    cudaSetDevice(cuda->index);
    if (!cuda->nvml_asked) /* not at the start, which it would delay */
        cuda_nvml_open(cuda);
    cuda->nvml_asked = true;
    FTH_TRY(count_busy(cuda));
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
    *result = (fth_device_sample){.used_bytes = (int64_t)(total_bytes - free_bytes),
                                  .total_bytes = (int64_t)total_bytes,
                                  .utilization = cuda_nvml_utilization(cuda),
                                  .busy_s = cuda->busy_s};
out:
    return status;
}

static void capture_free(fth_device *device, void *captured)
{
    cuda_device *cuda = (cuda_device *)device;
    cudaSetDevice(cuda->index);
    cudaStreamSynchronize(cuda->launch.stream);
    cudaGraphExecDestroy(captured);
}

/* ---- the table ---- */

static const fth_kernel *const kernels[] = {
    &cuda_convolution,
    &cuda_convolution_grad_input,
    &cuda_convolution_grad_weights,
    &cuda_linear,
    &cuda_linear_grad_input,
    &cuda_linear_grad_weights,
    &cuda_batch_norm,
    &cuda_batch_norm_grad,
    &cuda_relu,
    &cuda_relu_grad,
    &cuda_gelu,
    &cuda_gelu_grad,
    &cuda_add,
    &cuda_max_pool,
    &cuda_max_pool_grad,
    &cuda_average_pool,
    &cuda_average_pool_grad,
    &cuda_adaptive_average_pool,
    &cuda_adaptive_average_pool_grad,
    &cuda_concat,
    &cuda_slice,
    &cuda_reshape,
    &cuda_dropout,
    &cuda_softmax_cross_entropy,
    &cuda_softmax_cross_entropy_grad,
    NULL,
};

__attribute__((visibility("default"))) const fth_backend fth_backend_plugin = {
    .abi = FTH_BACKEND_ABI,
    .name = "cuda",
    .open = open_device,
    .close = close_device,
    .enter = enter_device,
    .allocate = allocate,
    .release = release,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .fill_zero = fill_zero,
    .synchronize = synchronize,
    .add = cuda_vector_add,
    .norm = cuda_vector_norm,
    .updates = cuda_updates,
    .kernels = kernels,
    .check_precision = check_precision,
    .describe_plain = describe_plain,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .capture_replay = capture_replay,
    .capture_free = capture_free,
    .sample = sample,
};
