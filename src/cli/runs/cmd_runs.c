/* farthing runs: which runs there are on this machine, and `runs rm`, which removes some. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "cli/cli.h"
#include "report/report.h"

enum { SMALL = 64 };

typedef struct runs_options {
    fth_option_bits set;
    char *runs;
    bool json;
} runs_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, runs_options, member)
static const fth_option runs_rows[] = {
    {ROW("runs", TEXT, runs), .fallback = "runs", .argument = "FOLDER", .help = "folder with the runs",
     .check = fth_record_check_runs_folder, .group = "Options"},
    {ROW("json", SWITCH, json), .help = "print JSON, one object per run"},
};
static const fth_option_table runs_table = FTH_OPTION_TABLE(runs_rows, runs_options);

/* ---- listing ---- */

static const char *state_of(const fth_record_summary *run)
{
    if (fth_record_is_locked(run->folder))
        return "running";
    fth_record_ending ending =
        run->machine_count > 0 ? run->machines[run->machine_count - 1].ending : FTH_ENDING_UNKNOWN;
    if (run->finished || ending == FTH_ENDING_FINISHED)
        return "finished";
    return ending == FTH_ENDING_INTERRUPTED ? "stopped" : ending == FTH_ENDING_FAILED ? "failed" : "killed";
}

static const char *configured(const fth_record_summary *run, const char *option)
{
    const char *text = json_string_value(json_object_get(json_object_get(run->run, "configuration"), option));
    return text ? text : "-";
}

static double epochs_of(const fth_record_summary *run)
{
    const fth_record_series *series = &run->training;
    const json_t *epochs = json_object_get(run->end, "epochs");
    return json_is_number(epochs) ? json_number_value(epochs)
           : series->count > 0    ? series->points[series->count - 1].epoch
                                  : NAN;
}

/* The accuracy of the best model; for a parameter server, which keeps none, the last one. */
static double accuracy_of(const fth_record_summary *run)
{
    return run->kept.by ? run->kept.accuracy : run->last_accuracy;
}

static double age_of(const fth_record_summary *run)
{
    return fmax(0, fth_clock_wall_seconds() - json_number_value(json_object_get(run->run, "created_s")));
}

static fth_status add_row(fth_table *table, const char *id, const fth_record_summary *run)
{
    char epochs[SMALL] = "-", steps[SMALL], accuracy[SMALL], size[SMALL], age[SMALL];
    double epoch = epochs_of(run);
    if (isfinite(epoch))
        snprintf(epochs, sizeof epochs, "%.4g", epoch);
    fth_text_count(run->steps, steps, sizeof steps);
    fth_text_percent(accuracy_of(run), accuracy, sizeof accuracy);
    fth_text_bytes((int64_t)fth_record_disk_bytes(run->folder), size, sizeof size);
    fth_duration_format(age_of(run), age, sizeof age);
    return fth_table_add_row(table, (const char *[]){id, state_of(run), configured(run, "model"),
                                                     configured(run, "data"), epochs, steps, accuracy, size, age});
}

static void print_json(const char *id, const fth_record_summary *run)
{
    json_t *json =
        json_pack("{s:o, s:o, s:s, s:o, s:o, s:I, s:I}", "id", fth_cli_json_text(id), "folder",
                  fth_cli_json_text(run->folder), "state", state_of(run), "model",
                  fth_cli_json_text(configured(run, "model")), "data", fth_cli_json_text(configured(run, "data")),
                  "steps", (json_int_t)run->steps, "size_bytes", (json_int_t)fth_record_disk_bytes(run->folder));
    fth_json_set_number(json, "epochs", epochs_of(run));
    fth_json_set_number(json, "accuracy", accuracy_of(run));
    fth_json_set_number(json, "created_s", json_number_value(json_object_get(run->run, "created_s")));
    fth_json_set_number(json, "age_s", age_of(run));
    const char *reason = json_string_value(json_object_get(run->end, "reason"));
    if (reason)
        json_object_set_new(json, "reason", json_string(reason));
    fth_cli_print_json_new(json);
}

enum { MODEL_COLUMN = 2, DATA_COLUMN = 3, LEAST_TEXT = 9 };

/* Names of runs are never cut: they are what one types next. --json prints everything. */
static fth_status print_rows(fth_table *table)
{
    /* Size, steps, epochs; then age, which is the sixth by then. */
    static const size_t spare[] = {7, 5, 4, 5}, long_texts[] = {DATA_COLUMN, MODEL_COLUMN};
    fth_status status = FTH_OK;
    const size_t columns = (size_t)fth_terminal_columns(stdout);
    for (size_t i = 0; i < FTH_COUNT_OF(spare) && fth_table_width(table) > columns; i++)
        fth_table_remove_column(table, spare[i]);
    for (size_t i = 0; i < FTH_COUNT_OF(long_texts); i++)
        FTH_TRY(fth_table_shorten(table, long_texts[i], columns, LEAST_TEXT));
    fth_table_print(stdout, table);
out:
    return status;
}

