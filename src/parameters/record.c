/* See record.h. */
#include "parameters/record.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "model/exported_model.h"

struct fth_served_record {
    char *state_folder;
    bool resumed;
    pthread_mutex_t mutex; /* guards appending to the record */
    fth_record *record;
};

char *fth_served_record_find(const fth_train_options *train, const char *checkpoints)
{
    char *path = NULL, *text = NULL, *run_json = NULL, *folder = NULL;
    size_t size = 0;
    if (checkpoints) {
        path = fth_path_join(checkpoints, "run.txt");
        if (fth_file_exists(path) && fth_file_read_all(path, 4096, &text, &size) == FTH_OK) {
            text[strcspn(text, "\n")] = '\0';
            folder = fth_format("%s", text);
        }
    } else if (*train->saving.name) {
        folder = fth_path_join(train->saving.runs, train->saving.name);
    }
    if (folder) {
        run_json = fth_path_join(folder, "run.json");
        if (!fth_file_exists(run_json)) {
            free(folder);
            folder = NULL;
        }
    }
    free(path);
    free(text);
    free(run_json);
    return folder;
}

fth_status fth_served_record_open(const fth_train_options *train, const char *checkpoints, json_t *description,
                                  json_t *machine, fth_served_record **result)
{
    fth_status status = FTH_OK;
    fth_served_record *record = NULL;
    char *folder = fth_served_record_find(train, checkpoints), *hint = NULL, *path = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *record, &record));
    pthread_mutex_init(&record->mutex, NULL);
    FTH_REQUIRE(description, FTH_NO_MEMORY, "no memory for the run's description");
    record->resumed = folder != NULL;
    if (folder) {
        FTH_TRY(fth_record_resume(folder, &record->record));
        FTH_TRY(fth_record_configure(record->record, description, machine));
    } else {
        const char *name = fth_exported_model_short_name(train->model);
        hint = fth_format("%.*s-server", (int)strcspn(name, fth_exported_model_is_name(name) ? "." : ""), name);
        FTH_TRY(fth_record_create(train->saving.runs, train->saving.name, hint, description, machine, &record->record));
    }
    record->state_folder =
        checkpoints ? fth_format("%s", checkpoints) : fth_path_join(fth_record_folder(record->record), "checkpoints");
    FTH_TRY(fth_folder_create(record->state_folder));
    if (checkpoints) {
        path = fth_path_join(record->state_folder, "run.txt");
        FTH_TRY(fth_file_write_all(path, fth_record_folder(record->record), strlen(fth_record_folder(record->record))));
    }
    *result = record;
    record = NULL;

out:
    fth_served_record_free(record);
    free(folder);
    free(hint);
    free(path);
    return status;
}

void fth_served_record_free(fth_served_record *record)
{
    if (!record)
        return;
    fth_record_free(record->record);
    pthread_mutex_destroy(&record->mutex);
    free(record->state_folder);
    free(record);
}

bool fth_served_record_resumed(const fth_served_record *record)
{
    return record->resumed;
}

const char *fth_served_record_id(const fth_served_record *record)
{
    return fth_record_id(record->record);
}

const char *fth_served_record_folder(const fth_served_record *record)
{
    return fth_record_folder(record->record);
}

const char *fth_served_record_state_folder(const fth_served_record *record)
{
    return record->state_folder;
}

void fth_served_record_append(fth_served_record *record, const char *name, json_t *event)
{
    if (!event)
        return;
    pthread_mutex_lock(&record->mutex);
    if (fth_record_append(record->record, name, event) != FTH_OK)
        fth_log_warning("cannot record an event: %s", fth_error_message());
    pthread_mutex_unlock(&record->mutex);
}

void fth_served_record_warn(fth_served_record *record, int64_t step, const char *message)
{
    fth_log_warning("%s", message);
    fth_served_record_append(record, "warning", json_pack("{s:I, s:s}", "step", (json_int_t)step, "message", message));
}

void fth_served_record_sync(fth_served_record *record)
{
    pthread_mutex_lock(&record->mutex);
    FTH_IGNORE(fth_record_sync(record->record), "the record reports its own failures");
    pthread_mutex_unlock(&record->mutex);
}
