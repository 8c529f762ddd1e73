/* What a GPU is doing, from NVML. The library belongs to the driver and is loaded when first asked; where it is missing
 * (containers often leave it out) utilization stays unknown and nothing else suffers. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>

#include "backend/cuda/cuda_internal.h"

/* The part of NVML's interface that is used: its header is not always installed with CUDA. */
typedef struct nvml_utilization {
    unsigned gpu, memory; /* percent of the driver's last sampling period */
} nvml_utilization;

static void *find(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

void cuda_nvml_open(cuda_device *device)
{
    int (*init)(void);
    int (*by_bus)(const char *bus, void **handle);
    char bus[32];

    device->nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    *(void **)&init = find(device->nvml, "nvmlInit_v2");
    *(void **)&by_bus = find(device->nvml, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&device->nvml_utilization = find(device->nvml, "nvmlDeviceGetUtilizationRates");
    bool found = init && by_bus && device->nvml_utilization && init() == 0;
    /* By its place on the bus: NVML counts GPUs that CUDA_VISIBLE_DEVICES hides. */
    if (found && cudaDeviceGetPCIBusId(bus, sizeof bus, device->index) == cudaSuccess &&
        by_bus(bus, &device->nvml_handle) == 0)
        return;
    device->nvml_handle = NULL;
    fth_log_debug("the GPU's utilization is not known: NVML %s", device->nvml ? "does not answer" : "was not found");
}

void cuda_nvml_close(cuda_device *device)
{
    int (*shutdown)(void);
    *(void **)&shutdown = find(device->nvml, "nvmlShutdown");
    if (shutdown)
        shutdown();
    if (device->nvml)
        dlclose(device->nvml);
}

double cuda_nvml_utilization(const cuda_device *device)
{
    nvml_utilization utilization;
    if (!device->nvml_handle || device->nvml_utilization(device->nvml_handle, &utilization) != 0)
        return NAN;
    return utilization.gpu / 100.0;
}
