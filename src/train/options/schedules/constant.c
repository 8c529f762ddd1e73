/* The rate stays what it is. */
#include "train/options/schedule.h"

static double factor(const fth_schedule_position *position)
{
    (void)position;
    return 1;
}

const fth_schedule fth_schedule_constant = {.name = "constant", .factor = factor};
