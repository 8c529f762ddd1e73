/* See run_selection.h. */
#include "train/run/run_selection.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "train/setup/usual.h"

enum { DEFAULT_EPOCHS = 3 };

fth_status fth_run_selection_complete(fth_train_options *options)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_train_options_check(options));
    if (!fth_usual_needs_data(options))
        FTH_TRY(fth_usual_apply(options, NULL));
    if (options->limits.epochs == 0 && options->limits.steps == 0 && options->limits.for_s <= 0 &&
        !*options->limits.until)
        options->limits.epochs = DEFAULT_EPOCHS;

out:
    return status;
}

static fth_status copy_options(const fth_train_options *from, fth_train_options *to)
{
    fth_status status = FTH_OK;
    json_t *json = fth_options_to_json(&fth_train_option_table, from, false);

    FTH_REQUIRE(json, FTH_NO_MEMORY, "no memory for the options");
    FTH_TRY(fth_options_set_defaults(&fth_train_option_table, to));
    FTH_TRY(fth_options_from_json(&fth_train_option_table, to, json, "options"));
    to->set = from->set;
    to->own = from->own;

out:
    json_decref(json);
    return status;
}

/* ---- limits: how long to train ---- */

static bool limit_was_given(const fth_train_options *asked)
{
    const fth_option_table *table = &fth_train_option_table;
    for (size_t i = 0; i < table->count; i++)
        if (table->options[i].limit && fth_options_is_set(table, asked, table->options[i].name))
            return true;
    return false;
}

/* A new limit replaces the old ones, which may already be reached. */
static fth_status replace_limits(const fth_train_options *asked, fth_train_options *options)
{
    fth_status status = FTH_OK;
    const fth_option_table *table = &fth_train_option_table;
    for (size_t i = 0; limit_was_given(asked) && i < table->count && status == FTH_OK; i++)
        if (table->options[i].limit)
            status = fth_options_reset(&table->options[i], options);
    return status;
}

fth_status fth_run_selection_take_limits(fth_run_selection *selection, const json_t *stored, bool follow)
{
    fth_status status = FTH_OK;
    const fth_option_table *table = &fth_train_option_table;
    json_t *theirs = json_object();

    FTH_REQUIRE(theirs, FTH_NO_MEMORY, "no memory for the options");
    if (limit_was_given(&selection->options) && !follow)
        goto out;
    for (size_t i = 0; i < table->count; i++) {
        json_t *limit = table->options[i].limit ? json_object_get(stored, table->options[i].name) : NULL;
        if (limit)
            json_object_set(theirs, table->options[i].name, limit);
    }
    FTH_TRY(fth_options_from_json(table, &selection->options, theirs, "the stored run"));
    fth_options_identity(table, &selection->options, selection->identity);

out:
    json_decref(theirs);
    return status;
}

/* Is the limit `now` reached earlier than `before` of the same option? Neither where one of them is
 * not a limit: 0, "", or a goal of another kind. */
static bool is_nearer(const json_t *now, const json_t *before)
{
    fth_goal left, right;
    if (json_is_number(now))
        return json_number_value(now) > 0 && json_number_value(now) < json_number_value(before);
    if (!json_is_string(now) || !json_is_string(before) || fth_goal_parse(json_string_value(now), &left) != FTH_OK ||
        fth_goal_parse(json_string_value(before), &right) != FTH_OK || left.kind != right.kind)
        return false;
    return left.kind == FTH_GOAL_ACCURACY ? left.value < right.value : left.value > right.value;
}

