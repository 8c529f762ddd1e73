/* See mapping.h. */
#include "batches/memory/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static fth_status map_file(bool writable, fth_mapping *mapping)
{
    void *bytes =
        mmap(NULL, mapping->size_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, mapping->fd, 0);
    if (bytes == MAP_FAILED)
        return fth_fail(FTH_NO_MEMORY, "cannot map %.1f MB of shared memory: %s", (double)mapping->size_bytes / 1e6,
                        strerror(errno));
    mapping->bytes = bytes;
    return FTH_OK;
}

fth_status fth_mapping_create(const char *name, uint64_t size_bytes, fth_mapping *mapping)
{
    fth_status status = FTH_OK;
    *mapping = (fth_mapping){.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), .size_bytes = size_bytes};
    FTH_REQUIRE(mapping->fd >= 0 && size_bytes <= INT64_MAX && ftruncate(mapping->fd, (off_t)size_bytes) == 0 &&
                    fcntl(mapping->fd, F_ADD_SEALS, SEALS) == 0,
                FTH_NO_MEMORY, "cannot make %.1f MB of shared memory: %s", (double)size_bytes / 1e6, strerror(errno));
    FTH_TRY(map_file(true, mapping));
out:
    if (status != FTH_OK)
        fth_mapping_close(mapping);
    return status;
}

fth_status fth_mapping_reopen(int fd, bool writable, int *reopened)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    *reopened = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (*reopened < 0)
        return fth_fail(FTH_IO, "cannot open shared memory again: %s", strerror(errno));
    return FTH_OK;
}

fth_status fth_mapping_open(int fd, bool writable, uint64_t least_bytes, fth_mapping *mapping)
{
    fth_status status = FTH_OK;
    struct stat facts;
    *mapping = (fth_mapping){.fd = -1};
    int seals = fcntl(fd, F_GET_SEALS);
    FTH_REQUIRE(seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &facts) == 0 && facts.st_size > 0 &&
                    (uint64_t)facts.st_size >= least_bytes,
                FTH_CORRUPT, "not shared memory of the batch cache");
    if (writable && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
        FTH_TRY(fth_mapping_reopen(fd, writable, &mapping->fd));
    else
        FTH_REQUIRE((mapping->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0, FTH_IO, "cannot open shared memory again: %s",
                    strerror(errno));
    mapping->size_bytes = (uint64_t)facts.st_size;
    FTH_TRY(map_file(writable, mapping));
out:
    if (status != FTH_OK)
        fth_mapping_close(mapping);
    return status;
}

void fth_mapping_close(fth_mapping *mapping)
{
    if (mapping->bytes)
        munmap(mapping->bytes, mapping->size_bytes);
    if (mapping->fd >= 0)
        close(mapping->fd);
    *mapping = (fth_mapping){.fd = -1};
}
