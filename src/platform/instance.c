/* See instance.h. */
#include "platform/instance.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "platform/files.h"
#include "platform/instance_internal.h"

/* The log kept for an activation; and the size at which a log file is truncated, so that a function
 * cannot fill the disk. */
static const uint64_t max_log_bytes = 10 << 20, max_file_bytes = 64 << 20;
static const double wait_for_marker_s = 1;
static const double stop_grace_s = 2; /* for a function to return what it has, when the platform stops */

void fth_instance_run_release(fth_instance_run *run)
{
    json_decref(run->result);
    free(run->error);
    free(run->error_type);
    *run = (fth_instance_run){0};
}

void fth_instance_fail(fth_instance_run *run, const char *kind, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    run->kind = kind;
    free(run->error);
    run->error = strdup(text);
}

/* ---- logs ---- */

static uint64_t size_of(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 ? (uint64_t)facts.st_size : 0;
}

static void bound_file(const char *path, uint64_t read)
{
    if (size_of(path) > read + max_file_bytes && truncate(path, (off_t)(read + max_log_bytes + 1)) != 0)
        fth_log_debug("cut %s: %s", path, strerror(errno));
}

/* Reads `path` from *read on, up to the end marker if there is one. free() the text. */
static fth_status take_log(const char *path, bool marked, fth_deadline deadline, uint64_t *read, char **text,
                           size_t *size)
{
    fth_status status = FTH_OK;
    char *end = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC);

    *text = NULL;
    *size = 0;
    FTH_REQUIRE(file >= 0, FTH_IO, "open %s: %s", path, strerror(errno));
    for (;;) {
        uint64_t there = size_of(path), more = there > *read ? there - *read : 0;
        free(*text);
        *text = malloc(more + 1);
        FTH_REQUIRE(*text, FTH_NO_MEMORY, "no memory for a log of %llu bytes", (unsigned long long)more);
        ssize_t got = pread(file, *text, more, (off_t)*read);
        *size = got > 0 ? (size_t)got : 0;
        end = marked ? memmem(*text, *size, FTH_OPENWHISK_END_OF_LOGS, strlen(FTH_OPENWHISK_END_OF_LOGS)) : NULL;
        if (end || !marked || fth_deadline_passed(deadline))
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    *read += end ? (uint64_t)(end - *text) + strlen(FTH_OPENWHISK_END_OF_LOGS) : *size;
    if (end)
        *size = (size_t)(end - *text);

out:
    if (file >= 0)
        close(file);
    return status;
}

static void keep_log(const char *from, bool marked, fth_deadline deadline, uint64_t *read, const char *folder,
                     const char *name)
{
    char *text = NULL, *to = fth_path_join(folder, name), *cut = NULL;
    size_t size;
    fth_status status = take_log(from, marked, deadline, read, &text, &size);
    if (status == FTH_OK && size > max_log_bytes) {
        cut = fth_format("%.*s\nLogs were truncated because the total bytes size exceeds the limit of %llu bytes.\n",
                         (int)max_log_bytes, text, (unsigned long long)max_log_bytes);
        if (cut)
            status = fth_file_write_all(to, cut, strlen(cut));
    } else if (status == FTH_OK && size > 0) {
        status = fth_file_write_all(to, text, size);
    }
    if (status != FTH_OK)
        fth_log_warning("logs of an activation are lost: %s", fth_error_message());
    free(text);
    free(to);
    free(cut);
}

/* ---- the process ---- */

bool fth_instance_has_ended(fth_instance *instance)
{
    fth_child_end end;
    bool out_of_memory;
    return instance->sandbox && fth_sandbox_has_ended(instance->sandbox, &end, &out_of_memory);
}

/* Asks the process to end, once; false when its time is over. */
static bool may_still_answer(fth_instance *instance)
{
    if (isinf(instance->answer_until_s)) {
        instance->answer_until_s = fth_clock_seconds() + stop_grace_s;
        kill(fth_sandbox_process(instance->sandbox), SIGTERM);
    }
    return fth_clock_seconds() < instance->answer_until_s;
}

