/* The models of a run in a store.
 *
 *     while it runs    best/step-<n>-f<owner>.safetensors, put before the checkpoint that knows it;
 *                      what it replaces is removed after that checkpoint, so that whatever a resume
 *                      starts from has its best model
 *     at the end       best.safetensors and last.safetensors
 *
 * A machine that sleeps between asking whether it owns the run and putting something may put it
 * when it no longer does. Names that carry step and owner make that harmless: nobody looks for
 * them. The names without are put under the condition that nothing has changed since before the
 * owner asked: each owner writes them, and what it writes either makes the sleeper's fail or goes
 * over it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/run/run_store_internal.h"

static const char best_folder[] = "best/";
static const char final_best[] = "best.safetensors", final_last[] = "last.safetensors";

static fth_status mapped_at(void *context, uint64_t offset, uint64_t size_bytes, const void **bytes)
{
    (void)size_bytes;
    *bytes = (const char *)context + offset;
    return FTH_OK;
}

/* ---- names without an owner ---- */

fth_status fth_run_store_put_as_owner(fth_run_store *run, const char *key, const void *bytes, size_t size_bytes,
                                      bool is_new)
{
    enum { TRIES = 3 };
    const uint64_t most_bytes = UINT64_C(5) << 30; /* that S3 puts under a condition; above it, the guard has to do */
    fth_status status = FTH_OK;
    fth_store_object object = {0};
    bool found = false;
    fth_store_progress progress = {.context = run, .moved = fth_run_store_may_go_on};
    fth_store_source source = {.context = (void *)bytes, .size_bytes = size_bytes, .at = mapped_at};

    for (int tries = 1;; tries++) {
        fth_store_put_options options = {.progress = &progress};
        FTH_TRY(fth_store_stat(run->store, key, &object, &found));
        FTH_TRY(fth_run_store_guard(run)); /* after the look: what it finds holds for what the look saw */
        if (is_new && found && run->lease)
            fth_run_store_set_lost(run);
        FTH_REQUIRE(!is_new || !found || !run->lease, FTH_PEER_LOST, "another machine has begun a run in %s meanwhile",
                    fth_run_store_url(run));
        if (run->lease && size_bytes <= most_bytes) {
            options.condition = found ? FTH_STORE_IF_MATCH : FTH_STORE_IF_ABSENT;
            options.match = object.version;
        }
        status = fth_store_put_source(run->store, key, &source, &options, NULL);
        if (status != FTH_INVALID || options.condition == FTH_STORE_ALWAYS || tries == TRIES)
            break;
        fth_store_object_release(&object);
    }
    if (status == FTH_INTERRUPTED && fth_run_store_is_lost(run)) /* cancelled by the guard, with its message */
        status = fth_run_store_guard(run);

out:
    fth_store_object_release(&object);
    return status;
}

static fth_status put_model(fth_run_store *run, const char *key, const char *path)
{
    fth_status status = FTH_OK;
    const void *bytes = NULL;
    size_t size = 0;
    if (!fth_file_exists(path))
        return FTH_OK;
    FTH_TRY(fth_file_map(path, &bytes, &size));
    FTH_TRY(fth_run_store_put_as_owner(run, key, bytes, size, false));

out:
    fth_file_unmap(bytes, size);
    return status;
}

/* ---- the best so far ---- */

typedef struct best {
    int64_t step, owner;
    char key[64];
} best;

static void name_best(best *model)
{
    snprintf(model->key, sizeof model->key, "%sstep-%012" PRId64 "-f%06" PRId64 ".safetensors", best_folder,
             model->step, model->owner);
}

/* The step in the metadata of a model file; -1 if it does not say. */
static int64_t step_of_header(const char *text, size_t size)
{
    json_t *header = json_loadb(text, size, 0, NULL);
    const char *value = json_string_value(json_object_get(json_object_get(header, "__metadata__"), "step"));
    int64_t step = value ? strtoll(value, NULL, 10) : -1;
    json_decref(header);
    return step;
}

