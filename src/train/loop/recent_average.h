/* What training did lately: the numbers of a live line.
 *
 * A tally is a sum over results, from which averages follow, each result with the weight of its
 * samples. A step event of the record is one tally; a window is a tally of the latest results, as
 * far back as such an event would reach. So the live line shows what the record will say. */
#ifndef FTH_TRAIN_RECENT_AVERAGE_H
#define FTH_TRAIN_RECENT_AVERAGE_H

#include <stdint.h>

#include "train/engine/engine.h"

typedef struct fth_tally {
    double loss; /* sum over the samples */
    int64_t correct, samples;
    double seconds; /* of waiting for data and computing */
} fth_tally;

/* A result of no samples is time that passed before the next one. */
void fth_tally_add(fth_tally *tally, const fth_step_result *result, double seconds);
/* NAN without samples, or without time. */
double fth_tally_loss(const fth_tally *tally);
double fth_tally_accuracy(const fth_tally *tally);
double fth_tally_samples_per_s(const fth_tally *tally);

/* A step event covers this many steps, or this long, whichever is over first; */
enum { FTH_WINDOW_RESULTS = 100 };
#define FTH_WINDOW_S 2.0
/* and a window where steps take longer reaches back over a few of them, since one batch says
 * little. */
enum { FTH_WINDOW_LEAST = 10 };

/* Starts as all zeros. */
typedef struct fth_window {
    fth_tally results[FTH_WINDOW_RESULTS]; /* a ring */
    int64_t count;                         /* of results ever added: the newest is at (count - 1) % size */
    double waiting_s;                      /* since the newest */
    double pace_samples, pace_seconds;     /* sums in which the past fades over half a minute */
} fth_window;

void fth_window_add(fth_window *window, const fth_step_result *result, double seconds);
/* Over the latest results. */
fth_tally fth_window_recent(const fth_window *window);
/* Samples a second, steady enough to tell how long the rest will take; NAN at first. */
double fth_window_pace(const fth_window *window);

#endif
