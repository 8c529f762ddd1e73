/* See ending.h. */
#include "train/loop/ending.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "train/setup/test_part.h"

static fth_saver *get_saver(const fth_run_parts *parts)
{
    return fth_run_owner_get_saver(parts->owner);
}

/* ---- a limit is reached ---- */

static fth_status save_last_model(const fth_run_parts *parts)
{
    const fth_train_state *state = &parts->position->state;
    return fth_saver_save_model(get_saver(parts), parts->setup->engine, parts->position->step,
                                state->counter_start + state->batches, fth_run_owner_last_path(parts->owner));
}

/* The last validation, as far as the budget goes: it was expected to fit, but saving comes
 * first. */
static fth_status validate_at_end(const fth_run_parts *parts)
{
    const fth_deadline deadline = /* by the clock of the process that leads */
        fth_strategy_session_follows(parts->session)
            ? (fth_deadline){INFINITY}
            : fth_spending_budget_deadline(parts->spending, fth_saver_get_save_s(get_saver(parts)));
    fth_status status = fth_validator_validate(parts->validator, deadline);
    if (status != FTH_TIMEOUT || !(fth_deadline_passed(deadline) || fth_strategy_session_has_peers(parts->session)))
        return status;
    fth_reporter_warn(parts->reporter,
                      "the budget ended before the last validation did: the weights are saved, how good they are is "
                      "not known; find out with `farthing evaluate`");
    return FTH_OK;
}

fth_status fth_ending_finish_training(const fth_run_parts *parts)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_strategy_session_settle(parts->session));
    fth_reporter_write_step(parts->reporter);
    FTH_TRY(fth_validator_follow(parts->validator, true));
    if (parts->position->state.validation_step != parts->position->step)
        FTH_TRY(validate_at_end(parts));

out:
    return status;
}

/* The best model on test samples, by the owner of the run. A failure is a warning: the model is
 * saved. */
static fth_status measure_test(const fth_run_parts *parts)
{
    fth_status status = FTH_OK;
    const fth_setup *setup = parts->setup;
    const int64_t best_step = parts->position->state.best_step;
    fth_test_result result = {.step = best_step >= 0 ? best_step : parts->position->step, .data = setup->test_address};

    if (!setup->test || !get_saver(parts))
        return FTH_OK;
    result.file = best_step >= 0 ? fth_run_owner_best_path(parts->owner) : fth_run_owner_last_path(parts->owner);
    status = fth_test_part_measure(
        setup, result.file, parts->stop,
        fth_spending_budget_deadline(parts->spending, fth_saver_get_save_s(get_saver(parts))), &result.evaluation);
    if (status == FTH_OK)
        fth_reporter_write_test(parts->reporter, &result);
    else if (status != FTH_INTERRUPTED)
        fth_reporter_warn(parts->reporter, "the test samples of %s could not be measured: %s", setup->test_address,
                          fth_error_message());
    return status == FTH_INTERRUPTED ? status : FTH_OK;
}

/* The last checkpoint, the models and the last event, by the owner of the run. */
static fth_status save_run(const fth_run_parts *parts, const char *reason, fth_run_phase *phase, json_t **event)
{
    fth_status status = FTH_OK;
    fth_run_owner *owner = parts->owner;
    fth_run_store *store = NULL;

    FTH_TRY(fth_recovery_take_over_at_end(parts->recovery));
    FTH_TRY(fth_saver_finish(get_saver(parts)));
    fth_deadline_watchdog_report_messages(parts->watchdog);
    const bool goes = get_saver(parts) && fth_stop_get(parts->stop).kind >= FTH_STOP_PREEMPTION;
    if (goes && fth_strategy_session_has_peers(parts->session))
        *phase = FTH_RUN_LEAVING;
    FTH_REQUIRE(!goes, FTH_INTERRUPTED, "stopped at the end"); /* all is saved: another machine ends it */
    FTH_TRY(save_last_model(parts));
    store = fth_run_owner_get_store(owner);
    if (store)
        FTH_TRY(fth_run_store_put_models(store, parts->position->state.best_step, fth_run_owner_best_path(owner),
                                         fth_run_owner_last_path(owner)));
    FTH_TRY(measure_test(parts));
    fth_reporter_write_data(parts->reporter);
    json_decref(*event);
    *event =
        fth_reporter_write_end(parts->reporter, reason, fth_run_owner_last_path(owner), fth_run_owner_best_path(owner));
    FTH_REQUIRE(!fth_reporter_is_failing(parts->reporter), FTH_IO, "the end of run %s could not be recorded; see above",
                fth_record_id(fth_reporter_get_record(parts->reporter)));
    FTH_TRY(fth_reporter_sync(parts->reporter));
    FTH_TRY(fth_run_owner_leave(owner));
    if (get_saver(parts))
        *phase = FTH_RUN_SAVED;

out:
    return status;
}

