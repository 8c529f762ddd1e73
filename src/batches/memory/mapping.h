/* Anonymous memory that processes share, for board and segment: a memfd whose size is sealed, so
 * that no holder of its descriptor can make another's access fail. */
#ifndef FTH_BATCHES_MAPPING_H
#define FTH_BATCHES_MAPPING_H

#include "base/base.h"

typedef struct fth_mapping {
    int fd; /* -1: none */
    void *bytes;
    uint64_t size_bytes;
} fth_mapping;

/* Zeroed memory, mapped writable; pages are allocated when written. */
fth_status fth_mapping_create(const char *name, uint64_t size_bytes, fth_mapping *mapping);
/* Maps another process's memory. `fd` is duplicated, or reopened for writing if necessary.
 * FTH_CORRUPT if it is something else or has fewer than `least_bytes`. */
fth_status fth_mapping_open(int fd, bool writable, uint64_t least_bytes, fth_mapping *mapping);
void fth_mapping_close(fth_mapping *mapping);
/* Another descriptor for the same memory. */
fth_status fth_mapping_reopen(int fd, bool writable, int *reopened);

#endif
