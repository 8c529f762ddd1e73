/* Stopping in time.
 *
 * A notice is a deadline. The training thread looks at the request between steps and inside evaluations; then it
 * decides what still fits (fth_trainer_choose_save). It may not come to look, though: a step may be long, a library
 * call may not return, data may still be opening. So a thread of its own, the guardian, watches the clock:
 *
 *     nothing is unsaved (start-up)     a second of grace, then the process ends
 *     in a step that ends too late      what is already snapshotted is brought to safety, then the process ends
 *     the training thread is saving     it is left alone until the deadline
 *
 *     a request, not a preemption       the time is up, and it is not a step of usual length or a disk that takes longer
 *
 * The process is ended by the observer (src/cli); where there is none, the training thread goes on as long as it takes.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "train/trainer_internal.h"

#define LOOK_EVERY_S    0.02
#define START_GRACE_S   1.0 /* for an orderly end of what has nothing to save */
#define FENCED_GRACE_S  5.0
#define MARGIN_S        0.3  /* that clocks, manifests and the end of the process take */
#define SLOWEST_BYTES_S 20e6 /* assumed of a store that nothing is known about */

/* ---- what fits ---- */

/* Seconds that a save of the whole state takes from its copy to its manifest. */
static double expect_save_s(const fth_trainer *trainer, double *rate)
{
    const fth_saving *saving = &trainer->saving;
    double size = saving->size_bytes > 0 ? (double)saving->size_bytes : (double)trainer->state_bytes;
    *rate = saving->save_s > 0 ? size / saving->save_s : SLOWEST_BYTES_S;
    return saving->stall_s + size / *rate;
}

fth_save_choice fth_trainer_choose_save(const fth_trainer *trainer, const fth_stop_reason *reason)
{
    const fth_saving *saving = &trainer->saving;
    double left_s = reason->deadline.at_seconds - fth_clock_seconds() - MARGIN_S, rate;
    double new_s = expect_save_s(trainer, &rate);
    if (!isfinite(left_s) || !saving->writer)
        return FTH_SAVE_AFTER; /* time enough, or nothing to lose by trying */
    fth_writer_state state = fth_writer_look(saving->writer);
    if (!state.writing)
        return FTH_SAVE_AFTER;
    double old_s = state.total_bytes > 0 ? (double)(state.total_bytes - state.done_bytes) / rate : new_s;
    if (old_s + new_s <= left_s / 2)
        return FTH_SAVE_AFTER;
    if (1.2 * new_s <= left_s)
        return FTH_SAVE_INSTEAD;
    return FTH_SAVE_NOT;
}

/* A cloud that takes a machine away takes its disk too; whoever sends a signal often does not. */
bool fth_trainer_wants_local_copy(const fth_trainer *trainer, const fth_stop_reason *reason)
{
    return trainer->run_store && (reason->kind == FTH_STOP_REQUEST || strcmp(reason->source, "signal") == 0);
}

fth_deadline fth_trainer_leaving_deadline(const fth_stop_reason *reason)
{
    return (fth_deadline){reason->deadline.at_seconds - MARGIN_S};
}

fth_deadline fth_trainer_store_deadline(const fth_trainer *trainer, const fth_stop_reason *reason)
{
    const double slow_disk_bytes_per_s = 100e6;
    double given_s = reason->deadline.at_seconds - reason->asked_at_s;
    if (!fth_trainer_wants_local_copy(trainer, reason) || !isfinite(given_s))
        return reason->deadline;
    double copy_s = MARGIN_S + 0.5 + 2 * (double)trainer->state_bytes / slow_disk_bytes_per_s;
    return (fth_deadline){reason->deadline.at_seconds - fmin(copy_s, 0.5 * given_s)};
}

/* ---- how it went ---- */

