/* The index of a tar of images in a store, where it is read in place. */
#ifndef FTH_DATA_SHARD_H
#define FTH_DATA_SHARD_H

#include "data/text/text_block.h"
#include "store/store.h"

typedef struct fth_shard_member {
    uint64_t offset;
    uint32_t path, label; /* offsets in `text`; the label may be "" */
    uint64_t size_bytes;
} fth_shard_member;

typedef struct fth_shard {
    fth_text_block text;
    fth_shard_member *members;
    size_t count, capacity;
    bool labelled; /* classes are in files beside the images (x.jpg and x.cls), as in WebDataset */
} fth_shard;

void fth_shard_free(fth_shard *shard);
/* Lists the images and skipped files of the tar `key` of that size and version. Its headers are
 * read in place; the index is kept in the cache folder for that version. */
fth_status fth_shard_read(fth_store *store, const char *key, uint64_t size_bytes, const char *version,
                          const fth_stop *stop, fth_shard *shard);

#endif
