/* See log.h. */
#include "parameters/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC 0x324c5446u /* "FTL2" */

typedef struct header {
    uint32_t magic, kind, flags, body_crc;
    int64_t version;
    double rate;
    uint64_t body_bytes;
    uint32_t generation; /* the file's, see below */
    uint32_t crc;        /* of what stands before it */
} header;
_Static_assert(sizeof(header) == 48, "the header is a format on disk");

/* Writing over a file's pages is several times as fast as adding new ones. So an old log becomes the next one, and
 * what it held before is told from what it holds now by the generation: the version that the log begins at. */
#define RECYCLED "log-recycled.tmp"

struct fth_wal {
    char *folder, *path;
    int64_t begins; /* the version that the file begins at */
    uint32_t generation;
    int fd;
    uint64_t size_bytes;
    bool sync_always;
};

static char *path_of(const char *folder, int64_t version)
{
    char name[48];
    snprintf(name, sizeof name, "log-%012" PRId64 ".wal", version);
    return fth_path_join(folder, name);
}

static int64_t version_of(const char *name)
{
    int64_t version = -1;
    int length = 0;
    if (sscanf(name, "log-%" SCNd64 ".wal%n", &version, &length) != 1 || length == 0 || name[length])
        return -1;
    return version;
}

static uint32_t crc_of(const header *h)
{
    return libdeflate_crc32(0, h, offsetof(header, crc));
}

/* ---- the files there are ---- */

static int ascending(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static fth_status list_logs(const char *folder, int64_t **versions, size_t *count)
{
    fth_status status = FTH_OK;
    size_t capacity = 0;
    DIR *directory = opendir(folder);

    *versions = NULL;
    *count = 0;
    if (!directory)
        return errno == ENOENT ? FTH_OK : fth_fail(FTH_IO, "read %s: %s", folder, strerror(errno));
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        int64_t version = version_of(entry->d_name);
        if (version < 0)
            continue;
        FTH_TRY(fth_grow(versions, *count, &capacity, sizeof **versions));
        (*versions)[(*count)++] = version;
    }
    if (*count > 0)
        qsort(*versions, *count, sizeof **versions, ascending);

out:
    closedir(directory);
    return status;
}

void fth_wal_forget(const char *folder, int64_t version)
{
    int64_t *versions = NULL;
    size_t count = 0;
    if (list_logs(folder, &versions, &count) != FTH_OK)
        fth_log_warning("old logs stay: %s", fth_error_message());
    char *recycled = fth_path_join(folder, RECYCLED);
    for (size_t i = 0; i < count && versions[i] < version; i++) {
        char *path = path_of(folder, versions[i]);
        if (rename(path, recycled) != 0 && errno != ENOENT)
            fth_log_warning("cannot put %s aside: %s", path, strerror(errno));
        free(path);
    }
    free(recycled);
    free(versions);
}

/* ---- reading ---- */

static bool is_header(const char *bytes, size_t size, size_t at, uint32_t generation)
{
    header h;
    if (at > size || size - at < sizeof h)
        return false;
    memcpy(&h, bytes + at, sizeof h);
    return h.magic == MAGIC && h.crc == crc_of(&h) && h.generation == generation;
}

/* Replays one file. *good_bytes is where its last whole record ends. */
static fth_status replay_file(const char *path, uint32_t generation, const fth_wal_reader *reader, uint64_t *good_bytes)
{
    fth_status status = FTH_OK;
    const void *mapped = NULL;
    const char *bytes = NULL;
    size_t size = 0, at = 0;

    *good_bytes = 0;
    FTH_TRY(fth_file_map(path, &mapped, &size));
    bytes = mapped;
    while (size - at >= sizeof(header)) {
        header h;
        memcpy(&h, bytes + at, sizeof h);
        if (!is_header(bytes, size, at, generation) || h.body_bytes > size - at - sizeof h)
            break;
        const char *body = bytes + at + sizeof h;
        if (h.body_crc != libdeflate_crc32(0, body, (size_t)h.body_bytes)) {
            FTH_REQUIRE(
                !is_header(bytes, size, at + sizeof h + (size_t)h.body_bytes, generation), FTH_CORRUPT,
                "%s is damaged at byte %zu, before its end: the disk changed what was written. What came before "
                "is good; to go on from there, cut the file off at that byte",
                path, at);
            break;
        }
        int64_t version = reader->version(reader->context);
        FTH_REQUIRE(h.version == version, FTH_CORRUPT,
                    "%s: its record at byte %zu is for version %" PRId64 ", but the state is of version %" PRId64, path,
                    at, h.version, version);
        FTH_TRY(reader->replay(reader->context, &(fth_log_record){.kind = (fth_log_kind)h.kind,
                                                                  .flags = h.flags,
                                                                  .version = h.version,
                                                                  .rate = h.rate,
                                                                  .body = body,
                                                                  .body_bytes = h.body_bytes}));
        at += sizeof h + (size_t)h.body_bytes;
    }

out:
    *good_bytes = at;
    if (mapped)
        fth_file_unmap(mapped, size);
    return status;
}

