/* See remote_hosts.h. */
#include "parallel/remote_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/launcher.h"
#include "parallel/remote_control.h"
#include "parallel/supervisor.h"

#define LOOK_EVERY_S  0.05
#define FIRST_PAUSE_S 2.0
#define STEADY_S      600.0
#define PATIENCE_S    90.0 /* beyond a stop's deadline: agents have their own, and end within it */
#define FAREWELL_S    30.0

enum { NOT_FOUND = 127, NOT_RUN = 126, NO_CONNECTION = 255 }; /* exit codes of a shell and of ssh */

typedef struct remote_host {
    const char *name;
    int control_read, control_write; /* of the pipe that is the agent's standard input; 0: none */
    bool reached;                    /* its agent has begun */
} remote_host;

typedef struct remote {
    const fth_remote_options *options;
    int count;
    remote_host *hosts;
    fth_relay *relay;
    fth_supervisor *supervisor;
    int done, stopped, failed;
    fth_exit_code failure;
    const remote_host *unreachable; /* whose agent never began */
    int unreachable_code;
    bool stopping;
} remote;

/* ---- an agent's command ---- */

/* Adds a word in single quotes, for the shell there. */
static char *add_quoted(char *command, const char *word)
{
    size_t quotes = 0;
    for (const char *each = word; *each; each++)
        quotes += *each == '\'';
    char *longer = NULL;
    if (command && fth_allocate(strlen(command) + strlen(word) + 3 * quotes + 4, 1, &longer) == FTH_OK) {
        char *to = stpcpy(stpcpy(longer, command), *command ? " '" : "'");
        for (; *word; word++)
            to = *word == '\'' ? stpcpy(to, "'\\''") : (*to = *word, to + 1);
        stpcpy(to, "'");
    }
    free(command);
    return longer;
}

static char *write_command(const remote *all, int number)
{
    const fth_remote_options *options = all->options;
    char *node = fth_format("--node=%s", all->hosts[number - 1].name);
    char *shown = fth_format(FTH_LAUNCH_COMMAND "=%s", options->command);
    char *line = add_quoted(fth_format("cd"), options->folder);
    char *command = line ? fth_format("%s && exec env " FTH_REMOTE_VARIABLE "=stdin", line) : NULL;
    command = add_quoted(command, shown ? shown : "");
    command = add_quoted(command, options->program);
    command = add_quoted(command, "launch");
    command = add_quoted(command, number == 1 ? "--host-rendezvous=yes" : "--host-rendezvous=no");
    command = add_quoted(command, node ? node : "");
    for (const char *const *argument = options->arguments; *argument; argument++)
        command = add_quoted(command, *argument);
    free(line);
    free(shown);
    free(node);
    return command;
}

static fth_status add_arguments(void *context, int number, fth_words *words)
{
    static const char *const settings[] = {"BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=5",
                                           "ServerAliveCountMax=3"};
    fth_status status = FTH_OK;
    const remote *all = context;
    char *command = write_command(all, number);

    FTH_REQUIRE(command, FTH_NO_MEMORY, "no memory for a host's command");
    FTH_TRY(fth_words_add(words, "ssh"));
    FTH_TRY(fth_words_add(words, "-T"));
    for (size_t i = 0; i < FTH_COUNT_OF(settings); i++) {
        FTH_TRY(fth_words_add(words, "-o"));
        FTH_TRY(fth_words_add(words, "%s", settings[i]));
    }
    FTH_TRY(fth_words_add(words, "--"));
    FTH_TRY(fth_words_add(words, "%s", all->hosts[number - 1].name));
    FTH_TRY(fth_words_add(words, "%s", command));

out:
    free(command);
    return status;
}

/* ---- its connection ---- */

static void close_control(remote_host *host)
{
    if (host->control_write > 0) {
        close(host->control_read);
        close(host->control_write);
    }
    host->control_read = host->control_write = 0;
}

/* A line is far less than what a pipe holds, so this does not wait; an agent that is gone does not
 * matter. */
static void send_line(const remote_host *host, const char *line)
{
    if (host->control_write > 0 && dprintf(host->control_write, "%s\n", line) < 0)
        fth_log_debug("host %s takes no orders: %s", host->name, strerror(errno));
}

static fth_status prepare(void *context, int number, fth_words *variables, fth_child_options *child)
{
    const remote *all = context;
    remote_host *host = &all->hosts[number - 1];
    int ends[2];
    (void)variables;
    close_control(host);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fth_fail(FTH_IO, "make a pipe: %s", strerror(errno));
    host->control_read = ends[0];
    host->control_write = ends[1];
    send_line(host, all->options->token);
    child->input = host->control_read;
    child->output = fth_relay_descriptor(all->relay, number, FTH_RELAY_OUTPUT);
    child->message_output = fth_relay_descriptor(all->relay, number, FTH_RELAY_MESSAGES);
    return FTH_OK;
}

static void show_line(void *context, int number, fth_relay_stream stream, const char *line)
{
    const remote *all = context;
    remote_host *host = &all->hosts[number - 1];
    size_t length = strlen(host->name);
    if (strcmp(line, FTH_REMOTE_GREETING) == 0) {
        host->reached = true;
        return;
    }
    bool named = *line == '[' && strncmp(line + 1, host->name, length) == 0;
    char *with_name = stream == FTH_RELAY_MESSAGES && !named ? fth_format("[%s] %s", host->name, line) : NULL;
    all->options->show(all->options->context, stream, with_name ? with_name : line);
    free(with_name);
}

/* ---- its end ---- */

static void write_name(void *context, int number, char *name, size_t size)
{
    const remote *all = context;
    snprintf(name, size, "host %s", all->hosts[number - 1].name);
}

