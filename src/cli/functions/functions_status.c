/* farthing functions status: the functions of a platform, or one and its last invocations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/functions/functions_cli.h"
#include "report/report.h"

typedef struct status_options {
    fth_option_bits set;
    fth_provider_flags platform;
    bool json;
} status_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, status_options, member)
static const fth_option rows[] = {
    FTH_PROVIDER_ROWS(offsetof(status_options, platform)),
    {ROW("json", SWITCH, json), .help = "as one JSON array"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, status_options);

enum { CELL = 64 };

static void write_number(const json_t *row, const char *key, const char *format, char text[CELL])
{
    const json_t *value = json_object_get(row, key);
    snprintf(text, CELL, json_is_number(value) ? format : "-", json_number_value(value));
}

static void write_time(const json_t *row, const char *key, char text[CELL])
{
    const json_t *value = json_object_get(row, key);
    snprintf(text, CELL, "-");
    if (json_is_number(value))
        fth_duration_format(json_number_value(value), text, CELL);
}

static fth_status print_functions(const json_t *list)
{
    fth_status status = FTH_OK;
    fth_table *shown = NULL;
    size_t i;
    json_t *row;

    FTH_TRY(FTH_TABLE(&shown, "function", "state", ">memory", ">timeout", "code", "updated"));
    json_array_foreach(list, i, row)
    {
        char memory[CELL], timeout[CELL], code[CELL];
        const char *image = json_string_value(json_object_get(row, "image"));
        const json_t *code_bytes = json_object_get(row, "code_bytes");
        write_number(row, "memory_mb", "%.0f MB", memory);
        write_time(row, "timeout_s", timeout);
        snprintf(code, sizeof code, "-");
        if (json_is_number(code_bytes))
            fth_text_bytes((int64_t)json_number_value(code_bytes), code, sizeof code);
        FTH_TRY(fth_table_add_row(shown, (const char *[]){fth_cli_text_member(row, "name"),
                                                          fth_cli_text_member(row, "state"), memory, timeout,
                                                          image ? image : code, fth_cli_text_member(row, "updated")}));
    }
    fth_table_print(stdout, shown);

out:
    fth_table_free(shown);
    return status;
}

static fth_status print_invocations(const json_t *list)
{
    fth_status status = FTH_OK;
    fth_table *shown = NULL;
    size_t i;
    json_t *row;

    FTH_TRY(FTH_TABLE(&shown, "invocation", "state", "started", ">took"));
    json_array_foreach(list, i, row)
    {
        char took[CELL];
        write_number(row, "duration_s", "%.2f s", took);
        FTH_TRY(
            fth_table_add_row(shown, (const char *[]){fth_cli_text_member(row, "id"), fth_cli_text_member(row, "state"),
                                                      fth_cli_text_member(row, "started"), took}));
    }
    putchar('\n');
    fth_table_print(stdout, shown);

out:
    fth_table_free(shown);
    return status;
}

static fth_status show(const status_options *asked, const char *name)
{
    fth_status status = FTH_OK;
    fth_provider *provider = NULL;
    json_t *list = NULL;

    FTH_TRY(fth_cli_open_provider(&asked->platform, NULL, &provider));
    FTH_TRY(provider->kind->status(provider, name, &list));
    if (asked->json) {
        fth_cli_print_json(list);
    } else if (json_array_size(list) == 0) {
        fth_print_line(stdout, "no functions on %s; `farthing functions deploy` creates one", asked->platform.provider);
    } else {
        FTH_TRY(print_functions(list));
        const json_t *invocations = name ? json_object_get(json_array_get(list, 0), "invocations") : NULL;
        if (json_array_size(invocations) > 0)
            FTH_TRY(print_invocations(invocations));
    }

out:
    fth_cli_close_provider(provider);
    json_decref(list);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    if (arguments->count > 1)
        return fth_cli_usage(command, "one function at a time, or none for all");
    return fth_cli_exit_code(show(options, arguments->positional[0]));
}

const fth_command fth_functions_status = {
    .name = "functions status",
    .arguments = "[NAME] [--flag value ...]",
    .summary = "list the functions of a platform, or one and its last invocations",
    .examples = (const fth_example[]){{"farthing functions status mnist --provider openwhisk", NULL}, {0}},
    .table = &table,
    .run = run,
};
