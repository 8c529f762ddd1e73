/* See word_count.h. Words are in one block; a hash table has their numbers. */
#include "text/word_count.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash.h"

typedef struct entry {
    uint64_t hash;
    size_t offset; /* in the block */
    size_t size_bytes;
    int64_t count;
} entry;

struct fth_word_count {
    entry *entries;
    size_t count, capacity;
    size_t *slots; /* (slot_count), a power of two: an entry's number + 1, or 0; at most half full */
    size_t slot_count;
    char *block;
    size_t block_bytes, block_capacity;
    fth_counted_word *list; /* the result of fth_word_count_list() */
};

fth_status fth_word_count_create(fth_word_count **words)
{
    fth_status status = FTH_OK;
    fth_word_count *made = NULL;
    *words = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->slot_count = 1024;
    FTH_TRY(fth_allocate(made->slot_count, sizeof *made->slots, &made->slots));
    *words = made;
    made = NULL;
out:
    fth_word_count_free(made);
    return status;
}

void fth_word_count_free(fth_word_count *words)
{
    if (!words)
        return;
    free(words->entries);
    free(words->slots);
    free(words->block);
    free(words->list);
    free(words);
}

/* The slot of a word, or the empty slot for it. */
static size_t *find_slot(const fth_word_count *words, const char *bytes, size_t size_bytes, uint64_t hash)
{
    size_t mask = words->slot_count - 1;
    for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
        size_t number = words->slots[slot];
        const entry *found = number ? &words->entries[number - 1] : NULL;
        if (!found || (found->hash == hash && found->size_bytes == size_bytes &&
                       memcmp(words->block + found->offset, bytes, size_bytes) == 0))
            return &words->slots[slot];
    }
}

static fth_status double_slots(fth_word_count *words)
{
    size_t *slots = NULL, count = 2 * words->slot_count;
    fth_status status = fth_allocate(count, sizeof *slots, &slots);
    if (status != FTH_OK)
        return status;
    free(words->slots);
    words->slots = slots;
    words->slot_count = count;
    for (size_t i = 0; i < words->count; i++) {
        const entry *word = &words->entries[i];
        *find_slot(words, words->block + word->offset, word->size_bytes, word->hash) = i + 1;
    }
    return FTH_OK;
}

static fth_status append_bytes(fth_word_count *words, const char *bytes, size_t size_bytes)
{
    while (words->block_capacity - words->block_bytes < size_bytes) {
        fth_status status = fth_grow(&words->block, words->block_capacity, &words->block_capacity, 1);
        if (status != FTH_OK)
            return status;
    }
    memcpy(words->block + words->block_bytes, bytes, size_bytes);
    words->block_bytes += size_bytes;
    return FTH_OK;
}

fth_status fth_word_count_add(fth_word_count *words, const char *bytes, size_t size_bytes)
{
    fth_status status = FTH_OK;
    uint64_t hash = fth_hash(bytes, size_bytes, 0);
    size_t *slot = find_slot(words, bytes, size_bytes, hash);
    if (*slot) {
        words->entries[*slot - 1].count++;
        return FTH_OK;
    }
    FTH_TRY(fth_grow(&words->entries, words->count, &words->capacity, sizeof *words->entries));
    FTH_TRY(append_bytes(words, bytes, size_bytes));
    words->entries[words->count++] =
        (entry){.hash = hash, .offset = words->block_bytes - size_bytes, .size_bytes = size_bytes, .count = 1};
    *slot = words->count;
    if (2 * words->count > words->slot_count)
        FTH_TRY(double_slots(words));
out:
    return status;
}

static int compare_words(const void *left, const void *right)
{
    const fth_counted_word *a = left, *b = right;
    size_t shared = a->size_bytes < b->size_bytes ? a->size_bytes : b->size_bytes;
    int order = memcmp(a->bytes, b->bytes, shared);
    return order ? order : (a->size_bytes > b->size_bytes) - (a->size_bytes < b->size_bytes);
}

fth_status fth_word_count_list(fth_word_count *words, const fth_counted_word **list, size_t *count)
{
    free(words->list);
    fth_status status = fth_allocate(words->count + 1, sizeof *words->list, &words->list);
    if (status != FTH_OK)
        return status;
    for (size_t i = 0; i < words->count; i++) {
        const entry *word = &words->entries[i];
        words->list[i] = (fth_counted_word){
            .bytes = words->block + word->offset, .size_bytes = word->size_bytes, .count = word->count};
    }
    qsort(words->list, words->count, sizeof *words->list, compare_words);
    *list = words->list;
    *count = words->count;
    return FTH_OK;
}
