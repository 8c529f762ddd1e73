/* --checkpoint-every auto: Young's interval, sqrt(2 C M), for a save that costs C and a machine that lasts M.
 *
 *     C    what a save takes from training: the stall of its copy, and a tenth of the time in which it is written
 *          beside training (the writer's share of a processor by its priority)
 *     M    time between interruptions: of this run so far, with one hour and one interruption added as what is assumed
 *          of an unknown machine; clouds do much better on most days and much worse on some
 *
 * The interval is never so short that saving takes more than --checkpoint-overhead, nor shorter than a save takes to be
 * written. It is chosen anew after each save and told where it changed by a fifth. */
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "train/trainer_internal.h"

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

fth_status fth_trainer_begin_interval(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_record_summary record = {0};

    FTH_TRY(fth_interval_parse(trainer->setup.options->checkpoint_every, &trainer->interval));
    if (!trainer->interval.automatic)
        goto out;
    trainer->interval.seconds = FIRST_S;
    FTH_TRY(fth_share_parse(trainer->setup.options->checkpoint_overhead, &trainer->checkpoint_overhead));
    if (trainer->beginning.folder) {
        FTH_TRY(fth_record_read(trainer->beginning.folder, &record));
        trainer->interruptions = record.resumes + 1; /* and this one */
    }

out:
    fth_record_release(&record);
    return status;
}

void fth_trainer_adapt_interval(fth_trainer *trainer)
{
    const fth_saving *saving = &trainer->saving;
    if (!trainer->interval.automatic)
        return;
    double cost_s = saving->stall_s + SHARE_OF_A_PROCESSOR * saving->save_s;
    double between_s =
        (fth_position_elapsed(&trainer->position) + ASSUMED_BETWEEN_S) / (double)(trainer->interruptions + 1);
    double seconds = fth_young_interval(cost_s, between_s, saving->save_s, trainer->checkpoint_overhead);
    if (fabs(seconds - trainer->interval.seconds) < 0.2 * trainer->interval.seconds)
        return;
    trainer->interval.seconds = seconds;
    char text[48], between[48];
    fth_duration_format(seconds, text, sizeof text);
    fth_duration_format(between_s, between, sizeof between);
    fth_log_info("a checkpoint every %s: one stalls training for %.0f ms and is written in %.1f s, and a machine is "
                 "expected to last %s",
                 text, 1e3 * saving->stall_s, saving->save_s, between);
    fth_reporter_write(trainer->reporter, "interval",
                       json_pack("{s:s, s:f, s:I, s:f, s:f, s:f, s:f, s:o}", "event", "interval", "time", 0.0, "step",
                                 (json_int_t)trainer->position.step, "seconds", seconds, "stall_s", saving->stall_s,
                                 "save_s", saving->save_s, "step_s", trainer->guardian.step_s,
                                 "between_interruptions_s", fth_json_number(between_s)));
}
