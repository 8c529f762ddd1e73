/* Device snapshots: device memory as it was at one moment, brought to the host while the device
 * computes.
 *
 *     main stream   ... update N | copy to the snapshot | step N+1 ...
 *     own stream                                        | piece, piece, piece over the bus
 *     a thread                                            | memcpy, memcpy, memcpy
 *
 * The bus fills one pinned buffer while the other is copied out of, so the memory that is pinned
 * stays small and where the numbers end up is anybody's memory. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/memory.h"
#include "backend/cuda/recording.h"

enum { PIECE_BYTES = 4 << 20 };

struct fth_device_snapshot {
    cuda_device *device;
    unsigned char *memory; /* of the device */
    size_t size_bytes;
    cudaStream_t stream;
    cudaEvent_t taken;
    void *pinned[2];
    cudaEvent_t arrived[2];
};

static void close_snapshot(fth_device_snapshot *snapshot)
{
    if (!snapshot)
        return;
    if (!snapshot->device->lost) {
        cudaSetDevice(snapshot->device->index);
        cuda_release(&snapshot->device->base, snapshot->memory);
        cudaEvent_t events[] = {snapshot->taken, snapshot->arrived[0], snapshot->arrived[1]};
        for (size_t i = 0; i < FTH_COUNT_OF(events); i++)
            if (events[i])
                cudaEventDestroy(events[i]);
        for (int i = 0; i < 2; i++)
            cudaFreeHost(snapshot->pinned[i]);
        if (snapshot->stream)
            cudaStreamDestroy(snapshot->stream);
    }
    free(snapshot);
}

static fth_status open_snapshot(fth_device *device, size_t size_bytes, fth_device_snapshot **result)
{
    fth_status status = FTH_OK;
    fth_device_snapshot *snapshot = NULL;
    FTH_TRY(fth_allocate(1, sizeof *snapshot, &snapshot));
    snapshot->device = (cuda_device *)device;
    snapshot->size_bytes = size_bytes;
    cudaSetDevice(snapshot->device->index);
    CUDA_TRY(cudaMalloc((void **)&snapshot->memory, size_bytes));
    CUDA_TRY(cudaStreamCreateWithFlags(&snapshot->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&snapshot->taken, cudaEventDisableTiming));
    for (int i = 0; i < 2; i++) {
        CUDA_TRY(cudaHostAlloc(&snapshot->pinned[i], PIECE_BYTES, cudaHostAllocDefault));
        CUDA_TRY(cudaEventCreateWithFlags(&snapshot->arrived[i], cudaEventDisableTiming));
    }
    *result = snapshot;
    snapshot = NULL;
out:
    close_snapshot(snapshot);
    return status;
}

static fth_status take_snapshot(fth_device_snapshot *snapshot, const fth_extent *extents, size_t count)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = snapshot->device;
    FTH_REQUIRE(!cuda->lost, FTH_PEER_LOST, "%s is lost", cuda->properties.name);
    cudaSetDevice(cuda->index);
    for (size_t i = 0; i < count; i++)
        CUDA_TRY(cudaMemcpyAsync(snapshot->memory + extents[i].at, extents[i].from, extents[i].size_bytes,
                                 cudaMemcpyDeviceToDevice, cuda->launch.stream));
    CUDA_TRY(cudaEventRecord(snapshot->taken, cuda->launch.stream));
    CUDA_TRY(cudaStreamWaitEvent(snapshot->stream, snapshot->taken, 0));
out:
    return status;
}

/* Queues the piece from byte `at` on into one of the pinned buffers. */
static fth_status queue_piece(fth_device_snapshot *snapshot, size_t at, int slot)
{
    fth_status status = FTH_OK;
    size_t left = snapshot->size_bytes - at;
    CUDA_TRY(cudaMemcpyAsync(snapshot->pinned[slot], snapshot->memory + at, left < PIECE_BYTES ? left : PIECE_BYTES,
                             cudaMemcpyDeviceToHost, snapshot->stream));
    CUDA_TRY(cudaEventRecord(snapshot->arrived[slot], snapshot->stream));
out:
    return status;
}

static fth_status fetch_snapshot(fth_device_snapshot *snapshot, void *to_host)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = snapshot->device;
    FTH_REQUIRE(!cuda->lost, FTH_PEER_LOST, "%s is lost", cuda->properties.name);
    cudaSetDevice(cuda->index);
    int slot = 0;
    FTH_TRY(queue_piece(snapshot, 0, slot));
    for (size_t at = 0; at < snapshot->size_bytes; at += PIECE_BYTES, slot = 1 - slot) {
        size_t left = snapshot->size_bytes - at;
        if (left > PIECE_BYTES)
            FTH_TRY(queue_piece(snapshot, at + PIECE_BYTES, 1 - slot));
        FTH_TRY(cuda_wait(cuda, snapshot->arrived[slot], cuda_deadline(cuda)));
        memcpy((unsigned char *)to_host + at, snapshot->pinned[slot], left < PIECE_BYTES ? left : PIECE_BYTES);
    }
out:
    return status;
}

const fth_backend_snapshots cuda_snapshots = {
    .open = open_snapshot,
    .take = take_snapshot,
    .fetch = fetch_snapshot,
    .close = close_snapshot,
};
