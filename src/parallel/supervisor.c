/* See supervisor.h. */
#include "parallel/supervisor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "base/process.h"

#define PARENT_VARIABLE "FARTHING_PARENT_PROCESS"
#define MAX_PAUSE_S     30.0
#define LOOK_EVERY_S    0.05

typedef struct supervised {
    pid_t process; /* 0: none runs */
    bool restarts; /* none runs now, and one will at restart_at_s */
    double restart_at_s, started_s;
    int losses;
} supervised;

struct fth_supervisor {
    fth_supervisor_options options;
    char *program, *folder;
    bool stopping;
    supervised *processes; /* options.count */
};

/* What messages call a process. */
typedef struct process_name {
    char text[160];
} process_name;

static process_name name_of(const fth_supervisor *supervisor, int number)
{
    process_name name;
    if (supervisor->options.write_name)
        supervisor->options.write_name(supervisor->options.context, number, name.text, sizeof name.text);
    else
        snprintf(name.text, sizeof name.text, "worker %d", number);
    return name;
}

static char *message_path(const fth_supervisor *supervisor, int number)
{
    return supervisor->folder ? fth_format("%s/%d.txt", supervisor->folder, number) : NULL;
}

static char *read_last_line(const fth_supervisor *supervisor, int number)
{
    char *path = message_path(supervisor, number), *text = NULL, *line = NULL;
    size_t size = 0;
    if (fth_file_read_all(path, 64 << 20, &text, &size) == FTH_OK) {
        while (size > 0 && text[size - 1] == '\n')
            text[--size] = '\0';
        const char *newline = strrchr(text, '\n');
        line = fth_format("%s", newline ? newline + 1 : text);
    }
    free(path);
    free(text);
    return line;
}

/* The last line that a process left, without what every error begins with; free() it. */
static char *last_message(const fth_supervisor *supervisor, int number)
{
    char *line = supervisor->folder ? read_last_line(supervisor, number)
                                    : supervisor->options.last_message(supervisor->options.context, number);
    if (!line || !*line) {
        free(line);
        return fth_format("it left no message");
    }
    size_t prefix = strlen(FTH_LOG_ERROR_PREFIX);
    char *short_line = fth_format("%.600s", line + (strncmp(line, FTH_LOG_ERROR_PREFIX, prefix) == 0 ? prefix : 0));
    free(line);
    return short_line;
}

static fth_status start(fth_supervisor *supervisor, int number)
{
    fth_status status = FTH_OK;
    supervised *process = &supervisor->processes[number - 1];
    fth_words words = {0}, variables = {0};
    char *messages = message_path(supervisor, number);
    fth_child_options child = {.program = supervisor->program,
                               .messages = messages,
                               .own_group = true}; /* a Ctrl-C reaches us, and we pass it on */

    process->restarts = false;
    process->started_s = fth_clock_seconds();
    FTH_TRY(supervisor->options.add_arguments(supervisor->options.context, number, &words));
    FTH_TRY(fth_words_add(&variables, PARENT_VARIABLE "=%d", (int)getpid()));
    if (supervisor->options.prepare)
        FTH_TRY(supervisor->options.prepare(supervisor->options.context, number, &variables, &child));
    child.arguments = (const char *const *)words.items;
    child.variables = (const char *const *)variables.items;
    FTH_TRY(fth_child_start(&child, &process->process));

out:
    fth_words_release(&words);
    fth_words_release(&variables);
    free(messages);
    return status;
}

fth_status fth_supervisor_start(const fth_supervisor_options *options, fth_supervisor **supervisor)
{
    fth_status status = FTH_OK;
    fth_supervisor *made = NULL;

    if (options->folder)
        FTH_TRY(fth_folder_create(options->folder));
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->options = *options;
    made->program = fth_format("%s", options->program);
    made->folder = options->folder ? fth_format("%s", options->folder) : NULL;
    FTH_TRY(fth_allocate((size_t)options->count, sizeof *made->processes, &made->processes));
    for (int number = 1; number <= options->count; number++)
        FTH_TRY(start(made, number));
    *supervisor = made;
    made = NULL;

out:
    fth_supervisor_free(made);
    return status;
}

