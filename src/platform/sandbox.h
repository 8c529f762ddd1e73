/* A function's process under limits: memory by a cgroup (v2 or v1) where there is one to write to,
 * else by rlimit; time by whoever watches it. It sees only the environment that it is given, and
 * starts in one folder of its own.
 *
 * A supervisor (sandbox_supervisor.h), a process between this one and the function, ends everything that
 * the function has started: when the function ends, when the sandbox is freed, and when this
 * process is gone, by whatever means. Only an administrator who kills the supervisor itself leaves
 * grandchildren behind; a cgroup's are found by the next sandbox.
 *
 * Under an rlimit (RLIMIT_DATA: private memory that is writable, of each process by itself; address
 * space that is only reserved or mapped from files does not count, as it would for RLIMIT_AS)
 * allocations fail instead of the process being killed, and the program says so in its own way:
 * out_of_memory is then known only if its memory was seen near the limit. */
#ifndef FTH_PLATFORM_SANDBOX_H
#define FTH_PLATFORM_SANDBOX_H

#include "base/base.h"
#include "base/child.h"

typedef struct fth_sandbox fth_sandbox;

typedef struct fth_sandbox_options {
    const char *const *command;    /* NULL-terminated; a file first */
    const char *const *variables;  /* all there are: "NAME=value", NULL-terminated */
    const char *folder;            /* working directory */
    const char *output, *messages; /* files that standard output and error are appended to; NULL: stdout.log and
                                      stderr.log in the folder */
    uint64_t memory_bytes;         /* 0: no limit */
    bool no_cgroup;                /* an rlimit even where a cgroup could be made */
} fth_sandbox_options;

/* A program that cannot be executed is FTH_INVALID. */
fth_status fth_sandbox_start(const fth_sandbox_options *options, fth_sandbox **sandbox);
pid_t fth_sandbox_process(const fth_sandbox *sandbox);          /* leads a process group */
const char *fth_sandbox_limited_by(const fth_sandbox *sandbox); /* "cgroup", "rlimit", "nothing" */
/* Does not wait. Once true, everything that the function had started has ended too. */
bool fth_sandbox_has_ended(fth_sandbox *sandbox, fth_child_end *end, bool *out_of_memory);
/* So far, or of its whole life: of the cgroup, which counts files that it has read or written too;
 * else of its first process alone. NAN: not known. */
double fth_sandbox_peak_bytes(fth_sandbox *sandbox);
/* Kills whatever is left of it and frees. NULL is fine. */
void fth_sandbox_free(fth_sandbox *sandbox);

#endif
