/* Groups of GPUs, one of each process, on NCCL (backend.h, fth_backend_collectives). The library is
 * loaded when a group is asked for: without it gradients travel through the host.
 *
 * Work goes on a stream of the group's own, behind an event of the device's stream; join() is an
 * event the other way. Both may be recorded, and become edges of the graph.
 *
 * Communicators do not block: a call that is under way is asked about until it is done, so that
 * abort() can come between. A kernel of NCCL whose peer is gone spins until the communicator is
 * aborted, and leaves half a sum. `failed`, in memory that the GPU sees, is set before that: what
 * comes behind it in the same run looks there and leaves weights and running statistics alone. */
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/recording.h"

_Static_assert(sizeof(ncclUniqueId) == FTH_DEVICE_GROUP_ID_BYTES, "the id travels as bytes");
_Static_assert(2 * sizeof(cudaUUID_t) < FTH_DEVICE_IDENTITY_BYTES, "in hexadecimal");

enum { CALL_TIMEOUT_S = 60, CLOSE_TIMEOUT_S = 10, OLDEST_VERSION = 21400 /* the first without blocking */ };

#define NCCL_FUNCTIONS(F)                                                                                              \
    F(GetVersion)                                                                                                      \
    F(GetUniqueId)                                                                                                     \
    F(GetErrorString)                                                                                                  \
    F(CommInitRankConfig)                                                                                              \
    F(CommGetAsyncError)                                                                                               \
    F(CommFinalize)                                                                                                    \
    F(CommDestroy)                                                                                                     \
    F(CommAbort)                                                                                                       \
    F(GroupStart)                                                                                                      \
    F(GroupEnd)                                                                                                        \
    F(AllReduce)                                                                                                       \
    F(Reduce)                                                                                                          \
    F(Broadcast)

typedef struct nccl_library {
    void *handle;
#define MEMBER(name) __typeof__(nccl##name) *name;
    NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
} nccl_library;

struct fth_device_group {
    cuda_device *device;
    nccl_library nccl;
    int rank, size;
    cudaStream_t stream;
    cudaEvent_t given, done; /* what the device was given before; what was queued here */
    cudaEvent_t end;         /* of a wait */
    int *failed;             /* pinned; not 0: numbers are not to be used */
    pthread_mutex_t mutex;
    ncclComm_t communicator; /* guarded by mutex; NULL: aborted */
    char reason[256];        /* guarded by mutex */
};

/* ---- the library ---- */

static void unload(nccl_library *nccl)
{
    if (nccl->handle)
        dlclose(nccl->handle);
    *nccl = (nccl_library){0};
}

