/* How much of an invocation's time is left, and what fits into it. Pure: the caller passes the
 * time. */
#ifndef FTH_FUNCTIONS_TRAIN_TIME_H
#define FTH_FUNCTIONS_TRAIN_TIME_H

#include <stdbool.h>

/* Times are of the monotonic clock. */
typedef struct fth_train_time {
    double began_s, deadline_s; /* of the invocation; deadline INFINITY: unknown */
    double asked_margin_s;      /* NAN: measured */
    double batch_s, push_s;     /* duration of the slowest recent one; 0: unknown yet */
} fth_train_time;

void fth_train_time_note_batch(fth_train_time *time, double seconds);
void fth_train_time_note_push(fth_train_time *time, double seconds); /* including the pull that follows */

/* The time reserved for unregistering, which frees the shard, and for the answer: twice a push, at
 * least 0.2 s, at most a tenth of the whole. */
double fth_train_time_margin(const fth_train_time *time);
/* When work must end. */
double fth_train_time_end(const fth_train_time *time);
/* When the last push must end, which leaves half of the margin. */
double fth_train_time_push_end(const fth_train_time *time);
/* Whether there is time for another batch and the push. */
bool fth_train_time_fits_batch(const fth_train_time *time, double now_s);

#endif
