/* Writing files atomically; see file.h. Writes go directly to a temporary beside the target. The
 * checksum is computed while writing, so that a manifest need not read the file back. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_internal.h"
#include "base/folder.h"
#include "base/hex.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/path.h"

enum { SHA256_BYTES = 32 };

/* How long a named pipe may have no reader, and how long one may read nothing. */
#define READER_PATIENCE_S  10.0
#define READING_PATIENCE_S 60.0

struct fth_file {
    char *path;
    char *temporary; /* NULL once published, and of a stream */
    int descriptor;  /* -1 once closed */
    bool stream;     /* a stream, which is not renamed */
    uint64_t size_bytes;
    EVP_MD_CTX *digest;
};

/* ---- errors ---- */

/* A missing file is the user's mistake, a failing disk is not. */
static fth_status status_for(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG: return FTH_INVALID;
    case ENOMEM: return FTH_NO_MEMORY;
    case ENOSPC:
    case EDQUOT: return FTH_NO_SPACE;
    default: return FTH_IO;
    }
}

fth_status fth_file_fail(const char *verb, const char *path, int error)
{
    return fth_fail(status_for(error), "%s %s: %s", verb, path, strerror(error));
}

static fth_status fail_write(const fth_file *file, size_t wanted_bytes, int error)
{
    if (error == ENOSPC || error == EDQUOT)
        return fth_fail(FTH_NO_SPACE,
                        "write %s: disk full after %" PRIu64 " bytes, with %zu more to write; free some space%s",
                        file->path, file->size_bytes, wanted_bytes, error == EDQUOT ? " or raise the quota" : "");
    if (error == EFBIG)
        return fth_fail(FTH_IO,
                        "write %s: larger than the file system or the limit (ulimit -f) allows, at %" PRIu64
                        " bytes with %zu more to write",
                        file->path, file->size_bytes, wanted_bytes);
    return fth_fail(FTH_IO, "write %s: %s", file->path, strerror(error));
}

/* ---- checksums ---- */

fth_status fth_file_begin_digest(EVP_MD_CTX **digest)
{
    *digest = EVP_MD_CTX_new();
    if (!*digest)
        return fth_fail(FTH_NO_MEMORY, "no memory for a checksum");
    if (!EVP_DigestInit_ex(*digest, EVP_sha256(), NULL))
        return fth_fail(FTH_UNSUPPORTED, "this OpenSSL has no SHA-256");
    return FTH_OK;
}

/* Finishes a copy, so that `digest` can go on. */
void fth_file_format_digest(const EVP_MD_CTX *digest, char hex[65])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    hex[0] = '\0';
    if (copy && EVP_MD_CTX_copy_ex(copy, digest) && EVP_DigestFinal_ex(copy, bytes, NULL))
        fth_hex_encode(bytes, SHA256_BYTES, hex);
    EVP_MD_CTX_free(copy);
}

/* ---- writing ---- */

static fth_status create_blank(const char *path, fth_file **file)
{
    fth_status status = FTH_OK;
    fth_file *fresh = NULL;
    FTH_TRY(fth_allocate(1, sizeof *fresh, &fresh));
    fresh->descriptor = -1;
    fresh->path = strdup(path);
    FTH_REQUIRE(fresh->path, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_file_begin_digest(&fresh->digest));
    *file = fresh;
    fresh = NULL;

out:
    fth_file_free(fresh);
    return status;
}

fth_status fth_file_create_output(const char *name, fth_file **file)
{
    fth_status status = FTH_OK;
    char *path = NULL;
    int descriptor = -1;

    *file = NULL;
    FTH_TRY(fth_output_open(name, READER_PATIENCE_S, &path, &descriptor));
    if (descriptor < 0) {
        FTH_TRY(fth_file_create(path, file));
    } else {
        FTH_TRY(create_blank(path, file));
        (*file)->stream = true;
        (*file)->descriptor = descriptor;
        descriptor = -1;
    }

out:
    if (descriptor >= 0)
        close(descriptor);
    free(path);
    return status;
}

