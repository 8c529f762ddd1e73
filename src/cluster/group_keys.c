/* See group_keys.h: a hash table with chains. A group of a few hundred members has some thousand
 * keys. */
#include "cluster/group_keys.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024, MOST_KEYS = 1 << 18 };
static const size_t MOST_BYTES = (size_t)256 << 20; /* of all values */

typedef struct entry {
    struct entry *next;
    char *key;
    void *bytes;
    size_t size;
} entry;

struct fth_group_keys {
    int64_t generation;
    entry *buckets[BUCKETS];
    size_t count, size_bytes;
};

fth_status fth_group_keys_create(fth_group_keys **keys)
{
    return fth_allocate(1, sizeof **keys, keys);
}

static void clear(fth_group_keys *keys)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (entry *each = keys->buckets[i], *next; each; each = next) {
            next = each->next;
            free(each->key);
            free(each->bytes);
            free(each);
        }
        keys->buckets[i] = NULL;
    }
    keys->count = keys->size_bytes = 0;
}

void fth_group_keys_select(fth_group_keys *keys, int64_t generation)
{
    if (keys->generation != generation)
        clear(keys);
    keys->generation = generation;
}

void fth_group_keys_free(fth_group_keys *keys)
{
    if (!keys)
        return;
    clear(keys);
    free(keys);
}

static size_t bucket_of(const char *key)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * UINT64_C(1099511628211);
    return hash % BUCKETS;
}

static entry *find(const fth_group_keys *keys, const char *key)
{
    for (entry *each = keys->buckets[bucket_of(key)]; each; each = each->next)
        if (strcmp(each->key, key) == 0)
            return each;
    return NULL;
}

fth_status fth_group_keys_put(fth_group_keys *keys, const char *key, const void *bytes, size_t size)
{
    entry *each = find(keys, key);
    size_t before = each ? each->size : 0;
    if (strlen(key) > FTH_MAX_KEY || !*key || size > FTH_MAX_KEY_BYTES ||
        keys->size_bytes - before + size > MOST_BYTES || (!each && keys->count >= MOST_KEYS))
        return fth_fail(FTH_INVALID, "key \"%.64s\" of %zu bytes exceeds the limits of a group", key, size);
    void *copy = malloc(size + 1);
    if (copy && !each) {
        entry **bucket = &keys->buckets[bucket_of(key)];
        each = calloc(1, sizeof *each);
        if (each && !(each->key = strdup(key))) {
            free(each);
            each = NULL;
        }
        if (each) {
            each->next = *bucket;
            *bucket = each;
            keys->count++;
        }
    }
    if (!copy || !each) {
        free(copy);
        return fth_fail(FTH_NO_MEMORY, "no memory for a key of %zu bytes", size);
    }
    if (size > 0)
        memcpy(copy, bytes, size);
    free(each->bytes);
    each->bytes = copy;
    each->size = size;
    keys->size_bytes += size - before;
    return FTH_OK;
}

const void *fth_group_keys_get(const fth_group_keys *keys, const char *key, size_t *size)
{
    const entry *each = find(keys, key);
    *size = each ? each->size : 0;
    return each ? each->bytes : NULL;
}
