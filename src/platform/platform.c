/* See platform.h. Every process has a thread, a runner, which runs the queued activations of its
 * function one after another. It ends, with the process, when there has been none for a while or
 * another function needs its place.
 *
 *     queued --a runner takes it--> running --> its record is written --> removed from memory
 *
 * Only activations that have not ended are in memory; all else is read from the folder. */
#include "platform/platform.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/json.h"
#include "base/process.h"
#include "package/package.h"
#include "platform/files.h"
#include "platform/instance.h"
#include "platform/platform_internal.h"

enum { DEFAULT_PROCESSES = 64, DEFAULT_ACTIVATIONS = 100 };
enum { KEPT_ACTIVATIONS = 1000, PRUNE_EVERY = 100 }; /* of ended activations */
static const double default_idle_s = 60, look_every_s = 0.02;

typedef struct activation {
    char id[FTH_ACTIVATION_ID], name[FTH_ACTION_NAME];
    json_t *value, *record;
    void (*ended)(void *context, const char *id);
    void *context;
    bool taken; /* by a runner; guarded by the platform's mutex, as is `next` */
    struct activation *next;
} activation;

typedef struct runner {
    fth_platform *platform;
    pthread_t thread;
    char name[FTH_ACTION_NAME]; /* of the function */
    bool busy, leaves;          /* guarded by the platform's mutex, as is `next` */
    struct runner *next;
    /* for the runner's thread only */
    fth_action action;
    fth_instance *instance;
} runner;

struct fth_platform {
    char *folder, *program;
    bool needs_words;
    int max_processes, max_activations;
    double idle_s;
    char owner[FTH_OWNER_SIZE];
    atomic_bool stopping;

    pthread_mutex_t mutex; /* of everything below */
    pthread_cond_t changed;
    activation *activations;    /* not ended, the oldest first */
    runner *runners, *finished; /* finished: to be joined */
    unsigned started;           /* instances so far */
    unsigned ended;             /* activations so far */
    char *api_url, *api_key;
};

/* ---- runs ---- */

/* The function's default parameters, overridden by the given ones. */
static json_t *join_parameters(const fth_action *action, json_t *value)
{
    if (action->lambda || !json_is_object(action->parameters) || !json_is_object(value))
        return json_incref(value);
    json_t *joined = json_deep_copy(action->parameters);
    json_object_update(joined, value);
    return joined;
}

/* Loads the deployed function; replaces a process that is of an older revision or has died. */
static fth_status renew(runner *self)
{
    fth_platform *platform = self->platform;
    fth_status status = FTH_OK;
    fth_action action = {0};
    char *folder = NULL, *url = NULL, *key = NULL;

    FTH_TRY(fth_action_load(platform->folder, self->name, &action));
    if (self->instance && strcmp(action.revision, self->action.revision) == 0 &&
        !fth_instance_has_ended(self->instance))
        goto out;
    fth_instance_free(self->instance);
    self->instance = NULL;
    fth_action_release(&self->action);
    self->action = action;
    action = (fth_action){0};
    pthread_mutex_lock(&platform->mutex);
    url = platform->api_url; /* set once, freed last */
    key = platform->api_key;
    unsigned number = ++platform->started;
    pthread_mutex_unlock(&platform->mutex);
    folder = fth_format("%s/instances/%s-%u", platform->folder, platform->owner, number);
    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_instance_create(&(fth_instance_options){.action = &self->action,
                                                        .folder = folder,
                                                        .program = platform->program,
                                                        .needs_words = platform->needs_words,
                                                        .api_url = url,
                                                        .api_key = key,
                                                        .stop = &platform->stopping},
                                &self->instance));

out:
    fth_action_release(&action);
    free(folder);
    return status;
}