fth_status fth_run_selection_check_longer(const fth_run_selection *selection, const json_t *stored)
{
    fth_status status = FTH_OK;
    const fth_option_table *table = &fth_train_option_table;
    json_t *now = fth_options_to_json(table, &selection->options, false);
    char *before = NULL;

    FTH_REQUIRE(now, FTH_NO_MEMORY, "no memory for the options");
    for (size_t i = 0; i < table->count; i++) {
        const char *name = table->options[i].name;
        if (!table->options[i].limit || !is_nearer(json_object_get(now, name), json_object_get(stored, name)))
            continue;
        before = json_dumps(json_object_get(stored, name), JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        status = fth_fail(FTH_INVALID,
                          "the run in %s was started with --%s %s, and this command would shorten it; give as much or "
                          "more, or leave the limit out",
                          selection->options.store.checkpoints, name, before ? before : "?");
        goto out;
    }

out:
    json_decref(now);
    free(before);
    return status;
}

/* Does the record of a run that ended reach one of these limits? As the trainer decides it. */
static bool reaches_limit(const fth_record_summary *summary, const fth_train_options *options)
{
    fth_goal goal;
    double epochs = json_number_value(json_object_get(summary->end, "epochs"));
    double accuracy = json_number_value(json_object_get(summary->end, "accuracy"));
    const json_t *loss = json_object_get(summary->end, "loss");
    if (fth_goal_parse(options->limits.until, &goal) == FTH_OK && loss &&
        ((goal.kind == FTH_GOAL_ACCURACY && accuracy >= goal.value) ||
         (goal.kind == FTH_GOAL_LOSS && json_number_value(loss) <= goal.value)))
        return true;
    return (options->limits.epochs > 0 && epochs >= (double)options->limits.epochs) ||
           (options->limits.steps > 0 && summary->steps >= options->limits.steps) ||
           (options->limits.for_s > 0 && summary->elapsed_s >= options->limits.for_s);
}

/* Lays what was given now over the stored configuration in `options`. `in_store`: its store refuses
 * what differs. */
static fth_status override(const fth_train_options *asked, fth_train_options *options, const char *folder,
                           bool in_store)
{
    fth_status status = FTH_OK;
    const fth_option_table *table = &fth_train_option_table;
    json_t *now = fth_options_to_json(table, asked, false);
    json_t *before = fth_options_to_json(table, options, false);
    json_t *given = json_object();

    FTH_REQUIRE(now && before && given, FTH_NO_MEMORY, "no memory for the options");
    FTH_TRY(replace_limits(asked, options));
    for (size_t i = 0; i < table->count; i++) {
        const char *name = table->options[i].name;
        if (!fth_options_is_set(table, asked, name) || fth_usual_is_open(asked, name))
            continue;
        json_t *value = json_object_get(now, name);
        bool differs = !json_equal(value, json_object_get(before, name));
        FTH_REQUIRE(!differs || !table->options[i].fixed, FTH_INVALID,
                    "--%s cannot change in the middle of a run (%s); leave it out, or start a run of its own", name,
                    folder);
        if (differs && table->options[i].identity && !in_store)
            fth_log_warning("--%s differs from what %s was started with; the new value holds from here on", name,
                            folder);
        json_object_set(given, name, value);
    }
    FTH_TRY(fth_options_from_json(table, options, given, "options"));
    options->set = asked->set;
    options->own = asked->own;

out:
    json_decref(now);
    json_decref(before);
    json_decref(given);
    return status;
}

/* ---- which run ---- */

static double created_s(const char *folder)
{
    json_t *run = NULL;
    double created = 0;
    if (folder && fth_record_read_run(folder, &run) == FTH_OK)
        created = json_number_value(json_object_get(run, "created_s"));
    json_decref(run);
    return created;
}

fth_status fth_run_selection_keep_best_by(fth_run_selection *selection)
{
    const json_t *by = json_object_get(json_object_get(selection->run, "configuration"), "best-by");
    const fth_option_table *table = &fth_train_option_table;
    if (!by || fth_options_is_set(table, &selection->options, "best-by"))
        return FTH_OK;
    json_t *choice = json_pack("{s:O}", "best-by", by);
    fth_status status = fth_options_from_json(table, &selection->options, choice, selection->folder);
    json_decref(choice);
    return status;
}

static fth_status find_newest(fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    const char *runs = selection->options.saving.runs;
    char *unfinished = NULL, *finished = NULL;

    FTH_TRY(fth_record_find(runs, selection->identity, false, &unfinished));
    FTH_TRY(fth_record_find(runs, selection->identity, true, &finished));
    if (finished && (!unfinished || created_s(finished) > created_s(unfinished))) {
        selection->finished = true;
        selection->folder = finished;
        finished = NULL;
    } else if (unfinished) {
        selection->folder = unfinished;
        unfinished = NULL;
    }
    if (selection->folder)
        FTH_TRY(fth_record_read_run(selection->folder, &selection->run));
    FTH_TRY(fth_run_selection_keep_best_by(selection));

out:
    free(unfinished);
    free(finished);
    return status;
}

fth_status fth_run_selection_check_finished(fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    fth_record_summary summary = {0};
    const char *stored = json_string_value(json_object_get(selection->run, "identity"));

    FTH_TRY(fth_record_read(selection->folder, &summary));
    bool same = stored && strcmp(stored, selection->identity) == 0;
    selection->finished = summary.finished && (same || reaches_limit(&summary, &selection->options));

out:
    fth_record_release(&summary);
    return status;
}

/* ---- a budget that ended a run ---- */

fth_status fth_run_selection_check_budget(fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    fth_record_summary record = {0};
    fth_ledger ledger = {0};
    double budget_usd = INFINITY;

    if (!selection->finished)
        return FTH_OK;
    FTH_TRY(fth_record_read(selection->folder, &record));
    const char *reason = json_string_value(json_object_get(record.end, "reason"));
    if (!reason || strcmp(reason, "budget") != 0)
        goto out;
    FTH_TRY(fth_ledger_make(&record, &ledger));
    if (*selection->options.limits.budget)
        FTH_TRY(fth_usd_parse(selection->options.limits.budget, &budget_usd));
    /* What it ended with is by less than a step short of the budget it had; the same budget means
     * that it is done. */
    const char *before = json_string_value(json_object_get(json_object_get(record.run, "configuration"), "budget"));
    double before_usd = 0;
    if (before && *before)
        FTH_TRY(fth_usd_parse(before, &before_usd));
    selection->finished = budget_usd <= fmax(before_usd, ledger.priced > 0 ? ledger.usd : 0);
    if (selection->finished) {
        char spent[32];
        fth_usd_format(ledger.usd, spent, sizeof spent);
        fth_log_info("the run has cost %s, and its budget is spent; a larger --budget continues it", spent);
    }

out:
    fth_ledger_release(&ledger);
    fth_record_release(&record);
    return status;
}

/* ---- finding it ---- */

/* Sets *options to what the run was started with. */
static fth_status read_stored(const char *folder, const json_t *run, fth_train_options *options)
{
    fth_status status = FTH_OK;
    const json_t *stored = json_object_get(run, "configuration");

    FTH_REQUIRE(json_is_object(stored), FTH_CORRUPT, "%s/run.json holds no configuration", folder);
    fth_options_release(&fth_train_option_table, options);
    FTH_TRY(fth_options_set_defaults(&fth_train_option_table, options));
    FTH_TRY(fth_train_options_read_run(options, stored, folder));

out:
    return status;
}

static fth_status use_named(const fth_train_options *asked, const char *folder, fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    fth_train_options *options = &selection->options;
    char before[sizeof selection->identity];

    FTH_TRY(fth_record_read_run(folder, &selection->run));
    FTH_TRY(read_stored(folder, selection->run, options));
    fth_options_identity(&fth_train_option_table, options, before);
    FTH_TRY(override(asked, options, folder, false));
    FTH_TRY(fth_run_selection_complete(options));
    selection->folder = fth_format("%s", folder);
    fth_options_identity(&fth_train_option_table, options, selection->identity);
    const char *identity = json_string_value(json_object_get(selection->run, "identity"));
    if (identity &&
        strcmp(before, selection->identity) == 0) /* what was left open then is chosen in the configuration */
        snprintf(selection->identity, sizeof selection->identity, "%s", identity);
    FTH_TRY(fth_run_selection_check_finished(selection));

out:
    return status;
}

fth_status fth_run_selection_prepare(const fth_train_options *asked, fth_run_selection *selection)
{
    fth_status status = FTH_OK;

    *selection = (fth_run_selection){0};
    FTH_TRY(copy_options(asked, &selection->options));
    FTH_TRY(fth_run_selection_complete(&selection->options));
    fth_options_identity(&fth_train_option_table, &selection->options, selection->identity);

out:
    return status;
}

fth_status fth_run_selection_find(const fth_train_options *asked, fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    char *folder = NULL;

    FTH_TRY(fth_run_selection_prepare(asked, selection));
    if (!*asked->resume)
        goto out;
    if (strcmp(asked->resume, "auto") != 0) {
        FTH_TRY(fth_record_locate(asked->saving.runs, asked->resume, &folder));
        FTH_TRY(use_named(asked, folder, selection));
    } else if (*asked->saving.name) {
        folder = fth_path_join(asked->saving.runs, asked->saving.name);
        if (fth_record_exists(folder))
            FTH_TRY(use_named(asked, folder, selection));
    } else {
        FTH_TRY(find_newest(selection));
    }
    FTH_TRY(fth_run_selection_check_budget(selection));

out:
    free(folder);
    return status;
}

/* ---- --resume, before anything else looks at the options ---- */

/* Does the command say which run it is, other than by --resume? */
static bool tells_run(const fth_train_options *asked)
{
    const fth_option_table *table = &fth_train_option_table;
    bool tells = *asked->saving.name || *asked->store.checkpoints || *asked->server.url || asked->own.network;
    for (size_t i = 0; i < table->count && !tells; i++)
        tells = table->options[i].identity && fth_options_is_set(table, asked, table->options[i].name);
    return tells;
}

static fth_status set_text(const char *value, char **text)
{
    char *copy = fth_format("%s", value);
    if (!copy)
        return fth_fail(FTH_NO_MEMORY, "no memory for the options");
    free(*text);
    *text = copy;
    return FTH_OK;
}

/* The newest run that can be continued; else one that is being trained, which is an error later;
 * else the newest of all; else none, and a new one is started. */
static fth_status choose_newest(fth_train_options *options)
{
    fth_status status = FTH_OK;
    fth_record_list unfinished = {0};
    char *folder = NULL, *all = NULL;

    FTH_TRY(fth_record_list_unfinished(options->saving.runs, &unfinished));
    if (unfinished.count > 0) {
        all = fth_record_list_format(&unfinished);
        FTH_TRY(set_text(unfinished.ids[0], &options->resume));
        fth_log_info("resuming %s, the newest unfinished run in %s%s%s%s", options->resume, options->saving.runs,
                     unfinished.count > 1 ? " (of " : "", unfinished.count > 1 && all ? all : "",
                     unfinished.count > 1 ? "; --resume ID continues another)" : "");
        goto out;
    }
    FTH_TRY(fth_record_find(options->saving.runs, NULL, false, &folder));
    if (!folder) {
        FTH_TRY(fth_record_find(options->saving.runs, NULL, true, &folder));
        if (folder)
            fth_log_info("no run in %s is unfinished; the newest is %s", options->saving.runs, folder);
    }
    if (folder)
        FTH_TRY(set_text(folder, &options->resume));

out:
    fth_record_list_release(&unfinished);
    free(folder);
    free(all);
    return status;
}

/* A run that lives in a store is continued there, as with its --checkpoints. */
static fth_status follow_to_store(fth_train_options *options)
{
    fth_status status = FTH_OK;
    fth_train_options stored = {0};
    json_t *run = NULL;
    char *folder = NULL;

    if (fth_record_locate(options->saving.runs, options->resume, &folder) != FTH_OK)
        goto out; /* a peer may have it */
    FTH_TRY(fth_record_read_run(folder, &run));
    const char *url = json_string_value(json_object_get(json_object_get(run, "configuration"), "checkpoints"));
    if (!url || !*url)
        goto out;
    FTH_TRY(read_stored(folder, run, &stored));
    FTH_TRY(override(options, &stored, folder, true));
    const char *slash = strrchr(folder, '/');
    char *runs = slash ? fth_format("%.*s", (int)(slash == folder ? 1 : slash - folder), folder) : fth_format(".");
    FTH_REQUIRE(runs, FTH_NO_MEMORY, "no memory for a path");
    free(stored.saving.runs);
    stored.saving.runs = runs; /* where its record is on this machine */
    FTH_TRY(set_text("", &stored.resume));
    fth_log_info("%s lives in %s, and is continued there", folder, url);
    fth_options_release(&fth_train_option_table, options);
    *options = stored; /* moved */
    stored = (fth_train_options){0};

out:
    fth_options_release(&fth_train_option_table, &stored);
    json_decref(run);
    free(folder);
    return status;
}

fth_status fth_train_find_resumed(fth_train_options *options)
{
    fth_status status = FTH_OK;
    const bool named = *options->resume && strcmp(options->resume, "auto") != 0;

    if (*options->resume && !named && !tells_run(options))
        FTH_TRY(choose_newest(options));
    if (*options->resume && strcmp(options->resume, "auto") != 0 && !*options->store.checkpoints)
        FTH_TRY(follow_to_store(options));

out:
    return status;
}

void fth_run_selection_release(fth_run_selection *selection)
{
    fth_options_release(&fth_train_option_table, &selection->options);
    json_decref(selection->run);
    free(selection->folder);
    free(selection->id);
    *selection = (fth_run_selection){0};
}
