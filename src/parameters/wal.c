/* See wal.h. */
#include "parameters/wal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC     0x334c5446u /* "FTL3" */
#define OLD_MAGIC 0x324c5446u /* "FTL2": all bodies followed their headers of 48 bytes */

typedef struct header {
    uint32_t magic, kind, flags;
    uint32_t generation; /* of the file, see below */
    int64_t version;
    double rate;
    uint64_t body_bytes, body_hash;
    uint64_t body_offset; /* of a blob in the other file; 0: the body follows */
    uint64_t hash;        /* of the members before it */
} header;
_Static_assert(sizeof(header) == 64, "the header is a format on disk");

enum { APART = 64 << 10, OLD_GENERATION_OFFSET = 40 };

/* Overwriting a file's pages is many times faster than adding new ones, so an old log is recycled
 * as the next one. The generation, the version that the log starts at, separates new records from
 * old. */
static const char *const suffixes[] = {".wal", ".data"}, *const recycled_names[] = {"log-recycled.tmp",
                                                                                    "log-recycled-data.tmp"};
enum { RECORDS, BLOBS, FILES };

struct fth_wal {
    char *folder, *path;
    int64_t begins; /* the version at which the file starts */
    uint32_t generation;
    int fd;
    uint64_t size_bytes;
    bool sync_always;
    size_t map_bytes;
    pthread_mutex_t mutex; /* guards `blobs`, which other threads take from */
    fth_wal_blobs *blobs;
    fth_wal_blobs **retired; /* of earlier logs, which may still have readers */
    size_t retired_count, retired_capacity;
};

static char *path_of(const char *folder, int64_t version, int file)
{
    char name[48];
    snprintf(name, sizeof name, "log-%012" PRId64 "%s", version, suffixes[file]);
    return fth_path_join(folder, name);
}

static int64_t version_of(const char *name, int file)
{
    int64_t version = -1;
    int length = 0;
    if (sscanf(name, "log-%" SCNd64 "%n", &version, &length) != 1 || length == 0 ||
        strcmp(name + length, suffixes[file]) != 0)
        return -1;
    return version;
}

static uint64_t hash_of(const header *h)
{
    return fth_wal_blob_hash(h, offsetof(header, hash));
}

/* ---- the files there are ---- */

