/* See run_takeover.h. */
#include "train/run/run_takeover.h"

#include <stdlib.h>
#include <string.h>

#include "train/run/run_files.h"
#include "train/setup/usual.h"

/* ---- comparing ---- */

/* The run's id, or "" where it is not one. */
static const char *get_id(const fth_stored_record *record)
{
    const char *id = json_string_value(json_object_get(record->json, "id"));
    return id && fth_record_check_id(id) == FTH_OK ? id : "";
}

/* The stored configuration as this version would write it: what an older one did not know has its
 * default. */
static fth_status read_configuration(const fth_stored_record *record, const char *url, json_t **configuration)
{
    fth_status status = FTH_OK;
    fth_train_options options = {0};
    const json_t *stored = json_object_get(record->json, "configuration");

    *configuration = NULL;
    FTH_REQUIRE(json_is_object(stored), FTH_CORRUPT, "%s/run.json holds no configuration", url);
    FTH_TRY(fth_options_set_defaults(&fth_train_option_table, &options));
    FTH_TRY(fth_train_options_read_run(&options, stored, url));
    *configuration = fth_options_to_json(&fth_train_option_table, &options, true);
    FTH_REQUIRE(*configuration, FTH_NO_MEMORY, "no memory for the options");

out:
    fth_options_release(&fth_train_option_table, &options);
    return status;
}

/* Names the first option that differs, with both values; limits are not such options. */
static fth_status compare_options(const fth_run_selection *selection, const json_t *stored, const char *id,
                                  const char *url)
{
    fth_status status = FTH_OK;
    json_t *asked = fth_options_to_json(&fth_train_option_table, &selection->options, true);
    const char *name;
    json_t *value;
    char *there = NULL, *here = NULL;

    FTH_REQUIRE(asked, FTH_NO_MEMORY, "no memory for the options");
    json_object_foreach(asked, name, value)
    {
        const json_t *before = json_object_get(stored, name);
        if (fth_usual_is_open(&selection->options, name))
            continue;
        if (fth_options_find(&fth_train_option_table, name)->limit || json_equal(value, before))
            continue;
        there = json_dumps(before, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        here = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        status = fth_fail(FTH_INVALID,
                          "%s holds run %s, which has another configuration (--%s is %s there and %s here); give the "
                          "same one, or another URL",
                          url, id, name, there ? there : "?", here ? here : "?");
        break;
    }

out:
    free(there);
    free(here);
    json_decref(asked);
    return status;
}

/* If --model was not given, the model was found in the weights' file, which a machine that
 * continues the run need not have. */
static fth_status follow_model(fth_run_selection *selection, const json_t *stored)
{
    const fth_option_table *table = &fth_train_option_table;
    fth_train_options *options = &selection->options;
    if (!*options->weights || fth_options_is_set(table, options, "model"))
        return FTH_OK;
    json_t *model = json_pack("{s:O}", "model", json_object_get(stored, "model"));
    fth_status status = fth_options_from_json(table, options, model, "the run");
    json_decref(model);
    return status;
}

/* The run in the store is the one that is asked for; its limits are the stored ones, or those given
 * now. */
static fth_status check_same(fth_run_selection *selection, const fth_stored_record *record, const char *url,
                             bool standby)
{
    fth_status status = FTH_OK;
    json_t *stored = NULL;
    const char *id = get_id(record);

    FTH_REQUIRE(*id, FTH_CORRUPT, "%s/run.json is not a run's", url);
    FTH_TRY(read_configuration(record, url, &stored));
    FTH_TRY(follow_model(selection, stored));
    FTH_TRY(compare_options(selection, stored, id, url));
    FTH_TRY(fth_run_selection_take_limits(selection, stored, standby));

out:
    json_decref(stored);
    return status;
}

/* ---- what this machine has ---- */

/* Does the folder hold this machine's copy of the run's record? */
static bool is_copy(const char *folder, const fth_stored_record *record)
{
    json_t *here = NULL;
    bool same = record->json && fth_record_read_run(folder, &here) == FTH_OK &&
                json_equal(json_object_get(here, "created_s"), json_object_get(record->json, "created_s"));
    json_decref(here);
    return same;
}

/* Two runs of one name in one folder would be mixed up. */
static fth_status check_local(const char *folder, const fth_stored_record *record, const char *url)
{
    if (!fth_record_exists(folder) || is_copy(folder, record))
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s is another run than the one of that name in %s; give another --runs folder",
                    folder, url);
}

