/* Device memory that is the host's, used by the calling thread. */
#include "backend/plain/plain.h"

#include <stdlib.h>
#include <string.h>

void plain_enter(fth_device *device, int threads)
{
    (void)device;
    (void)threads;
}

fth_status plain_allocate(fth_device *device, size_t size_bytes, void **memory)
{
    (void)device;
    return fth_allocate_aligned(size_bytes, memory);
}

void plain_release(fth_device *device, void *memory)
{
    (void)device;
    free(memory);
}

fth_status plain_copy(fth_device *device, void *to, const void *from, size_t size_bytes)
{
    (void)device;
    if (size_bytes > 0)
        memmove(to, from, size_bytes);
    return FTH_OK;
}

fth_status plain_fill_zero(fth_device *device, void *memory, size_t size_bytes)
{
    (void)device;
    if (size_bytes > 0)
        memset(memory, 0, size_bytes);
    return FTH_OK;
}

fth_status plain_synchronize(fth_device *device, fth_deadline deadline)
{
    (void)device;
    (void)deadline;
    return FTH_OK;
}