static fth_status handle_loss(fth_supervisor *supervisor, int number, const fth_child_end *end)
{
    supervised *process = &supervisor->processes[number - 1];
    const process_name name = name_of(supervisor, number);
    double steady_after_s = supervisor->options.steady_after_s;
    char how[96];
    fth_child_describe_end(end, how, sizeof how);
    if (steady_after_s > 0 && fth_clock_seconds() - process->started_s > steady_after_s)
        process->losses = 0;
    process->losses++;
    if (process->losses > supervisor->options.max_restarts && supervisor->options.may_lose &&
        fth_supervisor_left(supervisor) > 0 && supervisor->options.may_lose(supervisor->options.context)) {
        fth_log_warning("%s was lost (%s) %s and is given up", name.text, how, FTH_COUNTED(process->losses, "time"));
        return FTH_OK;
    }
    if (process->losses > supervisor->options.max_restarts)
        return fth_fail(FTH_PEER_LOST, "%s was lost %s; the last time by %s", name.text,
                        FTH_COUNTED(process->losses, "time"), how);
    double pause_s = 0;
    for (int i = 1; i < process->losses; i++)
        pause_s = pause_s == 0 ? supervisor->options.first_pause_s : 2 * pause_s;
    process->restarts = true;
    process->restart_at_s = fth_clock_seconds() + (pause_s < MAX_PAUSE_S ? pause_s : MAX_PAUSE_S);
    fth_log_warning("%s was lost (%s) and is started again", name.text, how);
    return FTH_OK;
}

static fth_status handle_end(fth_supervisor *supervisor, int number, const fth_child_end *end)
{
    supervised *ended = &supervisor->processes[number - 1];
    pid_t process = ended->process;
    ended->process = 0;
    if (supervisor->options.on_end)
        supervisor->options.on_end(supervisor->options.context, number, process, end);
    bool stopped = supervisor->options.may_stop && end->code == FTH_EXIT_INTERRUPTED;
    if (end->code == FTH_EXIT_OK || stopped || supervisor->stopping)
        return FTH_OK;
    if (end->code != FTH_EXIT_FAILURE && end->code != FTH_EXIT_USAGE)
        return handle_loss(supervisor, number, end);
    char *why = last_message(supervisor, number);
    fth_status status = fth_fail(FTH_PEER_LOST, "%s failed: %s", name_of(supervisor, number).text, why ? why : "");
    free(why);
    return status;
}

fth_status fth_supervisor_look(fth_supervisor *supervisor)
{
    fth_status status = FTH_OK;
    for (int number = 1; number <= supervisor->options.count; number++) {
        supervised *process = &supervisor->processes[number - 1];
        fth_child_end end;
        if (process->process != 0 && fth_child_has_ended(process->process, &end))
            FTH_TRY(handle_end(supervisor, number, &end));
        if (process->restarts && fth_clock_seconds() >= process->restart_at_s)
            FTH_TRY(start(supervisor, number));
    }

out:
    return status;
}

int fth_supervisor_left(const fth_supervisor *supervisor)
{
    int left = 0;
    for (int i = 0; i < supervisor->options.count; i++)
        left += supervisor->processes[i].process != 0 || supervisor->processes[i].restarts;
    return left;
}

void fth_supervisor_signal(const fth_supervisor *supervisor, int number)
{
    for (int i = 0; i < supervisor->options.count; i++)
        if (supervisor->processes[i].process != 0)
            kill(supervisor->processes[i].process, number);
}

void fth_supervisor_let_end(fth_supervisor *supervisor)
{
    supervisor->stopping = true;
    for (int i = 0; i < supervisor->options.count; i++)
        supervisor->processes[i].restarts = false;
}

void fth_supervisor_stop(fth_supervisor *supervisor, fth_deadline deadline)
{
    fth_supervisor_let_end(supervisor);
    fth_supervisor_signal(supervisor, SIGTERM);
    for (;;) {
        FTH_IGNORE(fth_supervisor_look(supervisor), "while stopping, no end is a failure");
        if (fth_supervisor_left(supervisor) == 0 || fth_deadline_passed(deadline))
            break;
        fth_sleep(LOOK_EVERY_S);
    }
    for (int i = 0; i < supervisor->options.count; i++) {
        if (supervisor->processes[i].process == 0)
            continue;
        fth_log_warning("%s has not stopped in time and is killed", name_of(supervisor, i + 1).text);
        fth_process_kill(supervisor->processes[i].process);
        supervisor->processes[i].process = 0;
    }
}

void fth_supervisor_free(fth_supervisor *supervisor)
{
    if (!supervisor)
        return;
    for (int i = 0; supervisor->processes && i < supervisor->options.count; i++)
        if (supervisor->processes[i].process != 0)
            fth_process_kill(supervisor->processes[i].process);
    free(supervisor->processes);
    free(supervisor->program);
    free(supervisor->folder);
    free(supervisor);
}

fth_status fth_supervisor_follow_parent(void)
{
    const char *parent = getenv(PARENT_VARIABLE);
    if (!parent)
        return FTH_OK;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)strtol(parent, NULL, 10)) /* gone before that took effect; or not started by it */
        return fth_fail(FTH_PEER_LOST, "process %s, whose worker this is, is gone; without it, unset " PARENT_VARIABLE,
                        parent);
    return FTH_OK;
}
