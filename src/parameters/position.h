/* Where training stands: the version, the samples behind it and the time it took.
 *
 * Only the applying thread advances it; any thread may read it at any time, without a lock. */
#ifndef FTH_PARAMETERS_POSITION_H
#define FTH_PARAMETERS_POSITION_H

#include <jansson.h>

#include "base/base.h"

typedef struct fth_served_position fth_served_position;

/* What ends training, and the size of an epoch. 0: no limit, or unknown. */
typedef struct fth_served_length {
    int64_t steps, samples;
    int64_t epoch_samples;
    bool listed; /* only samples of listed shards (shards.h) count towards `samples` */
} fth_served_length;

fth_status fth_served_position_create(const fth_served_length *length, fth_served_position **position);
void fth_served_position_free(fth_served_position *position);

/* Before other threads start: continues from a checkpoint, with the times of earlier processes; and
 * starts this process's clock. */
void fth_served_position_restore(fth_served_position *position, int64_t version, int64_t samples, double elapsed_s,
                                 double apply_s);
void fth_served_position_start_clock(fth_served_position *position);

/* From the applying thread. */
void fth_served_position_add_samples(fth_served_position *position, int64_t samples);
/* Samples of listed shards; a checkpoint's are added before its position is restored. */
void fth_served_position_add_listed(fth_served_position *position, int64_t samples);
void fth_served_position_advance(fth_served_position *position); /* to the next version */
void fth_served_position_add_apply_s(fth_served_position *position, double seconds);

int64_t fth_served_position_version(const fth_served_position *position);
int64_t fth_served_position_samples(const fth_served_position *position);
/* The completed fraction of training; 0 if nothing ends it. */
double fth_served_position_progress(const fth_served_position *position);
double fth_served_position_elapsed_s(const fth_served_position *position);    /* of all processes */
double fth_served_position_apply_s(const fth_served_position *position);      /* the part spent on applying gradients */
double fth_served_position_apply_s_here(const fth_served_position *position); /* in this process */

/* For events: step, epoch, elapsed_s, samples, compute_s. */
json_t *fth_served_position_describe(const fth_served_position *position);

#endif
