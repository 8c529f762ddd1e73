/* What the files of src/train share. */
#ifndef FTH_TRAIN_TRAIN_INTERNAL_H
#define FTH_TRAIN_TRAIN_INTERNAL_H

#include "train/train.h"

/* ---- options that are more than a number ---- */

/* --until */
typedef struct fth_goal {
    enum { FTH_GOAL_NONE, FTH_GOAL_ACCURACY, FTH_GOAL_LOSS } kind;
    double value;
} fth_goal;
fth_status fth_goal_parse(const char *text, fth_goal *goal);

/* --checkpoint-every: one of the two is not 0. */
typedef struct fth_interval {
    int64_t steps;
    double seconds;
} fth_interval;
fth_status fth_interval_parse(const char *text, fth_interval *interval);

#endif
