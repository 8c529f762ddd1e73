/* How much of an invocation's time is left, and what fits into it. Pure: the caller says what time
 * it is. */
#ifndef FTH_FUNCTIONS_TRAIN_TIME_H
#define FTH_FUNCTIONS_TRAIN_TIME_H

#include <stdbool.h>

/* Times are of the monotonic clock. */
typedef struct fth_train_time {
    double began_s, deadline_s; /* of the invocation; deadline INFINITY: none is known */
    double asked_margin_s;      /* NAN: by measurement */
    double batch_s, push_s;     /* what one takes: the slowest of late; 0: not known yet */
} fth_train_time;

void fth_train_time_note_batch(fth_train_time *time, double seconds);
void fth_train_time_note_push(fth_train_time *time, double seconds); /* with the pull that goes with it */

/* What is kept for unregistering, which gives back the shard, and for the answer: twice a push, 0.2
 * s at least, and a tenth of the whole at most. */
double fth_train_time_margin(const fth_train_time *time);
/* When the work has to be over. */
double fth_train_time_end(const fth_train_time *time);
/* When the last push has to be over: unregistering and the answer need the rest of the margin
 * alone. */
double fth_train_time_push_end(const fth_train_time *time);
/* True if there is time for another batch and for pushing what was computed. */
bool fth_train_time_fits_batch(const fth_train_time *time, double now_s);

#endif
