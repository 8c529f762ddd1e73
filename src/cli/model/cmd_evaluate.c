/* farthing evaluate: weights on the validation part of a data set. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/model/weights.h"
#include "report/classes.h"
#include "report/report.h"

/* The configuration of the run that the weights belong to. */
static fth_status read_configuration(const fth_train_options *options, const char *run, const fth_store_options *store,
                                     json_t **configuration)
{
    fth_status status = FTH_OK;
    fth_record_summary summary = {0};
    FTH_TRY(fth_cli_read_run(options->saving.runs, run, store, &summary));
    *configuration = json_deep_copy(json_object_get(summary.run, "configuration"));
    FTH_REQUIRE(*configuration, FTH_CORRUPT, "%s/run.json has no configuration", summary.folder);
    json_object_del(*configuration, "weights"); /* where that run started from */
    json_object_del(*configuration, "json");
out:
    fth_record_release(&summary);
    return status;
}

/* Finds the weights and, if they are a run's, its configuration. */
static fth_status open_weights(const fth_train_options *options, const char *text, fth_cli_weights *weights,
                               json_t **configuration)
{
    fth_status status = FTH_OK;
    const fth_store_options store = {.s3_endpoint = options->store.s3_endpoint,
                                     .s3_region = options->store.s3_region,
                                     .s3_style = options->store.s3_style};
    FTH_TRY(fth_cli_find_weights(text, options->saving.runs, &store, weights));
    if (weights->run)
        FTH_TRY(read_configuration(options, weights->run, &store, configuration));
out:
    return status;
}

/* ---- results ---- */

enum { MOST_LISTED = 20 /* classes that are listed by default */, MOST_IN_JSON = 100 };

static void print_result_json(const fth_train_options *options, const char *weights, const fth_evaluation *result,
                              fth_confusion *confusion)
{
    json_t *event = json_pack("{s:s, s:s, s:o, s:o, s:I, s:f, s:s}", "event", "evaluation", "part", "validation",
                              "accuracy", fth_json_number(result->accuracy), "loss", fth_json_number(result->loss),
                              "samples", (json_int_t)result->samples, "seconds", result->seconds, "weights", weights);
    if (confusion)
        json_object_set_new(event, "classes", fth_report_classes_json(confusion));
    if (*options->confusion && confusion)
        json_object_set_new(event, "mistakes", fth_report_mistakes_json(confusion));
    if (*options->confusion && confusion && fth_confusion_classes(confusion) <= MOST_IN_JSON)
        json_object_set_new(event, "confusion", fth_report_confusion_json(confusion));
    fth_cli_print_json_new(event);
}

static fth_status print_result(const fth_train_options *options, const char *weights, const fth_evaluation *result,
                               fth_confusion *confusion)
{
    fth_status status = FTH_OK;
    char accuracy[64], loss[64], time[64];
    bool asked = fth_options_is_set(&fth_train_option_table, options, "per-class");
    fth_text_percent(result->accuracy, accuracy, sizeof accuracy);
    fth_text_loss(result->loss, loss, sizeof loss);
    fth_duration_format(result->seconds, time, sizeof time);
    fth_print_line(stdout, "%s on %s: validation accuracy %s, loss %s over %s in %s; weights %s", options->model,
                   options->data.address, accuracy, loss, FTH_COUNTED(result->samples, "sample"), time, weights);
    if (!confusion)
        return FTH_OK;
    if (asked ? options->per_class : fth_confusion_classes(confusion) <= MOST_LISTED) {
        putchar('\n');
        FTH_TRY(fth_report_classes(stdout, confusion));
    }
    if (strcmp(options->confusion, "auto") == 0) {
        putchar('\n');
        int columns = isatty(STDOUT_FILENO) ? fth_terminal_columns(stdout) : INT_MAX;
        FTH_TRY(fth_report_confusion(stdout, confusion, columns));
    } else if (*options->confusion) {
        fth_print_line(stdout, "confusion matrix: %s", options->confusion);
    }

out:
    return status;
}

