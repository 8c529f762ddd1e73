/* See process.h. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

static const double die_within_s = 5;

int fth_thread_start(pthread_t *thread, const char *name, void *(*run)(void *context), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure == 0)
        pthread_setname_np(*thread, name); /* one that has ended already needs none */
    return failure;
}

bool fth_thread_join_by(pthread_t thread, fth_deadline deadline)
{
#ifdef __SANITIZE_THREAD__ /* ThreadSanitizer does not know pthread_clockjoin_np and would report an unjoined thread   \
                            */
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        if (fth_deadline_passed(deadline))
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
#else
    struct timespec until = fth_deadline_timespec(deadline);
    return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0;
#endif
}

void fth_process_kill(pid_t process)
{
    fth_deadline deadline = fth_deadline_in(die_within_s);
    pid_t got;
    kill(process, SIGKILL);
    while ((got = waitpid(process, NULL, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (fth_deadline_passed(deadline)) {
            fth_log_warning("process %d was killed, but has not ended within %g s", (int)process, die_within_s);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

const char *fth_process_program(char *path, size_t size)
{
    static const char self[] = "/proc/self/exe";
    struct stat running, named;
    ssize_t length = readlink(self, path, size - 1);
    int program = open(self, O_PATH | O_CLOEXEC); /* in QEMU, stat() would tell of QEMU's own file */
    bool whole = length > 0 && (size_t)length < size - 1;
    if (whole)
        path[length] = '\0';
    bool same = whole && fstat(program, &running) == 0 && stat(path, &named) == 0 && running.st_dev == named.st_dev &&
                running.st_ino == named.st_ino;
    if (program >= 0)
        close(program);
    if (!same)
        snprintf(path, size, "%s", self);
    return path;
}

/* Not from getrusage(), which also counts the program that ran before exec(). */
/* A line of the form "VmHWM:    1234 kB", in bytes; 0 if there is none. */
static int64_t read_kilobytes(const char *path, const char *name)
{
    long long kilobytes = 0;
    size_t length = strlen(name);
    char line[256];
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, length) == 0 && sscanf(line + length, ": %lld kB", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return kilobytes * 1024;
}

int64_t fth_process_peak_bytes(void)
{
    return read_kilobytes("/proc/self/status", "VmHWM");
}

int64_t fth_process_resident_bytes(void)
{
    return read_kilobytes("/proc/self/status", "VmRSS");
}

int64_t fth_process_data_bytes(void)
{
    return read_kilobytes("/proc/self/status", "VmData");
}

int64_t fth_machine_available_bytes(void)
{
    return read_kilobytes("/proc/meminfo", "MemAvailable");
}
