/* `farthing train --strategy parameter-server` without --server: a server in this process and workers beside it.
 *
 * The run is the server's, in whose folder the workers' own are (workers/1, workers/2, ...). Each worker is this
 * program again, with the options given here, a share of every epoch, one thread, and the server's address. A worker
 * that is lost is started again and goes on from its own checkpoint; what it does twice counts, so that the server ends
 * after --epochs or --steps of all of them together. A stop goes to all of them, and the server saves
 * last. What a worker says goes to workers/1.txt; its last line is shown if it fails. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "cli/cli.h"
#include "parameters/parameters.h"

enum { MAX_WORKERS = 256, MAX_RESTARTS = 5, MAX_FLAGS = 2 * FTH_MAX_OPTIONS + 24 };
#define PARENT_VARIABLE "FARTHING_PARENT_PROCESS"
#define LOOK_EVERY_S    0.05
#define GOODBYE_S       30.0

typedef struct local_worker {
    pid_t process; /* 0: none */
    int restarts;
    bool done;
} local_worker;

typedef struct local {
    const fth_train_options *options;
    fth_parameters *server;
    local_worker workers[MAX_WORKERS];
    int count;
    const fth_train_observer *observer;
    int64_t steps; /* that the workers will make, about; 0: not known */
} local;

static int choose_count(const fth_train_options *options)
{
    int cores = fth_processors_usable();
    return options->workers > 0 ? (int)options->workers : cores < MAX_WORKERS ? cores : MAX_WORKERS;
}

/* ---- workers ---- */

/* Options that are the server's, or this process's own. */
static bool stays_here(const char *name)
{
    static const char *const ours[] = {
        "workers", "consistency", "name",        "runs",           "resume",   "json",         "threads",
        "share",   "lr",          "worker",      "optimizer",      "momentum", "weight-decay", "schedule",
        "warmup",  "clip",        "weights",     "validate-every", "until",    "budget",       "price",
        "prices",  "nesterov",    "decay-every", "decay-factor",   "beta1",    "beta2",        "epsilon",
        "keep",    "watch",       "normalize"};
    for (size_t i = 0; i < FTH_COUNT_OF(ours); i++)
        if (strcmp(name, ours[i]) == 0)
            return true;
    return false;
}

static char *flag_of(const json_t *configuration, const char *name)
{
    const json_t *value = json_object_get(configuration, name);
    if (json_is_string(value))
        return fth_format("--%s=%s", name, json_string_value(value));
    if (json_is_boolean(value))
        return fth_format("--%s%s", json_is_true(value) ? "" : "no-", name);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    char *flag = fth_format("--%s=%s", name, text ? text : "");
    free(text);
    return flag;
}

static int make_arguments(const local *all, int number, char *arguments[MAX_FLAGS])
{
    const fth_option_table *table = &fth_train_option_table;
    json_t *configuration = fth_options_to_json(table, all->options, false);
    char normalization[FTH_NORMALIZATION_TEXT];
    int count = 0;
    fth_normalization_format(fth_parameters_normalization(all->server), normalization);
    arguments[count++] = fth_format("farthing");
    arguments[count++] = fth_format("train");
    for (size_t i = 0; i < table->count; i++)
        if (fth_options_was_given(table, all->options, table->options[i].name) && !stays_here(table->options[i].name))
            arguments[count++] = flag_of(configuration, table->options[i].name);
    arguments[count++] = fth_format("--server=http://127.0.0.1:%d", fth_parameters_port(all->server));
    arguments[count++] = fth_format("--normalize=%s", normalization);
    arguments[count++] = fth_format("--share=%d/%d", number + 1, all->count);
    arguments[count++] = fth_format("--worker=%d", number + 1);
    arguments[count++] = fth_format("--threads=1");
    arguments[count++] = fth_format("--runs=%s/workers", fth_parameters_run_folder(all->server));
    arguments[count++] = fth_format("--name=%d", number + 1);
    arguments[count++] = fth_format("--validate-every=1000000"); /* the server does that */
    arguments[count++] = fth_format("--resume");
    arguments[count++] = fth_format("--json");
    arguments[count] = NULL;
    json_decref(configuration);
    return count;
}

