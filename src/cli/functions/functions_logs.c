/* farthing functions logs: what a function's invocation wrote. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/functions/functions_cli.h"

typedef struct logs_options {
    fth_option_bits set;
    fth_provider_flags platform;
    bool json;
} logs_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, logs_options, member)
static const fth_option rows[] = {
    FTH_PROVIDER_ROWS(offsetof(logs_options, platform)),
    {ROW("json", SWITCH, json), .help = "as one JSON object, {\"name\", \"id\", \"logs\"}"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, logs_options);

static void show(const logs_options *asked, const char *name, const char *id, char *text)
{
    if (asked->json) {
        json_t *json = json_pack("{s:o, s:o}", "name", fth_cli_json_text(name), "logs", fth_cli_json_text(text));
        if (id)
            json_object_set_new(json, "id", fth_cli_json_text(id));
        fth_cli_print_json_new(json);
        return;
    }
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line || rest) /* not for what follows the last newline */
            fth_print_line(stdout, "%s", line);
}

static fth_status fetch(const logs_options *asked, const char *name, const char *id)
{
    fth_status status = FTH_OK;
    fth_provider *provider = NULL;
    char *text = NULL;
    FTH_TRY(fth_cli_open_provider(&asked->platform, NULL, &provider));
    FTH_TRY(provider->kind->logs(provider, name, id, &text));
    show(asked, name, id, text);

out:
    fth_cli_close_provider(provider);
    free(text);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    if (arguments->count < 1 || arguments->count > 2)
        return fth_cli_usage(command, "missing the function's name: farthing functions logs NAME [ID]");
    return fth_cli_exit_code(fetch(options, arguments->positional[0], arguments->positional[1]));
}

const fth_command fth_functions_logs = {
    .name = "functions logs",
    .arguments = "NAME [ID] [--flag value ...]",
    .summary = "print what an invocation of a function wrote",
    .details =
        "ID is an invocation's id, as `functions status NAME` and `functions invoke` show it; default: the last one.\n",
    .examples = (const fth_example[]){{"farthing functions logs mnist --provider openwhisk", NULL}, {0}},
    .table = &table,
    .run = run,
};
