/* The training loop.
 *
 *     begin    find the run; open device, data, engine and record; restore the newest checkpoint
 *     loop     at the end of an epoch: validate, keep the best model
 *              stop if a limit is reached or a stop was asked for, here or of a peer
 *              checkpoint if one is due
 *              one update
 *     end      validate, checkpoint, model file, "end" (or "interrupted", or "error")
 *
 * Each step is an object's: the trainer below holds them and says in which order they act.
 * Everything between two updates follows from fth_train_state (position.h), which is what a
 * checkpoint holds; so a run that was killed anywhere continues from its last checkpoint as if
 * nothing had happened. Epoch sums are set back after validation: a state at the end of an epoch
 * whose sums are not zero still has its validation to do. Where a strategy has workers, validation
 * may run alongside them (validator.h), and state.pending is what is still to do. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "train/loop/strategy_session.h"
#include "train/loop/validator.h"
#include "train/run/run_owner.h"
#include "train/run/shared_run.h"
#include "train/setup/test_part.h"

enum { LOOK_EVERY_US = 20000 }; /* while there is nothing to do but to wait */

typedef struct fth_trainer {
    fth_run_selection selection;
    fth_setup setup;
    fth_position position;
    fth_stop *stop; /* NULL: no stop can be asked for */
    fth_reporter *reporter;
    fth_spending *spending;
    fth_deadline_watchdog *watchdog;
    fth_strategy_session *session;
    fth_validator *validator;
    fth_run_owner *owner;
    bool found;     /* by this process, and not by a peer */
    bool begun;     /* the start was written: from here on there is something to save */
    bool save_now;  /* a record that was taken over has no checkpoint yet */
    bool undecided; /* a stop broke off what peers did together: they agree on it before anything else */
    bool ended;     /* what comes with the end is saved and recorded */
    bool left;      /* this machine is being preempted, and peers continue without it */
} fth_trainer;

static fth_saver *get_saver(const fth_trainer *trainer)
{
    return fth_run_owner_get_saver(trainer->owner);
}

/* ---- the beginning ---- */

/* Where notices of preemption come from: --watch; else a run that lives in a store finds out. */
static const char *choose_sources(const fth_train_options *options)
{
    return *options->store.watch ? options->store.watch : (*options->store.checkpoints ? "auto" : "none");
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
        if (!run || fth_strategy_session_share_run(trainer->session, run) != FTH_OK)
            fth_log_warning("the other processes do not know why this one ends: %s", fth_error_message());
        status = fth_fail(found, "%s", message ? message : "the run was not found");
        goto out;
    }
    FTH_TRY(fth_shared_run_describe(&trainer->selection, end, &run));
    FTH_TRY(fth_strategy_session_share_run(trainer->session, run));

out:
    json_decref(run);
    free(message);
    return status;
}

/* Sets what a finished run has as its outcome. */
static fth_status report_finished(const fth_run_selection *selection, fth_train_outcome *outcome)
{
    fth_record_summary summary = {0};
    fth_status status = fth_record_read(selection->folder, &summary);
    if (status != FTH_OK)
        return status;
    outcome->already_finished = true;
    outcome->run_folder = fth_format("%s", selection->folder);
    outcome->id = fth_format("%s", summary.id);
    outcome->end = json_incref(summary.end);
    fth_record_release(&summary);
    return FTH_OK;
}

static fth_status follow_run(fth_trainer *trainer, const fth_train_options *asked, const json_t *run,
                             fth_train_outcome *outcome)
{
    fth_status status = fth_shared_run_follow(asked, run, &trainer->selection);
    outcome->follows = true;
    if (status == FTH_OK && trainer->selection.finished) {
        outcome->already_finished = true;
        outcome->end = json_incref(json_object_get(run, "end"));
    }
    return status;
}

/* Reaches peers; *run is what one of them found, or NULL. */
static fth_status meet(fth_trainer *trainer, const fth_train_options *asked, const fth_strategy *strategy, json_t **run)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_strategy_session_meet(trainer->session, strategy, asked, run));
    FTH_TRY(fth_run_owner_set_node(trainer->owner, fth_strategy_session_get_node(trainer->session)));

out:
    return status;
}

/* One of several peers looks for it, and the others follow what that one found. A run that is
 * finished sets the outcome. */
