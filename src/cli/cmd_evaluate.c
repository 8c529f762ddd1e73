/* farthing evaluate: weights on the validation part of a data set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/weights.h"
#include "report/report.h"

/* The configuration of the run that the weights are of. */
static fth_status read_configuration(const fth_train_options *options, const char *run, const fth_store_options *store,
                                     json_t **configuration)
{
    fth_status status = FTH_OK;
    fth_record_summary summary = {0};
    FTH_TRY(fth_cli_read_run(options->runs, run, store, &summary));
    *configuration = json_deep_copy(json_object_get(summary.run, "configuration"));
    FTH_REQUIRE(*configuration, FTH_CORRUPT, "%s/run.json has no configuration", summary.folder);
    json_object_del(*configuration, "weights"); /* where that run started from */
    json_object_del(*configuration, "json");
out:
    fth_record_release(&summary);
    return status;
}

/* Finds the weights that are meant and, where they are a run's, its configuration. */
static fth_status open_weights(const fth_train_options *options, const char *text, fth_cli_weights *weights,
                               json_t **configuration)
{
    fth_status status = FTH_OK;
    const fth_store_options store = {
        .s3_endpoint = options->s3_endpoint, .s3_region = options->s3_region, .s3_style = options->s3_style};
    FTH_TRY(fth_cli_find_weights(text, options->runs, &store, weights));
    if (weights->run)
        FTH_TRY(read_configuration(options, weights->run, &store, configuration));
out:
    return status;
}

static void print_result(const fth_train_options *options, const char *weights, const fth_evaluation *result)
{
    if (options->json) {
        json_t *event = json_pack("{s:s, s:f, s:o, s:I, s:f, s:s}", "event", "evaluation", "accuracy", result->accuracy,
                                  "loss", fth_json_number(result->loss), "samples", (json_int_t)result->samples,
                                  "seconds", result->seconds, "weights", weights);
        fth_cli_print_json(event);
        json_decref(event);
        return;
    }
    char accuracy[64], loss[64], time[64];
    fth_text_percent(result->accuracy, accuracy, sizeof accuracy);
    fth_text_loss(result->loss, loss, sizeof loss);
    fth_duration_format(result->seconds, time, sizeof time);
    fth_print_line(stdout, "%s on %s: accuracy %s, loss %s over %s in %s; weights %s", options->model, options->data,
                   accuracy, loss, FTH_COUNTED(result->samples, "image"), time, weights);
}

static fth_exit_code run(const fth_command *command, const fth_invocation *invocation)
{
    fth_train_options options = {0};
    fth_arguments arguments = {0};
    fth_exit_code code;
    json_t *configuration = NULL;
    fth_cli_weights weights = {0};
    const char *file = NULL, *named = NULL;

    if (!fth_cli_read_flags(command, invocation, &fth_train_option_table, &options, &arguments, &code))
        goto out;
    for (int i = 0; i < arguments.count; i++) {
        const char **place = fth_cli_is_yaml(arguments.positional[i]) ? &file : &named;
        if (*place) {
            code = fth_cli_usage(command, "one FILE.yaml and one run at most: %s, %s", *place, arguments.positional[i]);
            goto out;
        }
        *place = arguments.positional[i];
    }
    if (file && !fth_cli_layer_options(invocation, NULL, file, &options, &code))
        goto out;
    if (!named && *options.weights)
        named = options.weights;
    if (!named) {
        code = fth_cli_usage(command, "say which weights: --weights FILE, or a run");
        goto out;
    }
    if (open_weights(&options, named, &weights, &configuration) != FTH_OK) {
        code = fth_cli_fail();
        goto out;
    }
    if (configuration && !fth_cli_layer_options(invocation, configuration, file, &options, &code))
        goto out;
    free(options.weights);
    options.weights = fth_format("%s", weights.path);
    if (fth_train_options_settle(&options) != FTH_OK ||
        fth_train_options_adopt_model(&options, configuration != NULL) != FTH_OK) {
        code = fth_cli_fail();
        goto out;
    }
    fth_evaluation result;
    code = fth_evaluate(&options, &result) == FTH_OK ? FTH_EXIT_OK : fth_cli_fail();
    if (code == FTH_EXIT_OK)
        print_result(&options, weights.name, &result);
out:
    fth_cli_weights_release(&weights);
    json_decref(configuration);
    fth_options_release(&fth_train_option_table, &options);
    fth_arguments_release(&arguments);
    return code;
}

const fth_command fth_command_evaluate = {
    .name = "evaluate",
    .arguments = "[FILE.yaml] [FILE|RUN] [--data NAME --weights FILE|RUN --model NAME] [--json]",
    .summary = "measure a model on the validation part of a data set",
    .details =
        "A RUN (id, folder or address in a store) stands for its configuration and its best model; flags win over\n"
        "both. A FILE, also in a store, is of the model that it says or whose tensors it has.\n",
    .computes = true,
    .options = {.command = FTH_FOR_EVALUATE},
    .run = run,
};
