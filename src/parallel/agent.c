/* See agent.h. */
#include "parallel/agent.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cluster/launcher.h"
#include "cluster/rendezvous.h"
#include "cluster/rendezvous_find.h"
#include "parallel/supervisor.h"

#define LOOK_EVERY_S  0.05
#define FIRST_PAUSE_S 0.5
#define STEADY_S      600.0
#define FAREWELL_S    10.0 /* for workers to stop after one of them failed */
#define LEAVING_S     5.0 /* for the other workers to end after the first is done, and for those of other nodes to leave \
                           */
#define PATIENCE_S 60.0   /* beyond a stop's deadline where nothing vanishes: a disk may be slow */
#define SECOND_S   1.0

/* How workers ended. */
typedef struct endings {
    int done, stopped, failed;
    fth_exit_code failure; /* the first that failed */
} endings;

typedef struct agent {
    const fth_agent_options *options;
    fth_rendezvous *rendezvous; /* NULL: another node's agent has it */
    fth_rendezvous_place place;
    char *address, *made_token;
    int token_file; /* in memory: workers read the token there */
    fth_relay *relay;
    fth_supervisor *supervisor;
    endings endings;
    bool stopping;
    fth_deadline deadline;
} agent;

/* ---- the rendezvous ---- */

static fth_status start_rendezvous(agent *own, const char *address, int port)
{
    const fth_agent_options *options = own->options;
    const fth_rendezvous_options wanted = {.address = address,
                                           .port = port,
                                           .token = own->place.token,
                                           .run = options->run,
                                           .least = options->least,
                                           .most = options->most,
                                           .find_after_s = port > 0 ? SECOND_S : 0};
    return fth_rendezvous_start(&wanted, &own->rendezvous);
}

/* For this machine alone: on loopback, with a token that only its workers know. */
static fth_status start_own_rendezvous(agent *own)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_launcher_make_token(&own->made_token));
    own->place.token = own->made_token;
    FTH_TRY(start_rendezvous(own, "127.0.0.1", 0));
    own->address = fth_format("127.0.0.1:%d", fth_rendezvous_port(own->rendezvous));
    FTH_REQUIRE(own->address, FTH_NO_MEMORY, "no memory for an address");

out:
    return status;
}

/* On this machine, unless the agent of another node that is also on this machine has it already. */
static fth_status start_here_or_reach(agent *own)
{
    fth_status status =
        start_rendezvous(own, fth_rendezvous_listening_address(own->address), atoi(strrchr(own->address, ':') + 1));
    if (status != FTH_IO)
        return status;
    char *taken = fth_format("%s", fth_error_message());
    status = fth_rendezvous_reach(&own->place, own->options->stop, fth_deadline_in(SECOND_S));
    if (status == FTH_TIMEOUT)
        status = fth_fail(FTH_IO, "%s", taken ? taken : "");
    free(taken);
    return status;
}

static fth_status find_rendezvous(agent *own)
{
    fth_status status = FTH_OK;
    const fth_agent_options *options = own->options;
    bool here = options->hosting == FTH_HOSTING_YES;

    own->place = (fth_rendezvous_place){.token = options->token, .run = options->run, .node = options->node};
    if (!options->rendezvous) {
        FTH_TRY(start_own_rendezvous(own));
    } else {
        own->address = fth_format("%s", options->rendezvous);
        FTH_REQUIRE(own->address, FTH_NO_MEMORY, "no memory for an address");
        own->place.address = own->address;
        if (options->hosting == FTH_HOSTING_AUTO)
            here = fth_rendezvous_is_here(own->address);
        FTH_TRY(here ? start_here_or_reach(own)
                     : fth_rendezvous_reach(&own->place, options->stop, fth_deadline_in(options->wait_s)));
    }
    own->place.address = own->address;

out:
    return status;
}

/* Members of other nodes still talk to a rendezvous that is here: those that are done leave it
 * within moments, and where only this node leaves, they need it for as long as it lasts. */
static void let_members_leave(agent *own, fth_exit_code code)
{
    bool others_continue = code == FTH_EXIT_INTERRUPTED;
    fth_stop *stop = own->options->stop;
    fth_deadline deadline = !others_continue ? fth_deadline_in(LEAVING_S)
                            : own->stopping  ? own->deadline
                                             : fth_deadline_in(INFINITY);
    bool told = false;
    if (!own->rendezvous)
        return;
    for (double since_s = fth_clock_seconds(); !fth_deadline_passed(deadline);) {
        bool takes_long = fth_clock_seconds() - since_s > SECOND_S;
        int count = 0;
        if (fth_rendezvous_count_members(&own->place, &count) != FTH_OK || count == 0)
            return;
        if (others_continue && !told && takes_long) {
            fth_log_info("this node has left; the rendezvous stays for %s of other nodes",
                         FTH_COUNTED(count, "process"));
            told = true;
        }
        if (!own->stopping && stop->asked)
            return;
        fth_relay_wait(own->relay, takes_long ? SECOND_S : LOOK_EVERY_S);
    }
}

