/* The rate falls to 0 at the last step along a line. */
#include "train/options/schedule.h"

static double factor(const fth_schedule_position *position)
{
    return 1 - fth_schedule_progress(position);
}

const fth_schedule fth_schedule_linear = {
    .name = "linear", .summary = "falls to 0 at the last step", .needs_end = true, .factor = factor};
