/* The training loop.
 *
 *     begin    find the run (meeting.h); open device, data, engine and record; restore the newest
 *              checkpoint
 *     loop     at the end of an epoch, or of --validate-every: validate, keep the best model
 *              stop if a limit is reached or a stop was asked for, here or of a peer
 *              checkpoint if one is due
 *              one update
 *              where a peer was lost, form a new group (recovery.h)
 *     end      validate, checkpoint, model file, "end" (or "interrupted", or "error"; ending.h)
 *
 * Each step is an object's: the trainer below holds them and says in which order they act.
 * Everything between two updates follows from fth_train_state (position.h), which is what a
 * checkpoint holds; so a run that was killed anywhere continues from its last checkpoint as if
 * nothing had happened. Epoch sums are set back after validation: a state at the end of an epoch
 * whose sums are not zero still has its validation to do. Where a strategy has workers, validation
 * may run alongside them (validator.h), and state.pending is what is still to do. */
#include <stdlib.h>

#include "train/loop/ending.h"
#include "train/loop/meeting.h"

typedef struct fth_trainer {
    fth_run_selection selection;
    fth_setup setup;
    fth_position position;
    fth_run_parts parts; /* these, and objects that are the trainer's */
    fth_run_phase phase;
    bool found;     /* the run was found by this process, and not by a peer */
    bool undecided; /* a stop interrupted what peers did together: they agree on it before anything else */
} fth_trainer;

static fth_saver *get_saver(const fth_trainer *trainer)
{
    return fth_run_owner_get_saver(trainer->parts.owner);
}

/* ---- the beginning ---- */

/* Where notices of preemption come from: --watch; else a run that lives in a store finds out. */
static const char *choose_sources(const fth_train_store *store)
{
    return *store->watch ? store->watch : (*store->checkpoints ? "auto" : "none");
}

/* What every process has, whether it owns the run or a peer does. */
static fth_status open_objects(fth_trainer *trainer)
{
    const fth_run_parts *parts = &trainer->parts;
    const fth_setup *setup = &trainer->setup;
    fth_reporter_open(parts->reporter, &(fth_report_sources){.position = &trainer->position,
                                                             .spending = parts->spending,
                                                             .options = setup->options,
                                                             .device = setup->device,
                                                             .dataset = setup->dataset});
    return fth_validator_create(
        &(fth_validator_options){
            .setup = setup, .position = &trainer->position, .reporter = parts->reporter, .stop = parts->stop},
        &trainer->parts.validator);
}

/* Nothing is written before everything that can be wrong with the options or the data has been
 * checked. */
static fth_status begin(fth_trainer *trainer, const fth_strategy *strategy)
{
    fth_status status = FTH_OK;
    const fth_run_parts *parts = &trainer->parts;
    const bool resumed = trainer->selection.run != NULL;
    bool starts;

    trainer->selection.processors = fth_strategy_session_count_processors(parts->session);
    FTH_TRY(fth_setup_open(&trainer->selection, strategy, parts->stop, parts->spending, &trainer->setup,
                           &trainer->position));
    FTH_TRY(fth_strategy_session_connect(parts->session, &trainer->setup));
    if (!resumed)
        FTH_TRY(fth_setup_load_weights(&trainer->setup, &trainer->position));
    FTH_TRY(open_objects(trainer));
    FTH_TRY(fth_setup_keep_data(&trainer->setup));
    FTH_TRY(fth_setup_settle_data(&trainer->setup));
    FTH_TRY(fth_recovery_begin(parts->recovery, trainer->found, &starts));

    trainer->position.state.meters.read_s += trainer->setup.read_s;
    fth_position_start_clock(&trainer->position);
    if (starts)
        fth_saver_begin(get_saver(trainer));
    fth_reporter_begin(parts->reporter);
    trainer->phase = FTH_RUN_TRAINING;
    if (starts) {
        const fth_start_facts facts = fth_strategy_session_describe_start(parts->session, resumed);
        fth_run_owner_write_start(parts->owner, &facts);
    }
    fth_deadline_watchdog_begin_training(parts->watchdog, trainer->position.step);

out:
    return status;
}

/* ---- what comes next ---- */

/* The limit that is reached, by its option's name, or NULL. */
static const char *reached_limit(const fth_trainer *trainer)
{
    const fth_train_limits *limits = &trainer->setup.options->limits;
    const fth_goal *goal = &trainer->setup.goal;
    const fth_train_state *state = &trainer->position.state;
    const fth_strategy_session *session = trainer->parts.session;
    if (goal->kind != FTH_GOAL_NONE && state->validation_step >= 0) {
        bool reached = goal->kind == FTH_GOAL_ACCURACY ? state->validation_accuracy >= goal->value
                                                       : state->validation_loss <= goal->value;
        if (reached)
            return "until";
    }
    if (limits->epochs > 0 && state->batches >= limits->epochs * trainer->position.batches_per_epoch)
        return "epochs";
    if (limits->steps > 0 && trainer->position.step >= limits->steps)
        return "steps";
    /* By the clock of the process that leads: the others end with it. */
    if (limits->for_s > 0 && state->elapsed_s >= limits->for_s && !fth_strategy_session_follows(session))
        return "for";
    return fth_strategy_session_ended_by(session);
}