static char *message_path(const local *all, int number)
{
    return fth_format("%s/workers/%d.txt", fth_parameters_run_folder(all->server), number + 1);
}

/* The last line that a worker left; free() it. */
static char *last_message(const local *all, int number)
{
    char *path = message_path(all, number), *text = NULL, *line = NULL;
    size_t size = 0;
    if (fth_file_read_all(path, 64 << 20, &text, &size) == FTH_OK) {
        while (size > 0 && text[size - 1] == '\n')
            text[--size] = '\0';
        const char *newline = strrchr(text, '\n');
        line = fth_format("%.600s", newline ? newline + 1 : text);
    }
    free(path);
    free(text);
    return line ? line : fth_format("it left no message");
}

/* A worker's side: it ends with the process that has its server. Otherwise it would try to reach that for a while, and
 * hold its run, so that nobody could carry on. */
fth_status fth_cli_follow_parent(void)
{
    const char *parent = getenv(PARENT_VARIABLE);
    if (!parent)
        return FTH_OK;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)strtol(parent, NULL, 10)) /* gone before that took effect; or not a worker of anybody */
        return fth_fail(FTH_PEER_LOST, "process %s, whose worker this is, is gone; without it, unset " PARENT_VARIABLE,
                        parent);
    return FTH_OK;
}

/* This process's environment and who its workers' parent is; free() it. NULL: no memory. Other threads may read the
 * environment, so it is not changed. */
static char **add_parent(char *text, size_t size)
{
    size_t count = 0;
    while (environ[count])
        count++;
    char **copy = calloc(count + 2, sizeof *copy);
    if (!copy)
        return NULL;
    snprintf(text, size, PARENT_VARIABLE "=%d", (int)getpid());
    copy[0] = text; /* the first of a name counts */
    memcpy(copy + 1, environ, count * sizeof *copy);
    return copy;
}

static fth_status start_worker(local *all, int number)
{
    char *arguments[MAX_FLAGS], parent[64];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    int count = make_arguments(all, number, arguments);
    char *messages = message_path(all, number);

    char **environment = add_parent(parent, sizeof parent);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, messages, O_WRONLY | O_CREAT | O_APPEND, 0644);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0); /* a Ctrl-C comes to us, and from us to them */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    char program[4096];
    int failure = environment ? posix_spawn(&all->workers[number].process, fth_process_program(program, sizeof program),
                                            &actions, &attributes, arguments, environment)
                              : ENOMEM;
    free(environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    for (int i = 0; i < count; i++)
        free(arguments[i]);
    free(messages);
    if (failure != 0) {
        all->workers[number].process = 0;
        return fth_fail(FTH_IO, "start worker %d: %s", number + 1, strerror(failure));
    }
    return FTH_OK;
}

/* Its process has ended, here or with a server before this one: the next of its name need not wait for a lease. */
static void free_name(const local *all, int number)
{
    char name[16];
    snprintf(name, sizeof name, "%d", number + 1);
    fth_parameters_let_go(all->server, name);
}

/* Sees whether it has ended, and starts it again unless it is done or hopeless. */
static fth_status look_at_worker(local *all, int number, bool stopping)
{
    local_worker *worker = &all->workers[number];
    int how = 0;
    if (worker->process == 0)
        return FTH_OK;
    pid_t got = waitpid(worker->process, &how, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR))
        return FTH_OK;
    worker->process = 0;
    free_name(all, number);
    int code = got > 0 && WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    worker->done = code == FTH_EXIT_OK;
    if (worker->done || stopping)
        return FTH_OK;
    if (code == FTH_EXIT_FAILURE || code == FTH_EXIT_USAGE) {
        char *why = last_message(all, number);
        fth_status status = fth_fail(FTH_PEER_LOST, "worker %d failed: %s", number + 1, why);
        free(why);
        return status;
    }
    if (++worker->restarts > MAX_RESTARTS)
        return fth_fail(FTH_PEER_LOST, "worker %d was lost %s", number + 1, FTH_COUNTED(worker->restarts, "time"));
    fth_log_warning("worker %d was lost (%s); it is started again", number + 1,
                    got > 0 && WIFSIGNALED(how) ? strsignal(WTERMSIG(how)) : "it ended early");
    return start_worker(all, number);
}

