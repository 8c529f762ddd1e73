/* farthing report and farthing compare: what the run records say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/store/s3_flags.h"
#include "report/report.h"

typedef struct report_options {
    fth_option_bits set;
    bool json;
    char *chart, *runs, *price, *prices, *over;
    int64_t columns;
    fth_s3_flags s3;
} report_options;

static fth_status check_price(const char *text)
{
    double usd;
    return fth_usd_parse(text, &usd);
}

static const char *const axes[] = {[FTH_OVER_DEFAULT] = "default",
                                   [FTH_OVER_STEPS] = "steps",
                                   [FTH_OVER_EPOCHS] = "epochs",
                                   [FTH_OVER_TIME] = "time",
                                   NULL};

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, report_options, member)
static const fth_option report_rows[] = {
    {ROW("json", SWITCH, json), .help = "print JSON, one object per run", .group = "Options"},
    {ROW("chart", TEXT, chart), .argument = "FILE",
     .help = "also draw loss and accuracy, or how runs scale, into FILE.png or FILE.svg; png:- and svg:- are "
             "standard output",
     .check = fth_report_check_picture},
    {ROW("over", CHOICE, over), .fallback = "default", .argument = "WHAT",
     .help = "what the curves of compare, and of pictures, are drawn over", .choices = axes},
    {ROW("columns", INTEGER, columns), .fallback = "0", .argument = "N",
     .help = "width of the chart in characters; 0: as wide as the terminal, 120 at most", .minimum = 0,
     .maximum = 1000},
    {ROW("runs", TEXT, runs), .fallback = "runs", .argument = "FOLDER", .help = "folder with the runs",
     .check = fth_record_check_runs_folder},
    {ROW("price", TEXT, price), .argument = "USD",
     .help = "dollars an hour of the machines whose price the record does not know", .check = check_price},
    {ROW("prices", TEXT, prices), .argument = "FILE",
     .help = "catalogue of functions' prices; else FARTHING_PRICES, ~/.config/farthing/prices.yaml or the built-in "
             "examples"},
    FTH_S3_FLAG_ROWS(offsetof(report_options, s3)),
};
static const fth_option_table report_table = FTH_OPTION_TABLE(report_rows, report_options);

enum { WIDEST_CHART = 120 };

static int chart_columns(const report_options *options)
{
    int columns = fth_terminal_columns(stdout);
    if (options->columns > 0)
        return (int)options->columns;
    return columns > WIDEST_CHART ? WIDEST_CHART : columns;
}

static fth_chart_axis chosen_axis(const report_options *options)
{
    int axis = FTH_OVER_DEFAULT;
    while (axes[axis + 1] && strcmp(axes[axis], options->over) != 0)
        axis++;
    return (fth_chart_axis)axis;
}

/* If gnuplot fails, the tables are still printed, and *drawn is false. */
static fth_status draw_chart(const report_options *options, const fth_record_summary *runs, size_t count, bool scales,
                             bool *drawn)
{
    fth_status status = FTH_OK;
    const char *output = fth_report_picture_output(options->chart);
    FTH_TRY(fth_output_prepare(output));
    status = scales ? fth_report_scaling_picture(options->chart, runs, count)
                    : fth_report_picture(options->chart, runs, count, chosen_axis(options));
    *drawn = status == FTH_OK;
    if (*drawn)
        fth_log_info("chart written to %s", fth_output_label(output));
    if (status == FTH_UNSUPPORTED || status == FTH_TIMEOUT) {
        fth_log_error("%s is left out: %s", fth_output_label(output), fth_error_message());
        status = FTH_OK;
    }
out:
    return status;
}

static fth_status print_runs(const report_options *options, const fth_record_summary *runs, size_t count,
                             const fth_catalogue *catalogue, bool compare, bool *drawn)
{
    fth_status status = FTH_OK;
    const bool scales = !compare && count > 1 && fth_report_scales(runs, count);
    *drawn = true;
    if (*options->chart) /* first: a picture that cannot be drawn should not need looking for below the tables */
        FTH_TRY(draw_chart(options, runs, count, scales, drawn));
    for (size_t i = 0; options->json && i < count; i++) {
        json_t *json = fth_report_json(&runs[i], catalogue);
        fth_cli_print_json_new(json);
    }
    if (!options->json && compare)
        FTH_TRY(fth_report_compare(stdout, runs, count, chosen_axis(options), chart_columns(options)));
    if (!options->json && scales) {
        FTH_TRY(fth_report_scaling(stdout, runs, count, chart_columns(options)));
        fputc('\n', stdout);
    }
    if (!options->json && !compare && count > 1)
        FTH_TRY(fth_report_bills(stdout, runs, count));
    if (!options->json && !compare && count == 1)
        FTH_TRY(fth_report_run(stdout, &runs[0], catalogue, chart_columns(options)));
out:
    return status;
}

