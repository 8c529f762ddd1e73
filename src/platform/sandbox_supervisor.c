/* See sandbox_supervisor.h. Everything below fth_sandbox_supervisor_fork() runs in a process of its
 * own. */
#include "platform/sandbox_supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The supervisor's descriptors, after it has closed all others; and the function's until its
 * program runs. */
enum { LIFELINE = 3, REPORT = 4, OUTPUT = 5, MESSAGES = 6, FIRST_OTHER = 7, STARTED = 3 };
enum { LOOK_EVERY_MS = 20 };              /* for polling memory without a cgroup */
static const double near_the_limit = 0.9; /* share of the memory limit at which a failure is attributed to it */
static const double die_within_s = 5;

static void write_whole(int file, const void *bytes, size_t size)
{
    while (write(file, bytes, size) < 0 && errno == EINTR)
        ;
}

/* "VmHWM:     1234 kB" */
static double find_kilobytes(const char *text, const char *name)
{
    const char *line = strstr(text, name);
    return line ? strtod(line + strlen(name), NULL) * 1024 : NAN;
}

void fth_sandbox_supervisor_look(pid_t process, double *peak_bytes, double *data_bytes)
{
    char path[64], text[4096];
    size_t used = 0;
    ssize_t got;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    while (file >= 0 && used < sizeof text - 1 && (got = read(file, text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)got;
    if (file >= 0)
        close(file);
    text[used] = '\0';
    *peak_bytes = find_kilobytes(text, "VmHWM:");
    *data_bytes = find_kilobytes(text, "VmData:");
}

/* ---- the function's process, before it is one ---- */

/* Closes all from `first` on, including the copy of the platform's end of the lifeline. */
static void close_from(int first)
{
    if (close_range((unsigned)first, ~0u, 0) != 0) /* an old kernel */
        for (int file = first; file < (int)sysconf(_SC_OPEN_MAX); file++)
            close(file);
}

/* Does not return. Writes a failure to `started`, which closes when the program runs. */
static void become_function(const fth_sandbox_supervisor_orders *orders, pid_t supervisor, int started)
{
    int failure = 0;
    bool no_group = false;
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor)
        _exit(1);
    if (orders->group && !fth_cgroup_enter(orders->group)) {
        failure = errno;
        no_group = true;
    }
    struct rlimit data = {.rlim_cur = orders->data_bytes, .rlim_max = orders->data_bytes};
    if (!failure && orders->data_bytes > 0 && setrlimit(RLIMIT_DATA, &data) != 0)
        failure = errno;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0}); /* a crash leaves no core file */
    if (!failure && chdir(orders->folder) != 0)
        failure = errno;
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(OUTPUT, STDOUT_FILENO) < 0 ||
        dup2(MESSAGES, STDERR_FILENO) < 0)
        failure = failure ? failure : errno;
    if (dup2(started, STARTED) < 0)
        _exit(127);
    fcntl(STARTED, F_SETFD, FD_CLOEXEC);
    close_from(STARTED + 1);
    if (!failure) {
        for (int number = 1; number < NSIG; number++)
            sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execve(orders->command[0], (char *const *)orders->command, (char *const *)orders->variables);
        failure = errno;
    }
    write_whole(STARTED, &(fth_sandbox_supervisor_start){.failure = failure, .no_group = no_group, .process = -1},
                sizeof(fth_sandbox_supervisor_start));
    _exit(127);
}

/* ---- the supervisor ---- */

/* Reaps children; true, with how it ended, if the function was among them. */
static bool collect(pid_t function, fth_sandbox_supervisor_report *report)
{
    int how;
    pid_t got;
    bool ended = false;
    while ((got = waitpid(-1, &how, WNOHANG)) > 0 || (got < 0 && errno == EINTR)) {
        if (got != function)
            continue;
        ended = true;
        report->code = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
        report->signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    }
    return ended;
}