/* The names: ".tmp-NAME-PID-" and these many hex digits. */
enum { TEMPORARY_DIGITS = 16, TEMPORARY_NAME_BYTES = 100 };

bool fth_file_is_temporary(const char *name)
{
    static const char hex[] = "0123456789abcdef";
    size_t length = strlen(name), begin = strlen(FTH_FILE_TEMPORARY);
    if (strncmp(name, FTH_FILE_TEMPORARY, begin) != 0 || length < begin + TEMPORARY_DIGITS)
        return false;
    const char *at = name + length - TEMPORARY_DIGITS;
    if (strspn(at, hex) != TEMPORARY_DIGITS || *--at != '-')
        return false;
    const char *process = at;
    while (process > name + begin && process[-1] >= '0' && process[-1] <= '9')
        process--;
    return process < at && process > name + begin && process[-1] == '-';
}

fth_status fth_file_open_temporary(const char *path, char **temporary, int *descriptor)
{
    fth_status status = FTH_OK;
    char *folder = fth_path_folder(path), *candidate = NULL;
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *name = slash ? slash + 1 : path;
    uint64_t suffix = 0;

    *temporary = NULL;
    *descriptor = -1;
    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    FTH_REQUIRE(*name != '\0', FTH_INVALID, "'%s' names a folder, not a file", path);

    /* Random names are tried until one is free; a collision is next to impossible. */
    for (int attempt = 0; *descriptor < 0; attempt++) {
        FTH_REQUIRE(getrandom(&suffix, sizeof suffix, 0) == (ssize_t)sizeof suffix, FTH_IO, "getrandom: %s",
                    strerror(errno));
        char *base = fth_format(FTH_FILE_TEMPORARY "%.*s-%ld-%0*" PRIx64, TEMPORARY_NAME_BYTES, name, (long)getpid(),
                                TEMPORARY_DIGITS, suffix);
        free(candidate);
        candidate = fth_path_join(folder, base);
        free(base);
        FTH_REQUIRE(candidate, FTH_NO_MEMORY, "no memory for a path");
        *descriptor = open(candidate, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (*descriptor < 0 && errno != EINTR && !(errno == EEXIST && attempt < 8)) {
            status = fth_file_fail("create", path, errno);
            goto out;
        }
    }
    *temporary = candidate;
    candidate = NULL;

out:
    free(candidate);
    free(folder);
    return status;
}

fth_status fth_file_create(const char *path, fth_file **file)
{
    fth_status status = FTH_OK;
    fth_file *fresh = NULL;

    *file = NULL;
    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(create_blank(path, &fresh));
    FTH_TRY(fth_file_open_temporary(path, &fresh->temporary, &fresh->descriptor));
    *file = fresh;
    fresh = NULL;

out:
    fth_file_free(fresh);
    return status;
}

fth_status fth_file_write(fth_file *file, const void *bytes, size_t size_bytes)
{
    const unsigned char *at = bytes;
    while (size_bytes > 0) {
        ssize_t written = write(file->descriptor, at, size_bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == EAGAIN && file->stream) {
            fth_status status = fth_output_wait(file->descriptor, file->path, READING_PATIENCE_S);
            if (status != FTH_OK)
                return status;
            continue;
        }
        if (written <= 0)
            return fail_write(file, size_bytes, written < 0 ? errno : ENOSPC);
        if (!EVP_DigestUpdate(file->digest, at, (size_t)written))
            return fth_fail(FTH_IO, "write %s: the checksum failed", file->path);
        at += written;
        size_bytes -= (size_t)written;
        file->size_bytes += (uint64_t)written;
    }
    return FTH_OK;
}

fth_status fth_file_sync(fth_file *file)
{
    int descriptor = file->descriptor;
    if (descriptor < 0)
        return FTH_OK;
    while (fsync(descriptor) != 0) {
        if (file->stream && (errno == EINVAL || errno == EROFS || errno == ENOTSUP))
            break; /* pipes and most devices keep nothing that could be synced */
        if (errno != EINTR)
            return fail_write(file, 0, errno);
    }
    file->descriptor = -1; /* gone after close(), whatever that returns */
    if (close(descriptor) != 0 && errno != EINTR)
        return fail_write(file, 0, errno);
    return FTH_OK;
}

/* The temporary has become the target: makes the folder's entry durable. */
static fth_status finish_publishing(fth_file *file)
{
    char *folder = fth_path_folder(file->path);
    free(file->temporary);
    file->temporary = NULL;
    fth_status status = fth_folder_sync(folder);
    free(folder);
    return status;
}

fth_status fth_file_publish(fth_file *file)
{
    fth_status status = FTH_OK;
    if (file->stream)
        return fth_file_sync(file);
    FTH_REQUIRE(file->temporary, FTH_INVALID, "%s was published before", file->path);
    FTH_TRY(fth_file_sync(file));
    if (rename(file->temporary, file->path) != 0) {
        status = fth_file_fail("replace", file->path, errno);
        goto out;
    }
    FTH_TRY(finish_publishing(file));

out:
    return status;
}

/* 0, or an error: EEXIST where the target exists. Over NFS the answer to a link() may get lost and
 * the repeated call find our own link; then the temporary has two names. */
static int link_new(const char *temporary, const char *path)
{
    struct stat facts;
    if (link(temporary, path) != 0) {
        int error = errno;
        if (error != EEXIST || stat(temporary, &facts) != 0 || facts.st_nlink != 2)
            return error;
    }
    unlink(temporary);
    return 0;
}

fth_status fth_file_publish_new(fth_file *file, bool *exists)
{
    fth_status status = FTH_OK;
    int error = 0;
    *exists = false;
    FTH_REQUIRE(file->temporary, FTH_INVALID, "%s was published before", file->path);
    FTH_TRY(fth_file_sync(file));
    if (renameat2(AT_FDCWD, file->temporary, AT_FDCWD, file->path, RENAME_NOREPLACE) != 0)
        error = errno;
    if (error == EINVAL || error == ENOSYS || error == ENOTSUP) /* NFS and older file systems */
        error = link_new(file->temporary, file->path);
    if (error == EEXIST) {
        *exists = true;
        goto out;
    }
    FTH_REQUIRE(error != EPERM && error != ENOTSUP && error != ENOSYS, FTH_UNSUPPORTED,
                "create %s: this file system cannot create a file only if it is absent", file->path);
    if (error != 0) {
        status = fth_file_fail("create", file->path, error);
        goto out;
    }
    FTH_TRY(finish_publishing(file));

out:
    return status;
}

void fth_file_free(fth_file *file)
{
    if (!file)
        return;
    if (file->descriptor >= 0)
        close(file->descriptor);
    if (file->temporary)
        unlink(file->temporary);
    EVP_MD_CTX_free(file->digest);
    free(file->temporary);
    free(file->path);
    free(file);
}

const char *fth_file_temporary(const fth_file *file)
{
    return file->temporary;
}

uint64_t fth_file_size_bytes(const fth_file *file)
{
    return file->size_bytes;
}

void fth_file_sha256(const fth_file *file, char hex[65])
{
    fth_file_format_digest(file->digest, hex);
}

/* Writes and publishes a file just made, and frees it. */
static fth_status write_whole(fth_file *file, const void *bytes, size_t size_bytes)
{
    fth_status status = fth_file_write(file, bytes, size_bytes);
    if (status == FTH_OK)
        status = fth_file_publish(file);
    fth_file_free(file);
    return status;
}

fth_status fth_file_write_all(const char *path, const void *bytes, size_t size_bytes)
{
    fth_file *file = NULL;
    fth_status status = fth_file_create(path, &file);
    return status == FTH_OK ? write_whole(file, bytes, size_bytes) : status;
}

fth_status fth_file_write_output(const char *name, const void *bytes, size_t size_bytes)
{
    fth_file *file = NULL;
    fth_status status = fth_file_create_output(name, &file);
    return status == FTH_OK ? write_whole(file, bytes, size_bytes) : status;
}
