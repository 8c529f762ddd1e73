/* See recovery.h, which draws the states. */
#include "train/loop/recovery.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MOST_LOSSES = 100,
    LOOK_EVERY_US = 20000 /* while there is nothing to do but to wait */
};

typedef enum state { FORMING, WAITING, SYNCHRONIZING, TRAINING } state;

struct fth_recovery {
    const fth_run_parts *with;
    bool begun;          /* training has begun before: there are weights to keep */
    bool found;          /* this process found the run, and opens its record if it leads */
    bool starts;         /* it has done so: the start is to be written */
    bool ended;          /* the run has: peers are not waited for */
    const char *reason;  /* why a group is formed again */
    bool waiting, saved; /* since then: said, and done */
    bool unsaved;        /* a record that was taken over has no checkpoint yet */
};

fth_status fth_recovery_create(const fth_run_parts *parts, fth_recovery **recovery)
{
    fth_status status = fth_allocate(1, sizeof **recovery, recovery);
    if (status == FTH_OK)
        (*recovery)->with = parts;
    return status;
}

void fth_recovery_free(fth_recovery *recovery)
{
    free(recovery);
}

static fth_saver *get_saver(const fth_recovery *self)
{
    return fth_run_owner_get_saver(self->with->owner);
}

/* ---- who owns the run ---- */

static void set_saver(fth_recovery *self)
{
    fth_validator_set_saver(self->with->validator, get_saver(self), fth_run_owner_best_path(self->with->owner));
}

/* A peer owns it. A lease that is held here is given up. */
static void leave_run_to_peer(fth_recovery *self)
{
    fth_validator_set_saver(self->with->validator, NULL, NULL);
    fth_run_owner_give_up(self->with->owner);
}

/* No process that is out of reach can lead the run. */
static bool reaches_majority(const fth_recovery *self)
{
    return fth_strategy_session_get_present(self->with->session) > 0.5;
}

/* Opens the record, at the run's first weights or the newest checkpoint. */
static fth_status open_run(fth_recovery *self)
{
    fth_status status = FTH_OK;
    fth_run_owner *owner = self->with->owner;

    FTH_TRY(fth_run_owner_open(owner));
    set_saver(self);
    if (self->with->selection->run)
        FTH_TRY(fth_run_owner_restore(owner));
    FTH_TRY(fth_run_owner_begin_store(owner));

out:
    return status;
}

/* The peer that found the run was lost before training began. This process leads instead, at the
 * newest checkpoint that it can find. */
static fth_status open_run_of_peer(fth_recovery *self)
{
    const double patience_s = 300;
    fth_status status = FTH_OK;
    const fth_run_parts *with = self->with;
    fth_run_selection *selection = with->selection;
    const bool resumed = selection->run != NULL;
    const fth_start_facts facts = fth_strategy_session_describe_start(with->session, true);
    const fth_deadline deadline = fth_deadline_in(patience_s);

    fth_run_owner_take_over(with->owner, "the process that had the run was lost", reaches_majority(self), true);
    while (!fth_run_owner_look(with->owner, &facts, (fth_deadline){0})) {
        FTH_REQUIRE(!with->stop || !with->stop->asked, FTH_INTERRUPTED, "asked to stop");
        FTH_REQUIRE(fth_run_owner_is_taking_over(with->owner), FTH_PEER_LOST, "run %s has ended meanwhile",
                    selection->id);
        FTH_REQUIRE(!fth_deadline_passed(deadline), FTH_TIMEOUT,
                    "run %s could not be taken over from the process that had it within %.0f s; see above",
                    selection->id, patience_s);
        usleep(LOOK_EVERY_US);
    }
    set_saver(self);
    FTH_REQUIRE(!resumed || selection->folder, FTH_PEER_LOST,
                "the process that found run %s was lost before training began, and the run is not on this machine; "
                "start it again where it is, or keep runs in a store (--checkpoints)",
                selection->id);

out:
    return status;
}

/* Before training: owns the run, or leaves it to a peer, as the group has it. */
static fth_status take_first_place(fth_recovery *self)
{
    fth_status status = FTH_OK;

    if (fth_strategy_session_follows(self->with->session)) {
        leave_run_to_peer(self);
        self->found = self->starts = false;
    } else if (self->found && !get_saver(self)) {
        self->starts = true;
        FTH_TRY(open_run(self));
    } else if (!get_saver(self)) {
        FTH_TRY(open_run_of_peer(self));
    }

out:
    return status;
}