static void note_run(json_t *record, const fth_instance_run *run)
{
    json_object_set_new(record, "state", json_string(run->kind ? "failed" : "done"));
    if (run->kind)
        json_object_set_new(record, "kind", json_string(run->kind));
    if (run->result)
        json_object_set(record, "result", run->result);
    if (run->error) {
        char *text = fth_text_to_utf8(run->error);
        json_object_set_new(record, "error", json_string(text ? text : "no memory"));
        free(text);
    }
    if (run->error_type)
        json_object_set_new(record, "error_type", json_string(run->error_type));
    json_object_set_new(record, "start", json_real(run->start_s));
    json_object_set_new(record, "end", json_real(run->end_s));
    fth_json_set_number(record, "duration_s", run->duration_s);
    fth_json_set_number(record, "init_s", run->init_s);
    if (isfinite(run->peak_bytes))
        json_object_set_new(record, "peak_bytes", json_integer((json_int_t)run->peak_bytes));
    json_object_set_new(record, "limited_by", json_string(run->limited_by));
}

/* Writes the record, removes the activation from the list and reports its end. */
static void finish(fth_platform *platform, activation *ended)
{
    if (fth_activation_write(platform->folder, ended->id, ended->record) != FTH_OK)
        fth_log_error("activation %s of function %s cannot be recorded: %s", ended->id, ended->name,
                      fth_error_message());
    pthread_mutex_lock(&platform->mutex);
    activation **place = &platform->activations;
    while (*place != ended)
        place = &(*place)->next;
    *place = ended->next;
    const bool prune = ++platform->ended % PRUNE_EVERY == 0;
    pthread_cond_broadcast(&platform->changed);
    pthread_mutex_unlock(&platform->mutex);
    if (prune)
        fth_activation_prune(platform->folder, KEPT_ACTIVATIONS);
    if (ended->ended)
        ended->ended(ended->context, ended->id);
    json_decref(ended->value);
    json_decref(ended->record);
    free(ended);
}

static void fail(fth_platform *platform, activation *taken, const char *kind, const char *why)
{
    double now = fth_clock_wall_seconds();
    fth_instance_run run = {.start_s = now, .end_s = now, .duration_s = 0, .init_s = NAN, .peak_bytes = NAN};
    run.kind = kind;
    run.error = strdup(why);
    note_run(taken->record, &run);
    fth_instance_run_release(&run);
    finish(platform, taken);
}

static void run_one(runner *self, activation *taken)
{
    fth_platform *platform = self->platform;
    fth_instance_run run;

    if (renew(self) != FTH_OK) {
        fail(platform, taken, "internal", fth_error_message());
        return;
    }
    json_t *value = join_parameters(&self->action, taken->value);
    char *logs = fth_format("%s/activations/%s", platform->folder, taken->id);
    if (!fth_instance_invoke(self->instance, taken->id, value, logs, &run)) {
        fth_instance_free(self->instance);
        self->instance = NULL;
    }
    note_run(taken->record, &run);
    json_object_set_new(taken->record, "revision", json_string(self->action.revision));
    fth_instance_run_release(&run);
    json_decref(value);
    free(logs);
    finish(platform, taken);
}

/* ---- runners ---- */

static void balance(fth_platform *platform);

/* Waits for the oldest activation of the runner's function; NULL: the runner must end. With the
 * mutex held. */
static activation *take(runner *self)
{
    fth_platform *platform = self->platform;
    const struct timespec until = fth_deadline_timespec(fth_deadline_in(platform->idle_s));
    int late = 0;
    while (!atomic_load(&platform->stopping)) {
        for (activation *next = platform->activations; next; next = next->next)
            if (!next->taken && strcmp(next->name, self->name) == 0) {
                next->taken = true;
                return next;
            }
        if (late || self->leaves)
            return NULL;
        late = pthread_cond_clockwait(&platform->changed, &platform->mutex, CLOCK_MONOTONIC, &until);
    }
    return NULL;
}

