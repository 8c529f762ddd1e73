/* Stopping on request, without a signal handler.
 *
 * oneDNN's generated matrix products point the stack register into a heap buffer while they run. A
 * handler's frame would be written below it and destroy the heap: one interrupt in seven crashed.
 * So the signals below are blocked in every thread (threads inherit the mask of the one that makes
 * them), and one thread waits for them.
 *
 *     SIGINT, SIGHUP   a person: the trainer finishes its step and saves; a second SIGINT ends the process at once
 *     SIGTERM          the machine or the job will end. Where a scheduler sent it (Kubernetes, Slurm), it kills after a
 *                      while: a preemption with that deadline, and a second SIGTERM, which Slurm sends, changes
 *                      nothing. Elsewhere a person or a supervisor: save; a second one ends the process, unless it
 *                      comes at once: `timeout` signals the process and then its group, which it is in
 *     SIGUSR1          a preemption: Slurm's `--signal=USR1@90`
 *
 * Every request has a deadline, so that a store that does not answer holds nobody up:
 * FARTHING_GRACE_S, else 30 s. Where that is given or a scheduler's, SIGTERM is a preemption: after
 * it the process is killed. Elsewhere a step or a disk may take longer (train/loop/deadline_watchdog.h).
 *
 * SIGPIPE is ignored: where nobody reads the output any more, the failed write asks for a stop (fth_cli_flush), so that
 * `farthing train | head` is saved too. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "cli/cli.h"

/* Ends the watching thread; sent to it alone, so nobody else's use of the number matters. */
#define WAKE_UP SIGUSR2

/* What Kubernetes gives a pod, and most Slurm sites a job; elsewhere, what a person is expected to
 * wait. */
#define USUAL_GRACE_S 30.0

/* How long there is after a signal, and whether somebody said that the process is killed then. */
typedef struct grace {
    double seconds;
    bool known;
} grace;

static struct {
    fth_stop *stop;
    sigset_t watched;
    pthread_t thread;
    bool running;
    grace grace;
    bool asked;        /* a signal came; the watching thread's until that has been joined */
    const char *words; /* for a terminal, at the first signal */
} watch = {.words = FTH_SAVING_WORDS};

static void take_default_effect(int number)
{
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    raise(number); /* does not return */
}

static grace read_grace(void)
{
    grace found = {USUAL_GRACE_S, false};
    const char *given = getenv("FARTHING_GRACE_S");
    found.known = given && *given && fth_duration_parse(given, &found.seconds) == FTH_OK;
    if (given && *given && !found.known)
        fth_log_warning("FARTHING_GRACE_S: %s; using %g s", fth_error_message(), USUAL_GRACE_S);
    return found;
}

/* Somebody kills the process when the time after SIGTERM is over. */
static bool is_killed_then(void)
{
    return watch.grace.known || getenv("KUBERNETES_SERVICE_HOST") || getenv("SLURM_JOB_ID");
}

static void ask(int number)
{
    bool preemption = number == SIGUSR1 || (number == SIGTERM && is_killed_then());
    if (preemption)
        fth_stop_ask(watch.stop, FTH_STOP_PREEMPTION, watch.grace.seconds, "signal",
                     "%s: this machine or job ends in %.3g s", strsignal(number), watch.grace.seconds);
    else
        fth_stop_ask(watch.stop, FTH_STOP_REQUEST, watch.grace.seconds, "signal", "%s", strsignal(number));
}

/* A second request ends the process at once, unless it is known to come twice. */
static bool is_impatient(int number, double since_first_s)
{
    const double same_request_s = 1;
    return number == SIGINT || (number == SIGTERM && !is_killed_then() && since_first_s >= same_request_s);
}

static void *wait_for_signals(void *unused)
{
    (void)unused;
    double asked_s = 0;
    for (;;) {
        int number = 0;
        if (sigwait(&watch.watched, &number) != 0)
            continue;
        if (number == WAKE_UP)
            return NULL;
        if (watch.asked && is_impatient(number, fth_clock_seconds() - asked_s))
            take_default_effect(number);
        ask(number); /* a later one can only shorten the deadline */
        if (!watch.asked && isatty(STDERR_FILENO))
            fth_log_info("%s", watch.words);
        if (!watch.asked)
            asked_s = fth_clock_seconds();
        watch.asked = true;
    }
}

void fth_signals_watch(fth_stop *stop)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    watch.stop = stop;
    watch.grace = read_grace();
    sigemptyset(&watch.watched);
    for (size_t i = 0; i < FTH_COUNT_OF(numbers); i++) {
        struct sigaction now;
        /* What was ignored when the program started (nohup, jobs in the background) stays so. */
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&watch.watched, numbers[i]);
    }
    sigaddset(&watch.watched, WAKE_UP);
    signal(SIGPIPE, SIG_IGN); /* for good: the last lines are written after the watch */
    pthread_sigmask(SIG_BLOCK, &watch.watched, NULL);
    watch.running = fth_thread_start(&watch.thread, "signals", wait_for_signals, NULL) == 0;
    if (!watch.running) /* then Ctrl-C ends the program; what was saved stays */
        pthread_sigmask(SIG_UNBLOCK, &watch.watched, NULL);
}

void fth_signals_set_words(const char *words)
{
    watch.words = words;
}

void fth_signals_stop(void)
{
    if (watch.stop)
        fth_stop_ask(watch.stop, FTH_STOP_REQUEST, watch.grace.seconds, "pipe", "nobody reads the output any more");
}

void fth_signals_unwatch(void)
{
    if (!watch.running)
        return;
    watch.running = false;
    pthread_kill(watch.thread, WAKE_UP);
    pthread_join(watch.thread, NULL);
    if (watch.asked) { /* what is sent twice must not cost the exit status: only Ctrl-C still ends the process */
        sigemptyset(&watch.watched);
        sigaddset(&watch.watched, SIGINT);
    }
    pthread_sigmask(SIG_UNBLOCK, &watch.watched, NULL);
}
