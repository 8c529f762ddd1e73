/* What `farthing COMMAND --help` prints, in lines of at most FTH_HELP_COLUMNS columns. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

enum { INDENT = 2, MOST_BYTES = 1024 };

void fth_cli_print_item(const char *name, const char *summary, size_t left)
{
    printf("%*s%-*s ", INDENT, "", (int)left - INDENT - 1, name);
    fth_print_wrapped(summary, left);
}

/* Paragraphs are filled; lines that begin with a space are printed unchanged. */
static void print_details(const char *text)
{
    char paragraph[2 * MOST_BYTES];
    while (*text) {
        size_t length = 0;
        if (*text == ' ' || *text == '\n') {
            length = strcspn(text, "\n");
            printf("%.*s\n", (int)length, text);
            length += text[length] == '\n';
        } else {
            do {
                length += strcspn(text + length, "\n");
                length += text[length] == '\n';
            } while (text[length] && text[length] != '\n' && text[length] != ' ');
            snprintf(paragraph, sizeof paragraph, "%.*s", (int)length, text);
            fth_print_wrapped(paragraph, 0);
        }
        text += length;
    }
}

/* A line that is too long is broken before a flag, as a shell continues it. */
static void print_command_line(const char *text)
{
    size_t at = INDENT;
    printf("%*s", INDENT, "");
    while (*text) {
        const char *end = strstr(text + 1, " -");
        size_t length = end ? (size_t)(end - text) : strlen(text);
        if (at > INDENT && at + length + 2 > FTH_HELP_COLUMNS) {
            printf(" \\\n%*s", 2 * INDENT, "");
            text += *text == ' ';
            length -= length > 0;
            at = 2 * (size_t)INDENT;
        }
        printf("%.*s", (int)length, text);
        at += length;
        text += length;
    }
    putchar('\n');
}

static void print_example(const fth_example *example)
{
    const size_t width = INDENT + strlen(example->line);
    const char *meaning = example->meaning;
    if (meaning && width + strlen(meaning) + 4 <= FTH_HELP_COLUMNS) {
        printf("%*s%s  # %s\n", INDENT, "", example->line, meaning);
        return;
    }
    if (meaning)
        printf("%*s# %s\n", INDENT, "", meaning);
    print_command_line(example->line);
}

void fth_cli_print_help(const fth_command *command, const fth_option_table *table)
{
    char usage[MOST_BYTES];
    printf("farthing %s: ", command->name);
    fth_print_wrapped(command->summary, strlen("farthing : ") + strlen(command->name));
    snprintf(usage, sizeof usage, "usage: farthing %s%s", command->name, *command->arguments ? " " : "");
    printf("\n%s", usage);
    fth_print_wrapped(command->arguments, strlen(usage));
    if (command->details) {
        putchar('\n');
        print_details(command->details);
    }
    for (size_t i = 0; command->actions && command->actions(i).name; i++) {
        fputs(i == 0 ? "\n" : "", stdout);
        fth_cli_print_item(command->actions(i).name, command->actions(i).summary, 13);
    }
    for (const fth_command *const *part = command->parts; part && *part; part++) {
        fputs(part == command->parts ? "\n" : "", stdout);
        fth_cli_print_item(fth_command_last_word(*part), (*part)->summary, 15);
    }
    for (const fth_example *example = command->examples; example && example->line; example++) {
        fputs(example == command->examples ? "\nExamples:\n" : "", stdout);
        print_example(example);
    }
    if (table->count > 0)
        putchar('\n');
    fth_options_print_help(table);
}
