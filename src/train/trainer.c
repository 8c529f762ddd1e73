/* The training loop.
 *
 *     begin    find the run; open device, data, engine and record; restore the newest checkpoint
 *     loop     at the end of an epoch: validate, keep the best model
 *              stop if a limit is reached or a stop was asked for, here or of a peer
 *              checkpoint if one is due
 *              one update
 *     end      validate, checkpoint, model file, "end" (or "interrupted", or "error")
 *
 * Each step is an object's: the trainer below holds them and says in which order they act. Everything between two updates
 * follows from fth_train_state (position.h), which is what a checkpoint holds; so a run that was killed anywhere continues
 * from its last checkpoint as if nothing had happened. Epoch sums are set back after validation: a state at the end of an
 * epoch whose sums are not zero still has its validation to do. Where a strategy has workers, validation may run alongside
 * them (validator.h), and state.pending is what is still to do. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "train/guardian.h"
#include "train/run_record.h"
#include "train/run_takeover.h"
#include "train/shared_run.h"
#include "train/stepper.h"
#include "train/validator.h"

typedef struct fth_trainer {
    fth_beginning beginning;
    fth_setup setup;
    fth_position position;
    fth_stop *stop; /* NULL: no stop can be asked for */
    fth_reporter *reporter;
    fth_spending *spending;
    fth_guardian *guardian;
    fth_run_store *run_store; /* what --checkpoints names, or NULL */
    fth_stepper *stepper;
    fth_validator *validator;
    fth_saver *saver;            /* NULL, as the paths, before there is a record, and where a peer has it */
    char *last_path, *best_path; /* model files in the run's folder */
    bool begun;                  /* the start was written: from here on there is something to save */
    bool save_now;               /* a record that was taken over has no checkpoint yet */
} fth_trainer;

/* ---- the beginning ---- */

/* Where notices of preemption come from: --watch; else a run that lives in a store finds out. */
static const char *choose_sources(const fth_train_options *options)
{
    return *options->watch ? options->watch : (*options->checkpoints ? "auto" : "none");
}

/* In a store, waiting for its lease, or as beginning.h says. */
static fth_status look_for_run(fth_trainer *trainer, const fth_train_options *asked)
{
    fth_status status = FTH_OK;
    if (!*asked->checkpoints)
        return fth_beginning_find(asked, &trainer->beginning);
    FTH_TRY(fth_beginning_prepare(asked, &trainer->beginning));
    FTH_TRY(fth_run_store_open(asked, &trainer->run_store));
    fth_guardian_set_run(trainer->guardian, &(fth_guarded_run){.run_store = trainer->run_store});
    FTH_TRY(fth_stored_run_find(trainer->run_store, trainer->stop, asked->standby, &trainer->beginning));
    fth_takeover takeover = fth_run_store_get_takeover(trainer->run_store);
    fth_spending_set_takeover(trainer->spending, takeover.waited_s, takeover.previous_seen_s,
                              takeover.previous_process_s);

out:
    return status;
}

/* Tells peers what was found, or why nothing was. */
static fth_status share_run(fth_trainer *trainer, fth_status found, json_t *end)
{
    fth_status status = FTH_OK;
    json_t *run = NULL;
    char *message = NULL;

    if (found != FTH_OK) {
        message = fth_format("%s", fth_error_message());
        run = fth_shared_run_describe_failure(found);
        if (!run || fth_stepper_share_run(trainer->stepper, run) != FTH_OK)
            fth_log_warning("the other processes do not know why this one ends: %s", fth_error_message());
        status = fth_fail(found, "%s", message ? message : "the run was not found");
        goto out;
    }
    FTH_TRY(fth_shared_run_describe(&trainer->beginning, end, &run));
    FTH_TRY(fth_stepper_share_run(trainer->stepper, run));

out:
    json_decref(run);
    free(message);
    return status;
}

/* Sets what a finished run has as its outcome. */
static fth_status report_finished(const fth_beginning *beginning, fth_train_outcome *outcome)
{
    fth_record_summary summary = {0};
    fth_status status = fth_record_read(beginning->folder, &summary);
    if (status != FTH_OK)
        return status;
    outcome->already_finished = true;
    outcome->run_folder = fth_format("%s", beginning->folder);
    outcome->id = fth_format("%s", summary.id);
    outcome->end = json_incref(summary.end);
    fth_record_release(&summary);
    return FTH_OK;
}