static fth_status find_run(fth_trainer *trainer, const fth_train_options *asked, const fth_strategy *const *strategies,
                           fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    const fth_strategy *strategy = NULL;
    json_t *run = NULL;

    if (fth_strategy_find(strategies, asked->strategy, &strategy) == FTH_OK && strategy->meet) {
        FTH_TRY(fth_strategy_choose(strategies, asked, &strategy)); /* said now, and not after waiting for peers */
        FTH_TRY(meet(trainer, asked, strategy, &run));
    }
    if (run) {
        FTH_TRY(follow_run(trainer, asked, run, outcome));
        goto out;
    }
    trainer->found = true;
    status = fth_run_owner_find_run(trainer->owner, asked);
    if (status == FTH_OK && trainer->selection.finished) {
        if (fth_run_owner_get_store(trainer->owner))
            fth_run_store_fetch_models(fth_run_owner_get_store(trainer->owner), trainer->selection.folder);
        status = report_finished(&trainer->selection, outcome);
    }
    if (fth_strategy_session_has_met(trainer->session))
        status = share_run(trainer, status, outcome->end);

out:
    json_decref(run);
    return status;
}

/* Where the run that was found says that it has peers, and the options did not: each has found it
 * by itself. */
static fth_status meet_late(fth_trainer *trainer, const fth_train_options *asked, const fth_strategy *strategy,
                            fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    json_t *run = NULL;

    FTH_TRY(meet(trainer, asked, strategy, &run));
    if (run) {
        trainer->found = false;
        fth_run_selection_release(&trainer->selection);
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

static fth_start_facts describe_start(const fth_trainer *trainer, bool resumed)
{
    const fth_setup *setup = &trainer->setup;
    return (fth_start_facts){.resumed = resumed,
                             .strategy = setup->strategy,
                             .strategy_state = fth_strategy_session_get_state(trainer->session),
                             .parameters = fth_graph_trainable_count(fth_engine_graph(setup->engine))};
}

/* The run is kept here from now on, or a peer keeps it. */
static void set_saver(fth_trainer *trainer)
{
    fth_validator_set_saver(trainer->validator, get_saver(trainer), fth_run_owner_best_path(trainer->owner));
}

/* The record, at the run's first weights or the newest checkpoint. */
static fth_status open_run(fth_trainer *trainer, bool resumed)
{
    fth_status status = FTH_OK;
    fth_run_owner *owner = trainer->owner;

    FTH_TRY(fth_run_owner_open(owner));
    set_saver(trainer);
    if (resumed)
        FTH_TRY(fth_run_owner_restore(owner));
    FTH_TRY(fth_run_owner_begin_store(owner));

out:
    return status;
}

/* Whether this process reaches so many of the machines that no other can lead the run. */
static bool has_most(const fth_trainer *trainer)
{
    return fth_strategy_session_get_present(trainer->session) > 0.5;
}

/* The peers that had the run were lost, or have not begun, and this process leads instead: it finds
 * the run where they did, if it can, at its newest checkpoint. */
static fth_status open_run_of_peer(fth_trainer *trainer, bool resumed)
{
    const double patience_s = 300;
    fth_status status = FTH_OK;
    fth_run_owner *owner = trainer->owner;
    const fth_start_facts facts = describe_start(trainer, true);
    const fth_deadline deadline = fth_deadline_in(patience_s);

    fth_run_owner_take_over(owner, "the process that had the run was lost", has_most(trainer), true);
    while (!fth_run_owner_look(owner, &facts, (fth_deadline){0})) {
        FTH_REQUIRE(!trainer->stop || !trainer->stop->asked, FTH_INTERRUPTED, "asked to stop");
        FTH_REQUIRE(fth_run_owner_is_taking_over(owner), FTH_PEER_LOST, "run %s has ended meanwhile",
                    trainer->selection.id);
        FTH_REQUIRE(!fth_deadline_passed(deadline), FTH_TIMEOUT,
                    "run %s could not be taken over from the process that had it within %.0f s; see above",
                    trainer->selection.id, patience_s);
        usleep(LOOK_EVERY_US);
    }
    set_saver(trainer);
    FTH_REQUIRE(!resumed || trainer->selection.folder, FTH_PEER_LOST,
                "the process that found run %s was lost before training began, and the run is not on this machine; "
                "start it again where it is, or keep runs in a store (--checkpoints)",
                trainer->selection.id);

out:
    return status;
}

/* Keeps the run from its beginning, or leaves that to a peer, as the group has it. *starts: its
 * start is yet to be written. */
static fth_status take_first_place(fth_trainer *trainer, bool resumed, bool *starts)
{
    fth_status status = FTH_OK;

    if (fth_strategy_session_follows(trainer->session)) {
        fth_validator_set_saver(trainer->validator, NULL, NULL);
        fth_run_owner_give_up(trainer->owner); /* a lease, if it was this process that found the run */
        trainer->found = *starts = false;
    } else if (trainer->found && !get_saver(trainer)) {
        *starts = true;
        FTH_TRY(open_run(trainer, resumed));
    } else if (!get_saver(trainer)) {
        FTH_TRY(open_run_of_peer(trainer, resumed));
    }

out:
    return status;
}

/* With a group that may end again, for whatever others do, before this process has come to their
 * state. */
static fth_status open_session(fth_trainer *trainer, bool resumed, bool *starts)
{
    enum { MOST_LOSSES = 100 };
    fth_status status = FTH_OK;

    *starts = false;
    for (int losses = 0; losses < MOST_LOSSES; losses++) {
        FTH_TRY(take_first_place(trainer, resumed, starts));
        status = fth_strategy_session_open(trainer->session);
        if (status != FTH_PEER_LOST)
            break;
        FTH_TRY(fth_strategy_session_form_again(trainer->session));
    }

out:
    return status;
}

/* Keeps the run, or leaves that to a peer, as the new group has it. */
static void take_place(fth_trainer *trainer, const char *reason)
{
    fth_validator_set_peers(trainer->validator, fth_strategy_session_get_peers(trainer->session));
    if (!fth_strategy_session_follows(trainer->session)) {
        fth_run_owner_take_over(trainer->owner, reason, has_most(trainer), false);
        return;
    }
    fth_validator_set_saver(trainer->validator, NULL, NULL);
    fth_run_owner_give_up(trainer->owner);
}

/* Nothing is written before everything that can be wrong with the options or the data has been
 * checked. */
static fth_status begin(fth_trainer *trainer, const fth_strategy *strategy)
{
    fth_status status = FTH_OK;
    const bool resumed = trainer->selection.run != NULL;
    bool starts;

    trainer->selection.processors = fth_strategy_session_count_processors(trainer->session);
    FTH_TRY(fth_setup_open(&trainer->selection, strategy, trainer->stop, trainer->spending, &trainer->setup,
                           &trainer->position));
    FTH_TRY(fth_strategy_session_connect(trainer->session, &trainer->setup));
    if (!resumed)
        FTH_TRY(fth_setup_load_weights(&trainer->setup, &trainer->position));
    FTH_TRY(open_objects(trainer));
    FTH_TRY(fth_setup_keep_data(&trainer->setup));
    FTH_TRY(fth_setup_settle_data(&trainer->setup));
    FTH_TRY(open_session(trainer, resumed, &starts));
    fth_validator_set_peers(trainer->validator, fth_strategy_session_get_peers(trainer->session));

    trainer->position.state.meters.read_s += trainer->setup.read_s;
    fth_position_start_clock(&trainer->position);
    if (starts)
        fth_saver_begin(get_saver(trainer));
    fth_reporter_begin(trainer->reporter);
    trainer->begun = true;
    if (starts) {
        const fth_start_facts facts = describe_start(trainer, resumed);
        fth_run_owner_write_start(trainer->owner, &facts);
    }
    fth_deadline_watchdog_begin_training(trainer->watchdog, trainer->position.step);

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
    if (options->limits.epochs > 0 && state->batches >= options->limits.epochs * trainer->position.batches_per_epoch)
        return "epochs";
    if (options->limits.steps > 0 && trainer->position.step >= options->limits.steps)
        return "steps";
    /* By the clock of the process that leads: the others end with it. */
    if (options->limits.for_s > 0 && state->elapsed_s >= options->limits.for_s &&
        !fth_strategy_session_follows(trainer->session))
        return "for";
    return fth_strategy_session_ended_by(trainer->session);
}

/* The same, or "budget" if the next update would pass it. */
static const char *reason_to_end(fth_trainer *trainer)
{
    const char *limit = reached_limit(trainer);
    if (limit || fth_strategy_session_follows(trainer->session))
        return limit;
    bool spent = fth_spending_budget_is_spent(trainer->spending, &trainer->position.state.meters,
                                              fth_saver_get_save_s(get_saver(trainer)));
    return spent ? "budget" : NULL;
}

/* None while a validation runs alongside training: what a checkpoint says of an epoch, and its
 * event, would disagree after a kill. An epoch that ends with a checkpoint wanted is validated
 * while training waits. */
static bool checkpoint_is_due(const fth_trainer *trainer)
{
    return trainer->position.state.pending.epoch == 0 && (trainer->save_now || fth_saver_is_due(get_saver(trainer)));
}

/* The last validation has the machine to itself; and where its result decides about the end, it is
 * waited for. */
static bool may_validate_alongside(const fth_trainer *trainer)
{
    return trainer->setup.strategy->validates_alongside && trainer->setup.goal.kind == FTH_GOAL_NONE &&
           !reached_limit(trainer) && !fth_saver_is_due(get_saver(trainer));
}

/* Whether another has the lease of a run that peers train, who do not stop for that before they
 * have agreed on it. */
static bool is_fenced(const fth_trainer *trainer)
{
    return fth_strategy_session_has_met(trainer->session) && fth_run_owner_is_lost(trainer->owner);
}

/* What this process would do next. */
static fth_intent find_intent(fth_trainer *trainer)
{
    const bool asked = trainer->stop && trainer->stop->asked;
    const fth_stop_reason reason = fth_stop_get(trainer->stop);
    return (fth_intent){.end = trainer->undecided ? NULL : reason_to_end(trainer),
                        .stop = asked || is_fenced(trainer),
                        .leave = asked && reason.kind == FTH_STOP_PREEMPTION &&
                                 fth_strategy_session_has_peers(trainer->session),
                        .checkpoint = checkpoint_is_due(trainer)};
}

/* What peers do together, a stop of one breaks off in all of them, and then they agree on it. */
static void hold_stop(fth_trainer *trainer, fth_status *status)
{
    if (*status != FTH_INTERRUPTED || !fth_strategy_session_has_peers(trainer->session))
        return;
    trainer->undecided = true;
    *status = FTH_OK;
}

/* The end of an epoch, and what comes next: the same in all processes that train together. */
static fth_status prepare_update(fth_trainer *trainer, fth_intent *intent)
{
    fth_status status = FTH_OK;

    if (fth_strategy_session_is_at_epoch_end(trainer->session)) {
        FTH_TRY(fth_strategy_session_settle(trainer->session));
        status = fth_validator_finish_epoch(trainer->validator, may_validate_alongside(trainer));
        hold_stop(trainer, &status);
        FTH_TRY(status);
    }
    *intent = find_intent(trainer);
    FTH_TRY(fth_strategy_session_agree(trainer->session, intent));
    trainer->undecided = false;
    if (intent->checkpoint && !intent->end && !intent->stop)
        FTH_TRY(fth_strategy_session_settle(trainer->session));

out:
    return status;
}

static fth_status make_update(fth_trainer *trainer, bool *first)
{
    fth_status status = FTH_OK;

    fth_deadline_watchdog_enter(trainer->watchdog, FTH_PHASE_STEP);
    FTH_TRY(fth_strategy_session_update(trainer->session));
    fth_deadline_watchdog_end_step(trainer->watchdog, trainer->position.step);
    if (*first) { /* not before: the first update should not wait for it; after it nothing large is allocated */
        FTH_TRY(fth_setup_prepare(&trainer->setup));
        FTH_TRY(fth_saver_start(get_saver(trainer)));
    }
    *first = false;

out:
    return status;
}

/* ---- peers ---- */

/* Goes on with taking the run over, until the deadline at most. */
static void follow_takeover(fth_trainer *trainer, fth_deadline deadline)
{
    if (!fth_run_owner_is_taking_over(trainer->owner))
        return;
    const fth_start_facts facts = describe_start(trainer, true);
    if (!fth_run_owner_look(trainer->owner, &facts, deadline))
        return;
    set_saver(trainer);
    trainer->save_now = true;
    if (fth_validator_keep_best(trainer->validator) != FTH_OK)
        fth_log_warning("%s", fth_error_message());
}

/* Without the peers that are lost. */
static bool can_save(const fth_trainer *trainer)
{
    if (!get_saver(trainer) || fth_strategy_session_can_save(trainer->session))
        return true;
    fth_reporter_warn(trainer->reporter,
                      "step %" PRId64 " cannot be saved without the workers that are lost, which have parts of the "
                      "optimizer's state; what was saved before is good",
                      trainer->position.step);
    return false;
}

/* Whether this process, which waits for peers, is to keep the run: it is the first of those that
 * wait. Where these are the smaller part of the machines, the others may train on, and their run is
 * not taken from the store under their hands. */
static bool should_keep(const fth_trainer *trainer)
{
    const bool stored = *trainer->selection.options.store.checkpoints;
    return !fth_strategy_session_follows(trainer->session) &&
           (!stored || fth_strategy_session_get_present(trainer->session) >= 0.5);
}

/* The first of those that wait keeps the run, and saves once: *saved. */
static fth_status save_while_waiting(fth_trainer *trainer, const char *reason, const char *message, bool *saved)
{
    const double patience_s = 2; /* with a store, before the others are looked for again */
    fth_status status = FTH_OK;

    if (should_keep(trainer))
        fth_run_owner_take_over(trainer->owner, reason, has_most(trainer), false);
    else if (fth_run_owner_is_taking_over(trainer->owner))
        fth_run_owner_give_up(trainer->owner);
    follow_takeover(trainer, fth_deadline_in(patience_s));
    if (*saved || !get_saver(trainer))
        goto out;
    *saved = true;
    fth_reporter_write(trainer->reporter, "waiting",
                       json_pack("{s:s, s:f, s:I, s:s}", "event", "waiting", "time", 0.0, "step",
                                 (json_int_t)trainer->position.step, "message", message));
    if ((trainer->save_now || fth_saver_is_unsaved(get_saver(trainer))) && can_save(trainer)) {
        FTH_TRY(fth_saver_save(get_saver(trainer)));
        trainer->save_now = false;
    }

out:
    return status;
}

/* That another process has the run is found out by saving, and is no failure where there are peers:
 * they agree on what follows from it, once they are together. */
static fth_status pardon_fence(const fth_trainer *trainer, fth_status status)
{
    return status == FTH_PEER_LOST && is_fenced(trainer) ? FTH_OK : status;
}

/* Records saves that ended. */
static fth_status collect_saves(fth_trainer *trainer)
{
    return pardon_fence(trainer,
                        fth_saver_collect(get_saver(trainer), fth_deadline_watchdog_get_step_s(trainer->watchdog)));
}

/* There are too few peers to go on. */
static fth_status wait_for_peers(fth_trainer *trainer, const char *reason, bool *waiting, bool *saved)
{
    fth_status status = FTH_OK;
    char *message = fth_format("%s", fth_error_message());

    if (!*waiting)
        fth_log_info("waiting after step %" PRId64 ": %s", trainer->position.step, message ? message : "");
    *waiting = true;
    status = save_while_waiting(trainer, reason, message ? message : "", saved);
    FTH_TRY(pardon_fence(trainer, status));
    FTH_TRY(collect_saves(trainer));
    FTH_REQUIRE(!trainer->stop || !trainer->stop->asked, FTH_INTERRUPTED, "asked to stop");

out:
    free(message);
    return status;
}

/* Forms a new group, however long that takes; a run that has ended waits for nobody. */
static fth_status rejoin(fth_trainer *trainer, const char *reason)
{
    enum { MOST_LOSSES = 100 };
    fth_status status = FTH_PEER_LOST;
    bool waiting = false, saved = false;
    for (int losses = 0; status == FTH_PEER_LOST && losses < MOST_LOSSES; losses++) {
        fth_deadline_watchdog_enter(trainer->watchdog, FTH_PHASE_BETWEEN);
        while ((status = fth_strategy_session_rejoin(trainer->session)) == FTH_TIMEOUT && !trainer->ended)
            FTH_TRY(wait_for_peers(trainer, reason, &waiting, &saved));
    }
    if (status == FTH_OK)
        take_place(trainer, reason);

out:
    return status;
}

/* Continues without a peer that was lost, if that is what *status says and the strategy can do
 * so. */
static void recover(fth_trainer *trainer, fth_status *status)
{
    if (!fth_strategy_session_take_back(trainer->session, *status))
        return;
    char *reason = fth_format("%s", fth_error_message());
    fth_reporter_warn(trainer->reporter, "%s; continuing with the peers that are left", fth_error_message());
    *status = rejoin(trainer, reason ? reason : "a peer was lost");
    free(reason);
}

/* A stop that all have agreed on, or that is this process's alone. */
static fth_status stop_training(fth_trainer *trainer, const fth_intent *intent)
{
    trainer->left = intent->leave;
    if (trainer->stop && is_fenced(trainer) && !trainer->left) {
        const fth_stop_reason reason = fth_run_owner_why_lost(trainer->owner);
        fth_stop_ask(trainer->stop, FTH_STOP_FENCED, 0, reason.source, "%s", reason.message);
    }
    return FTH_INTERRUPTED;
}

/* Trains until a limit is reached (*reason names it) or a stop is asked for (FTH_INTERRUPTED). */
static fth_status loop(fth_trainer *trainer, const char **reason)
{
    fth_status status = FTH_OK;
    bool first = true;
    for (;;) {
        FTH_TRY(fth_validator_follow(trainer->validator, false));
        FTH_TRY(collect_saves(trainer));
        fth_deadline_watchdog_report_messages(trainer->watchdog);
        follow_takeover(trainer, (fth_deadline){0});
        fth_intent intent = {0};
        status = prepare_update(trainer, &intent);
        if (status == FTH_OK && intent.end) {
            *reason = intent.end;
            return FTH_OK;
        }
        if (status == FTH_OK && intent.stop)
            return stop_training(trainer, &intent);
        if (status == FTH_OK && intent.checkpoint) {
            FTH_TRY(fth_saver_save(get_saver(trainer)));
            trainer->save_now = trainer->save_now && !get_saver(trainer);
        }
        if (status == FTH_OK && intent.rejoin)
            status = rejoin(trainer, "a new group was formed");
        else if (status == FTH_OK)
            status = make_update(trainer, &first);
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
    return fth_saver_save_model(get_saver(trainer), trainer->setup.engine, trainer->position.step,
                                state->counter_start + state->batches, fth_run_owner_last_path(trainer->owner));
}

/* The last validation, as far as the budget goes: it was expected to fit, but saving comes
 * first. */
static fth_status validate_at_end(fth_trainer *trainer)
{
    const fth_deadline deadline = /* by the clock of the process that leads */
        fth_strategy_session_follows(trainer->session)
            ? (fth_deadline){INFINITY}
            : fth_spending_budget_deadline(trainer->spending, fth_saver_get_save_s(get_saver(trainer)));
    fth_status status = fth_validator_validate(trainer->validator, deadline);
    if (status != FTH_TIMEOUT || !(fth_deadline_passed(deadline) || fth_strategy_session_has_peers(trainer->session)))
        return status;
    fth_reporter_warn(trainer->reporter,
                      "the budget ended before the last validation did: the weights are saved, how good they are is "
                      "not known; find out with `farthing evaluate`");
    return FTH_OK;
}

/* What all peers do: every batch is part of the weights, and these are validated. */
static fth_status finish_training(fth_trainer *trainer)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_strategy_session_settle(trainer->session));
    fth_reporter_write_step(trainer->reporter);
    FTH_TRY(fth_validator_follow(trainer->validator, true));
    if (trainer->position.state.validation_step != trainer->position.step)
        FTH_TRY(validate_at_end(trainer));

out:
    return status;
}

/* The run may have lost the peer that kept it a moment ago. False if the deadline passes before
 * this process keeps it. */
static bool finish_takeover(fth_trainer *trainer, fth_deadline deadline, bool until_stop)
{
    while (fth_run_owner_is_taking_over(trainer->owner)) {
        if (fth_deadline_passed(deadline) || (until_stop && trainer->stop && trainer->stop->asked))
            return false;
        follow_takeover(trainer, (fth_deadline){0});
        if (fth_run_owner_is_taking_over(trainer->owner))
            usleep(LOOK_EVERY_US);
    }
    return true;
}

static fth_status take_over_at_end(fth_trainer *trainer)
{
    const double patience_s = 300;
    if (finish_takeover(trainer, fth_deadline_in(patience_s), true))
        return FTH_OK;
    if (trainer->stop && trainer->stop->asked)
        return fth_fail(FTH_INTERRUPTED, "asked to stop before the run could be taken over");
    return fth_fail(FTH_TIMEOUT,
                    "the run has ended, but could not be taken over from the process that kept it within %.0f s; see "
                    "above",
                    patience_s);
}

/* In half of the time there is: the other half is for saving. */
static void take_over_at_stop(fth_trainer *trainer, const fth_stop_reason *reason)
{
    const double patience_s = 30, left_s = fth_deadline_left_seconds(reason->deadline);
    if (!finish_takeover(trainer, fth_deadline_in(left_s < 2 * patience_s ? left_s / 2 : patience_s), false))
        fth_log_warning("run %s was not taken over in time from the process that kept it; it continues from its newest "
                        "checkpoint",
                        trainer->selection.id);
}

/* The best model on test samples, by the process that keeps it. What fails is a warning: the model
 * is saved. */
static fth_status measure_test(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    const fth_setup *setup = &trainer->setup;
    const int64_t best_step = trainer->position.state.best_step;
    fth_test_result result = {.step = best_step >= 0 ? best_step : trainer->position.step, .data = setup->test_address};

    if (!setup->test || !get_saver(trainer))
        return FTH_OK;
    result.file = best_step >= 0 ? fth_run_owner_best_path(trainer->owner) : fth_run_owner_last_path(trainer->owner);
    status = fth_test_part_measure(
        setup, result.file, trainer->stop,
        fth_spending_budget_deadline(trainer->spending, fth_saver_get_save_s(get_saver(trainer))), &result.evaluation);
    if (status == FTH_OK)
        fth_reporter_write_test(trainer->reporter, &result);
    else if (status != FTH_INTERRUPTED)
        fth_reporter_warn(trainer->reporter, "the test samples of %s could not be measured: %s", setup->test_address,
                          fth_error_message());
    return status == FTH_INTERRUPTED ? status : FTH_OK;
}

/* The last checkpoint, the models and the last event, by the process that keeps the run. */
static fth_status finish_run(fth_trainer *trainer, const char *reason, json_t **event)
{
    fth_status status = FTH_OK;
    fth_run_owner *owner = trainer->owner;
    fth_run_store *store = NULL;

    FTH_TRY(take_over_at_end(trainer));
    FTH_TRY(fth_saver_finish(get_saver(trainer)));
    fth_deadline_watchdog_report_messages(trainer->watchdog);
    const bool goes = get_saver(trainer) && fth_stop_get(trainer->stop).kind >= FTH_STOP_PREEMPTION;
    trainer->left = goes && fth_strategy_session_has_peers(trainer->session);
    FTH_REQUIRE(!goes, FTH_INTERRUPTED, "stopped at the end"); /* all is saved: another machine ends it */
    FTH_TRY(save_last_model(trainer));
    store = fth_run_owner_get_store(owner);
    if (store)
        FTH_TRY(fth_run_store_put_models(store, trainer->position.state.best_step, fth_run_owner_best_path(owner),
                                         fth_run_owner_last_path(owner)));
    FTH_TRY(measure_test(trainer));
    fth_reporter_write_data(trainer->reporter);
    json_decref(*event);
    *event = fth_reporter_write_end(trainer->reporter, reason, fth_run_owner_last_path(owner),
                                    fth_run_owner_best_path(owner));
    FTH_REQUIRE(!fth_reporter_is_failing(trainer->reporter), FTH_IO,
                "the end of run %s could not be recorded; see above",
                fth_record_id(fth_reporter_get_record(trainer->reporter)));
    FTH_TRY(fth_reporter_sync(trainer->reporter));
    FTH_TRY(fth_run_owner_leave(owner));
    trainer->ended = get_saver(trainer) != NULL;

out:
    return status;
}

/* Nobody leaves before the run is saved: if the one that keeps it is lost while it saves, another
 * does it. */
static fth_status end(fth_trainer *trainer, const char *reason, json_t **event)
{
    fth_status status = finish_training(trainer);

    hold_stop(trainer, &status);
    if (status != FTH_OK || trainer->undecided)
        return status;
    if (!fth_strategy_session_follows(trainer->session))
        FTH_TRY(fth_strategy_session_begin_ending(trainer->session));
    if (!trainer->ended)
        FTH_TRY(finish_run(trainer, reason, event));
    FTH_TRY(fth_strategy_session_end_together(trainer->session));

out:
    fth_strategy_session_break_ending(trainer->session);
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
        if (!fth_run_owner_is_lost(trainer->owner))
            recover(trainer, &status);
    } while (status == FTH_OK);
    if (trainer->ended && (status == FTH_PEER_LOST || status == FTH_TIMEOUT || status == FTH_INTERRUPTED))
        return FTH_OK; /* the others find that the run has ended */

out:
    return status;
}