fth_status fth_ending_finish_run(const fth_run_parts *parts, const char *reason, fth_run_phase *phase, json_t **event)
{
    fth_status status = FTH_OK;

    if (!fth_strategy_session_follows(parts->session))
        FTH_TRY(fth_strategy_session_begin_ending(parts->session));
    if (*phase != FTH_RUN_SAVED)
        FTH_TRY(save_run(parts, reason, phase, event));
    FTH_TRY(fth_strategy_session_end_together(parts->session));

out:
    fth_strategy_session_break_ending(parts->session);
    return status;
}

/* ---- a stop was asked for ---- */

/* A peer that is lost now changes nothing: this process has the weights of the last update. */
static fth_status settle_at_stop(const fth_run_parts *parts)
{
    fth_status status = fth_strategy_session_settle(parts->session);
    if (!fth_strategy_session_take_back(parts->session, status))
        return status;
    fth_log_warning("%s; stopping without it", fth_error_message());
    return FTH_OK;
}

/* This machine is being preempted, and its peers have the weights of the last update: they
 * continue, and save. */
static fth_status leave_group(const fth_run_parts *parts)
{
    fth_status status = FTH_OK;
    const fth_stop_reason reason = fth_stop_get(parts->stop);

    fth_validator_cancel(parts->validator);
    fth_deadline_watchdog_enter(parts->watchdog, FTH_PHASE_ENDING);
    fth_reporter_write_step(parts->reporter);
    fth_reporter_write_data(parts->reporter);
    fth_reporter_write(parts->reporter, "left",
                       json_pack("{s:s, s:f, s:I, s:s}", "event", "left", "time", 0.0, "step",
                                 (json_int_t)parts->position->step, "reason", reason.message));
    FTH_TRY(fth_reporter_sync(parts->reporter));
    fth_validator_set_saver(parts->validator, NULL, NULL);
    fth_run_owner_give_up(parts->owner); /* its successor need not wait for it */
    fth_log_info("%s: left the group after step %" PRId64 "; the others continue", reason.message,
                 parts->position->step);
    fth_deadline_watchdog_acknowledge(parts->watchdog);

out:
    return status;
}

/* Saves what fits before the deadline, and says how it went. */
static fth_status interrupt(const fth_run_parts *parts)
{
    fth_status status = FTH_OK;
    fth_stop_reason reason = fth_stop_get(parts->stop);
    fth_run_owner *owner = parts->owner;

    FTH_TRY(settle_at_stop(parts));
    fth_recovery_take_over_at_stop(parts->recovery, &reason);
    fth_run_store *store = fth_run_owner_get_store(owner);
    const bool stays = reason.kind == FTH_STOP_REQUEST && !store; /* the machine, as far as we know */
    if (stays)
        reason.deadline.at_seconds = INFINITY; /* a disk gets the time it needs */
    fth_validator_cancel(parts->validator);
    fth_deadline_watchdog_enter(parts->watchdog, FTH_PHASE_ENDING);
    fth_reporter_write_step(parts->reporter);
    const bool saves = fth_recovery_can_save(parts->recovery);
    if (saves)
        FTH_TRY(fth_saver_save_at_stop(get_saver(parts), &reason));
    fth_deadline_watchdog_report_messages(parts->watchdog);
    const bool copied = fth_saver_look(get_saver(parts)).copy_step > 0;
    if (store && !copied) /* after what matters more */
        fth_run_store_put_best_in_time(store, fth_run_owner_best_path(owner), reason.deadline);
    if (stays && saves && parts->position->step > 0)
        FTH_TRY(save_last_model(parts));
    fth_reporter_write_data(parts->reporter);
    if (get_saver(parts))
        fth_deadline_watchdog_report_notice(parts->watchdog, &reason);
    fth_reporter_write_interrupted(parts->reporter, &reason);
    FTH_TRY(fth_reporter_sync(parts->reporter));
    if (copied && fth_saver_is_closing(get_saver(parts)))
        fth_deadline_watchdog_end_process(parts->watchdog);
    status = fth_run_owner_leave(owner);
    if (status != FTH_OK && status != FTH_PEER_LOST) { /* the checkpoint is safe, and that is what counts */
        fth_log_warning("%s", fth_error_message());
        status = FTH_OK;
    }
    fth_deadline_watchdog_acknowledge(parts->watchdog);

out:
    return status;
}

