/* How a trainer lives with a store: finds its run there, keeps it there, and leaves it in order. run_store.h has the
 * layout; without --checkpoints the run's own folder is the store and there is nothing to mirror. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/trainer_internal.h"

/* ---- finding the run ---- */

/* The stored configuration as this version would write it: what an older one did not know has its default. */
static fth_status read_configuration(const fth_stored_record *record, const char *url, json_t **configuration)
{
    fth_status status = FTH_OK;
    fth_train_options options = {0};
    const json_t *stored = json_object_get(record->json, "configuration");

    *configuration = NULL;
    FTH_REQUIRE(json_is_object(stored), FTH_CORRUPT, "%s/run.json holds no configuration", url);
    FTH_TRY(fth_options_set_defaults(&fth_train_option_table, &options));
    FTH_TRY(fth_options_from_json(&fth_train_option_table, &options, stored, url));
    *configuration = fth_options_to_json(&fth_train_option_table, &options, true);
    FTH_REQUIRE(*configuration, FTH_NO_MEMORY, "no memory for the options");

out:
    fth_options_release(&fth_train_option_table, &options);
    return status;
}

/* Names the first option that differs, with both values; how long to go on is not such an option. */
static fth_status compare_options(const fth_beginning *beginning, const json_t *stored, const char *id, const char *url)
{
    fth_status status = FTH_OK;
    json_t *asked = fth_options_to_json(&fth_train_option_table, &beginning->options, true);
    const char *name;
    json_t *value;
    char *there = NULL, *here = NULL;

    FTH_REQUIRE(asked, FTH_NO_MEMORY, "no memory for the options");
    json_object_foreach(asked, name, value)
    {
        const json_t *before = json_object_get(stored, name);
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

/* The run in the store is the one that is asked for; how long it goes on is as stored, or as given now. */
static fth_status check_same(fth_beginning *beginning, const fth_stored_record *record, const char *url, bool standby)
{
    fth_status status = FTH_OK;
    json_t *stored = NULL;
    const char *id = json_string_value(json_object_get(record->json, "id"));

    FTH_REQUIRE(id && *id && fth_record_check_id(id) == FTH_OK, FTH_CORRUPT, "%s/run.json is not a run's", url);
    FTH_TRY(read_configuration(record, url, &stored));
    FTH_TRY(compare_options(beginning, stored, id, url));
    FTH_TRY(fth_beginning_take_limits(beginning, stored, standby));

out:
    json_decref(stored);
    return status;
}

/* Two runs of one name in one folder would be mixed up. */
static fth_status check_local(const char *folder, const fth_stored_record *record, const char *url)
{
    json_t *here = NULL;
    fth_status status = fth_record_exists(folder) ? fth_record_read_run(folder, &here) : FTH_OK;
    if (status == FTH_OK && here &&
        !json_equal(json_object_get(here, "created_s"), json_object_get(record->json, "created_s")))
        status = fth_fail(FTH_INVALID, "%s is another run than the one of that name in %s; give another --runs folder",
                          folder, url);
    json_decref(here);
    return status;
}

/* What is left to do in the run whose record is in the beginning's folder by now. */
static fth_status judge_record(fth_beginning *beginning, const fth_stored_record *record)
{
    fth_status status = FTH_OK;

    beginning->run = json_incref(record->json);
    beginning->stored_bytes = record->events_bytes;
    FTH_TRY(fth_beginning_keep_best_by(beginning));
    FTH_TRY(fth_beginning_check_finished(beginning));
    beginning->finished = beginning->finished && record->finished; /* an end that is only here is not stored */
    FTH_TRY(fth_beginning_check_budget(beginning));
    if (!beginning->finished)
        FTH_TRY(fth_beginning_check_longer(beginning, json_object_get(record->json, "configuration")));

out:
    return status;
}

/* The record of the store becomes a local run folder, from which everything goes on as for any run. */
static fth_status take_record(fth_beginning *beginning, fth_stored_record *record, const char *url)
{
    fth_status status = FTH_OK;
    const char *id = json_string_value(json_object_get(record->json, "id"));
    char *folder = fth_path_join(beginning->options.runs, id);

    FTH_TRY(check_local(folder, record, url));
    FTH_TRY(fth_record_restore(folder, record->run, record->events, record->events_bytes));
    beginning->folder = folder;
    folder = NULL;
    FTH_TRY(judge_record(beginning, record));

out:
    free(folder);
    return status;
}

/* A standby is for the run that was announced, even if its machine vanished before the first step. */
static fth_status read_stored(fth_trainer *trainer, bool standby, fth_stored_record *record)
{
    fth_status status = fth_run_store_read(trainer->run_store, record);
    if (status == FTH_OK && record->run && (record->begun || standby))
        status = check_same(&trainer->beginning, record, fth_run_store_url(trainer->run_store), standby);
    return status;
}

/* Waits for the lease; what the process waited is not this run's time. */
static fth_status take_lease(fth_trainer *trainer, bool standby)
{
    double began_s = fth_clock_seconds();
    fth_status status = fth_run_store_take(trainer->run_store, trainer->stop, standby);
    fth_spending_set_takeover(trainer->spending, fth_clock_seconds() - began_s,
                              fth_run_store_previous_seen_s(trainer->run_store),
                              fth_run_store_previous_process_s(trainer->run_store));
    return status;
}

/* Takes the lease and reads the run as its last owner left it. A standby whose run was given up before it took a step
 * goes on standing by. */
static fth_status take_run(fth_trainer *trainer, bool standby, fth_stored_record *record)
{
    fth_status status = FTH_OK;
    for (;;) {
        FTH_TRY(take_lease(trainer, standby));
        fth_stored_record_release(record);
        FTH_TRY(read_stored(trainer, standby, record));
        if (record->run || !standby)
            break;
        FTH_TRY(fth_run_store_release(trainer->run_store));
    }
    if (record->run && !record->begun)
        FTH_TRY(fth_run_store_discard(trainer->run_store));

out:
    return status;
}

static void forget_record(fth_beginning *beginning)
{
    free(beginning->folder);
    beginning->folder = NULL;
    json_decref(beginning->run);
    beginning->run = NULL;
}

/* A run that ended is over, without a lease, unless more is asked for than it was given then. */
static fth_status check_over(fth_beginning *beginning, fth_stored_record *record, const char *url, bool *over)
{
    fth_status status = FTH_OK;
    *over = false;
    if (record->begun && !record->finished) /* said now, and not after waiting for its owner */
        FTH_TRY(fth_beginning_check_longer(beginning, json_object_get(record->json, "configuration")));
    if (!record->finished)
        goto out;
    FTH_TRY(take_record(beginning, record, url));
    *over = beginning->finished;
    if (!*over)
        forget_record(beginning);

out:
    return status;
}

fth_status fth_trainer_find_run(fth_trainer *trainer, const fth_train_options *asked)
{
    fth_status status = FTH_OK;
    fth_beginning *beginning = &trainer->beginning;
    fth_stored_record record = {0};
    bool over;

    if (!*asked->checkpoints)
        return fth_beginning_find(asked, beginning);
    FTH_TRY(fth_beginning_prepare(asked, beginning));
    FTH_TRY(fth_run_store_open(asked, &trainer->run_store));
    const char *url = fth_run_store_url(trainer->run_store);
    FTH_TRY(read_stored(trainer, asked->standby, &record));
    FTH_TRY(check_over(beginning, &record, url, &over));
    if (!over) { /* its owner may end it while we wait */
        FTH_TRY(take_run(trainer, asked->standby, &record));
        if (record.begun)
            FTH_TRY(take_record(beginning, &record, url));
        if (record.finished && !beginning->finished)
            fth_log_info("run %s had ended; more is asked of it now, and it goes on",
                         json_string_value(json_object_get(record.json, "id")));
    }
    free(beginning->options.checkpoints);
    beginning->options.checkpoints = fth_format("%s", url); /* what goes into the record has no secrets */

out:
    fth_stored_record_release(&record);
    return status;
}

fth_status fth_trainer_look_for_run(fth_trainer *trainer, const fth_train_options *asked, const char *folder)
{
    fth_status status = FTH_OK;
    fth_beginning *beginning = &trainer->beginning;
    fth_stored_record record = {0};

    if (!*asked->checkpoints)
        return fth_beginning_find(asked, beginning);
    FTH_TRY(fth_beginning_prepare(asked, beginning));
    FTH_TRY(fth_run_store_open(asked, &trainer->run_store));
    FTH_TRY(read_stored(trainer, asked->standby, &record));
    if (!record.begun)
        goto out;
    FTH_TRY(fth_record_restore(folder, record.run, record.events, record.events_bytes));
    beginning->folder = fth_format("%s", folder);
    FTH_TRY(judge_record(beginning, &record));

out:
    fth_stored_record_release(&record);
    return status;
}

/* ---- beginning ---- */

static bool is_same_folder(const char *left, const char *right)
{
    char *a = realpath(left, NULL), *b = realpath(right, NULL);
    bool same = a && b && strcmp(a, b) == 0;
    free(a);
    free(b);
    return same;
}

fth_status fth_trainer_open_store(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    const char *folder = fth_record_folder(fth_reporter_get_record(trainer->reporter));
    fth_saving *saving = &trainer->saving;
    fth_store *store = NULL;

    if (trainer->run_store) {
        store = fth_run_store_get(trainer->run_store);
        FTH_REQUIRE(!fth_store_folder(store) || !is_same_folder(fth_store_folder(store), folder), FTH_INVALID,
                    "--checkpoints %s is where this run keeps its record on this machine; choose another folder",
                    fth_store_folder(store));
    } else {
        FTH_TRY(fth_store_open(folder, NULL, &trainer->store));
        store = trainer->store;
    }
    *saving = (fth_saving){.place = {.store = store,
                                     .prefix = "checkpoints/",
                                     .keep = (int)trainer->setup.options->keep,
                                     .keep_for_s = trainer->setup.options->keep_for_s},
                           .run_store = trainer->run_store,
                           .best_path = trainer->best_path,
                           .name_suffix = ".json",
                           .written_step = -1};
    trainer->download_folder = fth_path_join(folder, "checkpoints");
    trainer->checkpoint_folder = fth_path_join(
        trainer->run_store && !fth_store_folder(store) ? fth_store_url(store) : fth_store_folder(store), "checkpoints");
    if (trainer->run_store) {
        saving->place.fence = fth_run_store_owner(trainer->run_store);
        saving->place.guard = fth_run_store_guard;
        saving->place.guard_context = trainer->run_store;
        saving->place.unconditional = strcmp(trainer->setup.options->lease, "off") == 0;
        snprintf(saving->name_suffix, sizeof saving->name_suffix, "-f%06lld.json", (long long)saving->place.fence);
    }

out:
    return status;
}

fth_status fth_trainer_begin_store(fth_trainer *trainer, bool resumed)
{
    fth_status status = FTH_OK;
    if (!trainer->run_store)
        return FTH_OK;
    FTH_TRY(fth_run_store_begin(trainer->run_store, fth_record_folder(fth_reporter_get_record(trainer->reporter)),
                                trainer->beginning.stored_bytes));
    FTH_TRY(fth_run_store_put_run(trainer->run_store, !resumed));

out:
    return status;
}

/* ---- models ---- */

bool fth_trainer_best_is_stored(const fth_trainer *trainer)
{
    char *key = NULL;
    if (trainer->run_store && trainer->position.state.best_step >= 0 &&
        fth_run_store_find_best(trainer->run_store, trainer->position.state.best_step, &key) != FTH_OK)
        fth_log_warning("%s", fth_error_message());
    bool stored = key != NULL;
    free(key);
    return stored;
}

/* ---- the end ---- */

static fth_status fetch_best(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    char *key = NULL;
    FTH_TRY(fth_run_store_find_best(trainer->run_store, trainer->position.state.best_step, &key));
    FTH_REQUIRE(key, FTH_IO, "the best model, of step %lld, is no longer in %s",
                (long long)trainer->position.state.best_step, fth_run_store_url(trainer->run_store));
    FTH_TRY(fth_store_get_file(fth_run_store_get(trainer->run_store), key, trainer->best_path, NULL));

out:
    free(key);
    return status;
}

fth_status fth_trainer_store_models(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    if (!trainer->run_store)
        return FTH_OK;
    if (!fth_file_exists(trainer->best_path) && trainer->position.state.best_step >= 0) /* another machine's */
        FTH_TRY(fetch_best(trainer));
    FTH_TRY(fth_run_store_put_model(trainer->run_store, "best.safetensors", trainer->best_path));
    FTH_TRY(fth_run_store_put_model(trainer->run_store, "last.safetensors", trainer->last_path));
    fth_run_store_tidy_best(trainer->run_store, true);

out:
    return status;
}

void fth_trainer_store_best_in_time(fth_trainer *trainer, const fth_stop_reason *reason)
{
    const double leaving_s = 1; /* for the record and the lease */
    double left_s = fth_deadline_left_seconds(reason->deadline) - leaving_s;
    bool with_checkpoint = !isfinite(left_s);
    if (!trainer->run_store || with_checkpoint || !fth_file_exists(trainer->best_path))
        return;
    if (left_s > 0 && fth_run_store_put_best_file(trainer->run_store, trainer->best_path, left_s) == FTH_OK)
        return;
    fth_log_warning("the best model so far may not be stored: %s", left_s > 0 ? fth_error_message() : "time is up");
}

void fth_trainer_fetch_models(fth_trainer *trainer)
{
    static const char *const names[] = {"best.safetensors", "last.safetensors"};
    for (size_t i = 0; trainer->run_store && i < FTH_COUNT_OF(names); i++) {
        char *path = fth_path_join(trainer->beginning.folder, names[i]);
        if (fth_run_store_fetch_model(trainer->run_store, names[i], path) != FTH_OK)
            fth_log_warning("%s", fth_error_message());
        free(path);
    }
}

void fth_trainer_discard_unbegun(fth_trainer *trainer)
{
    fth_run_store *store = trainer->run_store;
    bool was_stored = store && fth_run_store_is_mirrored(store);
    if (!trainer->reporter || !fth_reporter_discard_unbegun(trainer->reporter))
        return;
    if (was_stored && !fth_run_store_is_lost(store) && fth_run_store_discard(store) != FTH_OK)
        fth_log_warning("%s keeps the record of a run that never took a step, which the next one replaces: %s",
                        fth_run_store_url(store), fth_error_message());
}

fth_status fth_trainer_leave_store(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    if (!trainer->run_store)
        return FTH_OK;
    status = fth_run_store_flush(trainer->run_store);
    if (status == FTH_PEER_LOST)
        return status;
    char *message = status == FTH_OK ? NULL : fth_format("%s", fth_error_message());
    fth_status released = fth_run_store_release(trainer->run_store);
    if (released != FTH_OK && released != FTH_PEER_LOST)
        fth_log_warning("the lease could not be given up and lapses by itself: %s", fth_error_message());
    if (message)
        fth_fail(status, "%s", message);
    free(message);
    return status;
}
