/* Memory without a name that processes share: what board and segment lie in. It is a memfd whose
 * size is sealed, so that nobody who has its descriptor can make another's access fail. */
#ifndef FTH_BATCHES_MAPPING_H
#define FTH_BATCHES_MAPPING_H

#include "base/base.h"

typedef struct fth_mapping {
    int fd; /* -1: none */
    void *bytes;
    uint64_t size_bytes;
} fth_mapping;

/* Zeroed memory, mapped for writing; no page of it is used until it is written. */
fth_status fth_mapping_create(const char *name, uint64_t size_bytes, fth_mapping *mapping);
/* Maps what another process made; `fd` is duplicated, and reopened for writing if need be.
 * FTH_CORRUPT if it is something else, or has fewer than `least_bytes`. */
fth_status fth_mapping_open(int fd, bool writable, uint64_t least_bytes, fth_mapping *mapping);
void fth_mapping_close(fth_mapping *mapping);
/* A descriptor of its own for the same memory. */
fth_status fth_mapping_reopen(int fd, bool writable, int *reopened);

#endif
