/* The list of commands, and running one. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

const fth_command *const fth_commands[] = {
#define ROW(name) &fth_command_##name,
    FTH_COMMANDS(ROW)
#undef ROW
        NULL,
};

const fth_command *fth_command_find(const char *name)
{
    for (const fth_command *const *command = fth_commands; *command; command++)
        if (strcmp((*command)->name, name) == 0)
            return *command;
    return NULL;
}

fth_option_table fth_command_table(const fth_command *command)
{
    const fth_option_table *table = command->make_table ? command->make_table() : command->table;
    if (!table) /* --help is its only flag */
        return (fth_option_table){.struct_size = sizeof(fth_option_bits)};
    return command->options.command ? fth_options_for(table, command->options) : *table;
}

const char *fth_command_last_word(const fth_command *command)
{
    const char *space = strrchr(command->name, ' ');
    return space ? space + 1 : command->name;
}

static fth_exit_code run_part(const fth_command *command, const fth_invocation *invocation)
{
    const char *name = invocation->argc > 0 ? invocation->argv[0] : "--help";
    const fth_invocation rest = {invocation->program, invocation->argc - 1, invocation->argv + 1};
    const fth_invocation first = {invocation->program, 1, (char *[]){(char *)name, NULL}};
    fth_option_bits none;
    fth_arguments arguments;
    fth_exit_code code;

    for (const fth_command *const *part = command->parts; *part; part++)
        if (strcmp(name, fth_command_last_word(*part)) == 0)
            return fth_command_run(*part, &rest);
    if (*name != '-')
        return fth_cli_usage_choice(command, command->part_subject, name, command->list_parts);
    if (fth_cli_read_flags(command, &first, &none, &arguments, &code))
        code = fth_cli_usage(command, "missing a command: farthing %s WHAT", command->name);
    fth_arguments_release(&arguments);
    return code;
}

static fth_exit_code run_watched(const fth_command *command, void *options, fth_arguments *arguments)
{
    fth_stop stop = FTH_STOP_INITIALIZER;
    if (!command->stop_words)
        return command->run(command, options, arguments);
    arguments->stop = &stop;
    fth_signals_set_words(command->stop_words);
    fth_signals_watch(&stop);
    fth_exit_code code = command->run(command, options, arguments);
    fth_signals_unwatch();
    return code;
}

fth_exit_code fth_command_run(const fth_command *command, const fth_invocation *invocation)
{
    const fth_option_table table = fth_command_table(command);
    fth_arguments arguments;
    fth_exit_code code;
    void *options = NULL;

    if (command->parts)
        return run_part(command, invocation);
    if (fth_allocate(1, table.struct_size, &options) != FTH_OK)
        return fth_cli_fail();
    if (fth_cli_read_flags(command, invocation, options, &arguments, &code))
        code = command->flags_only && arguments.count > 0
                   ? fth_cli_usage(command, "%s takes flags only, not \"%s\"", command->name, arguments.positional[0])
                   : run_watched(command, options, &arguments);
    fth_arguments_release(&arguments);
    fth_options_release(&table, options);
    free(options);
    return code;
}
