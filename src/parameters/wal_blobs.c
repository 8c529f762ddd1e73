/* See wal_blobs.h. */
#include "parameters/wal_blobs.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "parameters/gradient.h"

/* PIECE is small enough that a copied piece is still in the cache when it is checked. */
enum { PIECE = 256 << 10, MAX_THREADS = 4, MAX_FREE = 64, ALIGNMENT = 64 };

typedef struct extent {
    uint64_t offset, size_bytes;
} extent;

struct fth_wal_blobs {
    atomic_int references;
    int fd;
    char *path, *map;
    size_t map_bytes;
    pthread_mutex_t mutex; /* guards what follows */
    uint64_t end;          /* of the taken part */
    uint64_t warm_until;   /* this process has written the file up to here */
    extent free[MAX_FREE]; /* free places before `end`; those that do not fit here stay unused until the next log */
    int free_count;
};

fth_status fth_wal_blobs_open(const char *path, uint64_t used_bytes, size_t map_bytes, fth_wal_blobs **result)
{
    fth_status status = FTH_OK;
    fth_wal_blobs *blobs = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *blobs, &blobs));
    pthread_mutex_init(&blobs->mutex, NULL);
    blobs->references = 1;
    blobs->end = fth_align_up((size_t)used_bytes, ALIGNMENT);
    blobs->path = fth_format("%s", path);
    blobs->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    FTH_REQUIRE(blobs->fd >= 0, FTH_IO, "open %s: %s", path, strerror(errno));
    void *map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, blobs->fd, 0);
    FTH_REQUIRE(map != MAP_FAILED, FTH_NO_MEMORY, "map %s: %s", path, strerror(errno));
    blobs->map = map;
    blobs->map_bytes = map_bytes;
    *result = blobs;
    blobs = NULL;

out:
    fth_wal_blobs_unref(blobs);
    return status;
}

void fth_wal_blobs_unref(fth_wal_blobs *blobs)
{
    if (!blobs || atomic_fetch_sub(&blobs->references, 1) > 1)
        return;
    if (blobs->map)
        munmap(blobs->map, blobs->map_bytes);
    if (blobs->fd >= 0)
        close(blobs->fd);
    pthread_mutex_destroy(&blobs->mutex);
    free(blobs->path);
    free(blobs);
}

bool fth_wal_blobs_in_use(const fth_wal_blobs *blobs)
{
    return atomic_load(&((fth_wal_blobs *)(uintptr_t)blobs)->references) > 1;
}

bool fth_wal_blobs_are_at(const fth_wal_blobs *blobs, const char *path)
{
    struct stat mine, theirs;
    return fstat(blobs->fd, &mine) == 0 && stat(path, &theirs) == 0 && mine.st_ino == theirs.st_ino &&
           mine.st_dev == theirs.st_dev;
}

bool fth_wal_blobs_are_gone(const fth_wal_blobs *blobs)
{
    struct stat facts;
    return fstat(blobs->fd, &facts) != 0 || facts.st_nlink == 0;
}

fth_status fth_wal_blobs_clear(fth_wal_blobs *blobs, const char *path)
{
    char *copy = fth_format("%s", path);
    if (!copy)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    free(blobs->path);
    blobs->path = copy;
    blobs->end = 0;
    blobs->free_count = 0;
    return FTH_OK;
}

uint64_t fth_wal_blobs_used_bytes(fth_wal_blobs *blobs)
{
    pthread_mutex_lock(&blobs->mutex);
    uint64_t end = blobs->end;
    pthread_mutex_unlock(&blobs->mutex);
    return end;
}

fth_status fth_wal_blobs_sync(fth_wal_blobs *blobs)
{
    return fdatasync(blobs->fd) == 0 ? FTH_OK : fth_fail(FTH_IO, "sync %s: %s", blobs->path, strerror(errno));
}

/* ---- places ---- */

/* Takes the first free place that is large enough; the rest of it stays free. With the mutex held.
 * */
