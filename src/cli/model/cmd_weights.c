/* farthing weights: lists the contents of a file of weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model/model_flags.h"
#include "cli/model/weights.h"
#include "cli/store/s3_flags.h"
#include "report/report.h"
#include "tensor/weights.h"

typedef struct weights_options {
    fth_option_bits set;
    fth_s3_flags s3;
    char *runs;
    bool json;
} weights_options;

#define AT(member)              offsetof(weights_options, member)
#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, weights_options, member)

static const fth_option weights_rows[] = {
    {ROW("json", SWITCH, json), .help = "print one JSON object", .group = "Options"},
    {ROW("runs", TEXT, runs), .fallback = "runs", .argument = "FOLDER", .help = "folder with the runs",
     .check = fth_record_check_runs_folder},
    FTH_S3_FLAG_ROWS(AT(s3)),
};
static const fth_option_table weights_table = FTH_OPTION_TABLE(weights_rows, weights_options);

/* ---- what there is to say ---- */

typedef struct totals {
    int64_t parameters, bytes;
} totals;

static bool ends_in(const char *text, const char *ending)
{
    size_t length = strlen(text), ending_length = strlen(ending);
    return length >= ending_length && strcmp(text + length - ending_length, ending) == 0;
}

/* Batch norms keep statistics beside what is trained. */
static bool is_statistic(const char *name)
{
    return ends_in(name, "running_mean") || ends_in(name, "running_var") || ends_in(name, "num_batches_tracked");
}

static totals add_up(const fth_weights *weights)
{
    totals sum = {0};
    for (size_t i = 0; i < fth_weights_count(weights); i++) {
        const fth_tensor_view *view = fth_weights_get(weights, i);
        int64_t count = fth_shape_count(&view->shape);
        sum.bytes += count * (int64_t)fth_dtype_size_bytes(view->dtype);
        sum.parameters += is_statistic(view->name) ? 0 : count;
    }
    return sum;
}

/* ---- as JSON ---- */

static void add_json_metadata(void *context, const char *key, const char *value)
{
    json_object_set_new(context, key, json_string(value));
}

static json_t *tensors_json(const fth_weights *weights)
{
    json_t *array = json_array();
    for (size_t i = 0; i < fth_weights_count(weights); i++) {
        const fth_tensor_view *view = fth_weights_get(weights, i);
        json_t *shape = json_array();
        for (int d = 0; d < view->shape.rank; d++)
            json_array_append_new(shape, json_integer(view->shape.dims[d]));
        json_t *tensor = json_pack("{s:s, s:o, s:I}", "dtype", fth_dtype_name(view->dtype), "shape", shape, "count",
                                   (json_int_t)fth_shape_count(&view->shape));
        json_object_set_new(tensor, "name", fth_cli_json_text(view->name));
        json_array_append_new(array, tensor);
    }
    return array;
}

static void print_json(const char *name, const fth_weights *weights, const fth_model_fit *fit)
{
    fth_weights_facts facts = fth_weights_describe(weights);
    totals sum = add_up(weights);
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "format", facts.format, "key", facts.key,
                             "removed_prefix", facts.removed_prefix, "removed_markers", facts.removed_markers,
                             "skipped_classes", facts.skipped_classes, "left_out", (json_int_t)facts.left_out_count,
                             "parameters", (json_int_t)sum.parameters, "bytes", (json_int_t)sum.bytes);
    json_t *metadata = json_object();
    fth_weights_visit_metadata(weights, add_json_metadata, metadata);
    json_object_set_new(json, "file", fth_cli_json_text(name));
    json_object_set_new(json, "metadata", metadata);
    json_object_set_new(json, "fits",
                        fit->model && fit->fits
                            ? json_pack("{s:s, s:i, s:i, s:s}", "model", fit->model->name, "channels", fit->channels,
                                        "classes", fit->classes, "prefix", fit->prefix)
                            : json_null());
    json_object_set_new(json, "tensors", tensors_json(weights));
    fth_cli_print_json_new(json);
}

/* ---- for people ---- */

static void print_metadata(void *context, const char *key, const char *value)
{
    enum { SHOWN = 100 };
    bool *first = context;
    if (*first)
        putchar('\n');
    fth_print_line(stdout, "%-14s %.*s%s", key, SHOWN, value, strlen(value) > SHOWN ? "..." : "");
    *first = false;
}

