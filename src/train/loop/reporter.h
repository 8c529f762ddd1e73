/* What a run reports: events, which go into its record (record.h lists them) and to the observer,
 * and progress for a live display.
 *
 *     create -> open (there is a record) -> begin (where training begins is known) -> events
 *         and progress -> free
 *
 * An event that cannot be recorded never stops training: the first in a row is a warning. Of peers
 * that train one run together, one has the record; the reporters of the others record nothing and
 * show nothing, but for warnings in the log.
 *
 * fth_reporter_record() and fth_reporter_sync() are for any thread, as the watchdog writes the last
 * events of a training thread that hangs. Everything else belongs to the training thread, and so
 * does the observer. */
#ifndef FTH_TRAIN_REPORTER_H
#define FTH_TRAIN_REPORTER_H

#include "train/loop/spending.h"
#include "train/loop/strategy.h"
#include "train/run/run_store.h"

typedef struct fth_reporter fth_reporter;

/* `observer` outlives the reporter, and may be NULL. */
fth_status fth_reporter_create(const fth_train_observer *observer, fth_reporter **reporter);
void fth_reporter_free(fth_reporter *reporter);

/* The sources of events. All but the record outlive the reporter. */
typedef struct fth_report_sources {
    fth_record *record;       /* handed over; NULL: a peer has it */
    fth_run_store *run_store; /* has a copy of the record, updated after events; or NULL */
    fth_position *position;   /* the reporter adds the accelerator's time to its meters */
    fth_spending *spending;   /* and what earlier machines cost, when a run is resumed */
    const fth_train_options *options;
    fth_device *device;
    const fth_dataset *dataset;
} fth_report_sources;
void fth_reporter_open(fth_reporter *reporter, const fth_report_sources *sources);
/* Hands over another record, with its copy in a store; NULL: a peer has it from now on. */
void fth_reporter_set_record(fth_reporter *reporter, fth_record *record, fth_run_store *run_store);
/* The record, lent; NULL before open() and after a discard. */
fth_record *fth_reporter_get_record(const fth_reporter *reporter);
/* Removes the record of a run that never took a step. Returns false, without touching anything, if
 * the run took one. */
bool fth_reporter_discard_unbegun(fth_reporter *reporter);

/* ---- events ---- */

/* Records an event and shows it to the observer. Steals `event`; NULL (no memory for it) counts as
 * a failure to record. */
void fth_reporter_write(fth_reporter *reporter, const char *name, json_t *event);
/* The same for an event of the strategy, which contains its name. */
void fth_reporter_write_of_strategy(fth_reporter *reporter, json_t *event);
/* Only records it. Any thread. */
void fth_reporter_record(fth_reporter *reporter, const char *name, json_t *event);
/* Makes the record durable. Any thread. */
fth_status fth_reporter_sync(fth_reporter *reporter);
/* Whether the last event could not be recorded. */
bool fth_reporter_is_failing(fth_reporter *reporter);

/* What a start event contains besides the sources. */
typedef struct fth_start_facts {
    bool resumed;
    const char *reason; /* why this process has the record, if a peer had it before; else NULL */
    const fth_strategy *strategy;
    const void *strategy_state;
    int64_t parameters;
} fth_start_facts;
void fth_reporter_write_start(fth_reporter *reporter, const fth_start_facts *facts);
/* The file of the first weights; `head_note` is "" unless the head was replaced. */
void fth_reporter_write_weights(fth_reporter *reporter, const char *format, const char *head_note);
/* The steps since the last such event, if any. */
void fth_reporter_write_step(fth_reporter *reporter);
/* `evaluation` is NULL if the epoch was not validated. */
void fth_reporter_write_epoch(fth_reporter *reporter, const fth_epoch_facts *facts, const fth_evaluation *evaluation);
/* A validation within an epoch. */
void fth_reporter_write_validation(fth_reporter *reporter, const fth_evaluation *evaluation);
/* Events about the data: image files found unreadable since the last such event, and the use of a
 * batch cache. */
void fth_reporter_write_data(fth_reporter *reporter);
void fth_reporter_write_warning(fth_reporter *reporter, const char *message);
/* The same, and logs it. */
void fth_reporter_warn(fth_reporter *reporter, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fth_reporter_write_error(fth_reporter *reporter, fth_status status, const char *message);
void fth_reporter_write_interrupted(fth_reporter *reporter, const fth_stop_reason *reason);
/* The best model's result on test samples, which the "end" event repeats. */
typedef struct fth_test_result {
    int64_t step;            /* of the model */
    const char *data, *file; /* the samples' address, the model's */
    fth_evaluation evaluation;
} fth_test_result;
void fth_reporter_write_test(fth_reporter *reporter, const fth_test_result *result);
/* Returns the event too. json_decref() it. */
json_t *fth_reporter_write_end(fth_reporter *reporter, const char *reason, const char *last_path,
                               const char *best_path);

/* Adds the accelerator's time so far, if there is one, to the position's meters. */
void fth_reporter_sample_accelerator(fth_reporter *reporter);

/* ---- progress ---- */

/* The position is where training begins. */
void fth_reporter_begin(fth_reporter *reporter);
/* A strategy's result, which took `seconds`; it has no samples if no batch was finished. */
void fth_reporter_add_result(fth_reporter *reporter, const fth_step_result *result, double seconds);
/* Shows the step that ended. */
void fth_reporter_show_step(fth_reporter *reporter);
/* Writes a step event if one is due: after the first step, and then every FTH_WINDOW_RESULTS steps
 * or FTH_WINDOW_S. */
void fth_reporter_write_step_if_due(fth_reporter *reporter);
/* Excludes the time of a validation from the interval between step events. */
void fth_reporter_skip_pause(fth_reporter *reporter);
/* Progress shows "evaluating" until this is called with false. */
void fth_reporter_show_evaluating(fth_reporter *reporter, bool evaluating);

#endif
