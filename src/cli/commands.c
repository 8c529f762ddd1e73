/* The commands there are, and what help, completion and manual pages ask of them. A new one is its file, cmd_<name>.c,
 * and a row here. */
#include <string.h>

#include "cli/cli.h"

const fth_command *const fth_commands[] = {
    &fth_command_train,
    &fth_command_standby,
    &fth_command_rehearse,
    &fth_command_evaluate,
    &fth_command_predict,
    &fth_command_export,
    &fth_command_report,
    &fth_command_compare,
    &fth_command_runs,
    &fth_command_models,
    &fth_command_weights,
    &fth_command_data,
    &fth_command_prices,
    &fth_command_doctor,
    &fth_command_store,
    &fth_command_serve,
    &fth_command_keys,
    &fth_command_completion,
    &fth_command_bench,
    &fth_command_options,
    &fth_command_man,
    &fth_command_hogwild_worker,
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