/* NULL where nobody gave notice. */
static json_t *describe_notice(const fth_trainer *trainer, const fth_stop_reason *reason)
{
    int64_t stored =
        trainer->saving.written_step > trainer->restored_step ? trainer->saving.written_step : trainer->restored_step;
    int64_t step = trainer->position.step, lost = step - (stored > 0 ? stored : 0);
    double used_s = fth_clock_seconds() - reason->asked_at_s;
    if (reason->kind != FTH_STOP_PREEMPTION)
        return NULL;
    json_t *event = json_pack("{s:s, s:f, s:s, s:s, s:f, s:I, s:I, s:I, s:b}", "event", "notice", "time", 0.0, "source",
                              reason->source, "message", reason->message, "seconds_used", used_s, "step",
                              (json_int_t)step, "saved_step", (json_int_t)(stored > 0 ? stored : 0), "steps_lost",
                              (json_int_t)lost, "fitted", lost == 0);
    if (isfinite(reason->deadline.at_seconds))
        json_object_set_new(event, "seconds_given", json_real(reason->deadline.at_seconds - reason->asked_at_s));
    if (trainer->saving.local_step > 0)
        json_object_set_new(event, "local_step", json_integer(trainer->saving.local_step));
    return event;
}

static void say_notice(const json_t *event)
{
    const json_t *given = json_object_get(event, "seconds_given");
    char time[48] = "";
    if (given)
        snprintf(time, sizeof time, " of %.1f s", json_number_value(given));
    int64_t lost = json_integer_value(json_object_get(event, "steps_lost"));
    if (lost == 0)
        fth_log_info("notice (%s): step %" JSON_INTEGER_FORMAT " is stored after %.1f s%s; nothing is lost",
                     json_string_value(json_object_get(event, "message")),
                     json_integer_value(json_object_get(event, "saved_step")),
                     json_number_value(json_object_get(event, "seconds_used")), time);
    else
        fth_log_warning("notice (%s): step %" JSON_INTEGER_FORMAT " is stored after %.1f s%s; %s since then %s",
                        json_string_value(json_object_get(event, "message")),
                        json_integer_value(json_object_get(event, "saved_step")),
                        json_number_value(json_object_get(event, "seconds_used")), time, FTH_COUNTED(lost, "step"),
                        json_object_get(event, "local_step") ? "saved on this machine only"
                                                             : "could not be saved in time");
}

void fth_trainer_tell_notice(fth_trainer *trainer, const fth_stop_reason *reason)
{
    json_t *event = describe_notice(trainer, reason);
    if (!event)
        return;
    say_notice(event);
    fth_reporter_write(trainer->reporter, "notice", event);
}

void fth_trainer_acknowledge(fth_trainer *trainer)
{
    if (trainer->watch)
        fth_watch_acknowledge(trainer->watch);
}

/* ---- phases ---- */

void fth_trainer_enter(fth_trainer *trainer, fth_phase phase)
{
    fth_guardian *guardian = &trainer->guardian;
    pthread_mutex_lock(&guardian->mutex);
    bool abandoned = guardian->abandoning;
    if (!abandoned) {
        guardian->phase = phase;
        guardian->phase_since_s = fth_clock_seconds();
    }
    pthread_mutex_unlock(&guardian->mutex);
    if (abandoned) /* the process is being ended; from here on nothing may change */
        for (;;)
            pause();
}

void fth_trainer_leave_step(fth_trainer *trainer)
{
    fth_guardian *guardian = &trainer->guardian;
    pthread_mutex_lock(&guardian->mutex);
    double seconds = fth_clock_seconds() - guardian->phase_since_s;
    guardian->step_s = guardian->step_s > 0 ? 0.8 * guardian->step_s + 0.2 * seconds : seconds;
    pthread_mutex_unlock(&guardian->mutex);
    fth_trainer_enter(trainer, FTH_PHASE_BETWEEN);
}

/* ---- the guardian ---- */

