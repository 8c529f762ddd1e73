/* See item_sets.h. Open addressing with linear probing. Removal moves later entries up, so that no
 * tombstones are needed. Ids are hashes already. */
#include "batches/coordinator/item_sets.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 1024 };

typedef struct item_set {
    fth_item_id id;
    int32_t set; /* index of the data set + 1; 0: free */
} item_set;

struct fth_item_sets {
    item_set *places;
    size_t capacity, count; /* the capacity is a power of two */
};

fth_status fth_item_sets_create(fth_item_sets **result)
{
    fth_status status = FTH_OK;
    fth_item_sets *sets = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *sets, &sets));
    FTH_TRY(fth_allocate(FIRST_CAPACITY, sizeof *sets->places, &sets->places));
    sets->capacity = FIRST_CAPACITY;
    *result = sets;
    sets = NULL;

out:
    fth_item_sets_free(sets);
    return status;
}

void fth_item_sets_free(fth_item_sets *sets)
{
    if (!sets)
        return;
    free(sets->places);
    free(sets);
}

static size_t home(const fth_item_sets *sets, fth_item_id id)
{
    return id.words[1] & (sets->capacity - 1);
}

/* Where the id is, or would go. */
static size_t find(const fth_item_sets *sets, fth_item_id id)
{
    size_t at = home(sets, id);
    while (sets->places[at].set != 0 && !fth_item_id_equal(sets->places[at].id, id))
        at = (at + 1) & (sets->capacity - 1);
    return at;
}

static fth_status grow(fth_item_sets *sets)
{
    item_set *old = sets->places, *places = NULL;
    size_t old_capacity = sets->capacity;
    fth_status status = fth_allocate(2 * old_capacity, sizeof *places, &places);
    if (status != FTH_OK)
        return status;
    sets->places = places;
    sets->capacity = 2 * old_capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].set != 0)
            places[find(sets, old[i].id)] = old[i];
    free(old);
    return FTH_OK;
}

void fth_item_sets_put(fth_item_sets *sets, fth_item_id id, int set)
{
    if (2 * (sets->count + 1) > sets->capacity && grow(sets) != FTH_OK)
        return;
    item_set *place = &sets->places[find(sets, id)];
    sets->count += place->set == 0;
    *place = (item_set){id, set + 1};
}

void fth_item_sets_remove(fth_item_sets *sets, fth_item_id id)
{
    const size_t mask = sets->capacity - 1;
    size_t hole = find(sets, id);
    if (sets->places[hole].set == 0)
        return;
    sets->count--;
    for (size_t at = (hole + 1) & mask; sets->places[at].set != 0; at = (at + 1) & mask) {
        /* an entry whose probe passes the hole moves into it */
        size_t from_home = (at - home(sets, sets->places[at].id)) & mask;
        if (from_home >= ((at - hole) & mask)) {
            sets->places[hole] = sets->places[at];
            hole = at;
        }
    }
    sets->places[hole].set = 0;
}

int fth_item_sets_get(const fth_item_sets *sets, fth_item_id id)
{
    return sets->places[find(sets, id)].set - 1;
}
