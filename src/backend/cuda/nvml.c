/* What a GPU is doing, from NVML. The library belongs to the driver and is loaded when first asked;
 * where it is missing (containers often leave it out) utilization stays unknown and nothing else
 * suffers. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

#include "backend/cuda/cuda_device.h"

/* The part of NVML's interface that is used: its header is not always installed with CUDA. */
typedef struct nvml_utilization {
    unsigned gpu, memory; /* percent of the driver's last sampling period */
} nvml_utilization;

static void *find(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

struct cuda_nvml {
    void *library, *handle; /* NULL: not there */
    int (*utilization)(void *handle, void *utilization);
};

static void open_nvml(const cuda_device *device, cuda_nvml *nvml)
{
    int (*init)(void);
    int (*by_bus)(const char *bus, void **handle);
    char bus[32];

    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    *(void **)&init = find(nvml->library, "nvmlInit_v2");
    *(void **)&by_bus = find(nvml->library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&nvml->utilization = find(nvml->library, "nvmlDeviceGetUtilizationRates");
    bool found = init && by_bus && nvml->utilization && init() == 0;
    /* By its place on the bus: NVML counts GPUs that CUDA_VISIBLE_DEVICES hides. */
    if (found && cudaDeviceGetPCIBusId(bus, sizeof bus, device->index) == cudaSuccess &&
        by_bus(bus, &nvml->handle) == 0)
        return;
    nvml->handle = NULL;
    fth_log_debug("the GPU's utilization is not known: NVML %s", nvml->library ? "does not answer" : "was not found");
}

void cuda_nvml_close(cuda_device *device)
{
    int (*shutdown)(void);
    if (!device->nvml)
        return;
    *(void **)&shutdown = find(device->nvml->library, "nvmlShutdown");
    if (shutdown)
        shutdown();
    if (device->nvml->library)
        dlclose(device->nvml->library);
    free(device->nvml);
    device->nvml = NULL;
}

double cuda_nvml_utilization(cuda_device *device)
{
    nvml_utilization utilization;
    if (!device->nvml) { /* not at the start, which it would delay */
        if (fth_allocate(1, sizeof *device->nvml, &device->nvml) != FTH_OK)
            return NAN;
        open_nvml(device, device->nvml);
    }
    const cuda_nvml *nvml = device->nvml;
    if (!nvml->handle || nvml->utilization(nvml->handle, &utilization) != 0)
        return NAN;
    return utilization.gpu / 100.0;
}