static bool take_free(fth_wal_blobs *blobs, uint64_t size_bytes, uint64_t *offset)
{
    for (int i = 0; i < blobs->free_count; i++) {
        extent *e = &blobs->free[i];
        if (e->size_bytes < size_bytes)
            continue;
        *offset = e->offset;
        e->offset += size_bytes;
        e->size_bytes -= size_bytes;
        if (e->size_bytes == 0)
            *e = blobs->free[--blobs->free_count];
        return true;
    }
    return false;
}

void fth_wal_blobs_take(fth_wal_blobs *blobs, uint64_t size_bytes, fth_wal_blob *blob)
{
    uint64_t room = fth_align_up((size_t)size_bytes, ALIGNMENT);
    *blob = (fth_wal_blob){.file = blobs, .size_bytes = size_bytes};
    atomic_fetch_add(&blobs->references, 1);
    pthread_mutex_lock(&blobs->mutex);
    if (!take_free(blobs, room, &blob->offset)) {
        blob->offset = blobs->end;
        blobs->end += room;
    }
    pthread_mutex_unlock(&blobs->mutex);
    if (blob->offset + size_bytes <= blobs->map_bytes)
        blob->bytes = blobs->map + blob->offset;
}

/* Frees a place. If it is the end of the taken part, that shrinks, also by free places before it.
 * */
static void give_back(fth_wal_blobs *blobs, extent freed)
{
    for (bool found = true; found && freed.offset + freed.size_bytes == blobs->end;) {
        blobs->end = freed.offset;
        freed.size_bytes = 0;
        found = false;
        for (int i = 0; i < blobs->free_count && !found; i++) {
            if (blobs->free[i].offset + blobs->free[i].size_bytes == blobs->end) {
                freed = blobs->free[i];
                blobs->free[i] = blobs->free[--blobs->free_count];
                found = true;
            }
        }
    }
    if (freed.size_bytes > 0 && blobs->free_count < MAX_FREE)
        blobs->free[blobs->free_count++] = freed;
}

void fth_wal_blob_release(fth_wal_blob *blob)
{
    fth_wal_blobs *blobs = blob->file;
    if (!blobs)
        return;
    if (!blob->kept) {
        pthread_mutex_lock(&blobs->mutex);
        give_back(blobs, (extent){blob->offset, fth_align_up((size_t)blob->size_bytes, ALIGNMENT)});
        pthread_mutex_unlock(&blobs->mutex);
    }
    *blob = (fth_wal_blob){0};
    fth_wal_blobs_unref(blobs);
}

/* ---- filling ---- */

static uint64_t piece_count(uint64_t size_bytes)
{
    return (size_bytes + PIECE - 1) / PIECE;
}

static size_t piece_length(uint64_t index, uint64_t size_bytes)
{
    uint64_t left = size_bytes - index * PIECE;
    return left < PIECE ? (size_t)left : PIECE;
}

/* Pieces are hashed separately, by several threads; their hashes are then combined in order. */
static uint64_t join_hashes(uint64_t so_far, uint64_t piece)
{
    return fth_random_mix(so_far ^ piece);
}

uint64_t fth_wal_blob_hash(const void *bytes, uint64_t size_bytes)
{
    uint64_t hash = size_bytes;
    for (uint64_t i = 0; i < piece_count(size_bytes); i++)
        hash = join_hashes(hash, fth_hash((const char *)bytes + i * PIECE, piece_length(i, size_bytes), 0));
    return hash;
}

/* Touching mapped pages that were never written is slow, and cannot report a full disk. So a place
 * is written through the file first, and through memory from then on ("warm"). */
static bool is_warm(const fth_wal_blob *blob)
{
    fth_wal_blobs *blobs = blob->file;
    pthread_mutex_lock(&blobs->mutex);
    bool warm = blob->bytes && blob->offset + blob->size_bytes <= blobs->warm_until;
    pthread_mutex_unlock(&blobs->mutex);
    return warm;
}

