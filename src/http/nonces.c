/* Two generations of hashes: the newer one takes what comes, and when it is `seconds` old it
 * becomes the older one and what was older is forgotten. So each is remembered for at least
 * `seconds`, and no list has to be kept in order. A nonce is known by 128 bits of SHA-256 over it
 * and its key.
 *
 * Where they are kept, a generation is a file of hashes, one after the other, and turning renames
 * it. A process that was killed leaves all it had accepted; the end of a hash that was not written
 * whole is written over. */
#include "http/nonces.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_SLOTS = 1024 };

typedef struct hash128 {
    uint64_t low, high; /* both 0: an empty slot */
} hash128;

typedef struct generation {
    hash128 *slots;
    uint64_t slot_count, used;
} generation;

struct fth_nonces {
    pthread_mutex_t mutex;
    generation newer, older;
    double seconds, turned_at_s;
    uint64_t most;
    char *path, *older_path; /* NULL: not kept */
    int fd;                  /* of the newer generation */
};

fth_status fth_nonces_create(double seconds, uint64_t most, fth_nonces **nonces)
{
    fth_status status = fth_allocate(1, sizeof **nonces, nonces);
    if (status != FTH_OK)
        return status;
    pthread_mutex_init(&(*nonces)->mutex, NULL);
    (*nonces)->seconds = seconds;
    (*nonces)->most = most;
    (*nonces)->fd = -1;
    (*nonces)->turned_at_s = fth_clock_seconds();
    return FTH_OK;
}

void fth_nonces_free(fth_nonces *nonces)
{
    if (!nonces)
        return;
    pthread_mutex_destroy(&nonces->mutex);
    free(nonces->newer.slots);
    free(nonces->older.slots);
    free(nonces->path);
    free(nonces->older_path);
    if (nonces->fd >= 0)
        close(nonces->fd);
    free(nonces);
}

void fth_nonces_set_limits(fth_nonces *nonces, double seconds, uint64_t most)
{
    pthread_mutex_lock(&nonces->mutex);
    nonces->seconds = seconds;
    nonces->most = most ? most : nonces->most;
    pthread_mutex_unlock(&nonces->mutex);
}

static hash128 *find(const generation *g, hash128 hash)
{
    uint64_t at = hash.low & (g->slot_count - 1);
    while ((g->slots[at].low | g->slots[at].high) && (g->slots[at].low != hash.low || g->slots[at].high != hash.high))
        at = (at + 1) & (g->slot_count - 1);
    return &g->slots[at];
}

static bool holds(const generation *g, hash128 hash)
{
    if (!g->slots)
        return false;
    const hash128 *slot = find(g, hash);
    return slot->low | slot->high;
}

/* Keeps at least half of the slots empty. */
static bool make_room(generation *g)
{
    if (2 * (g->used + 1) <= g->slot_count)
        return true;
    generation larger = {.slot_count = g->slot_count ? 2 * g->slot_count : FIRST_SLOTS, .used = g->used};
    larger.slots = calloc(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (uint64_t i = 0; i < g->slot_count; i++)
        if (g->slots[i].low | g->slots[i].high)
            *find(&larger, g->slots[i]) = g->slots[i];
    free(g->slots);
    *g = larger;
    return true;
}

static void put(generation *g, hash128 hash)
{
    *find(g, hash) = hash;
    g->used++;
}

/* ---- files ---- */

static fth_status load(const char *path, uint64_t most, generation *g)
{
    fth_status status = FTH_OK;
    char *bytes = NULL;
    size_t size = 0;
    if (!fth_file_exists(path))
        return FTH_OK;
    FTH_TRY(fth_file_read_all(path, (most + 1) * sizeof(hash128), &bytes, &size));
    for (size_t at = 0; at + sizeof(hash128) <= size; at += sizeof(hash128)) {
        hash128 hash;
        memcpy(&hash, bytes + at, sizeof hash);
        FTH_REQUIRE(make_room(g), FTH_NO_MEMORY, "no memory for %zu nonces", size / sizeof hash);
        if (hash.low & 1 && !holds(g, hash))
            put(g, hash);
    }

out:
    free(bytes);
    return status;
}

static bool open_newer(fth_nonces *nonces, bool empty)
{
    if (nonces->fd >= 0)
        close(nonces->fd);
    nonces->fd = open(nonces->path, O_WRONLY | O_CREAT | O_CLOEXEC | (empty ? O_TRUNC : 0), 0600);
    return nonces->fd >= 0;
}

fth_status fth_nonces_keep(fth_nonces *nonces, const char *path)
{
    fth_status status = FTH_OK;
    nonces->path = path ? strdup(path) : NULL;
    nonces->older_path = path ? fth_format("%s.older", path) : NULL;
    FTH_REQUIRE(nonces->path && nonces->older_path, FTH_NO_MEMORY, "no memory to keep nonces");
    FTH_TRY(load(nonces->older_path, nonces->most, &nonces->older));
    FTH_TRY(load(nonces->path, nonces->most, &nonces->newer));
    FTH_REQUIRE(open_newer(nonces, false), FTH_IO, "nonces in %s: %s", path, strerror(errno));

out:
    return status;
}

static bool write_hash(const fth_nonces *nonces, hash128 hash)
{
    if (!nonces->path)
        return true;
    ssize_t written = pwrite(nonces->fd, &hash, sizeof hash, (off_t)(nonces->newer.used * sizeof hash));
    return written == (ssize_t)sizeof hash;
}

/* The newer generation becomes the older one; false, and nothing has changed, if its file
 * cannot. */
static bool turn(fth_nonces *nonces, double now)
{
    if (nonces->path &&
        ((rename(nonces->path, nonces->older_path) != 0 && errno != ENOENT) || !open_newer(nonces, true)))
        return false;
    free(nonces->older.slots);
    nonces->older = nonces->newer;
    nonces->newer = (generation){0};
    nonces->turned_at_s = now;
    return true;
}

fth_nonce_result fth_nonces_add(fth_nonces *nonces, const char *key, const char *nonce)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char text[256];
    hash128 hash;
    fth_nonce_result result = FTH_NONCE_NEW;

    snprintf(text, sizeof text, "%s\n%s", key, nonce);
    SHA256((const unsigned char *)text, strlen(text), digest);
    memcpy(&hash, digest, sizeof hash);
    hash.low |= 1;

    pthread_mutex_lock(&nonces->mutex);
    double now = fth_clock_seconds();
    bool writable = now - nonces->turned_at_s <= nonces->seconds || turn(nonces, now);
    if (holds(&nonces->newer, hash) || holds(&nonces->older, hash))
        result = FTH_NONCE_SEEN;
    else if (!writable || nonces->newer.used >= nonces->most || !make_room(&nonces->newer) || !write_hash(nonces, hash))
        result = FTH_NONCE_FULL;
    else
        put(&nonces->newer, hash);
    pthread_mutex_unlock(&nonces->mutex);
    return result;
}

void fth_nonces_advance(fth_nonces *nonces, double seconds)
{
    pthread_mutex_lock(&nonces->mutex);
    nonces->turned_at_s -= seconds;
    pthread_mutex_unlock(&nonces->mutex);
}
