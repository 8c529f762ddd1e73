/* farthing evaluate: weights on the validation part of a data set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "report/report.h"

/* Turns a run, named by id or folder, into its configuration and model file. */
static fth_status open_run(const fth_train_options *options, const char *name, json_t **configuration, char **weights)
{
    fth_status status = FTH_OK;
    fth_record_summary summary = {0};
    fth_store_options store = {
        .s3_endpoint = options->s3_endpoint, .s3_region = options->s3_region, .s3_style = options->s3_style};
    FTH_TRY(fth_cli_read_run(options->runs, name, &store, &summary));
    FTH_TRY(fth_cli_find_model_file(summary.folder, weights));
    *configuration = json_deep_copy(json_object_get(summary.run, "configuration"));
    FTH_REQUIRE(*configuration, FTH_CORRUPT, "%s/run.json has no configuration", summary.folder);
    json_object_del(*configuration, "weights"); /* where that run started from */
    json_object_del(*configuration, "json");
out:
    fth_record_release(&summary);
    return status;
}

static void print_result(const fth_train_options *options, const fth_evaluation *result)
{
    if (options->json) {
        json_t *event = json_pack("{s:s, s:f, s:o, s:I, s:f, s:s}", "event", "evaluation", "accuracy", result->accuracy,
                                  "loss", fth_json_number(result->loss), "samples", (json_int_t)result->samples,
                                  "seconds", result->seconds, "weights", options->weights);
        fth_cli_print_json(event);
        json_decref(event);
        return;
    }
    char accuracy[64], loss[64], time[64];
    fth_text_percent(result->accuracy, accuracy, sizeof accuracy);
    fth_text_loss(result->loss, loss, sizeof loss);
    fth_duration_format(result->seconds, time, sizeof time);
    fth_print_line(stdout, "%s on %s: accuracy %s, loss %s over %s in %s; weights %s", options->model, options->data,
                   accuracy, loss, FTH_COUNTED(result->samples, "image"), time, options->weights);
}

static fth_exit_code run(const fth_command *command, const fth_invocation *invocation)
{
    fth_train_options options = {0};
    fth_arguments arguments = {0};
    fth_exit_code code;
    json_t *configuration = NULL;
    char *weights = NULL;
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
    if (!named && *options.weights && !fth_cli_is_weights_file(options.weights))
        named = options.weights;
    if (named) {
        if (open_run(&options, named, &configuration, &weights) != FTH_OK) {
            code = fth_cli_fail();
            goto out;
        }
        if (!fth_cli_layer_options(invocation, configuration, file, &options, &code))
            goto out;
        free(options.weights);
        options.weights = weights;
        weights = NULL;
    }
    if (!*options.weights) {
        code = fth_cli_usage(command, "say which weights: --weights FILE.safetensors, or a run");
        goto out;
    }
    fth_evaluation result;
    code = fth_evaluate(&options, &result) == FTH_OK ? FTH_EXIT_OK : fth_cli_fail();
    if (code == FTH_EXIT_OK)
        print_result(&options, &result);
out:
    free(weights);
    json_decref(configuration);
    fth_options_release(&fth_train_option_table, &options);
    fth_arguments_release(&arguments);
    return code;
}

const fth_command fth_command_evaluate = {
    .name = "evaluate",
    .arguments = "[FILE.yaml] [RUN] [--model NAME --data NAME --weights FILE|RUN] [--json]",
    .summary = "measure a model on the validation part of a data set",
    .details = "A RUN (its id or folder; of one in a store, copy the model) stands for its configuration and its best "
               "model; flags win over both.\n",
    .computes = true,
    .options = {.command = FTH_FOR_EVALUATE},
    .run = run,
};
