/* See train_time.h. */
#include "functions/train_time.h"

#include <math.h>

#define LEAST_MARGIN_S    0.2
#define MOST_MARGIN_SHARE 0.1
#define FORGET            0.9 /* weight of older durations: the first includes making plans */

static double note(double slowest_s, double seconds)
{
    return fmax(seconds, FORGET * slowest_s);
}

void fth_train_time_note_batch(fth_train_time *time, double seconds)
{
    time->batch_s = note(time->batch_s, seconds);
}

void fth_train_time_note_push(fth_train_time *time, double seconds)
{
    time->push_s = note(time->push_s, seconds);
}

double fth_train_time_margin(const fth_train_time *time)
{
    double most_s = MOST_MARGIN_SHARE * (time->deadline_s - time->began_s);
    if (!isnan(time->asked_margin_s))
        return time->asked_margin_s;
    return fmax(fmin(fmax(2 * time->push_s, LEAST_MARGIN_S), most_s), 0);
}

double fth_train_time_end(const fth_train_time *time)
{
    return isinf(time->deadline_s) ? time->deadline_s : time->deadline_s - fth_train_time_margin(time);
}

double fth_train_time_push_end(const fth_train_time *time)
{
    return isinf(time->deadline_s) ? time->deadline_s : time->deadline_s - fth_train_time_margin(time) / 2;
}

bool fth_train_time_fits_batch(const fth_train_time *time, double now_s)
{
    return now_s + time->batch_s + time->push_s < fth_train_time_end(time);
}
