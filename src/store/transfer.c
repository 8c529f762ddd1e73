/* See store_internal.h: what large transfers of every kind share: threads, the meter, and parallel ranges into a file.
 *
 *     stat -> temporary beside the target, of the object's size -> ranges, each into its place -> sync, rename
 *
 * All ranges are of the version that stat saw, so that an object replaced meanwhile is noticed and not mixed. The
 * checksum of the whole runs over the ranges in order: a thread that has the next one in line goes on with it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store_internal.h"

enum { GET_THREADS = 6, GET_PIECE_BYTES = 8 << 20, MAX_THREADS = 16, MESSAGE_BYTES = 1024 };

static const double TELL_EVERY_S = 0.05;

/* ---- the meter ---- */

void fth_store_meter_begin(fth_store_meter *meter, uint64_t total_bytes, const fth_store_progress *progress)
{
    *meter = (fth_store_meter){.progress = progress, .total_bytes = total_bytes, .begun_at_s = fth_clock_seconds()};
    pthread_mutex_init(&meter->mutex, NULL);
}

bool fth_store_meter_add(fth_store_meter *meter, int64_t bytes)
{
    uint64_t done = atomic_fetch_add(&meter->done_bytes, (uint64_t)bytes) + (uint64_t)bytes;
    if (!meter->progress || !meter->progress->moved)
        return !atomic_load(&meter->cancelled);
    if (pthread_mutex_trylock(&meter->mutex) != 0)
        return !atomic_load(&meter->cancelled);
    double now_s = fth_clock_seconds();
    if (now_s - meter->told_at_s >= TELL_EVERY_S || done == meter->total_bytes) {
        meter->told_at_s = now_s;
        if (!meter->progress->moved(meter->progress->context, done, meter->total_bytes)) {
            atomic_store(&meter->interrupted, true);
            atomic_store(&meter->cancelled, true);
        }
    }
    pthread_mutex_unlock(&meter->mutex);
    return !atomic_load(&meter->cancelled);
}

void fth_store_meter_end(fth_store_meter *meter, fth_store *store)
{
    double seconds = fth_clock_seconds() - meter->begun_at_s;
    if (seconds <= 0 || meter->total_bytes == 0)
        return;
    pthread_mutex_lock(&store->mutex);
    store->rate_bytes_per_s = (double)meter->total_bytes / seconds;
    pthread_mutex_unlock(&store->mutex);
}

/* ---- threads ---- */

typedef struct fth_team {
    uint64_t count;
    _Atomic uint64_t next;
    fth_status (*piece)(void *context, uint64_t i);
    void *context;
    _Atomic bool *cancelled;
    pthread_mutex_t mutex; /* guards what follows */
    fth_status status;
    char message[MESSAGE_BYTES];
} fth_team;

static void *work(void *context)
{
    fth_team *team = context;
    for (;;) {
        uint64_t i = atomic_fetch_add(&team->next, 1);
        if (i >= team->count)
            return NULL;
        fth_status status = team->piece(team->context, i);
        if (status == FTH_OK)
            continue;
        pthread_mutex_lock(&team->mutex);
        if (team->status == FTH_OK) {
            team->status = status;
            snprintf(team->message, sizeof team->message, "%s", fth_error_message());
        }
        pthread_mutex_unlock(&team->mutex);
        atomic_store(&team->next, team->count);
        if (team->cancelled)
            atomic_store(team->cancelled, true);
        return NULL;
    }
}

fth_status fth_store_in_parallel(int threads, uint64_t count, fth_status (*piece)(void *context, uint64_t i),
                                 void *context, _Atomic bool *cancelled)
{
    fth_team team = {.count = count, .piece = piece, .context = context, .cancelled = cancelled};
    pthread_t others[MAX_THREADS];
    int started = 0;
    pthread_mutex_init(&team.mutex, NULL);
    for (; started < threads - 1 && started < MAX_THREADS && (uint64_t)started + 1 < count; started++)
        if (pthread_create(&others[started], NULL, work, &team) != 0)
            break; /* fewer threads do as well, only later */
    work(&team);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    pthread_mutex_destroy(&team.mutex);
    return team.status == FTH_OK ? FTH_OK : fth_fail(team.status, "%s", team.message);
}

/* ---- a file from ranges ---- */

typedef struct fth_fetch {
    fth_store *store;
    const char *key, *path;
    const fth_store_object *object;
    int descriptor;
    fth_store_meter meter;
    EVP_MD_CTX *digest; /* NULL: nobody asked */
    pthread_mutex_t mutex;
    pthread_cond_t turn;
    uint64_t hashed;   /* pieces */
    fth_status broken; /* of the piece that failed first, with its message */
    char message[MESSAGE_BYTES];
} fth_fetch;

/* Pieces are hashed in order, so each waits for those before it, which are under way or done. */
static bool hash_in_turn(fth_fetch *fetch, uint64_t i, const void *bytes, size_t size_bytes)
{
    pthread_mutex_lock(&fetch->mutex);
    while (fetch->hashed != i && !fetch->broken)
        pthread_cond_wait(&fetch->turn, &fetch->mutex);
    bool broken = fetch->broken != FTH_OK;
    pthread_mutex_unlock(&fetch->mutex);
    if (broken)
        return false;
    EVP_DigestUpdate(fetch->digest, bytes, size_bytes);
    pthread_mutex_lock(&fetch->mutex);
    fetch->hashed++;
    pthread_cond_broadcast(&fetch->turn);
    pthread_mutex_unlock(&fetch->mutex);
    return true;
}

