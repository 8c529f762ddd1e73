/* See store_internal.h: what large transfers of every kind share: threads, the meter, and parallel
 * ranges into a file.
 *
 *     stat -> temporary beside the target, of the object's size -> ranges, each into its place
 *         -> sync, rename
 *
 * A thread of its own has the disk begin with what is there, so that the sync at the end is short;
 * it may wait for a disk that is busy, and those that fetch go on.
 *
 * All ranges are of the version that stat saw, so that an object replaced meanwhile is noticed and
 * not mixed. The checksum of the whole runs over the ranges in order: a thread that has the next
 * one in line goes on with it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/process.h"
#include "store/store_internal.h"

enum {
    LEAST_THREADS = 4,
    MAX_THREADS = 16,
    GET_PIECE_BYTES = 8 << 20,
    STAGE_BYTES = 1 << 20, /* written at once: few calls and large folios, and still near the processor */
    MESSAGE_BYTES = 1024
};

static const double TELL_EVERY_S = 0.05;

/* ---- the meter ---- */

_Thread_local fth_store_meter *fth_store_watched;

void fth_store_meter_begin(fth_store_meter *meter, uint64_t total_bytes, const fth_store_progress *progress)
{
    *meter = (fth_store_meter){.progress = progress, .total_bytes = total_bytes};
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

/* ---- threads ---- */

typedef struct fth_team {
    uint64_t count;
    _Atomic uint64_t next;
    fth_status (*piece)(void *context, uint64_t i);
    void *context;
    _Atomic bool *cancelled;
    fth_store_switch *running; /* the caller's */
    pthread_mutex_t mutex;     /* guards what follows */
    fth_status status;
    char message[MESSAGE_BYTES];
} fth_team;

/* Clouds give bandwidth by processors, and one connection gets some 100 MB/s of it; on a small
 * machine more connections only get into each other's caches (8 against 4 on two processors: a
 * tenth slower). */
int fth_store_threads(void)
{
    int processors = fth_processors_online();
    return processors * 2 < LEAST_THREADS ? LEAST_THREADS : processors * 2 > MAX_THREADS ? MAX_THREADS : processors * 2;
}

static void *work(void *context)
{
    fth_team *team = context;
    fth_store_switch_use(team->running);
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
    fth_team team = {
        .count = count, .piece = piece, .context = context, .cancelled = cancelled, .running = fth_store_switch_used()};
    pthread_t others[MAX_THREADS];
    int started = 0;
    pthread_mutex_init(&team.mutex, NULL);
    for (; started < threads - 1 && started < MAX_THREADS && (uint64_t)started + 1 < count; started++)
        if (fth_thread_start(&others[started], "transfer", work, &team) != 0)
            break; /* fewer threads do as well, only later */
    work(&team);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    pthread_mutex_destroy(&team.mutex);
    return team.status == FTH_OK ? FTH_OK : fth_fail(team.status, "%s", team.message);
}

/* ---- a file from ranges ---- */

typedef struct fth_parallel_download {
    fth_store *store;
    const fth_store_fetch *fetch;
    uint64_t piece_bytes;
    bool whole_pieces; /* go through memory: a checksum over all wants each in its turn */
    uint64_t buffer_bytes;
    int descriptor;
    fth_store_meter meter;
    EVP_MD_CTX *digest;    /* over all pieces in order; NULL: nobody asked */
    pthread_mutex_t disk;  /* one writes at a time: more would spin in the kernel for the file's lock */
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t turn;
    char *buffers[MAX_THREADS + 1];
    int buffer_count;
    uint64_t *done; /* offsets of pieces, in the order in which they came */
    uint64_t done_count;
    bool all_done;
    uint64_t hashed;   /* pieces */
    fth_status broken; /* of the piece that failed first, with its message */
    char message[MESSAGE_BYTES];
} fth_parallel_download;

/* Pieces are hashed in order, so each waits for those before it, which are under way or done. */
static bool hash_in_turn(fth_parallel_download *download, uint64_t i, const void *bytes, size_t size_bytes)
{
    pthread_mutex_lock(&download->mutex);
    while (download->hashed != i && download->broken == FTH_OK)
        pthread_cond_wait(&download->turn, &download->mutex);
    bool broken = download->broken != FTH_OK;
    pthread_mutex_unlock(&download->mutex);
    if (broken)
        return false;
    EVP_DigestUpdate(download->digest, bytes, size_bytes);
    pthread_mutex_lock(&download->mutex);
    download->hashed++;
    pthread_cond_broadcast(&download->turn);
    pthread_mutex_unlock(&download->mutex);
    return true;
}

static void break_off(fth_parallel_download *download, fth_status status)
{
    pthread_mutex_lock(&download->mutex);
    if (download->broken == FTH_OK) {
        download->broken = status;
        snprintf(download->message, sizeof download->message, "%s", fth_error_message());
    }
    pthread_cond_broadcast(&download->turn);
    pthread_mutex_unlock(&download->mutex);
}

static fth_status write_at(fth_parallel_download *download, const char *bytes, size_t size_bytes, uint64_t offset)
{
    while (size_bytes > 0) {
        ssize_t written = pwrite(download->descriptor, bytes, size_bytes, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return fth_fail(FTH_IO, "write %s: %s", download->fetch->path, strerror(errno));
        bytes += written;
        size_bytes -= (size_t)written;
        offset += (uint64_t)written;
    }
    return FTH_OK;
}

/* Buffers go from piece to piece: fresh pages would cost more than the copy. */
static fth_status take_buffer(fth_parallel_download *download, char **buffer)
{
    *buffer = NULL;
    pthread_mutex_lock(&download->mutex);
    if (download->buffer_count > 0)
        *buffer = download->buffers[--download->buffer_count];
    pthread_mutex_unlock(&download->mutex);
    uint64_t room = download->fetch->object->size_bytes; /* small objects need no more */
    room = room < download->buffer_bytes ? room : download->buffer_bytes;
    return *buffer ? FTH_OK : fth_allocate_aligned((size_t)room, buffer);
}

static void give_buffer(fth_parallel_download *download, char *buffer)
{
    pthread_mutex_lock(&download->mutex);
    download->buffers[download->buffer_count++] = buffer; /* there are as many as threads */
    pthread_mutex_unlock(&download->mutex);
}

/* A piece on its way into the file. */
typedef struct fth_piece {
    fth_parallel_download *download;
    uint64_t i, offset;
    size_t size_bytes;
    char *buffer;
    uint64_t staged_at; /* of what is in the buffer and not yet in the file */
    size_t staged_bytes;
} fth_piece;

/* Bytes of a piece are hashed and written while the caches have them. */
static fth_status write_bytes(fth_piece *piece, uint64_t at, const void *bytes, size_t size_bytes)
{
    fth_status status = FTH_OK;
    fth_parallel_download *download = piece->download;
    const fth_store_fetch *fetch = download->fetch;
    if (fetch->piece)
        FTH_TRY(fetch->piece(fetch->context, piece->i, at, bytes, size_bytes));
    pthread_mutex_lock(&download->disk);
    status = write_at(download, bytes, size_bytes, piece->offset + at);
    pthread_mutex_unlock(&download->disk);

out:
    return status;
}

static fth_status write_staged(fth_piece *piece)
{
    size_t size_bytes = piece->staged_bytes;
    piece->staged_bytes = 0;
    return size_bytes ? write_bytes(piece, piece->staged_at, piece->buffer, size_bytes) : FTH_OK;
}

/* Some bytes have come, from libcurl no more than 16 KiB at a time. */
static fth_status stage_bytes(void *context, uint64_t at, const void *bytes, size_t size_bytes)
{
    fth_status status = FTH_OK;
    fth_piece *piece = context;
    if (at == 0) /* the first, or again after a failure */
        piece->staged_bytes = 0;
    if (piece->staged_bytes + size_bytes > piece->download->buffer_bytes)
        FTH_TRY(write_staged(piece));
    if (size_bytes > piece->download->buffer_bytes) {
        FTH_TRY(write_bytes(piece, at, bytes, size_bytes));
        goto out;
    }
    if (piece->staged_bytes == 0)
        piece->staged_at = at;
    memcpy(piece->buffer + piece->staged_bytes, bytes, size_bytes);
    piece->staged_bytes += size_bytes;

out:
    return status;
}

static fth_status fetch_as_it_comes(fth_piece *piece, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    const fth_store_fetch *fetch = piece->download->fetch;
    fth_store_sink sink = {.take = stage_bytes, .context = piece};
    FTH_TRY(fetch->range_to(piece->download->store, fetch->key, piece->offset, piece->size_bytes,
                            &fetch->object->version, deadline, &sink));
    FTH_TRY(write_staged(piece));

out:
    return status;
}

static fth_status fetch_whole(fth_piece *piece, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_parallel_download *download = piece->download;
    const fth_store_fetch *fetch = download->fetch;
    FTH_TRY(download->store->kind->get_range(download->store, fetch->key, piece->offset, piece->buffer,
                                             piece->size_bytes, &fetch->object->version, deadline));
    FTH_TRY(write_bytes(piece, 0, piece->buffer, piece->size_bytes));
    if (download->digest && !hash_in_turn(download, piece->i, piece->buffer, piece->size_bytes))
        status = FTH_INTERRUPTED; /* another piece failed and has left its message */

out:
    return status;
}

/* ---- to the disk meanwhile ---- */

static void note_landed(fth_parallel_download *download, const fth_piece *piece)
{
    pthread_mutex_lock(&download->mutex);
    download->done[download->done_count++] = piece->offset;
    pthread_cond_broadcast(&download->turn);
    pthread_mutex_unlock(&download->mutex);
}

/* A hint to the disk: failing does no harm. */
static void *begin_sync(void *context)
{
    fth_parallel_download *download = context;
    pthread_mutex_lock(&download->mutex);
    for (uint64_t next = 0;;) {
        while (next == download->done_count && !download->all_done)
            pthread_cond_wait(&download->turn, &download->mutex);
        if (download->all_done) /* what is left is for the sync at the end */
            break;
        uint64_t offset = download->done[next++];
        pthread_mutex_unlock(&download->mutex);
        sync_file_range(download->descriptor, (off_t)offset, (off_t)download->piece_bytes, SYNC_FILE_RANGE_WRITE);
        pthread_mutex_lock(&download->mutex);
    }
    pthread_mutex_unlock(&download->mutex);
    return NULL;
}

static fth_status fetch_piece(void *context, uint64_t i)
{
    fth_status status = FTH_OK;
    fth_parallel_download *download = context;
    const fth_store_fetch *fetch = download->fetch;
    fth_piece piece = {.download = download, .i = i, .offset = i * download->piece_bytes};
    uint64_t left_bytes = fetch->object->size_bytes - piece.offset;
    piece.size_bytes = (size_t)(left_bytes < download->piece_bytes ? left_bytes : download->piece_bytes);
    fth_deadline deadline = fth_store_large_deadline(download->store, piece.size_bytes, (fth_deadline){INFINITY});

    fth_store_meter *outer = fth_store_watched;
    fth_store_watched = &download->meter; /* counts what comes, and ends it when the caller says so */
    FTH_TRY(take_buffer(download, &piece.buffer));
    FTH_TRY(download->whole_pieces ? fetch_whole(&piece, deadline) : fetch_as_it_comes(&piece, deadline));
    note_landed(download, &piece);
    FTH_REQUIRE(fth_store_meter_add(&download->meter, 0), FTH_INTERRUPTED, "get %s: cancelled", fetch->key);

out:
    fth_store_watched = outer;
    if (piece.buffer)
        give_buffer(download, piece.buffer);
    if (status != FTH_OK)
        break_off(download, status);
    return status;
}

/* Takes the digest's hex digits to the caller, and compares them where there is something to
 * compare with. */
static fth_status check_digest(fth_parallel_download *download)
{
    const fth_store_fetch *fetch = download->fetch;
    unsigned char digest[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE + 1] = "";
    unsigned length = 0;
    EVP_DigestFinal_ex(download->digest, digest, &length);
    fth_hex_encode(digest, length, hex);
    bool md5 = length == 16;
    if (fetch->sha256)
        snprintf(fetch->sha256, 65, "%s", hex);
    if (!fetch->digest_expected || (md5 != (strcmp(fetch->digest_name, "MD5") == 0)) ||
        strcmp(hex, fetch->digest_expected) == 0)
        return FTH_OK;
    return fth_fail(FTH_CORRUPT, "get %s: what arrived is not what was stored (%s)", fetch->key, fetch->digest_name);
}

/* Opens a temporary of the object's size beside the target. */
static fth_status make_room(fth_parallel_download *download, const char *folder, char **temporary)
{
    const fth_store_fetch *fetch = download->fetch;
    uint64_t size_bytes = fetch->object->size_bytes;
    fth_status status = fth_file_open_temporary(fetch->path, temporary, &download->descriptor);
    if (status != FTH_OK)
        return status;
    /* Looked at rather than reserved: reserving writes zeros on some file systems. */
    struct statvfs room;
    if (fstatvfs(download->descriptor, &room) == 0 &&
        (double)room.f_bavail * (double)room.f_frsize < (double)size_bytes)
        return fth_fail(FTH_IO, "disk full: %s has no room for the %.1f MB of %s", folder, (double)size_bytes / 1e6,
                        fetch->key);
    if (ftruncate(download->descriptor, (off_t)size_bytes) != 0)
        return fth_fail(FTH_IO, "write %s: %s", *temporary, strerror(errno));
    return FTH_OK;
}

fth_status fth_store_fetch_file(fth_store *store, const fth_store_fetch *fetch)
{
    fth_status status = FTH_OK;
    char *temporary = NULL, *folder = fth_path_folder(fetch->path);
    fth_parallel_download download = {.store = store, .fetch = fetch, .descriptor = -1};
    uint64_t size_bytes = fetch->object->size_bytes;
    pthread_t syncer;

    pthread_mutex_init(&download.mutex, NULL);
    pthread_mutex_init(&download.disk, NULL);
    pthread_cond_init(&download.turn, NULL);
    download.piece_bytes = fetch->piece_bytes ? fetch->piece_bytes : GET_PIECE_BYTES;
    if (fetch->sha256 || fetch->digest_name) {
        const EVP_MD *kind = fetch->sha256 || strcmp(fetch->digest_name, "SHA256") == 0 ? EVP_sha256() : EVP_md5();
        download.digest = EVP_MD_CTX_new();
        FTH_REQUIRE(download.digest && EVP_DigestInit_ex(download.digest, kind, NULL), FTH_NO_MEMORY,
                    "no memory for a checksum");
    }
    download.whole_pieces = !fetch->range_to || download.digest;
    download.buffer_bytes = download.whole_pieces ? download.piece_bytes : STAGE_BYTES;
    uint64_t pieces = (size_bytes + download.piece_bytes - 1) / download.piece_bytes;
    FTH_TRY(fth_allocate((size_t)pieces + 1, sizeof *download.done, &download.done));
    FTH_TRY(make_room(&download, folder, &temporary));
    fth_store_meter_begin(&download.meter, size_bytes, fetch->progress);
    download.meter.running = fth_store_switch_used();
    bool syncing = pieces > 1 && fth_thread_start(&syncer, "sync-file", begin_sync, &download) == 0;
    status = fth_store_in_parallel(fth_store_threads(), pieces, fetch_piece, &download, &download.meter.cancelled);
    if (syncing) {
        pthread_mutex_lock(&download.mutex);
        download.all_done = true;
        pthread_cond_broadcast(&download.turn);
        pthread_mutex_unlock(&download.mutex);
        pthread_join(syncer, NULL);
    }
    if (status != FTH_OK) {
        status = fth_fail(download.broken, "%s", download.message);
        goto out;
    }
    if (download.digest)
        FTH_TRY(check_digest(&download));
    if (fetch->check)
        FTH_TRY(fetch->check(fetch->context));
    FTH_REQUIRE(fsync(download.descriptor) == 0, FTH_IO, "sync %s: %s", fetch->path, strerror(errno));
    FTH_REQUIRE(rename(temporary, fetch->path) == 0, FTH_IO, "rename %s to %s: %s", temporary, fetch->path,
                strerror(errno));
    free(temporary);
    temporary = NULL;
    FTH_TRY(fth_folder_sync(folder));

out:
    if (download.descriptor >= 0)
        close(download.descriptor);
    if (temporary)
        unlink(temporary);
    for (int i = 0; i < download.buffer_count; i++)
        free(download.buffers[i]);
    free(download.done);
    EVP_MD_CTX_free(download.digest);
    pthread_cond_destroy(&download.turn);
    pthread_mutex_destroy(&download.mutex);
    pthread_mutex_destroy(&download.disk);
    free(temporary);
    free(folder);
    return status;
}

fth_status fth_store_get_file_by_ranges(fth_store *store, const char *key, const char *path,
                                        const fth_store_progress *progress, char sha256[65])
{
    fth_status status = FTH_OK;
    fth_store_object object = {0};
    bool found = false;
    char *name = fth_store_describe(store, key);
    FTH_TRY(fth_store_stat(store, key, &object, &found));
    FTH_REQUIRE(found, FTH_INVALID, "%s: there is no such object", name);
    fth_store_fetch fetch = {.key = key, .path = path, .object = &object, .progress = progress, .sha256 = sha256};
    FTH_TRY(fth_store_fetch_file(store, &fetch));

out:
    fth_store_object_release(&object);
    free(name);
    return status;
}
