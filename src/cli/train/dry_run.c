/* train --dry-run: what would be trained, and the whole configuration as a run file.
 *
 * Options with their default are comments in that file, because as keys some would be errors for
 * this kind of run. Read back, the file gives the same run. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/store/store_cli.h"
#include "parallel/parallel.h"
#include "report/report.h"

typedef struct store_facts {
    char written[200], conditions[200];
} store_facts;

/* ---- the store ---- */

/* The outermost folder that creating `folder` would create; NULL if `folder` exists. free() it. */
static char *first_missing(const char *folder)
{
    char *path = fth_format("%s", folder), *missing = NULL;
    while (*path && access(path, F_OK) != 0 && errno == ENOENT) {
        free(missing);
        missing = fth_format("%s", path);
        char *slash = strrchr(path, '/');
        *(slash ? slash : path) = '\0';
    }
    free(path);
    return missing;
}

/* Removes the empty folders from `folder` up to `first`, which a probe of the store has made. */
static void remove_made(const char *folder, const char *first)
{
    char *path = fth_format("%s", folder);
    for (bool more = first != NULL; more;) {
        more = rmdir(path) == 0 || errno == ENOENT;
        more = more && strlen(path) > strlen(first) && strrchr(path, '/');
        if (more)
            *strrchr(path, '/') = '\0';
    }
    free(path);
}

/* Writes, reads and deletes a small object, like doctor. */
static fth_status check_store(const fth_train_options *options, store_facts *facts)
{
    fth_status status = FTH_OK;
    fth_store *store = NULL;
    char *missing = NULL;
    fth_store_options how = {.s3_endpoint = options->store.s3_endpoint,
                             .s3_region = options->store.s3_region,
                             .s3_style = options->store.s3_style};

    FTH_TRY(fth_store_open(options->store.checkpoints, &how, &store));
    missing = fth_store_folder(store) ? first_missing(fth_store_folder(store)) : NULL;
    FTH_TRY(fth_doctor_write_store(store, facts->written, sizeof facts->written));
    if (strcmp(options->store.lease, "off") != 0)
        FTH_TRY(fth_doctor_check_conditions(store, facts->conditions, sizeof facts->conditions));

out:
    if (missing)
        remove_made(fth_store_folder(store), missing);
    free(missing);
    fth_store_free(store);
    return status;
}

/* ---- the configuration ---- */

/* Where a value comes from: "flag", "file", "run" (the one that is resumed) or "default". */
static const char *source_of(const fth_train_options *asked, const fth_option_bits *by_flag, const json_t *stored,
                             const json_t *value, const char *name)
{
    const fth_option_table *table = &fth_train_option_table;
    const struct {
        fth_option_bits set;
    } flags = {*by_flag};
    if (fth_options_is_set(table, &flags, name))
        return "flag";
    if (fth_options_is_set(table, asked, name))
        return "file";
    return stored && json_equal(json_object_get(stored, name), value) ? "run" : "default";
}

static json_t *default_configuration(void)
{
    fth_train_options options = {0};
    json_t *json = NULL;
    if (fth_options_set_defaults(&fth_train_option_table, &options) == FTH_OK)
        json = fth_options_to_json(&fth_train_option_table, &options, false);
    fth_options_release(&fth_train_option_table, &options);
    return json;
}

/* As fth_options_read_yaml() reads it back. JSON's texts and numbers are YAML's. */
static char *yaml_value(const fth_option *option, const json_t *value)
{
    if (json_is_boolean(value))
        return fth_format("%s", json_is_true(value) ? "yes" : "no");
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    char *yaml = fth_format("%s%s", text ? text : "", option->type == FTH_OPTION_DURATION ? "s" : "");
    free(text);
    return yaml;
}

/* Options about this command, not about the run. */
static bool is_of_the_command(const char *name)
{
    return strcmp(name, "dry-run") == 0 || strcmp(name, "json") == 0;
}

static void print_yaml(const fth_train_options *asked, const fth_option_bits *by_flag, const fth_train_plan *plan)
{
    const fth_option_table *table = &fth_train_option_table;
    json_t *values = fth_options_to_json(table, &plan->options, false), *usual = default_configuration();
    for (size_t i = 0; i < table->count; i++) {
        const fth_option *option = &table->options[i];
        const json_t *value = json_object_get(values, option->name);
        if (is_of_the_command(option->name) || !fth_options_is_for(option, FTH_FOR_TRAIN | FTH_FOR_STANDBY))
            continue;
        if (option->group)
            printf("\n# %s\n", option->group);
        const char *source = source_of(asked, by_flag, plan->stored, value, option->name);
        bool plain = strcmp(source, "default") == 0 ||
                     (strcmp(source, "run") == 0 && json_equal(value, json_object_get(usual, option->name)));
        char *text = yaml_value(option, value);
        fth_print_line(stdout, "%s%s: %s  # %s", plain ? "# " : "", option->name, text, source);
        free(text);
    }
    json_decref(values);
    json_decref(usual);
}

