/* The rate falls by a factor every few epochs. */
#include <math.h>

#include "train/options/schedule.h"

static double factor(const fth_schedule_position *position)
{
    int64_t epoch = position->step / position->steps_per_epoch;
    return pow(position->decay_factor, (double)(epoch / position->decay_every));
}

const fth_schedule fth_schedule_step = {
    .name = "step", .summary = "falls by --decay-factor every --decay-every epochs", .factor = factor};