/* Events reach the store a while after they are written, so that a process that was killed in its
 * first seconds has begun on this machine alone. */
static fth_status has_begun_here(const fth_run_selection *selection, const fth_stored_record *record, bool *begun)
{
    char *folder = fth_path_join(selection->options.saving.runs, get_id(record));
    if (!folder)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    *begun = *get_id(record) && is_copy(folder, record) && fth_record_has_begun(folder);
    free(folder);
    return FTH_OK;
}

/* Before anything is taken from the store: a run that begins, does so under a name that no other
 * run has here. */
static fth_status check_name(const fth_run_selection *selection, const fth_stored_record *record, const char *url)
{
    fth_status status = FTH_OK;
    const char *id = selection->id ? selection->id : selection->options.saving.name;
    char *folder = fth_path_join(selection->options.saving.runs, id);

    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    FTH_REQUIRE(
        !*id || !fth_record_has_begun(folder) || is_copy(folder, record), FTH_INVALID,
        "there is a run %s in %s already, which %s does not hold; choose another --name or --runs, or remove it "
        "with farthing runs rm",
        id, selection->options.saving.runs, url);

out:
    free(folder);
    return status;
}

/* What is left to do in the run whose record is in the selection's folder. */
static fth_status judge_record(fth_run_selection *selection, const fth_stored_record *record)
{
    fth_status status = FTH_OK;

    selection->run = json_incref(record->json);
    selection->stored = true;
    selection->stored_bytes = record->events_bytes;
    FTH_TRY(fth_run_selection_keep_best_by(selection));
    FTH_TRY(fth_run_selection_check_finished(selection));
    selection->finished = selection->finished && record->finished; /* an end that is only here is not stored */
    FTH_TRY(fth_run_selection_check_budget(selection));
    if (!selection->finished)
        FTH_TRY(fth_run_selection_check_longer(selection, json_object_get(record->json, "configuration")));

out:
    return status;
}

/* The record of the store becomes a local run folder, which is then continued like any run. */
static fth_status take_record(fth_run_store *run, fth_run_selection *selection, fth_stored_record *record)
{
    fth_status status = FTH_OK;
    const char *url = fth_run_store_url(run);
    const char *id = json_string_value(json_object_get(record->json, "id"));
    char *folder = fth_path_join(selection->options.saving.runs, id);

    FTH_TRY(check_local(folder, record, url));
    FTH_TRY(fth_record_restore(folder, record->run, record->events, record->events_bytes));
    FTH_TRY(fth_run_files_fetch(run, folder));
    selection->folder = folder;
    folder = NULL;
    FTH_TRY(judge_record(selection, record));

out:
    free(folder);
    return status;
}

/* ---- taking over ---- */

/* A run that was announced in the store is this command's even before its first step, if it is the
 * same in all that was asked; any other may take its place until then. */
static bool is_announced(const fth_run_selection *selection, const fth_stored_record *record)
{
    const char *identity = json_string_value(json_object_get(record->json, "identity"));
    const char *id = get_id(record), *name = selection->options.saving.name;
    return *id && (!*name || strcmp(name, id) == 0) && identity && strcmp(identity, selection->identity) == 0 &&
           json_is_number(json_object_get(record->json, "created_s"));
}

/* A standby is for the run that was announced, even if its machine vanished before the first
 * step. */
