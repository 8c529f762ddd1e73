/* See wal_bodies.h. */
#include "parameters/wal_bodies.h"

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

/* Small enough that what was copied is in the cache when it is checked. */
enum { PIECE = 256 << 10, MAX_THREADS = 4, MAX_FREE = 64, ALIGNMENT = 64 };

typedef struct extent {
    uint64_t offset, size_bytes;
} extent;

struct fth_bodies {
    atomic_int references;
    int fd;
    char *path, *map;
    size_t map_bytes;
    pthread_mutex_t mutex; /* of what follows */
    uint64_t end;          /* of what is taken */
    uint64_t warm_until;   /* written before by this process */
    extent free[MAX_FREE]; /* before it; what does not fit here stays unused until the next log */
    int free_count;
};

fth_status fth_bodies_open(const char *path, uint64_t used_bytes, size_t map_bytes, fth_bodies **result)
{
    fth_status status = FTH_OK;
    fth_bodies *bodies = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *bodies, &bodies));
    pthread_mutex_init(&bodies->mutex, NULL);
    bodies->references = 1;
    bodies->end = fth_align_up((size_t)used_bytes, ALIGNMENT);
    bodies->path = fth_format("%s", path);
    bodies->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    FTH_REQUIRE(bodies->fd >= 0, FTH_IO, "open %s: %s", path, strerror(errno));
    void *map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bodies->fd, 0);
    FTH_REQUIRE(map != MAP_FAILED, FTH_NO_MEMORY, "map %s: %s", path, strerror(errno));
    bodies->map = map;
    bodies->map_bytes = map_bytes;
    *result = bodies;
    bodies = NULL;

out:
    fth_bodies_unref(bodies);
    return status;
}

void fth_bodies_ref(fth_bodies *bodies)
{
    atomic_fetch_add(&bodies->references, 1);
}

void fth_bodies_unref(fth_bodies *bodies)
{
    if (!bodies || atomic_fetch_sub(&bodies->references, 1) > 1)
        return;
    if (bodies->map)
        munmap(bodies->map, bodies->map_bytes);
    if (bodies->fd >= 0)
        close(bodies->fd);
    pthread_mutex_destroy(&bodies->mutex);
    free(bodies->path);
    free(bodies);
}

bool fth_bodies_in_use(const fth_bodies *bodies)
{
    return atomic_load(&((fth_bodies *)(uintptr_t)bodies)->references) > 1;
}

bool fth_bodies_are_at(const fth_bodies *bodies, const char *path)
{
    struct stat mine, theirs;
    return fstat(bodies->fd, &mine) == 0 && stat(path, &theirs) == 0 && mine.st_ino == theirs.st_ino &&
           mine.st_dev == theirs.st_dev;
}

bool fth_bodies_are_gone(const fth_bodies *bodies)
{
    struct stat facts;
    return fstat(bodies->fd, &facts) != 0 || facts.st_nlink == 0;
}

fth_status fth_bodies_clear(fth_bodies *bodies, const char *path)
{
    char *copy = fth_format("%s", path);
    if (!copy)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    free(bodies->path);
    bodies->path = copy;
    bodies->end = 0;
    bodies->free_count = 0;
    return FTH_OK;
}

uint64_t fth_bodies_used_bytes(fth_bodies *bodies)
{
    pthread_mutex_lock(&bodies->mutex);
    uint64_t end = bodies->end;
    pthread_mutex_unlock(&bodies->mutex);
    return end;
}

fth_status fth_bodies_sync(fth_bodies *bodies)
{
    return fdatasync(bodies->fd) == 0 ? FTH_OK : fth_fail(FTH_IO, "sync %s: %s", bodies->path, strerror(errno));
}

/* ---- places ---- */

/* The first that is large enough; with the mutex held. What it has more than it should goes on
 * being free. */
static bool take_free(fth_bodies *bodies, uint64_t size_bytes, uint64_t *offset)
{
    for (int i = 0; i < bodies->free_count; i++) {
        extent *e = &bodies->free[i];
        if (e->size_bytes < size_bytes)
            continue;
        *offset = e->offset;
        e->offset += size_bytes;
        e->size_bytes -= size_bytes;
        if (e->size_bytes == 0)
            *e = bodies->free[--bodies->free_count];
        return true;
    }
    return false;
}

void fth_bodies_take(fth_bodies *bodies, uint64_t size_bytes, fth_body *body)
{
    uint64_t room = fth_align_up((size_t)size_bytes, ALIGNMENT);
    *body = (fth_body){.file = bodies, .size_bytes = size_bytes};
    fth_bodies_ref(bodies);
    pthread_mutex_lock(&bodies->mutex);
    if (!take_free(bodies, room, &body->offset)) {
        body->offset = bodies->end;
        bodies->end += room;
    }
    pthread_mutex_unlock(&bodies->mutex);
    if (body->offset + size_bytes <= bodies->map_bytes)
        body->bytes = bodies->map + body->offset;
}

/* What ends where the taken part does makes that shorter, and so may those that were free before
 * it. */
