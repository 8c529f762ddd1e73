/* Reads options from a command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options_internal.h"
#include "base/path.h"

static bool ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text), ending_length = strlen(ending);
    return length >= ending_length && strcmp(text + length - ending_length, ending) == 0;
}

static fth_status fail_unknown(const fth_option_table *table, const char *flag, const char *name)
{
    const char *nearest = fth_options_nearest(table, name);
    if (nearest)
        return fth_fail(FTH_INVALID, "unknown flag '%.80s'; did you mean '--%s'?", flag, nearest);
    return fth_fail(FTH_INVALID, "unknown flag '%.80s'; --help lists them all", flag);
}

/* "train, standby and evaluate" */
static void list_commands(const fth_option_table *table, const fth_option *option, char *text, size_t size)
{
    const char *names[32];
    size_t count = 0, length = 0;
    for (unsigned bit = 0; bit < 32 && table->commands[bit]; bit++)
        if (fth_options_is_for(option, 1u << bit))
            names[count++] = table->commands[bit];
    *text = '\0';
    for (size_t i = 0; i < count && length < size; i++)
        length += (size_t)snprintf(text + length, size - length, "%s%s",
                                   i == 0          ? ""
                                   : i + 1 < count ? ", "
                                                   : " and ",
                                   names[i]);
}

/* Only for tables with a view, which selects one of the commands. */
static fth_status fail_not_taken(const fth_option_table *table, const fth_option *option)
{
    char others[200];
    unsigned bit = 0;
    while (!(table->view.command >> bit & 1))
        bit++;
    list_commands(table, option, others, sizeof others);
    return fth_fail(FTH_INVALID, "%s takes no --%s: it is an option of %s", table->commands[bit], option->name, others);
}

/* The value of a flag written without '=': the next argument if the flag's type takes one. Sets
 * *used. */
static const char *next_value(const fth_option *option, const char *next, bool *used)
{
    bool ignored;
    *used = false;
    switch (option->type) {
    case FTH_OPTION_SWITCH:
        if (!next || !fth_options_parse_switch(next, &ignored))
            return "yes";
        break;
    case FTH_OPTION_OPTIONAL:
        if (!next || *next == '-' || ends_with(next, ".yaml") || ends_with(next, ".yml"))
            return "auto";
        break;
    default:
        /* A single dash may begin a negative number; two begin the next flag. */
        if (!next || strncmp(next, "--", 2) == 0)
            return NULL;
    }
    *used = true;
    return next;
}

static fth_status add_value(const fth_option_table *table, void *values, const fth_option *option, const char *value,
                            const char *where)
{
    char *const *before = (char *const *)((char *)values + option->offset);
    char *both = fth_format("%s%s%s", *before, option->lines ? "\n" : ",", value);
    fth_status status = both ? fth_options_set(table, values, option->name, both, where)
                             : fth_fail(FTH_NO_MEMORY, "no memory for %s", where);
    free(both);
    return status;
}

static fth_status take_value(const fth_option_table *table, void *values, const fth_option *option, const char *value,
                             const char *where)
{
    if (!value)
        return fth_fail(FTH_INVALID, "%s needs a value%s%s", where, option->argument ? ": " : "",
                        option->argument ? option->argument : "");
    return option->repeats && fth_options_is_set(table, values, option->name)
               ? add_value(table, values, option, value, where)
               : fth_options_set(table, values, option->name, value, where);
}

/* "-n" with its value in the next argument, or right behind it. */
static fth_status read_letter(const fth_option_table *table, void *values, const char *flag, const char *next,
                              bool *used)
{
    const fth_option *option = NULL;
    for (size_t i = 0; i < table->count && !option; i++)
        if (table->options[i].letter && table->options[i].letter == flag[1])
            option = &table->options[i];
    if (!option || (option->type == FTH_OPTION_SWITCH && flag[2]))
        return fail_unknown(table, flag, flag + 1);
    if (!fth_options_is_taken(table, option))
        return fail_not_taken(table, option);
    const char *value = flag[2] ? flag + 2 + (flag[2] == '=') : next_value(option, next, used);
    return take_value(table, values, option, value, (char[]){'-', flag[1], '\0'});
}

static fth_status read_flag(const fth_option_table *table, void *values, const char *flag, const char *next, bool *used)
{
    char name[80], where[84];
    const char *equals = strchr(flag, '=');
    size_t length = equals ? (size_t)(equals - flag) : strlen(flag);
    *used = false;
    if (strncmp(flag, "--", 2) != 0)
        return read_letter(table, values, flag, next, used);
    if (length >= sizeof name)
        return fail_unknown(table, flag, flag + strspn(flag, "-"));
    snprintf(name, sizeof name, "%.*s", (int)length - 2, flag + 2);
    snprintf(where, sizeof where, "--%s", name);

    const fth_option *option = fth_options_find(table, name);
    if (!option && strncmp(name, "no-", 3) == 0) {
        option = fth_options_find(table, name + 3);
        if (!option || option->type != FTH_OPTION_SWITCH)
            return fail_unknown(table, where, name + 3);
        if (!fth_options_is_taken(table, option))
            return fail_not_taken(table, option);
        if (equals)
            return fth_fail(FTH_INVALID, "%s takes no value", where);
        return fth_options_set(table, values, option->name, "no", where);
    }
    if (!option)
        return fail_unknown(table, where, name);
    if (!fth_options_is_taken(table, option))
        return fail_not_taken(table, option);
    return take_value(table, values, option, equals ? equals + 1 : next_value(option, next, used), where);
}

fth_status fth_options_read_flags(const fth_option_table *table, void *values, int argc, char *const *argv,
                                  const char **positional, int *positional_count, bool *help)
{
    bool flags = true;
    *positional_count = 0;
    *help = false;
    for (int i = 0; i < argc; i++) {
        const char *argument = argv[i];
        bool used = false;
        if (!flags || argument[0] != '-' || argument[1] == '\0') {
            positional[(*positional_count)++] = argument;
        } else if (strcmp(argument, "--") == 0) {
            flags = false;
        } else if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            *help = true;
            return FTH_OK;
        } else {
            fth_status status = read_flag(table, values, argument, i + 1 < argc ? argv[i + 1] : NULL, &used);
            if (status != FTH_OK)
                return status;
            i += used;
        }
    }
    return FTH_OK;
}