/* ---- other endings ---- */

/* A peer that is lost now changes nothing: this process has the weights of the last update. */
static fth_status settle_at_stop(fth_trainer *trainer)
{
    fth_status status = fth_strategy_session_settle(trainer->session);
    if (!fth_strategy_session_take_back(trainer->session, status))
        return status;
    fth_log_warning("%s; stopping without it", fth_error_message());
    return FTH_OK;
}

/* This machine is being preempted, and its peers have the weights of the last update: they
 * continue, and save. */
static fth_status leave_group(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    const fth_stop_reason reason = fth_stop_get(trainer->stop);

    fth_validator_cancel(trainer->validator);
    fth_deadline_watchdog_enter(trainer->watchdog, FTH_PHASE_ENDING);
    fth_reporter_write_step(trainer->reporter);
    fth_reporter_write_data(trainer->reporter);
    fth_reporter_write(trainer->reporter, "left",
                       json_pack("{s:s, s:f, s:I, s:s}", "event", "left", "time", 0.0, "step",
                                 (json_int_t)trainer->position.step, "reason", reason.message));
    FTH_TRY(fth_reporter_sync(trainer->reporter));
    fth_validator_set_saver(trainer->validator, NULL, NULL);
    fth_run_owner_give_up(trainer->owner); /* its successor need not wait for it */
    fth_log_info("%s: left the group after step %" PRId64 "; the others continue", reason.message,
                 trainer->position.step);
    fth_deadline_watchdog_acknowledge(trainer->watchdog);

out:
    return status;
}