/* ---- fenced or failed ---- */

static void report_fenced(const fth_run_parts *parts, fth_run_phase phase, const char *message,
                          fth_train_outcome *outcome)
{
    fth_log_warning("%s", message);
    if (phase != FTH_RUN_SETTING_UP)
        fth_reporter_write_warning(parts->reporter, message);
    outcome->fenced = outcome->interrupted = true;
}

/* Weights that were read are finite (engine_load.c), so training made them otherwise. The loss, the
 * gradients or the weights showed it. */
static fth_status fail_diverged(const fth_run_parts *parts, const char *what)
{
    return fth_fail(FTH_DIVERGED,
                    "%s after step %" PRId64 " (epoch %.2f, learning rate %g): training diverged. Checkpoints "
                    "from before it, if any, are kept; try a lower --lr, --warmup 200 or --clip 1",
                    what, parts->position->step, fth_position_epoch(parts->position), parts->position->learning_rate);
}

static fth_status report_failed(const fth_run_parts *parts, fth_status status)
{
    char *message = fth_format("%s", fth_error_message());
    if (fth_reporter_get_record(parts->reporter)) {
        fth_reporter_write_data(parts->reporter);
        fth_reporter_write_error(parts->reporter, status, message);
    }
    fth_run_owner_discard_unbegun(parts->owner);
    FTH_IGNORE(fth_run_owner_leave(parts->owner), "the failure that led here is reported");
    fth_set_error("%s", message);
    free(message);
    return status;
}

/* A stop was asked for, and the run is this process's as far as it knows. */
static fth_status conclude_stopped(const fth_run_parts *parts, fth_run_phase phase, fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    if (phase == FTH_RUN_SETTING_UP) {
        fth_deadline_watchdog_enter(parts->watchdog, FTH_PHASE_ENDING);
        return fth_run_owner_leave(parts->owner);
    }
    if (phase == FTH_RUN_LEAVING) {
        status = leave_group(parts);
        outcome->left = status == FTH_OK;
        return status;
    }
    status = interrupt(parts);
    if (!fth_run_owner_get_store(parts->owner)) /* a store's is left to its next owner: time may be short */
        fth_run_owner_discard_unbegun(parts->owner);
    return status;
}

fth_status fth_ending_conclude(const fth_run_parts *parts, fth_run_phase phase, fth_status status,
                               fth_train_outcome *outcome)
{
    if (status == FTH_INTERRUPTED && (phase == FTH_RUN_LEAVING || fth_stop_get(parts->stop).kind != FTH_STOP_FENCED))
        status = conclude_stopped(parts, phase, outcome);
    char *message = fth_format("%s", fth_error_message());
    const fth_stop_reason reason = fth_stop_get(parts->stop);
    const bool lost = status == FTH_PEER_LOST && fth_run_owner_is_lost(parts->owner);
    if (lost || reason.kind == FTH_STOP_FENCED) {
        report_fenced(parts, phase, reason.kind == FTH_STOP_FENCED ? reason.message : message, outcome);
        free(message);
        return FTH_OK;
    }
    outcome->interrupted = status == FTH_OK;
    outcome->local_copy = fth_saver_describe_copy(get_saver(parts));
    if (status == FTH_DIVERGED)
        status = fail_diverged(parts, message);
    if (status != FTH_OK)
        status = report_failed(parts, status);
    free(message);
    return status;
}