static bool any_left(const local *all)
{
    for (int i = 0; i < all->count; i++)
        if (all->workers[i].process != 0)
            return true;
    return false;
}

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_EVERY_S * 1e9)}, NULL);
}

/* Asks the workers to stop, gives them time to save, and ends those that do not. */
static void end_workers(local *all)
{
    fth_deadline deadline = fth_deadline_in(GOODBYE_S);
    for (int i = 0; i < all->count; i++)
        if (all->workers[i].process != 0)
            kill(all->workers[i].process, SIGTERM);
    while (any_left(all) && !fth_deadline_passed(deadline)) {
        for (int i = 0; i < all->count; i++)
            look_at_worker(all, i, true);
        pause_briefly();
    }
    for (int i = 0; i < all->count; i++)
        if (all->workers[i].process != 0)
            fth_process_kill(all->workers[i].process);
}

/* ---- the whole ---- */

/* How many versions come of the workers' epochs. */
static int64_t count_steps(const local *all, fth_consistency consistency)
{
    const fth_train_options *options = all->options;
    int64_t samples = fth_parameters_epoch_samples(all->server), sum = 0, most = 0;
    if (options->steps > 0)
        return options->steps;
    for (int i = 0; i < all->count; i++) {
        int64_t share = fth_share_samples((fth_share){.index = i, .of = all->count}, samples);
        int64_t batches = options->epochs * fth_batches_per_epoch(share, options->batch);
        sum += batches;
        most = batches > most ? batches : most;
    }
    if (consistency.kind != FTH_CONSISTENCY_SYNC)
        return sum;
    return consistency.count > 0 && consistency.count < all->count ? sum / consistency.count : most;
}

static void show_progress(const local *all, bool evaluating)
{
    fth_progress progress;
    fth_parameters_get_progress(all->server, &progress);
    progress.steps = all->steps > 0 && all->steps < progress.step ? progress.step : all->steps;
    progress.evaluating = evaluating;
    if (isfinite(progress.loss))
        all->observer->progress(all->observer->context, &progress);
}

static fth_status run_workers(local *all, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    char *folder = fth_path_join(fth_parameters_run_folder(all->server), "workers");

    FTH_TRY(fth_folder_create(folder));
    for (int i = 0; i < all->count; i++) {
        free_name(all, i);
        FTH_TRY(start_worker(all, i));
    }
    while (any_left(all)) {
        FTH_REQUIRE(!stop->asked, FTH_INTERRUPTED, "asked to stop");
        for (int i = 0; i < all->count; i++)
            FTH_TRY(look_at_worker(all, i, false));
        FTH_TRY(fth_parameters_wait(all->server, LOOK_EVERY_S));
        show_progress(all, false);
    }

out:
    free(folder);
    return status;
}

/* --resume without a name means the newest unfinished run of the same configuration, as everywhere. */
static fth_status find_run(fth_train_options *options)
{
    fth_status status = FTH_OK;
    char identity[17], *folder = NULL;

    if (!*options->resume || *options->name)
        return FTH_OK;
    if (strcmp(options->resume, "auto") != 0) {
        FTH_TRY(fth_record_locate(options->runs, options->resume, &folder));
    } else {
        fth_options_identity(&fth_train_option_table, options, identity);
        FTH_TRY(fth_record_find(options->runs, identity, false, &folder));
    }
    if (folder) {
        const char *slash = strrchr(folder, '/');
        free(options->name);
        options->name = fth_format("%s", slash ? slash + 1 : folder);
    }

out:
    free(folder);
    return status;
}

