/* Stopping on request, without a signal handler.
 *
 * oneDNN's generated matrix products point the stack register into a heap buffer while they run. A
 * handler's frame would be written below it and destroy the heap: one interrupt in seven crashed.
 * So the signals below are blocked in every thread (threads inherit the mask of the one that
 * creates them), and one thread waits for them.
 *
 *     SIGINT, SIGHUP   a person: the trainer finishes its step and saves; a second SIGINT ends the
 *                      process at once
 *     SIGTERM          under a scheduler (Kubernetes, Slurm) a preemption, since SIGKILL follows;
 *                      a second one, which Slurm sends, changes nothing. Elsewhere a request to
 *                      save; a second one ends the process, unless it follows within a second
 *                      (`timeout` signals the process and then its group)
 *     SIGUSR1          a preemption: Slurm's `--signal=USR1@90`
 *
 * Every request has a deadline, so that an unresponsive store cannot delay the end:
 * FARTHING_GRACE_S, else 30 s. If it is set or a scheduler sent the signal, SIGTERM counts as a
 * preemption. Elsewhere a step or a disk may take longer (train/loop/deadline_watchdog.h).
 *
 * SIGPIPE is ignored: when the output has no reader, the failed write requests a stop
 * (fth_cli_flush), so that `farthing train | head` is saved too. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "cli/cli.h"

/* Ends the watching thread; sent only to it, so other uses of the signal do not matter. */
#define WAKE_UP SIGUSR2

/* The usual grace period of Kubernetes and Slurm; elsewhere, a reasonable time to wait. */
#define USUAL_GRACE_S 30.0

/* The time left after a signal, and whether it is known that the process is killed then. */
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

/* True if the process will be killed after the grace period of SIGTERM. */
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

/* A second request ends the process at once, unless the sender is known to send two. */
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
        /* Signals that were ignored at the start (nohup, background jobs) stay ignored. */
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
        fth_stop_ask(watch.stop, FTH_STOP_REQUEST, watch.grace.seconds, "pipe", "the output has no reader any more");
}

void fth_signals_unwatch(void)
{
    if (!watch.running)
        return;
    watch.running = false;
    pthread_kill(watch.thread, WAKE_UP);
    pthread_join(watch.thread, NULL);
    if (watch.asked) { /* a second signal must not change the exit status: only Ctrl-C still ends the process */
        sigemptyset(&watch.watched);
        sigaddset(&watch.watched, SIGINT);
    }
    pthread_sigmask(SIG_UNBLOCK, &watch.watched, NULL);
}
