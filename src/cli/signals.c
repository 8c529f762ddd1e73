/* Stopping on request, without a signal handler.
 *
 * oneDNN's generated matrix products point the stack register into a heap buffer while they run. A handler's frame
 * would be written below it and destroy the heap: one interrupt in seven crashed. So the signals below are blocked in
 * every thread (threads inherit the mask of the one that makes them), and one thread waits for them.
 *
 *     SIGINT, SIGHUP   a person: the trainer finishes its step and saves; a second SIGINT ends the process at once
 *     SIGTERM          the machine or the job will end. Where a scheduler sent it (Kubernetes, Slurm), it kills after a
 *                      while: a preemption with that deadline, and a second SIGTERM, which Slurm sends, changes
 *                      nothing. Elsewhere a person or a supervisor: save, no hurry; a second one ends the process,
 *                      unless it comes at once: `timeout` signals the process and then its group, which it is in
 *     SIGUSR1          a preemption: Slurm's `--signal=USR1@90`
 *
 * FARTHING_GRACE_S says how many seconds there are after SIGTERM or SIGUSR1, where one knows better: 30 by default in
 * Kubernetes and Slurm for SIGTERM, and no deadline otherwise.
 *
 * SIGPIPE is ignored: where nobody reads the output any more, the failed write asks for a stop (fth_cli_flush), so that
 * `farthing train | head` is saved too. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* Ends the watching thread; sent to it alone, so nobody else's use of the number matters. */
#define WAKE_UP SIGUSR2

/* What Kubernetes gives a pod, and most Slurm sites a job. */
#define SCHEDULERS_GRACE_S 30.0

static struct {
    fth_stop *stop;
    sigset_t watched;
    pthread_t thread;
    bool running;
    const char *words; /* for a terminal, at the first signal */
} watch = {.words = "finishing the step and saving; once more to stop at once"};

static void take_default_effect(int number)
{
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    raise(number); /* does not return */
}

/* Seconds between this signal and the kill; INFINITY: nobody said. */
static double grace_seconds(int number)
{
    double seconds;
    const char *given = getenv("FARTHING_GRACE_S");
    bool scheduled = getenv("KUBERNETES_SERVICE_HOST") || getenv("SLURM_JOB_ID");
    if (given && *given) {
        if (fth_duration_parse(given, &seconds) == FTH_OK)
            return seconds;
        fth_log_warning("FARTHING_GRACE_S: %s", fth_error_message());
    }
    return number == SIGTERM && scheduled ? SCHEDULERS_GRACE_S : INFINITY;
}

static void ask(int number, double grace_s)
{
    bool preemption = number == SIGUSR1 || (number == SIGTERM && isfinite(grace_s));
    if (preemption && isfinite(grace_s))
        fth_stop_ask(watch.stop, FTH_STOP_PREEMPTION, grace_s, "signal", "%s: this machine or job ends in %.3g s",
                     strsignal(number), grace_s);
    else
        fth_stop_ask(watch.stop, preemption ? FTH_STOP_PREEMPTION : FTH_STOP_REQUEST, INFINITY, "signal", "%s",
                     strsignal(number));
}

static void *wait_for_signals(void *unused)
{
    (void)unused;
    const double same_request_s = 1;
    bool asked = false;
    double asked_s = 0;
    for (;;) {
        int number = 0;
        if (sigwait(&watch.watched, &number) != 0)
            continue;
        if (number == WAKE_UP)
            return NULL;
        double grace_s = number == SIGTERM || number == SIGUSR1 ? grace_seconds(number) : INFINITY;
        bool repeated = number == SIGTERM && fth_clock_seconds() - asked_s < same_request_s;
        if (asked && (number == SIGINT || (number == SIGTERM && !isfinite(grace_s) && !repeated)))
            take_default_effect(number);
        if (!asked || isfinite(grace_s))
            ask(number, grace_s); /* a later one can only shorten the deadline */
        if (!asked && isatty(STDERR_FILENO))
            fth_log_info("%s", watch.words);
        if (!asked)
            asked_s = fth_clock_seconds();
        asked = true;
    }
}

void fth_signals_watch(fth_stop *stop)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    watch.stop = stop;
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
    watch.running = pthread_create(&watch.thread, NULL, wait_for_signals, NULL) == 0;
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
        fth_stop_ask(watch.stop, FTH_STOP_REQUEST, INFINITY, "pipe", "nobody reads the output any more");
}

void fth_signals_unwatch(void)
{
    if (!watch.running)
        return;
    watch.running = false;
    pthread_kill(watch.thread, WAKE_UP);
    pthread_join(watch.thread, NULL);
    pthread_sigmask(SIG_UNBLOCK, &watch.watched, NULL);
}
