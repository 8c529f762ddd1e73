/* See shared_memory.h. */
#include "collective/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_BYTES = 4096, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* The file behind memory, which can be replaced. */
typedef struct shared_file {
    int fd;
    uint64_t stamp;
} shared_file;

struct fth_shared_memory {
    char *mapped; /* the file: HEAD_BYTES, then the memory */
    size_t size_bytes;
    shared_file *file; /* NULL: another process's */
};

static fth_status map_file(int fd, size_t size_bytes, int protection, char **mapped)
{
    void *bytes = mmap(NULL, HEAD_BYTES + size_bytes, protection, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return fth_fail(FTH_NO_MEMORY, "cannot map %.1f MB of shared memory: %s", (double)size_bytes / 1e6,
                        strerror(errno));
    *mapped = bytes;
    return FTH_OK;
}

/* A new file, mapped; on failure there is neither. */
static fth_status make_file(size_t size, shared_file *file, char **mapped)
{
    fth_status status = FTH_OK;

    file->fd = memfd_create("farthing-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    FTH_REQUIRE(file->fd >= 0 && size < (size_t)INT64_MAX - HEAD_BYTES &&
                    ftruncate(file->fd, (off_t)(HEAD_BYTES + size)) == 0 && fcntl(file->fd, F_ADD_SEALS, SEALS) == 0,
                FTH_NO_MEMORY, "cannot make %.1f MB of shared memory: %s", (double)size / 1e6, strerror(errno));
    FTH_REQUIRE(getrandom(&file->stamp, sizeof file->stamp, 0) == sizeof file->stamp, FTH_IO, "no random numbers: %s",
                strerror(errno));
    FTH_TRY(map_file(file->fd, size, PROT_READ | PROT_WRITE, mapped));
    memcpy(*mapped, &file->stamp, sizeof file->stamp);

out:
    if (status != FTH_OK && file->fd >= 0)
        close(file->fd);
    return status;
}

fth_status fth_shared_memory_create(size_t size, fth_shared_memory **memory)
{
    fth_status status = FTH_OK;
    fth_shared_memory *made = NULL;
    shared_file file = {.fd = -1};

    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    FTH_TRY(fth_allocate(1, sizeof *made->file, &made->file));
    made->file->fd = -1;
    made->size_bytes = size;
    FTH_TRY(make_file(size, &file, &made->mapped));
    *made->file = file;
    *memory = made;
    made = NULL;

out:
    fth_shared_memory_free(made);
    return status;
}

fth_status fth_shared_memory_replace(const fth_shared_memory *memory, size_t from, size_t to)
{
    fth_status status = FTH_OK;
    shared_file file = {.fd = -1};
    char *mapped = NULL;
    size_t whole = HEAD_BYTES + memory->size_bytes;

    FTH_TRY(make_file(memory->size_bytes, &file, &mapped));
    memcpy(mapped + HEAD_BYTES, memory->mapped + HEAD_BYTES, from);
    memcpy(mapped + HEAD_BYTES + to, memory->mapped + HEAD_BYTES + to, memory->size_bytes - to);
    if (mremap(mapped, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, memory->mapped) == MAP_FAILED) {
        status = fth_fail(FTH_NO_MEMORY, "cannot replace %.1f MB of shared memory: %s", (double)whole / 1e6,
                          strerror(errno));
        munmap(mapped, whole);
        close(file.fd);
        goto out;
    }
    close(memory->file->fd);
    *memory->file = file;

out:
    return status;
}

void fth_shared_memory_free(fth_shared_memory *memory)
{
    if (!memory)
        return;
    if (memory->mapped)
        munmap(memory->mapped, HEAD_BYTES + memory->size_bytes);
    if (memory->file && memory->file->fd >= 0)
        close(memory->file->fd);
    free(memory->file);
    free(memory);
}

void *fth_shared_memory_get(const fth_shared_memory *memory)
{
    return memory->mapped + HEAD_BYTES;
}

size_t fth_shared_memory_size(const fth_shared_memory *memory)
{
    return memory->size_bytes;
}

void fth_shared_memory_describe(const fth_shared_memory *memory, char place[FTH_SHARED_PLACE])
{
    snprintf(place, FTH_SHARED_PLACE, "%ld %d %zu %" PRIu64, (long)getpid(), memory->file->fd, memory->size_bytes,
             memory->file->stamp);
}

/* True if the file is what fth_shared_memory_create() makes: whatever a description names, no other
 * file is mapped. */
static bool is_shared_memory(int fd, const char *path, size_t size_bytes)
{
    char target[64] = "";
    struct stat facts;
    return readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "/memfd:farthing-shared", 22) == 0 &&
           fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size == (off_t)(HEAD_BYTES + size_bytes) &&
           (fcntl(fd, F_GET_SEALS) & SEALS) == SEALS;
}

fth_status fth_shared_memory_attach(const char *place, bool writable, fth_shared_memory **memory)
{
    fth_status status = FTH_OK;
    fth_shared_memory *made = NULL;
    long process = 0;
    int number = -1, fd = -1, length = 0;
    size_t size = 0;
    uint64_t stamp = 0;
    char path[64];

    FTH_REQUIRE(sscanf(place, "%9ld %9d %18zu %20" SCNu64 "%n", &process, &number, &size, &stamp, &length) == 4 &&
                    !place[length] && process > 0 && number >= 0,
                FTH_CORRUPT, "not a description of shared memory: '%s'", place);
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->size_bytes = size;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", process, number);
    fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_CLOEXEC);
    FTH_REQUIRE(fd >= 0, FTH_UNSUPPORTED, "cannot open the memory of process %ld: %s", process, strerror(errno));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    FTH_REQUIRE(is_shared_memory(fd, path, size), FTH_UNSUPPORTED, "file %d of process %ld is not shared memory",
                number, process);
    FTH_TRY(map_file(fd, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, &made->mapped));
    FTH_REQUIRE(memcmp(made->mapped, &stamp, sizeof stamp) == 0, FTH_UNSUPPORTED,
                "file %d of process %ld is other shared memory than was described", number, process);
    *memory = made;
    made = NULL;

out:
    if (fd >= 0)
        close(fd);
    fth_shared_memory_free(made);
    return status;
}
