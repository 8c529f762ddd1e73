/* A function's process under limits: memory by a cgroup (v2 or v1) if one can be written to, else
 * by rlimit; time by the caller. The function sees only the environment it is given, and starts in
 * a folder of its own.
 *
 * A supervisor (sandbox_supervisor.h), a process between this one and the function, kills
 * everything that the function has started: when the function ends, when the sandbox is freed, and
 * when this process is gone. Only killing the supervisor itself leaves grandchildren behind; those
 * in a cgroup are found by the next sandbox.
 *
 * Under RLIMIT_DATA (writable private memory of each process; unlike RLIMIT_AS it ignores address
 * space that is only reserved or mapped from files) allocations fail and the process is not killed,
 * so out_of_memory is only known if the memory was seen near the limit. */
#ifndef FTH_PLATFORM_SANDBOX_H
#define FTH_PLATFORM_SANDBOX_H

#include "base/base.h"
#include "base/child.h"

typedef struct fth_sandbox fth_sandbox;

typedef struct fth_sandbox_options {
    const char *const *command;   /* NULL-terminated; a file first */
    const char *const *variables; /* the whole environment: "NAME=value", NULL-terminated */
    const char *folder;           /* working directory */
    const char *output,
        *messages; /* files for standard output and error, appended to; NULL: stdout.log and stderr.log in the folder */
    uint64_t memory_bytes; /* 0: no limit */
    bool no_cgroup;        /* use an rlimit even if a cgroup can be made */
} fth_sandbox_options;

/* FTH_INVALID if the program cannot be executed. */
fth_status fth_sandbox_start(const fth_sandbox_options *options, fth_sandbox **sandbox);
pid_t fth_sandbox_process(const fth_sandbox *sandbox);          /* leads a process group */
const char *fth_sandbox_limited_by(const fth_sandbox *sandbox); /* "cgroup", "rlimit", "nothing" */
/* Does not wait. When true, everything that the function started has ended too. */
bool fth_sandbox_has_ended(fth_sandbox *sandbox, fth_child_end *end, bool *out_of_memory);
/* Peak memory so far, or of its whole life: of the cgroup, which includes cached files; else of its
 * first process. NAN: unknown. */
double fth_sandbox_peak_bytes(fth_sandbox *sandbox);
/* Kills all its processes and frees. NULL is fine. */
void fth_sandbox_free(fth_sandbox *sandbox);

#endif