/* ---- workers ---- */

/* Messages call workers as the prefix of their lines does: by their number on the node, from 0
 * on. */
static void write_name(void *context, int number, char *name, size_t size)
{
    const agent *own = context;
    snprintf(name, size, "worker %d on %s", number - 1, own->options->node);
}

static void show_line(void *context, int number, fth_relay_stream stream, const char *line)
{
    const agent *own = context;
    const fth_agent_options *options = own->options;
    bool alone = options->workers == 1 && options->most == 1;
    if (stream == FTH_RELAY_OUTPUT || alone) {
        options->show(options->context, stream, line);
        return;
    }
    char *named = fth_format("[%s %d] %s", options->node, number - 1, line);
    options->show(options->context, stream, named ? named : line);
    free(named);
}

static char *copy_last_message(void *context, int number)
{
    const agent *own = context;
    return fth_format("%s", fth_relay_last_message(own->relay, number));
}

static fth_status add_arguments(void *context, int number, fth_words *words)
{
    fth_status status = FTH_OK;
    const agent *own = context;
    (void)number;

    FTH_TRY(fth_words_add(words, "farthing"));
    FTH_TRY(fth_words_add(words, "train"));
    for (const char *const *argument = own->options->arguments; *argument; argument++)
        FTH_TRY(fth_words_add(words, "%s", *argument));

out:
    return status;
}

static fth_status prepare(void *context, int number, fth_words *variables, fth_child_options *child)
{
    fth_status status = FTH_OK;
    const agent *own = context;
    const fth_agent_options *options = own->options;

    FTH_TRY(fth_words_add(variables, FTH_LAUNCH_RUN "=%s", options->run));
    FTH_TRY(fth_words_add(variables, FTH_LAUNCH_COMMAND "=%s", options->command));
    FTH_TRY(fth_words_add(variables, FTH_LAUNCH_RENDEZVOUS "=%s", own->address));
    child->descriptor = own->token_file;
    if (own->token_file > 0)
        FTH_TRY(fth_words_add(variables, FTH_LAUNCH_TOKEN_FILE "=/proc/self/fd/%d", FTH_CHILD_DESCRIPTOR));
    FTH_TRY(fth_words_add(variables, FTH_LAUNCH_NODE "=%s", options->node));
    FTH_TRY(fth_words_add(variables, FTH_LAUNCH_NODES "=%d:%d", options->least, options->most));
    FTH_TRY(fth_words_add(variables, FTH_LAUNCH_LOCAL_RANK "=%d", number - 1));
    FTH_TRY(fth_words_add(variables, FTH_LAUNCH_LOCAL_SIZE "=%d", options->workers));
    child->output = fth_relay_descriptor(own->relay, number, FTH_RELAY_OUTPUT);
    child->message_output = fth_relay_descriptor(own->relay, number, FTH_RELAY_MESSAGES);

out:
    return status;
}

static void count_ending(endings *all, const fth_child_end *end, bool stopping)
{
    if (end->code == FTH_EXIT_OK)
        all->done++;
    else if (end->code == FTH_EXIT_FAILURE || end->code == FTH_EXIT_USAGE) {
        if (all->failed++ == 0)
            all->failure = (fth_exit_code)end->code;
    } else if (end->code == FTH_EXIT_INTERRUPTED || stopping)
        all->stopped++;
}

static void handle_end(void *context, int number, pid_t process, const fth_child_end *end)
{
    agent *own = context;
    char how[96];
    fth_relay_finish(own->relay, number);
    count_ending(&own->endings, end, own->stopping);
    fth_child_describe_end(end, how, sizeof how);
    if (end->code == FTH_EXIT_OK || end->code == FTH_EXIT_INTERRUPTED)
        return; /* it has left by itself */
    if (fth_rendezvous_report_lost(own->address, own->place.token, own->options->node, process, how) != FTH_OK)
        fth_log_warning("the end of worker %d was not reported: %s", number - 1, fth_error_message());
}

/* The others train without it; but none of them begins before all have come. */
static bool may_lose(void *context)
{
    const agent *own = context;
    bool begun = false;
    return fth_rendezvous_has_begun(&own->place, &begun) == FTH_OK && begun;
}

static fth_status write_token_file(agent *own)
{
    const char *token = own->place.token;
    ssize_t size = (ssize_t)strlen(token);
    if (size == 0)
        return FTH_OK;
    own->token_file = memfd_create("farthing-token", MFD_CLOEXEC);
    if (own->token_file < 0 || write(own->token_file, token, (size_t)size) != size)
        return fth_fail(FTH_IO, "keep the token for workers: %s", strerror(errno));
    return FTH_OK;
}

