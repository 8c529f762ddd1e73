/* The CUDA back end: its table, the device, and statuses.
 *
 * One stream carries everything: copies in, plans, updates; batches arrive over a second one
 * (memory.c), checkpoints leave over a third (snapshot.c). A plan's run is recorded once, with its
 * update, as a CUDA graph and replayed (capture.c, updater.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/convolution.h"
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/recording.h"

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
    /* After these the context is of no more use. */
    case cudaErrorDevicesUnavailable:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorContained:
    case cudaErrorUnknown:
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
    cuda_nvml_close(cuda);
    if (cuda->lost) { /* everything else would wait for the GPU; the end of the process frees it (wait.c) */
        free(cuda);
        return;
    }
    if (cuda->blas)
        cublasLtDestroy(cuda->blas);
    if (cuda->cudnn)
        cudnnDestroy(cuda->cudnn);
    cuda_close_copies(cuda);
    cudaEvent_t events[] = {cuda->done, cuda->busy.begin, cuda->busy.end};
    for (size_t i = 0; i < FTH_COUNT_OF(events); i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    if (cuda->announcement)
        cudaFreeHost(cuda->announcement);
    cudaFree(cuda->launch.counters);
    cudaFree(cuda->run_values);
    cudaFree(cuda->norm_scratch);
    cudaFree(cuda->recipes);
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
    CUDA_TRY(cudaHostAlloc((void **)&cuda->announcement, sizeof *cuda->announcement, cudaHostAllocDefault));
    *cuda->announcement = (cuda_announcement){0};
    CUDA_TRY(cudaEventCreateWithFlags(&cuda->done, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreate(&cuda->busy.begin));
    CUDA_TRY(cudaEventCreate(&cuda->busy.end));
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
    cuda_read_environment(cuda);
    FTH_TRY(open_memory(cuda));
    FTH_TRY(cuda_open_copies(cuda));
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

/* The current device belongs to the thread. */
static void enter_device(fth_device *device, int threads)
{
    (void)threads;
    cudaSetDevice(((cuda_device *)device)->index);
}

static fth_status check_precision(fth_device *device, fth_precision precision)
{
    (void)device;
    (void)precision; /* compute capability 8.0 has all of them */
    return FTH_OK;
}

/* Tensor cores are fastest in 16 bits, and bf16 needs no loss scale. On an H200 f16 gained 1 % at
 * best over it and lost up to 6 % (bench/RESULTS.md), so the network makes no difference. */
static fth_precision choose_precision(fth_device *device, const fth_graph *graph)
{
    (void)device;
    (void)graph;
    return FTH_PRECISION_BF16;
}

static bool is_lost(const fth_device *device)
{
    return ((const cuda_device *)device)->lost;
}

static fth_status describe_plain(fth_plan *plan, fth_value value)
{
    fth_type type = fth_plan_type(plan, value);
    cuda_layout layout = cuda_plain(&type.shape, type.dtype == FTH_I32  ? CUDA_TYPE_I32
                                                 : type.dtype == FTH_U8 ? CUDA_TYPE_U8
                                                                        : CUDA_TYPE_F32);
    return cuda_set_layout(plan, fth_plan_value_of(plan, value), &layout);
}

/* ---- the table ---- */

static const fth_kernel *const kernels[] = {
#define ROW(name)  &cuda_##name,
#define PAIR(name) &cuda_##name, &cuda_##name##_grad,
    FTH_OPS(ROW) FTH_ACTIVATIONS(PAIR)
#undef ROW
#undef PAIR
        NULL,
};

static const fth_backend_batches batches = {.copy = cuda_copy_batch, .gather = cuda_gather_batch};

static const fth_backend_accelerator accelerator = {
    .sample = cuda_sample,
    .free_memory = cuda_free_memory,
    .choose_precision = choose_precision,
    .is_lost = is_lost,
};

__attribute__((visibility("default"))) const fth_backend fth_backend_plugin = {
    .abi = FTH_BACKEND_ABI,
    .name = "cuda",
    .open = open_device,
    .close = close_device,
    .enter = enter_device,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .fill_zero = cuda_fill_zero,
    .synchronize = cuda_synchronize,
    .add = cuda_vector_add,
    .norm = cuda_vector_norm,
    .updates = cuda_updates,
    .kernels = kernels,
    .check_precision = check_precision,
    .describe_plain = describe_plain,
    .planning = &cuda_planning,
    .capture = &cuda_capture,
    .batches = &batches,
    .snapshots = &cuda_snapshots,
    .accelerator = &accelerator,
#ifdef FARTHING_NCCL
    .collectives = &cuda_nccl,
#endif
};
