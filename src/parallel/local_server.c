/* `farthing train --strategy parameter-server` without --server: a server in this process, and
 * worker processes.
 *
 * The run is the server's; the workers' own are in its folder (workers/1, workers/2, ...). Each
 * worker is this program again, with the options given here, a share of every epoch, one thread,
 * and the server's address. A worker that is lost starts again and continues from its own
 * checkpoint; what it does twice counts, so that the server ends after --epochs or --steps of
 * all of them together. A stop is passed on to all of them, and the server saves last. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/parallel_internal.h"
#include "parallel/supervisor.h"
#include "parameters/parameters.h"

enum { MAX_WORKERS = 256, MAX_RESTARTS = 5 };
#define LOOK_EVERY_S  0.05
#define FIRST_PAUSE_S 0.25
#define GOODBYE_S     30.0

typedef struct local {
    const fth_train_options *options;
    const char *program;
    fth_parameters *server;
    int count; /* of workers */
    const fth_train_observer *observer;
    int64_t steps; /* that the workers will make, about; 0: not known */
} local;

static int choose_count(const fth_train_options *options)
{
    int cores = fth_processors_usable();
    return options->peers.workers > 0 ? (int)options->peers.workers : cores < MAX_WORKERS ? cores : MAX_WORKERS;
}

/* ---- a worker's command line ---- */

static fth_status add_flag(fth_words *words, const json_t *configuration, const char *name)
{
    const json_t *value = json_object_get(configuration, name);
    if (json_is_string(value))
        return fth_words_add(words, "--%s=%s", name, json_string_value(value));
    if (json_is_boolean(value))
        return fth_words_add(words, "--%s%s", json_is_true(value) ? "" : "no-", name);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    fth_status status = fth_words_add(words, "--%s=%s", name, text ? text : "");
    free(text);
    return status;
}

/* What each worker gets of its own, whatever was given here. */
static fth_status add_own_flags(const local *all, int number, fth_words *words)
{
    fth_status status = FTH_OK;
    const fth_parameters_facts served = fth_parameters_get_facts(all->server);
    char normalization[FTH_NORMALIZATION_TEXT];

    fth_normalization_format(served.normalization, normalization);
    FTH_TRY(fth_words_add(words, "--server=http://127.0.0.1:%d", fth_parameters_port(all->server)));
    if (*normalization)
        FTH_TRY(fth_words_add(words, "--normalize=%s", normalization));
    FTH_TRY(fth_words_add(words, "--validation-split=%s", served.validation_split));
    if (served.takes_text)
        FTH_TRY(fth_words_add(words, "--vocab=%s", served.run_folder));
    FTH_TRY(fth_words_add(words, "--model=%s", served.model));
    FTH_TRY(fth_words_add(words, "--share=%d/%d", number, all->count));
    FTH_TRY(fth_words_add(words, "--worker=%d", number));
    FTH_TRY(fth_words_add(words, "--threads=1"));
    FTH_TRY(fth_words_add(words, "--runs=%s/workers", served.run_folder));
    FTH_TRY(fth_words_add(words, "--name=%d", number));
    FTH_TRY(fth_words_add(words, "--validate-every=1000000")); /* the server does that */
    FTH_TRY(fth_words_add(words, "--resume"));
    FTH_TRY(fth_words_add(words, "--json"));

out:
    return status;
}

static bool has_flag(const fth_words *words, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < words->count; i++) {
        const char *word = words->items[i];
        if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, length) == 0 &&
            (word[2 + length] == '=' || word[2 + length] == '\0'))
            return true;
    }
    return false;
}

static fth_status add_arguments(void *context, int number, fth_words *words)
{
    fth_status status = FTH_OK;
    const local *all = context;
    const fth_option_table *table = &fth_train_option_table;
    json_t *configuration = fth_options_to_json(table, all->options, false);

    FTH_REQUIRE(configuration, FTH_NO_MEMORY, "no memory for a worker's options");
    FTH_TRY(fth_words_add(words, "farthing"));
    FTH_TRY(fth_words_add(words, "train"));
    FTH_TRY(add_own_flags(all, number, words));
    for (size_t i = 0; i < table->count; i++) {
        const fth_option *option = &table->options[i];
        if (option->side == FTH_SIDE_EVERY && fth_options_is_set(table, all->options, option->name) &&
            !has_flag(words, option->name))
            FTH_TRY(add_flag(words, configuration, option->name));
    }

out:
    json_decref(configuration);
    return status;
}