static void print_fit(const fth_weights *weights, const fth_model_fit *fit)
{
    const bool exported = fth_weights_metadata(weights, "farthing") && fth_weights_metadata(weights, "network");
    const char *prefix = fit->prefix ? fit->prefix : "", *before = *prefix ? " (its tensors begin with " : "",
               *behind = *prefix ? ")" : "";
    if (fit->model && fit->fits && fit->model->build_text) /* classes: those of a new head where the file has none */
        fth_print_line(stdout, "fits %s, a model for text%s%s%s", fit->model->name, before, prefix, behind);
    else if (fit->model && fit->fits)
        fth_print_line(stdout, "fits %s with %s and %s%s%s%s", fit->model->name,
                       FTH_COUNTED(fit->channels, "input channel"), FTH_COUNTED(fit->classes, "class"), before, prefix,
                       behind);
    else if (fit->model)
        fth_print_line(stdout, "has the names of %s, with shapes for another image size than usual", fit->model->name);
    else if (exported)
        fth_print_line(stdout, "of %s, a network that PyTorch exported, which the file carries",
                       fth_weights_metadata(weights, "model"));
    else if (strcmp(fth_weights_describe(weights).format, "PyTorch's exported program") == 0)
        fth_print_line(stdout, "a network with its weights: farthing train --model %s", fth_weights_origin(weights));
    else
        fth_print_line(stdout, "fits none of the models that `farthing models` lists");
}

static fth_status print_table(const fth_weights *weights)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;

    FTH_TRY(FTH_TABLE(&table, "name", "dtype", "shape", ">numbers"));
    for (size_t i = 0; i < fth_weights_count(weights); i++) {
        const fth_tensor_view *view = fth_weights_get(weights, i);
        char shape[128], count[64];
        fth_shape_format(&view->shape, shape, sizeof shape);
        fth_text_count(fth_shape_count(&view->shape), count, sizeof count);
        FTH_TRY(fth_table_add_row(table, (const char *[]){view->name, fth_dtype_name(view->dtype), shape, count}));
    }
    putchar('\n');
    fth_table_print(stdout, table);

out:
    fth_table_free(table);
    return status;
}

static fth_status print_text(const char *name, const fth_weights *weights, const fth_model_fit *fit)
{
    totals sum = add_up(weights);
    char bytes[64], *explanation = fth_weights_explain(weights);
    bool first = true;

    fth_text_bytes(sum.bytes, bytes, sizeof bytes);
    fth_print_line(stdout, "%s: %s, %s, %s, %s", name, fth_weights_describe(weights).format,
                   FTH_COUNTED(fth_weights_count(weights), "tensor"), FTH_COUNTED(sum.parameters, "parameter"), bytes);
    if (explanation)
        fth_print_line(stdout, "%s", explanation);
    print_fit(weights, fit);
    fth_weights_visit_metadata(weights, print_metadata, &first);
    free(explanation);
    return print_table(weights);
}

static fth_status show(const weights_options *options, const char *text)
{
    fth_status status = FTH_OK;
    fth_cli_weights found = {0};
    fth_weights *weights = NULL;
    fth_model_fit fit = {0};
    const fth_store_options store = fth_s3_store_options(&options->s3, 0);

    FTH_TRY(fth_cli_find_weights(text, options->runs, &store, &found));
    FTH_TRY(fth_weights_open(found.path, &weights));
    status = fth_model_recognize(weights, &fit);
    if (status == FTH_UNSUPPORTED) /* of a network that is known, and not built in: its tensors can be shown */
        fth_log_warning("%s", fth_error_message());
    else
        FTH_TRY(status);
    status = FTH_OK;
    if (options->json)
        print_json(found.name, weights, &fit);
    else
        FTH_TRY(print_text(found.name, weights, &fit));

out:
    fth_model_fit_release(&fit);
    fth_weights_free(weights);
    fth_cli_weights_release(&found);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    if (arguments->count != 1)
        return fth_cli_usage(command, arguments->count ? "one file at a time" : "no file was named");
    return fth_cli_exit_code(show(options, arguments->positional[0]));
}

const fth_command fth_command_weights = {
    .name = "weights",
    .arguments = "FILE[:KEY]|RUN [--json]",
    .summary = "list the tensors in a file of weights",
    .details = "Lists names, types and shapes of the tensors, the file's metadata, where in it the weights were found, "
               "and\nwhich model they fit. docs/WEIGHTS.md lists the formats that are read.\n",
    .table = &weights_table,
    .examples = (const fth_example[]){{"farthing weights model.pth", "what is in it, and which model it fits"}, {0}},
    .run = run,
};
