/* See pair_count.h. A hash table has the pairs, and a heap their order: an entry of the heap is a
 * count that a pair had at some time. If the pair on top has become less frequent, it is pushed
 * back with its current count. Pairs that became more frequent are pushed before the next one is
 * taken. */
#include "text/pair_count.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct pair {
    int32_t left, right;
    int64_t count;
    bool changed; /* more frequent than all its entries in the heap */
    uint32_t *words;
    size_t word_count, word_capacity;
} pair;

typedef struct heap_entry {
    int64_t count;
    size_t pair;
} heap_entry;

struct fth_pair_count {
    pair *pairs;
    size_t count, capacity;
    size_t *slots; /* (slot_count), a power of two: a pair's number + 1, or 0; at most half full */
    size_t slot_count;
    heap_entry *heap;
    size_t heap_count, heap_capacity;
    size_t *changed; /* pairs to be pushed onto the heap */
    size_t changed_count, changed_capacity;
};

fth_status fth_pair_count_create(fth_pair_count **pairs)
{
    fth_status status = FTH_OK;
    fth_pair_count *made = NULL;
    *pairs = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->slot_count = 1024;
    FTH_TRY(fth_allocate(made->slot_count, sizeof *made->slots, &made->slots));
    *pairs = made;
    made = NULL;
out:
    fth_pair_count_free(made);
    return status;
}

void fth_pair_count_free(fth_pair_count *pairs)
{
    if (!pairs)
        return;
    for (size_t i = 0; i < pairs->count; i++)
        free(pairs->pairs[i].words);
    free(pairs->pairs);
    free(pairs->slots);
    free(pairs->heap);
    free(pairs->changed);
    free(pairs);
}

/* ---- the table ---- */

static size_t *find_slot(const fth_pair_count *pairs, int32_t left, int32_t right)
{
    size_t mask = pairs->slot_count - 1;
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t hash = key * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t slot = (hash ^ hash >> 32) & mask;; slot = (slot + 1) & mask) {
        size_t number = pairs->slots[slot];
        if (number == 0 || (pairs->pairs[number - 1].left == left && pairs->pairs[number - 1].right == right))
            return &pairs->slots[slot];
    }
}

static fth_status double_slots(fth_pair_count *pairs)
{
    size_t *slots = NULL, count = 2 * pairs->slot_count;
    fth_status status = fth_allocate(count, sizeof *slots, &slots);
    if (status != FTH_OK)
        return status;
    free(pairs->slots);
    pairs->slots = slots;
    pairs->slot_count = count;
    for (size_t i = 0; i < pairs->count; i++)
        *find_slot(pairs, pairs->pairs[i].left, pairs->pairs[i].right) = i + 1;
    return FTH_OK;
}

/* The number of a pair, added if it is new. */
static fth_status get_pair(fth_pair_count *pairs, int32_t left, int32_t right, size_t *number)
{
    fth_status status = FTH_OK;
    size_t *slot = find_slot(pairs, left, right);
    if (!*slot) {
        FTH_TRY(fth_grow(&pairs->pairs, pairs->count, &pairs->capacity, sizeof *pairs->pairs));
        pairs->pairs[pairs->count++] = (pair){.left = left, .right = right};
        *slot = pairs->count;
        *number = pairs->count - 1;
        if (2 * pairs->count > pairs->slot_count)
            FTH_TRY(double_slots(pairs));
    } else {
        *number = *slot - 1;
    }
out:
    return status;
}

fth_status fth_pair_count_add(fth_pair_count *pairs, int32_t left, int32_t right, uint32_t word, int64_t times)
{
    fth_status status = FTH_OK;
    size_t number = 0;
    FTH_TRY(get_pair(pairs, left, right, &number));
    pair *found = &pairs->pairs[number];
    found->count += times;
    if (found->word_count == 0 || found->words[found->word_count - 1] != word) {
        FTH_TRY(fth_grow(&found->words, found->word_count, &found->word_capacity, sizeof *found->words));
        found->words[found->word_count++] = word;
    }
    if (!found->changed) {
        FTH_TRY(fth_grow(&pairs->changed, pairs->changed_count, &pairs->changed_capacity, sizeof *pairs->changed));
        pairs->changed[pairs->changed_count++] = number;
        found->changed = true;
    }
out:
    return status;
}

void fth_pair_count_subtract(fth_pair_count *pairs, int32_t left, int32_t right, int64_t times)
{
    size_t number = *find_slot(pairs, left, right);
    pairs->pairs[number - 1].count -= times;
}

/* ---- the heap: the first entry comes before all others ---- */

static bool comes_before(const fth_pair_count *pairs, const heap_entry *a, const heap_entry *b)
{
    const pair *first = &pairs->pairs[a->pair], *second = &pairs->pairs[b->pair];
    if (a->count != b->count)
        return a->count > b->count;
    return first->left != second->left ? first->left < second->left : first->right < second->right;
}

static fth_status push_entry(fth_pair_count *pairs, heap_entry entry)
{
    fth_status status = fth_grow(&pairs->heap, pairs->heap_count, &pairs->heap_capacity, sizeof *pairs->heap);
    if (status != FTH_OK)
        return status;
    size_t place = pairs->heap_count++;
    while (place > 0 && comes_before(pairs, &entry, &pairs->heap[(place - 1) / 2])) {
        pairs->heap[place] = pairs->heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    pairs->heap[place] = entry;
    return FTH_OK;
}

static heap_entry pop_entry(fth_pair_count *pairs)
{
    heap_entry top = pairs->heap[0], last = pairs->heap[--pairs->heap_count];
    size_t place = 0;
    for (size_t child = 1; child < pairs->heap_count; child = 2 * place + 1) {
        if (child + 1 < pairs->heap_count && comes_before(pairs, &pairs->heap[child + 1], &pairs->heap[child]))
            child++;
        if (!comes_before(pairs, &pairs->heap[child], &last))
            break;
        pairs->heap[place] = pairs->heap[child];
        place = child;
    }
    pairs->heap[place] = last;
    return top;
}

static fth_status push_changed(fth_pair_count *pairs)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < pairs->changed_count; i++) {
        pair *changed = &pairs->pairs[pairs->changed[i]];
        changed->changed = false;
        if (changed->count > 0)
            FTH_TRY(push_entry(pairs, (heap_entry){.count = changed->count, .pair = pairs->changed[i]}));
    }
    pairs->changed_count = 0;
out:
    return status;
}

fth_status fth_pair_count_take(fth_pair_count *pairs, fth_frequent_pair *taken)
{
    fth_status status = FTH_OK;
    *taken = (fth_frequent_pair){0};
    FTH_TRY(push_changed(pairs));
    while (pairs->heap_count > 0) {
        heap_entry top = pop_entry(pairs);
        const pair *found = &pairs->pairs[top.pair];
        if (found->count == top.count) {
            *taken = (fth_frequent_pair){.left = found->left,
                                         .right = found->right,
                                         .count = found->count,
                                         .words = found->words,
                                         .word_count = found->word_count};
            break;
        }
        if (found->count > 0 && found->count < top.count)
            FTH_TRY(push_entry(pairs, (heap_entry){.count = found->count, .pair = top.pair}));
    }
out:
    return status;
}