/* What ends a run must do so, or be refused; what is less is said to have no effect. */
static fth_status check_options(const local *all, const fth_parameters_options *server)
{
    fth_status status = FTH_OK;
    static const char *const limits[] = {"until", "budget", "share", "worker"};
    static const char *const without_effect[] = {"validate-every", "keep", "watch", "price", "prices"};
    const fth_option_table *table = &fth_train_option_table;

    for (size_t i = 0; i < FTH_COUNT_OF(limits); i++)
        FTH_REQUIRE(!fth_options_was_given(table, all->options, limits[i]), FTH_INVALID,
                    "--%s is not for a server and workers that are started together; start `farthing serve parameters` "
                    "and workers with --server URL, or leave it out",
                    limits[i]);
    for (size_t i = 0; i < FTH_COUNT_OF(without_effect); i++)
        if (fth_options_was_given(table, all->options, without_effect[i]))
            fth_log_warning("--%s has no effect on a server and workers that are started together", without_effect[i]);
    FTH_REQUIRE(server->consistency.kind != FTH_CONSISTENCY_SYNC || server->consistency.count <= all->count,
                FTH_INVALID, "--consistency %s waits for more workers than --workers %d", all->options->consistency,
                all->count);

out:
    return status;
}

static fth_status set_interval(const char *text, fth_parameters_options *server)
{
    if (strcmp(text, "auto") == 0)
        server->checkpoint_every_s = 60; /* the log has what comes in between */
    else if (text[strspn(text, "0123456789")])
        return fth_duration_parse(text, &server->checkpoint_every_s);
    else
        server->checkpoint_every_versions = strtoll(text, NULL, 10);
    return FTH_OK;
}

fth_status fth_cli_train_locally(fth_train_options *options, const fth_train_observer *observer, fth_stop *stop,
                                 fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    local all = {.options = options, .count = choose_count(options), .observer = observer};
    fth_record_summary summary = {0};
    fth_parameters_options server = {.train = options,
                                     .has_data = true,
                                     .ends_by_epochs = true,
                                     .validate_every = 500,
                                     .lease_s = 10,
                                     .durability = FTH_DURABILITY_KILL};

    *outcome = (fth_train_outcome){0};
    FTH_TRY(fth_consistency_parse(options->consistency, &server.consistency));
    FTH_TRY(check_options(&all, &server));
    FTH_TRY(set_interval(options->checkpoint_every, &server));
    FTH_TRY(find_run(options));
    FTH_TRY(fth_parameters_start(&server, &all.server));
    outcome->run_folder = fth_format("%s", fth_parameters_run_folder(all.server));
    fth_log_info("strategy parameter-server: a server and %s here; run %s", FTH_COUNTED(all.count, "worker process"),
                 outcome->run_folder);
    all.steps = count_steps(&all, server.consistency);
    status = run_workers(&all, stop);
    char *message = fth_format("%s", fth_error_message());
    end_workers(&all);
    bool begun = fth_parameters_version(all.server) > 0;
    if (status == FTH_OK)
        show_progress(&all, true);
    fth_status stopped = fth_parameters_stop(all.server, status == FTH_OK);
    if (!begun && fth_record_remove(outcome->run_folder, NULL, NULL) == FTH_OK) { /* no gradient came: no run */
        free(outcome->run_folder);
        outcome->run_folder = NULL;
    }
    if (status != FTH_OK && status != FTH_INTERRUPTED)
        fth_fail(status, "%s", message);
    free(message);
    if (status == FTH_OK)
        status = stopped;
    if (status == FTH_OK) {
        FTH_TRY(fth_record_read(outcome->run_folder, &summary));
        outcome->end = json_incref(summary.end);
        outcome->id = fth_format("%s", summary.id);
    }
    outcome->interrupted = status == FTH_INTERRUPTED;

out:
    fth_record_release(&summary);
    return status;
}