/* Brings what was snapshotted to safety and says so; the training thread is somewhere else for good. */
static void *close_run(void *context)
{
    fth_trainer *trainer = context;
    fth_guardian *guardian = &trainer->guardian;
    fth_saving *saving = &trainer->saving;
    fth_stop_reason reason = fth_stop_get(trainer->stop);
    bool fenced = reason.kind == FTH_STOP_FENCED;
    saving->hurry = isfinite(reason.deadline.at_seconds); /* the checkpoint first, the rest after it */
    if (saving->writer && !fenced)
        fth_writer_wait_idle(saving->writer, (fth_deadline){reason.deadline.at_seconds - MARGIN_S});
    json_t *event = fenced ? NULL : describe_notice(trainer, &reason);
    if (event)
        say_notice(event);
    if (event) {
        fth_reporter_record(trainer->reporter, "notice", json_incref(event));
        fth_reporter_record(trainer->reporter, "interrupted",
                            json_pack("{s:s, s:f, s:I}", "event", "interrupted", "time", 0.0, "step",
                                      (json_int_t)trainer->position.step));
        fth_reporter_sync(trainer->reporter);
    }
    json_decref(event);
    if (trainer->run_store && !fenced) {
        fth_run_store_flush(trainer->run_store);
        fth_trainer_store_best_in_time(trainer, &reason);
        fth_trainer_acknowledge(trainer);
        fth_run_store_release(trainer->run_store);
    } else if (!fenced) {
        fth_trainer_acknowledge(trainer);
    }
    pthread_mutex_lock(&guardian->mutex);
    guardian->closed = true;
    pthread_cond_broadcast(&guardian->changed);
    pthread_mutex_unlock(&guardian->mutex);
    return NULL;
}

/* Does not return, unless there is nobody to end the process. */
static void leave(fth_trainer *trainer, const char *why)
{
    if (!trainer->observer || !trainer->observer->abandon)
        return;
    char *local = fth_trainer_describe_local_copy(trainer);
    trainer->observer->abandon(trainer->observer->context, local ? local : why);
    free(local);
}

static void abandon(fth_trainer *trainer, const char *why)
{
    fth_guardian *guardian = &trainer->guardian;
    fth_stop_reason reason = fth_stop_get(trainer->stop);
    pthread_t thread;
    if (!trainer->observer || !trainer->observer->abandon)
        return;
    pthread_mutex_lock(&guardian->mutex);
    bool hard = guardian->phase == FTH_PHASE_ENDING; /* it saves by itself, and time is up */
    guardian->abandoning = true;
    pthread_mutex_unlock(&guardian->mutex);
    if (!hard && fth_thread_start(&thread, "close-run", close_run, trainer) == 0) {
        pthread_mutex_lock(&guardian->mutex);
        while (!guardian->closed && !fth_deadline_passed(reason.deadline)) {
            struct timespec until = fth_deadline_timespec(fth_deadline_in(LOOK_EVERY_S));
            pthread_cond_clockwait(&guardian->changed, &guardian->mutex, CLOCK_MONOTONIC, &until);
        }
        pthread_mutex_unlock(&guardian->mutex);
    }
    leave(trainer, why);
}

void fth_trainer_leave_at_once(fth_trainer *trainer)
{
    fth_guardian *guardian = &trainer->guardian;
    pthread_mutex_lock(&guardian->mutex);
    bool mine = !guardian->abandoning;
    pthread_mutex_unlock(&guardian->mutex);
    if (mine)
        leave(trainer, "the store does not answer");
}

/* A person or a supervisor that says nothing of a deadline waits for a step that takes its usual time, and for a disk;
 * what it does not wait for is a store that does not answer. */
static const char *reason_to_abandon_request(const fth_trainer *trainer, const fth_stop_reason *reason, fth_phase phase,
                                             double since_s, double step_s)
{
    double now = fth_clock_seconds(), given_s = reason->deadline.at_seconds - reason->asked_at_s;
    if (now < reason->deadline.at_seconds)
        return NULL;
    if (phase == FTH_PHASE_STEP)
        return now - since_s > fmax(3 * step_s, given_s) ? "the step does not end" : NULL;
    if (phase == FTH_PHASE_ENDING && !trainer->run_store)
        return NULL;
    return phase == FTH_PHASE_BEGIN ? "stopped before the first step" : "time is up";
}

