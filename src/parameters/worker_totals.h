/* Sums of what workers report with their gradients, for the record's step events and the live line.
 * The applying thread adds gradients; any thread may read the live line's numbers. */
#ifndef FTH_PARAMETERS_WORKER_TOTALS_H
#define FTH_PARAMETERS_WORKER_TOTALS_H

#include "parameters/gradient.h"
#include "train/loop/recent_average.h"

typedef struct fth_worker_totals fth_worker_totals;

fth_status fth_worker_totals_create(double now_s, fth_worker_totals **totals);
void fth_worker_totals_free(fth_worker_totals *totals);

/* A gradient was added to the step; the step was made. `now_s`: monotonic clock. */
void fth_worker_totals_add(fth_worker_totals *totals, const fth_gradient *gradient);
void fth_worker_totals_end_step(fth_worker_totals *totals, double now_s);

/* The gradients since the last line. */
typedef struct fth_worker_totals_line {
    int64_t pushes, samples;
    double loss, accuracy; /* NAN: not reported */
    double samples_per_s;  /* NAN: no time has passed */
} fth_worker_totals_line;
/* A line of the gradients since the last one; false if there are none, or it is too early and not
 * `now`. */
bool fth_worker_totals_take_line(fth_worker_totals *totals, double now_s, bool now, fth_worker_totals_line *line);

/* The latest steps; and a smoothed rate in samples a second, for the time left. */
void fth_worker_totals_get_recent(fth_worker_totals *totals, fth_tally *recent, double *pace);

#endif
