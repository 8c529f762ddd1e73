/* See stop_plan.h. */
#include "train/loop/stop_plan.h"

#include <math.h>
#include <string.h>

#define START_GRACE_S  1.0 /* to end in order, with nothing to save */
#define FENCED_GRACE_S 5.0
#define MARGIN_S       0.3 /* for clocks, manifests and the end of the process */

fth_save_choice fth_stop_choose_save(const fth_stop_reason *reason, const fth_save_estimate *estimate)
{
    double left_s = reason->deadline.at_seconds - fth_clock_seconds() - MARGIN_S;
    if (!isfinite(left_s) || !estimate->writing)
        return FTH_SAVE_AFTER; /* there is time, or nothing to lose */
    if (estimate->rest_s + estimate->save_s <= left_s / 2)
        return FTH_SAVE_AFTER;
    return 1.2 * estimate->save_s <= left_s ? FTH_SAVE_INSTEAD : FTH_SAVE_NOT;
}

bool fth_stop_spares_disk(const fth_stop_reason *reason)
{
    return reason->kind == FTH_STOP_REQUEST || strcmp(reason->source, "signal") == 0;
}

fth_deadline fth_stop_store_deadline(const fth_stop_reason *reason, size_t copy_bytes)
{
    const double slow_disk_bytes_per_s = 100e6;
    double given_s = reason->deadline.at_seconds - reason->asked_at_s;
    if (copy_bytes == 0 || !fth_stop_spares_disk(reason) || !isfinite(given_s))
        return reason->deadline;
    double copy_s = MARGIN_S + 0.5 + 2 * (double)copy_bytes / slow_disk_bytes_per_s;
    return (fth_deadline){reason->deadline.at_seconds - fmin(copy_s, 0.5 * given_s)};
}

fth_deadline fth_stop_leaving_deadline(const fth_stop_reason *reason)
{
    return (fth_deadline){reason->deadline.at_seconds - MARGIN_S};
}

/* A stop request without a deadline waits for an update of usual length and for a disk, but not for
 * a store that does not answer. */
static const char *reason_to_abandon_request(const fth_stop_reason *reason, const fth_stop_situation *situation)
{
    double now = fth_clock_seconds(), given_s = reason->deadline.at_seconds - reason->asked_at_s;
    if (now < reason->deadline.at_seconds)
        return NULL;
    if (situation->phase == FTH_PHASE_STEP)
        return now - situation->since_s > fmax(3 * situation->step_s, given_s) ? "the step does not end" : NULL;
    if (situation->phase == FTH_PHASE_ENDING && !situation->in_store)
        return NULL;
    return situation->phase == FTH_PHASE_BEGIN ? "stopped before the first step" : "time is up";
}

const char *fth_stop_reason_to_abandon(const fth_stop_reason *reason, const fth_stop_situation *situation)
{
    const fth_save_estimate *saving = &situation->saving;
    double now = fth_clock_seconds(), left_s = reason->deadline.at_seconds - now;
    double waited_s = now - reason->asked_at_s;
    if (reason->kind == FTH_STOP_FENCED)
        return waited_s > FENCED_GRACE_S ? "another machine has the run, and the last step does not end" : NULL;
    if (!isfinite(left_s))
        return NULL;
    if (reason->kind == FTH_STOP_REQUEST)
        return reason_to_abandon_request(reason, situation);
    if (situation->phase == FTH_PHASE_ENDING)
        return left_s <= 0 ? "time is up" : NULL;
    if (situation->phase == FTH_PHASE_BEGIN)
        return waited_s > START_GRACE_S || left_s < MARGIN_S ? "stopped before the first step" : NULL;
    if (left_s < MARGIN_S)
        return "time is up";
    if (situation->phase != FTH_PHASE_STEP || situation->step_s <= 0)
        return NULL;
    /* Saves were measured during training, and are faster without it: if in doubt, try. */
    double rest_s = fmax(0, situation->since_s + situation->step_s - now);
    bool too_late = rest_s + 0.25 * saving->save_s + MARGIN_S > left_s;
    return too_late && !saving->writing && !saving->waiting ? "the step would not be saved in time" : NULL;
}
