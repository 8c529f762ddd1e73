/* Which samples of a set without a validation part are held out to be one: the same share of every
 * class, drawn by a key. Where samples have no class, or at random is asked for, a keyed
 * permutation gives validation the first of them. */
#ifndef FTH_DATA_HELD_OUT_H
#define FTH_DATA_HELD_OUT_H

#include "data/data.h"
#include "data/version.h"

typedef struct fth_held_out_samples {
    bool any; /* else the set has a part of its own, and the rest is not used */
    fth_random_key key;
    int64_t held, total;
    uint32_t *order; /* of what is held out, then of the rest; NULL: the key's permutation */
} fth_held_out_samples;

/* The classes of samples, by their number among all; at least 0. */
typedef struct fth_sample_classes {
    int classes; /* 0: samples have none */
    int32_t (*get)(const void *context, int64_t sample);
    const void *context;
} fth_sample_classes;

/* Decides how many of the info->count[FTH_TRAIN] samples are held out, and which: fills in counts
 * and held_out of `info`. `noun` is what the samples are. The caller releases `samples`. */
fth_status fth_held_out_choose(const fth_dataset_options *options, const char *name, const char *noun,
                               const fth_sample_classes *classes, fth_dataset_info *info,
                               fth_held_out_samples *samples);
void fth_held_out_release(fth_held_out_samples *samples);

/* The number among all of a sample of a split; without any held out it stays as it is. */
int64_t fth_held_out_place(const fth_held_out_samples *samples, fth_split split, int64_t index);
void fth_held_out_add_version(const fth_held_out_samples *samples, fth_version_hash *hash);

#endif