static fth_status load(nccl_library *nccl)
{
    fth_status status = FTH_OK;
    int version = 0;

    /* Its code stays when the handle is closed: GetUniqueId leaves a thread that serves the group's
     * first contact. */
    *nccl = (nccl_library){.handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};
    FTH_REQUIRE(nccl->handle, FTH_UNSUPPORTED,
                "NCCL cannot be used: %s; install it, or point LD_LIBRARY_PATH to libnccl.so.2", dlerror());
#define FIND(name)                                                                                                     \
    *(void **)&nccl->name = dlsym(nccl->handle, "nccl" #name);                                                         \
    FTH_REQUIRE(nccl->name, FTH_UNSUPPORTED,                                                                           \
                "NCCL cannot be used: libnccl.so.2 has no nccl" #name "; a newer one is "                              \
                "needed");
    NCCL_FUNCTIONS(FIND)
#undef FIND
    FTH_REQUIRE(nccl->GetVersion(&version) == ncclSuccess && version >= OLDEST_VERSION, FTH_UNSUPPORTED,
                "NCCL cannot be used: version %d is older than 2.14", version);
out:
    if (status != FTH_OK)
        unload(nccl);
    return status;
}

static fth_status identify(fth_device *device, char identity[FTH_DEVICE_IDENTITY_BYTES])
{
    nccl_library nccl;
    const unsigned char *uuid = (const unsigned char *)((cuda_device *)device)->properties.uuid.bytes;
    fth_status status = load(&nccl);
    if (status != FTH_OK)
        return status;
    unload(&nccl);
    for (size_t i = 0; i < sizeof(cudaUUID_t); i++)
        snprintf(identity + 2 * i, 3, "%02x", uuid[i]);
    return FTH_OK;
}

static fth_status make_id(fth_device *device, unsigned char id[FTH_DEVICE_GROUP_ID_BYTES])
{
    fth_status status = FTH_OK;
    nccl_library nccl;
    ncclUniqueId made;

    FTH_TRY(load(&nccl));
    cudaSetDevice(((cuda_device *)device)->index);
    ncclResult_t result = nccl.GetUniqueId(&made);
    FTH_REQUIRE(result == ncclSuccess, FTH_UNSUPPORTED, "NCCL cannot make a group: %s", nccl.GetErrorString(result));
    memcpy(id, &made, sizeof made);
out:
    unload(&nccl);
    return status;
}

/* ---- failing ---- */

static fth_status fail_lost(fth_device_group *group)
{
    char reason[sizeof group->reason];
    pthread_mutex_lock(&group->mutex);
    memcpy(reason, group->reason, sizeof reason);
    pthread_mutex_unlock(&group->mutex);
    return fth_fail(FTH_PEER_LOST, "%s", reason);
}

static void abort_group(fth_device_group *group, const char *reason)
{
    pthread_mutex_lock(&group->mutex);
    if (group->communicator) {
        snprintf(group->reason, sizeof group->reason, "%s", reason);
        __atomic_store_n(group->failed, 1, __ATOMIC_SEQ_CST); /* before the kernels end */
        cudaSetDevice(group->device->index);
        group->nccl.CommAbort(group->communicator);
        group->communicator = NULL;
    }
    pthread_mutex_unlock(&group->mutex);
}

/* What has become of the communicator's last call. */
static ncclResult_t ask(fth_device_group *group)
{
    ncclResult_t state = ncclInProgress;
    pthread_mutex_lock(&group->mutex);
    if (!group->communicator || group->nccl.CommGetAsyncError(group->communicator, &state) != ncclSuccess)
        state = ncclInternalError;
    pthread_mutex_unlock(&group->mutex);
    return state;
}

static fth_status fail_with(fth_device_group *group, ncclResult_t result, const char *what)
{
    char reason[sizeof group->reason];
    snprintf(reason, sizeof reason, "NCCL: %s failed: %s", what, group->nccl.GetErrorString(result));
    abort_group(group, reason); /* keeps the reason of an abort before */
    return fail_lost(group);
}

/* Waits until a call that returned `result` has been taken. */
static fth_status settle(fth_device_group *group, ncclResult_t result, const char *what, fth_deadline deadline)
{
    const double began_s = fth_clock_seconds();
    while (result == ncclInProgress) {
        if (fth_deadline_passed(deadline)) {
            abort_group(group, "NCCL: a member did not answer in time");
            return fth_fail(FTH_TIMEOUT, "NCCL: %s took longer than %.0f s", what, fth_clock_seconds() - began_s);
        }
        cuda_rest(began_s);
        result = ask(group);
    }
    return result == ncclSuccess ? FTH_OK : fail_with(group, result, what);
}

/* ---- opening and closing ---- */

static void close_group(fth_device_group *group)
{
    if (!group)
        return;
    cuda_device *cuda = group->device;
    const fth_deadline deadline = fth_deadline_in(CLOSE_TIMEOUT_S);
    cudaSetDevice(cuda->index);
    if (group->communicator && !cuda->lost && cuda_synchronize(&cuda->base, deadline) == FTH_OK) {
        pthread_mutex_lock(&group->mutex);
        ncclResult_t result = group->nccl.CommFinalize(group->communicator);
        pthread_mutex_unlock(&group->mutex);
        if (settle(group, result, "closing", deadline) == FTH_OK)
            group->nccl.CommDestroy(group->communicator);
    } else {
        abort_group(group, "closed");
    }
    cudaEvent_t events[] = {group->given, group->done, group->end};
    for (size_t i = 0; !cuda->lost && i < FTH_COUNT_OF(events); i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    if (!cuda->lost && group->stream)
        cudaStreamDestroy(group->stream);
    if (!cuda->lost && group->failed)
        cudaFreeHost(group->failed);
    pthread_mutex_destroy(&group->mutex);
    unload(&group->nccl);
    free(group);
}

static fth_status open_group(fth_device *device, const unsigned char id[FTH_DEVICE_GROUP_ID_BYTES], int rank, int size,
                             fth_deadline deadline, fth_device_group **result)
{
    fth_status status = FTH_OK;
    fth_device_group *group = NULL;
    void *memory = NULL;
    ncclUniqueId unique;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    FTH_TRY(fth_allocate(1, sizeof *group, &group));
    pthread_mutex_init(&group->mutex, NULL);
    group->device = (cuda_device *)device;
    group->rank = rank;
    group->size = size;
    FTH_TRY(load(&group->nccl));
    cudaSetDevice(group->device->index);
    CUDA_TRY(cudaStreamCreateWithFlags(&group->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&group->given, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&group->done, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&group->end, cudaEventDisableTiming));
    CUDA_TRY(cudaHostAlloc(&memory, sizeof *group->failed, cudaHostAllocDefault));
    group->failed = memory;
    *group->failed = 0;
    memcpy(&unique, id, sizeof unique);
    config.blocking = 0;
    ncclResult_t made = group->nccl.CommInitRankConfig(&group->communicator, size, unique, rank, &config);
    FTH_REQUIRE(group->communicator, FTH_UNSUPPORTED, "NCCL cannot make a group: %s", group->nccl.GetErrorString(made));
    FTH_TRY(settle(group, made, "connecting", deadline));
    *result = group;
    group = NULL;
out:
    close_group(group);
    return status;
}

/* ---- work ---- */

/* Whatever is queued next comes after what the device was given. The lock is held until
 * finish(). */
static fth_status begin(fth_device_group *group)
{
    fth_status status = FTH_OK;
    cudaSetDevice(group->device->index);
    CUDA_TRY(cudaEventRecord(group->given, group->device->launch.stream));
    CUDA_TRY(cudaStreamWaitEvent(group->stream, group->given, 0));
    pthread_mutex_lock(&group->mutex);
    if (group->communicator)
        return FTH_OK;
    pthread_mutex_unlock(&group->mutex);
    status = fail_lost(group);
out:
    return status;
}

static fth_status finish(fth_device_group *group, ncclResult_t result, const char *what)
{
    pthread_mutex_unlock(&group->mutex);
    return settle(group, result, what, fth_deadline_in(CALL_TIMEOUT_S));
}

static fth_status all_reduce(fth_device_group *group, float *values, size_t count)
{
    fth_status status = begin(group);
    if (status != FTH_OK)
        return status;
    return finish(
        group, group->nccl.AllReduce(values, values, count, ncclFloat32, ncclSum, group->communicator, group->stream),
        "all_reduce");
}

static fth_status sum(fth_device_group *group, double *values, size_t count)
{
    fth_status status = FTH_OK;
    FTH_TRY(begin(group));
    FTH_TRY(finish(
        group, group->nccl.AllReduce(values, values, count, ncclFloat64, ncclSum, group->communicator, group->stream),
        "sum"));
    CUDA_TRY(cuda_launch_group_guard(group->stream, group->failed, NULL, values));
out:
    return status;
}

/* Ranges of different lengths, each from or to its own member: NCCL makes one operation of them. */
static fth_status for_ranges(fth_device_group *group, float *values, const size_t *begins, bool reduces,
                             const char *what)
{
    fth_status status = begin(group);
    if (status != FTH_OK)
        return status;
    ncclResult_t failed = ncclSuccess;
    group->nccl.GroupStart();
    for (int r = 0; r < group->size; r++) {
        float *range = values + begins[r];
        const size_t count = begins[r + 1] - begins[r];
        ncclResult_t result =
            reduces
                ? group->nccl.Reduce(range, range, count, ncclFloat32, ncclSum, r, group->communicator, group->stream)
                : group->nccl.Broadcast(range, range, count, ncclFloat32, r, group->communicator, group->stream);
        if (result != ncclSuccess && result != ncclInProgress)
            failed = result;
    }
    ncclResult_t ended = group->nccl.GroupEnd();
    return finish(group, failed != ncclSuccess ? failed : ended, what);
}

static fth_status reduce_scatter(fth_device_group *group, float *values, const size_t *begins)
{
    return for_ranges(group, values, begins, true, "reduce_scatter");
}

static fth_status all_gather(fth_device_group *group, float *values, const size_t *begins)
{
    return for_ranges(group, values, begins, false, "all_gather");
}

static fth_status broadcast(fth_device_group *group, void *bytes, size_t size, int root)
{
    fth_status status = begin(group);
    if (status != FTH_OK)
        return status;
    return finish(group, group->nccl.Broadcast(bytes, bytes, size, ncclInt8, root, group->communicator, group->stream),
                  "broadcast");
}

static fth_status join(fth_device_group *group, float *loss)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = group->device;
    cudaSetDevice(cuda->index);
    CUDA_TRY(cudaEventRecord(group->done, group->stream));
    CUDA_TRY(cudaStreamWaitEvent(cuda->launch.stream, group->done, 0));
    if (loss)
        CUDA_TRY(cuda_launch_group_guard(cuda->launch.stream, group->failed, loss, NULL));
out:
    return status;
}

static fth_status wait_for_all(fth_device_group *group, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    cuda_device *cuda = group->device;
    const double began_s = fth_clock_seconds();

    FTH_REQUIRE(!cuda->lost, FTH_PEER_LOST, "%s is lost", cuda->properties.name);
    FTH_TRY(join(group, NULL));
    CUDA_TRY(cudaEventRecord(group->end, cuda->launch.stream));
    for (;;) {
        cudaError_t state = cudaEventQuery(group->end);
        if (state != cudaSuccess && state != cudaErrorNotReady) {
            status = cuda_lose(cuda, state);
            goto out;
        }
        ncclResult_t result = ask(group); /* also when it is done: the sums may be those of an abort */
        if (result != ncclSuccess && result != ncclInProgress) {
            status = fail_with(group, result, "an exchange");
            goto out;
        }
        if (state == cudaSuccess)
            goto out;
        if (fth_deadline_passed(deadline)) {
            abort_group(group, "NCCL: a member did not answer in time");
            status = fth_fail(FTH_TIMEOUT, "NCCL: an exchange took longer than %.0f s", fth_clock_seconds() - began_s);
            goto out;
        }
        cuda_rest(began_s);
    }
out:
    return status;
}

const fth_backend_collectives cuda_nccl = {
    .name = "nccl",
    .identify = identify,
    .make_id = make_id,
    .open = open_group,
    .close = close_group,
    .abort = abort_group,
    .all_reduce = all_reduce,
    .sum = sum,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .join = join,
    .wait = wait_for_all,
};
