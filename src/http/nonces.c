/* Two generations of hashes: the newer one takes what comes, and when it is `seconds` old it becomes the older one and
 * what was older is forgotten. So each is remembered for at least `seconds`, and no list has to be kept in order. A
 * nonce is known by 128 bits of SHA-256 over it and its key. */
#include "http/nonces.h"

#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
};

fth_status fth_nonces_create(double seconds, uint64_t most, fth_nonces **nonces)
{
    fth_status status = fth_allocate(1, sizeof **nonces, nonces);
    if (status != FTH_OK)
        return status;
    pthread_mutex_init(&(*nonces)->mutex, NULL);
    (*nonces)->seconds = seconds;
    (*nonces)->most = most;
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
    if (now - nonces->turned_at_s > nonces->seconds) {
        free(nonces->older.slots);
        nonces->older = now - nonces->turned_at_s > 2 * nonces->seconds ? (generation){0} : nonces->newer;
        if (!nonces->older.slots)
            free(nonces->newer.slots);
        nonces->newer = (generation){0};
        nonces->turned_at_s = now;
    }
    if (holds(&nonces->newer, hash) || holds(&nonces->older, hash))
        result = FTH_NONCE_SEEN;
    else if (nonces->newer.used >= nonces->most || !make_room(&nonces->newer))
        result = FTH_NONCE_FULL;
    else {
        *find(&nonces->newer, hash) = hash;
        nonces->newer.used++;
    }
    pthread_mutex_unlock(&nonces->mutex);
    return result;
}
