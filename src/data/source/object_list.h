/* The objects of a store that make up a data set, with sizes and versions, sorted by key; long
 * lists are cached. */
#ifndef FTH_DATA_OBJECT_LIST_H
#define FTH_DATA_OBJECT_LIST_H

#include "base/base.h"
#include "data/text/text_block.h"
#include "store/store.h"

typedef struct fth_listed_object {
    uint64_t size_bytes;
    uint32_t key, version; /* offsets in `text` */
} fth_listed_object;

typedef struct fth_object_list {
    fth_text_block text;
    fth_listed_object *objects;
    size_t count, capacity;
} fth_object_list;

void fth_object_list_free(fth_object_list *list);
fth_status fth_object_list_add(fth_object_list *list, const char *key, uint64_t size_bytes, const char *version);
static inline const char *fth_object_list_key(const fth_object_list *list, size_t object)
{
    return list->text.text + list->objects[object].key;
}
static inline const char *fth_object_list_version(const fth_object_list *list, size_t object)
{
    return list->text.text + list->objects[object].version;
}
/* The number of the object with that key; SIZE_MAX: none. */
size_t fth_object_list_find(const fth_object_list *list, const char *key);

/* Lists a store. A list of more than a few pages is kept in the cache folder and used again if some
 * of its pages (first, last and random ones) are unchanged. */
fth_status fth_object_list_fetch(fth_store *store, const fth_stop *stop, fth_object_list *list);

#endif