bool fth_instance_is_alive(void *context)
{
    fth_instance *instance = context;
    bound_file(instance->output, instance->output_read);
    bound_file(instance->messages, instance->messages_read);
    if (fth_instance_has_ended(instance))
        return false;
    return !atomic_load(instance->options.stop) || may_still_answer(instance);
}

fth_status fth_variable_add(fth_words *variables, const char *name, const char *value)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < variables->count; i++)
        if (strncmp(variables->items[i], name, length) == 0 && variables->items[i][length] == '=')
            return FTH_OK;
    return fth_words_add(variables, "%s=%s", name, value);
}

/* The contract's variables, then the user's, then defaults. */
static fth_status make_variables(fth_instance *instance, fth_words *variables)
{
    fth_status status = FTH_OK;
    const char *name;
    json_t *value;

    FTH_TRY(instance->contract->add_variables(instance, variables));
    json_object_foreach(instance->options.action->environment, name, value)
        FTH_TRY(fth_variable_add(variables, name, json_string_value(value)));
    FTH_TRY(fth_variable_add(variables, "PATH", "/usr/local/bin:/usr/bin:/bin"));
    FTH_TRY(fth_variable_add(variables, "LANG", "C.UTF-8"));
    FTH_TRY(fth_variable_add(variables, "TZ", ":UTC"));
    FTH_TRY(fth_variable_add(variables, "HOME", instance->options.folder));
    FTH_TRY(fth_variable_add(variables, "TMPDIR", instance->temporary));

out:
    return status;
}

/* Adds a word of the user's command, replacing {port} and {package}. */
static fth_status add_replaced(const fth_instance *instance, const char *word, fth_words *command)
{
    const char *package = instance->options.action->package ? instance->options.action->package : ".";
    const char *mark = strstr(word, "{port}");
    if (mark)
        return fth_words_add(command, "%.*s%d%s", (int)(mark - word), word, instance->port, mark + strlen("{port}"));
    mark = strstr(word, "{package}");
    if (mark)
        return fth_words_add(command, "%.*s%s%s", (int)(mark - word), word, package, mark + strlen("{package}"));
    return fth_words_add(command, "%s", word);
}

static fth_status make_command(fth_instance *instance, fth_words *command)
{
    const fth_action *action = instance->options.action;
    fth_status status = FTH_OK;
    size_t i;
    json_t *word;

    if (action->command) {
        json_array_foreach(action->command, i, word) FTH_TRY(add_replaced(instance, json_string_value(word), command));
    } else if (action->package) {
        FTH_TRY(fth_words_add(command, "%s/bootstrap", action->package));
    } else {
        FTH_TRY(fth_words_add(command, "%s", instance->options.program));
        FTH_TRY(instance->contract->add_words(instance, command));
    }

out:
    return status;
}

static fth_status start_process(fth_instance *instance)
{
    const fth_action *action = instance->options.action;
    fth_status status = FTH_OK;
    fth_words command = {0}, variables = {0};

    FTH_TRY(instance->contract->prepare(instance));
    FTH_TRY(make_variables(instance, &variables));
    FTH_TRY(make_command(instance, &command));
    instance->began_s = fth_clock_seconds();
    FTH_TRY(
        fth_sandbox_start(&(fth_sandbox_options){.command = (const char *const *)command.items,
                                                 .variables = (const char *const *)variables.items,
                                                 .folder = action->package ? action->package : instance->options.folder,
                                                 .output = instance->output,
                                                 .messages = instance->messages,
                                                 .memory_bytes = (uint64_t)action->memory_mb << 20},
                          &instance->sandbox));

out:
    for (size_t i = 0; i < variables.count; i++) /* some are secrets */
        fth_wipe(variables.items[i], strlen(variables.items[i]));
    fth_words_release(&variables);
    fth_words_release(&command);
    return status;
}

/* ---- runs ---- */