/* One run that cannot be read does not hide the others. */
static fth_status list_runs(const runs_options *options, bool *failed)
{
    fth_status status = FTH_OK;
    fth_record_list list = {0};
    fth_table *table = NULL;
    size_t shown = 0;

    FTH_TRY(fth_record_list_runs(options->runs, &list));
    FTH_TRY(FTH_TABLE(&table, "run", "state", "model", "data", ">epochs", ">steps", ">accuracy", ">size", ">age"));
    for (size_t i = 0; i < list.count; i++) {
        fth_record_summary run = {0};
        char *folder = fth_path_join(options->runs, list.ids[i]);
        bool read = fth_record_read(folder, &run) == FTH_OK;
        if (!read) {
            fth_log_warning("%s: %s", folder, fth_error_message());
            *failed = true;
        } else if (options->json) {
            print_json(list.ids[i], &run);
        } else {
            status = add_row(table, list.ids[i], &run);
            shown++;
        }
        fth_record_release(&run);
        free(folder);
        FTH_TRY(status);
    }
    if (shown > 0)
        FTH_TRY(print_rows(table));
    if (list.count == 0)
        fth_log_info("there are no runs in %s yet; `farthing train` makes one", options->runs);

out:
    fth_record_list_release(&list);
    fth_table_free(table);
    return status;
}

/* ---- removing ---- */

/* The folder that was typed, as an id or a path, itself: a link is not followed, and what is no run
 * is for fth_record_remove() to refuse. free() it. */
static fth_status find_folder(const char *runs_folder, const char *typed, char **folder)
{
    struct stat facts;
    char *path = strchr(typed, '/') ? fth_format("%s", typed) : fth_path_join(runs_folder, typed);
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
        path[length - 1] = '\0'; /* lstat() would follow a link with a slash after it */
    bool is_name = strchr(typed, '/') || (*typed && fth_record_check_id(typed) == FTH_OK);
    if (is_name && lstat(path, &facts) == 0) {
        *folder = path;
        return FTH_OK;
    }
    free(path);
    return fth_record_locate(runs_folder, typed, folder); /* which says what there is */
}

static fth_status remove_run(const runs_options *options, const char *typed, uint64_t *freed_bytes)
{
    fth_status status = FTH_OK;
    char *folder = NULL, size[SMALL];
    bool others_left = false;

    *freed_bytes = 0;
    FTH_TRY(find_folder(options->runs, typed, &folder));
    FTH_TRY(fth_record_remove(folder, freed_bytes, &others_left));
    fth_text_bytes((int64_t)*freed_bytes, size, sizeof size);
    if (!options->json)
        fth_print_line(stdout, "removed %s: %s freed", folder, size);
    if (others_left)
        fth_log_warning("%s stays: it holds files that are not the run's", folder);

out:
    free(folder);
    return status;
}

static bool remove_runs(const runs_options *options, const fth_arguments *arguments)
{
    uint64_t total = 0, freed;
    int removed = 0;
    char size[SMALL];
    bool failed = false;
    for (int i = 1; i < arguments->count; i++) {
        fth_status status = remove_run(options, arguments->positional[i], &freed);
        total += freed;
        removed += status == FTH_OK;
        failed = failed || status != FTH_OK;
        if (status != FTH_OK)
            fth_log_error("%s", fth_error_message());
        if (options->json) {
            json_t *json = json_pack("{s:o, s:b, s:I}", "run", fth_cli_json_text(arguments->positional[i]), "removed",
                                     status == FTH_OK, "freed_bytes", (json_int_t)freed);
            if (status != FTH_OK)
                json_object_set_new(json, "message", fth_cli_json_text(fth_error_message()));
            fth_cli_print_json_new(json);
        }
    }
    fth_text_bytes((int64_t)total, size, sizeof size);
    if (!options->json && removed > 1)
        printf("%s removed, %s freed\n", FTH_COUNTED(removed, "run"), size);
    return failed;
}

/* ---- the command ---- */

static fth_choice choose_action(size_t index)
{
    return index == 0 ? (fth_choice){"rm", "remove runs with their checkpoints and models"} : (fth_choice){0};
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const runs_options *asked = options;
    bool failed = false, removes = arguments->count > 0 && strcmp(arguments->positional[0], "rm") == 0;
    if (arguments->count > 0 && !removes)
        return fth_cli_usage_choice(command, "what to do with runs, if not to list them,", arguments->positional[0],
                                    choose_action);
    if (removes && arguments->count == 1)
        return fth_cli_usage(command, "missing the runs to remove: farthing runs rm ID...");
    if (removes)
        failed = remove_runs(asked, arguments);
    else if (list_runs(asked, &failed) != FTH_OK)
        return fth_cli_fail();
    return failed ? FTH_EXIT_FAILURE : FTH_EXIT_OK;
}

const fth_command fth_command_runs = {
    .name = "runs",
    .arguments = "[rm ID|FOLDER...] [--runs FOLDER] [--json]",
    .summary = "list runs: state, accuracy, size; `runs rm ID` removes them",
    .details = "Lists the runs on this machine, newest first. States: running, finished, stopped (on request or by a "
               "notice),\nfailed, killed; all but the first can be resumed. The accuracy is that of the best model "
               "kept, the age is since\nthe run began.\n\nrm deletes a run with its checkpoints and models. A run that "
               "is being trained is refused, files that are not a\nrun's are kept, and a run that cannot be removed "
               "does not stop the others from being removed.\n",
    .table = &runs_table,
    .actions = choose_action,
    .examples =
        (const fth_example[]){{"farthing runs", "list them"}, {"farthing runs rm 20261116-101500", "remove one"}, {0}},
    .run = run,
};
