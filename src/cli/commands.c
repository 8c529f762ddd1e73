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