/* Explains why a process did not answer: stopped, out of memory, ended, or another failure. */
static void explain(fth_instance *instance, fth_status status, fth_instance_run *run)
{
    const fth_action *action = instance->options.action;
    fth_child_end end;
    const bool stopped = atomic_load(instance->options.stop);
    bool out_of_memory = false;
    char how[80];
    /* A process that is being killed for its memory has closed its connections, but may not be
     * reaped yet. */
    fth_deadline deadline = fth_deadline_in(status == FTH_PEER_LOST && !stopped ? 1 : 0);
    bool ended;
    while (!(ended = fth_sandbox_has_ended(instance->sandbox, &end, &out_of_memory)) && !fth_deadline_passed(deadline))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (stopped) {
        fth_instance_fail(run, "lost", "the platform was stopped while the function ran; invoke it again");
    } else if (ended && out_of_memory) {
        fth_instance_fail(run, "memory", "the function used more than its %d MB of memory and was killed",
                          action->memory_mb);
    } else if (ended) {
        fth_child_describe_end(&end, how, sizeof how);
        fth_instance_fail(run, "developer", "the function's process ended without an answer: %s", how);
    } else if (status == FTH_TIMEOUT && !instance->initialized) {
        fth_instance_fail(run, "timeout", "the function's process was not ready within %d s",
                          (int)FTH_INSTANCE_START_S);
    } else if (status == FTH_TIMEOUT) {
        fth_instance_fail(run, "timeout", "the function ran for longer than its %g s", action->timeout_s);
    } else {
        fth_instance_fail(run, "developer", "%s", fth_error_message());
    }
}

bool fth_instance_invoke(fth_instance *instance, const char *id, const json_t *value, const char *log_folder,
                         fth_instance_run *run)
{
    fth_status status = FTH_OK;
    const bool cold = !instance->sandbox;

    *run = (fth_instance_run){.duration_s = NAN, .init_s = NAN, .peak_bytes = NAN};
    run->start_s = run->end_s = fth_clock_wall_seconds();
    if (cold && start_process(instance) != FTH_OK) {
        fth_instance_fail(run, "developer", "%s", fth_error_message());
        return false;
    }
    double began_s = fth_clock_seconds();
    status = instance->contract->run(instance, id, value, run);
    if (isnan(run->duration_s))
        run->duration_s = fth_clock_seconds() - began_s;
    if (status != FTH_OK && !run->kind)
        explain(instance, status, run);
    run->end_s = fth_clock_wall_seconds();
    run->peak_bytes = fth_sandbox_peak_bytes(instance->sandbox);
    snprintf(run->limited_by, sizeof run->limited_by, "%s", fth_sandbox_limited_by(instance->sandbox));
    bool usable = status == FTH_OK && fth_instance_is_alive(instance);
    if (!usable) { /* all its processes end before the logs are read */
        fth_sandbox_free(instance->sandbox);
        instance->sandbox = NULL;
    }
    fth_deadline deadline = fth_deadline_in(usable ? wait_for_marker_s : 0);
    const bool marked = instance->contract->ends_logs;
    keep_log(instance->output, marked, deadline, &instance->output_read, log_folder, "stdout.log");
    keep_log(instance->messages, marked, deadline, &instance->messages_read, log_folder, "stderr.log");
    return usable;
}

/* ---- life ---- */

fth_status fth_instance_create(const fth_instance_options *options, fth_instance **result)
{
    fth_status status = FTH_OK;
    fth_instance *instance = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *instance, &instance));
    instance->options = *options;
    instance->answer_until_s = INFINITY;
    instance->options.folder = strdup(options->folder);
    instance->contract = options->action->lambda ? &fth_contract_lambda : &fth_contract_openwhisk;
    instance->temporary = fth_path_join(options->folder, "tmp");
    instance->output = fth_path_join(options->folder, "stdout.log");
    instance->messages = fth_path_join(options->folder, "stderr.log");
    FTH_REQUIRE(instance->options.folder && instance->output && instance->messages, FTH_NO_MEMORY,
                "no memory for a function's process");
    FTH_TRY(fth_folder_create(instance->temporary));
    *result = instance;
    instance = NULL;

out:
    fth_instance_free(instance);
    return status;
}

void fth_instance_free(fth_instance *instance)
{
    if (!instance)
        return;
    fth_sandbox_free(instance->sandbox);
    fth_runtime_api_stop(instance->api);
    fth_http_client_free(instance->client);
    fth_remove_tree(instance->options.folder);
    free((char *)(uintptr_t)instance->options.folder);
    free(instance->temporary);
    free(instance->output);
    free(instance->messages);
    free(instance);
}