/* Saves what fits before the deadline, and says how it went. */
static fth_status interrupt(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_stop_reason reason = fth_stop_get(trainer->stop);
    fth_run_owner *owner = trainer->owner;

    FTH_TRY(settle_at_stop(trainer));
    take_over_at_stop(trainer, &reason);
    fth_run_store *store = fth_run_owner_get_store(owner);
    const bool stays = reason.kind == FTH_STOP_REQUEST && !store; /* the machine, as far as we know */
    if (stays)
        reason.deadline.at_seconds = INFINITY; /* a disk gets the time it needs */
    fth_validator_cancel(trainer->validator);
    fth_deadline_watchdog_enter(trainer->watchdog, FTH_PHASE_ENDING);
    fth_reporter_write_step(trainer->reporter);
    const bool saves = can_save(trainer);
    if (saves)
        FTH_TRY(fth_saver_save_at_stop(get_saver(trainer), &reason));
    fth_deadline_watchdog_report_messages(trainer->watchdog);
    const bool copied = fth_saver_look(get_saver(trainer)).copy_step > 0;
    if (store && !copied) /* after what matters more */
        fth_run_store_put_best_in_time(store, fth_run_owner_best_path(owner), reason.deadline);
    if (stays && saves && trainer->position.step > 0)
        FTH_TRY(save_last_model(trainer));
    fth_reporter_write_data(trainer->reporter);
    if (get_saver(trainer))
        fth_deadline_watchdog_report_notice(trainer->watchdog, &reason);
    fth_reporter_write_interrupted(trainer->reporter, &reason);
    FTH_TRY(fth_reporter_sync(trainer->reporter));
    if (copied && fth_saver_is_closing(get_saver(trainer)))
        fth_deadline_watchdog_end_process(trainer->watchdog);
    status = fth_run_owner_leave(owner);
    if (status != FTH_OK && status != FTH_PEER_LOST) { /* the checkpoint is safe, and that is what counts */
        fth_log_warning("%s", fth_error_message());
        status = FTH_OK;
    }
    fth_deadline_watchdog_acknowledge(trainer->watchdog);

out:
    return status;
}