static fth_status write_confusion(const char *path, fth_confusion *confusion)
{
    fth_status status = FTH_OK;
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    FTH_REQUIRE(memory, FTH_NO_MEMORY, "no memory for the confusion matrix");
    fth_report_confusion_csv(memory, confusion);
    bool whole = ferror(memory) == 0;
    FTH_REQUIRE(fclose(memory) == 0 && whole, FTH_NO_MEMORY, "no memory for the confusion matrix");
    FTH_TRY(fth_file_write_output(path, text, size));

out:
    free(text);
    return status;
}

/* `weights` is their name for the user. */
static fth_exit_code evaluate(const fth_train_options *options, const char *weights)
{
    fth_status status = FTH_OK;
    fth_evaluation result;
    fth_confusion *confusion = NULL;

    FTH_TRY(fth_evaluate(options, &confusion, &result));
    FTH_REQUIRE(confusion || !(*options->confusion || options->per_class), FTH_INVALID,
                "--confusion and --per-class need labels that are classes; leave them out");
    if (*options->confusion && strcmp(options->confusion, "auto") != 0)
        FTH_TRY(write_confusion(options->confusion, confusion));
    if (options->json)
        print_result_json(options, weights, &result, confusion);
    else
        FTH_TRY(print_result(options, weights, &result, confusion));

out:
    fth_confusion_free(confusion);
    return status == FTH_OK ? FTH_EXIT_OK : fth_cli_fail();
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    fth_train_options *asked = options;
    const fth_invocation *invocation = arguments->invocation;
    fth_exit_code code = FTH_EXIT_OK;
    json_t *configuration = NULL;
    fth_cli_weights weights = {0};
    const char *file = NULL, *named = NULL;

    for (int i = 0; i < arguments->count; i++) {
        const char *argument = arguments->positional[i], **place = fth_cli_is_yaml(argument) ? &file : &named;
        if (*place)
            return fth_cli_usage(command, "one FILE.yaml and one run at most: %s, %s", *place, argument);
        *place = argument;
    }
    if (file && !fth_cli_layer_options(invocation, NULL, file, asked, &code))
        return code;
    if (!named && *asked->weights)
        named = asked->weights;
    if (!named)
        return fth_cli_usage(command, "missing the weights: give --weights FILE, or a run");
    if (open_weights(asked, named, &weights, &configuration) != FTH_OK)
        code = fth_cli_fail();
    else if (!configuration || fth_cli_layer_options(invocation, configuration, file, asked, &code)) {
        free(asked->weights);
        asked->weights = fth_format("%s", weights.path);
        if (fth_train_options_resolve(asked) != FTH_OK ||
            fth_train_options_adopt_model(asked, configuration != NULL) != FTH_OK)
            code = fth_cli_fail();
        else
            code = evaluate(asked, weights.name);
    }
    fth_cli_weights_release(&weights);
    json_decref(configuration);
    return code;
}

const fth_command fth_command_evaluate = {
    .name = "evaluate",
    .arguments = "[FILE.yaml] [FILE|RUN] [--data NAME] [--model NAME] [--confusion [FILE.csv]] [--json]",
    .summary = "measure a model on the validation part of a data set",
    .details = "A RUN (id, folder or address in a store) provides its configuration and its best model; flags override "
               "them.\nThe model of a FILE, also in a store, is the one that it names or that its tensors fit.\n",
    .computes = true,
    .make_table = fth_cli_train_table,
    .options = {.command = FTH_FOR_EVALUATE},
    .examples = (const fth_example[]){{"farthing evaluate RUN --confusion", "the best model of a run"},
                                      {"farthing evaluate --weights model.pth --model resnet18 --data ./photos",
                                       "a file from elsewhere"},
                                      {0}},
    .run = run,
};