/* Its process has ended, here or with a server before this one: the next of its name need not wait
 * for a lease. */
static void free_name(const local *all, int number)
{
    char name[16];
    snprintf(name, sizeof name, "%d", number);
    fth_parameters_let_go(all->server, name);
}

static void handle_end(void *context, int number, pid_t process, const fth_child_end *end)
{
    (void)process;
    (void)end;
    free_name(context, number);
}

/* ---- the whole ---- */

/* How many versions come of the workers' epochs. */
static int64_t count_steps(const local *all, fth_consistency consistency)
{
    const fth_train_options *options = all->options;
    int64_t samples = fth_parameters_get_facts(all->server).epoch_samples, sum = 0, most = 0;
    if (options->limits.steps > 0)
        return options->limits.steps;
    for (int i = 0; i < all->count; i++) {
        int64_t share = fth_share_samples((fth_share){.index = i, .of = all->count}, samples);
        int64_t batches = options->limits.epochs * fth_batches_per_epoch(share, options->batch);
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
    if (isfinite(progress.loss) && all->observer && all->observer->progress)
        all->observer->progress(all->observer->context, &progress);
}

/* Until every worker is done. Those that are not, when something fails or a stop is asked for, are
 * stopped. */
static fth_status run_workers(local *all, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_supervisor *supervisor = NULL;
    char *folder = fth_path_join(fth_parameters_get_facts(all->server).run_folder, "workers");
    fth_supervisor_options options = {.program = all->program,
                                      .folder = folder,
                                      .count = all->count,
                                      .max_restarts = MAX_RESTARTS,
                                      .first_pause_s = FIRST_PAUSE_S,
                                      .context = all,
                                      .add_arguments = add_arguments,
                                      .on_end = handle_end};

    for (int number = 1; number <= all->count; number++)
        free_name(all, number);
    FTH_TRY(fth_supervisor_start(&options, &supervisor));
    while (fth_supervisor_left(supervisor) > 0) {
        FTH_REQUIRE(!stop->asked, FTH_INTERRUPTED, "asked to stop");
        FTH_TRY(fth_supervisor_look(supervisor));
        FTH_TRY(fth_parameters_wait(all->server, LOOK_EVERY_S));
        show_progress(all, false);
    }

out:
    if (supervisor && fth_supervisor_left(supervisor) > 0) {
        char *message = fth_format("%s", fth_error_message());
        fth_supervisor_stop(supervisor, fth_deadline_in(GOODBYE_S));
        fth_set_error("%s", message ? message : "");
        free(message);
    }
    fth_supervisor_free(supervisor);
    free(folder);
    return status;
}

/* --resume without a name means the newest unfinished run of the same configuration, as
 * everywhere. */
static fth_status find_run(fth_train_options *options)
{
    fth_status status = FTH_OK;
    char identity[17], *folder = NULL;

    if (!*options->resume || *options->saving.name)
        return FTH_OK;
    if (strcmp(options->resume, "auto") != 0) {
        FTH_TRY(fth_record_locate(options->saving.runs, options->resume, &folder));
    } else {
        fth_options_identity(&fth_train_option_table, options, identity);
        FTH_TRY(fth_record_find(options->saving.runs, identity, false, &folder));
    }
    if (folder) {
        const char *slash = strrchr(folder, '/');
        free(options->saving.name);
        options->saving.name = fth_format("%s", slash ? slash + 1 : folder);
    }

out:
    free(folder);
    return status;
}

static fth_status refuse_option(const char *name)
{
    return fth_fail(FTH_INVALID,
                    "--%s is not for a server and workers that are started together; start `farthing serve parameters` "
                    "and workers with --server URL, or leave it out",
                    name);
}

/* What can hold for one worker alone; and what workers may have, but not the server, which has the
 * same options here. */
fth_status fth_local_server_check(const fth_train_options *options)
{
    fth_status status = FTH_OK;
    const fth_option_table *table = &fth_train_option_table;
    fth_consistency consistency;
    int count = choose_count(options);

    for (size_t i = 0; i < table->count; i++) {
        const fth_option *option = &table->options[i];
        if (option->side == FTH_SIDE_ONE_WORKER && fth_options_is_set(table, options, option->name))
            return refuse_option(option->name);
    }
    if (options->precision != FTH_PRECISION_F32)
        return refuse_option("precision");
    if (options->optimizer.accumulate > 1)
        return refuse_option("accumulate");
    FTH_TRY(fth_consistency_parse(options->server.consistency, &consistency));
    FTH_REQUIRE(consistency.kind != FTH_CONSISTENCY_SYNC || consistency.count <= count, FTH_INVALID,
                "--consistency %s waits for more workers than --workers %d", options->server.consistency, count);

out:
    return status;
}

static void warn_about_own_run_options(const fth_train_options *options)
{
    const fth_option_table *table = &fth_train_option_table;
    for (size_t i = 0; i < table->count; i++)
        if (table->options[i].side == FTH_SIDE_OWN_RUN && fth_options_is_set(table, options, table->options[i].name))
            fth_log_warning("--%s has no effect on a server and workers that are started together",
                            table->options[i].name);
}

/* The server ends, and saves, after its workers. Then there is a record to read, unless no gradient
 * came: that leaves no run. */
static fth_status stop_server(local *all, fth_status status, fth_train_outcome *outcome)
{
    char *message = fth_format("%s", fth_error_message());
    bool begun = fth_parameters_version(all->server) > 0;
    if (status == FTH_OK)
        show_progress(all, true);
    fth_status stopped = fth_parameters_stop(all->server, status == FTH_OK);
    if (!begun && fth_record_remove(outcome->run_folder, NULL, NULL) == FTH_OK) {
        free(outcome->run_folder);
        outcome->run_folder = NULL;
    }
    if (status == FTH_OK)
        status = stopped;
    else
        fth_set_error("%s", message ? message : "");
    free(message);
    return status;
}

fth_status fth_local_server_run(fth_train_options *options, const char *program, const fth_train_observer *observer,
                                fth_stop *stop, fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    local all = {.options = options, .program = program, .count = choose_count(options), .observer = observer};
    fth_record_summary summary = {0};
    fth_parameters_options server = {.train = options,
                                     .has_data = true,
                                     .ends_by_epochs = true,
                                     .validate_every = 500,
                                     .lease_s = 10,
                                     .durability = FTH_DURABILITY_KILL};

    *outcome = (fth_train_outcome){0};
    FTH_TRY(fth_local_server_check(options));
    FTH_TRY(fth_consistency_parse(options->server.consistency, &server.consistency));
    FTH_TRY(fth_device_check_name(options->device)); /* only the workers open it */
    warn_about_own_run_options(options);
    FTH_TRY(fth_parameters_set_interval(options->saving.every, &server));
    FTH_TRY(find_run(options));
    FTH_TRY(fth_parameters_start(&server, &all.server));
    outcome->run_folder = fth_format("%s", fth_parameters_get_facts(all.server).run_folder);
    fth_log_info("strategy %s: a server and %s here; run %s", options->strategy,
                 FTH_COUNTED(all.count, "worker process"), outcome->run_folder);
    all.steps = count_steps(&all, server.consistency);
    status = run_workers(&all, stop);
    FTH_TRY(stop_server(&all, status, outcome));
    FTH_TRY(fth_record_read(outcome->run_folder, &summary));
    outcome->end = json_incref(summary.end);
    outcome->id = fth_format("%s", summary.id);

out:
    outcome->interrupted = status == FTH_INTERRUPTED;
    fth_record_release(&summary);
    return status;
}
