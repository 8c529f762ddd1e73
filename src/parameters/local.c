/* See local.h. */
#include "parameters/local.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool fth_local_parse(const char *text, fth_local_place *place)
{
    int length = 0, rest = 0;
    unsigned long long size = 0, stamp = 0;
    if (strspn(text, "0123456789 ") != strlen(text) ||
        sscanf(text, "%9ld %9d %18llu%n", &place->process, &place->fd, &size, &length) != 3 ||
        (text[length] && (sscanf(text + length, " %18llu%n", &stamp, &rest) != 1 || text[length + rest])))
        return false;
    place->size_bytes = size;
    place->stamp = stamp;
    return place->process > 0 && size > 0;
}

bool fth_local_is_loopback(const char *client)
{
    return strncmp(client, "127.", 4) == 0 || strcmp(client, "::1") == 0 || strncmp(client, "::ffff:127.", 11) == 0;
}

/* Whether the file is a memfd whose name starts with "farthing". */
static bool is_ours(int fd)
{
    char path[64], target[128] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "/memfd:farthing", 15) == 0;
}

uint64_t fth_local_stamp_offset(uint64_t size_bytes)
{
    return (size_bytes + 7) / 8 * 8;
}

/* Orders reads before and after the stamp: on arm64 a system call alone does not. */
static bool has_stamp(int fd, const fth_local_place *place)
{
    uint64_t stamp = 0;
    off_t at = (off_t)fth_local_stamp_offset(place->size_bytes);
    atomic_thread_fence(memory_order_acquire);
    bool same = place->stamp == 0 || (pread(fd, &stamp, sizeof stamp, at) == sizeof stamp && stamp == place->stamp);
    atomic_thread_fence(memory_order_acquire);
    return same;
}

fth_status fth_local_read(const fth_local_place *place, fth_status (*take)(void *context, int fd), void *context)
{
    fth_status status = FTH_OK;
    char path[64];
    struct stat facts;

    snprintf(path, sizeof path, "/proc/%ld/fd/%d", place->process, place->fd);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FTH_REQUIRE(fd >= 0, FTH_INVALID, "memory %d of process %ld cannot be opened: %s; send the body instead", place->fd,
                place->process, strerror(errno));
    /* Only memory made for this purpose: a request must not make the server read any other file. */
    FTH_REQUIRE(is_ours(fd), FTH_INVALID, "file %d of process %ld is not a memfd called farthing...", place->fd,
                place->process);
    FTH_REQUIRE(fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && (uint64_t)facts.st_size >= place->size_bytes,
                FTH_INVALID, "memory %d of process %ld is shorter than %llu bytes", place->fd, place->process,
                (unsigned long long)place->size_bytes);
    bool same = has_stamp(fd, place);
    if (same)
        FTH_TRY(take(context, fd));
    FTH_REQUIRE(same && has_stamp(fd, place), FTH_INVALID, "memory %d of process %ld changed while it was read",
                place->fd, place->process);

out:
    if (fd >= 0)
        close(fd);
    return status;
}

/* ---- the server's memory ---- */

enum { PAGE = 4096, STAMP_STRIDE = 64 };

uint64_t fth_region_stamp(int slot)
{
    return (uint64_t)slot * STAMP_STRIDE;
}

uint64_t fth_region_offset(const fth_region *region, int slot)
{
    return PAGE + (uint64_t)slot * region->slot_bytes;
}