static fth_status read_stored(fth_run_store *run, bool standby, fth_run_selection *selection, fth_stored_record *record)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_run_store_read(run, record));
    if (record->run && !record->begun)
        FTH_TRY(has_begun_here(selection, record, &record->begun));
    if (record->run && (record->begun || standby))
        FTH_TRY(check_same(selection, record, fth_run_store_url(run), standby));

out:
    return status;
}

/* What a new run is called: as it was announced, so that machines which have a copy of its record
 * know it. */
static fth_status take_name(const fth_run_store *run, bool standby, fth_run_selection *selection,
                            const fth_stored_record *record)
{
    selection->stored = record->run && (standby || is_announced(selection, record));
    if (selection->stored) {
        free(selection->id);
        selection->id = fth_format("%s", get_id(record));
        selection->created_s = json_number_value(json_object_get(record->json, "created_s"));
    }
    return check_name(selection, record, fth_run_store_url(run));
}

/* Takes the lease and reads the run as its last owner left it. A standby whose run was given up
 * before it took a step keeps standing by. */
static fth_status take_run(fth_run_store *run, fth_stop *stop, bool standby, fth_run_selection *selection,
                           fth_stored_record *record)
{
    fth_status status = FTH_OK;
    for (;;) {
        FTH_TRY(fth_run_store_take(run, stop, standby));
        fth_stored_record_release(record);
        FTH_TRY(read_stored(run, standby, selection, record));
        if (record->run || !standby)
            break;
        FTH_TRY(fth_run_store_release(run));
    }
    if (record->begun) {
        FTH_TRY(take_record(run, selection, record));
        goto out;
    }
    FTH_TRY(take_name(run, standby, selection, record));
    if (record->run)
        FTH_TRY(fth_run_store_discard(run, selection->stored));

out:
    return status;
}

static void forget_record(fth_run_selection *selection)
{
    free(selection->folder);
    selection->folder = NULL;
    json_decref(selection->run);
    selection->run = NULL;
}

/* A run that ended is over, without a lease, unless this command asks for more than it was given
 * then. */
static fth_status check_over(fth_run_store *run, fth_run_selection *selection, fth_stored_record *record, bool *over)
{
    fth_status status = FTH_OK;
    *over = false;
    if (record->begun && !record->finished) /* said now, and not after waiting for its owner */
        FTH_TRY(fth_run_selection_check_longer(selection, json_object_get(record->json, "configuration")));
    if (!record->finished)
        goto out;
    FTH_TRY(take_record(run, selection, record));
    *over = selection->finished;
    if (!*over)
        forget_record(selection);

out:
    return status;
}

fth_status fth_stored_run_find(fth_run_store *run, fth_stop *stop, bool standby, fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    fth_stored_record record = {0};
    const char *url = fth_run_store_url(run);
    bool over;

    FTH_TRY(read_stored(run, standby, selection, &record));
    FTH_TRY(check_over(run, selection, &record, &over));
    if (!over) { /* its owner may end it while we wait */
        FTH_TRY(take_run(run, stop, standby, selection, &record));
        if (record.finished && !selection->finished)
            fth_log_info("run %s had ended; this command asks for more, so it continues",
                         json_string_value(json_object_get(record.json, "id")));
    }
    free(selection->options.store.checkpoints);
    selection->options.store.checkpoints = fth_format("%s", url); /* what goes into the record has no secrets */

out:
    fth_stored_record_release(&record);
    return status;
}

fth_status fth_stored_run_look(fth_run_store *run, bool standby, const char *folder, fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    fth_stored_record record = {0};

    FTH_TRY(read_stored(run, standby, selection, &record));
    if (!record.begun) {
        FTH_TRY(take_name(run, standby, selection, &record));
        goto out;
    }
    FTH_TRY(fth_record_restore(folder, record.run, record.events, record.events_bytes));
    FTH_TRY(fth_run_files_fetch(run, folder));
    selection->folder = fth_format("%s", folder);
    FTH_TRY(judge_record(selection, &record));

out:
    fth_stored_record_release(&record);
    return status;
}