static int ascending(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static fth_status list_logs(const char *folder, int file, int64_t **versions, size_t *count)
{
    fth_status status = FTH_OK;
    size_t capacity = 0;
    DIR *directory = opendir(folder);

    *versions = NULL;
    *count = 0;
    if (!directory)
        return errno == ENOENT ? FTH_OK : fth_fail(FTH_IO, "read %s: %s", folder, strerror(errno));
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        int64_t version = version_of(entry->d_name, file);
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
    for (int file = 0; file < FILES; file++) {
        int64_t *versions = NULL;
        size_t count = 0;
        if (list_logs(folder, file, &versions, &count) != FTH_OK)
            fth_log_warning("old logs stay: %s", fth_error_message());
        char *recycled = fth_path_join(folder, recycled_names[file]);
        for (size_t i = 0; i < count && versions[i] < version; i++) {
            char *path = path_of(folder, versions[i], file);
            if (rename(path, recycled) != 0 && errno != ENOENT)
                fth_log_warning("cannot put %s aside: %s", path, strerror(errno));
            free(path);
        }
        free(recycled);
        free(versions);
    }
}

/* ---- reading ---- */

static bool is_header(const char *bytes, size_t size, size_t at, uint32_t generation)
{
    header h;
    if (at > size || size - at < sizeof h)
        return false;
    memcpy(&h, bytes + at, sizeof h);
    return h.magic == MAGIC && h.hash == hash_of(&h) && h.generation == generation;
}

static bool is_old(const char *bytes, size_t size, uint32_t generation)
{
    uint32_t magic = 0, number = 0;
    if (size < OLD_GENERATION_OFFSET + sizeof number)
        return false;
    memcpy(&magic, bytes, sizeof magic);
    memcpy(&number, bytes + OLD_GENERATION_OFFSET, sizeof number);
    return magic == OLD_MAGIC && number == generation;
}

/* The files of one log, mapped. */
typedef struct mapped_log {
    const char *bytes[FILES];
    size_t size_bytes[FILES];
    const char *path;
} mapped_log;

/* The body of a record, or NULL if it is missing or damaged. *end is where the next record starts.
 * */
static const char *find_body(const mapped_log *log, const header *h, size_t at, size_t *end)
{
    bool apart = h->body_bytes >= APART;
    const int file = apart ? BLOBS : RECORDS;
    uint64_t offset = apart ? h->body_offset : at + sizeof *h;
    *end = at + sizeof *h + (apart ? 0 : (size_t)h->body_bytes);
    if (h->body_bytes == 0)
        return log->bytes[RECORDS];
    if (offset > log->size_bytes[file] || h->body_bytes > log->size_bytes[file] - offset)
        return NULL;
    const char *body = log->bytes[file] + offset;
    return fth_wal_blob_hash(body, h->body_bytes) == h->body_hash ? body : NULL;
}

/* Replays one log. `good`: where its last complete record and its last blob end. */
static fth_status replay_log(const mapped_log *log, uint32_t generation, const fth_wal_reader *reader,
                             uint64_t good[FILES])
{
    fth_status status = FTH_OK;
    const char *bytes = log->bytes[RECORDS];
    size_t size = log->size_bytes[RECORDS], end = 0;

    good[RECORDS] = good[BLOBS] = 0;
    FTH_REQUIRE(!is_old(bytes, size, generation), FTH_UNSUPPORTED,
                "%s was written by an older farthing: stop that version with SIGTERM, so that a checkpoint has all of "
                "it, and remove the log",
                log->path);
    for (size_t at = 0; is_header(bytes, size, at, generation); at = end) {
        header h;
        memcpy(&h, bytes + at, sizeof h);
        const char *body = find_body(log, &h, at, &end);
        if (!body) {
            FTH_REQUIRE(
                !is_header(bytes, size, end, generation), FTH_CORRUPT,
                "%s is damaged at byte %zu, before its end: the disk changed what was written. The records before "
                "are good; to continue from there, truncate the file at that byte",
                log->path, at);
            break;
        }
        int64_t version = reader->version(reader->context);
        FTH_REQUIRE(h.version == version, FTH_CORRUPT,
                    "%s: its record at byte %zu is for version %" PRId64 ", but the state is of version %" PRId64,
                    log->path, at, h.version, version);
        FTH_TRY(reader->replay(reader->context, &(fth_log_record){.kind = (fth_log_kind)h.kind,
                                                                  .flags = h.flags,
                                                                  .version = h.version,
                                                                  .rate = h.rate,
                                                                  .body = body,
                                                                  .body_bytes = h.body_bytes}));
        good[RECORDS] = end;
        if (h.body_bytes >= APART && h.body_offset + h.body_bytes > good[BLOBS])
            good[BLOBS] = h.body_offset + h.body_bytes;
    }

out:
    return status;
}

static fth_status replay_files(const char *folder, int64_t version, const fth_wal_reader *reader, uint64_t good[FILES])
{
    fth_status status = FTH_OK;
    char *paths[FILES] = {0};
    mapped_log log = {0};

    for (int file = 0; file < FILES; file++) {
        const void *mapped = NULL;
        paths[file] = path_of(folder, version, file);
        if (file == BLOBS && !fth_file_exists(paths[file]))
            continue;
        FTH_TRY(fth_file_map(paths[file], &mapped, &log.size_bytes[file]));
        log.bytes[file] = mapped;
    }
    log.path = paths[RECORDS];
    FTH_TRY(replay_log(&log, (uint32_t)version, reader, good));

out:
    for (int file = 0; file < FILES; file++) {
        if (log.bytes[file])
            fth_file_unmap(log.bytes[file], log.size_bytes[file]);
        free(paths[file]);
    }
    return status;
}

/* Renames the file of an old log to `path`, if there is one. */
static bool recycle(const fth_wal *wal, int file, const char *path)
{
    char *recycled = fth_path_join(wal->folder, recycled_names[file]);
    bool reused = !fth_file_exists(path) && rename(recycled, path) == 0;
    free(recycled);
    return reused;
}

/* The same for blobs. If they are of this process's log they are still mapped, and *blobs gets
 * them. A file with blobs in use is left alone. */
static fth_status recycle_blobs(fth_wal *wal, const char *path, fth_wal_blobs **blobs)
{
    fth_status status = FTH_OK;
    char *recycled = fth_path_join(wal->folder, recycled_names[BLOBS]);
    for (size_t i = 0; i < wal->retired_count && !*blobs;) {
        fth_wal_blobs *old = wal->retired[i];
        bool here = fth_wal_blobs_are_at(old, recycled), used = fth_wal_blobs_in_use(old);
        if (here && used)
            unlink(recycled);
        if (used || !(here || fth_wal_blobs_are_gone(old))) {
            i++;
            continue;
        }
        wal->retired[i] = wal->retired[--wal->retired_count];
        if (here && recycle(wal, BLOBS, path))
            *blobs = old;
        else
            fth_wal_blobs_unref(old);
    }
    if (*blobs)
        FTH_TRY(fth_wal_blobs_clear(*blobs, path));
    else
        recycle(wal, BLOBS, path);

out:
    free(recycled);
    return status;
}

static fth_status open_files(fth_wal *wal, int64_t version, const uint64_t used[FILES])
{
    fth_status status = FTH_OK;
    char *path = path_of(wal->folder, version, RECORDS), *blobs_path = path_of(wal->folder, version, BLOBS);
    fth_wal_blobs *blobs = NULL;
    int fd = -1;

    if (used[BLOBS] == 0)
        FTH_TRY(recycle_blobs(wal, blobs_path, &blobs));
    if (!blobs)
        FTH_TRY(fth_wal_blobs_open(blobs_path, used[BLOBS], wal->map_bytes, &blobs));
    bool reused = used[RECORDS] == 0 && recycle(wal, RECORDS, path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    FTH_REQUIRE(fd >= 0, FTH_IO, "open %s: %s", path, strerror(errno));
    FTH_REQUIRE((reused || ftruncate(fd, (off_t)used[RECORDS]) == 0) && lseek(fd, (off_t)used[RECORDS], SEEK_SET) >= 0,
                FTH_IO, "%s: %s", path, strerror(errno));
    FTH_TRY(fth_grow(&wal->retired, wal->retired_count, &wal->retired_capacity, sizeof(fth_wal_blobs *)));
    if (wal->sync_always) /* only a power failure can lose names */
        FTH_TRY(fth_folder_sync(wal->folder));
    if (wal->fd >= 0)
        close(wal->fd);
    free(wal->path);
    if (wal->blobs) /* a blob in them may not be logged yet */
        wal->retired[wal->retired_count++] = wal->blobs;
    pthread_mutex_lock(&wal->mutex);
    wal->blobs = blobs;
    pthread_mutex_unlock(&wal->mutex);
    wal->fd = fd;
    wal->path = path;
    wal->size_bytes = used[RECORDS];
    wal->begins = version;
    wal->generation = (uint32_t)version;
    blobs = NULL;
    fd = -1;
    path = NULL;

out:
    if (fd >= 0)
        close(fd);
    fth_wal_blobs_unref(blobs);
    free(path);
    free(blobs_path);
    return status;
}

fth_status fth_wal_open(const char *folder, bool sync_always, size_t map_bytes, const fth_wal_reader *reader,
                        fth_wal **result)
{
    fth_status status = FTH_OK;
    fth_wal *wal = NULL;
    const int64_t checkpoint = reader->version(reader->context);
    int64_t *versions = NULL, last = checkpoint;
    size_t count = 0;
    uint64_t good[FILES] = {0};

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *wal, &wal));
    pthread_mutex_init(&wal->mutex, NULL);
    wal->fd = -1;
    wal->sync_always = sync_always;
    wal->map_bytes = map_bytes;
    wal->folder = fth_format("%s", folder);
    FTH_TRY(fth_folder_create(folder));
    FTH_TRY(list_logs(folder, RECORDS, &versions, &count));
    for (size_t i = 0; i < count; i++) {
        if (versions[i] < checkpoint)
            continue;
        int64_t version = reader->version(reader->context);
        FTH_REQUIRE(versions[i] == version, FTH_CORRUPT,
                    "the log that starts at version %" PRId64 " follows one that ends at version %" PRId64
                    ": a checkpoint or log is missing from %s",
                    versions[i], version, folder);
        last = versions[i];
        FTH_TRY(replay_files(folder, last, reader, good));
    }
    FTH_TRY(open_files(wal, last, good));
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
    fth_wal_blobs_unref(wal->blobs);
    for (size_t i = 0; i < wal->retired_count; i++)
        fth_wal_blobs_unref(wal->retired[i]);
    free(wal->retired);
    for (int file = 0; wal->folder && file < FILES; file++) { /* of use only as the next log */
        char *recycled = fth_path_join(wal->folder, recycled_names[file]);
        unlink(recycled);
        free(recycled);
    }
    pthread_mutex_destroy(&wal->mutex);
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

bool fth_wal_reserve_blob(fth_wal *wal, uint64_t size_bytes, fth_wal_blob *blob)
{
    *blob = (fth_wal_blob){0};
    if (size_bytes < APART)
        return false;
    pthread_mutex_lock(&wal->mutex);
    fth_wal_blobs_take(wal->blobs, size_bytes, blob);
    pthread_mutex_unlock(&wal->mutex);
    if (!blob->bytes)
        fth_wal_blob_release(blob);
    return blob->bytes != NULL;
}

/* Writes a large body into this log: it has no blob, or one of a log that has ended. */
static fth_status write_blob(fth_wal *wal, const fth_log_record *record, fth_wal_blob *blob)
{
    float largest = 0;
    fth_wal_blobs_take(wal->blobs, record->body_bytes, blob);
    return fth_wal_blob_fill(blob, record->body, -1, &largest);
}

static bool sync_files(const fth_wal *wal, bool apart)
{
    return !wal->sync_always || ((!apart || fth_wal_blobs_sync(wal->blobs) == FTH_OK) && fdatasync(wal->fd) == 0);
}

/* Removes a record that was only partly written. */
static void cut_off(fth_wal *wal)
{
    header nothing = {0};
    if (pwrite(wal->fd, &nothing, sizeof nothing, (off_t)wal->size_bytes) != (ssize_t)sizeof nothing &&
        ftruncate(wal->fd, (off_t)wal->size_bytes) != 0)
        fth_log_error("%s: cannot cut off a record that was not written whole: %s", wal->path, strerror(errno));
    lseek(wal->fd, (off_t)wal->size_bytes, SEEK_SET);
}

fth_status fth_wal_append(fth_wal *wal, const fth_log_record *record)
{
    fth_status status = FTH_OK;
    bool apart = record->body_bytes >= APART, filled = record->blob && record->blob->file == wal->blobs;
    fth_wal_blob own = {0}, *blob = filled ? record->blob : &own;
    header h = {.magic = MAGIC,
                .kind = (uint32_t)record->kind,
                .flags = record->flags,
                .generation = wal->generation,
                .version = record->version,
                .rate = record->rate,
                .body_bytes = record->body_bytes};

    if (apart && !filled)
        FTH_TRY(write_blob(wal, record, blob));
    h.body_offset = apart ? blob->offset : 0;
    h.body_hash = apart ? blob->hash : fth_wal_blob_hash(record->body, record->body_bytes);
    h.hash = hash_of(&h);
    struct iovec parts[] = {{&h, sizeof h}, {(void *)(uintptr_t)record->body, (size_t)record->body_bytes}};
    bool follows = !apart && record->body_bytes > 0;
    if (!fth_write_parts(wal->fd, parts, follows ? 2 : 1) || !sync_files(wal, apart)) {
        status = fth_fail(FTH_IO, "write %s: %s", wal->path, strerror(errno));
        cut_off(wal);
        goto out;
    }
    wal->size_bytes += sizeof h + (follows ? record->body_bytes : 0);
    blob->kept = true;

out:
    fth_wal_blob_release(&own);
    return status;
}

fth_status fth_wal_rotate(fth_wal *wal, int64_t version)
{
    /* A process killed between this and its checkpoint leaves a file for `version`. It may hold
     * records that make no new version, of workers that came or left, and that are in no
     * checkpoint. */
    return version == wal->begins ? FTH_OK : open_files(wal, version, (uint64_t[FILES]){0});
}

uint64_t fth_wal_size_bytes(const fth_wal *wal)
{
    return wal->size_bytes + fth_wal_blobs_used_bytes(wal->blobs);
}

fth_status fth_wal_sync(fth_wal *wal)
{
    fth_status status = fth_wal_blobs_sync(wal->blobs);
    if (status == FTH_OK && fdatasync(wal->fd) != 0)
        status = fth_fail(FTH_IO, "sync %s: %s", wal->path, strerror(errno));
    return status;
}
