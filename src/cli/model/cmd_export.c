/* farthing export: a trained model as a file for other programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/save.h"
#include "cli/model/model_flags.h"
#include "cli/model/weights.h"
#include "cli/store/s3_flags.h"
#include "report/report.h"

typedef struct export_options {
    fth_option_bits set;
    fth_model_flags model;
    fth_s3_flags s3;
    char *to, *out;
    int64_t classes;
} export_options;

#define AT(member)              offsetof(export_options, member)
#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, export_options, member)

static const fth_option export_rows[] = {
    FTH_MODEL_FLAG_ROWS(AT(model)),
    {ROW("to", CHOICE, to), .fallback = "onnx", .argument = "FORMAT",
     .help = "safetensors, with PyTorch's names; onnx, opset 17; or huggingface, a folder for transformers",
     .choices = fth_save_formats},
    {ROW("out", TEXT, out), .argument = "FILE", .help = "file to write, or folder of huggingface; -: standard output"},
    {ROW("classes", INTEGER, classes), .fallback = "0", .argument = "N", .help = "number of classes; 0: as in the file",
     .minimum = 0, .maximum = 1 << 20},
    FTH_S3_FLAG_ROWS(AT(s3)),
};
static const fth_option_table export_table = FTH_OPTION_TABLE(export_rows, export_options);

static fth_status export_model(const export_options *options)
{
    fth_status status = FTH_OK;
    fth_model_facts given = {
        .classes = (int)options->classes, .height = (int)options->model.size, .width = (int)options->model.size};
    fth_classifier *classifier = NULL;
    fth_cli_weights weights = {0};
    const fth_store_options store = fth_s3_store_options(&options->s3, 0);

    FTH_TRY(fth_output_prepare(options->out));
    FTH_TRY(fth_normalization_parse(options->model.normalize, &given.normalization));
    if (*options->model.name)
        FTH_TRY(fth_model_apply_stem(options->model.name, options->model.stem, &given.model));
    FTH_TRY(fth_cli_find_weights(options->model.weights, options->model.runs, &store, &weights));
    FTH_TRY(fth_classifier_open(&(fth_classifier_options){.weights = weights.path, .given = &given, .device = "cpu"},
                                &classifier));
    FTH_TRY(fth_save_model(classifier, options->to, options->out));
    const fth_model_facts *facts = fth_classifier_facts(classifier);
    if (facts->text.longest > 0)
        fth_print_line(stdout, "%s: %s for texts of up to %d tokens and %s, from %s", fth_output_label(options->out),
                       facts->model, facts->text.longest, FTH_COUNTED(facts->classes, "class"), weights.name);
    else
        fth_print_line(stdout, "%s: %s for %dx%dx%d images and %d classes, from %s", fth_output_label(options->out),
                       facts->model, facts->channels, facts->height, facts->width, facts->classes, weights.name);
    if (facts->normalization_assumed)
        fth_log_warning("%s does not say how its model's images are normalized, so %s does not either: set it with "
                        "--normalize",
                        weights.name, fth_output_label(options->out));

out:
    fth_classifier_free(classifier);
    fth_model_facts_release(&given);
    fth_cli_weights_release(&weights);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const export_options *asked = options;
    (void)arguments;
    if (!*asked->model.weights)
        return fth_cli_usage(command, "missing the model: give --weights FILE or --weights RUN");
    if (!*asked->out)
        return fth_cli_usage(command, "missing the output: give --out FILE");
    if (strcmp(asked->to, "huggingface") == 0 && strcmp(asked->out, "-") == 0)
        return fth_cli_usage(command, "--to huggingface writes a folder, not standard output: give --out FOLDER");
    return fth_cli_exit_code(export_model(asked));
}

const fth_command fth_command_export = {
    .name = "export",
    .arguments = "--weights FILE|RUN --to safetensors|onnx|huggingface --out FILE [--model NAME --classes N --size N]",
    .summary = "write a model for PyTorch, transformers or ONNX",
    .details = "ONNX files take \"images\" (N, C, H, W), normalized as the metadata says, and return\n\"logits\" (N, "
               "classes). Models for text take \"input_ids\", \"attention_mask\" and \"token_type_ids\"\n(N, length), "
               "padded as usual. A folder for transformers has the tokenizer as well.\n",
    .table = &export_table,
    .flags_only = true,
    .examples =
        (const fth_example[]){{"farthing export --weights RUN --to onnx --out model.onnx", "for onnxruntime"},
                              {"farthing export --weights RUN --to huggingface --out my-bert", "for from_pretrained()"},
                              {0}},
    .run = run,
};