/* The same, or "budget" if the next update would pass it. */
static const char *reason_to_end(fth_trainer *trainer)
{
    const char *limit = reached_limit(trainer);
    if (limit || fth_strategy_session_follows(trainer->parts.session))
        return limit;
    bool spent = fth_spending_budget_is_spent(trainer->parts.spending, &trainer->position.state.meters,
                                              fth_saver_get_save_s(get_saver(trainer)));
    return spent ? "budget" : NULL;
}

/* Not while a validation runs alongside training: after a kill, the checkpoint and the epoch's
 * event would disagree. At the end of an epoch, training waits for the validation if a checkpoint
 * is due. */
static bool checkpoint_is_due(const fth_trainer *trainer)
{
    return trainer->position.state.pending.epoch == 0 &&
           (fth_recovery_needs_checkpoint(trainer->parts.recovery) || fth_saver_is_due(get_saver(trainer)));
}

/* The last validation has the machine to itself, and one whose result may end the training is
 * waited for. */
static bool may_validate_alongside(const fth_trainer *trainer)
{
    return trainer->setup.strategy->validates_alongside && trainer->setup.goal.kind == FTH_GOAL_NONE &&
           !reached_limit(trainer) && !fth_saver_is_due(get_saver(trainer));
}

/* What this process would do next. */
static fth_intent find_intent(fth_trainer *trainer)
{
    const fth_run_parts *parts = &trainer->parts;
    const bool asked = parts->stop && parts->stop->asked;
    const bool preempted = asked && fth_stop_get(parts->stop).kind == FTH_STOP_PREEMPTION;
    return (fth_intent){.end = trainer->undecided ? NULL : reason_to_end(trainer),
                        .stop = asked || fth_recovery_is_fenced(parts->recovery),
                        .leave = preempted && fth_strategy_session_has_peers(parts->session),
                        .checkpoint = checkpoint_is_due(trainer)};
}

/* A stop of one process breaks off what peers do together in all of them; they agree on it next. */
static void hold_stop(fth_trainer *trainer, fth_status *status)
{
    if (*status != FTH_INTERRUPTED || !fth_strategy_session_has_peers(trainer->parts.session))
        return;
    trainer->undecided = true;
    *status = FTH_OK;
}

/* A validation that is due, and what comes next: the same in all processes that train together. */
static fth_status prepare_update(fth_trainer *trainer, fth_intent *intent)
{
    fth_status status = FTH_OK;
    fth_strategy_session *session = trainer->parts.session;
    fth_validator *validator = trainer->parts.validator;

    const bool ends_epoch = fth_strategy_session_is_at_epoch_end(session);
    if (ends_epoch || fth_validator_is_due(validator)) {
        FTH_TRY(fth_strategy_session_settle(session));
        status = ends_epoch ? fth_validator_finish_epoch(validator, may_validate_alongside(trainer))
                            : fth_validator_validate_within_epoch(validator);
        hold_stop(trainer, &status);
        FTH_TRY(status);
    }
    *intent = find_intent(trainer);
    FTH_TRY(fth_strategy_session_agree(session, intent));
    trainer->undecided = false;
    if (intent->checkpoint && !intent->end && !intent->stop)
        FTH_TRY(fth_strategy_session_settle(session));

out:
    return status;
}

static fth_status make_update(fth_trainer *trainer, bool *first)
{
    fth_status status = FTH_OK;
    const fth_run_parts *parts = &trainer->parts;

    fth_deadline_watchdog_enter(parts->watchdog, FTH_PHASE_STEP);
    FTH_TRY(fth_strategy_session_update(parts->session));
    fth_deadline_watchdog_end_step(parts->watchdog, trainer->position.step);
    if (*first) { /* not before: the first update should not wait for it; after it nothing large is allocated */
        FTH_TRY(fth_setup_prepare(&trainer->setup));
        FTH_TRY(fth_saver_start(get_saver(trainer)));
    }
    *first = false;

out:
    return status;
}

/* ---- the loop ---- */

/* A stop that all have agreed on, or that is this process's alone. */
static fth_status stop_training(fth_trainer *trainer, const fth_intent *intent)
{
    const fth_run_parts *parts = &trainer->parts;
    if (intent->leave)
        trainer->phase = FTH_RUN_LEAVING;
    if (parts->stop && !intent->leave && fth_recovery_is_fenced(parts->recovery)) {
        const fth_stop_reason reason = fth_run_owner_why_lost(parts->owner);
        fth_stop_ask(parts->stop, FTH_STOP_FENCED, 0, reason.source, "%s", reason.message);
    }
    return FTH_INTERRUPTED;
}