static fth_status follow_run(fth_trainer *trainer, const fth_train_options *asked, const json_t *run,
                             fth_train_outcome *outcome)
{
    fth_status status = fth_shared_run_follow(asked, run, &trainer->beginning);
    outcome->follows = true;
    if (status == FTH_OK && trainer->beginning.finished) {
        outcome->already_finished = true;
        outcome->end = json_incref(json_object_get(run, "end"));
    }
    return status;
}

/* One of several peers looks for it, and the others follow what that one found. A run that is finished sets the
 * outcome. */
static fth_status find_run(fth_trainer *trainer, const fth_train_options *asked, const fth_strategy *const *strategies,
                           fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    const fth_strategy *strategy = NULL;
    json_t *run = NULL;

    if (fth_strategy_find(strategies, asked->strategy, &strategy) == FTH_OK && strategy->meet) {
        FTH_TRY(fth_strategy_choose(strategies, asked, &strategy)); /* said now, and not after waiting for peers */
        FTH_TRY(fth_stepper_meet(trainer->stepper, strategy, asked, &run));
    }
    if (run) {
        FTH_TRY(follow_run(trainer, asked, run, outcome));
        goto out;
    }
    status = look_for_run(trainer, asked);
    if (status == FTH_OK && trainer->beginning.finished) {
        if (trainer->run_store)
            fth_run_store_fetch_models(trainer->run_store, trainer->beginning.folder);
        status = report_finished(&trainer->beginning, outcome);
    }
    if (fth_stepper_has_met(trainer->stepper))
        status = share_run(trainer, status, outcome->end);

out:
    json_decref(run);
    return status;
}

/* Where the run that was found says that it has peers, and the options did not: each has found it by itself. */
static fth_status meet_late(fth_trainer *trainer, const fth_train_options *asked, const fth_strategy *strategy,
                            fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    json_t *run = NULL;

    FTH_TRY(fth_stepper_meet(trainer->stepper, strategy, &trainer->beginning.options, &run));
    if (run) {
        fth_beginning_release(&trainer->beginning);
        FTH_TRY(follow_run(trainer, asked, run, outcome));
    } else {
        FTH_TRY(share_run(trainer, FTH_OK, NULL));
    }

out:
    json_decref(run);
    return status;
}

/* What every process has, whether it has the record or a peer. */
static fth_status open_objects(fth_trainer *trainer)
{
    const fth_setup *setup = &trainer->setup;
    fth_reporter_open(trainer->reporter, &(fth_report_sources){.position = &trainer->position,
                                                               .spending = trainer->spending,
                                                               .options = setup->options,
                                                               .device = setup->device,
                                                               .dataset = setup->dataset});
    return fth_validator_create(
        &(fth_validator_options){
            .setup = setup, .position = &trainer->position, .reporter = trainer->reporter, .stop = trainer->stop},
        &trainer->validator);
}

/* The record, and what keeps the run safe and its best model. */
static fth_status open_record(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    const fth_setup *setup = &trainer->setup;
    fth_record *record = NULL;

    FTH_TRY(fth_run_record_open(&trainer->beginning, setup, trainer->spending, &record));
    fth_reporter_set_record(trainer->reporter, record, trainer->run_store);
    const char *folder = fth_record_folder(record);
    trainer->last_path = fth_path_join(folder, "last.safetensors");
    trainer->best_path = fth_path_join(folder, "best.safetensors");
    FTH_REQUIRE(trainer->last_path && trainer->best_path, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_saver_create(&(fth_saver_options){.train = setup->options,
                                                  .engine = setup->engine,
                                                  .position = &trainer->position,
                                                  .dataset = setup->dataset,
                                                  .reporter = trainer->reporter,
                                                  .stop = trainer->stop,
                                                  .run_store = trainer->run_store,
                                                  .folder = folder,
                                                  .best_path = trainer->best_path,
                                                  .resumed = trainer->beginning.folder != NULL},
                             &trainer->saver));
    fth_validator_set_saver(trainer->validator, trainer->saver, trainer->best_path);
    fth_guardian_set_run(
        trainer->guardian,
        &(fth_guarded_run){.run_store = trainer->run_store, .saver = trainer->saver, .best_path = trainer->best_path});

out:
    return status;
}

