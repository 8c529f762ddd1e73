/* See sandbox.h. */
#include "platform/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "platform/sandbox_supervisor.h"

static const double die_within_s = 20; /* longer than a supervisor needs */

struct fth_sandbox {
    pid_t supervisor, process;
    int lifeline, report; /* this side's ends; -1: closed */
    bool in_group, limited;
    fth_cgroup group;
    bool ended;
    fth_sandbox_supervisor_report end;
};

/* ---- starting ---- */

static fth_status open_output(const char *given, const char *folder, const char *usual, int *file)
{
    char *path = given ? strdup(given) : fth_path_join(folder, usual);
    fth_status status = FTH_OK;
    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    *file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    FTH_REQUIRE(*file >= 0, FTH_IO, "open %s: %s", path, strerror(errno));

out:
    free(path);
    return status;
}

static void shut(int *file)
{
    if (*file >= 0)
        close(*file);
    *file = -1;
}

/* Reads a whole message of the supervisor; false if it is gone. */
static bool read_message(int file, void *message, size_t size)
{
    ssize_t got;
    while ((got = read(file, message, size)) < 0 && errno == EINTR)
        ;
    return got == (ssize_t)size; /* pipes keep writes of this size whole */
}

/* Logged once, because it is the same for all functions; the current message says why. */
static void report_no_group(void)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        fth_log_info("the memory of functions is limited by rlimits, since a control group cannot be used: %s",
                     fth_error_message());
}

/* FTH_UNSUPPORTED if its cgroup cannot be entered. */
static fth_status start_supervisor(fth_sandbox *sandbox, const fth_sandbox_supervisor_orders *orders)
{
    fth_sandbox_supervisor_start start;
    int failure = fth_sandbox_supervisor_fork(orders, &sandbox->supervisor);
    /* so that the pipe ends with the supervisor */
    close(orders->report);
    if (failure != 0) {
        sandbox->supervisor = 0;
        return fth_fail(FTH_IO, "start %s: %s", orders->command[0], strerror(failure));
    }
    if (!read_message(sandbox->report, &start, sizeof start))
        return fth_fail(FTH_IO, "start %s: the process that watches it has ended", orders->command[0]);
    if (start.no_group)
        return fth_fail(FTH_UNSUPPORTED, "enter control group %s: %s", orders->group->folder, strerror(start.failure));
    if (start.failure != 0)
        return fth_fail(FTH_INVALID, "start %s: %s", orders->command[0], strerror(start.failure));
    sandbox->process = start.process;
    return FTH_OK;
}

/* FTH_UNSUPPORTED if `by_group` and no cgroup can be used. */
static fth_status start(const fth_sandbox_options *options, bool by_group, fth_sandbox **result)
{
    fth_status status = FTH_OK;
    fth_sandbox *sandbox = NULL;
    int lifeline[2] = {-1, -1}, report[2] = {-1, -1}, output = -1, messages = -1;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *sandbox, &sandbox));
    sandbox->lifeline = sandbox->report = -1;
    FTH_TRY(open_output(options->output, options->folder, "stdout.log", &output));
    FTH_TRY(open_output(options->messages, options->folder, "stderr.log", &messages));
    FTH_REQUIRE(pipe2(lifeline, O_CLOEXEC) == 0 && pipe2(report, O_CLOEXEC) == 0, FTH_IO, "start %s: %s",
                options->command[0], strerror(errno));
    sandbox->limited = options->memory_bytes > 0;
    if (by_group)
        FTH_TRY(fth_cgroup_create(options->memory_bytes, &sandbox->group));
    sandbox->in_group = by_group;
    sandbox->lifeline = lifeline[1];
    sandbox->report = report[0];
    lifeline[1] = report[0] = -1;
    fth_sandbox_supervisor_orders orders = {.command = options->command,
                                            .variables = options->variables,
                                            .folder = options->folder,
                                            .output = output,
                                            .messages = messages,
                                            .group = sandbox->in_group ? &sandbox->group : NULL,
                                            .data_bytes = sandbox->in_group ? 0 : options->memory_bytes,
                                            .lifeline = lifeline[0],
                                            .report = report[1]};
    report[1] = -1; /* start_supervisor() closes it */
    FTH_TRY(start_supervisor(sandbox, &orders));
    *result = sandbox;
    sandbox = NULL;

out:
    fth_sandbox_free(sandbox);
    shut(&lifeline[0]);
    shut(&lifeline[1]);
    shut(&report[0]);
    shut(&report[1]);
    shut(&output);
    shut(&messages);
    return status;
}

fth_status fth_sandbox_start(const fth_sandbox_options *options, fth_sandbox **sandbox)
{
    const bool by_group = options->memory_bytes > 0 && !options->no_cgroup;
    fth_status status = start(options, by_group, sandbox);
    if (status == FTH_UNSUPPORTED) {
        report_no_group();
        status = start(options, false, sandbox);
    }
    return status;
}

/* ---- while it runs ---- */

pid_t fth_sandbox_process(const fth_sandbox *sandbox)
{
    return sandbox->process;
}

const char *fth_sandbox_limited_by(const fth_sandbox *sandbox)
{
    return sandbox->in_group ? "cgroup" : sandbox->limited ? "rlimit" : "nothing";
}

bool fth_sandbox_has_ended(fth_sandbox *sandbox, fth_child_end *end, bool *out_of_memory)
{
    struct pollfd report = {.fd = sandbox->report, .events = POLLIN};
    if (!sandbox->ended && poll(&report, 1, 0) > 0) {
        sandbox->ended = true;
        if (!read_message(sandbox->report, &sandbox->end, sizeof sandbox->end)) /* the supervisor was killed */
            sandbox->end = (fth_sandbox_supervisor_report){.code = -1, .peak_bytes = NAN};
    }
    if (!sandbox->ended)
        return false;
    *end = (fth_child_end){.code = sandbox->end.code, .signal = sandbox->end.signal};
    *out_of_memory = sandbox->end.out_of_memory;
    return true;
}

double fth_sandbox_peak_bytes(fth_sandbox *sandbox)
{
    double peak, data;
    if (sandbox->ended)
        return sandbox->end.peak_bytes;
    peak = sandbox->in_group ? fth_cgroup_peak_bytes(&sandbox->group) : NAN;
    if (isnan(peak)) /* also for cgroups of kernels before 5.19 */
        fth_sandbox_supervisor_look(sandbox->process, &peak, &data);
    return peak;
}

void fth_sandbox_free(fth_sandbox *sandbox)
{
    if (!sandbox)
        return;
    shut(&sandbox->lifeline);
    if (sandbox->supervisor > 0)
        fth_child_wait(sandbox->supervisor, fth_deadline_in(die_within_s));
    shut(&sandbox->report);
    if (sandbox->in_group && fth_folder_exists(sandbox->group.folder)) { /* the supervisor did not remove it */
        fth_cgroup_kill(&sandbox->group, 1, NULL);
        fth_cgroup_remove(&sandbox->group);
    }
    free(sandbox);
}