/* Trains until a limit is reached (*reason names it) or a stop is asked for (FTH_INTERRUPTED). */
static fth_status loop(fth_trainer *trainer, const char **reason)
{
    fth_status status = FTH_OK;
    const fth_run_parts *parts = &trainer->parts;
    bool first = true;
    for (;;) {
        FTH_TRY(fth_validator_follow(parts->validator, false));
        FTH_TRY(fth_recovery_collect_saves(parts->recovery));
        fth_deadline_watchdog_report_messages(parts->watchdog);
        fth_recovery_follow_takeover(parts->recovery);
        fth_intent intent = {0};
        status = prepare_update(trainer, &intent);
        if (status == FTH_OK && intent.end) {
            *reason = intent.end;
            return FTH_OK;
        }
        if (status == FTH_OK && intent.stop)
            return stop_training(trainer, &intent);
        if (status == FTH_OK && intent.checkpoint)
            FTH_TRY(fth_recovery_save(parts->recovery));
        if (status == FTH_OK)
            status = intent.rejoin ? fth_recovery_admit_peers(parts->recovery) : make_update(trainer, &first);
        FTH_TRY(fth_recovery_recover(parts->recovery, status));
    }

out:
    return status;
}

static fth_status end(fth_trainer *trainer, const char *reason, json_t **event)
{
    fth_status status = fth_ending_finish_training(&trainer->parts);

    hold_stop(trainer, &status);
    if (status == FTH_OK && !trainer->undecided)
        status = fth_ending_finish_run(&trainer->parts, reason, &trainer->phase, event);
    if (trainer->phase == FTH_RUN_SAVED)
        fth_recovery_stop_waiting(trainer->parts.recovery);
    return status;
}

/* The loop, and what comes after it: again, where a peer is lost at the end or asked to stop. */
static fth_status train_to_the_end(fth_trainer *trainer, json_t **event)
{
    fth_status status = FTH_OK;
    const char *reason = NULL;
    do {
        FTH_TRY(loop(trainer, &reason));
        status = end(trainer, reason, event);
        if (status == FTH_OK && !trainer->undecided)
            return FTH_OK;
        if (!fth_run_owner_is_lost(trainer->parts.owner))
            status = fth_recovery_recover(trainer->parts.recovery, status);
    } while (status == FTH_OK);
    if (trainer->phase == FTH_RUN_SAVED &&
        (status == FTH_PEER_LOST || status == FTH_TIMEOUT || status == FTH_INTERRUPTED))
        return FTH_OK; /* the others find that the run has ended */

out:
    return status;
}

/* ---- all of it ---- */

/* What is there from the start to the very end, whatever happens. */
static fth_status create(fth_trainer *trainer, fth_stop *stop, const fth_train_observer *observer)
{
    fth_status status = FTH_OK;
    fth_run_parts *parts = &trainer->parts;

    *parts = (fth_run_parts){
        .selection = &trainer->selection, .setup = &trainer->setup, .position = &trainer->position, .stop = stop};
    FTH_TRY(fth_spending_create(&parts->spending));
    FTH_TRY(fth_reporter_create(observer, &parts->reporter));
    FTH_TRY(fth_deadline_watchdog_create(stop, observer, parts->reporter, &parts->watchdog));
    FTH_TRY(fth_strategy_session_create(&trainer->position, parts->reporter, stop, &parts->session));
    FTH_TRY(fth_run_owner_create(parts, &parts->owner));
    FTH_TRY(fth_recovery_create(parts, &parts->recovery));

out:
    return status;
}

static void release(fth_trainer *trainer)
{
    fth_run_parts *parts = &trainer->parts;
    fth_recovery_free(parts->recovery);
    fth_strategy_session_free(parts->session);
    fth_validator_free(parts->validator);
    fth_deadline_watchdog_free(parts->watchdog); /* before what it guards */
    fth_run_owner_free(parts->owner);
    fth_reporter_free(parts->reporter);
    fth_spending_free(parts->spending);
    fth_setup_release(&trainer->setup);
    fth_run_selection_release(&trainer->selection);
}

static fth_status train(fth_trainer *trainer, const fth_train_options *options, const fth_strategy *const *strategies,
                        fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    const fth_run_parts *parts = &trainer->parts;
    const fth_strategy *strategy = NULL;

    /* First: finding the run may wait. */
    FTH_TRY(fth_deadline_watchdog_listen(parts->watchdog, choose_sources(&options->store)));
    FTH_TRY(fth_meeting_find_run(parts, options, strategies, &strategy, &trainer->found, outcome));
    if (trainer->selection.finished)
        goto out;
    FTH_TRY(begin(trainer, strategy));
    FTH_TRY(train_to_the_end(trainer, &outcome->end));

out:
    return status;
}

fth_status fth_train(const fth_train_options *options, const fth_strategy *const *strategies,
                     const fth_train_observer *observer, fth_stop *stop, fth_train_outcome *outcome)
{
    fth_trainer trainer = {0};

    *outcome = (fth_train_outcome){0};
    fth_status status = create(&trainer, stop, observer);
    if (status == FTH_OK) {
        status = train(&trainer, options, strategies, outcome);
        if (status != FTH_OK)
            status = fth_ending_conclude(&trainer.parts, trainer.phase, status, outcome);
        const fth_record *record = fth_reporter_get_record(trainer.parts.reporter);
        outcome->follows = !record && (outcome->follows || fth_strategy_session_follows(trainer.parts.session));
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