static fth_status start_workers(agent *own)
{
    fth_status status = FTH_OK;
    const fth_agent_options *options = own->options;
    const fth_supervisor_options wanted = {.program = options->program,
                                           .count = options->workers,
                                           .max_restarts = options->max_restarts,
                                           .first_pause_s = FIRST_PAUSE_S,
                                           .steady_after_s = STEADY_S,
                                           .may_stop = true,
                                           .context = own,
                                           .add_arguments = add_arguments,
                                           .prepare = prepare,
                                           .write_name = write_name,
                                           .last_message = copy_last_message,
                                           .may_lose = may_lose,
                                           .on_end = handle_end};
    FTH_TRY(write_token_file(own));
    FTH_TRY(fth_relay_create(options->workers, show_line, own, &own->relay));
    FTH_TRY(fth_supervisor_start(&wanted, &own->supervisor));

out:
    return status;
}

/* ---- stops ---- */

/* Passes a stop on as the signal that means the same to the workers. */
static void pass_on_stop(agent *own)
{
    fth_stop_reason reason = fth_stop_get(own->options->stop);
    bool preempted = reason.kind == FTH_STOP_PREEMPTION;
    own->stopping = true;
    own->deadline = fth_deadline_in(fth_deadline_left_seconds(reason.deadline) + (preempted ? SECOND_S : PATIENCE_S));
    fth_supervisor_let_end(own->supervisor);
    fth_supervisor_signal(own->supervisor, preempted ? SIGUSR1 : SIGINT);
}

/* ---- the whole ---- */

/* Once a worker is done the run has ended, and is saved. One that was lost just before, and started
 * again, finds nobody to train with. */
static bool is_over(const agent *own, fth_deadline late)
{
    if (fth_supervisor_left(own->supervisor) == 0)
        return true;
    if (own->stopping || !fth_deadline_passed(late))
        return false;
    fth_log_info("the run has ended without %s on %s", FTH_COUNTED(fth_supervisor_left(own->supervisor), "worker"),
                 own->options->node);
    return true;
}

static fth_status watch_workers(agent *own)
{
    fth_status status = FTH_OK;
    fth_deadline late = {INFINITY};
    while (!is_over(own, late)) {
        fth_relay_wait(own->relay, LOOK_EVERY_S);
        FTH_TRY(fth_supervisor_look(own->supervisor));
        if (own->endings.done > 0 && isinf(late.at_seconds)) {
            late = fth_deadline_in(LEAVING_S);
            fth_supervisor_let_end(own->supervisor);
        }
        if (own->options->stop->asked && !own->stopping)
            pass_on_stop(own);
        FTH_REQUIRE(!own->stopping || !fth_deadline_passed(own->deadline), FTH_TIMEOUT,
                    "%s on %s did not stop in time and %s killed",
                    FTH_COUNTED(fth_supervisor_left(own->supervisor), "worker"), own->options->node,
                    fth_supervisor_left(own->supervisor) == 1 ? "was" : "were");
    }
    if (own->endings.failed > 0) /* while stopping: the supervisor takes no end for a failure then */
        status = fth_fail(FTH_PEER_LOST, "a worker on %s failed while it stopped; its messages are above",
                          own->options->node);

out:
    return status;
}

/* After a failure. Where there are other nodes, this one leaves them, as at a notice: a stop would
 * be theirs too. */
static void stop_others(agent *own)
{
    fth_deadline deadline = fth_deadline_in(FAREWELL_S);
    char *message = fth_format("%s", fth_error_message());
    fth_supervisor_let_end(own->supervisor);
    fth_supervisor_signal(own->supervisor, own->options->most > 1 ? SIGUSR1 : SIGTERM);
    while (fth_supervisor_left(own->supervisor) > 0 && !fth_deadline_passed(deadline)) {
        fth_relay_wait(own->relay, LOOK_EVERY_S);
        FTH_IGNORE(fth_supervisor_look(own->supervisor), "while stopping, no end is a failure");
    }
    fth_set_error("%s", message ? message : "");
    free(message);
}

static fth_exit_code conclude(const endings *all, fth_status status)
{
    if (status == FTH_INTERRUPTED)
        return FTH_EXIT_INTERRUPTED;
    if (status != FTH_OK)
        return all->failed > 0 ? all->failure : FTH_EXIT_FAILURE;
    return all->done > 0 ? FTH_EXIT_OK : FTH_EXIT_INTERRUPTED;
}

fth_status fth_agent_run(const fth_agent_options *options, fth_exit_code *code)
{
    fth_status status = FTH_OK;
    agent own = {.options = options};

    FTH_TRY(find_rendezvous(&own));
    FTH_TRY(start_workers(&own));
    FTH_TRY(watch_workers(&own));

out:
    *code = conclude(&own.endings, status);
    if (status == FTH_OK) {
        fth_supervisor_free(own.supervisor); /* with the workers that are late */
        own.supervisor = NULL;
        let_members_leave(&own, *code);
    } else if (own.supervisor && !own.stopping)
        stop_others(&own);
    fth_supervisor_free(own.supervisor);
    fth_relay_free(own.relay);
    fth_rendezvous_stop(own.rendezvous);
    if (own.token_file > 0)
        close(own.token_file);
    fth_wipe_text(own.made_token);
    free(own.address);
    return status;
}
