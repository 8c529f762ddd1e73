/* The schedules by name, each a file of src/train/options/schedules, and the warm-up in front of
 * them. */
#include "train/options/schedule.h"

#include <math.h>
#include <string.h>

#include "base/base.h"

static const fth_schedule *const schedules[] = {
#define ROW(name) &fth_schedule_##name,
    FTH_SCHEDULES(ROW)
#undef ROW
};

fth_choice fth_schedule_choice(size_t index)
{
    if (index >= FTH_COUNT_OF(schedules))
        return (fth_choice){0};
    return (fth_choice){.name = schedules[index]->name, .summary = schedules[index]->summary};
}

fth_status fth_schedule_find(const char *name, const fth_schedule **schedule)
{
    for (size_t i = 0; i < FTH_COUNT_OF(schedules); i++) {
        *schedule = schedules[i];
        if (strcmp(schedules[i]->name, name) == 0)
            return FTH_OK;
    }
    return fth_fail_choice("schedule", name, fth_schedule_choice);
}

fth_status fth_schedule_check_end(const fth_schedule *schedule, fth_amount warmup, int64_t total_steps,
                                  const char *give)
{
    if (total_steps == 0 && schedule->needs_end)
        return fth_fail(FTH_INVALID, "--schedule %s needs to know the end: give %s", schedule->name, give);
    if (total_steps == 0 && warmup.share > 0)
        return fth_fail(FTH_INVALID, "--warmup in percent needs to know the end: give %s", give);
    return FTH_OK;
}

double fth_schedule_progress(const fth_schedule_position *position)
{
    double span = (double)(position->total_steps - position->warmup);
    return span > 0 ? fmin(1, fmax(0, (double)(position->step - position->warmup) / span)) : 1;
}

double fth_schedule_factor(const fth_schedule *schedule, const fth_schedule_position *position)
{
    double factor = schedule->factor(position);
    if (position->step < position->warmup)
        factor *= (double)(position->step + 1) / (double)position->warmup;
    return factor;
}
