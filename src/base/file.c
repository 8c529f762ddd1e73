/* See file.h. Plain POSIX calls: writes go straight to a temporary beside the target, and the checksum is kept as the
 * bytes pass, so that a manifest never has to read back what was just written. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hex.h"
#include "base/memory.h"
#include "base/output.h"

enum { READ_CHUNK_BYTES = 1 << 16, SHA256_BYTES = 32 };

/* How long a named pipe may have no reader, and how long one may read nothing. */
#define READER_PATIENCE_S  10.0
#define READING_PATIENCE_S 60.0

struct fth_file {
    char *path;
    char *temporary; /* NULL once published, and of a stream */
    int descriptor;  /* -1 once closed */
    bool stream;     /* not a file to be renamed: what is written has arrived */
    uint64_t size_bytes;
    EVP_MD_CTX *digest;
};

/* ---- paths ---- */

char *fth_format(const char *format, ...)
{
    char *text;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return length < 0 ? NULL : text;
}

char *fth_path_join(const char *folder, const char *name)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    while (*name == '/')
        name++;
    if (length == 0)
        return fth_format("%s", name);
    bool root = length == 1 && folder[0] == '/';
    return fth_format("%.*s%s%s", (int)length, folder, root ? "" : "/", name);
}

/* The folder that holds `path`; "." for a bare name. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

/* ---- errors ---- */

/* A missing file is the user's to mend, a failing disk is not. */
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

static fth_status fail_path(const char *verb, const char *path, int error)
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

static fth_status create_digest(EVP_MD_CTX **digest)
{
    *digest = EVP_MD_CTX_new();
    if (!*digest)
        return fth_fail(FTH_NO_MEMORY, "no memory for a checksum");
    if (!EVP_DigestInit_ex(*digest, EVP_sha256(), NULL))
        return fth_fail(FTH_UNSUPPORTED, "this OpenSSL has no SHA-256");
    return FTH_OK;
}

/* Finishes a copy, so that `digest` can go on. Empty on failure, which no checksum equals. */
static void finish_copy(const EVP_MD_CTX *digest, char hex[65])
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
    FTH_TRY(create_digest(&fresh->digest));
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

fth_status fth_file_create(const char *path, fth_file **file)
{
    fth_status status = FTH_OK;
    fth_file *fresh = NULL;
    char *folder = folder_of(path);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    uint64_t suffix = 0;

    *file = NULL;
    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    FTH_REQUIRE(*name != '\0', FTH_INVALID, "'%s' names a folder, not a file", path);
    FTH_TRY(create_blank(path, &fresh));

    /* Names are drawn until one is free; a second draw is already next to impossible. */
    for (int attempt = 0; fresh->descriptor < 0; attempt++) {
        FTH_REQUIRE(getrandom(&suffix, sizeof suffix, 0) == (ssize_t)sizeof suffix, FTH_IO, "getrandom: %s",
                    strerror(errno));
        char *base = fth_format(FTH_FILE_TEMPORARY "%.100s-%ld-%016" PRIx64, name, (long)getpid(), suffix);
        FTH_REQUIRE(base, FTH_NO_MEMORY, "no memory for a path");
        char *temporary = fth_path_join(folder, base);
        free(base);
        FTH_REQUIRE(temporary, FTH_NO_MEMORY, "no memory for a path");
        fresh->descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fresh->descriptor >= 0) {
            fresh->temporary = temporary;
        } else {
            free(temporary);
            if (errno != EINTR && !(errno == EEXIST && attempt < 8)) {
                status = fail_path("create", path, errno);
                goto out;
            }
        }
    }
    *file = fresh;
    fresh = NULL;

out:
    free(folder);
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
    char *folder = folder_of(file->path);
    if (!folder)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
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
        status = fail_path("replace", file->path, errno);
        goto out;
    }
    FTH_TRY(finish_publishing(file));

out:
    return status;
}

/* 0, or an error: EEXIST where the target exists. Over NFS the answer to a link() may get lost and the repeated call
 * find our own link; then the temporary has two names. */
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
        status = fail_path("create", file->path, error);
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
    finish_copy(file->digest, hex);
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

/* ---- reading ---- */