static void note_warm(const fth_wal_blob *blob)
{
    fth_wal_blobs *blobs = blob->file;
    uint64_t end = blob->offset + fth_align_up((size_t)blob->size_bytes, ALIGNMENT);
    pthread_mutex_lock(&blobs->mutex);
    if (blob->offset <= blobs->warm_until && end > blobs->warm_until)
        blobs->warm_until = end;
    pthread_mutex_unlock(&blobs->mutex);
}

/* Returns 0 or an errno. */
static int write_piece(const fth_wal_blob *blob, uint64_t at, const char *from, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t written = pwrite(blob->file->fd, from, size_bytes, (off_t)(blob->offset + at));
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? errno : EIO;
        from += written;
        at += (uint64_t)written;
        size_bytes -= (size_t)written;
    }
    return 0;
}

/* Extends the file to the end of the place. Otherwise a longer blob in the same place would be
 * written through memory past the end of the file, and lost with the process. Returns 0 or an
 * errno. */
static int write_padding(const fth_wal_blob *blob)
{
    static const char zeros[ALIGNMENT];
    return write_piece(blob, blob->size_bytes, zeros,
                       fth_align_up((size_t)blob->size_bytes, ALIGNMENT) - (size_t)blob->size_bytes);
}

/* False if the file is shorter. */
static bool read_piece(int fd, uint64_t at, char *to, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t got = pread(fd, to, size_bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        at += (uint64_t)got;
        size_bytes -= (size_t)got;
    }
    return true;
}

/* The length of the safetensors header in a blob's first piece. */
static size_t header_length(const char *piece, size_t size_bytes)
{
    uint64_t length = 0;
    if (size_bytes < sizeof length)
        return 0;
    memcpy(&length, piece, sizeof length);
    return length < size_bytes - sizeof length ? (sizeof length + (size_t)length) / sizeof(float) * sizeof(float) : 0;
}

fth_status fth_wal_blob_fill(fth_wal_blob *blob, const void *bytes, int fd, float *result)
{
    fth_status status = FTH_OK;
    uint64_t count = piece_count(blob->size_bytes), *hashes = NULL;
    char *map = is_warm(blob) ? blob->file->map + blob->offset : NULL, *buffers = NULL;
    int failure = 0, gone = 0, threads = omp_get_max_threads();
    float largest = 0;

    threads = count <= 8 ? 1 : threads < MAX_THREADS ? threads : MAX_THREADS;
    FTH_TRY(fth_allocate((size_t)count + 1, sizeof *hashes, &hashes));
    if (!map && !bytes)
        FTH_TRY(fth_allocate((size_t)threads, PIECE, &buffers));
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) reduction(| : gone) reduction(max : failure, largest)
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = i * PIECE;
        size_t length = piece_length(i, blob->size_bytes);
        const char *from = bytes ? (const char *)bytes + at : NULL;
        char *to = map ? map + at : buffers ? buffers + (size_t)omp_get_thread_num() * PIECE : NULL;
        if (!from)
            gone |= !read_piece(fd, at, to, length);
        else if (map)
            memcpy(to, from, length);
        const char *here = to ? to : from;
        hashes[i] = fth_hash(here, length, 0);
        size_t skipped = i == 0 ? header_length(here, length) : 0;
        largest = fmaxf(largest, fth_numbers_largest(here + skipped, FTH_F32, (length - skipped) / sizeof(float)));
        int error = map ? 0 : write_piece(blob, at, here, length);
        failure = error > failure ? error : failure;
    }
    FTH_REQUIRE(!gone, FTH_INVALID, "the body was truncated while it was read");
    if (!map && !failure)
        failure = write_padding(blob);
    FTH_REQUIRE(!failure, FTH_IO, "write %s: %s", blob->file->path, strerror(failure));
    note_warm(blob);
    blob->hash = blob->size_bytes;
    for (uint64_t i = 0; i < count; i++)
        blob->hash = join_hashes(blob->hash, hashes[i]);
    *result = largest;

out:
    free(hashes);
    free(buffers);
    return status;
}