static void *run_all(void *context)
{
    runner *self = context;
    fth_platform *platform = self->platform;
    activation *taken;

    pthread_mutex_lock(&platform->mutex);
    while ((taken = take(self))) {
        self->busy = true;
        pthread_mutex_unlock(&platform->mutex);
        run_one(self, taken);
        pthread_mutex_lock(&platform->mutex);
        self->busy = false;
        balance(platform); /* another function may be waiting for this place */
    }
    self->leaves = true; /* it gets no more work */
    pthread_mutex_unlock(&platform->mutex);
    fth_instance_free(self->instance);
    fth_action_release(&self->action);

    pthread_mutex_lock(&platform->mutex);
    runner **place = &platform->runners;
    while (*place != self)
        place = &(*place)->next;
    *place = self->next;
    self->next = platform->finished;
    platform->finished = self;
    if (!atomic_load(&platform->stopping))
        balance(platform);
    pthread_cond_broadcast(&platform->changed);
    pthread_mutex_unlock(&platform->mutex);
    return NULL;
}

static void start_runner(fth_platform *platform, const char *name)
{
    runner *more = calloc(1, sizeof *more);
    if (!more)
        return;
    more->platform = platform;
    snprintf(more->name, sizeof more->name, "%s", name);
    more->next = platform->runners;
    platform->runners = more;
    if (fth_thread_start(&more->thread, "function", run_all, more) != 0) {
        platform->runners = more->next;
        free(more);
    }
}

/* Counts the runners that wait for work of this function. */
static int count_waiting(const fth_platform *platform, const char *name)
{
    int waiting = 0;
    for (const runner *each = platform->runners; each; each = each->next)
        waiting += !each->busy && !each->leaves && strcmp(each->name, name) == 0;
    return waiting;
}

/* Ends an idle process to make room. */
static void ask_one_to_leave(fth_platform *platform, const char *except)
{
    for (runner *each = platform->runners; each; each = each->next)
        if (each->leaves && !each->busy)
            return; /* one is already leaving */
    for (runner *each = platform->runners; each; each = each->next)
        if (!each->busy && strcmp(each->name, except) != 0 && count_waiting(platform, each->name) > 0) {
            each->leaves = true;
            return;
        }
}

/* Starts runners for waiting activations that have none. With the mutex held. */
static void balance(fth_platform *platform)
{
    int runners = 0;
    for (const runner *each = platform->runners; each; each = each->next)
        runners++;
    for (const activation *each = platform->activations; each; each = each->next) {
        int before = 0; /* waiting ones of the same function */
        if (each->taken)
            continue;
        for (const activation *other = platform->activations; other != each; other = other->next)
            before += !other->taken && strcmp(other->name, each->name) == 0;
        if (before < count_waiting(platform, each->name))
            continue;
        if (runners < platform->max_processes) {
            start_runner(platform, each->name);
            runners++;
        } else {
            ask_one_to_leave(platform, each->name);
        }
    }
    pthread_cond_broadcast(&platform->changed);
}

/* Joins finished runners. With the mutex held, which is released meanwhile. */
static void join_finished(fth_platform *platform)
{
    while (platform->finished) {
        runner *gone = platform->finished;
        platform->finished = gone->next;
        pthread_mutex_unlock(&platform->mutex);
        pthread_join(gone->thread, NULL);
        free(gone);
        pthread_mutex_lock(&platform->mutex);
    }
}

/* ---- invoking ---- */

static json_t *begin_record(const fth_platform *platform, const fth_action *action, const char *id)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:i, s:f}", "id", id, "action", action->name, "contract",
                     action->lambda ? "lambda" : "openwhisk", "owner", platform->owner, "state", "running", "created",
                     fth_clock_wall_seconds(), "memory_mb", action->memory_mb, "timeout_s", action->timeout_s);
}

