/* See deadline_watchdog.h. Everything that its thread and the training thread share is under one
 * mutex; what it needs of the saver, the reporter and the run in the store, it asks them, from
 * functions that any thread may call. */
#include "train/loop/deadline_watchdog.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"

#define LOOK_EVERY_S 0.02

struct fth_deadline_watchdog {
    fth_stop *stop;                     /* NULL: no stop can be asked for */
    const fth_train_observer *observer; /* or NULL */
    fth_reporter *reporter;
    pthread_t thread, closer; /* watches the clock, and saves what it can when the process is to end */
    bool running, closing;    /* they are to be joined */
    pthread_mutex_t looking;  /* held by the watchdog's thread while it uses the run; taken before `mutex` */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    fth_watch *watch; /* NULL: no notices are listened for; set once */
    fth_watched_run run;
    fth_phase phase;
    double phase_since_s, step_s; /* the latter a mean of the last few; 0: not known */
    int64_t step;                 /* updates done */
    bool ending;                  /* the watchdog's thread is to end */
    bool abandoning;              /* the process is to end: from now on, the training thread changes nothing */
    bool closed;                  /* what could be saved is */
};

/* ---- how a notice was used ---- */

/* The event, which is logged too; NULL if there was no notice. */
static json_t *describe_notice(const fth_stop_reason *reason, int64_t step, fth_saver *saver)
{
    fth_saver_state saved = saver ? fth_saver_look(saver) : (fth_saver_state){0};
    int64_t stored = saved.stored_step > 0 ? saved.stored_step : 0;
    step = step > stored ? step : stored; /* a run that was restored and has not begun its next step */
    int64_t lost = step - stored;
    double used_s = fth_clock_seconds() - reason->asked_at_s;
    char time[48] = "";
    if (reason->kind != FTH_STOP_PREEMPTION)
        return NULL;
    json_t *event =
        json_pack("{s:s, s:f, s:s, s:s, s:f, s:I, s:I, s:I, s:b}", "event", "notice", "time", 0.0, "source",
                  reason->source, "message", reason->message, "seconds_used", used_s, "step", (json_int_t)step,
                  "saved_step", (json_int_t)stored, "steps_lost", (json_int_t)lost, "fitted", lost == 0);
    if (isfinite(reason->deadline.at_seconds)) {
        double given_s = reason->deadline.at_seconds - reason->asked_at_s;
        json_object_set_new(event, "seconds_given", json_real(given_s));
        snprintf(time, sizeof time, " of %.1f s", given_s);
    }
    if (saved.copy_step > 0)
        json_object_set_new(event, "local_step", json_integer(saved.copy_step));
    if (lost == 0)
        fth_log_info("notice (%s): step %" PRId64 " is stored after %.1f s%s; nothing is lost", reason->message, stored,
                     used_s, time);
    else
        fth_log_warning("notice (%s): step %" PRId64 " is stored after %.1f s%s; %s since then %s", reason->message,
                        stored, used_s, time, FTH_COUNTED(lost, "step"),
                        saved.copy_step > 0 ? "saved on this machine only" : "could not be saved in time");
    return event;
}

static fth_watched_run get_run(fth_deadline_watchdog *watchdog, int64_t *step)
{
    pthread_mutex_lock(&watchdog->mutex);
    fth_watched_run run = watchdog->run;
    *step = watchdog->step;
    pthread_mutex_unlock(&watchdog->mutex);
    return run;
}

void fth_deadline_watchdog_report_notice(fth_deadline_watchdog *watchdog, const fth_stop_reason *reason)
{
    int64_t step;
    fth_watched_run run = get_run(watchdog, &step);
    json_t *event = describe_notice(reason, step, run.saver);
    if (event)
        fth_reporter_write(watchdog->reporter, "notice", event);
}

/* ---- notices ---- */

fth_status fth_deadline_watchdog_listen(fth_deadline_watchdog *watchdog, const char *sources)
{
    fth_watch *watch = NULL;
    if (!watchdog->stop || strcmp(sources, "none") == 0)
        return FTH_OK;
    fth_status status = fth_watch_open(sources, watchdog->stop, &watch);
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->watch = watch;
    pthread_mutex_unlock(&watchdog->mutex);
    return status;
}

static fth_watch *get_watch(fth_deadline_watchdog *watchdog)
{
    pthread_mutex_lock(&watchdog->mutex);
    fth_watch *watch = watchdog->watch;
    pthread_mutex_unlock(&watchdog->mutex);
    return watch;
}

void fth_deadline_watchdog_acknowledge(fth_deadline_watchdog *watchdog)
{
    fth_watch *watch = get_watch(watchdog);
    if (watch)
        fth_watch_acknowledge(watch);
}

