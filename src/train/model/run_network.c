/* See run_network.h. */
#include "train/model/run_network.h"

#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "model/exported_model.h"
#include "train/setup/usual.h"

enum { MAX_TEXT_BYTES = 64 << 20 };

static bool is_exported(const fth_train_options *options)
{
    return options->own.network ? fth_exported_model_text(options->own.network) != NULL
                                : fth_exported_model_is_name(options->model);
}

static bool are_equal(const fth_model *a, const fth_model *b)
{
    return strcmp(fth_exported_model_digest(a), fth_exported_model_digest(b)) == 0;
}

/* The network that the command has: the embedding program's, that of the weights, or the file's. */
static fth_status find_asked(const fth_train_options *options, const fth_model **model)
{
    *model = options->own.network;
    return *model ? FTH_OK : fth_model_find(options->model, model);
}

/* ---- finding it ---- */

static void note_change(const fth_train_options *options, const fth_model *kept, const char *run)
{
    const fth_model *now = NULL;
    if (!options->own.network && !fth_file_exists(options->model))
        return;
    if (find_asked(options, &now) == FTH_OK && are_equal(now, kept))
        return;
    fth_log_warning("%s has another network than when %s began; the run keeps its own", options->model, run);
}

fth_status fth_run_network_find(fth_train_options *options, const char *folder)
{
    fth_status status = FTH_OK;
    const fth_model *model = NULL;
    char *path = folder ? fth_path_join(folder, FTH_RUN_NETWORK) : NULL, *text = NULL;
    size_t size = 0;

    if (!is_exported(options))
        goto out;
    if (path && fth_file_exists(path)) {
        FTH_TRY(fth_file_read_all(path, MAX_TEXT_BYTES, &text, &size));
        FTH_TRY(fth_exported_model_parse(text, size, options->model, path, &model));
        note_change(options, model, folder);
    } else {
        FTH_TRY(find_asked(options, &model));
    }
    options->own.network = model;

out:
    free(path);
    free(text);
    return status;
}

fth_status fth_run_network_take(fth_train_options *options, const char *text, const char *origin)
{
    const fth_model *model = NULL;
    fth_status status = fth_exported_model_parse(text, strlen(text), options->model, origin, &model);
    if (status != FTH_OK)
        return status;
    options->own.network = model;
    return FTH_OK;
}

const char *fth_run_network_text(const fth_train_options *options)
{
    return options->own.network ? fth_exported_model_text(options->own.network) : NULL;
}

fth_status fth_run_network_write(const fth_train_options *options, const char *folder)
{
    fth_status status = FTH_OK;
    const char *text = fth_run_network_text(options);
    char *path = fth_path_join(folder, FTH_RUN_NETWORK);

    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    if (text)
        FTH_TRY(fth_file_write_all(path, text, strlen(text)));

out:
    free(path);
    return status;
}

/* ---- the weights in the file ---- */

fth_status fth_run_network_find_weights(const fth_train_options *options, const char **path)
{
    const fth_model *now = NULL;
    *path = NULL;
    if (*options->weights || !is_exported(options))
        return FTH_OK;
    fth_status status = fth_model_find(options->model, &now);
    if (status != FTH_OK)
        return status;
    if (options->own.network && !are_equal(now, options->own.network))
        return fth_fail(FTH_INVALID,
                        "%s has another network than when the run began, which has no checkpoint yet: put the file "
                        "back, or start a new run",
                        options->model);
    *path = options->model;
    return FTH_OK;
}

/* ---- images ---- */

fth_status fth_run_network_choose_size(const fth_train_options *options, int64_t *size, char **transform)
{
    const fth_model *model = options->own.network;
    const fth_train_images *images = &options->images;

    *size = 0;
    *transform = NULL;
    if (!fth_run_network_text(options) || model->height <= 1 || images->size > 0 ||
        fth_transform_has_size(images->transform) || fth_transform_has_size(images->validation_transform))
        return FTH_OK;
    if (model->height == model->width) {
        *size = model->height;
        return FTH_OK;
    }
    *transform = fth_format("size=%dx%d%s%s", model->height, model->width, *images->validation_transform ? "," : "",
                            images->validation_transform);
    return *transform ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a transform");
}

fth_status fth_run_network_fit_images(fth_train_options *options)
{
    int64_t size = 0;
    char *transform = NULL;
    fth_status status = fth_run_network_choose_size(options, &size, &transform);
    if (size > 0)
        options->images.size = size;
    if (transform) {
        free(options->images.validation_transform);
        options->images.validation_transform = transform;
    }
    return status;
}
