/* Device memory and copies.
 *
 * Copies in go through pinned memory, so that they are queued and not waited for: small ones
 * through a ring of slots, large ones through two pieces in turn. Batches take a stream of their
 * own into one of two buffers on the device, from where the main stream takes them: the bus works
 * while the device computes what was queued before. Copies out are queued behind the work and
 * waited for with it. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/memory.h"

enum { STAGING_BYTES = 32 << 20, SMALL_COPY_BYTES = 64 << 10, OUT_BYTES = 4 << 20, SMALL_SLOTS = 32 };

/* A buffer on the device between the bus and the batch's place. */
typedef struct batch_buffer {
    void *memory;
    size_t size_bytes;
    cudaEvent_t arrived, taken;
} batch_buffer;

struct cuda_copies {
    cudaStream_t copy_stream;
    void *staging[2]; /* pinned: large copies in go through these in turn */
    cudaEvent_t staging_free[2];
    int staging_next;
    batch_buffer ahead[2]; /* batches that arrived before they are needed */
    int ahead_next;
    void *small; /* pinned: a ring for small copies in */
    cudaEvent_t small_done[2];
    uint64_t small_next;
    void *out; /* pinned: copies out land here */
};

fth_status cuda_allocate(fth_device *device, size_t size_bytes, void **memory)
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
        status =
            fth_fail(FTH_NO_MEMORY, "%s has no room for %.2f GB more: %.2f of %.2f GB are free", cuda->properties.name,
                     (double)size_bytes / 1e9, (double)free_bytes / 1e9, (double)total_bytes / 1e9);
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

void cuda_release(fth_device *device, void *memory)
{
    cuda_device *cuda = (cuda_device *)device;
    if (!memory || cuda->lost)
        return;
    cudaSetDevice(cuda->index);
    if (cuda_synchronize(device, cuda_deadline(cuda)) == FTH_OK)
        cudaFree(memory);
}

fth_status cuda_free_memory(fth_device *device, size_t *free_bytes, size_t *total_bytes)
{
    cudaSetDevice(((cuda_device *)device)->index);
    return cuda_status(cudaMemGetInfo(free_bytes, total_bytes), "cudaMemGetInfo");
}

fth_status cuda_open_copies(cuda_device *cuda)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_allocate(1, sizeof *cuda->copies, &cuda->copies));
    CUDA_TRY(cudaStreamCreateWithFlags(&cuda->copies->copy_stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
        CUDA_TRY(cudaEventCreateWithFlags(&cuda->copies->staging_free[i], cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&cuda->copies->small_done[i], cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&cuda->copies->ahead[i].arrived, cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&cuda->copies->ahead[i].taken, cudaEventDisableTiming));
    }
    CUDA_TRY(cudaHostAlloc(&cuda->copies->out, OUT_BYTES, cudaHostAllocDefault));
    CUDA_TRY(cudaHostAlloc(&cuda->copies->small, SMALL_SLOTS * SMALL_COPY_BYTES, cudaHostAllocDefault));
out:
    return status;
}

