/* Learning-rate schedules: pure functions of the position, so that a resumed run needs nothing saved. */
#include <math.h>
#include <string.h>

#include "train/train_internal.h"

/* How much of the time after the warm-up is over, 0..1. */
static double progress(const fth_schedule_position *position)
{
    double span = (double)(position->total_steps - position->warmup);
    return span > 0 ? fmin(1, fmax(0, (double)(position->step - position->warmup) / span)) : 1;
}

static double constant_factor(const fth_schedule_position *position)
{
    (void)position;
    return 1;
}

static double step_factor(const fth_schedule_position *position)
{
    int64_t epoch = position->step / position->steps_per_epoch;
    return pow(position->decay_factor, (double)(epoch / position->decay_every));
}

static double cosine_factor(const fth_schedule_position *position)
{
    return 0.5 * (1 + cos(acos(-1.0) * progress(position)));
}

static double linear_factor(const fth_schedule_position *position)
{
    return 1 - progress(position);
}

static const fth_schedule schedules[] = {
    {.name = "constant", .factor = constant_factor},
    {.name = "step", .factor = step_factor},
    {.name = "cosine", .needs_end = true, .factor = cosine_factor},
    {.name = "linear", .needs_end = true, .factor = linear_factor},
};

fth_status fth_schedule_find(const char *name, const fth_schedule **schedule)
{
    for (size_t i = 0; i < FTH_COUNT_OF(schedules); i++) {
        *schedule = &schedules[i];
        if (strcmp((*schedule)->name, name) == 0)
            return FTH_OK;
    }
    return fth_fail(FTH_INVALID, "there is no schedule \"%s\"", name);
}

double fth_schedule_factor(const fth_schedule *schedule, const fth_schedule_position *position)
{
    double factor = schedule->factor(position);
    if (position->step < position->warmup)
        factor *= (double)(position->step + 1) / (double)position->warmup;
    return factor;
}
