/* farthing man: the manual pages, made from the tables that make the flags. The build writes them
 * all with --folder. */
#include <stdlib.h>
#include <string.h>

#include "cli/manual/manual.h"

typedef struct man_options {
    fth_option_bits set;
    char *folder;
} man_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, man_options, member)
static const fth_option rows[] = {
    {ROW("folder", TEXT, folder), .argument = "FOLDER",
     .help = "write every page into this folder, as NAME.1, instead of one to standard output", .group = "Options"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, man_options);

static void print_page(FILE *out, const fth_command *command)
{
    if (command)
        fth_manual_print_command(out, command);
    else
        fth_manual_print_program(out);
}

/* NULL is farthing(1). */
static fth_status write_page(const char *folder, const fth_command *command)
{
    fth_status status = FTH_OK;
    char name[96], *path = NULL, *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);

    FTH_REQUIRE(memory, FTH_NO_MEMORY, "no memory for a manual page");
    print_page(memory, command);
    FTH_REQUIRE(fclose(memory) == 0, FTH_NO_MEMORY, "no memory for a manual page");
    fth_manual_name(command, name, sizeof name);
    path = fth_format("%s/%s.1", folder, name);
    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_file_write_output(path, text, size));

out:
    free(path);
    free(text);
    return status;
}

static fth_status write_pages(const char *folder)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_folder_create(folder));
    FTH_TRY(write_page(folder, NULL));
    for (const fth_command *const *command = fth_commands; *command; command++) {
        if ((*command)->hidden)
            continue;
        FTH_TRY(write_page(folder, *command));
        for (const fth_command *const *part = (*command)->parts; part && *part; part++)
            FTH_TRY(write_page(folder, *part));
    }

out:
    return status;
}

/* The command that one or two words name; NULL if there is none. */
static const fth_command *find_command(const fth_arguments *arguments)
{
    const fth_command *command = fth_command_find(arguments->positional[0]);
    if (!command || arguments->count == 1)
        return command;
    for (const fth_command *const *part = command->parts; part && *part; part++)
        if (strcmp(fth_command_last_word(*part), arguments->positional[1]) == 0)
            return *part;
    return NULL;
}

static fth_choice choose_command(size_t index)
{
    for (const fth_command *const *command = fth_commands; *command; command++)
        if (!(*command)->hidden && index-- == 0)
            return (fth_choice){(*command)->name, (*command)->summary};
    return (fth_choice){0};
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const man_options *asked = options;
    const fth_command *about = arguments->count > 0 ? find_command(arguments) : NULL;
    if (arguments->count > 2 || (arguments->count > 0 && *asked->folder))
        return fth_cli_usage(command,
                             *asked->folder ? "--folder writes all pages; leave out \"%s\""
                                            : "unknown command \"%s ...\"; name one command",
                             arguments->positional[0]);
    if (arguments->count > 0 && !about)
        return fth_cli_usage_choice(command, "the command", arguments->positional[arguments->count - 1],
                                    choose_command);
    if (*asked->folder)
        return fth_cli_exit_code(write_pages(asked->folder));
    print_page(stdout, about);
    return FTH_EXIT_OK;
}

const fth_command fth_command_man = {
    .name = "man",
    .arguments = "[COMMAND] [--folder FOLDER]",
    .summary = "print a manual page, or write them all",
    .details = "Without COMMAND, print the page of the whole program.\n",
    .examples = (const fth_example[]){{"farthing man train | man -l -", "read a page that is not installed"}, {0}},
    .actions = choose_command,
    .for_developers = true,
    .table = &table,
    .run = run,
};
