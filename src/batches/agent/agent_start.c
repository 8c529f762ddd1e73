/* Finds a machine's agent, or starts it (agent.h). Several processes may start one at the same
 * time: the first takes the host's lock, the others exit at once, and all callers connect to the
 * same agent. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/process.h"
#include "batches/agent/agent_internal.h"

#define LOOK_EVERY_S     0.02
#define COMMAND_VARIABLE "FARTHING_BATCHES_AGENT"

enum { MAX_LOG_BYTES = 1 << 20, MAX_STARTED = 8 };

/* Agents that this process has started and not yet reaped; 0: none. There is no lock, because a
 * fork could copy it locked. */
static _Atomic pid_t started[MAX_STARTED];

static void remember(pid_t child)
{
    for (int i = 0; i < MAX_STARTED; i++) {
        pid_t none = 0;
        if (atomic_compare_exchange_strong(&started[i], &none, child))
            return;
    }
}

/* Reaps agents that have exited. */
static void collect_ended(void)
{
    for (int i = 0; i < MAX_STARTED; i++) {
        fth_child_end end;
        pid_t child = atomic_exchange(&started[i], 0);
        if (child > 0 && !fth_child_has_ended(child, &end))
            remember(child);
    }
}

static bool is_there(const char *path)
{
    fth_host_link *link = NULL;
    bool found = fth_host_connect(path, fth_deadline_in(0), &link) == FTH_OK;
    fth_host_disconnect(link);
    return found;
}

static fth_status add_option(fth_words *words, const char *name, const char *value)
{
    fth_status status = value ? fth_words_add(words, "%s", name) : FTH_OK;
    return status == FTH_OK && value ? fth_words_add(words, "%s", value) : status;
}

static fth_status make_words(const fth_batches_agent_options *options, const char *const *command, fth_words *words)
{
    fth_status status = FTH_OK;
    char program[4096];

    const char *from_environment = getenv(COMMAND_VARIABLE);

    if (command)
        for (; *command; command++)
            FTH_TRY(fth_words_add(words, "%s", *command));
    else if (from_environment)
        for (const char *at = from_environment; *at; at += strspn(at, "\n")) {
            size_t length = strcspn(at, "\n");
            FTH_TRY(fth_words_add(words, "%.*s", (int)length, at));
            at += length;
        }
    else {
        FTH_TRY(fth_words_add(words, "%s", fth_process_program(program, sizeof program)));
        FTH_TRY(fth_words_add(words, FTH_BATCHES_AGENT_COMMAND));
    }
    FTH_TRY(add_option(words, "--url", options->url));
    FTH_TRY(add_option(words, "--pinned-key", options->pinned_key));
    FTH_TRY(add_option(words, "--ca-file", options->ca_file));
    if (options->memory_bytes > 0) {
        FTH_TRY(fth_words_add(words, "--memory"));
        FTH_TRY(fth_words_add(words, "%llu", (unsigned long long)options->memory_bytes));
    }
    if (options->idle_s > 0) {
        FTH_TRY(fth_words_add(words, "--idle"));
        FTH_TRY(fth_words_add(words, "%g", options->idle_s));
    }

out:
    return status;
}

/* Starts an agent. Its messages go to a file beside the socket, which is emptied first. */
static fth_status start(const fth_batches_agent_options *options, const char *const *command, const char *log,
                        pid_t *child)
{
    fth_status status = FTH_OK;
    fth_words words = {0};

    FTH_TRY(make_words(options, command, &words));
    unlink(log);
    FTH_TRY(fth_child_start(&(fth_child_options){.program = words.items[0],
                                                 .arguments = (const char *const *)words.items,
                                                 .messages = log,
                                                 .own_group = true},
                            child));

out:
    fth_words_release(&words);
    return status;
}

/* The last line of its log says why it exited. */
static fth_status fail_ended(const fth_child_end *end, const char *log)
{
    char *text = NULL, how[64], *line, *newline;
    size_t size = 0;
    fth_child_describe_end(end, how, sizeof how);
    if (fth_file_read_all(log, MAX_LOG_BYTES, &text, &size) != FTH_OK)
        return fth_fail(FTH_PEER_LOST, "this machine's agent of the batch cache exited (%s)", how);
    while (size > 0 && text[size - 1] == '\n')
        text[--size] = '\0';
    newline = strrchr(text, '\n');
    line = newline ? newline + 1 : text;
    if (strncmp(line, FTH_LOG_ERROR_PREFIX, strlen(FTH_LOG_ERROR_PREFIX)) == 0)
        line += strlen(FTH_LOG_ERROR_PREFIX);
    fth_status status = fth_fail(FTH_PEER_LOST, "this machine's agent of the batch cache exited (%s): %s", how, line);
    free(text);
    return status;
}

fth_status fth_batches_agent_ensure(const fth_batches_agent_options *options, const char *const *command,
                                    fth_deadline deadline, char **socket_path)
{
    fth_status status = FTH_OK;
    char *path = NULL, *log = NULL;
    pid_t child = 0;
    fth_child_end end = {0};

    *socket_path = NULL;
    collect_ended();
    FTH_TRY(fth_batches_agent_path(options, &path));
    log = fth_batches_agent_log(path);
    FTH_REQUIRE(log, FTH_NO_MEMORY, "no memory for a path");
    while (!is_there(path)) {
        bool ended = child > 0 && fth_child_has_ended(child, &end);
        if (ended) {
            child = 0;
            if (end.code != 0) {
                status = fail_ended(&end, log);
                goto out;
            }
        }
        if (child == 0) /* also if the agent that was there has exited meanwhile */
            FTH_TRY(start(options, command, log, &child));
        FTH_REQUIRE(!fth_deadline_passed(deadline), FTH_TIMEOUT,
                    "this machine's agent of the batch cache did not start in time; see %s", log);
        nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_EVERY_S * 1e9)}, NULL);
    }
    *socket_path = path;
    path = NULL;

out:
    if (child > 0)
        remember(child);
    free(path);
    free(log);
    return status;
}