/* The same during training, in a new group. */
static void take_place(fth_recovery *self)
{
    fth_validator_set_peers(self->with->validator, fth_strategy_session_get_peers(self->with->session));
    if (fth_strategy_session_follows(self->with->session))
        leave_run_to_peer(self);
    else
        fth_run_owner_take_over(self->with->owner, self->reason, reaches_majority(self), false);
}

/* ---- taking the run over ---- */

static void continue_takeover(fth_recovery *self, fth_deadline deadline)
{
    if (!fth_run_owner_is_taking_over(self->with->owner))
        return;
    const fth_start_facts facts = fth_strategy_session_describe_start(self->with->session, true);
    if (!fth_run_owner_look(self->with->owner, &facts, deadline))
        return;
    set_saver(self);
    self->unsaved = true;
    if (fth_validator_keep_best(self->with->validator) != FTH_OK)
        fth_log_warning("%s", fth_error_message());
}

void fth_recovery_follow_takeover(fth_recovery *self)
{
    continue_takeover(self, (fth_deadline){0});
}

/* False if the deadline passes first. */
static bool finish_takeover(fth_recovery *self, fth_deadline deadline, bool until_stop)
{
    while (fth_run_owner_is_taking_over(self->with->owner)) {
        if (fth_deadline_passed(deadline) || (until_stop && self->with->stop && self->with->stop->asked))
            return false;
        fth_recovery_follow_takeover(self);
        if (fth_run_owner_is_taking_over(self->with->owner))
            usleep(LOOK_EVERY_US);
    }
    return true;
}

fth_status fth_recovery_take_over_at_end(fth_recovery *self)
{
    const double patience_s = 300;
    if (finish_takeover(self, fth_deadline_in(patience_s), true))
        return FTH_OK;
    if (self->with->stop && self->with->stop->asked)
        return fth_fail(FTH_INTERRUPTED, "asked to stop before the run could be taken over");
    return fth_fail(FTH_TIMEOUT,
                    "the run has ended, but could not be taken over from the process that kept it within %.0f s; see "
                    "above",
                    patience_s);
}

/* In half of the time there is: the other half is for saving. */
void fth_recovery_take_over_at_stop(fth_recovery *self, const fth_stop_reason *reason)
{
    const double patience_s = 30, left_s = fth_deadline_left_seconds(reason->deadline);
    if (!finish_takeover(self, fth_deadline_in(left_s < 2 * patience_s ? left_s / 2 : patience_s), false))
        fth_log_warning("run %s was not taken over in time from the process that kept it; it continues from its newest "
                        "checkpoint",
                        self->with->selection->id);
}

/* ---- saving ---- */

bool fth_recovery_is_fenced(const fth_recovery *self)
{
    return fth_strategy_session_has_met(self->with->session) && fth_run_owner_is_lost(self->with->owner);
}

/* A save finds out that another process has the run. */
static fth_status excuse_fence(const fth_recovery *self, fth_status status)
{
    return status == FTH_PEER_LOST && fth_recovery_is_fenced(self) ? FTH_OK : status;
}

fth_status fth_recovery_collect_saves(fth_recovery *self)
{
    const double step_s = fth_deadline_watchdog_get_step_s(self->with->watchdog);
    return excuse_fence(self, fth_saver_collect(get_saver(self), step_s));
}

fth_status fth_recovery_save(fth_recovery *self)
{
    fth_status status = fth_saver_save(get_saver(self));
    if (status == FTH_OK && get_saver(self))
        self->unsaved = false;
    return status;
}

bool fth_recovery_needs_checkpoint(const fth_recovery *self)
{
    return self->unsaved;
}

bool fth_recovery_can_save(const fth_recovery *self)
{
    if (!get_saver(self) || fth_strategy_session_can_save(self->with->session))
        return true;
    fth_reporter_warn(self->with->reporter,
                      "step %" PRId64 " cannot be saved without the workers that are lost, which have parts of the "
                      "optimizer's state; what was saved before is good",
                      self->with->position->step);
    return false;
}

/* ---- WAITING ---- */

/* The first of those that wait owns the run. If they are less than half of the machines, the others
 * may be training, and a run in a store stays theirs. */
static bool should_own(const fth_recovery *self)
{
    const bool stored = *self->with->selection->options.store.checkpoints;
    return !fth_strategy_session_follows(self->with->session) &&
           (!stored || fth_strategy_session_get_present(self->with->session) >= 0.5);
}

