/* farthing models: lists the built-in networks. */
#include <stdio.h>

#include "cli/cli.h"
#include "model/model.h"
#include "report/report.h"

typedef struct models_options {
    fth_option_bits set;
    bool json;
} models_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, models_options, member)
static const fth_option models_rows[] = {
    {ROW("json", SWITCH, json), .help = "print JSON, one object per model", .group = "Options"},
};
static const fth_option_table models_table = FTH_OPTION_TABLE(models_rows, models_options);

static fth_status count_parameters(const fth_model *model, int64_t *count)
{
    fth_graph *graph = NULL;
    fth_model_options published = fth_model_published(model);
    fth_status status = fth_model_create_graph(model, &published, &graph);
    if (status == FTH_OK)
        *count = fth_graph_trainable_count(graph);
    fth_graph_free(graph);
    return status;
}

static void print_model_json(const fth_model *model, int64_t parameters)
{
    json_t *input = model->build_text
                        ? json_pack("{s:i, s:i}", "tokens", model->longest, "vocabulary", model->vocabulary)
                        : json_pack("[iii]", model->channels, model->height, model->width);
    fth_cli_print_json_new(json_pack("{s:s, s:I, s:o, s:i, s:s}", "name", model->name, "parameters",
                                     (json_int_t)parameters, "input", input, "classes", model->classes, "summary",
                                     model->summary));
}

static fth_status add_model(fth_table *table, const fth_model *model, int64_t parameters)
{
    char count[64], input[64], classes[64];
    fth_text_count(parameters, count, sizeof count);
    fth_text_count(model->classes, classes, sizeof classes);
    if (model->build_text)
        snprintf(input, sizeof input, "%d tokens", model->longest);
    else
        snprintf(input, sizeof input, "%dx%dx%d", model->channels, model->height, model->width);
    return fth_table_add_row(table, (const char *[]){model->name, count, input, classes, model->summary});
}

static fth_status print_models(bool json)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    FTH_TRY(FTH_TABLE(&table, "name", ">parameters", ">input", ">classes", "what it is"));
    for (size_t i = 0; fth_model_list[i]; i++) {
        int64_t parameters = 0;
        FTH_TRY(count_parameters(fth_model_list[i], &parameters));
        if (json)
            print_model_json(fth_model_list[i], parameters);
        else
            FTH_TRY(add_model(table, fth_model_list[i], parameters));
    }
    if (!json) {
        fth_table_print(stdout, table);
        printf("\nParameters at the size the model was published for; the data set decides size and classes.\n"
               "Text models come in any shape: --model 'bert(layers=6,hidden=384,heads=12,intermediate=1536)'.\n");
    }
out:
    fth_table_free(table);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const models_options *asked = options;
    (void)command, (void)arguments;
    return fth_cli_exit_code(print_models(asked->json));
}

const fth_command fth_command_models = {
    .name = "models",
    .arguments = "[--json]",
    .summary = "list the built-in networks",
    .table = &models_table,
    .flags_only = true,
    .examples = (const fth_example[]){{"farthing models --json", "for a script"}, {0}},
    .run = run,
};
