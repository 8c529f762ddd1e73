/* Recorded runs. A run of a plan, with or without the update behind it, is recorded once as a CUDA
 * graph; each replay is one launch, whose first node writes the numbers of this run to the device.
 *
 *     host    launch N ... loss N known -> batch N+1 is copied in, launch N+1 ...
 *     device  forward N, loss N sent, backward N, update N | forward N+1 ...
 *
 * The loss is sent to the host through pinned memory as soon as it is there, so that the host
 * prepares the next run while the device is still busy with this one. */
#include <stdlib.h>

#include "backend/cuda/recording.h"

typedef struct recording {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t values; /* the launch that writes the run's values */
} recording;

static fth_status begin_capture(fth_device *device)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    const cuda_run_values none = {0}; /* the replay has its own */
    CUDA_TRY(cudaStreamBeginCapture(cuda->launch.stream, cudaStreamCaptureModeRelaxed));
    cuda->capturing = true;
    CUDA_TRY(cuda_launch_run_values(cuda->launch.stream, cuda->run_values, none));
out:
    return status;
}

static void free_capture(fth_device *device, void *captured)
{
    cuda_device *cuda = (cuda_device *)device;
    recording *made = captured;
    if (!made)
        return;
    if (!cuda->lost) {
        cudaSetDevice(cuda->index);
        FTH_IGNORE(cuda_synchronize(device, cuda_deadline(cuda)), "a device that hangs is marked as lost");
    }
    if (!cuda->lost && made->executable)
        cudaGraphExecDestroy(made->executable);
    if (made->graph)
        cudaGraphDestroy(made->graph);
    free(made);
}

static fth_status end_capture(fth_device *device, void **captured)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    recording *made = NULL;
    size_t roots = 1;
    cuda->capturing = false;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    CUDA_TRY(cudaStreamEndCapture(cuda->launch.stream, &made->graph));
    CUDA_TRY(cudaGraphGetRootNodes(made->graph, &made->values, &roots));
    FTH_REQUIRE(roots == 1, FTH_UNSUPPORTED, "a recorded run begins in %zu places", roots);
    CUDA_TRY(cudaGraphInstantiate(&made->executable, made->graph, 0));
    *captured = made;
    made = NULL;
out:
    free_capture(device, made);
    return status;
}

/* Adds the time of the runs that are done. Runs that were queued one behind the other are timed as
 * one. */
static fth_status count_busy(cuda_device *cuda)
{
    fth_status status = FTH_OK;
    float milliseconds = 0;
    if (!cuda->busy.pending)
        return FTH_OK;
    cudaError_t state = cudaEventQuery(cuda->busy.end);
    if (state == cudaErrorNotReady)
        return FTH_OK;
    CUDA_TRY(state);
    CUDA_TRY(cudaEventElapsedTime(&milliseconds, cuda->busy.begin, cuda->busy.end));
    cuda->busy.seconds += milliseconds / 1e3;
    cuda->busy.pending = false;
out:
    return status;
}

static fth_status replay_capture(fth_device *device, void *captured, const fth_run *run)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    const recording *made = captured;
    FTH_REQUIRE(!cuda->lost, FTH_PEER_LOST, "%s is lost", cuda->properties.name);
    cuda->sequence++;
    cuda->run_values_set = false;
    CUDA_TRY(cuda_set_recorded_run_values(made->executable, made->values, cuda->run_values,
                                          cuda_run_values_of(run, cuda->sequence)));
    FTH_TRY(count_busy(cuda));
    FTH_TRY(cuda_make_fault(cuda));
    if (!cuda->busy.pending)
        CUDA_TRY(cudaEventRecord(cuda->busy.begin, cuda->launch.stream));
    CUDA_TRY(cudaGraphLaunch(made->executable, cuda->launch.stream));
    CUDA_TRY(cudaEventRecord(cuda->busy.end, cuda->launch.stream));
    cuda->busy.pending = true;
    cuda->replayed = true;
out:
    return status;
}

static fth_status read_loss(fth_device *device, float loss[2])
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    if (cuda->replayed)
        FTH_TRY(cuda_wait_for_loss(cuda, cuda->sequence));
    else
        FTH_TRY(cuda_synchronize(device, cuda_deadline(cuda)));
    loss[0] = cuda->announcement->loss;
    loss[1] = cuda->announcement->correct;
out:
    return status;
}

const fth_backend_capture cuda_capture = {
    .begin = begin_capture,
    .end = end_capture,
    .replay = replay_capture,
    .free = free_capture,
    .read_loss = read_loss,
    .updater = &cuda_updater,
};

fth_status cuda_sample(fth_device *device, fth_device_sample *result)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    size_t free_bytes = 0, total_bytes = 0;
    cudaSetDevice(cuda->index);
    if (cuda->busy.pending) /* one step at most: otherwise a device that is never idle would never be counted */
        FTH_TRY(cuda_wait(cuda, cuda->busy.end, cuda_deadline(cuda)));
    FTH_TRY(count_busy(cuda));
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
    *result = (fth_device_sample){.used_bytes = (int64_t)(total_bytes - free_bytes),
                                  .total_bytes = (int64_t)total_bytes,
                                  .utilization = cuda_nvml_utilization(cuda),
                                  .busy_s = cuda->busy.seconds};
out:
    return status;
}
