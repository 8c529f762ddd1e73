/* The table of items. See scheduler_internal.h. */
#include <stdlib.h>
#include <string.h>

#include "batches/scheduler/scheduler_internal.h"

enum { FIRST_BUCKETS = 1024 };

static uint32_t *bucket_of(const fth_item_table *table, fth_item_id id)
{
    return &table->buckets[id.words[0] & table->bucket_mask]; /* ids are hashes */
}

void fth_item_table_release(fth_item_table *table)
{
    free(table->items);
    free(table->buckets);
    *table = (fth_item_table){0};
}

uint32_t fth_item_table_find(const fth_item_table *table, fth_item_id id)
{
    if (!table->buckets)
        return 0;
    uint32_t item = *bucket_of(table, id);
    while (item && !fth_item_id_equal(table->items[item].id, id))
        item = table->items[item].next;
    return item;
}

static bool grow_buckets(fth_item_table *table)
{
    uint32_t count = table->buckets ? 2 * (table->bucket_mask + 1) : FIRST_BUCKETS, *grown = NULL;
    if (fth_allocate(count, sizeof *grown, &grown) != FTH_OK)
        return false;
    fth_item_table old = *table;
    table->buckets = grown;
    table->bucket_mask = count - 1;
    for (uint32_t i = 0; old.buckets && i <= old.bucket_mask; i++)
        for (uint32_t item = old.buckets[i], next; item; item = next) {
            next = table->items[item].next;
            uint32_t *bucket = bucket_of(table, table->items[item].id);
            table->items[item].next = *bucket;
            *bucket = item;
        }
    free(old.buckets);
    return true;
}

/* A free record; 0: no memory. Record 0 is none. */
static uint32_t take_record(fth_item_table *table)
{
    uint32_t item = table->free;
    if (item) {
        table->free = table->items[item].next;
        return item;
    }
    uint32_t number = table->count > 0 ? table->count : 1;
    size_t capacity = table->capacity;
    if (fth_grow(&table->items, number, &capacity, sizeof *table->items) != FTH_OK)
        return 0;
    table->capacity = (uint32_t)capacity;
    table->count = number + 1;
    return number;
}

uint32_t fth_item_table_add(fth_item_table *table, fth_item_id id)
{
    uint32_t item = fth_item_table_find(table, id);
    if (item)
        return item;
    if ((!table->buckets || table->count > table->bucket_mask) && !grow_buckets(table) && !table->buckets)
        return 0;
    item = take_record(table);
    if (!item)
        return 0;
    uint32_t *bucket = bucket_of(table, id);
    table->items[item] = (fth_known_item){.id = id, .next = *bucket};
    *bucket = item;
    table->counts[FTH_ITEM_UNKNOWN]++;
    return item;
}

void fth_item_table_forget(fth_item_table *table, uint32_t item)
{
    fth_known_item *known = &table->items[item];
    fth_item_table_move(table, item, FTH_LIST_NONE);
    table->counts[known->state]--;
    table->bytes[known->state] -= known->size_bytes;
    uint32_t *link = bucket_of(table, known->id);
    while (*link != item)
        link = &table->items[*link].next;
    *link = known->next;
    *known = (fth_known_item){.next = table->free};
    table->free = item;
}

void fth_item_table_set_state(fth_item_table *table, uint32_t item, fth_item_state state, uint64_t size_bytes)
{
    fth_known_item *known = &table->items[item];
    table->counts[known->state]--;
    table->bytes[known->state] -= known->size_bytes;
    if (known->list != FTH_LIST_NONE)
        table->list_bytes[known->list] += size_bytes - known->size_bytes;
    known->state = (uint8_t)state;
    known->size_bytes = size_bytes;
    table->counts[state]++;
    table->bytes[state] += size_bytes;
}

void fth_item_table_move(fth_item_table *table, uint32_t item, fth_item_list list)
{
    fth_known_item *known = &table->items[item];
    if (known->list != FTH_LIST_NONE) {
        *(known->older ? &table->items[known->older].newer : &table->oldest[known->list]) = known->newer;
        *(known->newer ? &table->items[known->newer].older : &table->newest[known->list]) = known->older;
        table->list_bytes[known->list] -= known->size_bytes;
    }
    known->list = (uint8_t)list;
    known->newer = known->older = 0;
    if (list == FTH_LIST_NONE)
        return;
    known->older = table->newest[list];
    *(known->older ? &table->items[known->older].newer : &table->oldest[list]) = item;
    table->newest[list] = item;
    table->list_bytes[list] += known->size_bytes;
}

uint64_t fth_item_table_used(const fth_item_table *table)
{
    return table->bytes[FTH_ITEM_READY] + table->bytes[FTH_ITEM_BEING_MADE];
}