static json_t *configuration_json(const fth_train_options *asked, const fth_option_bits *by_flag,
                                  const fth_train_plan *plan)
{
    json_t *values = fth_options_to_json(&fth_train_option_table, &plan->options, false), *all = json_object();
    const char *name;
    json_t *value;
    json_object_foreach(values, name, value)
    {
        if (!is_of_the_command(name))
            json_object_set_new(
                all, name,
                json_pack("{s:O, s:s}", "value", value, "from", source_of(asked, by_flag, plan->stored, value, name)));
    }
    json_decref(values);
    return all;
}

/* ---- the whole ---- */

static const char *action_of(const fth_train_options *asked, const fth_train_plan *plan)
{
    if (plan->action == FTH_PLAN_NOTHING_LEFT)
        return "finished";
    if (plan->action == FTH_PLAN_RESUME_RUN)
        return "resume";
    return asked->standby ? "wait" : "begin";
}

static void print_json(const fth_train_options *asked, const fth_option_bits *by_flag, const fth_train_plan *plan)
{
    json_t *json =
        json_pack("{s:b, s:s, s:I, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I}", "dry_run", 1, "action",
                  action_of(asked, plan), "step", (json_int_t)plan->step, "model",
                  fth_cli_json_text(plan->options.model), "data", fth_cli_json_text(plan->data), "device", plan->device,
                  "parameters", (json_int_t)plan->parameters, "training_samples", (json_int_t)plan->training_samples,
                  "validation_samples", (json_int_t)plan->validation_samples, "classes", (json_int_t)plan->classes,
                  "batches_per_epoch", (json_int_t)plan->batches_per_epoch);
    if (plan->id)
        json_object_set_new(json, "id", fth_cli_json_text(plan->id));
    if (plan->steps > 0)
        json_object_set_new(json, "steps", json_integer(plan->steps));
    json_object_set_new(json, "configuration", configuration_json(asked, by_flag, plan));
    fth_cli_print_json_new(json);
}

static void print_action(const fth_train_options *asked, const fth_train_plan *plan)
{
    const char *where = *asked->store.checkpoints ? asked->store.checkpoints : plan->options.saving.runs;
    if (plan->action == FTH_PLAN_NOTHING_LEFT)
        fth_print_line(stdout, "# run %s in %s is finished: nothing is left to do", plan->id, where);
    else if (plan->action == FTH_PLAN_RESUME_RUN)
        fth_print_line(stdout, "# would resume run %s in %s, which has come to step %lld", plan->id, where,
                       (long long)plan->step);
    else if (asked->standby)
        fth_print_line(stdout, "# there is no run in %s yet: would stand by", where);
    else
        fth_print_line(stdout, "# would start a new run%s%s in %s", plan->id ? ", " : "", plan->id ? plan->id : "",
                       where);
}

static void print_facts(const fth_train_options *asked, const fth_train_plan *plan, const store_facts *store)
{
    printf("# dry run: everything was checked, nothing was trained or saved\n");
    print_action(asked, plan);
    fth_print_line(stdout, "# model    %s, %s", plan->options.model, FTH_COUNTED(plan->parameters, "parameter"));
    fth_print_line(stdout, "# data     %s, %s, %s to train, %s to validate", plan->options.data.address,
                   FTH_COUNTED(plan->classes, "class"),
                   FTH_COUNTED(plan->training_samples, plan->text ? "text" : "image"),
                   FTH_COUNTED(plan->validation_samples, NULL));
    fth_print_line(stdout, "# device   %s", plan->device);
    printf("# length   %s an epoch", FTH_COUNTED(plan->batches_per_epoch, "batch"));
    if (plan->steps > 0)
        printf(", %s in all", FTH_COUNTED(plan->steps, "step"));
    putchar('\n');
    if (*store->written)
        fth_print_line(stdout, "# store    %s", store->written);
    if (*store->conditions)
        fth_print_line(stdout, "#          %s", store->conditions);
    if (*asked->server.url)
        fth_print_line(stdout, "# server   %s was not contacted", asked->server.url);
}

fth_exit_code fth_cli_dry_run(const fth_train_options *options, const fth_option_bits *by_flag)
{
    fth_status status = FTH_OK;
    fth_train_plan plan = {0};
    store_facts store = {0};
    fth_stop stop = FTH_STOP_INITIALIZER;

    if (*options->store.checkpoints)
        FTH_TRY(check_store(options, &store));
    FTH_TRY(fth_train_check(options, fth_strategies, &stop, &plan));
    if (options->json) {
        print_json(options, by_flag, &plan);
    } else {
        print_facts(options, &plan, &store);
        print_yaml(options, by_flag, &plan);
    }

out:
    fth_train_plan_release(&plan);
    if (status != FTH_OK && options->json) {
        fth_cli_print_json_new(json_pack("{s:s, s:s, s:o}", "event", "error", "status", fth_status_name(status),
                                         "message", fth_cli_json_text(fth_error_message())));
    }
    return status == FTH_OK ? FTH_EXIT_OK : fth_cli_fail();
}
