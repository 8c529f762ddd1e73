/* Stills: device memory as it was at one moment, brought to the host beside the work.
 *
 *     main stream   ... update N | copy to the still | step N+1 ...
 *     own stream                                     | piece, piece, piece over the bus
 *     a thread                                         | memcpy, memcpy, memcpy
 *
 * The bus fills one pinned buffer while the other is copied out of, so the memory that is pinned stays small and where
 * the numbers end up is anybody's memory. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_internal.h"

enum { PIECE_BYTES = 4 << 20 };

struct fth_still {
    cuda_device *device;
    unsigned char *memory; /* of the device */
    size_t size_bytes;
    cudaStream_t stream;
    cudaEvent_t taken;
    void *pinned[2];
    cudaEvent_t arrived[2];
};

void cuda_still_close(fth_still *still)
{
    if (!still)
        return;
    if (!still->device->lost) {
        cudaSetDevice(still->device->index);
        cuda_release(&still->device->base, still->memory);
        cudaEvent_t events[] = {still->taken, still->arrived[0], still->arrived[1]};
        for (size_t i = 0; i < FTH_COUNT_OF(events); i++)
            if (events[i])
                cudaEventDestroy(events[i]);
        for (int i = 0; i < 2; i++)
            cudaFreeHost(still->pinned[i]);
        if (still->stream)
            cudaStreamDestroy(still->stream);
    }
    free(still);
}

fth_status cuda_still_open(fth_device *device, size_t size_bytes, fth_still **result)
{
    fth_status status = FTH_OK;
    fth_still *still = NULL;
    FTH_TRY(fth_allocate(1, sizeof *still, &still));
    still->device = (cuda_device *)device;
    still->size_bytes = size_bytes;
    cudaSetDevice(still->device->index);
    CUDA_TRY(cudaMalloc((void **)&still->memory, size_bytes));
    CUDA_TRY(cudaStreamCreateWithFlags(&still->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&still->taken, cudaEventDisableTiming));
    for (int i = 0; i < 2; i++) {
        CUDA_TRY(cudaHostAlloc(&still->pinned[i], PIECE_BYTES, cudaHostAllocDefault));
        CUDA_TRY(cudaEventCreateWithFlags(&still->arrived[i], cudaEventDisableTiming));
    }
    *result = still;
    still = NULL;
out:
    cuda_still_close(still);
    return status;
}

fth_status cuda_still_take(fth_still *still, const fth_extent *extents, size_t count)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = still->device;
    FTH_REQUIRE(!cuda->lost, FTH_PEER_LOST, "%s is lost", cuda->properties.name);
    cudaSetDevice(cuda->index);
    for (size_t i = 0; i < count; i++)
        CUDA_TRY(cudaMemcpyAsync(still->memory + extents[i].at, extents[i].from, extents[i].size_bytes,
                                 cudaMemcpyDeviceToDevice, cuda->launch.stream));
    CUDA_TRY(cudaEventRecord(still->taken, cuda->launch.stream));
    CUDA_TRY(cudaStreamWaitEvent(still->stream, still->taken, 0));
out:
    return status;
}

/* Queues the piece from byte `at` on into one of the pinned buffers. */
static fth_status queue_piece(fth_still *still, size_t at, int slot)
{
    fth_status status = FTH_OK;
    size_t left = still->size_bytes - at;
    CUDA_TRY(cudaMemcpyAsync(still->pinned[slot], still->memory + at, left < PIECE_BYTES ? left : PIECE_BYTES,
                             cudaMemcpyDeviceToHost, still->stream));
    CUDA_TRY(cudaEventRecord(still->arrived[slot], still->stream));
out:
    return status;
}

fth_status cuda_still_fetch(fth_still *still, void *to_host)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = still->device;
    FTH_REQUIRE(!cuda->lost, FTH_PEER_LOST, "%s is lost", cuda->properties.name);
    cudaSetDevice(cuda->index);
    int slot = 0;
    FTH_TRY(queue_piece(still, 0, slot));
    for (size_t at = 0; at < still->size_bytes; at += PIECE_BYTES, slot = 1 - slot) {
        size_t left = still->size_bytes - at;
        if (left > PIECE_BYTES)
            FTH_TRY(queue_piece(still, at + PIECE_BYTES, 1 - slot));
        FTH_TRY(cuda_wait(cuda, still->arrived[slot], cuda_deadline(cuda)));
        memcpy((unsigned char *)to_host + at, still->pinned[slot], left < PIECE_BYTES ? left : PIECE_BYTES);
    }
out:
    return status;
}
