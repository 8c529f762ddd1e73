/* The process between a platform and a function's process: starts it, collects whatever it starts,
 * says how it ended, and ends all of it when the platform is gone.
 *
 *     platform ──lifeline (a pipe)──> supervisor ──> function ──> whatever it starts
 *              <──report (a pipe)────
 *
 * The supervisor waits for the function's end, and for the end of the lifeline, whose other end only
 * the platform holds: the kernel closes it when the platform ends, however that happens. As a
 * "child subreaper" it becomes the parent of everything below it that loses its own, so nothing
 * gets away by leaving the process group or the session. If the supervisor itself is killed, the
 * function gets the signal of a dead parent.
 *
 * It is forked, not executed: a function's start is not to wait for a program to be loaded. Between
 * fork and its end it uses only what is safe then: system calls, and memory that was filled
 * before. */
#ifndef FTH_PLATFORM_SANDBOX_SUPERVISOR_H
#define FTH_PLATFORM_SANDBOX_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "platform/cgroup.h"

/* All of it is filled in before the fork. */
typedef struct fth_sandbox_supervisor_orders {
    const char *const *command;
    const char *const *variables;
    const char *folder;
    int output, messages;    /* descriptors */
    const fth_cgroup *group; /* NULL: none */
    uint64_t data_bytes;     /* limit of RLIMIT_DATA; 0: none */
    int lifeline, report;    /* the supervisor's ends */
} fth_sandbox_supervisor_orders;

/* What comes through the report pipe: first that it runs, or why not, then how it ended. */
typedef struct fth_sandbox_supervisor_start {
    int failure;   /* an errno; 0: it runs */
    bool no_group; /* that was the failure to enter its cgroup */
    pid_t process;
} fth_sandbox_supervisor_start;
typedef struct fth_sandbox_supervisor_report {
    int code, signal; /* as in fth_child_end */
    bool out_of_memory;
    double peak_bytes; /* NAN: not known */
} fth_sandbox_supervisor_report;

/* Forks the supervisor; 0 or an errno. The caller closes the supervisor's ends of the pipes afterwards. */
int fth_sandbox_supervisor_fork(const fth_sandbox_supervisor_orders *orders, pid_t *supervisor);

/* The most memory that a process has had in RAM (VmHWM), and private memory that it has now
 * (VmData); NAN: it is gone. */
void fth_sandbox_supervisor_look(pid_t process, double *peak_bytes, double *data_bytes);

#endif