/* Brings a run that is continued to where it stopped. */
static fth_status restore(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    bool restored = false;

    FTH_TRY(fth_saver_restore(trainer->saver, &restored));
    if (!restored) /* killed before its first checkpoint */
        FTH_TRY(fth_setup_load_weights(&trainer->setup, &trainer->position));
    /* Only now: a run that cannot be continued stays as it was. */
    FTH_TRY(fth_run_record_configure(fth_reporter_get_record(trainer->reporter), &trainer->beginning, &trainer->setup,
                                     trainer->spending));

out:
    return status;
}

/* The record is in the store from now on, where there is one. */
static fth_status begin_store(fth_trainer *trainer, bool resumed)
{
    fth_status status = FTH_OK;
    if (!trainer->run_store)
        return FTH_OK;
    FTH_TRY(fth_run_store_begin(trainer->run_store, fth_record_folder(fth_reporter_get_record(trainer->reporter)),
                                trainer->beginning.stored_bytes));
    FTH_TRY(fth_run_store_put_run(trainer->run_store, !resumed));

out:
    return status;
}

static void write_start(fth_trainer *trainer, bool resumed)
{
    const fth_setup *setup = &trainer->setup;
    fth_reporter_write_start(
        trainer->reporter,
        &(fth_start_facts){.resumed = resumed,
                           .strategy = setup->strategy,
                           .strategy_state = fth_stepper_get_state(trainer->stepper),
                           .parameters = fth_graph_trainable_count(fth_engine_graph(setup->engine))});
    if (resumed)
        fth_saver_check_best(trainer->saver);
    if (*setup->weights_format)
        fth_reporter_write_weights(trainer->reporter, setup->weights_format, setup->weights.head_note);
}

/* Nothing is written before everything that can be wrong with the options or the data has been checked. */
static fth_status begin(fth_trainer *trainer, const fth_strategy *strategy)
{
    fth_status status = FTH_OK;
    const bool resumed = trainer->beginning.run != NULL;

    FTH_TRY(fth_setup_open(&trainer->beginning, strategy, trainer->stop, trainer->spending, &trainer->setup,
                           &trainer->position));
    FTH_TRY(fth_stepper_connect(trainer->stepper, &trainer->setup));
    const bool leads = !fth_stepper_follows(trainer->stepper);
    if (!resumed)
        FTH_TRY(fth_setup_load_weights(&trainer->setup, &trainer->position));
    FTH_TRY(open_objects(trainer));
    if (leads)
        FTH_TRY(open_record(trainer));
    if (leads && resumed)
        FTH_TRY(restore(trainer));
    if (leads)
        FTH_TRY(begin_store(trainer, resumed));
    FTH_TRY(fth_setup_keep_data(&trainer->setup));
    FTH_TRY(fth_stepper_open(trainer->stepper));

    fth_position_start_clock(&trainer->position);
    if (leads)
        fth_saver_begin(trainer->saver);
    fth_reporter_begin(trainer->reporter);
    trainer->begun = true;
    if (leads)
        write_start(trainer, resumed);
    fth_guardian_begin_training(trainer->guardian, trainer->position.step);

out:
    return status;
}

/* ---- the loop ---- */

/* The limit that is reached, by its option's name, or NULL. */
static const char *reached_limit(const fth_trainer *trainer)
{
    const fth_train_options *options = trainer->setup.options;
    const fth_goal *goal = &trainer->setup.goal;
    const fth_train_state *state = &trainer->position.state;
    if (goal->kind != FTH_GOAL_NONE && state->validation_step >= 0) {
        bool reached = goal->kind == FTH_GOAL_ACCURACY ? state->validation_accuracy >= goal->value
                                                       : state->validation_loss <= goal->value;
        if (reached)
            return "until";
    }
    if (options->epochs > 0 && state->batches >= options->epochs * trainer->position.batches_per_epoch)
        return "epochs";
    if (options->steps > 0 && trainer->position.step >= options->steps)
        return "steps";
    if (options->for_s > 0 && state->elapsed_s >= options->for_s)
        return "for";
    return fth_stepper_ended_by(trainer->stepper);
}