static int64_t step_of_bytes(const void *bytes, size_t size)
{
    uint64_t header_bytes = 0;
    if (size < sizeof header_bytes)
        return -1;
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    return header_bytes <= size - sizeof header_bytes
               ? step_of_header((const char *)bytes + sizeof header_bytes, header_bytes)
               : -1;
}

static int64_t step_of_object(fth_store *store, const char *key)
{
    enum { MAX_HEADER_BYTES = 16 << 20 };
    fth_store_object object = {0};
    bool found = false;
    uint64_t size = 0;
    char *text = NULL;
    int64_t step = -1;
    if (fth_store_stat(store, key, &object, &found) == FTH_OK && found && object.size_bytes > sizeof size &&
        fth_store_get_range(store, key, 0, &size, sizeof size, &object.version) == FTH_OK && size <= MAX_HEADER_BYTES &&
        size < object.size_bytes && fth_allocate(size + 1, 1, &text) == FTH_OK &&
        fth_store_get_range(store, key, sizeof size, text, size, &object.version) == FTH_OK)
        step = step_of_header(text, size);
    free(text);
    fth_store_object_release(&object);
    return step;
}

static int64_t step_of_file(const char *path)
{
    const void *bytes = NULL;
    size_t size = 0;
    if (!fth_file_exists(path) || fth_file_map(path, &bytes, &size) != FTH_OK)
        return -1;
    int64_t step = step_of_bytes(bytes, size);
    fth_file_unmap(bytes, size);
    return step;
}

/* Unless the file is of the same step already. */
static fth_status fetch_model(fth_run_store *run, const char *key, const char *path)
{
    int64_t here = step_of_file(path); /* of an earlier end, if another machine has continued the run since */
    if (here >= 0 && here == step_of_object(run->store, key))
        return FTH_OK;
    return fth_store_get_file(run->store, key, path, NULL);
}

bool fth_run_store_has_best(const fth_run_store *run, int64_t step)
{
    return run->best_step == step;
}

fth_status fth_run_store_put_best(fth_run_store *run, const void *bytes, size_t size_bytes, double seconds)
{
    fth_status status = FTH_OK;
    best model = {.step = step_of_bytes(bytes, size_bytes), .owner = run->owner};
    fth_store_progress progress = {.context = run, .moved = fth_run_store_may_go_on};
    fth_store_source source = {.context = (void *)bytes, .size_bytes = size_bytes, .at = mapped_at};

    FTH_REQUIRE(model.step >= 0, FTH_CORRUPT, "the best model does not say of which step it is");
    if (fth_run_store_has_best(run, model.step))
        return FTH_OK;
    name_best(&model);
    FTH_TRY(fth_run_store_guard(run));
    FTH_TRY(fth_store_put_source(run->store, model.key, &source,
                                 &(fth_store_put_options){.progress = &progress, .deadline_s = seconds}, NULL));
    run->best_step = model.step;

out:
    return status;
}

static fth_status put_best_file(fth_run_store *run, const char *path, double seconds)
{
    fth_status status = FTH_OK;
    const void *bytes = NULL;
    size_t size = 0;
    if (!fth_file_exists(path))
        return FTH_OK;
    FTH_TRY(fth_file_map(path, &bytes, &size));
    FTH_TRY(fth_run_store_put_best(run, bytes, size, seconds));

out:
    fth_file_unmap(bytes, size);
    return status;
}

void fth_run_store_put_best_in_time(fth_run_store *run, const char *path, fth_deadline deadline)
{
    const double leaving_s = 1; /* for the record and the lease */
    double left_s = fth_deadline_left_seconds(deadline) - leaving_s;
    if (!isfinite(left_s) || !path || !fth_file_exists(path))
        return;
    if (left_s > 0 && put_best_file(run, path, left_s) == FTH_OK)
        return;
    fth_log_warning("the best model so far may not be stored: %s", left_s > 0 ? fth_error_message() : "time is up");
}

