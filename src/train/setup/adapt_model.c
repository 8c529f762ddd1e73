/* Options adapted to the data: the network, and the optimizer and learning rate that are usual for
 * it, where the options leave the choice. */
#include <stdio.h>
#include <string.h>

#include "train/options/optimizer.h"
#include "train/setup/setup.h"
#include "train/setup/usual.h"

/* A run that is continued keeps what was chosen at its beginning. */
static fth_status take_from_run(fth_run_selection *selection)
{
    static const char *const names[] = {"model", "optimizer", "lr"};
    fth_status status = FTH_OK;
    fth_train_options *options = &selection->options;
    const json_t *stored = json_object_get(selection->run, "configuration");
    json_t *chosen = json_object();

    FTH_REQUIRE(chosen, FTH_NO_MEMORY, "no memory for the options");
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++)
        if (fth_usual_is_open(options, names[i]) && json_object_get(stored, names[i]))
            json_object_set(chosen, names[i], json_object_get(stored, names[i]));
    FTH_TRY(fth_options_from_json(&fth_train_option_table, options, chosen, "the run"));

out:
    json_decref(chosen);
    return status;
}

static void report_choice(const fth_train_options *options, const fth_dataset_info *info, const fth_usual *usual)
{
    char input[64] = "text";
    if (info->modality == FTH_MODALITY_IMAGES)
        snprintf(input, sizeof input, "images of %d × %d pixels", info->height, info->width);
    if (fth_usual_needs_data(options))
        fth_log_info("no --model given: training %s, the default for %s", usual->model, input);
    if (!fth_options_is_set(&fth_train_option_table, options, "optimizer") &&
        strcmp(usual->optimizer, fth_optimizer_default()) != 0)
        fth_log_info("no --optimizer given: %s at a learning rate of %g, the default for %s", usual->optimizer,
                     usual->lr, usual->model);
}

fth_status fth_adapt_model(fth_run_selection *selection, const fth_strategy *strategy, const fth_dataset_info *info,
                           json_t *configuration)
{
    fth_status status = FTH_OK;
    fth_train_options *options = &selection->options;
    fth_usual usual;

    FTH_TRY(take_from_run(selection));
    FTH_TRY(fth_usual_find(options, info, &usual));
    if (!selection->run && strategy->optimizer != FTH_OPTIMIZER_OF_SERVER)
        report_choice(options, info, &usual);
    FTH_TRY(fth_usual_apply(options, info));
    json_object_set_new(configuration, "model", json_string(options->model));
    json_object_set_new(configuration, "optimizer", json_string(options->optimizer.name));
    json_object_set_new(configuration, "lr", json_real(options->optimizer.lr));
    FTH_TRY(fth_train_options_check(options));
    FTH_TRY(fth_options_check_length(options));

out:
    return status;
}
