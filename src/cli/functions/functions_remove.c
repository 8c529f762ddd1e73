/* farthing functions remove: removes functions from a platform. */
#include <stdio.h>

#include "cli/functions/functions_cli.h"

typedef struct remove_options {
    fth_option_bits set;
    fth_provider_flags platform;
    bool json;
} remove_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, remove_options, member)
static const fth_option rows[] = {
    FTH_PROVIDER_ROWS(offsetof(remove_options, platform)),
    {ROW("json", SWITCH, json), .help = "report as one JSON object for each"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, remove_options);

static void show(const remove_options *asked, const char *name)
{
    if (asked->json) {
        fth_cli_print_json_new(json_pack("{s:s, s:o}", "event", "removed", "name", fth_cli_json_text(name)));
        return;
    }
    fth_print_line(stdout, "removed %s from %s", name, asked->platform.provider);
}

static fth_status remove_all(const remove_options *asked, const fth_arguments *arguments)
{
    fth_status status = FTH_OK;
    fth_provider *provider = NULL;
    FTH_TRY(fth_cli_open_provider(&asked->platform, NULL, &provider));
    for (int i = 0; i < arguments->count; i++) {
        FTH_TRY(provider->kind->remove(provider, arguments->positional[i]));
        show(asked, arguments->positional[i]);
    }

out:
    fth_cli_close_provider(provider);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    if (arguments->count == 0)
        return fth_cli_usage(command, "missing the function's name: farthing functions remove NAME");
    return fth_cli_exit_code(remove_all(options, arguments));
}

const fth_command fth_functions_remove = {
    .name = "functions remove",
    .arguments = "NAME ... [--flag value ...]",
    .summary = "remove functions from a platform",
    .examples = (const fth_example[]){{"farthing functions remove mnist --provider lambda", NULL}, {0}},
    .table = &table,
    .run = run,
};