fth_status fth_region_create(uint64_t packed_bytes, fth_region *region)
{
    fth_status status = FTH_OK;
    *region = (fth_region){.fd = -1, .newest = -1, .version = -1};
    region->slot_bytes = fth_align_up((size_t)packed_bytes, PAGE);
    region->size_bytes = PAGE + FTH_REGION_SLOTS * region->slot_bytes;
    region->fd = memfd_create("farthing-parameters", MFD_CLOEXEC);
    FTH_REQUIRE(region->fd >= 0 && ftruncate(region->fd, (off_t)region->size_bytes) == 0, FTH_NO_MEMORY,
                "no shared memory for workers of this machine: %s", strerror(errno));
    void *bytes = mmap(NULL, region->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
    FTH_REQUIRE(bytes != MAP_FAILED, FTH_NO_MEMORY, "no shared memory for workers of this machine: %s",
                strerror(errno));
    region->bytes = bytes;

out:
    if (status != FTH_OK)
        fth_region_release(region);
    return status;
}

void fth_region_release(fth_region *region)
{
    if (region->bytes)
        munmap(region->bytes, region->size_bytes);
    if (region->fd >= 0)
        close(region->fd);
    *region = (fth_region){.fd = -1, .newest = -1, .version = -1};
}

static _Atomic uint64_t *stamp_of(const fth_region *region, int slot)
{
    return (_Atomic uint64_t *)(void *)(region->bytes + fth_region_stamp(slot));
}

float *fth_region_begin(fth_region *region, int *slot)
{
    *slot = (region->newest + 1) % FTH_REGION_SLOTS;
    atomic_store_explicit(stamp_of(region, *slot), 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* readers see the 0 before any new number */
    return (float *)(void *)(region->bytes + fth_region_offset(region, *slot));
}

void fth_region_finish(fth_region *region, int slot, int64_t version)
{
    atomic_store_explicit(stamp_of(region, slot), (uint64_t)version + 1, memory_order_release);
    region->newest = slot;
    region->version = version;
}

/* ---- a worker's view of it ---- */

void fth_local_view_release(fth_local_view *view)
{
    if (view->stamps) {
        munmap((void *)(uintptr_t)view->stamps, PAGE);
        close(view->fd);
    }
    *view = (fth_local_view){0};
}

static bool open_view(fth_local_view *view, const char *path)
{
    struct stat facts;
    fth_local_view_release(view);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = is_ours(fd) && fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size >= PAGE;
    void *stamps = good ? mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (stamps == MAP_FAILED) {
        close(fd);
        return false;
    }
    view->stamps = stamps;
    view->fd = fd;
    view->size_bytes = (uint64_t)facts.st_size;
    snprintf(view->path, sizeof view->path, "%s", path);
    return true;
}

/* Reads instead of mapping, so that the server's memory does not count as this process's. */
static bool read_view(const fth_local_view *view, uint64_t offset, uint64_t size_bytes, char *to)
{
    while (size_bytes > 0) {
        ssize_t got = pread(view->fd, to, (size_t)size_bytes, (off_t)offset);
        if (got <= 0)
            return false;
        to += got;
        offset += (uint64_t)got;
        size_bytes -= (uint64_t)got;
    }
    return true;
}

fth_local_result fth_local_copy(fth_local_view *view, const char *answer, uint64_t size_bytes, void *to,
                                int64_t *version)
{
    fth_local_result result = FTH_LOCAL_ELSEWHERE;
    json_t *json = json_loads(answer, 0, NULL);
    const char *path = NULL;
    json_int_t number = 0, stamp = 0, offset = 0, size = 0;

    if (json_unpack(json, "{s:I, s:s, s:I, s:I, s:I}", "version", &number, "path", &path, "stamp", &stamp, "offset",
                    &offset, "size_bytes", &size) != 0 ||
        strncmp(path, "/proc/", 6) != 0 || strlen(path) >= sizeof view->path || (uint64_t)size != size_bytes)
        goto out;
    if (strcmp(path, view->path) != 0 && !open_view(view, path))
        goto out;
    uint64_t end = view->size_bytes;
    if (stamp < 0 || stamp % 8 != 0 || stamp > PAGE - 8 || offset < 0 || (uint64_t)offset > end ||
        size_bytes > end - (uint64_t)offset)
        goto out;
    const _Atomic uint64_t *mark = (const _Atomic uint64_t *)(const void *)(view->stamps + stamp);
    uint64_t expected = (uint64_t)number + 1;
    result = FTH_LOCAL_AGAIN;
    if (atomic_load_explicit(mark, memory_order_acquire) != expected)
        goto out;
    if (!read_view(view, (uint64_t)offset, size_bytes, to))
        goto out;
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(mark, memory_order_relaxed) != expected)
        goto out;
    *version = number;
    result = FTH_LOCAL_COPIED;

out:
    json_decref(json);
    return result;
}