/* Owns the run as far as this process should, and saves it once. */
static fth_status save_while_waiting(fth_recovery *self, const char *message)
{
    const double patience_s = 2; /* with a store, before the others are looked for again */
    fth_status status = FTH_OK;
    const fth_run_parts *with = self->with;

    if (should_own(self))
        fth_run_owner_take_over(with->owner, self->reason, reaches_majority(self), false);
    else if (fth_run_owner_is_taking_over(with->owner))
        fth_run_owner_give_up(with->owner);
    continue_takeover(self, fth_deadline_in(patience_s));
    if (self->saved || !get_saver(self))
        goto out;
    self->saved = true;
    fth_reporter_write(with->reporter, "waiting",
                       json_pack("{s:s, s:f, s:I, s:s}", "event", "waiting", "time", 0.0, "step",
                                 (json_int_t)with->position->step, "message", message));
    if ((self->unsaved || fth_saver_is_unsaved(get_saver(self))) && fth_recovery_can_save(self))
        FTH_TRY(fth_recovery_save(self));

out:
    return status;
}

/* Called again every few seconds, after another attempt to form a group. Its message says who is
 * missing. */
static fth_status wait_for_peers(fth_recovery *self)
{
    fth_status status = FTH_OK;
    const fth_run_parts *with = self->with;
    const bool first = !self->waiting;
    char *message = NULL;

    self->waiting = true;
    if (first && !self->begun)
        fth_log_info("waiting: %s", fth_error_message());
    if (!self->begun)
        return FTH_OK;
    message = fth_format("%s", fth_error_message());
    if (first)
        fth_log_info("waiting after step %" PRId64 ": %s", with->position->step, message ? message : "");
    status = save_while_waiting(self, message ? message : "");
    FTH_TRY(excuse_fence(self, status));
    FTH_TRY(fth_recovery_collect_saves(self));
    FTH_REQUIRE(!with->stop || !with->stop->asked, FTH_INTERRUPTED, "asked to stop");

out:
    free(message);
    return status;
}

/* ---- the states ---- */

static fth_status synchronize(fth_recovery *self)
{
    fth_status status = FTH_OK;

    if (!self->begun)
        FTH_TRY(take_first_place(self));
    FTH_TRY(self->begun ? fth_strategy_session_synchronize(self->with->session)
                        : fth_strategy_session_open(self->with->session));

out:
    return status;
}

/* Goes through the states until a group trains. */
static fth_status regroup(fth_recovery *self, state now)
{
    fth_status status = FTH_OK;
    int losses = 0;

    self->waiting = self->saved = false;
    while (now != TRAINING) {
        switch (now) {
        case FORMING:
            if (self->begun)
                fth_deadline_watchdog_enter(self->with->watchdog, FTH_PHASE_BETWEEN);
            status = fth_strategy_session_form(self->with->session);
            now = SYNCHRONIZING;
            if (status == FTH_TIMEOUT && !self->ended) {
                status = FTH_OK;
                now = WAITING;
            }
            break;
        case WAITING:
            FTH_TRY(wait_for_peers(self));
            now = FORMING;
            break;
        default: status = synchronize(self); now = TRAINING;
        }
        if (fth_strategy_session_take_back(self->with->session, status) && ++losses < MOST_LOSSES) {
            fth_log_warning("%s; forming the group again", fth_error_message());
            status = FTH_OK;
            now = FORMING;
        }
        FTH_TRY(status);
    }

out:
    return status;
}

fth_status fth_recovery_begin(fth_recovery *self, bool found, bool *starts)
{
    fth_status status = FTH_OK;

    self->found = found;
    FTH_TRY(regroup(self, SYNCHRONIZING));
    fth_validator_set_peers(self->with->validator, fth_strategy_session_get_peers(self->with->session));
    self->begun = true;
    *starts = self->starts;

out:
    return status;
}

/* `reason`: for people; lent until it returns. */
static fth_status form_again(fth_recovery *self, const char *reason)
{
    fth_status status = FTH_OK;

    self->reason = reason;
    FTH_TRY(regroup(self, FORMING));
    take_place(self);

out:
    return status;
}

fth_status fth_recovery_recover(fth_recovery *self, fth_status status)
{
    if (!fth_strategy_session_take_back(self->with->session, status))
        return status;
    char *reason = fth_format("%s", fth_error_message());
    fth_reporter_warn(self->with->reporter, "%s; continuing with the peers that are left", fth_error_message());
    status = form_again(self, reason ? reason : "a peer was lost");
    free(reason);
    return status;
}

void fth_recovery_stop_waiting(fth_recovery *self)
{
    self->ended = true;
}

fth_status fth_recovery_admit_peers(fth_recovery *self)
{
    return form_again(self, "a new group was formed");
}