fth_status fth_platform_begin(fth_platform *platform, const fth_platform_call *call, char id[FTH_ACTIVATION_ID],
                              bool *throttled)
{
    fth_status status = FTH_OK;
    fth_action action = {0};
    activation *more = NULL;
    int count = 0;

    *throttled = false;
    FTH_TRY(fth_action_load(platform->folder, call->name, &action));
    FTH_TRY(fth_activation_make_id(action.lambda, id));
    FTH_TRY(fth_allocate(1, sizeof *more, &more));
    memcpy(more->id, id, FTH_ACTIVATION_ID);
    memcpy(more->name, action.name, sizeof more->name);
    more->value = json_deep_copy(call->value);
    more->record = begin_record(platform, &action, id);
    more->ended = call->ended;
    more->context = call->context;
    FTH_REQUIRE(more->value && more->record, FTH_NO_MEMORY, "no memory for an activation");

    pthread_mutex_lock(&platform->mutex);
    join_finished(platform);
    for (const activation *each = platform->activations; each; each = each->next)
        count++;
    *throttled = count >= platform->max_activations || atomic_load(&platform->stopping);
    if (!*throttled) { /* counted in the list, but taken until its record is written */
        more->taken = true;
        activation **last = &platform->activations;
        while (*last)
            last = &(*last)->next;
        *last = more;
    }
    pthread_mutex_unlock(&platform->mutex);
    if (*throttled)
        goto out;
    status = fth_activation_write(platform->folder, id, more->record);
    pthread_mutex_lock(&platform->mutex);
    if (status == FTH_OK) {
        more->taken = false;
        more = NULL;
        balance(platform);
    } else {
        activation **place = &platform->activations;
        while (*place != more)
            place = &(*place)->next;
        *place = more->next;
    }
    pthread_mutex_unlock(&platform->mutex);

out:
    if (more) {
        json_decref(more->value);
        json_decref(more->record);
        free(more);
    }
    fth_action_release(&action);
    return status;
}

fth_status fth_platform_invoke(fth_platform *platform, const char *name, const json_t *parameters, char id[80],
                               bool *throttled)
{
    char own[FTH_ACTIVATION_ID] = "";
    fth_status status =
        fth_platform_begin(platform, &(fth_platform_call){.name = name, .value = parameters}, own, throttled);
    snprintf(id, 80, "%s", *throttled ? "" : own);
    return status;
}

/* ---- looking ---- */

static bool is_here(const fth_platform *platform, const char *id)
{
    for (const activation *each = platform->activations; each; each = each->next)
        if (strcmp(each->id, id) == 0)
            return true;
    return false;
}

fth_status fth_platform_poll(fth_platform *platform, const char *id, fth_deadline deadline,
                             fth_invocation_outcome *outcome)
{
    const struct timespec until = fth_deadline_timespec(deadline);
    json_t *record = NULL;
    bool here = true, again = true;
    fth_status status = FTH_OK;

    *outcome = (fth_invocation_outcome){.duration_s = NAN, .start_s = NAN, .peak_bytes = NAN};
    pthread_mutex_lock(&platform->mutex);
    for (int late = 0; (here = is_here(platform, id)) && !late;)
        late = pthread_cond_clockwait(&platform->changed, &platform->mutex, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&platform->mutex);
    while (again) { /* another process may be running it */
        FTH_TRY(fth_activation_read(platform->folder, id, &record));
        again = strcmp(fth_json_text(record, "state", ""), "running") == 0 && !here;
        if (again && strcmp(fth_json_text(record, "owner", ""), platform->owner) == 0) {
            json_object_set_new(record, "state", json_string("failed"));
            json_object_set_new(record, "error", json_string("it has ended, but its record could not be written"));
            again = false;
        }
        again = again && !fth_deadline_passed(deadline);
        if (again) {
            json_decref(record);
            record = NULL;
            nanosleep(&(struct timespec){.tv_nsec = (long)(look_every_s * 1e9)}, NULL);
        }
    }
    fth_activation_fill_outcome(platform->folder, record, outcome);

out:
    json_decref(record);
    return status;
}

fth_status fth_platform_status(fth_platform *platform, const char *name, json_t **result)
{
    return fth_describe_functions(platform->folder, name, result);
}

fth_status fth_platform_logs(fth_platform *platform, const char *name, const char *id, char **text)
{
    return fth_function_logs(platform->folder, name, id, text);
}

fth_status fth_platform_deploy(fth_platform *platform, const fth_function_spec *spec)
{
    return fth_action_store(platform->folder, spec, NULL);
}

