/* Money: which machine this process runs on, what it costs an hour, what the run has cost so far on
 * all its machines, and whether the budget leaves room for another step. (src/cost reads the same
 * from a finished record.)
 *
 * The metadata service is asked in a thread of its own while device and data are opened, for a
 * second at most, and only where there may be one: the firmware's names say whether this is a
 * cloud's machine (a few small files), or an endpoint is given by FARTHING_AWS_METADATA or its
 * relatives, or --watch names a cloud. A run on a laptop asks nobody.
 *
 *     create -> set_takeover (a run in a store)
 *            -> begin_identify ... (device and data open) ... find_price
 *                 -> start event, run.json
 *                 -> budget_is_spent, before each step
 *
 * Belongs to the training thread. */
#ifndef FTH_TRAIN_SPENDING_H
#define FTH_TRAIN_SPENDING_H

#include "train/loop/position.h"

typedef struct fth_spending fth_spending;

fth_status fth_spending_create(fth_spending **spending);
void fth_spending_free(fth_spending *spending); /* waits for the metadata service, a second at most */

/* How long the process waited for another machine to give up the run, which is not the run's time;
 * and of a machine that was killed, when it was last seen (wall clock) and how long its process had
 * run by then. 0: not known. */
void fth_spending_set_takeover(fth_spending *spending, double waited_s, double previous_seen_s,
                               double previous_process_s);

/* This process was one of several that train the run, and from now on writes its record: what its
 * machine cost up to here is in the record of the processes that led before it. */
void fth_spending_begin_to_lead(fth_spending *spending);
/* The other machines that train the run from now on, from a "group" event: what they cost is spent
 * too. */
void fth_spending_set_group(fth_spending *spending, const json_t *group);

/* From now on this process has the record, which a peer had before: what this machine and the
 * others of the group cost until now is in that. */
void fth_spending_take_over(fth_spending *spending);

void fth_spending_begin_identify(fth_spending *spending, const char *watch);
/* This machine's price, from --price or a catalogue, and the budget. Clears options->price if it
 * was given for another machine of the stored run (`run` is its run.json, or NULL). FTH_INVALID if
 * --budget needs a price and there is none. */
fth_status fth_spending_find_price(fth_spending *spending, fth_train_options *options, const json_t *run);

/* Adds host, cloud, instance, region, market and price, as far as they are known. */
void fth_spending_describe_machine(const fth_spending *spending, json_t *object);
void fth_spending_describe_takeover(const fth_spending *spending, json_t *event);
/* Adds "spent_usd", where a price is known, and "process_s", the moment it refers to. */
void fth_spending_describe_spent(const fth_spending *spending, json_t *event);

/* Adds up what earlier machines cost, as the report will count it once `resume` is in the record of
 * `run_folder`. */
fth_status fth_spending_add_up_before(fth_spending *spending, const char *run_folder, json_t *resume);

/* ---- the budget ---- */

/* For estimates before anything was measured. */
typedef struct fth_workload {
    int64_t images_per_step, validation_images;
    double checkpoint_bytes;
} fth_workload;
void fth_spending_set_workload(fth_spending *spending, fth_workload workload);

/* True if one more step, with the validation and saving that may follow, would pass the budget.
 * Call it before each: how long things take is measured between calls, from the clock and `meters`.
 * `save_s`: how long a checkpoint takes to be written in the background; 0: not known. */
bool fth_spending_budget_is_spent(fth_spending *spending, const fth_meters *meters, double save_s);
/* When the budget is spent but for the time to save and leave; never, if there is no budget. */
fth_deadline fth_spending_budget_deadline(const fth_spending *spending, double save_s);

#endif
