/* The completion of fish: a line for each flag of each command, under the condition that the
 * command is being typed. */
#include <stdio.h>
#include <string.h>

#include "cli/manual/completion.h"

static void print_quoted(const char *text)
{
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('\'');
}

/* Within '...', a list of words that fish reads again: name\t"summary". */
static void print_choice(fth_choice choice)
{
    printf("%s", choice.name);
    if (choice.summary) {
        printf("\\t\"");
        for (const char *at = choice.summary; *at; at++)
            printf(*at == '\'' ? "\\'" : *at == '"' || *at == '$' ? "\\\\%c" : "%c", *at);
        putchar('"');
    }
    putchar(' ');
}

static void print_begin(const fth_command *command)
{
    printf("complete -c farthing -n '__farthing_is %s'", command->name);
}

/* What a value can be: words, folders and runs as arguments; files by a flag of `complete`. */
static void print_value(const fth_option *option)
{
    unsigned offers = fth_completion_offers(option->argument);
    fth_choice choice;
    if (option->type != FTH_OPTION_OPTIONAL)
        printf(offers & FTH_OFFER_FILES ? " -r -F" : " -x");
    printf(" -a '");
    for (size_t i = 0; (choice = fth_options_choice(option, i)).name; i++)
        print_choice(choice);
    printf("%s%s'", offers & FTH_OFFER_FOLDERS ? "(__fish_complete_directories)" : "",
           offers & FTH_OFFER_RUNS ? "(__farthing_runs)" : "");
}

static void print_flag(const fth_command *command, const fth_option *option)
{
    print_begin(command);
    printf(" -l %s", option->name);
    if (option->alias)
        printf(" -l %s", option->alias);
    if (option->type != FTH_OPTION_SWITCH)
        print_value(option);
    printf(" -d ");
    print_quoted(option->help);
    putchar('\n');
    if (option->type == FTH_OPTION_SWITCH) {
        print_begin(command);
        printf(" -l no-%s\n", option->name);
    }
}

static void print_words(const fth_command *command)
{
    for (size_t i = 0; command->actions && command->actions(i).name; i++) {
        printf("complete -c farthing -n '__farthing_begins %s' -a %s -d ", command->name, command->actions(i).name);
        print_quoted(command->actions(i).summary ? command->actions(i).summary : "");
        putchar('\n');
    }
    for (const fth_command *const *part = command->parts; part && *part; part++) {
        printf("complete -c farthing -n '__farthing_begins %s' -a %s -d ", command->name, fth_command_last_word(*part));
        print_quoted((*part)->summary);
        putchar('\n');
    }
}

static void print_command(const fth_command *command)
{
    const fth_option_table table = fth_command_table(command);
    unsigned offers = fth_completion_positional_offers(command);
    const char *condition = command->actions ? "__farthing_follows" : "__farthing_is";
    printf("\n# farthing %s\n", command->name);
    print_words(command);
    print_begin(command);
    puts(" -l help -d 'show what the command does and takes'");
    if (command->wraps) {
        print_begin(command);
        printf(" -n __farthing_has_job -a '(__farthing_job %s)'\n", command->wraps->name);
    }
    for (size_t i = 0; i < table.count; i++)
        if (fth_options_is_taken(&table, &table.options[i]))
            print_flag(command, &table.options[i]);
    if (offers & FTH_OFFER_FILES)
        printf("complete -c farthing -n '%s %s' -F\n", condition, command->name);
    if (offers & FTH_OFFER_FOLDERS && !(offers & FTH_OFFER_FILES))
        printf("complete -c farthing -n '%s %s' -a '(__fish_complete_directories)'\n", condition, command->name);
    if (offers & FTH_OFFER_RUNS)
        printf("complete -c farthing -n '%s %s' -a '(__farthing_runs)'\n", condition, command->name);
}

static void print_name(const fth_command *command)
{
    if (strchr(command->name, ' '))
        return;
    printf("complete -c farthing -n '__farthing_is' -a %s -d ", command->name);
    print_quoted(command->summary);
    putchar('\n');
}

void fth_completion_print_fish(void)
{
    printf("# fish completion for farthing; made by `farthing completion fish`\n\n"
           "function __farthing_words\n"
           "    set -l words (commandline -opc)\n"
           "    set -e words[1]\n"
           "    string join \\n -- $words\n"
           "end\n\n"
           "# After -- fish offers no flags, so those of a job are offered as words.\n"
           "function __farthing_has_job\n"
           "    contains -- -- (__farthing_words)\n"
           "end\n\n"
           "function __farthing_job\n"
           "    set -l words (__farthing_words)\n"
           "    set -e words[1..(contains -i -- -- $words)]\n"
           "    if test (count $words) -eq 0\n"
           "        string join \\n -- $argv\n"
           "    else\n"
           "        complete -C (string join ' ' -- farthing (string escape -- $words) (commandline -ct))\n"
           "    end\n"
           "end\n\n"
           "# Is this the command? Without an argument: is there none yet?\n"
           "function __farthing_is\n"
           "    set -l words (__farthing_words)\n"
           "    set -l command \"$words[1]\"\n"
           "    switch \"$words[1] $words[2]\"\n"
           "        case");
    for (const fth_command *const *command = fth_commands; *command; command++)
        for (const fth_command *const *part = (*command)->parts; part && *part; part++)
            printf(" '%s'", (*part)->name);
    puts("\n"
         "            set command \"$words[1] $words[2]\"\n"
         "    end\n"
         "    test \"$command\" = \"$argv\"\n"
         "end\n\n"
         "# Is it, and has it no word of its own yet?\n"
         "function __farthing_begins\n"
         "    __farthing_is $argv; and test (count (__farthing_words)) -eq 1\n"
         "end\n\n"
         "function __farthing_follows\n"
         "    __farthing_is $argv; and test (count (__farthing_words)) -gt 1\n"
         "end\n\n"
         "function __farthing_runs\n"
         "    for run in runs/*/run.json\n"
         "        string replace -r '^runs/(.*)/run.json$' '$1' -- $run\n"
         "    end\n"
         "    __fish_complete_directories\n"
         "end\n\n"
         "complete -c farthing -f\n"
         "complete -c farthing -n '__farthing_is' -l help -d 'list the commands'\n"
         "complete -c farthing -n '__farthing_is' -l version -d 'print the version'");
    fth_completion_visit(print_name);
    fth_completion_visit(print_command);
}