/* Only regular files: a pipe could make the caller wait for ever, so opening one must not block either. */
static fth_status open_to_read(const char *path, int *descriptor, struct stat *facts)
{
    do {
        *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (*descriptor < 0 && errno == EINTR);
    if (*descriptor < 0)
        return fail_path("open", path, errno);
    if (fstat(*descriptor, facts) != 0)
        return fail_path("read", path, errno);
    if (S_ISDIR(facts->st_mode))
        return fail_path("read", path, EISDIR);
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
        return fail_path("read", path, errno);
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

    /* The size is a first guess: the file may grow meanwhile, and those in /proc claim to be empty. One byte beyond
     * the maximum is asked for, to notice what is too long; the last one is for the NUL. */
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
        status = fail_path("map", path, errno);
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
    FTH_TRY(create_digest(&digest));
    FTH_TRY(fth_allocate(1, READ_CHUNK_BYTES, &chunk));
    for (;;) {
        FTH_TRY(read_some(descriptor, path, chunk, READ_CHUNK_BYTES, &got));
        if (got == 0)
            break;
        size += got;
        FTH_REQUIRE(EVP_DigestUpdate(digest, chunk, got), FTH_IO, "read %s: the checksum failed", path);
    }
    finish_copy(digest, hex);
    if (size_bytes)
        *size_bytes = size;

out:
    free(chunk);
    EVP_MD_CTX_free(digest);
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

/* ---- files and folders ---- */

bool fth_file_exists(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && !S_ISDIR(facts.st_mode);
}

bool fth_folder_exists(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

/* Makes one folder and its entry in `parent` durable; the entries of files in it are of no use without. */
static fth_status create_one_folder(const char *path)
{
    if (mkdir(path, 0755) != 0) {
        int error = errno;
        if (fth_folder_exists(path))
            return FTH_OK; /* there before, or made by another process just now */
        if (error == EEXIST)
            return fth_fail(FTH_INVALID, "create folder %s: a file of that name is in the way", path);
        return fail_path("create folder", path, error);
    }
    char *parent = folder_of(path);
    if (!parent)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    fth_status status = fth_folder_sync(parent);
    free(parent);
    return status;
}

fth_status fth_folder_create(const char *path)
{
    fth_status status = FTH_OK;
    char *prefix = strdup(path);

    FTH_REQUIRE(prefix, FTH_NO_MEMORY, "no memory for a path");
    FTH_REQUIRE(*path != '\0', FTH_INVALID, "the name of a folder is empty");
    size_t length = strlen(prefix);
    while (length > 1 && prefix[length - 1] == '/')
        prefix[--length] = '\0';
    if (fth_folder_exists(prefix))
        goto out;
    for (char *at = prefix + 1; *at; at++) {
        if (*at != '/' || at[-1] == '/')
            continue;
        *at = '\0';
        status = fth_folder_exists(prefix) ? FTH_OK : create_one_folder(prefix);
        *at = '/';
        if (status != FTH_OK)
            goto out;
    }
    FTH_TRY(create_one_folder(prefix));

out:
    free(prefix);
    return status;
}

fth_status fth_folder_sync(const char *path)
{
    fth_status status = FTH_OK;
    int descriptor;
    do {
        descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0)
        return errno == EACCES ? FTH_OK
                               : fail_path("open folder", path, errno); /* writable yet unreadable: rare, legal */
    while (fsync(descriptor) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != EINVAL && errno != ENOTSUP && errno != EROFS) /* file systems that cannot sync a folder */
            status = fail_path("sync folder", path, errno);
        break;
    }
    close(descriptor);
    return status;
}

fth_status fth_folder_create_temporary(char **folder)
{
    const char *base = getenv("TMPDIR");
    char *path = fth_format("%s/farthing-XXXXXX", base && *base ? base : "/tmp");
    if (!path)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    if (!mkdtemp(path)) {
        fth_status status = fail_path("make", path, errno);
        free(path);
        return status;
    }
    *folder = path;
    return FTH_OK;
}

fth_status fth_cache_folder(char **folder)
{
    const char *own = getenv("FARTHING_CACHE"), *shared = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    if (own && *own)
        path = fth_format("%s", own);
    else if (shared && *shared)
        path = fth_path_join(shared, "farthing");
    else if (home && *home)
        path = fth_path_join(home, ".cache/farthing");
    else
        return fth_fail(FTH_INVALID, "there is no folder for downloads: set FARTHING_CACHE to one");
    fth_status status = fth_folder_create(path);
    if (status != FTH_OK) {
        free(path);
        return fth_fail_within(status, "the cache folder (FARTHING_CACHE sets another)");
    }
    *folder = path;
    return FTH_OK;
}
