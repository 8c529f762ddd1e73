/* farthing bench: measures a training step on random data in memory. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "train/engine/engine.h"
#include "train/options/optimizer.h"
#include "train/options/precision.h"

typedef struct bench_options {
    fth_option_bits set;
    char *model, *precision, *device, *optimizer, *times;
    int64_t batch, channels, height, width, classes, threads;
    double seconds;
} bench_options;

#define AT(member)              offsetof(bench_options, member)
#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, bench_options, member)

#define TEXT(member, default_value, shown, text)                                                                       \
    {                                                                                                                  \
        .name = #member, .type = FTH_OPTION_TEXT, .offset = AT(member), .fallback = default_value, .argument = shown,  \
        .help = text                                                                                                   \
    }
#define CHOICE(member, default_value, shown, text, choices_of)                                                         \
    {                                                                                                                  \
        .name = #member, .type = FTH_OPTION_CHOICE, .offset = AT(member), .fallback = default_value,                   \
        .argument = shown, .help = text, .list = choices_of                                                            \
    }
#define INTEGER(member, default_value, least, most, text)                                                              \
    {                                                                                                                  \
        .name = #member, .type = FTH_OPTION_INTEGER, .offset = AT(member), .fallback = default_value, .argument = "N", \
        .minimum = least, .maximum = most, .help = text                                                                \
    }

static const fth_option bench_rows[] = {
    {ROW("model", TEXT, model), .fallback = "mnist-cnn", .argument = "NAME", .list = fth_model_choice,
     .help = "network"},
    INTEGER(batch, "64", 1, 1e6, "images per batch"),
    INTEGER(channels, "0", 0, 1024, "channels of an image; 0: as published"),
    INTEGER(height, "0", 0, 65536, "height of an image; 0: as published"),
    INTEGER(width, "0", 0, 65536, "width of an image; 0: as published"),
    INTEGER(classes, "0", 0, 1e6, "classes; 0: as published"),
    INTEGER(threads, "0", 0, 4096, "threads that compute; 0: one per core"),
    CHOICE(precision, "f32", "TYPE", "type of the computation", fth_precision_choice),
    TEXT(device, "auto", "NAME", "back end"),
    CHOICE(optimizer, "sgd", "NAME", "rule of the update", fth_optimizer_choice),
    {ROW("seconds", DURATION, seconds), .fallback = "8", .argument = "TIME", .help = "how long to measure"},
    {ROW("times", TEXT, times), .fallback = "", .argument = "FILE",
     .help = "write the times of layers to FILE, for --device emulated; a step is then slower"},
};
static const fth_option_table bench_table = FTH_OPTION_TABLE(bench_rows, bench_options);

static fth_status set_number(fth_train_options *options, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return fth_options_set(&fth_train_option_table, options, name, text, name);
}

static int size_or(int64_t asked, int published)
{
    return asked > 0 ? (int)asked : published;
}

static fth_status measure(const bench_options *asked)
{
    const fth_option_table *table = &fth_train_option_table;
    fth_status status = FTH_OK;
    fth_train_options options = {0};
    const fth_model *model;
    fth_benchmark_result result = {0};

    FTH_TRY(fth_model_find(asked->model, &model));
    FTH_TRY(fth_options_set_defaults(table, &options));
    FTH_TRY(fth_options_set(table, &options, "model", asked->model, "--model"));
    FTH_TRY(fth_options_set(table, &options, "precision", asked->precision, "--precision"));
    FTH_TRY(fth_options_set(table, &options, "device", asked->device, "--device"));
    FTH_TRY(fth_options_set(table, &options, "optimizer", asked->optimizer, "--optimizer"));
    FTH_TRY(set_number(&options, "batch", asked->batch));
    FTH_TRY(set_number(&options, "threads", asked->threads));
    int channels = size_or(asked->channels, model->channels), height = size_or(asked->height, model->height);
    int width = size_or(asked->width, model->width), classes = size_or(asked->classes, model->classes);
    FTH_TRY(fth_benchmark(&options, channels, height, width, classes, asked->seconds,
                          *asked->times ? asked->times : NULL, &result));

    const double step_s = result.median_step_s;
    fth_cli_print_json_new(json_pack("{s:s, s:I, s:[iii], s:i, s:s, s:I, s:s, s:f, s:f}", "model", asked->model,
                                     "batch", (json_int_t)asked->batch, "input", channels, height, width, "classes",
                                     classes, "precision", asked->precision, "threads", (json_int_t)asked->threads,
                                     "device", result.device, "step_ms", 1e3 * step_s, "samples_per_s",
                                     step_s > 0 ? (double)asked->batch / step_s : 0.0));
out:
    fth_options_release(table, &options);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    (void)command, (void)arguments;
    return fth_cli_exit_code(measure(options));
}

const fth_command fth_command_bench = {
    .name = "bench",
    .arguments = "[--model NAME] [--batch N] [--height N --width N] ...",
    .summary = "measure training steps on random data; prints one JSON line",
    .for_developers = true,
    .computes = true,
    .table = &bench_table,
    .flags_only = true,
    .examples = (const fth_example[]){{"farthing bench --model resnet18 --batch 32", "a step of ResNet-18"}, {0}},
    .run = run,
};
