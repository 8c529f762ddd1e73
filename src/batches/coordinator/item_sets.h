/* The data set of each cached item, so that a key that may not read the set gets none of its items:
 * a table by id. The caller locks. */
#ifndef FTH_BATCHES_COORDINATOR_ITEM_SETS_H
#define FTH_BATCHES_COORDINATOR_ITEM_SETS_H

#include "batches/item.h"

typedef struct fth_item_sets fth_item_sets;

fth_status fth_item_sets_create(fth_item_sets **sets);
void fth_item_sets_free(fth_item_sets *sets);
/* `set` is not negative. Without memory it is not noted, and no limited key gets the item. */
void fth_item_sets_put(fth_item_sets *sets, fth_item_id id, int set);
void fth_item_sets_remove(fth_item_sets *sets, fth_item_id id);
int fth_item_sets_get(const fth_item_sets *sets, fth_item_id id); /* -1: unknown */

#endif