/* The same, or "budget" if the next update would pass it. */
static const char *reason_to_end(fth_trainer *trainer)
{
    const char *limit = reached_limit(trainer);
    if (limit)
        return limit;
    bool spent = fth_spending_budget_is_spent(trainer->spending, &trainer->position.state.meters,
                                              fth_saver_get_save_s(trainer->saver));
    return spent ? "budget" : NULL;
}

/* None while a validation runs alongside training: what a checkpoint says of an epoch, and its event, would disagree
 * after a kill. An epoch that ends with a checkpoint wanted is validated while training waits. */
static bool checkpoint_is_due(const fth_trainer *trainer)
{
    return trainer->position.state.pending.epoch == 0 && (trainer->save_now || fth_saver_is_due(trainer->saver));
}

/* The last validation has the machine to itself; and where its result decides about the end, it is waited for. */
static bool may_validate_alongside(const fth_trainer *trainer)
{
    return trainer->setup.strategy->validates_alongside && trainer->setup.goal.kind == FTH_GOAL_NONE &&
           !reached_limit(trainer) && !fth_saver_is_due(trainer->saver);
}

/* The end of an epoch, and what comes next: the same in all processes that train together. */
static fth_status prepare_update(fth_trainer *trainer, fth_intent *intent)
{
    fth_status status = FTH_OK;

    if (fth_stepper_is_at_epoch_end(trainer->stepper)) {
        FTH_TRY(fth_stepper_settle(trainer->stepper));
        FTH_TRY(fth_validator_finish_epoch(trainer->validator, may_validate_alongside(trainer)));
    }
    *intent = (fth_intent){.end = reason_to_end(trainer),
                           .stop = trainer->stop && trainer->stop->asked,
                           .checkpoint = checkpoint_is_due(trainer)};
    FTH_TRY(fth_stepper_agree(trainer->stepper, intent));
    if (intent->checkpoint && !intent->end && !intent->stop)
        FTH_TRY(fth_stepper_settle(trainer->stepper));

out:
    return status;
}

static fth_status make_update(fth_trainer *trainer, bool first)
{
    fth_status status = FTH_OK;

    fth_guardian_enter(trainer->guardian, FTH_PHASE_STEP);
    FTH_TRY(fth_stepper_update(trainer->stepper));
    fth_guardian_end_step(trainer->guardian, trainer->position.step);
    if (first) { /* not before: the first update should not wait for it; after it nothing large is allocated */
        FTH_TRY(fth_setup_prepare(&trainer->setup));
        FTH_TRY(fth_saver_start(trainer->saver));
    }

out:
    return status;
}

/* ---- who leads ---- */

/* The run continues with the record of this process: that of the run's folder, if it is on this machine, or a new one. */
static fth_status lead(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_beginning *beginning = &trainer->beginning;
    char *folder = fth_path_join(beginning->options.runs, beginning->id);

    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    if (fth_record_exists(folder)) {
        free(beginning->folder);
        beginning->folder = folder;
        folder = NULL;
    }
    FTH_TRY(open_record(trainer));
    fth_saver_begin(trainer->saver);
    write_start(trainer, true);
    FTH_TRY(fth_saver_start(trainer->saver));
    trainer->save_now = true;

out:
    free(folder);
    return status;
}

/* A peer has the record from now on. */
static void follow(fth_trainer *trainer)
{
    fth_guardian_set_run(trainer->guardian, &(fth_guarded_run){0});
    fth_validator_set_saver(trainer->validator, NULL, NULL);
    fth_saver_free(trainer->saver);
    trainer->saver = NULL;
    fth_reporter_set_record(trainer->reporter, NULL, NULL);
    free(trainer->last_path);
    free(trainer->best_path);
    trainer->last_path = trainer->best_path = NULL;
}

/* After the group has changed. */
static fth_status take_place(fth_trainer *trainer)
{
    const bool leads = !fth_stepper_follows(trainer->stepper);
    if (leads && !trainer->saver)
        return lead(trainer);
    if (!leads && trainer->saver)
        follow(trainer);
    return FTH_OK;
}

/* Without a peer that was lost, if that is what *status says and the strategy can do so. */
static void recover(fth_trainer *trainer, fth_status *status)
{
    if (!fth_stepper_recover(trainer->stepper, status))
        return;
    fth_guardian_enter(trainer->guardian, FTH_PHASE_BETWEEN);
    *status = take_place(trainer);
}

