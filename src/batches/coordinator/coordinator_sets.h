/* The data sets that a coordinator serves, by name. All are opened when it starts, so that an
 * unreachable one is found before a run. After that nothing in them changes, and any thread may
 * read them. */
#ifndef FTH_BATCHES_COORDINATOR_SETS_H
#define FTH_BATCHES_COORDINATOR_SETS_H

#include <jansson.h>

#include "batches/coordinator/coordinator.h"
#include "http/signature.h"

typedef struct fth_served_sets fth_served_sets;

/* One data set; everything is lent. */
typedef struct fth_open_set {
    char *name;
    fth_prefetch_set *set;
    int64_t count[2]; /* samples, by fth_split */
    const char *version;
    bool files;          /* samples are image files */
    json_t *description; /* described_set.h */
} fth_open_set;

/* FTH_INVALID, FTH_IO, ... names the set that cannot be opened or has no samples. */
fth_status fth_served_sets_open(const fth_served_set *sets, size_t count, const fth_dataset_options *options,
                                fth_served_sets **served);
void fth_served_sets_free(fth_served_sets *served);
/* NULL: there is none. */
const fth_open_set *fth_served_sets_find(const fth_served_sets *served, const char *name);
size_t fth_served_sets_count(const fth_served_sets *served);
int fth_served_sets_index(const fth_served_sets *served, const char *name); /* -1: there is none */
/* NULL: past the last. */
const fth_open_set *fth_served_sets_get(const fth_served_sets *served, size_t index);
/* Whether `caller` (NULL: anybody) may read the data set with an index; -1: an unknown one. */
bool fth_served_sets_may_read(const fth_served_sets *served, int index, const fth_signed *caller);
/* FTH_INVALID lists the names that exist. */
fth_status fth_served_sets_require(const fth_served_sets *served, const char *name, const fth_open_set **set);

/* Names that are valid in addresses and keys: letters, digits, '-', '_' and '.'. */
bool fth_served_set_name_valid(const char *name);

#endif