fth_status fth_platform_remove(fth_platform *platform, const char *name)
{
    return fth_action_remove(platform->folder, name);
}

/* ---- life ---- */

/* Removes working folders of platforms that were killed. */
static void remove_orphans(const fth_platform *platform)
{
    char *place = fth_path_join(platform->folder, "instances");
    DIR *directory = place ? opendir(place) : NULL;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char *path =
            entry->d_name[0] == '.' || fth_owner_is_alive(entry->d_name) ? NULL : fth_path_join(place, entry->d_name);
        fth_remove_tree(path);
        free(path);
    }
    if (directory)
        closedir(directory);
    free(place);
}

/* ~/.local/share/farthing/functions, or below $XDG_DATA_HOME. */
static char *default_folder(void)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && *data == '/')
        return fth_path_join(data, "farthing/functions");
    return fth_path_join(home && *home ? home : "/tmp", ".local/share/farthing/functions");
}

static fth_status find_program(fth_platform *platform, const char *given)
{
    char self[4096];
    if (given) {
        platform->program = strdup(given);
    } else if (fth_package_find_program(&platform->program) != FTH_OK) {
        platform->program = strdup(fth_process_program(self, sizeof self));
        platform->needs_words = true;
    }
    return platform->program ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a path");
}

fth_status fth_platform_open(const fth_platform_options *options, fth_platform **result)
{
    fth_status status = FTH_OK;
    fth_platform *platform = NULL;
    char *given = options->folder ? strdup(options->folder) : default_folder();

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *platform, &platform));
    pthread_mutex_init(&platform->mutex, NULL);
    pthread_cond_init(&platform->changed, NULL);
    platform->max_processes = options->max_processes > 0 ? options->max_processes : DEFAULT_PROCESSES;
    platform->max_activations = options->max_activations > 0 ? options->max_activations : DEFAULT_ACTIVATIONS;
    platform->idle_s = options->idle_s > 0 ? options->idle_s : default_idle_s;
    fth_owner_self(platform->owner);
    FTH_TRY(fth_folder_create(given));
    FTH_REQUIRE(chmod(given, 0700) == 0, FTH_IO, "keep %s to its owner: it belongs to another user", given);
    platform->folder = realpath(given, NULL); /* functions have other working directories */
    FTH_REQUIRE(platform->folder, FTH_IO, "find %s", given);
    FTH_TRY(find_program(platform, options->program));
    remove_orphans(platform);
    fth_activation_prune(platform->folder, KEPT_ACTIVATIONS);
    *result = platform;
    platform = NULL;

out:
    fth_platform_close(platform);
    free(given);
    return status;
}

const char *fth_platform_folder(const fth_platform *platform)
{
    return platform->folder;
}

fth_status fth_platform_set_api(fth_platform *platform, const char *url, const char *key)
{
    fth_status status = FTH_OK;
    pthread_mutex_lock(&platform->mutex);
    if (!platform->api_url) {
        platform->api_url = strdup(url);
        platform->api_key = strdup(key);
        if (!platform->api_url || !platform->api_key)
            status = fth_fail(FTH_NO_MEMORY, "no memory for an address");
    }
    pthread_mutex_unlock(&platform->mutex);
    return status;
}

void fth_platform_close(fth_platform *platform)
{
    if (!platform)
        return;
    atomic_store(&platform->stopping, true);
    pthread_mutex_lock(&platform->mutex);
    pthread_cond_broadcast(&platform->changed);
    while (platform->runners)
        pthread_cond_wait(&platform->changed, &platform->mutex);
    join_finished(platform);
    pthread_mutex_unlock(&platform->mutex);
    while (platform->activations) /* that no runner has taken */
        fail(platform, platform->activations, "lost", "the platform was stopped before the function ran");
    pthread_mutex_destroy(&platform->mutex);
    pthread_cond_destroy(&platform->changed);
    free(platform->folder);
    free(platform->program);
    free(platform->api_url);
    fth_wipe_text(platform->api_key);
    free(platform);
}
