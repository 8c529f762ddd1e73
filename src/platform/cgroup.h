/* A control group that limits the memory of some processes: version 2's, or version 1's where the
 * memory controller is there. Groups are children of this process's own, so that limits of a
 * container or a user hold for them too.
 *
 * Named farthing-PID-START-TIME after the process that made it: groups whose process is gone are
 * removed by the next that makes one. */
#ifndef FTH_PLATFORM_CGROUP_H
#define FTH_PLATFORM_CGROUP_H

#include "base/base.h"

enum { FTH_CGROUP_PATH = 512 };

/* A plain value: the files of a group. All paths are made in advance, because a process that was
 * just forked uses them. */
typedef struct fth_cgroup {
    char folder[FTH_CGROUP_PATH];
    char processes[FTH_CGROUP_PATH + 32]; /* cgroup.procs */
    char kill[FTH_CGROUP_PATH + 32];      /* cgroup.kill; only newer kernels have it */
    char peak[FTH_CGROUP_PATH + 32];
    char events[FTH_CGROUP_PATH + 32]; /* has the line "oom_kill N" */
} fth_cgroup;

/* FTH_UNSUPPORTED, with the reason, where none can be made here. */
fth_status fth_cgroup_create(uint64_t memory_bytes, fth_cgroup *group);

/* ---- safe in a process that was just forked ---- */

bool fth_cgroup_enter(const fth_cgroup *group); /* moves the calling process */
/* Kills every process of it, also those that they start meanwhile; waits until it is empty, for
 * `seconds` at most. Those that are the caller's children have to be collected before it counts as
 * empty: `collect` is called for that, if given. */
void fth_cgroup_kill(const fth_cgroup *group, double seconds, void (*collect)(void));
double fth_cgroup_peak_bytes(const fth_cgroup *group); /* NAN: not known */
bool fth_cgroup_ran_out(const fth_cgroup *group);      /* a process of it was killed for memory */
void fth_cgroup_remove(const fth_cgroup *group);       /* an empty one */

#endif