/* With peers that wait to join. */
static fth_status rejoin(fth_trainer *trainer)
{
    fth_status status = fth_stepper_rejoin(trainer->stepper);
    return status == FTH_OK ? take_place(trainer) : status;
}

/* Trains until a limit is reached (*reason names it) or a stop is asked for (FTH_INTERRUPTED). */
static fth_status loop(fth_trainer *trainer, const char **reason)
{
    fth_status status = FTH_OK;
    for (bool first = true;;) {
        FTH_TRY(fth_validator_follow(trainer->validator, false));
        FTH_TRY(fth_saver_collect(trainer->saver, fth_guardian_get_step_s(trainer->guardian)));
        fth_guardian_report_messages(trainer->guardian);
        fth_intent intent = {0};
        status = prepare_update(trainer, &intent);
        if (status == FTH_OK && (intent.end || intent.stop)) {
            *reason = intent.end;
            return intent.end ? FTH_OK : FTH_INTERRUPTED;
        }
        if (status == FTH_OK && intent.checkpoint) {
            FTH_TRY(fth_saver_save(trainer->saver));
            trainer->save_now = false;
        }
        if (status == FTH_OK)
            status = intent.rejoin ? rejoin(trainer) : make_update(trainer, first);
        first = first && (status != FTH_OK || intent.rejoin);
        recover(trainer, &status);
        FTH_TRY(status);
    }

out:
    return status;
}

/* ---- the end ---- */

static fth_status save_last_model(fth_trainer *trainer)
{
    const fth_train_state *state = &trainer->position.state;
    return fth_saver_save_model(trainer->saver, trainer->setup.engine, trainer->position.step,
                                state->counter_start + state->batches, trainer->last_path);
}

/* The last events, and then the run is free for the next owner. */
static fth_status leave_store(fth_trainer *trainer)
{
    return trainer->run_store ? fth_run_store_leave(trainer->run_store) : FTH_OK;
}

/* The last validation, as far as the budget goes: it was expected to fit, but saving comes first. */
static fth_status validate_at_end(fth_trainer *trainer)
{
    const fth_deadline deadline = fth_spending_budget_deadline(trainer->spending, fth_saver_get_save_s(trainer->saver));
    fth_status status = fth_validator_validate(trainer->validator, deadline);
    if (status != FTH_TIMEOUT || !fth_deadline_passed(deadline))
        return status;
    fth_reporter_warn(trainer->reporter,
                      "the budget ended before the last validation did: the weights are saved, how good they are is "
                      "not known; find out with `farthing evaluate`");
    return FTH_OK;
}

static fth_status end(fth_trainer *trainer, const char *reason, json_t **event)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_stepper_settle(trainer->stepper));
    fth_reporter_write_step(trainer->reporter);
    FTH_TRY(fth_validator_follow(trainer->validator, true));
    if (trainer->position.state.validation_step != trainer->position.step)
        FTH_TRY(validate_at_end(trainer));
    FTH_TRY(fth_saver_finish(trainer->saver));
    fth_guardian_report_messages(trainer->guardian);
    FTH_REQUIRE(fth_stop_get(trainer->stop).kind < FTH_STOP_PREEMPTION, FTH_INTERRUPTED,
                "stopped at the end"); /* all is saved: another machine ends it */
    FTH_TRY(save_last_model(trainer));
    if (trainer->run_store)
        FTH_TRY(fth_run_store_put_models(trainer->run_store, trainer->position.state.best_step, trainer->best_path,
                                         trainer->last_path));
    fth_reporter_write_bad_images(trainer->reporter);
    *event = fth_reporter_write_end(trainer->reporter, reason, trainer->last_path, trainer->best_path);
    FTH_REQUIRE(!fth_reporter_is_failing(trainer->reporter), FTH_IO,
                "the end of run %s could not be recorded; see above",
                fth_record_id(fth_reporter_get_record(trainer->reporter)));
    FTH_TRY(fth_reporter_sync(trainer->reporter));
    FTH_TRY(leave_store(trainer));

out:
    return status;
}

/* ---- other endings ---- */

