/* Options adapted to weights and data: what a run uses where options are silent, or ask for more
 * than there is.
 *
 * The record keeps what was asked, so that the same command means the same run; run.json has what
 * came of it too, which a continued run uses. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "batches/client/client.h"
#include "train/model/classifier.h"
#include "train/setup/setup.h"
#include "train/setup/usual.h"

bool fth_options_say_normalization(const fth_train_options *options)
{
    return *options->images.normalize || fth_transform_get_normalization(options->images.transform).channels > 0 ||
           fth_transform_get_normalization(options->images.validation_transform).channels > 0;
}

fth_status fth_options_find_normalization(const fth_train_options *options, char text[FTH_NORMALIZATION_TEXT])
{
    fth_status status = FTH_OK;
    fth_weights *weights = NULL;
    fth_model_facts facts = {0};

    text[0] = '\0';
    if (!*options->weights || fth_options_say_normalization(options))
        return FTH_OK;
    FTH_TRY(fth_weights_open(options->weights, &weights));
    FTH_TRY(fth_model_facts_of_file(weights, options->weights, &facts));
    fth_normalization_format(&facts.normalization, text);

out:
    fth_model_facts_release(&facts);
    fth_weights_free(weights);
    return status;
}

fth_status fth_adapt_normalization(fth_run_selection *selection, const fth_strategy *strategy, bool *assumed)
{
    fth_train_options *options = &selection->options;
    const json_t *data = json_object_get(selection->run, "data");
    const char *before = json_string_value(json_object_get(data, "normalization"));
    char text[FTH_NORMALIZATION_TEXT] = "";
    fth_status status = FTH_OK;

    *assumed = false;
    if (fth_options_say_normalization(options))
        return FTH_OK;
    if (before) {
        snprintf(text, sizeof text, "%s", before);
        FTH_REQUIRE(fth_normalization_check(text) == FTH_OK, FTH_CORRUPT, "%s/run.json: %s",
                    selection->folder ? selection->folder : selection->id, fth_error_message());
    } else if (!selection->run && strategy->optimizer != FTH_OPTIMIZER_OF_SERVER) {
        FTH_TRY(fth_options_find_normalization(options, text)); /* a worker's weights are the server's */
        if (*text)
            fth_log_info("normalizing images as %s, which %s was trained with", text, options->weights);
        *assumed = *options->weights && !*text;
    }
    if (*text) {
        free(options->images.normalize);
        options->images.normalize = fth_format("%s", text);
    }

out:
    return status;
}

fth_status fth_adapt_batch_cache(fth_run_selection *selection)
{
    fth_train_options *options = &selection->options;
    const json_t *chosen = json_object_get(json_object_get(selection->run, "data"), "batch_cache");
    const char *name = json_string_value(json_object_get(chosen, "form"));
    fth_cache_format form;
    if (!chosen || !fth_batches_is_address(options->data.address))
        return FTH_OK;
    if (!name || !fth_cache_format_find(name, &form) || !json_is_integer(json_object_get(chosen, "rotation")))
        return fth_fail(FTH_CORRUPT, "%s/run.json: what was chosen for the batch cache cannot be read",
                        selection->folder ? selection->folder : selection->id);
    char *address =
        fth_batches_address_with(options->data.address, form, json_integer_value(json_object_get(chosen, "rotation")));
    if (!address)
        return fth_fail(FTH_NO_MEMORY, "no memory for an address");
    free(options->data.address);
    options->data.address = address;
    return FTH_OK;
}

fth_status fth_adapt_split(fth_run_selection *selection)
{
    fth_train_options *options = &selection->options;
    const json_t *stored = json_object_get(json_object_get(selection->run, "configuration"), "validation-split");
    if (!fth_usual_is_open(options, "validation-split"))
        return FTH_OK;
    if (selection->run && stored) {
        json_t *split = json_pack("{s:O}", "validation-split", stored);
        fth_status status = fth_options_from_json(&fth_train_option_table, options, split, "run.json");
        json_decref(split);
        return status;
    }
    if (selection->run) /* of a version without the option */
        options->data.validation_split = FTH_SPLIT_RANDOM;
    else if (!fth_batches_is_address(options->data.address))
        options->data.validation_split = FTH_SPLIT_STRATIFIED;
    return FTH_OK;
}

fth_status fth_adapt_check_split(fth_run_selection *selection, const fth_dataset_info *info, json_t *configuration)
{
    fth_train_options *options = &selection->options;
    const fth_validation_split found =
        info->held_out.fraction == 0 || info->held_out.by_class ? FTH_SPLIT_STRATIFIED : FTH_SPLIT_RANDOM;
    const char *name = NULL;
    fth_status status = FTH_OK;

    if (options->data.validation_split == FTH_SPLIT_AUTO)
        options->data.validation_split = found;
    name = fth_validation_split_names[options->data.validation_split];
    FTH_REQUIRE(info->held_out.fraction == 0 || !fth_batches_is_address(options->data.address) ||
                    options->data.validation_split == found,
                FTH_INVALID,
                "%s holds out %s samples for validation, and this run %s ones: start its coordinator with "
                "--validation-split %s",
                options->data.address, fth_validation_split_names[found], name, name);
    json_object_set_new(configuration, "validation-split", json_string(name));

out:
    return status;
}

void fth_adapt_threads(fth_train_options *options, int processors)
{
    if (options->threads == 0 && processors > 0)
        options->threads = processors;
}

void fth_adapt_batch(fth_train_options *options, int64_t samples)
{
    if (options->batch <= samples || samples == 0)
        return;
    fth_log_info("--batch %" PRId64 " is more than the %s of %s%s%s: using batches of %" PRId64, options->batch,
                 FTH_COUNTED(samples, "training sample"), *options->data.share ? "share " : "", options->data.share,
                 *options->data.share ? "" : options->data.address, samples);
    options->batch = samples;
}