static void give_back(fth_bodies *bodies, extent freed)
{
    for (bool found = true; found && freed.offset + freed.size_bytes == bodies->end;) {
        bodies->end = freed.offset;
        freed.size_bytes = 0;
        found = false;
        for (int i = 0; i < bodies->free_count && !found; i++) {
            if (bodies->free[i].offset + bodies->free[i].size_bytes == bodies->end) {
                freed = bodies->free[i];
                bodies->free[i] = bodies->free[--bodies->free_count];
                found = true;
            }
        }
    }
    if (freed.size_bytes > 0 && bodies->free_count < MAX_FREE)
        bodies->free[bodies->free_count++] = freed;
}

void fth_body_release(fth_body *body)
{
    fth_bodies *bodies = body->file;
    if (!bodies)
        return;
    if (!body->kept) {
        pthread_mutex_lock(&bodies->mutex);
        give_back(bodies, (extent){body->offset, fth_align_up((size_t)body->size_bytes, ALIGNMENT)});
        pthread_mutex_unlock(&bodies->mutex);
    }
    *body = (fth_body){0};
    fth_bodies_unref(bodies);
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

/* Pieces are hashed by themselves, so that several threads can; then their hashes in order. */
static uint64_t join_hashes(uint64_t so_far, uint64_t piece)
{
    return fth_random_mix(so_far ^ piece);
}

uint64_t fth_body_hash(const void *bytes, uint64_t size_bytes)
{
    uint64_t hash = size_bytes;
    for (uint64_t i = 0; i < piece_count(size_bytes); i++)
        hash = join_hashes(hash, fth_hash((const char *)bytes + i * PIECE, piece_length(i, size_bytes), 0));
    return hash;
}

/* Memory of a file that was not written yet is slow to come by a page at a time, and nobody can be
 * told that the disk is full. So what is not warm goes through the file, and is warm from then
 * on. */
static bool is_warm(const fth_body *body)
{
    fth_bodies *bodies = body->file;
    pthread_mutex_lock(&bodies->mutex);
    bool warm = body->bytes && body->offset + body->size_bytes <= bodies->warm_until;
    pthread_mutex_unlock(&bodies->mutex);
    return warm;
}

static void note_warm(const fth_body *body)
{
    fth_bodies *bodies = body->file;
    uint64_t end = body->offset + fth_align_up((size_t)body->size_bytes, ALIGNMENT);
    pthread_mutex_lock(&bodies->mutex);
    if (body->offset <= bodies->warm_until && end > bodies->warm_until)
        bodies->warm_until = end;
    pthread_mutex_unlock(&bodies->mutex);
}

/* 0, or an errno. */
static int write_piece(const fth_body *body, uint64_t at, const char *from, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t written = pwrite(body->file->fd, from, size_bytes, (off_t)(body->offset + at));
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

/* Extends the file to the end of the place. Otherwise a longer body that gets the place next would
 * be written, as memory, past the end of the file, and what lies there is lost with the process. 0,
 * or an errno. */
static int write_padding(const fth_body *body)
{
    static const char zeros[ALIGNMENT];
    return write_piece(body, body->size_bytes, zeros,
                       fth_align_up((size_t)body->size_bytes, ALIGNMENT) - (size_t)body->size_bytes);
}

/* False if the file ends before. */
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

/* How much of a body's first piece is not numbers: a safetensors header, whose length comes
 * first. */
static size_t header_length(const char *piece, size_t size_bytes)
{
    uint64_t length = 0;
    if (size_bytes < sizeof length)
        return 0;
    memcpy(&length, piece, sizeof length);
    return length < size_bytes - sizeof length ? (sizeof length + (size_t)length) / sizeof(float) * sizeof(float) : 0;
}

fth_status fth_body_fill(fth_body *body, const void *bytes, int fd, float *result)
{
    fth_status status = FTH_OK;
    uint64_t count = piece_count(body->size_bytes), *hashes = NULL;
    char *map = is_warm(body) ? body->file->map + body->offset : NULL, *buffers = NULL;
    int failure = 0, gone = 0, threads = omp_get_max_threads();
    float largest = 0;

    threads = count <= 8 ? 1 : threads < MAX_THREADS ? threads : MAX_THREADS;
    FTH_TRY(fth_allocate((size_t)count + 1, sizeof *hashes, &hashes));
    if (!map && !bytes)
        FTH_TRY(fth_allocate((size_t)threads, PIECE, &buffers));
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) reduction(| : gone) reduction(max : failure, largest)
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = i * PIECE;
        size_t length = piece_length(i, body->size_bytes);
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
        int error = map ? 0 : write_piece(body, at, here, length);
        failure = error > failure ? error : failure;
    }
    FTH_REQUIRE(!gone, FTH_INVALID, "the body was taken away while it was read");
    if (!map && !failure)
        failure = write_padding(body);
    FTH_REQUIRE(!failure, FTH_IO, "write %s: %s", body->file->path, strerror(failure));
    note_warm(body);
    body->hash = body->size_bytes;
    for (uint64_t i = 0; i < count; i++)
        body->hash = join_hashes(body->hash, hashes[i]);
    *result = largest;

out:
    free(hashes);
    free(buffers);
    return status;
}