/* Another machine has the run: nothing more may be written to the store, and this one says why it
 * ends. */
static fth_status conclude_fenced(fth_trainer *trainer, const char *message, fth_train_outcome *outcome)
{
    fth_log_warning("%s", message);
    if (trainer->begun)
        fth_reporter_write_warning(trainer->reporter, message);
    outcome->fenced = outcome->interrupted = true;
    return FTH_OK;
}

/* Says where it happened and what to try, whichever check noticed it: of the loss, the gradients or
 * the weights. Weights that were read are finite (engine_load.c): it is training that made them
 * otherwise. */
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
        fth_reporter_write_data(trainer->reporter);
        fth_reporter_write_error(trainer->reporter, status, message);
    }
    fth_run_owner_discard_unbegun(trainer->owner);
    fth_run_owner_leave(trainer->owner);
    fth_fail(status, "%s", message);
    free(message);
    return status;
}

/* Anything but an end: interrupted, fenced or failed. */
static fth_status conclude(fth_trainer *trainer, fth_status status, fth_train_outcome *outcome)
{
    fth_stop_reason reason = fth_stop_get(trainer->stop);
    if (status == FTH_INTERRUPTED && trainer->left) {
        status = leave_group(trainer);
        outcome->left = status == FTH_OK;
    } else if (status == FTH_INTERRUPTED && reason.kind != FTH_STOP_FENCED && trainer->begun) {
        status = interrupt(trainer);
        if (!fth_run_owner_get_store(trainer->owner)) /* a store's is left to its next owner: there may be no time to
                                                       tidy it */
            fth_run_owner_discard_unbegun(trainer->owner);
    } else if (status == FTH_INTERRUPTED && reason.kind != FTH_STOP_FENCED) {
        fth_deadline_watchdog_enter(trainer->watchdog,
                                    FTH_PHASE_ENDING); /* nothing was begun, nothing is to be saved */
        status = fth_run_owner_leave(trainer->owner);
    }
    char *message = fth_format("%s", fth_error_message());
    reason = fth_stop_get(trainer->stop);
    bool lost = status == FTH_PEER_LOST && fth_run_owner_is_lost(trainer->owner);
    if (lost || reason.kind == FTH_STOP_FENCED) {
        status = conclude_fenced(trainer, reason.kind == FTH_STOP_FENCED ? reason.message : message, outcome);
        goto out;
    }
    outcome->interrupted = status == FTH_OK;
    outcome->local_copy = fth_saver_describe_copy(get_saver(trainer));
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
    FTH_TRY(fth_deadline_watchdog_create(trainer->stop, observer, trainer->reporter, &trainer->watchdog));
    FTH_TRY(fth_strategy_session_create(&trainer->position, trainer->reporter, trainer->stop, &trainer->session));
    FTH_TRY(fth_run_owner_create(&(fth_run_owner_parts){.selection = &trainer->selection,
                                                        .setup = &trainer->setup,
                                                        .position = &trainer->position,
                                                        .spending = trainer->spending,
                                                        .reporter = trainer->reporter,
                                                        .watchdog = trainer->watchdog,
                                                        .stop = trainer->stop},
                                 &trainer->owner));

out:
    return status;
}

