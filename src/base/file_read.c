/* Reading whole files: into memory, mapped, or for their checksum. See file.h. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_internal.h"
#include "base/memory.h"

enum { READ_CHUNK_BYTES = 1 << 16 };

bool fth_file_exists(const char *path)
{
    struct stat facts;
    return path && stat(path, &facts) == 0 && !S_ISDIR(facts.st_mode);
}

/* Only regular files: a pipe could make the caller wait for ever, so opening one must not block
 * either. */
static fth_status open_to_read(const char *path, int *descriptor, struct stat *facts)
{
    if (!path)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    do {
        *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (*descriptor < 0 && errno == EINTR);
    if (*descriptor < 0)
        return fth_file_fail("open", path, errno);
    if (fstat(*descriptor, facts) != 0)
        return fth_file_fail("read", path, errno);
    if (S_ISDIR(facts->st_mode))
        return fth_file_fail("read", path, EISDIR);
    if (!S_ISREG(facts->st_mode))
        return fth_fail(FTH_INVALID, "read %s: not a regular file", path);
    return FTH_OK;
}

/* read() until something comes; 0 at the end. */
static fth_status read_some(int descriptor, const char *path, void *bytes, size_t room, size_t *got)
{
    ssize_t count;
    do {
        count = read(descriptor, bytes, room);
    } while (count < 0 && errno == EINTR);
    if (count < 0)
        return fth_file_fail("read", path, errno);
    *got = (size_t)count;
    return FTH_OK;
}

fth_status fth_file_read_all(const char *path, size_t max_bytes, char **bytes, size_t *size_bytes)
{
    fth_status status = FTH_OK;
    int descriptor = -1;
    struct stat facts;
    char *content = NULL;
    size_t size = 0, capacity, got = 0;

    *bytes = NULL;
    *size_bytes = 0;
    if (max_bytes > SIZE_MAX / 4)
        max_bytes = SIZE_MAX / 4; /* so that doubling below cannot overflow */
    FTH_TRY(open_to_read(path, &descriptor, &facts));
    FTH_REQUIRE((uintmax_t)facts.st_size <= max_bytes, FTH_INVALID, "read %s: %jd bytes, but at most %zu are accepted",
                path, (intmax_t)facts.st_size, max_bytes);

    /* The size is a first guess: the file may grow meanwhile, and those in /proc claim to be empty.
     * One byte beyond the maximum is asked for, to notice what is too long; the last one is for the
     * NUL. */
    capacity = (size_t)facts.st_size + 2;
    content = malloc(capacity);
    FTH_REQUIRE(content, FTH_NO_MEMORY, "read %s: no memory for %zu bytes", path, capacity);
    for (;;) {
        if (size + 1 == capacity) {
            size_t wanted = capacity < READ_CHUNK_BYTES ? READ_CHUNK_BYTES : capacity * 2;
            if (wanted > max_bytes + 2)
                wanted = max_bytes + 2;
            char *larger = wanted > capacity ? realloc(content, wanted) : NULL;
            FTH_REQUIRE(larger, FTH_NO_MEMORY, "read %s: no memory for %zu bytes", path, wanted);
            content = larger;
            capacity = wanted;
        }
        FTH_TRY(read_some(descriptor, path, content + size, capacity - 1 - size, &got));
        if (got == 0)
            break;
        size += got;
        FTH_REQUIRE(size <= max_bytes, FTH_INVALID, "read %s: more than the %zu bytes that are accepted", path,
                    max_bytes);
    }
    content[size] = '\0';
    *bytes = content;
    *size_bytes = size;
    content = NULL;

out:
    free(content);
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

fth_status fth_file_map(const char *path, const void **bytes, size_t *size_bytes)
{
    fth_status status = FTH_OK;
    int descriptor = -1;
    struct stat facts;

    *bytes = NULL;
    *size_bytes = 0;
    FTH_TRY(open_to_read(path, &descriptor, &facts));
    if (facts.st_size == 0)
        goto out;
    FTH_REQUIRE((uintmax_t)facts.st_size <= SIZE_MAX, FTH_UNSUPPORTED, "map %s: too large for this machine", path);
    void *mapping = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapping == MAP_FAILED) {
        status = fth_file_fail("map", path, errno);
        goto out;
    }
    *bytes = mapping;
    *size_bytes = (size_t)facts.st_size;

out:
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

void fth_file_unmap(const void *bytes, size_t size_bytes)
{
    if (bytes)
        munmap((void *)(uintptr_t)bytes, size_bytes);
}

fth_status fth_file_sha256_of(const char *path, char hex[65], uint64_t *size_bytes)
{
    fth_status status = FTH_OK;
    int descriptor = -1;
    struct stat facts;
    EVP_MD_CTX *digest = NULL;
    unsigned char *chunk = NULL;
    uint64_t size = 0;
    size_t got = 0;

    FTH_TRY(open_to_read(path, &descriptor, &facts));
    FTH_TRY(fth_file_begin_digest(&digest));
    FTH_TRY(fth_allocate(1, READ_CHUNK_BYTES, &chunk));
    for (;;) {
        FTH_TRY(read_some(descriptor, path, chunk, READ_CHUNK_BYTES, &got));
        if (got == 0)
            break;
        size += got;
        FTH_REQUIRE(EVP_DigestUpdate(digest, chunk, got), FTH_IO, "read %s: the checksum failed", path);
    }
    fth_file_format_digest(digest, hex);
    if (size_bytes)
        *size_bytes = size;

out:
    free(chunk);
    EVP_MD_CTX_free(digest);
    if (descriptor >= 0)
        close(descriptor);
    return status;
}
