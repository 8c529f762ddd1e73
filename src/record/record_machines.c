/* The machines a run was on, from its events: when each took over, when it was last seen, how far it came.
 *
 * A "start" or "resume" begins a machine's part; it ends with its last event. A machine that was killed wrote no last
 * word: it counts as paid until its last event, or until its lease was last seen renewed, which the next owner's
 * "resume" tells as "previous_seen_s". Its last events may have died with it; but where the next one goes on, it has
 * been. Time on the wall clock, since parts of one run come from several machines. */
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

/* Within what a run can reach: a record may have been written by anybody, and steps are added and subtracted. */
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

/* What a resume tells about the machine before it. */
static void learn_from_next(fth_record_machine *before, const fth_record_machine *next, double seen_s)
{
    double unheard_s = fmax(0, next->first_elapsed_s - before->last_elapsed_s); /* trained, and kept */
    double silent_s = seen_s - before->last_s;
    if (before->ending == FTH_ENDING_UNKNOWN && silent_s > 0) {
        before->silent_s = fmax(0, silent_s - unheard_s);
        before->last_s = seen_s;
    }
    before->last_elapsed_s = fmax(before->last_elapsed_s, next->first_elapsed_s);
    before->last_epoch = fmax(before->last_epoch, next->first_epoch);
    if (next->first_step > before->last_step)
        before->last_step = next->first_step;
}

static fth_status add_machine(fth_record_summary *summary, size_t *capacity, json_t *event)
{
    double time = number_of(event, "time", 0), seen_s = number_of(event, "previous_seen_s", 0);
    fth_status status = fth_grow(&summary->machines, summary->machine_count, capacity, sizeof *summary->machines);
    if (status != FTH_OK)
        return status;
    /* Waiting for another machine to lose its lease is the process's time, but not this run's. */
    double starting = number_of(event, "process_s", 0) - number_of(event, "waited_s", 0);
    fth_record_machine *machine = &summary->machines[summary->machine_count++];
    *machine = (fth_record_machine){.event = json_incref(event),
                                    .began_s = time - fmax(0, starting),
                                    .last_s = time,
                                    .first_elapsed_s = number_of(event, "elapsed_s", 0),
                                    .first_step = step_of(event, "step"),
                                    .first_epoch = number_of(event, "epoch", 0),
                                    .learning_rate = NAN};
    machine->last_elapsed_s = machine->first_elapsed_s;
    machine->last_step = machine->first_step;
    machine->last_epoch = machine->first_epoch;
    if (summary->machine_count > 1)
        learn_from_next(machine - 1, machine, seen_s <= time ? seen_s : 0);
    return FTH_OK;
}

fth_status fth_record_follow_machine(fth_record_summary *summary, size_t *capacity, const char *name, json_t *event)
{
    if (strcmp(name, "start") == 0 || strcmp(name, "resume") == 0)
        return add_machine(summary, capacity, event);
    fth_record_machine *machine = last_machine(summary);
    if (!machine)
        return FTH_OK;
    bool ended = strcmp(name, "end") == 0;
    /* The largest, not the last: a checkpoint is told when it is written, with the step it was taken at. */
    int64_t step = step_of(event, ended ? "steps" : "step");
    machine->last_step = step > machine->last_step ? step : machine->last_step;
    machine->last_s = fmax(machine->last_s, number_of(event, "time", 0));
    machine->last_elapsed_s = fmax(machine->last_elapsed_s, number_of(event, "elapsed_s", 0));
    machine->last_epoch = fmax(machine->last_epoch, number_of(event, ended ? "epochs" : "epoch", 0));
    machine->learning_rate = number_of(event, "learning_rate", machine->learning_rate);
    if (ended)
        machine->ending = FTH_ENDING_FINISHED;
    else if (strcmp(name, "interrupted") == 0)
        machine->ending = FTH_ENDING_INTERRUPTED;
    else if (strcmp(name, "error") == 0)
        machine->ending = FTH_ENDING_FAILED;
    else if (strcmp(name, "notice") == 0) {
        json_decref(machine->notice);
        machine->notice = json_incref(event);
    }
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
