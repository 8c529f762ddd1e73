/* The layout of a data set in a store, and its index. */
#ifndef FTH_DATA_OBJECT_LAYOUT_H
#define FTH_DATA_OBJECT_LAYOUT_H

#include "data/source/image_index.h"
#include "data/source/object_list.h"

/* An entry's object, and the offset of its bytes there; 0: the whole object. */
typedef struct fth_object_place {
    size_t object;
    uint64_t offset;
} fth_object_place;
enum { FTH_OBJECT_OFFSET_BITS = 40 }; /* tars of 1 TiB, and 16 million objects */
static inline fth_object_place fth_object_place_of(const fth_image_entry *entry)
{
    return (fth_object_place){(size_t)(entry->place >> FTH_OBJECT_OFFSET_BITS),
                              entry->place & ((UINT64_C(1) << FTH_OBJECT_OFFSET_BITS) - 1)};
}

#define FTH_OBJECT_SIZE_UNKNOWN UINT64_MAX

/* Fills and finishes the index. `index_key` is the index file to use; NULL: index.csv or
 * index.jsonl if there is one, else tars if there are any, else class folders. Objects that only
 * the index file names are added to the list, with unknown size. */
fth_status fth_object_layout_read(fth_store *store, const char *index_key, const fth_stop *stop, fth_object_list *list,
                                  fth_image_index *index);

#endif