/* Saves what fits before the deadline, and says how it went. */
static fth_status interrupt(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_stop_reason reason = fth_stop_get(trainer->stop);
    const bool stays = reason.kind == FTH_STOP_REQUEST && !trainer->run_store; /* the machine, as far as we know */

    if (stays)
        reason.deadline.at_seconds = INFINITY; /* a disk gets the time it needs */
    FTH_TRY(fth_stepper_settle(trainer->stepper));
    fth_validator_cancel(trainer->validator);
    fth_guardian_enter(trainer->guardian, FTH_PHASE_ENDING);
    fth_reporter_write_step(trainer->reporter);
    FTH_TRY(fth_saver_save_at_stop(trainer->saver, &reason));
    fth_guardian_report_messages(trainer->guardian);
    const bool copied = fth_saver_look(trainer->saver).copy_step > 0;
    if (trainer->run_store && !copied) /* after what matters more */
        fth_run_store_put_best_in_time(trainer->run_store, trainer->best_path, reason.deadline);
    if (stays && trainer->position.step > 0)
        FTH_TRY(save_last_model(trainer));
    fth_reporter_write_bad_images(trainer->reporter);
    if (trainer->saver)
        fth_guardian_report_notice(trainer->guardian, &reason);
    fth_reporter_write_interrupted(trainer->reporter, &reason);
    FTH_TRY(fth_reporter_sync(trainer->reporter));
    if (copied && fth_saver_is_closing(trainer->saver))
        fth_guardian_end_process(trainer->guardian);
    status = leave_store(trainer);
    if (status != FTH_OK && status != FTH_PEER_LOST) { /* the checkpoint is safe, and that is what counts */
        fth_log_warning("%s", fth_error_message());
        status = FTH_OK;
    }
    fth_guardian_acknowledge(trainer->guardian);

out:
    return status;
}

/* A run that never took a step leaves nothing behind, here or in a store; of any other run nothing is touched. */
static void discard_unbegun(fth_trainer *trainer)
{
    fth_run_store *store = trainer->run_store;
    bool was_stored = store && fth_run_store_is_mirrored(store);
    if (!fth_reporter_discard_unbegun(trainer->reporter))
        return;
    if (was_stored && !fth_run_store_is_lost(store) && fth_run_store_discard(store) != FTH_OK)
        fth_log_warning("%s keeps the record of a run that never took a step, which the next one replaces: %s",
                        fth_run_store_url(store), fth_error_message());
}

/* Another machine has the run: nothing more may be written to the store, and this one says why it ends. */
static fth_status conclude_fenced(fth_trainer *trainer, const char *message, fth_train_outcome *outcome)
{
    fth_log_warning("%s", message);
    if (trainer->begun)
        fth_reporter_write_warning(trainer->reporter, message);
    outcome->fenced = outcome->interrupted = true;
    return FTH_OK;
}

/* Says where it happened and what to try, whichever check noticed it: of the loss, the gradients or the weights. Weights
 * that were read are finite (engine_load.c): it is training that made them otherwise. */
static fth_status fail_diverged(const fth_trainer *trainer, const char *what)
{
    return fth_fail(FTH_DIVERGED,
                    "%s after step %" PRId64 " (epoch %.2f, learning rate %g): training diverged. Checkpoints "
                    "from before it, if any, are kept; try a lower --lr, --warmup 200 or --clip 1",
                    what, trainer->position.step, fth_position_epoch(&trainer->position),
                    trainer->position.learning_rate);
}

static fth_status conclude_failed(fth_trainer *trainer, fth_status status)
{
    char *message = fth_format("%s", fth_error_message());
    if (fth_reporter_get_record(trainer->reporter)) {
        fth_reporter_write_bad_images(trainer->reporter);
        fth_reporter_write_error(trainer->reporter, status, message);
    }
    discard_unbegun(trainer);
    leave_store(trainer);
    fth_fail(status, "%s", message);
    free(message);
    return status;
}

