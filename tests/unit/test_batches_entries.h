/* Numbered entries for tests of caches: their ids, sizes and contents follow from the number. */
#ifndef TEST_BATCHES_ENTRIES_H
#define TEST_BATCHES_ENTRIES_H

#include "support.h"

#include "batches/cache/cache.h"

static const double ENTRIES_WAIT_S = 60; /* generous: the machine may be busy */

static inline fth_item_id id_of(uint64_t number)
{
    return (fth_item_id){{fth_random_mix(number), number}};
}

static inline uint64_t size_of(uint64_t number)
{
    return sizeof(fth_item_header) + 100 + number * 977 % 5000;
}

static inline void fill(void *entry, uint64_t number, uint64_t size_bytes)
{
    uint8_t *payload = (uint8_t *)entry + sizeof(fth_item_header);
    for (uint64_t i = 0; i < size_bytes - sizeof(fth_item_header); i++)
        payload[i] = (uint8_t)(fth_random_mix(number) >> (i % 8 * 8) ^ i * 131);
}

static inline fth_status put_sized(fth_cache *cache, uint64_t number, uint64_t size_bytes)
{
    void *entry = NULL;
    fth_receipt receipt;
    fth_status status = fth_cache_begin(cache, size_bytes, &entry);
    if (status != FTH_OK)
        return status;
    fill(entry, number, size_bytes);
    fth_item_seal(entry, id_of(number), FTH_ITEM_BATCH, size_bytes - sizeof(fth_item_header), &receipt);
    return fth_cache_put(cache, entry, &receipt);
}

static inline fth_status put_number(fth_cache *cache, uint64_t number)
{
    return put_sized(cache, number, size_of(number));
}

typedef struct taken_entries {
    const uint64_t *numbers;
    size_t count;
    bool found[1024];
    bool is_wrong;
} taken_entries;

static inline void take_entry(void *context, size_t which, const void *entry, uint64_t size_bytes)
{
    taken_entries *taking = context;
    uint64_t number = taking->numbers[which], expected = size_of(number);
    void *same = malloc(expected);
    fill(same, number, expected);
    taking->is_wrong |= taking->found[which] || size_bytes != expected || (uintptr_t)entry % 64 != 0 ||
                        memcmp((const char *)entry + 64, (const char *)same + 64, expected - 64) != 0;
    taking->found[which] = true;
    taking->count++;
    free(same);
}

/* Asks for all of `numbers`; how many were found. What is found must be right. */
static inline size_t get_numbers(fth_cache *cache, const uint64_t *numbers, size_t count, double seconds,
                                 fth_status *status)
{
    fth_item_id ids[1024];
    taken_entries taking = {.numbers = numbers};
    for (size_t i = 0; i < count; i++)
        ids[i] = id_of(numbers[i]);
    fth_status result = fth_cache_get(cache, ids, count, fth_deadline_in(seconds), take_entry, &taking);
    assert_false(taking.is_wrong);
    if (status)
        *status = result;
    else if (result != FTH_OK)
        fail_msg("%s", fth_error_message());
    return taking.count;
}

static inline size_t get_range(fth_cache *cache, uint64_t first, size_t count, fth_status *status)
{
    uint64_t numbers[1024];
    for (size_t i = 0; i < count; i++)
        numbers[i] = first + i;
    return get_numbers(cache, numbers, count, ENTRIES_WAIT_S, status);
}

static inline void put_range(fth_cache *cache, uint64_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (put_number(cache, first + i) != FTH_OK)
            fail_msg("%s", fth_error_message());
}

static inline void count_receipt(void *context, const fth_receipt *receipt)
{
    size_t *seen = context;
    assert_int_equal(receipt->size_bytes, size_of(receipt->id.words[1]));
    assert_true(fth_item_id_equal(receipt->id, id_of(receipt->id.words[1])));
    ++*seen;
}

static inline size_t count_all(fth_cache *cache)
{
    size_t seen = 0;
    assert_int_equal(fth_cache_visit(cache, count_receipt, &seen), FTH_OK);
    return seen;
}

#endif
