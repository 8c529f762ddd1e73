/* Holds out validation samples of a set that has none: the same share of every class, chosen by a
 * key. Without classes, or if random_split is set, they are the first of a keyed permutation. */
#ifndef FTH_DATA_HELD_OUT_H
#define FTH_DATA_HELD_OUT_H

#include "data/data.h"
#include "data/version.h"

typedef struct fth_held_out_samples {
    bool any; /* false: the set has a validation part */
    fth_random_key key;
    int64_t held, total;
    uint32_t *order; /* held-out samples, then the others; NULL: the key's permutation */
} fth_held_out_samples;

/* The class of each sample, by its number in the whole set. */
typedef struct fth_sample_classes {
    int classes; /* 0: samples have none */
    int32_t (*get)(const void *context, int64_t sample);
    const void *context;
} fth_sample_classes;

/* Chooses which of the info->count[FTH_TRAIN] samples are held out, and updates counts and held_out
 * of `info`. `noun` names a sample in messages. The caller releases `samples`. */
fth_status fth_held_out_choose(const fth_dataset_options *options, const char *name, const char *noun,
                               const fth_sample_classes *classes, fth_dataset_info *info,
                               fth_held_out_samples *samples);
void fth_held_out_release(fth_held_out_samples *samples);

/* The number of a sample in the whole set. */
int64_t fth_held_out_place(const fth_held_out_samples *samples, fth_split split, int64_t index);
void fth_held_out_add_version(const fth_held_out_samples *samples, fth_version_hash *hash);

#endif
