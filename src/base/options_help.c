/* Prints a table of options for people: --help in a terminal, and Markdown for the reference
 * page. */
#include <stdio.h>
#include <string.h>

#include "base/options_internal.h"

enum { MAX_FLAG_COLUMNS = 24, INDENT = 2, GAP = 2 };

/* Columns taken on a terminal, for text without wide characters: bytes that do not continue a UTF-8
 * sequence. */
static size_t columns(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* "--lr X", "--[no-]nesterov", "--resume [ID]", "-n, --count N" */
static void format_flag(const fth_option *option, char *text, size_t size)
{
    const char *argument = option->argument ? option->argument : "VALUE";
    int letter = option->letter ? snprintf(text, size, "-%c, ", option->letter) : 0;
    text += letter;
    size -= (size_t)letter;
    switch (option->type) {
    case FTH_OPTION_SWITCH: snprintf(text, size, "--[no-]%s", option->name); break;
    case FTH_OPTION_OPTIONAL: snprintf(text, size, "--%s [%s]", option->name, argument); break;
    default: snprintf(text, size, "--%s %s", option->name, argument);
    }
}

static void append(char *text, size_t size, const char *piece)
{
    size_t length = strlen(text);
    snprintf(text + length, size - length, "%s", piece);
}

/* "; one of sgd (lr 0.01), adamw (lr 0.001)"; nothing for words that are only offered. */
static void append_choices(const fth_option *option, char *text, size_t size)
{
    fth_choice choice;
    const bool lists = option->type == FTH_OPTION_CHOICE || option->type == FTH_OPTION_ENUM;
    for (size_t i = 0; lists && (choice = fth_options_choice(option, i)).name; i++) {
        append(text, size, i == 0 ? "; one of " : ", ");
        append(text, size, choice.name);
        if (choice.summary) {
            append(text, size, " (");
            append(text, size, choice.summary);
            append(text, size, ")");
        }
    }
}

static void append_alias(const fth_option *option, char *text, size_t size)
{
    if (!option->alias)
        return;
    append(text, size, "; also --");
    append(text, size, option->alias);
}

static bool has_default(const fth_option *option)
{
    return option->fallback && *option->fallback;
}

static void print_spaces(size_t count)
{
    for (size_t i = 0; i < count; i++)
        putchar(' ');
}

/* The length of the first word; "[--over time]" is one. */
static size_t word_length(const char *text)
{
    size_t length = 0;
    int depth = 0;
    for (; text[length] && text[length] != '\n' && (text[length] != ' ' || depth > 0); length++)
        depth += text[length] == '[' ? 1 : text[length] == ']' ? -1 : 0;
    return length;
}

void fth_print_wrapped(const char *text, size_t left)
{
    size_t at = left;
    bool first = true;
    while (*text) {
        text += strspn(text, " \n");
        size_t length = word_length(text), width = columns(text, length);
        if (length == 0)
            break;
        if (!first && at + 1 + width > FTH_HELP_COLUMNS) {
            putchar('\n');
            print_spaces(left);
            at = left;
            first = true;
        }
        printf("%s%.*s", first ? "" : " ", (int)length, text);
        at += width + !first;
        first = false;
        text += length;
    }
    putchar('\n');
}

static size_t widest_flag(const fth_option_table *table)
{
    char flag[160];
    size_t widest = 0;
    for (size_t i = 0; i < table->count; i++) {
        if (!fth_options_is_shown(table, &table->options[i]))
            continue;
        format_flag(&table->options[i], flag, sizeof flag);
        size_t width = columns(flag, strlen(flag));
        if (width > widest && width <= MAX_FLAG_COLUMNS)
            widest = width;
    }
    return widest;
}

static void print_option(const fth_option *option, size_t widest)
{
    char flag[160], help[1200];
    size_t left = INDENT + widest + GAP;
    format_flag(option, flag, sizeof flag);
    size_t width = columns(flag, strlen(flag));
    print_spaces(INDENT);
    printf("%s", flag);
    if (width > widest) {
        putchar('\n');
        print_spaces(left);
    } else {
        print_spaces(left - INDENT - width);
    }
    snprintf(help, sizeof help, "%s", option->help ? option->help : "");
    append_choices(option, help, sizeof help);
    if (has_default(option)) {
        append(help, sizeof help, " (default: ");
        append(help, sizeof help, option->fallback);
        append(help, sizeof help, ")");
    }
    append_alias(option, help, sizeof help);
    fth_print_wrapped(help, left);
}

void fth_options_print_help(const fth_option_table *table)
{
    size_t widest = widest_flag(table);
    const char *group = NULL; /* whose heading comes before the next row that is shown */
    bool first = true;
    for (size_t i = 0; i < table->count; i++) {
        const fth_option *option = &table->options[i];
        group = option->group ? option->group : group;
        if (!fth_options_is_shown(table, option))
            continue;
        if (group)
            printf("%s%s:\n", first ? "" : "\n", group);
        print_option(option, widest);
        group = NULL;
        first = false;
    }
}

/* In a cell of a Markdown table, '|' must be escaped, and there are no line breaks. */
static void print_cell(const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            putchar('\\');
        putchar(*text == '\n' ? ' ' : *text);
    }
}

static void print_commands(const fth_option_table *table, const fth_option *option)
{
    const char *separator = "";
    for (unsigned bit = 0; table->commands[bit]; bit++)
        if (fth_options_is_for(option, 1u << bit)) {
            printf("%s%s", separator, table->commands[bit]);
            separator = ", ";
        }
    printf(" | ");
}

void fth_options_print_markdown(const fth_option_table *table)
{
    char flag[160], help[1200];
    for (size_t i = 0; i < table->count; i++) {
        const fth_option *option = &table->options[i];
        if (option->group)
            printf("%s### %s\n\n", i ? "\n" : "", option->group);
        if (option->group || i == 0)
            printf("%s", table->commands ? "| option | default | commands | meaning |\n| --- | --- | --- | --- |\n"
                                         : "| option | default | meaning |\n| --- | --- | --- |\n");
        format_flag(option, flag, sizeof flag);
        snprintf(help, sizeof help, "%s", option->help ? option->help : "");
        append_choices(option, help, sizeof help);
        printf("| `");
        print_cell(flag);
        printf("` | ");
        if (has_default(option)) {
            putchar('`');
            print_cell(option->fallback);
            putchar('`');
        }
        printf(" | ");
        if (table->commands)
            print_commands(table, option);
        append_alias(option, help, sizeof help);
        print_cell(help);
        printf(" |\n");
    }
}
