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

struct fth_shared_memory {
    char *file; /* the mapped file: HEAD_BYTES, then the memory */
    size_t size_bytes;
    uint64_t stamp;
    int fd; /* -1: another process's memory */
};

static fth_status map_file(fth_shared_memory *memory, int fd, int protection)
{
    void *file = mmap(NULL, HEAD_BYTES + memory->size_bytes, protection, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return fth_fail(FTH_NO_MEMORY, "cannot map %.1f MB of shared memory: %s", (double)memory->size_bytes / 1e6,
                        strerror(errno));
    memory->file = file;
    return FTH_OK;
}

fth_status fth_shared_memory_create(size_t size, fth_shared_memory **memory)
{
    fth_status status = FTH_OK;
    fth_shared_memory *made = NULL;

    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    *made = (fth_shared_memory){.size_bytes = size, .fd = -1};
    made->fd = memfd_create("farthing-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    FTH_REQUIRE(made->fd >= 0 && size < (size_t)INT64_MAX - HEAD_BYTES &&
                    ftruncate(made->fd, (off_t)(HEAD_BYTES + size)) == 0 && fcntl(made->fd, F_ADD_SEALS, SEALS) == 0,
                FTH_NO_MEMORY, "cannot make %.1f MB of shared memory: %s", (double)size / 1e6, strerror(errno));
    FTH_REQUIRE(getrandom(&made->stamp, sizeof made->stamp, 0) == sizeof made->stamp, FTH_IO, "no random numbers: %s",
                strerror(errno));
    FTH_TRY(map_file(made, made->fd, PROT_READ | PROT_WRITE));
    memcpy(made->file, &made->stamp, sizeof made->stamp);
    *memory = made;
    made = NULL;

out:
    fth_shared_memory_free(made);
    return status;
}

void fth_shared_memory_free(fth_shared_memory *memory)
{
    if (!memory)
        return;
    if (memory->file)
        munmap(memory->file, HEAD_BYTES + memory->size_bytes);
    if (memory->fd >= 0)
        close(memory->fd);
    free(memory);
}

void *fth_shared_memory_get(const fth_shared_memory *memory)
{
    return memory->file + HEAD_BYTES;
}

size_t fth_shared_memory_size(const fth_shared_memory *memory)
{
    return memory->size_bytes;
}

void fth_shared_memory_describe(const fth_shared_memory *memory, char place[FTH_SHARED_PLACE])
{
    snprintf(place, FTH_SHARED_PLACE, "%ld %d %zu %" PRIu64, (long)getpid(), memory->fd, memory->size_bytes,
             memory->stamp);
}

/* True if the file is what fth_shared_memory_create() makes: whatever a description names, no other file is mapped. */
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
    *made = (fth_shared_memory){.size_bytes = size, .stamp = stamp, .fd = -1};
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", process, number);
    fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_CLOEXEC);
    FTH_REQUIRE(fd >= 0, FTH_UNSUPPORTED, "cannot open the memory of process %ld: %s", process, strerror(errno));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    FTH_REQUIRE(is_shared_memory(fd, path, size), FTH_UNSUPPORTED, "file %d of process %ld is not shared memory",
                number, process);
    FTH_TRY(map_file(made, fd, writable ? PROT_READ | PROT_WRITE : PROT_READ));
    FTH_REQUIRE(memcmp(made->file, &stamp, sizeof stamp) == 0, FTH_UNSUPPORTED,
                "file %d of process %ld is other shared memory than was described", number, process);
    *memory = made;
    made = NULL;

out:
    if (fd >= 0)
        close(fd);
    fth_shared_memory_free(made);
    return status;
}