typedef struct best_list {
    best *models;
    size_t count, capacity;
    fth_status status;
} best_list;

static bool visit_best(void *context, const fth_store_object *object)
{
    best_list *list = context;
    best model = {0}, named;
    if (sscanf(object->key, "best/step-%12" SCNd64 "-f%" SCNd64 ".safetensors", &model.step, &model.owner) != 2)
        return true;
    named = model;
    name_best(&named);
    if (strcmp(named.key, object->key) != 0)
        return true;
    list->status = fth_grow(&list->models, list->count, &list->capacity, sizeof named);
    if (list->status == FTH_OK)
        list->models[list->count++] = named;
    return list->status == FTH_OK;
}

static fth_status list_best(fth_run_store *run, best_list *list)
{
    fth_status status = fth_store_list(run->store, best_folder, visit_best, list);
    return status == FTH_OK ? list->status : status;
}

fth_status fth_run_store_find_best(fth_run_store *run, int64_t step, char **key)
{
    fth_status status = FTH_OK;
    best_list list = {0};
    const best *newest = NULL;

    *key = NULL;
    FTH_TRY(list_best(run, &list));
    for (size_t i = 0; i < list.count; i++)
        if (list.models[i].step == step && (!newest || list.models[i].owner > newest->owner))
            newest = &list.models[i];
    if (newest)
        *key = fth_format("%s", newest->key);
    else if (step_of_object(run->store, final_best) == step) /* of a run that had ended, or an older version's */
        *key = fth_format("%s", final_best);

out:
    free(list.models);
    return status;
}

void fth_run_store_tidy_best(fth_run_store *run, bool all)
{
    fth_status status = FTH_OK;
    best_list list = {0};

    if (!all && run->best_tidied == run->best_step)
        return;
    FTH_TRY(list_best(run, &list));
    FTH_TRY(fth_run_store_guard(run));
    for (size_t i = 0; i < list.count; i++) {
        const best *model = &list.models[i];
        bool current = model->owner == run->owner && model->step == run->best_step;
        if (model->owner <= run->owner && (all || !current))
            FTH_TRY(fth_store_delete(run->store, model->key));
    }
    run->best_tidied = run->best_step;

out:
    free(list.models);
    if (status != FTH_OK && status != FTH_PEER_LOST)
        fth_log_warning("old best models stay: %s", fth_error_message());
}

/* ---- at the end ---- */

static fth_status fetch_best(fth_run_store *run, int64_t step, const char *path)
{
    fth_status status = FTH_OK;
    char *key = NULL;
    FTH_TRY(fth_run_store_find_best(run, step, &key));
    FTH_REQUIRE(key, FTH_IO, "the best model, of step %" PRId64 ", is no longer in %s", step, fth_run_store_url(run));
    FTH_TRY(fth_store_get_file(run->store, key, path, NULL));

out:
    free(key);
    return status;
}

fth_status fth_run_store_put_models(fth_run_store *run, int64_t best_step, const char *best_path, const char *last_path)
{
    fth_status status = FTH_OK;
    if (!fth_file_exists(best_path) && best_step >= 0) /* another machine's */
        FTH_TRY(fetch_best(run, best_step, best_path));
    FTH_TRY(put_model(run, final_best, best_path));
    FTH_TRY(put_model(run, final_last, last_path));
    fth_run_store_tidy_best(run, true);

out:
    return status;
}

void fth_run_store_fetch_models(fth_run_store *run, const char *folder)
{
    const char *const names[] = {final_best, final_last};
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        char *path = fth_path_join(folder, names[i]);
        if (fetch_model(run, names[i], path) != FTH_OK)
            fth_log_warning("%s", fth_error_message());
        free(path);
    }
}
