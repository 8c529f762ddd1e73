/* See prefetch_set.h. */
#include "batches/prefetch/prefetch_set.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/printable.h"
#include "batches/job.h"
#include "data/source/provider.h"

struct fth_prefetch_set {
    fth_dataset *dataset;
    bool files; /* samples are image files, which may be bad */
    char version[FTH_VERSION_TEXT];

    pthread_mutex_t mutex; /* guards the members below */
    fth_bad_sample **bad;  /* each lives as long as the set */
    size_t bad_count, bad_capacity;
    atomic_size_t known; /* bad_count, readable without the mutex */
};

fth_status fth_prefetch_set_open(const char *address, const fth_dataset_options *options, fth_prefetch_set **set)
{
    fth_status status = FTH_OK;
    fth_prefetch_set *opened = NULL;
    fth_dataset_options own = *options;
    fth_provided_set facts;

    own.images_for = "the batch cache";
    own.decoded_cache_bytes = 0; /* with a cache, images would be decoded differently than by jobs without it */
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->mutex, NULL);
    FTH_TRY(fth_dataset_open(address, &own, &opened->dataset));
    FTH_TRY(fth_dataset_version(opened->dataset, opened->version));
    fth_dataset_describe_provided(opened->dataset, &facts);
    opened->files = facts.files;
    *set = opened;
    opened = NULL;

out:
    fth_prefetch_set_free(opened);
    return status;
}

void fth_prefetch_set_free(fth_prefetch_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->bad_count; i++)
        free(set->bad[i]);
    free(set->bad);
    fth_dataset_free(set->dataset);
    pthread_mutex_destroy(&set->mutex);
    free(set);
}

const fth_dataset *fth_prefetch_set_dataset(const fth_prefetch_set *set)
{
    return set->dataset;
}

const char *fth_prefetch_set_version(const fth_prefetch_set *set)
{
    return set->version;
}

bool fth_prefetch_set_has_files(const fth_prefetch_set *set)
{
    return set->files;
}

/* With the mutex held. */
static const fth_bad_sample *find_bad(const fth_prefetch_set *set, fth_split split, int64_t sample)
{
    for (size_t i = 0; i < set->bad_count; i++)
        if (set->bad[i]->sample == sample && set->bad[i]->split == split)
            return set->bad[i];
    return NULL;
}

const fth_bad_sample *fth_prefetch_set_find_bad(fth_prefetch_set *set, fth_split split, int64_t sample)
{
    if (atomic_load_explicit(&set->known, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&set->mutex);
    const fth_bad_sample *found = find_bad(set, split, sample);
    pthread_mutex_unlock(&set->mutex);
    return found;
}

fth_status fth_prefetch_set_note_bad(fth_prefetch_set *set, fth_split split, int64_t sample, const char *name,
                                     const fth_bad_sample **noted)
{
    fth_status status = FTH_OK;
    fth_bad_sample *bad = NULL;

    pthread_mutex_lock(&set->mutex);
    *noted = find_bad(set, split, sample);
    if (*noted)
        goto out;
    FTH_TRY(fth_grow(&set->bad, set->bad_count, &set->bad_capacity, sizeof *set->bad));
    FTH_TRY(fth_allocate(1, sizeof *bad, &bad));
    bad->split = split;
    bad->sample = sample;
    fth_printable_copy(bad->name, sizeof bad->name, name ? name : "");
    fth_printable_copy(bad->reason, sizeof bad->reason, fth_error_message());
    set->bad[set->bad_count++] = bad;
    atomic_store_explicit(&set->known, set->bad_count, memory_order_relaxed);
    *noted = bad;
    fth_log_warning("%s: %s cannot be read (%s)", fth_dataset_get_info(set->dataset)->name, bad->name, bad->reason);

out:
    pthread_mutex_unlock(&set->mutex);
    return status;
}
