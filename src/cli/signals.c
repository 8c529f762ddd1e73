/* Stopping on request, without a signal handler.
 *
 * oneDNN's generated matrix products point the stack register into a heap buffer while they run. A handler's frame
 * would be written below it and destroy the heap: one interrupt in seven crashed. So SIGINT, SIGTERM and SIGHUP are
 * blocked in every thread (threads inherit the mask of the one that makes them), and one thread waits for them.
 *
 *     first signal    a stop is asked for: the trainer finishes its step and saves
 *     second signal   takes its default effect: the process ends at once
 *
 * SIGPIPE is ignored: where nobody reads the output any more, the failed write asks for a stop (fth_cli_flush), so that
 * `farthing train | head` is saved too. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* Ends the watching thread; sent to it alone, so nobody else's use of the number matters. */
#define WAKE_UP SIGUSR2

static struct {
    fth_stop *stop;
    sigset_t watched;
    pthread_t thread;
    bool running;
} watch;

static void *wait_for_signals(void *unused)
{
    (void)unused;
    bool asked = false;
    for (;;) {
        int number = 0;
        if (sigwait(&watch.watched, &number) != 0)
            continue;
        if (number == WAKE_UP)
            return NULL;
        if (asked) {
            sigset_t only;
            sigemptyset(&only);
            sigaddset(&only, number);
            signal(number, SIG_DFL);
            pthread_sigmask(SIG_UNBLOCK, &only, NULL);
            raise(number); /* does not return */
        }
        asked = true;
        fth_stop_ask(watch.stop, FTH_STOP_REQUEST, INFINITY, "signal", "%s", strsignal(number));
        if (isatty(STDERR_FILENO))
            fth_log_info("finishing the step and saving; once more to stop at once");
    }
}

void fth_signals_watch(fth_stop *stop)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
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