static char *copy_last_message(void *context, int number)
{
    const remote *all = context;
    return fth_format("%s", fth_relay_last_message(all->relay, number));
}

static void handle_end(void *context, int number, pid_t process, const fth_child_end *end)
{
    remote *all = context;
    remote_host *host = &all->hosts[number - 1];
    (void)process;
    fth_relay_finish(all->relay, number);
    if (end->code == FTH_EXIT_OK)
        all->done++;
    else if (end->code == FTH_EXIT_FAILURE || end->code == FTH_EXIT_USAGE) {
        if (all->failed++ == 0)
            all->failure = (fth_exit_code)end->code;
    } else if (end->code == FTH_EXIT_INTERRUPTED || all->stopping)
        all->stopped++;
    else if (!host->reached && !all->unreachable) {
        all->unreachable = host;
        all->unreachable_code = end->code;
        fth_supervisor_let_end(all->supervisor);
    }
}

static fth_status fail_unreachable(const remote *all)
{
    const remote_host *host = all->unreachable;
    const char *program = all->options->program;
    const char *said = fth_relay_last_message(all->relay, (int)(host - all->hosts) + 1);
    if (all->unreachable_code == NOT_FOUND || all->unreachable_code == NOT_RUN)
        return fth_fail(FTH_IO, "host %s cannot run %s: %s; install it there, or say with --program where it is",
                        host->name, program, said);
    return fth_fail(FTH_IO, "cannot reach host %s: %s; `ssh -o BatchMode=yes %s true` has to work", host->name,
                    *said ? said : "ssh ended", host->name);
}

/* Other hosts continue. */
static bool may_lose(void *context)
{
    (void)context;
    return true;
}

/* ---- the whole ---- */

static fth_status start(remote *all)
{
    fth_status status = FTH_OK;
    fth_supervisor_options wanted = {.program = all->options->ssh,
                                     .max_restarts = all->options->max_restarts,
                                     .first_pause_s = FIRST_PAUSE_S,
                                     .steady_after_s = STEADY_S,
                                     .may_stop = true,
                                     .may_lose = may_lose,
                                     .context = all,
                                     .add_arguments = add_arguments,
                                     .prepare = prepare,
                                     .write_name = write_name,
                                     .last_message = copy_last_message,
                                     .on_end = handle_end};

    while (all->options->hosts[all->count])
        all->count++;
    FTH_TRY(fth_allocate((size_t)all->count, sizeof *all->hosts, &all->hosts));
    for (int i = 0; i < all->count; i++)
        all->hosts[i].name = all->options->hosts[i];
    FTH_TRY(fth_relay_create(all->count, show_line, all, &all->relay));
    wanted.count = all->count;
    FTH_TRY(fth_supervisor_start(&wanted, &all->supervisor));

out:
    return status;
}

static void order_all(const remote *all, const char *order)
{
    for (int i = 0; i < all->count; i++)
        send_line(&all->hosts[i], order);
}

/* Until no agent is left; from `deadline` on it is an error that there are some. */
static fth_status look_until_all_ended(remote *all, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    while (fth_supervisor_left(all->supervisor) > 0) {
        fth_relay_wait(all->relay, LOOK_EVERY_S);
        FTH_TRY(fth_supervisor_look(all->supervisor));
        if (all->unreachable && !all->stopping)
            FTH_TRY(fail_unreachable(all));
        if (all->options->stop->asked && !all->stopping) {
            fth_stop_reason reason = fth_stop_get(all->options->stop);
            all->stopping = true;
            deadline = fth_deadline_in(fth_deadline_left_seconds(reason.deadline) + PATIENCE_S);
            fth_supervisor_let_end(all->supervisor);
            order_all(all, reason.kind == FTH_STOP_PREEMPTION ? FTH_REMOTE_PREEMPT : FTH_REMOTE_STOP);
        }
        FTH_REQUIRE(!fth_deadline_passed(deadline), FTH_TIMEOUT, "%s did not stop in time",
                    FTH_COUNTED(fth_supervisor_left(all->supervisor), "host"));
    }

out:
    return status;
}

/* After a failure on one host: the others stop and save, and what they say is still shown. */
static void stop_others(remote *all)
{
    char *message = fth_format("%s", fth_error_message());
    all->stopping = true;
    fth_supervisor_let_end(all->supervisor);
    order_all(all, FTH_REMOTE_STOP);
    FTH_IGNORE(look_until_all_ended(all, fth_deadline_in(FAREWELL_S)), "the failure that led here is reported");
    fth_set_error("%s", message ? message : "");
    free(message);
}

fth_status fth_remote_run(const fth_remote_options *options, fth_exit_code *code)
{
    fth_status status = FTH_OK;
    remote all = {.options = options};

    FTH_TRY(start(&all));
    FTH_TRY(look_until_all_ended(&all, fth_deadline_in(INFINITY)));
    FTH_REQUIRE(all.failed == 0, FTH_PEER_LOST, "%s failed; the messages are above", FTH_COUNTED(all.failed, "host"));

out:
    *code = status == FTH_OK ? (all.done > 0 ? FTH_EXIT_OK : FTH_EXIT_INTERRUPTED)
            : all.failed > 0 ? all.failure
                             : FTH_EXIT_FAILURE;
    if (status != FTH_OK && all.supervisor && fth_supervisor_left(all.supervisor) > 0)
        stop_others(&all);
    fth_supervisor_free(all.supervisor);
    fth_relay_free(all.relay);
    for (int i = 0; all.hosts && i < all.count; i++)
        close_control(&all.hosts[i]);
    free(all.hosts);
    return status;
}
