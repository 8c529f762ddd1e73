/* A control group that limits the memory of some processes: version 2, or version 1 if it has the
 * memory controller. Groups are children of this process's group, so that limits of a container or
 * a user apply too.
 *
 * A group is named farthing-PID-START-TIME after its creator; groups whose creator is gone are
 * removed by the next process that creates one. */
#ifndef FTH_PLATFORM_CGROUP_H
#define FTH_PLATFORM_CGROUP_H

#include "base/base.h"

enum { FTH_CGROUP_PATH = 512 };

/* The files of a group. All paths are built in advance, for use in a forked process. */
typedef struct fth_cgroup {
    char folder[FTH_CGROUP_PATH];
    char processes[FTH_CGROUP_PATH + 32]; /* cgroup.procs */
    char kill[FTH_CGROUP_PATH + 32];      /* cgroup.kill, in newer kernels */
    char peak[FTH_CGROUP_PATH + 32];
    char events[FTH_CGROUP_PATH + 32]; /* has the line "oom_kill N" */
} fth_cgroup;

/* FTH_UNSUPPORTED, with the reason, if none can be created here. */
fth_status fth_cgroup_create(uint64_t memory_bytes, fth_cgroup *group);

/* ---- safe in a process that was just forked ---- */

bool fth_cgroup_enter(const fth_cgroup *group); /* moves the calling process */
/* Kills all its processes, also new ones; waits at most `seconds` until it is empty. The caller's
 * children must be reaped before it counts as empty; `collect`, if given, does so. */
void fth_cgroup_kill(const fth_cgroup *group, double seconds, void (*collect)(void));
double fth_cgroup_peak_bytes(const fth_cgroup *group); /* NAN: unknown */
bool fth_cgroup_ran_out(const fth_cgroup *group);      /* one of its processes was killed for memory */
void fth_cgroup_remove(const fth_cgroup *group);       /* an empty one */

#endif
