/* A data set that items are made of: its version, and the samples that could not be read. Any
 * thread may use it. */
#ifndef FTH_BATCHES_PREFETCH_PREFETCH_SET_H
#define FTH_BATCHES_PREFETCH_PREFETCH_SET_H

#include "data/data.h"

typedef struct fth_prefetch_set fth_prefetch_set;

/* `address` as --data has it. */
fth_status fth_prefetch_set_open(const char *address, const fth_dataset_options *options, fth_prefetch_set **set);
void fth_prefetch_set_free(fth_prefetch_set *set);
const fth_dataset *fth_prefetch_set_dataset(const fth_prefetch_set *set);
const char *fth_prefetch_set_version(const fth_prefetch_set *set);
bool fth_prefetch_set_has_files(const fth_prefetch_set *set); /* samples are image files, which may be bad */

/* A sample that cannot be read. Texts are printable, and cut where they are longer than a batch has
 * room for. Lives as long as the set. */
enum { FTH_BAD_TEXT = 257 };
typedef struct fth_bad_sample {
    fth_split split;
    int64_t sample;
    char name[FTH_BAD_TEXT], reason[FTH_BAD_TEXT];
} fth_bad_sample;

/* NULL: the sample is not known to be bad. */
const fth_bad_sample *fth_prefetch_set_find_bad(fth_prefetch_set *set, fth_split split, int64_t sample);
/* Records a bad sample, with the calling thread's error message as the reason. */
fth_status fth_prefetch_set_note_bad(fth_prefetch_set *set, fth_split split, int64_t sample, const char *name,
                                     const fth_bad_sample **noted);

#endif