static fth_status open_file(fth_wal *wal, int64_t version, uint64_t size_bytes)
{
    fth_status status = FTH_OK;
    char *path = path_of(wal->folder, version), *recycled = fth_path_join(wal->folder, RECYCLED);
    bool reused = size_bytes == 0 && !fth_file_exists(path) && rename(recycled, path) == 0;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

    FTH_REQUIRE(fd >= 0, FTH_IO, "open %s: %s", path, strerror(errno));
    FTH_REQUIRE((reused || ftruncate(fd, (off_t)size_bytes) == 0) && lseek(fd, (off_t)size_bytes, SEEK_SET) >= 0,
                FTH_IO, "%s: %s", path, strerror(errno));
    FTH_TRY(fth_folder_sync(wal->folder));
    if (wal->fd >= 0)
        close(wal->fd);
    free(wal->path);
    wal->fd = fd;
    wal->path = path;
    wal->size_bytes = size_bytes;
    wal->begins = version;
    wal->generation = (uint32_t)version;
    fd = -1;
    path = NULL;

out:
    if (fd >= 0)
        close(fd);
    free(path);
    free(recycled);
    return status;
}

fth_status fth_wal_open(const char *folder, bool sync_always, const fth_wal_reader *reader, fth_wal **result)
{
    fth_status status = FTH_OK;
    fth_wal *wal = NULL;
    const int64_t checkpoint = reader->version(reader->context);
    int64_t *versions = NULL, last = checkpoint;
    size_t count = 0;
    uint64_t good = 0;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *wal, &wal));
    wal->fd = -1;
    wal->sync_always = sync_always;
    wal->folder = fth_format("%s", folder);
    FTH_TRY(fth_folder_create(folder));
    FTH_TRY(list_logs(folder, &versions, &count));
    for (size_t i = 0; i < count; i++) {
        if (versions[i] < checkpoint)
            continue;
        char *path = path_of(folder, versions[i]);
        int64_t version = reader->version(reader->context);
        if (versions[i] != version) {
            status = fth_fail(FTH_CORRUPT,
                              "%s begins at version %" PRId64 ", but what is before it ends at version %" PRId64
                              ": a checkpoint or log is missing from %s",
                              path, versions[i], version, folder);
        } else {
            last = versions[i];
            status = replay_file(path, (uint32_t)versions[i], reader, &good);
        }
        free(path);
        if (status != FTH_OK)
            goto out;
    }
    FTH_TRY(open_file(wal, last, good));
    fth_wal_forget(folder, checkpoint);
    *result = wal;
    wal = NULL;

out:
    free(versions);
    fth_wal_free(wal);
    return status;
}

/* ---- writing ---- */

void fth_wal_free(fth_wal *wal)
{
    if (!wal)
        return;
    if (wal->fd >= 0)
        close(wal->fd);
    free(wal->folder);
    free(wal->path);
    free(wal);
}

bool fth_write_parts(int fd, struct iovec *parts, int count)
{
    while (count > 0) {
        ssize_t written = writev(fd, parts, count < IOV_MAX ? count : IOV_MAX);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        while (count > 0 && (size_t)written >= parts->iov_len) {
            written -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + written;
            parts->iov_len -= (size_t)written;
        }
    }
    return true;
}

fth_status fth_wal_append(fth_wal *wal, const fth_log_record *record)
{
    header h = {.magic = MAGIC,
                .kind = (uint32_t)record->kind,
                .flags = record->flags,
                .version = record->version,
                .rate = record->rate,
                .generation = wal->generation,
                .body_bytes = record->body_bytes,
                .body_crc = libdeflate_crc32(0, record->body, (size_t)record->body_bytes)};
    h.crc = crc_of(&h);
    struct iovec parts[] = {{&h, sizeof h}, {(void *)(uintptr_t)record->body, (size_t)record->body_bytes}};
    bool written = fth_write_parts(wal->fd, parts, record->body_bytes > 0 ? 2 : 1);
    if (written && wal->sync_always)
        written = fdatasync(wal->fd) == 0;
    if (written) {
        wal->size_bytes += sizeof h + record->body_bytes;
        return FTH_OK;
    }
    int error = errno;
    header nothing = {0};
    if (pwrite(wal->fd, &nothing, sizeof nothing, (off_t)wal->size_bytes) != (ssize_t)sizeof nothing &&
        ftruncate(wal->fd, (off_t)wal->size_bytes) != 0)
        fth_log_error("%s: cannot cut off a record that was not written whole: %s", wal->path, strerror(errno));
    lseek(wal->fd, (off_t)wal->size_bytes, SEEK_SET);
    return fth_fail(FTH_IO, "write %s: %s", wal->path, strerror(error));
}

fth_status fth_wal_rotate(fth_wal *wal, int64_t version)
{
    /* A process that was killed between this and its checkpoint has left a file for `version`, which may hold records
     * that make no new one: workers that came or left. They are in no checkpoint yet. */
    return version == wal->begins ? FTH_OK : open_file(wal, version, 0);
}

uint64_t fth_wal_size_bytes(const fth_wal *wal)
{
    return wal->size_bytes;
}

fth_status fth_wal_sync(fth_wal *wal)
{
    return fdatasync(wal->fd) == 0 ? FTH_OK : fth_fail(FTH_IO, "sync %s: %s", wal->path, strerror(errno));
}
