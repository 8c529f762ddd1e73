/* What workers report of their gradients, summed up: for the record's step events and for the live
 * line.
 *
 * Gradients are added by the applying thread. The live line, which is by steps, may be read from
 * any thread. */
#ifndef FTH_PARAMETERS_WORKER_TOTALS_H
#define FTH_PARAMETERS_WORKER_TOTALS_H

#include "parameters/gradient.h"
#include "train/loop/recent_average.h"

typedef struct fth_worker_totals fth_worker_totals;

fth_status fth_worker_totals_create(double now_s, fth_worker_totals **totals);
void fth_worker_totals_free(fth_worker_totals *totals);

/* A gradient became a part of the step being made; the step was made. `now_s` is of the monotonic
 * clock. */
void fth_worker_totals_add(fth_worker_totals *totals, const fth_gradient *gradient);
void fth_worker_totals_end_step(fth_worker_totals *totals, double now_s);

/* The gradients since the line before. */
typedef struct fth_worker_totals_line {
    int64_t pushes, samples;
    double loss, accuracy; /* NAN: no worker said */
    double samples_per_s;  /* NAN: no time has passed */
} fth_worker_totals_line;
/* A line of what came since the last one, if that is something, and long enough ago unless
 * `now`. */
bool fth_worker_totals_take_line(fth_worker_totals *totals, double now_s, bool now, fth_worker_totals_line *line);

/* The latest steps; and samples a second, steady enough to estimate the time left. */
void fth_worker_totals_get_recent(fth_worker_totals *totals, fth_tally *recent, double *pace);

#endif
