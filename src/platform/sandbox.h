/* A function's process under limits: memory by a cgroup (v2 or v1) where there is one to write to, else by rlimit; time by
 * whoever watches it. It sees only the environment that it is given, and its files below one folder of its own. */
#ifndef FTH_PLATFORM_SANDBOX_H
#define FTH_PLATFORM_SANDBOX_H

#include "base/base.h"
#include "base/child.h"

typedef struct fth_sandbox fth_sandbox;

typedef struct fth_sandbox_options {
    const char *const *command;   /* NULL-terminated; a file first */
    const char *const *variables; /* all there are: "NAME=value", NULL-terminated */
    const char *folder;           /* working directory; its output goes to stdout.log and stderr.log there */
    uint64_t memory_bytes;        /* 0: no limit */
} fth_sandbox_options;

fth_status fth_sandbox_start(const fth_sandbox_options *options, fth_sandbox **sandbox);
pid_t fth_sandbox_process(const fth_sandbox *sandbox);
const char *fth_sandbox_limited_by(const fth_sandbox *sandbox); /* "cgroup", "rlimit", "nothing" */
bool fth_sandbox_has_ended(fth_sandbox *sandbox, fth_child_end *end, bool *out_of_memory);
double fth_sandbox_peak_bytes(fth_sandbox *sandbox); /* NAN: not known */
/* Kills whatever is left of it and frees. NULL is fine. */
void fth_sandbox_free(fth_sandbox *sandbox);

#endif