void fth_deadline_watchdog_report_messages(fth_deadline_watchdog *watchdog)
{
    char text[FTH_NEWS_BYTES];
    int64_t step;
    (void)get_run(watchdog, &step);
    fth_watch *watch = get_watch(watchdog);
    while (watch && fth_watch_take_news(watch, text, sizeof text)) {
        json_t *event =
            json_pack("{s:s, s:f, s:I, s:s}", "event", "news", "time", 0.0, "step", (json_int_t)step, "message", text);
        fth_reporter_write(watchdog->reporter, "news", event);
    }
}

/* ---- phases ---- */

/* With the mutex held. The process is ending: the training thread may change nothing from now on.
 * */
static void hold_if_abandoned(fth_deadline_watchdog *watchdog)
{
    if (!watchdog->abandoning)
        return;
    pthread_mutex_unlock(&watchdog->mutex);
    for (;;)
        pause();
}

void fth_deadline_watchdog_set_run(fth_deadline_watchdog *watchdog, const fth_watched_run *run)
{
    pthread_mutex_lock(&watchdog->looking);
    pthread_mutex_lock(&watchdog->mutex);
    hold_if_abandoned(watchdog);
    watchdog->run = *run;
    pthread_mutex_unlock(&watchdog->mutex);
    pthread_mutex_unlock(&watchdog->looking);
}

/* With the mutex held. */
static void enter(fth_deadline_watchdog *watchdog, fth_phase phase)
{
    hold_if_abandoned(watchdog);
    watchdog->phase = phase;
    watchdog->phase_since_s = fth_clock_seconds();
}

void fth_deadline_watchdog_enter(fth_deadline_watchdog *watchdog, fth_phase phase)
{
    pthread_mutex_lock(&watchdog->mutex);
    enter(watchdog, phase);
    pthread_mutex_unlock(&watchdog->mutex);
}

void fth_deadline_watchdog_begin_training(fth_deadline_watchdog *watchdog, int64_t step)
{
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->step = step;
    enter(watchdog, FTH_PHASE_BETWEEN);
    pthread_mutex_unlock(&watchdog->mutex);
}

void fth_deadline_watchdog_end_step(fth_deadline_watchdog *watchdog, int64_t step)
{
    pthread_mutex_lock(&watchdog->mutex);
    double seconds = fth_clock_seconds() - watchdog->phase_since_s;
    watchdog->step_s = watchdog->step_s > 0 ? 0.8 * watchdog->step_s + 0.2 * seconds : seconds;
    watchdog->step = step;
    enter(watchdog, FTH_PHASE_BETWEEN);
    pthread_mutex_unlock(&watchdog->mutex);
}

double fth_deadline_watchdog_get_step_s(fth_deadline_watchdog *watchdog)
{
    pthread_mutex_lock(&watchdog->mutex);
    double step_s = watchdog->step_s;
    pthread_mutex_unlock(&watchdog->mutex);
    return step_s;
}

/* ---- ending the process ---- */

/* Writes the last events of a training thread that hangs. */
static void record_interruption(fth_reporter *reporter, int64_t step, json_t *notice)
{
    fth_reporter_record(reporter, "notice", notice);
    fth_reporter_record(reporter, "interrupted",
                        json_pack("{s:s, s:f, s:I}", "event", "interrupted", "time", 0.0, "step", (json_int_t)step));
    FTH_IGNORE(fth_reporter_sync(reporter), "the process ends in any case");
}

/* Publishes what was snapshotted, and reports that; the training thread will not return. */
static void *close_run(void *context)
{
    fth_deadline_watchdog *watchdog = context;
    fth_stop_reason reason = fth_stop_get(watchdog->stop);
    int64_t step;
    fth_watched_run run = get_run(watchdog, &step);
    if (reason.kind != FTH_STOP_FENCED) { /* else another machine writes */
        if (run.saver)
            fth_saver_flush(run.saver,
                            fth_stop_leaving_deadline(&reason)); /* the checkpoint first, the rest after it */
        json_t *notice = describe_notice(&reason, step, run.saver);
        if (notice)
            record_interruption(watchdog->reporter, step, notice);
        if (run.run_store) {
            FTH_IGNORE(fth_run_store_flush(run.run_store), "the process ends, and the next one continues the record");
            fth_run_store_put_best_in_time(run.run_store, run.best_path, reason.deadline);
        }
        fth_deadline_watchdog_acknowledge(watchdog);
        if (run.run_store)
            FTH_IGNORE(fth_run_store_release(run.run_store), "the lease expires");
    }
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->closed = true;
    pthread_cond_broadcast(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->mutex);
    return NULL;
}

static bool can_end_process(const fth_deadline_watchdog *watchdog)
{
    return watchdog->observer && watchdog->observer->abandon;
}

/* Does not return if the observer can end the process. */
static void end_process(fth_deadline_watchdog *watchdog, const char *why)
{
    int64_t step;
    fth_watched_run run = get_run(watchdog, &step);
    if (!can_end_process(watchdog))
        return;
    char *copy = run.saver ? fth_saver_describe_copy(run.saver) : NULL;
    watchdog->observer->abandon(watchdog->observer->context, copy ? copy : why);
    free(copy);
}