static void release(fth_trainer *trainer)
{
    fth_strategy_session_free(trainer->session);
    fth_validator_free(trainer->validator);
    fth_deadline_watchdog_free(trainer->watchdog); /* before what it guards */
    fth_run_owner_free(trainer->owner);
    fth_reporter_free(trainer->reporter);
    fth_spending_free(trainer->spending);
    fth_setup_release(&trainer->setup);
    fth_run_selection_release(&trainer->selection);
}

static fth_status train(fth_trainer *trainer, const fth_train_options *options, const fth_strategy *const *strategies,
                        fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    const fth_strategy *strategy = NULL;

    FTH_TRY(
        fth_deadline_watchdog_listen(trainer->watchdog, choose_sources(options))); /* first: finding the run may wait */
    FTH_TRY(find_run(trainer, options, strategies, outcome));
    FTH_TRY(fth_strategy_choose(strategies, &trainer->selection.options, &strategy));
    if (trainer->selection.finished)
        goto out;
    if (strategy->meet && !fth_strategy_session_has_met(trainer->session))
        FTH_TRY(meet_late(trainer, options, strategy, outcome));
    FTH_TRY(begin(trainer, strategy));
    FTH_TRY(train_to_the_end(trainer, &outcome->end));

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
        outcome->follows = !record && (outcome->follows || fth_strategy_session_follows(trainer.session));
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
