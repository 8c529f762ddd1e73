/* The machines of a run, from its events: when each took over, its last sign of life, its progress.
 *
 * A "start" or "resume" begins a machine's part; it ends with its last event. A killed machine
 * wrote no last event: it counts as paid until its last event, or until its lease was last seen
 * renewed, which the next owner's "resume" records as "previous_seen_s". Its last events may be
 * lost, but it reached the step at which the next machine continues.
 *
 * A machine's working time is measured by its own monotonic clock ("process_s"), so that setting
 * the wall clock changes no bill. The wall clock is used between machines, and for records without
 * "process_s". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "record/record_internal.h"

static double number_of(const json_t *event, const char *key, double fallback)
{
    const json_t *value = json_object_get(event, key);
    double number = json_is_number(value) ? json_number_value(value) : fallback;
    return isfinite(number) ? number : fallback;
}

/* Clamped to a plausible range: a record is untrusted input, and steps are added and subtracted. */
static int64_t step_of(const json_t *event, const char *key)
{
    const int64_t most = 1000000000000000;
    int64_t step = json_integer_value(json_object_get(event, key));
    return step < 0 ? 0 : step > most ? most : step;
}

static fth_record_machine *last_machine(const fth_record_summary *summary)
{
    return summary->machine_count > 0 ? &summary->machines[summary->machine_count - 1] : NULL;
}

/* The time spent waiting for another machine's lease belongs to the process, but not to this
 * run. */
double fth_record_seconds_until(const fth_record_machine *machine, const json_t *event)
{
    double process_s = number_of(event, "process_s", NAN);
    if (!isfinite(process_s))
        return number_of(event, "time", machine->began_s) - machine->began_s;
    return process_s - number_of(machine->event, "waited_s", 0);
}

/* What a resume records about the machine before it. */
static void learn_from_next(fth_record_machine *before, const fth_record_machine *next)
{
    double unheard_s = fmax(0, next->first_elapsed_s - before->last_elapsed_s); /* trained, and kept */
    double seen_s = number_of(next->event, "previous_seen_s", 0);
    double process_s = number_of(next->event, "previous_process_s", 0);
    if (seen_s > number_of(next->event, "time", 0)) /* clocks that disagree */
        seen_s = 0;
    double silent_s =
        process_s > 0 ? process_s - number_of(before->event, "waited_s", 0) - before->seconds : seen_s - before->last_s;
    if (before->ending == FTH_ENDING_UNKNOWN && silent_s > 0) {
        before->silent_s = fmax(0, silent_s - unheard_s);
        before->seconds += silent_s;
        before->last_s = fmax(before->last_s, seen_s);
    }
    before->last_elapsed_s = fmax(before->last_elapsed_s, next->first_elapsed_s);
    before->last_epoch = fmax(before->last_epoch, next->first_epoch);
    if (next->first_step > before->last_step)
        before->last_step = next->first_step;
}

static fth_status add_machine(fth_record_summary *summary, size_t *capacity, json_t *event)
{
    double time = number_of(event, "time", 0);
    fth_status status = fth_grow(&summary->machines, summary->machine_count, capacity, sizeof *summary->machines);
    if (status != FTH_OK)
        return status;
    double starting_s = fmax(0, number_of(event, "process_s", 0) - number_of(event, "waited_s", 0));
    fth_record_machine *machine = &summary->machines[summary->machine_count++];
    *machine = (fth_record_machine){.event = json_incref(event),
                                    .began_s = time - starting_s,
                                    .last_s = time,
                                    .seconds = starting_s,
                                    .first_elapsed_s = number_of(event, "elapsed_s", 0),
                                    .first_step = step_of(event, "step"),
                                    .first_epoch = number_of(event, "epoch", 0),
                                    .learning_rate = NAN};
    machine->last_elapsed_s = machine->first_elapsed_s;
    machine->last_step = machine->first_step;
    machine->last_epoch = machine->first_epoch;
    if (summary->machine_count > 1)
        learn_from_next(machine - 1, machine);
    return FTH_OK;
}

fth_status fth_record_add_resume(fth_record_summary *summary, json_t *event)
{
    size_t capacity = summary->machine_count;
    return add_machine(summary, &capacity, event);
}

static void follow_ending(fth_record_machine *machine, const char *name, json_t *event)
{
    if (strcmp(name, "end") == 0)
        machine->ending = FTH_ENDING_FINISHED;
    else if (strcmp(name, "interrupted") == 0)
        machine->ending = FTH_ENDING_INTERRUPTED;
    else if (strcmp(name, "error") == 0)
        machine->ending = FTH_ENDING_FAILED;
    else if (strcmp(name, "notice") == 0) {
        json_decref(machine->notice);
        machine->notice = json_incref(event);
    }
}

fth_status fth_record_follow_machine(fth_record_summary *summary, size_t *capacity, const char *name, json_t *event,
                                     double *machine_s)
{
    if (strcmp(name, "start") == 0 || strcmp(name, "resume") == 0) {
        fth_status status = add_machine(summary, capacity, event);
        *machine_s = status == FTH_OK ? last_machine(summary)->seconds : NAN;
        return status;
    }
    fth_record_machine *machine = last_machine(summary);
    *machine_s = machine ? fth_record_seconds_until(machine, event) : NAN;
    if (!machine)
        return FTH_OK;
    bool ended = strcmp(name, "end") == 0;
    /* The largest, not the last: a checkpoint event is recorded when the checkpoint is written,
     * with the step at which it was taken. */
    int64_t step = step_of(event, ended ? "steps" : "step");
    machine->last_step = step > machine->last_step ? step : machine->last_step;
    machine->seconds = fmax(machine->seconds, *machine_s);
    machine->last_s = number_of(event, "time", machine->last_s);
    machine->last_elapsed_s = fmax(machine->last_elapsed_s, number_of(event, "elapsed_s", 0));
    /* A parameter server's "epoch" is a validation: it says nothing of training, and its number
     * counts validations. */
    if (strcmp(name, "epoch") != 0 || json_object_get(event, "train_loss"))
        machine->last_epoch = fmax(machine->last_epoch, number_of(event, ended ? "epochs" : "epoch", 0));
    machine->learning_rate = number_of(event, "learning_rate", machine->learning_rate);
    follow_ending(machine, name, event);
    return FTH_OK;
}

void fth_record_release_machines(fth_record_summary *summary)
{
    for (size_t i = 0; i < summary->machine_count; i++) {
        json_decref(summary->machines[i].event);
        json_decref(summary->machines[i].notice);
    }
    free(summary->machines);
    summary->machines = NULL;
    summary->machine_count = 0;
}