static void break_off(fth_fetch *fetch, fth_status status)
{
    pthread_mutex_lock(&fetch->mutex);
    if (fetch->broken == FTH_OK) {
        fetch->broken = status;
        snprintf(fetch->message, sizeof fetch->message, "%s", fth_error_message());
    }
    pthread_cond_broadcast(&fetch->turn);
    pthread_mutex_unlock(&fetch->mutex);
}

static fth_status write_at(fth_fetch *fetch, const char *bytes, size_t size_bytes, uint64_t offset)
{
    while (size_bytes > 0) {
        ssize_t written = pwrite(fetch->descriptor, bytes, size_bytes, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return fth_fail(FTH_IO, "write %s: %s", fetch->path, strerror(errno));
        bytes += written;
        size_bytes -= (size_t)written;
        offset += (uint64_t)written;
    }
    return FTH_OK;
}

static fth_status fetch_piece(void *context, uint64_t i)
{
    fth_status status = FTH_OK;
    fth_fetch *fetch = context;
    uint64_t offset = i * GET_PIECE_BYTES;
    uint64_t left_bytes = fetch->object->size_bytes - offset;
    size_t size_bytes = left_bytes < GET_PIECE_BYTES ? (size_t)left_bytes : GET_PIECE_BYTES;
    void *bytes = NULL;

    FTH_TRY(fth_allocate_aligned(size_bytes, &bytes));
    FTH_TRY(fetch->store->kind->get_range(fetch->store, fetch->key, offset, bytes, size_bytes, &fetch->object->version,
                                          fth_store_deadline(fetch->store)));
    FTH_TRY(write_at(fetch, bytes, size_bytes, offset));
    FTH_REQUIRE(fth_store_meter_add(&fetch->meter, (int64_t)size_bytes), FTH_INTERRUPTED, "get %s: cancelled",
                fetch->key);
    if (fetch->digest && !hash_in_turn(fetch, i, bytes, size_bytes))
        status = FTH_INTERRUPTED; /* another piece failed and has left its message */

out:
    free(bytes);
    if (status != FTH_OK)
        break_off(fetch, status);
    return status;
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
}

fth_status fth_store_get_file_by_ranges(fth_store *store, const char *key, const char *path,
                                        const fth_store_progress *progress, char sha256[65])
{
    fth_status status = FTH_OK;
    fth_store_object object = {0};
    bool found = false;
    char *temporary = NULL, *name = fth_store_describe(store, key), *folder = folder_of(path);
    unsigned char digest[EVP_MAX_MD_SIZE];
    fth_fetch fetch = {.store = store, .key = key, .path = path, .object = &object, .descriptor = -1};

    pthread_mutex_init(&fetch.mutex, NULL);
    pthread_cond_init(&fetch.turn, NULL);
    FTH_TRY(fth_store_stat(store, key, &object, &found));
    FTH_REQUIRE(found, FTH_INVALID, "%s: there is no such object", name);
    if (sha256) {
        fetch.digest = EVP_MD_CTX_new();
        FTH_REQUIRE(fetch.digest && EVP_DigestInit_ex(fetch.digest, EVP_sha256(), NULL), FTH_NO_MEMORY,
                    "no memory for a checksum");
    }
    temporary = fth_format("%s/.tmp-XXXXXX", folder);
    fetch.descriptor = mkostemp(temporary, O_CLOEXEC);
    if (fetch.descriptor < 0) {
        status = fth_fail(FTH_IO, "create a file in %s: %s", folder, strerror(errno));
        free(temporary);
        temporary = NULL;
        goto out;
    }
    fchmod(fetch.descriptor, 0644);
    int error = object.size_bytes > 0 ? posix_fallocate(fetch.descriptor, 0, (off_t)object.size_bytes) : 0;
    FTH_REQUIRE(error == 0, FTH_IO, "make room for the %.1f MB of %s in %s: %s", (double)object.size_bytes / 1e6, name,
                folder, strerror(error));
    fth_store_meter_begin(&fetch.meter, object.size_bytes, progress);
    uint64_t pieces = (object.size_bytes + GET_PIECE_BYTES - 1) / GET_PIECE_BYTES;
    if (fth_store_in_parallel(GET_THREADS, pieces, fetch_piece, &fetch, &fetch.meter.cancelled) != FTH_OK) {
        status = fth_fail(fetch.broken, "%s", fetch.message);
        goto out;
    }
    fth_store_meter_end(&fetch.meter, store);
    if (sha256) {
        unsigned length = 0;
        EVP_DigestFinal_ex(fetch.digest, digest, &length);
        for (unsigned i = 0; i < length; i++)
            snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
    }
    FTH_REQUIRE(fsync(fetch.descriptor) == 0, FTH_IO, "sync %s: %s", path, strerror(errno));
    FTH_REQUIRE(rename(temporary, path) == 0, FTH_IO, "rename %s to %s: %s", temporary, path, strerror(errno));
    free(temporary);
    temporary = NULL;
    FTH_TRY(fth_folder_sync(folder));

out:
    if (fetch.descriptor >= 0)
        close(fetch.descriptor);
    if (temporary)
        unlink(temporary);
    EVP_MD_CTX_free(fetch.digest);
    pthread_cond_destroy(&fetch.turn);
    pthread_mutex_destroy(&fetch.mutex);
    fth_store_object_release(&object);
    free(temporary);
    free(folder);
    free(name);
    return status;
}
