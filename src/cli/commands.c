/* The commands by name, and what help, completion and manual pages ask of them. */
#include <string.h>

#include "cli/cli.h"

const fth_command *const fth_commands[] = {
#define ROW(name) &fth_command_##name,
    FTH_COMMANDS(ROW)
#undef ROW
        NULL,
};

const fth_option_table fth_no_option_table = {.struct_size = sizeof(fth_no_options)};

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
    if (!table)
        return fth_no_option_table;
    return command->options.command ? fth_options_for(table, command->options) : *table;
}

const char *fth_command_last_word(const fth_command *command)
{
    const char *space = strrchr(command->name, ' ');
    return space ? space + 1 : command->name;
}

fth_exit_code fth_cli_run_part(const fth_command *command, const fth_invocation *invocation, const char *subject,
                               fth_choices parts)
{
    fth_no_options options;
    fth_arguments arguments;
    fth_exit_code code;
    const char *name = invocation->argc > 0 ? invocation->argv[0] : "--help";
    const fth_invocation rest = {invocation->program, invocation->argc - 1, invocation->argv + 1};

    for (const fth_command *const *part = command->parts; *part; part++)
        if (strcmp(name, fth_command_last_word(*part)) == 0)
            return (*part)->run(*part, &rest);
    if (*name != '-')
        return fth_cli_usage_choice(command, subject, name, parts);
    const fth_invocation first = {invocation->program, 1, (char *[]){(char *)name, NULL}};
    if (fth_cli_read_flags(command, &first, &options, &arguments, &code))
        code = fth_cli_usage(command, "say which first: farthing %s WHAT", command->name);
    fth_arguments_release(&arguments);
    return code;
}
