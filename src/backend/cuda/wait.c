/* Waiting for the GPU, under a deadline and without blocking in the driver, so that a hung device
 * is a status and not a hang.
 *
 * A device that did not answer in time, or whose context is broken, is `lost`: nothing more is
 * asked of it, since freeing memory would wait for it too; its memory ends with the process. The
 * driver's own clean-up at the end of the process waits as well, 38 s for a spinning kernel:
 * programs ask fth_device_was_lost() and leave without it.
 *
 * FARTHING_CUDA_TIMEOUT sets how many seconds a wait may take.
 * FARTHING_CUDA_TEST_FAULT=hang:N:SECONDS or trap:N makes run number N of the process spin or fail,
 * for tests. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cuda_device.h"

enum { DEFAULT_TIMEOUT_S = 300 };

/* Steps of small networks end within this; longer ones leave the processor to others. */
#define SPIN_S 300e-6

void cuda_read_environment(cuda_device *cuda)
{
    const char *timeout = getenv("FARTHING_CUDA_TIMEOUT"), *fault = getenv("FARTHING_CUDA_TEST_FAULT");
    double seconds = timeout ? strtod(timeout, NULL) : 0;
    cuda->timeout_s = seconds > 0 ? seconds : DEFAULT_TIMEOUT_S;
    unsigned long long run = 0;
    if (fault && sscanf(fault, "hang:%llu:%lf", &run, &cuda->fault.seconds) == 2)
        cuda->fault.run = run;
    else if (fault && sscanf(fault, "trap:%llu", &run) == 1)
        cuda->fault.run = run;
}

fth_status cuda_make_fault(cuda_device *cuda)
{
    if (cuda->fault.run == 0 || cuda->sequence != cuda->fault.run)
        return FTH_OK;
    return cuda_status(cuda->fault.seconds > 0 ? cuda_launch_spin(cuda->launch.stream, cuda->fault.seconds)
                                               : cuda_launch_trap(cuda->launch.stream),
                       "making a fault");
}

fth_status cuda_lose(cuda_device *cuda, cudaError_t error)
{
    fth_status status = cuda_status(error, "waiting for it");
    if (status != FTH_PEER_LOST)
        return status;
    cuda->lost = true;
    return fth_fail(FTH_PEER_LOST,
                    "%s is lost (%s): its work is gone, and this process cannot use it again; start it again with "
                    "--resume",
                    cuda->properties.name, cudaGetErrorString(error));
}

static fth_status time_out(cuda_device *cuda, double seconds)
{
    cuda->lost = true;
    return fth_fail(FTH_TIMEOUT,
                    "%s did not finish its work within %.0f s: it hangs, or others keep it busy; see nvidia-smi, start "
                    "again with --resume, or wait longer with FARTHING_CUDA_TIMEOUT",
                    cuda->properties.name, seconds);
}

void cuda_rest(double began_s)
{
    if (fth_clock_seconds() - began_s < SPIN_S)
        return;
    const struct timespec pause = {.tv_nsec = 20000};
    nanosleep(&pause, NULL);
}

fth_deadline cuda_deadline(const cuda_device *cuda)
{
    return fth_deadline_in(cuda->timeout_s);
}

fth_status cuda_wait(cuda_device *cuda, cudaEvent_t event, fth_deadline deadline)
{
    const double began_s = fth_clock_seconds();
    for (;;) {
        cudaError_t state = cudaEventQuery(event);
        if (state != cudaErrorNotReady)
            return state == cudaSuccess ? FTH_OK : cuda_lose(cuda, state);
        if (fth_deadline_passed(deadline))
            return time_out(cuda, fth_clock_seconds() - began_s);
        cuda_rest(began_s);
    }
}

fth_status cuda_synchronize(fth_device *device, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    FTH_REQUIRE(!cuda->lost, FTH_PEER_LOST, "%s is lost", cuda->properties.name);
    CUDA_TRY(cudaEventRecord(cuda->done, cuda->launch.stream));
    FTH_TRY(cuda_wait(cuda, cuda->done, deadline));
out:
    return status;
}

/* The host looks at pinned memory; the driver is asked now and then, since a device that fails
 * never writes there. */
fth_status cuda_wait_for_loss(cuda_device *cuda, uint64_t sequence)
{
    enum { LOOKS_PER_QUESTION = 2000 };
    const double began_s = fth_clock_seconds();
    const fth_deadline deadline = cuda_deadline(cuda);
    for (;;) {
        for (int look = 0; look < LOOKS_PER_QUESTION; look++) {
            if (cuda->announcement->sequence == sequence) {
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                return FTH_OK;
            }
        }
        cudaError_t state = cudaStreamQuery(cuda->launch.stream);
        if (state != cudaSuccess && state != cudaErrorNotReady)
            return cuda_lose(cuda, state);
        if (state == cudaSuccess && cuda->announcement->sequence != sequence)
            return fth_fail(FTH_CORRUPT, "%s ended a run without sending its loss", cuda->properties.name);
        if (fth_deadline_passed(deadline))
            return time_out(cuda, fth_clock_seconds() - began_s);
        cuda_rest(began_s);
    }
}