/* Why the process has to end now although the training thread has not; NULL: it need not. */
static const char *reason_to_abandon(fth_trainer *trainer, const fth_stop_reason *reason, fth_phase phase,
                                     double since_s, double step_s)
{
    double now = fth_clock_seconds(), left_s = reason->deadline.at_seconds - now, rate;
    double waited_s = now - reason->asked_at_s;
    if (reason->kind == FTH_STOP_FENCED)
        return waited_s > FENCED_GRACE_S ? "another machine has the run, and the last step does not end" : NULL;
    if (!isfinite(left_s))
        return NULL;
    if (reason->kind == FTH_STOP_REQUEST)
        return reason_to_abandon_request(trainer, reason, phase, since_s, step_s);
    if (phase == FTH_PHASE_ENDING)
        return left_s <= 0 ? "time is up" : NULL;
    if (phase == FTH_PHASE_BEGIN)
        return waited_s > START_GRACE_S || left_s < MARGIN_S ? "stopped before the first step" : NULL;
    if (left_s < MARGIN_S)
        return "time is up";
    if (phase != FTH_PHASE_STEP || step_s <= 0)
        return NULL;
    double rest_s = fmax(0, since_s + step_s - now);
    fth_writer_state state = {0};
    if (trainer->saving.writer)
        state = fth_writer_look(trainer->saving.writer);
    /* Saves were measured beside training, and are faster without it: where in doubt it is worth a try. */
    bool too_late = rest_s + 0.25 * expect_save_s(trainer, &rate) + MARGIN_S > left_s;
    return too_late && !state.writing && !state.waiting ? "the step would not be saved in time" : NULL;
}

static void *guard(void *context)
{
    fth_trainer *trainer = context;
    fth_guardian *guardian = &trainer->guardian;
    pthread_mutex_lock(&guardian->mutex);
    while (!guardian->ending) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(LOOK_EVERY_S));
        pthread_cond_clockwait(&guardian->changed, &guardian->mutex, CLOCK_MONOTONIC, &until);
        if (guardian->ending || !trainer->stop->asked)
            continue;
        fth_phase phase = guardian->phase;
        double since_s = guardian->phase_since_s, step_s = guardian->step_s;
        pthread_mutex_unlock(&guardian->mutex);
        fth_stop_reason reason = fth_stop_get(trainer->stop);
        if (reason.kind == FTH_STOP_FENCED && trainer->saving.writer)
            fth_writer_cancel(trainer->saving.writer);
        const char *why = reason_to_abandon(trainer, &reason, phase, since_s, step_s);
        if (why)
            abandon(trainer, why);
        pthread_mutex_lock(&guardian->mutex);
    }
    pthread_mutex_unlock(&guardian->mutex);
    return NULL;
}

fth_status fth_guardian_start(fth_trainer *trainer)
{
    fth_guardian *guardian = &trainer->guardian;
    pthread_mutex_init(&guardian->mutex, NULL);
    pthread_cond_init(&guardian->changed, NULL);
    guardian->phase = FTH_PHASE_BEGIN;
    if (!trainer->stop)
        return FTH_OK;
    guardian->running = fth_thread_start(&guardian->thread, "guardian", guard, trainer) == 0;
    return guardian->running ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no thread could be started to watch deadlines");
}

void fth_guardian_stop(fth_trainer *trainer)
{
    fth_guardian *guardian = &trainer->guardian;
    pthread_mutex_lock(&guardian->mutex);
    guardian->ending = true;
    pthread_cond_broadcast(&guardian->changed);
    pthread_mutex_unlock(&guardian->mutex);
    if (guardian->running)
        pthread_join(guardian->thread, NULL);
    guardian->running = false;
}

/* ---- notices ---- */

fth_status fth_trainer_open_watch(fth_trainer *trainer, const fth_train_options *asked)
{
    const char *sources = *asked->watch ? asked->watch : (*asked->checkpoints ? "auto" : "none");
    if (!trainer->stop || strcmp(sources, "none") == 0)
        return FTH_OK;
    return fth_watch_open(sources, trainer->stop, &trainer->watch);
}

void fth_trainer_tell_news(fth_trainer *trainer)
{
    char text[FTH_NEWS_BYTES];
    while (trainer->watch && fth_watch_take_news(trainer->watch, text, sizeof text)) {
        json_t *event = json_pack("{s:s, s:f, s:I, s:s}", "event", "news", "time", 0.0, "step",
                                  (json_int_t)trainer->position.step, "message", text);
        fth_reporter_write(trainer->reporter, "news", event);
    }
}