/* Reads the catalogue only if it is needed, so that a mistake in it does not matter otherwise. */
static fth_status price_functions(const report_options *options, fth_record_summary *runs, size_t count,
                                  fth_catalogue *catalogue)
{
    bool needed = *options->prices;
    for (size_t i = 0; i < count; i++)
        needed = needed || fth_ledger_has_functions(&runs[i]);
    fth_status status = needed ? fth_catalogue_open(options->prices, catalogue) : FTH_OK;
    for (size_t i = 0; i < count && needed && status == FTH_OK; i++)
        fth_ledger_price_functions(&runs[i], catalogue);
    return status;
}

/* `report` shows one run, the newest if none is named, or what several cost; `compare` shows the
 * runs named. */
static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const report_options *asked = options;
    const bool compare = command == &fth_command_compare;
    fth_status status = FTH_OK;
    fth_record_summary *runs = NULL;
    fth_catalogue catalogue = {0};
    size_t count = 0, expected = arguments->count > 0 ? (size_t)arguments->count : 1;
    bool drawn = true;
    double usd_per_hour = 0;
    const fth_store_options store = fth_s3_store_options(&asked->s3, 0);

    if (compare && arguments->count < 2)
        return fth_cli_usage(command, "compare needs at least two runs");
    if (*asked->price)
        FTH_IGNORE(fth_usd_parse(asked->price, &usd_per_hour), "checked when it was read");
    FTH_TRY(fth_allocate(expected, sizeof *runs, &runs));
    for (; count < expected; count++)
        FTH_TRY(fth_cli_read_run(asked->runs, arguments->count > 0 ? arguments->positional[count] : "", &store,
                                 &runs[count]));
    for (size_t i = 0; i < count && *asked->price; i++)
        fth_ledger_assume_price(&runs[i], usd_per_hour, "report --price");
    FTH_TRY(price_functions(asked, runs, count, &catalogue));
    if (compare)
        fth_report_rank(runs, count);
    FTH_TRY(print_runs(asked, runs, count, catalogue.name ? &catalogue : NULL, compare, &drawn));

out:
    for (size_t i = 0; i < count; i++)
        fth_record_release(&runs[i]);
    free(runs);
    fth_catalogue_release(&catalogue);
    fth_exit_code code = fth_cli_exit_code(status);
    return drawn ? code : FTH_EXIT_FAILURE;
}

const fth_command fth_command_report = {
    .name = "report",
    .arguments = "[RUN|URL ...] [--json] [--chart FILE.png|FILE.svg] [--price USD]",
    .summary = "show what a run did and cost: tables and charts",
    .details = "RUN is an id, a folder, or where --checkpoints put it (s3://bucket/run); left out, it is the newest.\n"
               "Works on runs that are still going.\n"
               "Of several runs it shows what each of their machines cost; `compare` shows their results.\n"
               "Of several data-parallel runs it shows how training scales with the number of workers.\n",
    .table = &report_table,
    .examples = (const fth_example[]){{"farthing report", "the newest run"},
                                      {"farthing report RUN --chart curves.svg", "with a picture of its curves"},
                                      {0}},
    .run = run,
};

const fth_command fth_command_compare = {
    .name = "compare",
    .arguments = "RUN RUN... [--over time] [--json] [--chart FILE.png|FILE.svg]",
    .summary = "show runs side by side, the best first",
    .details = "The best is the run whose best model has the highest validation accuracy, or else the lowest loss. "
               "Speeds are relative to it.\n",
    .table = &report_table,
    .examples = (const fth_example[]){{"farthing compare RUN RUN --over time", "side by side, over time"}, {0}},
    .run = run,
};