void cuda_close_copies(cuda_device *cuda)
{
    if (!cuda->copies)
        return;
    for (int i = 0; i < 2; i++) {
        cudaEvent_t events[] = {cuda->copies->staging_free[i], cuda->copies->small_done[i],
                                cuda->copies->ahead[i].arrived, cuda->copies->ahead[i].taken};
        for (size_t e = 0; e < FTH_COUNT_OF(events); e++)
            if (events[e])
                cudaEventDestroy(events[e]);
        if (cuda->copies->staging[i])
            cudaFreeHost(cuda->copies->staging[i]);
        cudaFree(cuda->copies->ahead[i].memory);
    }
    if (cuda->copies->out)
        cudaFreeHost(cuda->copies->out);
    if (cuda->copies->small)
        cudaFreeHost(cuda->copies->small);
    if (cuda->copies->copy_stream)
        cudaStreamDestroy(cuda->copies->copy_stream);
    free(cuda->copies);
    cuda->copies = NULL;
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

static fth_status copy_staged(cuda_device *cuda, char *to, const char *from, size_t size_bytes, cudaStream_t stream)
{
    fth_status status = FTH_OK;
    while (size_bytes > 0) {
        int slot = cuda->copies->staging_next;
        size_t part = size_bytes < STAGING_BYTES ? size_bytes : STAGING_BYTES;
        if (!cuda->copies->staging[slot])
            CUDA_TRY(cudaHostAlloc(&cuda->copies->staging[slot], STAGING_BYTES, cudaHostAllocDefault));
        else
            FTH_TRY(cuda_wait(cuda, cuda->copies->staging_free[slot], cuda_deadline(cuda)));
        copy_bytes(cuda->copies->staging[slot], from, part);
        CUDA_TRY(cudaMemcpyAsync(to, cuda->copies->staging[slot], part, cudaMemcpyHostToDevice, stream));
        CUDA_TRY(cudaEventRecord(cuda->copies->staging_free[slot], stream));
        cuda->copies->staging_next = 1 - slot;
        to += part;
        from += part;
        size_bytes -= part;
    }
out:
    return status;
}

/* A half of the ring is used again when all copies from it are done. */
static fth_status copy_small(cuda_device *cuda, void *to, const void *from, size_t size_bytes)
{
    fth_status status = FTH_OK;
    const uint64_t slot = cuda->copies->small_next % SMALL_SLOTS, half = slot / (SMALL_SLOTS / 2);
    char *pinned = (char *)cuda->copies->small + slot * SMALL_COPY_BYTES;
    if (slot % (SMALL_SLOTS / 2) == 0 && cuda->copies->small_next >= SMALL_SLOTS)
        FTH_TRY(cuda_wait(cuda, cuda->copies->small_done[half], cuda_deadline(cuda)));
    memcpy(pinned, from, size_bytes);
    CUDA_TRY(cudaMemcpyAsync(to, pinned, size_bytes, cudaMemcpyHostToDevice, cuda->launch.stream));
    if (slot % (SMALL_SLOTS / 2) == SMALL_SLOTS / 2 - 1)
        CUDA_TRY(cudaEventRecord(cuda->copies->small_done[half], cuda->launch.stream));
    cuda->copies->small_next++;
out:
    return status;
}

/* Through a buffer of the device, while the main stream is busy with what was queued before. */
static fth_status copy_ahead(cuda_device *cuda, void *to, const void *from, size_t size_bytes)
{
    fth_status status = FTH_OK;
    batch_buffer *ahead = &cuda->copies->ahead[cuda->copies->ahead_next];
    if (ahead->size_bytes < size_bytes) {
        void *larger = NULL;
        if (cudaMalloc(&larger, size_bytes) != cudaSuccess) { /* no room: copied behind the work instead */
            cudaGetLastError();
            return copy_staged(cuda, to, from, size_bytes, cuda->launch.stream);
        }
        cuda_release(&cuda->base, ahead->memory);
        ahead->memory = larger;
        ahead->size_bytes = size_bytes;
    }
    CUDA_TRY(cudaStreamWaitEvent(cuda->copies->copy_stream, ahead->taken, 0));
    FTH_TRY(copy_staged(cuda, ahead->memory, from, size_bytes, cuda->copies->copy_stream));
    CUDA_TRY(cudaEventRecord(ahead->arrived, cuda->copies->copy_stream));
    CUDA_TRY(cudaStreamWaitEvent(cuda->launch.stream, ahead->arrived, 0));
    CUDA_TRY(cudaMemcpyAsync(to, ahead->memory, size_bytes, cudaMemcpyDeviceToDevice, cuda->launch.stream));
    CUDA_TRY(cudaEventRecord(ahead->taken, cuda->launch.stream));
    cuda->copies->ahead_next = 1 - cuda->copies->ahead_next;
out:
    return status;
}

/* `from` may also be memory of the device. */
static fth_status copy(cuda_device *cuda, void *to, const void *from, size_t size_bytes, bool ahead)
{
    fth_status status = FTH_OK;
    struct cudaPointerAttributes attributes;
    if (size_bytes == 0)
        return FTH_OK;
    FTH_REQUIRE(!cuda->lost, FTH_PEER_LOST, "%s is lost", cuda->properties.name);
    cudaSetDevice(cuda->index);
    CUDA_TRY(cudaPointerGetAttributes(&attributes, from));
    if (attributes.type == cudaMemoryTypeDevice)
        CUDA_TRY(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToDevice, cuda->launch.stream));
    else if (size_bytes <= SMALL_COPY_BYTES)
        FTH_TRY(copy_small(cuda, to, from, size_bytes));
    else if (ahead)
        FTH_TRY(copy_ahead(cuda, to, from, size_bytes));
    else
        FTH_TRY(copy_staged(cuda, to, from, size_bytes, cuda->launch.stream));
out:
    return status;
}

fth_status cuda_copy_in(fth_device *device, void *to, const void *from, size_t size_bytes)
{
    return copy((cuda_device *)device, to, from, size_bytes, false);
}

fth_status cuda_copy_batch(fth_device *device, void *to, const void *from, size_t size_bytes)
{
    return copy((cuda_device *)device, to, from, size_bytes, true);
}

fth_status cuda_copy_out(fth_device *device, void *to, const void *from, size_t size_bytes)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = (cuda_device *)device;
    if (size_bytes == 0)
        return FTH_OK;
    FTH_REQUIRE(!cuda->lost, FTH_PEER_LOST, "%s is lost", cuda->properties.name);
    cudaSetDevice(cuda->index);
    /* Through pinned memory: the copy is queued behind the work, and waited for with it, under a
     * deadline. */
    while (size_bytes > 0) {
        size_t part = size_bytes < OUT_BYTES ? size_bytes : OUT_BYTES;
        CUDA_TRY(cudaMemcpyAsync(cuda->copies->out, from, part, cudaMemcpyDeviceToHost, cuda->launch.stream));
        FTH_TRY(cuda_synchronize(device, cuda_deadline(cuda)));
        memcpy(to, cuda->copies->out, part);
        to = (char *)to + part;
        from = (const char *)from + part;
        size_bytes -= part;
    }
out:
    return status;
}

fth_status cuda_fill_zero(fth_device *device, void *memory, size_t size_bytes)
{
    const cuda_device *cuda = (cuda_device *)device;
    return cuda_status(cudaMemsetAsync(memory, 0, size_bytes, cuda->launch.stream), "cudaMemsetAsync");
}
