/* See disk_cache.h.
 *
 * An entry is the file FOLDER/ab/cdef..., named by the SHA-256 of its key: a header, then the
 * bytes. It is written under a temporary name and renamed, without a sync; the checksum detects
 * files torn by a crash.
 *
 * The space in use is counted by walking the folder, under a lock shared by all processes, and then
 * tracked for this process's own writes. Since other processes write too, it is counted again when
 * there is no room, and after every sixteenth of the limit, which is how far each process can
 * exceed it.
 *
 * The modification time of an entry is that of its last use, to within the life of a process: the
 * first use of an older entry sets it. */
#include "data/archive/disk_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4096, LEFTOVER_S = 3600, LOCK_S = 5, RECOUNTS = 16 };
static const char temporary[] = FTH_FILE_TEMPORARY;

typedef struct entry_header {
    char magic[8];
    uint64_t size_bytes;
    uint32_t checksum, what; /* CRC-32 of the bytes, and of the text that names them */
} entry_header;
static const char magic[8] = "fthobj1";

struct fth_disk_cache {
    char *path;
    int folder, lock;
    uint64_t limit_bytes;
    struct timespec opened_at;
    atomic_uint serial; /* of temporaries */
    atomic_bool told, full;

    pthread_mutex_t mutex; /* guards what follows; held while the folder is walked */
    bool counted;
    uint64_t used_bytes;
    uint64_t written_bytes; /* by this process since it was counted */
};

/* The space that an entry takes on the disk. */
static uint64_t cost_of(uint64_t size_bytes)
{
    return fth_align_up((size_t)(size_bytes + sizeof(entry_header)), BLOCK_BYTES);
}

static bool is_newer(struct timespec time, struct timespec than)
{
    return time.tv_sec != than.tv_sec ? time.tv_sec > than.tv_sec : time.tv_nsec >= than.tv_nsec;
}

