/* A tar of images that lies in a store, and is read there: which images it has, and where. */
#ifndef FTH_DATA_SHARD_H
#define FTH_DATA_SHARD_H

#include "data/text/text_block.h"
#include "store/store.h"

typedef struct fth_shard_member {
    uint64_t offset;
    uint32_t path, label; /* where they begin in `text`; the label is "" where there is none */
    uint64_t size_bytes;
} fth_shard_member;

typedef struct fth_shard {
    fth_text_block text;
    fth_shard_member *members;
    size_t count, capacity;
    bool labelled; /* it has classes in files beside the images (x.jpg and x.cls), as WebDataset has them */
} fth_shard;

void fth_shard_free(fth_shard *shard);
/* The images and skipped files of the tar `key`, of that size and version. Its headers are read in
 * place, and what was found is remembered in the cache folder for that version. */
fth_status fth_shard_read(fth_store *store, const char *key, uint64_t size_bytes, const char *version,
                          const fth_stop *stop, fth_shard *shard);

#endif