static void collect_any(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

/* Kills this process's children until there are none; their children become ours and are killed
 * next. */
static void kill_children(void)
{
    char path[64], text[4096];
    fth_deadline deadline = fth_deadline_in(die_within_s);
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    for (;;) {
        int file = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = file >= 0 ? read(file, text, sizeof text - 1) : 0;
        if (file >= 0)
            close(file);
        text[got > 0 ? got : 0] = '\0';
        for (char *at = text, *end; *at; at = end) {
            long process = strtol(at, &end, 10);
            if (end == at)
                break;
            if (process > 0 && *end == ' ')
                kill((pid_t)process, SIGKILL);
        }
        collect_any();
        if ((waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD) || fth_deadline_passed(deadline))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Waits for the end of the function or the platform. Without a cgroup, polls the memory meanwhile.
 * */
static void watch(const fth_sandbox_supervisor_orders *orders, pid_t function, int signals,
                  fth_sandbox_supervisor_report *report)
{
    double most_data = 0;
    for (;;) {
        struct pollfd files[] = {{.fd = LIFELINE, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        poll(files, 2, orders->group ? -1 : LOOK_EVERY_MS);
        if (!orders->group) {
            double peak, data;
            fth_sandbox_supervisor_look(function, &peak, &data);
            if (data > most_data)
                most_data = data;
            if (!isnan(peak))
                report->peak_bytes = peak;
        }
        if (files[1].revents) {
            struct signalfd_siginfo child;
            while (read(signals, &child, sizeof child) > 0)
                ;
            if (collect(function, report))
                break;
        }
        if (files[0].revents)
            break;
    }
    if (orders->data_bytes > 0 && report->code != 0)
        report->out_of_memory = most_data >= near_the_limit * (double)orders->data_bytes;
}

/* Starts the function and waits until its program runs or has failed to start. */
static fth_sandbox_supervisor_start start_function(const fth_sandbox_supervisor_orders *orders)
{
    int started[2];
    pid_t self = getpid(), function;
    if (pipe2(started, O_CLOEXEC) != 0)
        return (fth_sandbox_supervisor_start){.failure = errno, .process = -1};
    if ((function = fork()) == 0)
        become_function(orders, self, started[1]);
    fth_sandbox_supervisor_start start = {.failure = function < 0 ? errno : 0, .process = function};
    close(started[1]);
    if (function > 0 && read(started[0], &start, sizeof start) > 0)
        waitpid(function, NULL, 0);
    close(started[0]);
    return start;
}

static void keep(const fth_sandbox_supervisor_orders *orders)
{
    fth_sandbox_supervisor_report report = {.code = -1, .peak_bytes = NAN};
    sigset_t children, all;
    struct rusage used;

    /* Only SIGKILL ends a supervisor: Ctrl-C is for the platform, which ends it through the
     * lifeline. */
    setsid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "fth-supervisor");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    int signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    fth_sandbox_supervisor_start start = {.failure = errno, .process = -1};
    if (signals >= 0)
        start = start_function(orders);
    if (start.failure != 0 && orders->group) {
        collect_any();
        fth_cgroup_remove(orders->group);
    }
    write_whole(REPORT, &start, sizeof start);
    if (start.failure != 0)
        return;
    close(OUTPUT);
    close(MESSAGES);
    watch(orders, start.process, signals, &report);
    if (orders->group)
        fth_cgroup_kill(orders->group, die_within_s, collect_any);
    kill(-start.process, SIGKILL); /* for kernels that do not list children */
    kill_children();
    if (orders->group) {
        report.out_of_memory = fth_cgroup_ran_out(orders->group);
        report.peak_bytes = fth_cgroup_peak_bytes(orders->group);
        if (isnan(report.peak_bytes)) /* kernels before 5.19: of the largest process that was reaped */
            report.peak_bytes = getrusage(RUSAGE_CHILDREN, &used) == 0 ? (double)used.ru_maxrss * 1024 : NAN;
        fth_cgroup_remove(orders->group);
    }
    write_whole(REPORT, &report, sizeof report);
}

int fth_sandbox_supervisor_fork(const fth_sandbox_supervisor_orders *orders, pid_t *supervisor)
{
    /* Copies above the numbers that the supervisor assigns, so that none is overwritten before it
     * is moved. */
    int given[] = {orders->lifeline, orders->report, orders->output, orders->messages};
    int copies[4], failure = 0;
    for (int i = 0; i < 4; i++)
        if ((copies[i] = fcntl(given[i], F_DUPFD_CLOEXEC, FIRST_OTHER)) < 0)
            failure = errno;
    *supervisor = failure ? -1 : fork();
    if (*supervisor == 0) {
        for (int i = 0; i < 4; i++)
            if (dup2(copies[i], LIFELINE + i) < 0)
                _exit(1);
        int nothing = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++)
            dup2(nothing, i);
        close_from(FIRST_OTHER);
        keep(orders);
        _exit(0);
    }
    if (*supervisor < 0 && !failure)
        failure = errno;
    for (int i = 0; i < 4; i++)
        if (copies[i] >= 0)
            close(copies[i]);
    return failure;
}
