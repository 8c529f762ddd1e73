/* See coordinator_owners.h. Open addressing with linear probing; a place that becomes free is
 * filled from behind, so that there are no marks of what was removed. Ids are hashes already. */
#include "batches/coordinator/coordinator_owners.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 1024 };

typedef struct owned {
    fth_item_id id;
    int32_t owner; /* one more than it is; 0: free */
} owned;

struct fth_item_owners {
    owned *places;
    size_t capacity, count; /* the capacity is a power of two */
};

fth_status fth_item_owners_create(fth_item_owners **result)
{
    fth_status status = FTH_OK;
    fth_item_owners *owners = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *owners, &owners));
    FTH_TRY(fth_allocate(FIRST_CAPACITY, sizeof *owners->places, &owners->places));
    owners->capacity = FIRST_CAPACITY;
    *result = owners;
    owners = NULL;

out:
    fth_item_owners_free(owners);
    return status;
}

void fth_item_owners_free(fth_item_owners *owners)
{
    if (!owners)
        return;
    free(owners->places);
    free(owners);
}

static size_t home(const fth_item_owners *owners, fth_item_id id)
{
    return id.words[1] & (owners->capacity - 1);
}

/* Where the id is, or could be put. */
static size_t find(const fth_item_owners *owners, fth_item_id id)
{
    size_t at = home(owners, id);
    while (owners->places[at].owner != 0 && !fth_item_id_equal(owners->places[at].id, id))
        at = (at + 1) & (owners->capacity - 1);
    return at;
}

static fth_status grow(fth_item_owners *owners)
{
    owned *old = owners->places, *places = NULL;
    size_t old_capacity = owners->capacity;
    fth_status status = fth_allocate(2 * old_capacity, sizeof *places, &places);
    if (status != FTH_OK)
        return status;
    owners->places = places;
    owners->capacity = 2 * old_capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].owner != 0)
            places[find(owners, old[i].id)] = old[i];
    free(old);
    return FTH_OK;
}

void fth_item_owners_set(fth_item_owners *owners, fth_item_id id, int owner)
{
    if (2 * (owners->count + 1) > owners->capacity && grow(owners) != FTH_OK)
        return;
    owned *place = &owners->places[find(owners, id)];
    owners->count += place->owner == 0;
    *place = (owned){id, owner + 1};
}

void fth_item_owners_remove(fth_item_owners *owners, fth_item_id id)
{
    const size_t mask = owners->capacity - 1;
    size_t hole = find(owners, id);
    if (owners->places[hole].owner == 0)
        return;
    owners->count--;
    for (size_t at = (hole + 1) & mask; owners->places[at].owner != 0; at = (at + 1) & mask) {
        /* what lies behind its home by way of the hole moves into it */
        size_t from_home = (at - home(owners, owners->places[at].id)) & mask;
        if (from_home >= ((at - hole) & mask)) {
            owners->places[hole] = owners->places[at];
            hole = at;
        }
    }
    owners->places[hole].owner = 0;
}

int fth_item_owners_get(const fth_item_owners *owners, fth_item_id id)
{
    return owners->places[find(owners, id)].owner - 1;
}