/* With the mutex held. Whether the training thread is still in the phase that was `seen`, and
 * nothing has been done about it. If it moved on, the decision no longer holds; if the observer
 * returned, there is nothing left to do. */
static bool may_abandon(const fth_deadline_watchdog *watchdog, const fth_stop_situation *seen)
{
    return !watchdog->abandoning && watchdog->phase == seen->phase && watchdog->phase_since_s == seen->since_s;
}

static void abandon(fth_deadline_watchdog *watchdog, const fth_stop_situation *seen, const char *why)
{
    fth_stop_reason reason = fth_stop_get(watchdog->stop);
    if (!can_end_process(watchdog))
        return;
    pthread_mutex_lock(&watchdog->mutex);
    const bool mine = may_abandon(watchdog, seen);
    watchdog->abandoning = watchdog->abandoning || mine;
    pthread_mutex_unlock(&watchdog->mutex);
    if (!mine)
        return;
    const bool hard = seen->phase == FTH_PHASE_ENDING; /* it saves by itself, and time is up */
    watchdog->closing = !hard && fth_thread_start(&watchdog->closer, "close-run", close_run, watchdog) == 0;
    pthread_mutex_lock(&watchdog->mutex);
    while (watchdog->closing && !watchdog->closed && !fth_deadline_passed(reason.deadline)) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(LOOK_EVERY_S));
        pthread_cond_clockwait(&watchdog->changed, &watchdog->mutex, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&watchdog->mutex);
    end_process(watchdog, why);
}

void fth_deadline_watchdog_end_process(fth_deadline_watchdog *watchdog)
{
    pthread_mutex_lock(&watchdog->mutex);
    bool mine = !watchdog->abandoning;
    pthread_mutex_unlock(&watchdog->mutex);
    if (mine)
        end_process(watchdog, "the store does not answer");
}

/* ---- the thread ---- */

/* Looks once. */
static void look(fth_deadline_watchdog *watchdog)
{
    fth_stop_reason reason = fth_stop_get(watchdog->stop);
    pthread_mutex_lock(&watchdog->looking);
    pthread_mutex_lock(&watchdog->mutex);
    fth_watched_run run = watchdog->run;
    fth_stop_situation situation = {
        .phase = watchdog->phase, .since_s = watchdog->phase_since_s, .step_s = watchdog->step_s};
    pthread_mutex_unlock(&watchdog->mutex);
    situation.in_store = run.run_store != NULL;
    if (run.saver && reason.kind == FTH_STOP_FENCED)
        fth_saver_cancel(run.saver);
    if (run.saver)
        situation.saving = fth_saver_look(run.saver).estimate;
    const char *why = fth_stop_reason_to_abandon(&reason, &situation);
    if (why)
        abandon(watchdog, &situation, why);
    pthread_mutex_unlock(&watchdog->looking);
}

static void *guard(void *context)
{
    fth_deadline_watchdog *watchdog = context;
    pthread_mutex_lock(&watchdog->mutex);
    while (!watchdog->ending) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(LOOK_EVERY_S));
        pthread_cond_clockwait(&watchdog->changed, &watchdog->mutex, CLOCK_MONOTONIC, &until);
        if (watchdog->ending || !watchdog->stop->asked)
            continue;
        pthread_mutex_unlock(&watchdog->mutex);
        look(watchdog);
        pthread_mutex_lock(&watchdog->mutex);
    }
    pthread_mutex_unlock(&watchdog->mutex);
    return NULL;
}

fth_status fth_deadline_watchdog_create(fth_stop *stop, const fth_train_observer *observer, fth_reporter *reporter,
                                        fth_deadline_watchdog **result)
{
    fth_status status = FTH_OK;
    fth_deadline_watchdog *watchdog = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *watchdog, &watchdog));
    watchdog->stop = stop;
    watchdog->observer = observer;
    watchdog->reporter = reporter;
    pthread_mutex_init(&watchdog->mutex, NULL);
    pthread_mutex_init(&watchdog->looking, NULL);
    pthread_cond_init(&watchdog->changed, NULL);
    if (stop) {
        watchdog->running = fth_thread_start(&watchdog->thread, "watchdog", guard, watchdog) == 0;
        FTH_REQUIRE(watchdog->running, FTH_NO_MEMORY, "no thread could be started to watch deadlines");
    }
    *result = watchdog;
    watchdog = NULL;

out:
    fth_deadline_watchdog_free(watchdog);
    return status;
}

void fth_deadline_watchdog_free(fth_deadline_watchdog *watchdog)
{
    if (!watchdog)
        return;
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->ending = true;
    pthread_cond_broadcast(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->mutex);
    if (watchdog->running)
        pthread_join(watchdog->thread, NULL);
    if (watchdog->closing)
        pthread_join(watchdog->closer, NULL);
    fth_watch_free(watchdog->watch);
    pthread_mutex_destroy(&watchdog->mutex);
    pthread_mutex_destroy(&watchdog->looking);
    pthread_cond_destroy(&watchdog->changed);
    free(watchdog);
}
