/* The device of the CUDA back end, statuses of its libraries, and waiting for it (cuda.c, wait.c).
 * Parts that one file knows are structs of that file; the rest is here because every launch needs
 * it. */
#ifndef FTH_BACKEND_CUDA_CUDA_DEVICE_H
#define FTH_BACKEND_CUDA_CUDA_DEVICE_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "backend/cuda/kernels.h"
#include "backend/kernel.h"

typedef struct cuda_copies cuda_copies; /* memory.c */
typedef struct cuda_nvml cuda_nvml;     /* nvml.c */
typedef struct cuda_tuning cuda_tuning; /* tuning.c */

/* The stream and what is bound to it. Larger parts (copies, NVML, tuning) are objects of their
 * own. */
typedef struct cuda_device {
    fth_device base; /* first: backend.h hands out pointers to it */
    int index;
    struct cudaDeviceProp properties;
    cuda_launch launch; /* the stream, counters */
    cudnnHandle_t cudnn;
    cublasLtHandle_t blas;
    double timeout_s;  /* of a wait */
    _Atomic bool lost; /* hung or broken: nothing more is asked of it */
    struct {
        uint64_t run; /* 0: none */
        double seconds;
    } fault; /* that a test asked for */

    cuda_run_values *run_values; /* device memory */
    cuda_run_values last_run_values;
    bool run_values_set;
    double *norm_scratch;
    bool capturing;

    uint64_t sequence; /* of the last replay */
    bool replayed;     /* the last run was one */
    cuda_announcement *announcement;

    cuda_copies *copies;
    cudaEvent_t done;
    void *recipes; /* device memory */
    size_t recipe_bytes;

    struct { /* the time of runs; events are around those since it was last taken */
        cudaEvent_t begin, end;
        bool pending;
        double seconds;
    } busy;

    cuda_nvml *nvml; /* NULL: not opened yet */
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

void cuda_read_environment(cuda_device *cuda);
/* What an error of the device means; FTH_PEER_LOST names it and marks it as lost. */
fth_status cuda_lose(cuda_device *cuda, cudaError_t error);
/* A pause between two looks: none at first. */
void cuda_rest(double began_s);
fth_deadline cuda_deadline(const cuda_device *cuda);
fth_status cuda_wait(cuda_device *cuda, cudaEvent_t event, fth_deadline deadline);
fth_status cuda_synchronize(fth_device *device, fth_deadline deadline);
fth_status cuda_wait_for_loss(cuda_device *cuda, uint64_t sequence);
/* Queues the fault that a test asked for before this run. */
fth_status cuda_make_fault(cuda_device *cuda);

/* What the driver knows of utilization, NAN where it does not (nvml.c). The first call opens
 * NVML. */
double cuda_nvml_utilization(cuda_device *device);
void cuda_nvml_close(cuda_device *device);

/* The plugin's one exported symbol. */
extern const fth_backend fth_backend_plugin;

#endif
