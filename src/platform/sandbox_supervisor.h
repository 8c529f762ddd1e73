/* The process between a platform and a function's process: starts the function, reaps all its
 * processes, reports how it ended, and kills everything when the platform is gone.
 *
 *     platform ──lifeline (a pipe)──> supervisor ──> function ──> its children
 *              <──report (a pipe)────
 *
 * The supervisor waits for the end of the function or of the lifeline, whose other end only the
 * platform holds: the kernel closes it however the platform ends. As a child subreaper it becomes
 * the parent of orphans below it, so no process escapes by leaving the process group or session. If
 * the supervisor itself is killed, the function gets its parent-death signal.
 *
 * It is forked but not executed, so that starting a function does not wait for a program to load.
 * It uses only what is safe after a fork: system calls, and memory filled before. */
#ifndef FTH_PLATFORM_SANDBOX_SUPERVISOR_H
#define FTH_PLATFORM_SANDBOX_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "platform/cgroup.h"

/* Filled in before the fork. */
typedef struct fth_sandbox_supervisor_orders {
    const char *const *command;
    const char *const *variables;
    const char *folder;
    int output, messages;    /* descriptors */
    const fth_cgroup *group; /* NULL: none */
    uint64_t data_bytes;     /* limit of RLIMIT_DATA; 0: none */
    int lifeline, report;    /* the supervisor's ends */
} fth_sandbox_supervisor_orders;

/* Sent through the report pipe: that the function runs or why not, later how it ended. */
typedef struct fth_sandbox_supervisor_start {
    int failure;   /* an errno; 0: it runs */
    bool no_group; /* it could not enter its cgroup */
    pid_t process;
} fth_sandbox_supervisor_start;
typedef struct fth_sandbox_supervisor_report {
    int code, signal; /* as in fth_child_end */
    bool out_of_memory;
    double peak_bytes; /* NAN: unknown */
} fth_sandbox_supervisor_report;

/* Forks the supervisor; returns 0 or an errno. The caller then closes the supervisor's ends of the
 * pipes. */
int fth_sandbox_supervisor_fork(const fth_sandbox_supervisor_orders *orders, pid_t *supervisor);

/* A process's peak memory (VmHWM) and current private memory (VmData); NAN: it is gone. */
void fth_sandbox_supervisor_look(pid_t process, double *peak_bytes, double *data_bytes);

#endif
