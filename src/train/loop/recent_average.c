/* See recent_average.h. */
#include "train/loop/recent_average.h"

#include <math.h>

static const double pace_fades_over_s = 30;

void fth_tally_add(fth_tally *tally, const fth_step_result *result, double seconds)
{
    tally->seconds += seconds;
    if (result->samples == 0)
        return; /* its loss is no number */
    tally->loss += result->loss * (double)result->samples;
    tally->correct += result->correct;
    tally->samples += result->samples;
}

double fth_tally_loss(const fth_tally *tally)
{
    return tally->samples > 0 ? tally->loss / (double)tally->samples : NAN;
}

double fth_tally_accuracy(const fth_tally *tally)
{
    return tally->samples > 0 ? (double)tally->correct / (double)tally->samples : NAN;
}

double fth_tally_samples_per_s(const fth_tally *tally)
{
    return tally->samples > 0 && tally->seconds > 0 ? (double)tally->samples / tally->seconds : NAN;
}

void fth_window_add(fth_window *window, const fth_step_result *result, double seconds)
{
    window->waiting_s += seconds;
    if (result->samples == 0)
        return;
    fth_tally *newest = &window->results[window->count++ % FTH_WINDOW_RESULTS];
    *newest = (fth_tally){0};
    fth_tally_add(newest, result, window->waiting_s);
    window->waiting_s = 0;

    /* The first result has the plans made and memory touched: it says nothing about those to
     * come. */
    if (window->count == 1)
        return;
    double rest = exp(-newest->seconds / pace_fades_over_s);
    window->pace_samples = rest * window->pace_samples + (double)newest->samples;
    window->pace_seconds = rest * window->pace_seconds + newest->seconds;
}

fth_tally fth_window_recent(const fth_window *window)
{
    fth_tally recent = {0};
    int64_t known = window->count < FTH_WINDOW_RESULTS ? window->count : FTH_WINDOW_RESULTS;
    for (int64_t i = 0; i < known && (i < FTH_WINDOW_LEAST || recent.seconds < FTH_WINDOW_S); i++) {
        const fth_tally *result = &window->results[(window->count - 1 - i) % FTH_WINDOW_RESULTS];
        recent.loss += result->loss;
        recent.correct += result->correct;
        recent.samples += result->samples;
        recent.seconds += result->seconds;
    }
    return recent;
}

double fth_window_pace(const fth_window *window)
{
    return window->pace_seconds > 0 ? window->pace_samples / window->pace_seconds : NAN;
}
