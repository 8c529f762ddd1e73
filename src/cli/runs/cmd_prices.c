/* farthing prices: the catalogue that bills are made from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cost/cost.h"
#include "report/report.h"

typedef struct prices_options {
    fth_option_bits set;
    char *prices;
    bool yaml, json;
} prices_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, prices_options, member)
static const fth_option prices_rows[] = {
    {ROW("prices", TEXT, prices), .argument = "FILE",
     .help = "catalogue to show; else FARTHING_PRICES, ~/.config/farthing/prices.yaml or the built-in examples",
     .group = "Options"},
    {ROW("yaml", SWITCH, yaml), .help = "print the built-in catalogue as a file to edit"},
    {ROW("json", SWITCH, json), .help = "print JSON, one a line"},
};
static const fth_option_table prices_table = FTH_OPTION_TABLE(prices_rows, prices_options);

static bool is_wanted(const char *cloud, const char *name, const fth_arguments *arguments)
{
    for (int i = 0; i < arguments->count; i++)
        if (strcasecmp(cloud, arguments->positional[i]) != 0 && !strcasestr(name, arguments->positional[i]))
            return false;
    return true;
}

static void print_json(const fth_price *price)
{
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:f, s:s}", "cloud", price->cloud, "instance", price->instance, "region",
                  price->region, "market", price->market, "usd_per_hour", price->usd_per_hour, "date", price->date);
    if (price->vcpus > 0)
        json_object_set_new(json, "vcpus", json_real(price->vcpus));
    fth_cli_print_json_new(json);
}

static void print_function_json(const fth_function_price *price)
{
    fth_cli_print_json_new(json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:s}", "cloud", price->cloud, "function",
                                     price->provider, "region", price->region, "usd_per_gb_second",
                                     price->usd_per_gb_second, "usd_per_million_requests",
                                     price->usd_per_million_requests, "usd_per_gb_out", price->usd_per_gb_out,
                                     "mb_per_vcpu", price->mb_per_vcpu, "date", price->date));
}

/* A table of functions' prices below the machines'. */
static fth_status show_functions(const prices_options *options, const fth_arguments *arguments,
                                 const fth_catalogue *catalogue, bool below, size_t *shown)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    size_t before = *shown;

    FTH_TRY(FTH_TABLE(&table, "cloud", "functions", "region", ">GB-second", ">million requests", ">GB out", "as of"));
    for (size_t i = 0; i < catalogue->function_count; i++) {
        const fth_function_price *price = &catalogue->functions[i];
        char second[32], requests[32], out[32];
        if (!is_wanted(price->cloud, price->provider, arguments))
            continue;
        ++*shown;
        if (options->json)
            print_function_json(price);
        snprintf(second, sizeof second, "$%.10f", price->usd_per_gb_second);
        fth_usd_format(price->usd_per_million_requests, requests, sizeof requests);
        fth_usd_format(price->usd_per_gb_out, out, sizeof out);
        FTH_TRY(fth_table_add_row(table, (const char *[]){price->cloud, price->provider,
                                                          *price->region ? price->region : "any", second, requests, out,
                                                          *price->date ? price->date : "-"}));
    }
    if (*shown > before && !options->json) {
        if (!below)
            fth_print_line(stdout, "%s", catalogue->name);
        putchar('\n');
        fth_table_print(stdout, table);
    }

out:
    fth_table_free(table);
    return status;
}

static fth_status show(const prices_options *options, const fth_arguments *arguments)
{
    fth_status status = FTH_OK;
    fth_catalogue catalogue = {0};
    fth_table *table = NULL;
    size_t shown = 0, machines = 0;

    FTH_TRY(fth_catalogue_open(options->prices, &catalogue));
    FTH_TRY(FTH_TABLE(&table, "cloud", "instance", "region", "market", ">an hour", "as of"));
    for (size_t i = 0; i < catalogue.count; i++) {
        const fth_price *price = &catalogue.prices[i];
        char amount[32];
        if (!is_wanted(price->cloud, price->instance, arguments))
            continue;
        shown++;
        if (options->json)
            print_json(price);
        fth_usd_format(price->usd_per_hour, amount, sizeof amount);
        FTH_TRY(fth_table_add_row(table, (const char *[]){price->cloud, price->instance,
                                                          *price->region ? price->region : "any", price->market, amount,
                                                          *price->date ? price->date : "-"}));
    }
    machines = shown;
    if (!options->json && machines > 0) {
        fth_print_line(stdout, "%s", catalogue.name);
        putchar('\n');
        fth_table_print(stdout, table);
    }
    FTH_TRY(show_functions(options, arguments, &catalogue, machines > 0, &shown));
    FTH_REQUIRE(shown > 0, FTH_INVALID,
                "%s has no such price; `farthing prices` lists those it has, and --prices FILE takes another",
                catalogue.name);

out:
    fth_table_free(table);
    fth_catalogue_release(&catalogue);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const prices_options *asked = options;
    (void)command;
    if (!asked->yaml)
        return fth_cli_exit_code(show(asked, arguments));
    fputs(fth_catalogue_builtin_text(), stdout);
    return FTH_EXIT_OK;
}

const fth_command fth_command_prices = {
    .name = "prices",
    .arguments = "[CLOUD] [TYPE] [--prices FILE] [--yaml]",
    .summary = "show the prices that costs are computed from",
    .details = "The built-in ones are dated examples. To have your own, edit a copy; it is found there:\n"
               "  farthing prices --yaml > ~/.config/farthing/prices.yaml\n",
    .table = &prices_table,
    .examples = (const fth_example[]){{"farthing prices aws g4dn", "what these machines cost"},
                                      {"farthing prices lambda", "what its functions cost"},
                                      {0}},
    .run = run,
};