fth_status fth_disk_cache_open(const char *folder, uint64_t limit_bytes, fth_disk_cache **result)
{
    fth_status status = FTH_OK;
    fth_disk_cache *cache = NULL;
    char *usual = NULL;

    FTH_TRY(fth_allocate(1, sizeof *cache, &cache));
    cache->folder = cache->lock = -1;
    cache->limit_bytes = limit_bytes;
    pthread_mutex_init(&cache->mutex, NULL);
    if (!folder || !*folder)
        FTH_TRY(fth_cache_folder(&usual));
    cache->path = usual ? fth_path_join(usual, "objects") : fth_format("%s", folder);
    FTH_TRY(fth_folder_create(cache->path));
    cache->folder = open(cache->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cache->lock = cache->folder >= 0 ? openat(cache->folder, ".lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    FTH_REQUIRE(cache->lock >= 0, FTH_IO, "cannot keep data in %s: %s; name another folder with --data-cache-folder",
                cache->path, strerror(errno));
    /* By the clock of the file system, which lags behind the usual one by up to a tick. */
    futimens(cache->lock, NULL);
    struct stat facts;
    FTH_REQUIRE(fstat(cache->lock, &facts) == 0, FTH_IO, "look at %s: %s", cache->path, strerror(errno));
    cache->opened_at = facts.st_mtim;
    *result = cache;
    cache = NULL;

out:
    free(usual);
    fth_disk_cache_free(cache);
    return status;
}

void fth_disk_cache_free(fth_disk_cache *cache)
{
    if (!cache)
        return;
    if (cache->lock >= 0)
        close(cache->lock);
    if (cache->folder >= 0)
        close(cache->folder);
    pthread_mutex_destroy(&cache->mutex);
    free(cache->path);
    free(cache);
}

/* "ab/cdef..." */
static void name_entry(const char *what, char name[67])
{
    char hex[65];
    fth_hex_sha256(what, strlen(what), hex);
    snprintf(name, 67, "%.2s/%.62s", hex, hex + 2);
}

static entry_header describe(const char *what, const void *bytes, size_t size_bytes)
{
    entry_header header = {.size_bytes = size_bytes,
                           .checksum = libdeflate_crc32(0, bytes, size_bytes),
                           .what = libdeflate_crc32(0, what, strlen(what))};
    memcpy(header.magic, magic, sizeof magic);
    return header;
}

/* ---- reading ---- */

static bool read_whole(int descriptor, void *into, size_t size_bytes)
{
    for (size_t done = 0; done < size_bytes;) {
        ssize_t got = read(descriptor, (char *)into + done, size_bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

bool fth_disk_cache_find(fth_disk_cache *cache, const char *what, fth_pixel_buffer *buffer, size_t *size_bytes)
{
    char name[67];
    entry_header header, wanted;
    struct stat facts;
    name_entry(what, name);
    int descriptor = openat(cache->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0)
        return false;
    bool good = fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode) &&
                read_whole(descriptor, &header, sizeof header) && header.size_bytes <= FTH_MAX_IMAGE_FILE &&
                (uint64_t)facts.st_size == sizeof header + header.size_bytes &&
                fth_pixel_buffer_reserve(buffer, (size_t)header.size_bytes + 1) == FTH_OK &&
                read_whole(descriptor, buffer->bytes, (size_t)header.size_bytes);
    if (good) {
        wanted = describe(what, buffer->bytes, (size_t)header.size_bytes);
        good = memcmp(&header, &wanted, sizeof header) == 0;
        *size_bytes = (size_t)header.size_bytes;
    }
    if (good && !is_newer(facts.st_mtim, cache->opened_at))
        futimens(descriptor, NULL);
    close(descriptor);
    if (!good)
        unlinkat(cache->folder, name, 0);
    return good;
}

/* ---- making room ---- */

typedef struct old_entry {
    char name[67];
    struct timespec time;
    uint64_t cost;
} old_entry;

static int compare_times(const void *a, const void *b)
{
    const old_entry *x = a, *y = b;
    if (x->time.tv_sec != y->time.tv_sec)
        return x->time.tv_sec < y->time.tv_sec ? -1 : 1;
    return (x->time.tv_nsec > y->time.tv_nsec) - (x->time.tv_nsec < y->time.tv_nsec);
}

typedef struct old_entries {
    old_entry *entries;
    size_t count, capacity;
    uint64_t used_bytes;
} old_entries;

static void meet_file(const fth_disk_cache *cache, int folder, const char *parent, const char *name, old_entries *all)
{
    struct stat facts;
    if (name[0] == '.' && strncmp(name, temporary, strlen(temporary)) != 0)
        return;
    if (fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(facts.st_mode))
        return;
    if (name[0] == '.') { /* left by a writer that was killed, if it is old */
        if (time(NULL) - facts.st_mtim.tv_sec > LEFTOVER_S)
            unlinkat(folder, name, 0);
        return;
    }
    uint64_t cost = fth_align_up((size_t)facts.st_size, BLOCK_BYTES);
    all->used_bytes += cost;
    if (is_newer(facts.st_mtim, cache->opened_at) || strlen(name) != 62 ||
        fth_grow(&all->entries, all->count, &all->capacity, sizeof *all->entries) != FTH_OK)
        return;
    old_entry *entry = &all->entries[all->count++];
    snprintf(entry->name, sizeof entry->name, "%.2s/%.62s", parent, name);
    entry->time = facts.st_mtim;
    entry->cost = cost;
}

static void go_over(const fth_disk_cache *cache, old_entries *all)
{
    for (int i = 0; i < 256; i++) {
        char parent[3];
        struct dirent *item;
        snprintf(parent, sizeof parent, "%02x", i);
        int descriptor = openat(cache->folder, parent, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *folder = descriptor >= 0 ? fdopendir(descriptor) : NULL;
        if (!folder && descriptor >= 0)
            close(descriptor);
        while (folder && (item = readdir(folder)))
            meet_file(cache, dirfd(folder), parent, item->d_name, all);
        if (folder)
            closedir(folder);
    }
}

/* False if another process holds the lock for long: it may be paused. */
static bool take_lock(const fth_disk_cache *cache)
{
    fth_deadline deadline = fth_deadline_in(LOCK_S);
    while (flock(cache->lock, LOCK_EX | LOCK_NB) != 0) {
        if (fth_deadline_passed(deadline) || (errno != EWOULDBLOCK && errno != EINTR))
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return true;
}

/* Counts the entries, and deletes the oldest until `wanted` bytes and some more fit. With the mutex
 * held. */
static bool make_room(fth_disk_cache *cache, uint64_t wanted)
{
    old_entries all = {0};
    if (!take_lock(cache))
        return false;
    go_over(cache, &all);
    if (all.used_bytes + wanted > cache->limit_bytes) {
        uint64_t target = cache->limit_bytes - cache->limit_bytes / 20; /* so that the next entry fits as well */
        target = target > wanted ? target - wanted : 0;
        if (all.count > 0)
            qsort(all.entries, all.count, sizeof *all.entries, compare_times);
        for (size_t i = 0; i < all.count && all.used_bytes > target; i++)
            if (unlinkat(cache->folder, all.entries[i].name, 0) == 0 || errno == ENOENT)
                all.used_bytes -= all.entries[i].cost;
    }
    flock(cache->lock, LOCK_UN);
    free(all.entries);
    cache->used_bytes = all.used_bytes;
    cache->written_bytes = 0;
    cache->counted = true;
    return true;
}

static bool reserve(fth_disk_cache *cache, uint64_t cost)
{
    if (atomic_load_explicit(&cache->full, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&cache->mutex);
    bool looked = false;
    if (!cache->counted || cache->used_bytes + cost > cache->limit_bytes ||
        cache->written_bytes > cache->limit_bytes / RECOUNTS)
        looked = make_room(cache, cost);
    bool fits = cache->counted && cache->used_bytes + cost <= cache->limit_bytes;
    cache->used_bytes += fits ? cost : 0;
    cache->written_bytes += fits ? cost : 0;
    if (!fits && looked)
        atomic_store(&cache->full, true); /* of entries in use: another look would find no more */
    pthread_mutex_unlock(&cache->mutex);
    return fits;
}

static void give_back(fth_disk_cache *cache, uint64_t cost)
{
    pthread_mutex_lock(&cache->mutex);
    cache->used_bytes -= cost < cache->used_bytes ? cost : cache->used_bytes;
    pthread_mutex_unlock(&cache->mutex);
}

/* ---- writing ---- */

static bool write_whole(int descriptor, const void *bytes, size_t size_bytes)
{
    for (size_t done = 0; done < size_bytes;) {
        ssize_t put = write(descriptor, (const char *)bytes + done, size_bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        done += (size_t)put;
    }
    return true;
}

static bool write_entry(fth_disk_cache *cache, const char *name, const entry_header *header, const void *bytes)
{
    char draft[96], parent[3];
    snprintf(parent, sizeof parent, "%.2s", name);
    snprintf(draft, sizeof draft, "%s/%s%d-%d-%lx-%u", parent, temporary, (int)getpid(), cache->lock,
             (unsigned long)cache->opened_at.tv_nsec, atomic_fetch_add(&cache->serial, 1)); /* unique on shared disks */
    int descriptor = openat(cache->folder, draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno == ENOENT && (mkdirat(cache->folder, parent, 0777) == 0 || errno == EEXIST))
        descriptor = openat(cache->folder, draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return false;
    bool good =
        write_whole(descriptor, header, sizeof *header) && write_whole(descriptor, bytes, (size_t)header->size_bytes);
    good = close(descriptor) == 0 && good && renameat(cache->folder, draft, cache->folder, name) == 0;
    int error = errno;
    if (!good)
        unlinkat(cache->folder, draft, 0);
    errno = error;
    return good;
}

void fth_disk_cache_keep(fth_disk_cache *cache, const char *what, const void *bytes, size_t size_bytes)
{
    char name[67];
    uint64_t cost = cost_of(size_bytes);
    if (size_bytes > FTH_MAX_IMAGE_FILE || !reserve(cache, cost))
        return;
    name_entry(what, name);
    entry_header header = describe(what, bytes, size_bytes);
    if (write_entry(cache, name, &header, bytes))
        return;
    give_back(cache, cost);
    if (!atomic_exchange(&cache->told, true))
        fth_log_warning("cannot keep data in %s: %s; going on without", cache->path, strerror(errno));
}