/* Anything but an end: interrupted, fenced or failed. */
static fth_status conclude(fth_trainer *trainer, fth_status status, fth_train_outcome *outcome)
{
    fth_stop_reason reason = fth_stop_get(trainer->stop);
    if (status == FTH_INTERRUPTED && reason.kind != FTH_STOP_FENCED && trainer->begun) {
        status = interrupt(trainer);
        if (!trainer->run_store) /* a store's is left to its next owner: there may be no time to tidy it */
            discard_unbegun(trainer);
    } else if (status == FTH_INTERRUPTED && reason.kind != FTH_STOP_FENCED) {
        fth_guardian_enter(trainer->guardian, FTH_PHASE_ENDING); /* nothing was begun, nothing is to be saved */
        status = leave_store(trainer);
    }
    char *message = fth_format("%s", fth_error_message());
    reason = fth_stop_get(trainer->stop);
    bool lost = status == FTH_PEER_LOST && trainer->run_store && fth_run_store_is_lost(trainer->run_store);
    if (lost || reason.kind == FTH_STOP_FENCED) {
        status = conclude_fenced(trainer, reason.kind == FTH_STOP_FENCED ? reason.message : message, outcome);
        goto out;
    }
    outcome->interrupted = status == FTH_OK;
    outcome->local_copy = trainer->saver ? fth_saver_describe_copy(trainer->saver) : NULL;
    if (status == FTH_DIVERGED)
        fail_diverged(trainer, message);
    if (status != FTH_OK)
        status = conclude_failed(trainer, status);

out:
    free(message);
    return status;
}

/* ---- all of it ---- */

/* What is there from the start to the very end, whatever happens. */
static fth_status create(fth_trainer *trainer, const fth_train_observer *observer)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_spending_create(&trainer->spending));
    FTH_TRY(fth_reporter_create(observer, &trainer->reporter));
    FTH_TRY(fth_guardian_create(trainer->stop, observer, trainer->reporter, &trainer->guardian));
    FTH_TRY(fth_stepper_create(&trainer->position, trainer->reporter, trainer->stop, &trainer->stepper));

out:
    return status;
}

static void release(fth_trainer *trainer)
{
    fth_stepper_free(trainer->stepper);
    fth_validator_free(trainer->validator);
    fth_guardian_free(trainer->guardian); /* before what it guards */
    fth_saver_free(trainer->saver);
    fth_run_store_free(trainer->run_store);
    fth_reporter_free(trainer->reporter);
    fth_spending_free(trainer->spending);
    fth_setup_release(&trainer->setup);
    free(trainer->last_path);
    free(trainer->best_path);
    fth_beginning_release(&trainer->beginning);
}

static fth_status train(fth_trainer *trainer, const fth_train_options *options, const fth_strategy *const *strategies,
                        fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    const fth_strategy *strategy = NULL;
    const char *reason = NULL;

    FTH_TRY(fth_guardian_listen(trainer->guardian, choose_sources(options))); /* first: finding the run may wait */
    FTH_TRY(find_run(trainer, options, strategies, outcome));
    FTH_TRY(fth_strategy_choose(strategies, &trainer->beginning.options, &strategy));
    if (trainer->beginning.finished)
        goto out;
    if (strategy->meet && !fth_stepper_has_met(trainer->stepper))
        FTH_TRY(meet_late(trainer, options, strategy, outcome));
    FTH_TRY(begin(trainer, strategy));
    FTH_TRY(loop(trainer, &reason));
    FTH_TRY(end(trainer, reason, &outcome->end));

out:
    return status;
}

fth_status fth_train(const fth_train_options *options, const fth_strategy *const *strategies,
                     const fth_train_observer *observer, fth_stop *stop, fth_train_outcome *outcome)
{
    fth_trainer trainer = {.stop = stop};

    *outcome = (fth_train_outcome){0};
    fth_status status = create(&trainer, observer);
    if (status == FTH_OK) {
        status = train(&trainer, options, strategies, outcome);
        if (status != FTH_OK)
            status = conclude(&trainer, status, outcome);
        const fth_record *record = fth_reporter_get_record(trainer.reporter);
        outcome->follows = !record && (outcome->follows || fth_stepper_follows(trainer.stepper));
        if (record && (!outcome->interrupted || fth_record_has_begun(fth_record_folder(record)))) {
            outcome->run_folder = fth_format("%s", fth_record_folder(record));
            outcome->id = fth_format("%s", fth_record_id(record));
        }
    }
    release(&trainer);
    return status;
}

void fth_train_outcome_release(fth_train_outcome *outcome)
{
    free(outcome->run_folder);
    free(outcome->id);
    free(outcome->local_copy);
    json_decref(outcome->end);
    *outcome = (fth_train_outcome){0};
}
