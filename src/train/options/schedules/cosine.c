/* The rate falls to 0 at the last step along half a cosine wave. */
#include <math.h>

#include "train/options/schedule.h"

static double factor(const fth_schedule_position *position)
{
    return 0.5 * (1 + cos(acos(-1.0) * fth_schedule_progress(position)));
}

const fth_schedule fth_schedule_cosine = {
    .name = "cosine", .summary = "falls to 0 at the last step", .needs_end = true, .factor = factor};
