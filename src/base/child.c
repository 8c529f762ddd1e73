/* See child.h. */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/process.h"

/* ---- words ---- */

fth_status fth_words_add(fth_words *words, const char *format, ...)
{
    fth_status status = fth_grow(&words->items, words->count + 1, &words->capacity, sizeof *words->items);
    if (status != FTH_OK)
        return status;
    va_list arguments;
    va_start(arguments, format);
    char *word = NULL;
    int length = vasprintf(&word, format, arguments);
    va_end(arguments);
    if (length < 0)
        return fth_fail(FTH_NO_MEMORY, "no memory for an argument");
    words->items[words->count++] = word;
    words->items[words->count] = NULL;
    return FTH_OK;
}

void fth_words_release(fth_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->items[i]);
    free(words->items);
    *words = (fth_words){0};
}

/* ---- starting ---- */

static bool sets_same_variable(const char *variable, const char *const *set)
{
    size_t name = strcspn(variable, "=") + 1;
    for (; *set; set++)
        if (strncmp(variable, *set, name) == 0)
            return true;
    return false;
}

/* This process's environment with `set` over it; free() the array alone. Other threads may read the
 * environment, so it is not changed. */
static fth_status join_environment(const char *const *set, char ***joined)
{
    size_t room = 1, count = 0;
    for (char **own = environ; *own; own++)
        room++;
    for (const char *const *variable = set; *variable; variable++)
        room++;
    fth_status status = fth_allocate(room, sizeof **joined, joined);
    if (status != FTH_OK)
        return status;
    for (const char *const *variable = set; *variable; variable++)
        (*joined)[count++] = (char *)*variable;
    for (char **own = environ; *own; own++)
        if (!sets_same_variable(*own, set))
            (*joined)[count++] = *own;
    return FTH_OK;
}

static void set_files(const fth_child_options *options, posix_spawn_file_actions_t *actions)
{
    if (options->input > 0)
        posix_spawn_file_actions_adddup2(actions, options->input, STDIN_FILENO);
    else
        posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (options->output > 0)
        posix_spawn_file_actions_adddup2(actions, options->output, STDOUT_FILENO);
    else
        posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (options->message_output > 0)
        posix_spawn_file_actions_adddup2(actions, options->message_output, STDERR_FILENO);
    else if (options->messages)
        posix_spawn_file_actions_addopen(actions, STDERR_FILENO, options->messages, O_WRONLY | O_CREAT | O_APPEND,
                                         0644);
    if (options->descriptor > 0)
        posix_spawn_file_actions_adddup2(actions, options->descriptor, FTH_CHILD_DESCRIPTOR);
    posix_spawn_file_actions_addclosefrom_np(actions, FTH_CHILD_DESCRIPTOR + (options->descriptor > 0));
}

static void set_signals(const fth_child_options *options, posix_spawnattr_t *attributes)
{
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    sigset_t blocked, usual;
    sigemptyset(&blocked);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        sigaddset(&usual, stops[i]);
        if (options->blocks_stops)
            sigaddset(&blocked, stops[i]);
    }
    posix_spawnattr_setsigmask(attributes, &blocked);
    posix_spawnattr_setsigdefault(attributes, &usual);
    if (options->own_group) {
        posix_spawnattr_setpgroup(attributes, 0);
        flags |= POSIX_SPAWN_SETPGROUP;
    }
    posix_spawnattr_setflags(attributes, flags);
}

fth_status fth_child_start(const fth_child_options *options, pid_t *child)
{
    fth_status status = FTH_OK;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char **environment = NULL;

    *child = 0;
    if (options->variables && (status = join_environment(options->variables, &environment)) != FTH_OK)
        return status;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    set_files(options, &actions);
    set_signals(options, &attributes);
    int failure = posix_spawn(child, options->program, &actions, &attributes, (char *const *)options->arguments,
                              environment ? environment : environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    if (failure != 0) {
        *child = 0;
        status = fth_fail(FTH_IO, "start %s: %s", options->program, strerror(failure));
    }
    return status;
}

/* ---- ending ---- */

bool fth_child_has_ended(pid_t child, fth_child_end *end)
{
    int how = 0;
    pid_t got = waitpid(child, &how, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR))
        return false;
    *end = (fth_child_end){.code = -1};
    if (got > 0 && WIFEXITED(how))
        end->code = WEXITSTATUS(how);
    else if (got > 0 && WIFSIGNALED(how))
        end->signal = WTERMSIG(how);
    return true;
}

void fth_child_describe_end(const fth_child_end *end, char *text, size_t size)
{
    if (end->signal > 0)
        snprintf(text, size, "signal %d (%s)", end->signal, strsignal(end->signal));
    else if (end->code >= 0)
        snprintf(text, size, "exit status %d", end->code);
    else
        snprintf(text, size, "how it ended is not known");
}

void fth_child_wait(pid_t child, fth_deadline deadline)
{
    fth_child_end end;
    while (!fth_child_has_ended(child, &end)) {
        if (fth_deadline_passed(deadline)) {
            fth_process_kill(child);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}
