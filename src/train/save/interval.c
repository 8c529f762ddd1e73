/* See interval.h. */
#include "train/save/interval.h"

#include <math.h>

#define FIRST_S              30.0 /* before anything is measured */
#define ASSUMED_BETWEEN_S    3600.0
#define SHARE_OF_A_PROCESSOR 0.1
#define LONGEST_S            1800.0

double fth_young_interval(double cost_s, double between_s, double written_s, double overhead)
{
    double interval = sqrt(2 * cost_s * between_s);
    interval = fmax(interval, cost_s / overhead);
    interval = fmax(interval, 1.5 * written_s);
    return fmin(fmax(interval, 1), LONGEST_S);
}

fth_status fth_interval_begin(const char *text, fth_interval *interval)
{
    fth_status status = fth_interval_parse(text, interval);
    if (status == FTH_OK && interval->automatic)
        interval->seconds = FIRST_S;
    return status;
}

bool fth_interval_is_over(const fth_interval *interval, int64_t steps, double seconds)
{
    return interval->steps > 0 ? steps >= interval->steps : seconds >= interval->seconds;
}

bool fth_interval_adapt(fth_interval *interval, const fth_interval_facts *facts, double *between_s)
{
    if (!interval->automatic)
        return false;
    double cost_s = facts->stall_s + SHARE_OF_A_PROCESSOR * facts->save_s;
    *between_s = (facts->elapsed_s + ASSUMED_BETWEEN_S) / (double)(facts->interruptions + 1);
    double seconds = fth_young_interval(cost_s, *between_s, facts->save_s, facts->overhead);
    if (fabs(seconds - interval->seconds) < 0.2 * interval->seconds)
        return false;
    interval->seconds = seconds;
    return true;
}
