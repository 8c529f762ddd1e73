/* Reading arguments, and messages that all commands share. */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

void fth_arguments_release(fth_arguments *arguments)
{
    free(arguments->positional);
    free(arguments->spelled);
    *arguments = (fth_arguments){0};
}

/* The arguments, with short switches as long ones; free() the array. */
static char **spell_out(const fth_command *command, const fth_invocation *invocation, int *count)
{
    size_t room = 1;
    for (int i = 0; i < invocation->argc; i++)
        room += strlen(invocation->argv[i]) + 1;
    char **argv = calloc(room, sizeof *argv);
    *count = 0;
    for (int i = 0; argv && i < invocation->argc; i++) {
        char *argument = invocation->argv[i];
        bool brief = argument[0] == '-' && argument[1] && argument[1] != '-';
        for (const char *letter = argument + 1; brief && *letter; letter++)
            brief = command->long_flag(*letter) != NULL;
        if (!brief)
            argv[(*count)++] = argument;
        for (const char *letter = argument + 1; brief && *letter; letter++)
            argv[(*count)++] = (char *)command->long_flag(*letter);
    }
    return argv;
}

bool fth_cli_read_flags(const fth_command *command, const fth_invocation *invocation, void *values,
                        fth_arguments *arguments, fth_exit_code *code)
{
    fth_status status = FTH_OK;
    bool help = false;
    const fth_option_table own = fth_command_table(command);
    int argc = invocation->argc;
    char *const *argv = invocation->argv;
    *arguments = (fth_arguments){.invocation = invocation};
    *code = FTH_EXIT_OK;
    memset(values, 0, own.struct_size);
    if (command->long_flag) {
        argv = arguments->spelled = spell_out(command, invocation, &argc);
        FTH_REQUIRE(argv, FTH_NO_MEMORY, "no memory for the arguments");
    }
    FTH_TRY(fth_allocate((size_t)argc + 2, sizeof *arguments->positional, &arguments->positional));
    FTH_TRY(fth_options_set_defaults(&own, values));
    FTH_TRY(fth_options_read_flags(&own, values, argc, argv, arguments->positional, &arguments->count, &help));
out:
    if (status != FTH_OK)
        *code = fth_cli_usage(command, "%s", fth_error_message());
    else if (help)
        fth_cli_print_help(command, &own);
    return status == FTH_OK && !help;
}

bool fth_cli_layer_options(const fth_invocation *invocation, const json_t *base, const char *path,
                           fth_train_options *options, fth_exit_code *code)
{
    const fth_option_table all = fth_options_for(fth_cli_train_table(), (fth_option_view){0}); /* checked before */
    const fth_option_table *table = &all;
    fth_status status = FTH_OK;
    const char **positional = NULL;
    int count = 0;
    bool help = false;

    fth_options_release(table, options);
    FTH_TRY(fth_options_set_defaults(table, options));
    if (base)
        FTH_TRY(fth_train_options_read_run(options, base, "the run's configuration"));
    if (path)
        FTH_TRY(fth_options_read_yaml(table, options, path));
    FTH_TRY(fth_allocate((size_t)invocation->argc + 1, sizeof *positional, &positional));
    FTH_TRY(fth_options_read_flags(table, options, invocation->argc, invocation->argv, positional, &count, &help));
    FTH_TRY(fth_train_options_resolve(options));
out:
    free(positional);
    if (status != FTH_OK) {
        fth_log_error("%s", fth_error_message());
        *code = FTH_EXIT_USAGE;
    }
    return status == FTH_OK;
}

fth_invocation fth_arguments_job(const fth_arguments *arguments)
{
    int skipped = arguments->count > 0 && strcmp(arguments->positional[0], "train") == 0;
    return (fth_invocation){arguments->invocation->program, arguments->count - skipped,
                            (char *const *)(arguments->positional + skipped)};
}

bool fth_cli_read_job(const fth_invocation *job, fth_train_options *options, fth_exit_code *code)
{
    fth_arguments arguments = {0};
    const fth_command *command = &fth_command_train;
    bool valid = fth_cli_read_flags(command, job, options, &arguments, code);
    if (valid && arguments.count == 1)
        valid = fth_cli_layer_options(job, NULL, arguments.positional[0], options, code);
    if (valid && (arguments.count > 1 || fth_train_options_resolve(options) != FTH_OK ||
                  fth_train_options_check(options) != FTH_OK)) {
        *code =
            fth_cli_usage(command, "the job: %s", arguments.count > 1 ? "one FILE.yaml at most" : fth_error_message());
        valid = false;
    }
    fth_arguments_release(&arguments);
    return valid;
}

bool fth_cli_is_yaml(const char *name)
{
    const char *ending = strrchr(name, '.');
    return ending && (strcmp(ending, ".yaml") == 0 || strcmp(ending, ".yml") == 0);
}

fth_exit_code fth_cli_fail(void)
{
    fth_log_error("%s", fth_error_message());
    return FTH_EXIT_FAILURE;
}

fth_exit_code fth_cli_exit_code(fth_status status)
{
    return status == FTH_OK ? FTH_EXIT_OK : fth_cli_fail();
}

fth_exit_code fth_cli_usage(const fth_command *command, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fth_log_error("%s", text);
    fth_log_info("`farthing %s --help` lists all options", command->name);
    return FTH_EXIT_USAGE;
}

fth_exit_code fth_cli_usage_choice(const fth_command *command, const char *subject, const char *text, fth_choices list)
{
    FTH_IGNORE(fth_fail_choice(subject, text, list), "called for its message");
    return fth_cli_usage(command, "%s", fth_error_message());
}

void fth_cli_flush(void)
{
    if (fflush(stdout) != 0 && errno == EPIPE)
        fth_signals_stop();
}

static atomic_bool output_lost; /* events come from several threads */

bool fth_cli_output_is_lost(void)
{
    return output_lost;
}

void fth_cli_print_json(const json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(13)) : NULL;
    if (text) {
        fth_print_line(stdout, "%s",
                       text); /* anything left to escape is within strings, where JSON's escapes are used */
    } else {
        fth_log_error("a result cannot be written as JSON: it has a number that is not finite, or text that is not "
                      "UTF-8; run it without --json to see it");
        output_lost = true;
    }
    fth_cli_flush();
    free(text);
}

void fth_cli_print_json_new(json_t *json)
{
    fth_cli_print_json(json);
    json_decref(json);
}

json_t *fth_cli_json_text(const char *text)
{
    char *utf8 = fth_text_to_utf8(text);
    json_t *json = utf8 ? json_string(utf8) : NULL;
    free(utf8);
    return json;
}
