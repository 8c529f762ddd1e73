/* The completion of zsh: a function for each command, which hands its flags to _arguments. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/manual/completion.h"

/* Within '...': quotes end it, and `special` has a meaning to _arguments. */
static void print_escaped(const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\'", stdout);
        else if (strchr(special, *text))
            putchar('\\');
        putchar(*text);
    }
}

/* As part of a function's name. */
static void print_identifier(const char *name)
{
    for (; *name; name++)
        putchar(isalnum((unsigned char)*name) ? *name : '_');
}

/* "((sgd\:"lr 0.01" adamw\:"lr 0.001"))" */
static void print_choice(fth_choice choice)
{
    print_escaped(choice.name, ":()\"\\ ");
    if (choice.summary) {
        fputs("\\:\"", stdout);
        print_escaped(choice.summary, ":()\"\\");
        putchar('"');
    }
    putchar(' ');
}

static bool has_words(const fth_option *option)
{
    return fth_options_choice(option, 0).name != NULL;
}

static void print_words(const fth_option *option)
{
    fth_choice choice;
    fputs("((", stdout);
    for (size_t i = 0; (choice = fth_options_choice(option, i)).name; i++)
        print_choice(choice);
    fputs("))", stdout);
}

static const char *function_for(unsigned offers)
{
    if (offers & FTH_OFFER_RUNS)
        return offers & FTH_OFFER_FILES ? "_farthing_runs_or_files" : "_farthing_runs";
    if (offers & FTH_OFFER_FILES)
        return "_files";
    return offers & FTH_OFFER_FOLDERS ? "_files -/" : "";
}

/* Words and files together are two alternatives. */
static void print_action(const fth_option *option)
{
    unsigned offers = fth_completion_offers(option->argument);
    if (has_words(option) && offers) {
        fputs("{_alternative \"words\\:word\\:(", stdout);
        for (size_t i = 0; fth_options_choice(option, i).name; i++)
            printf("%s ", fth_options_choice(option, i).name);
        printf(")\" \"paths\\:path\\:%s\"}", function_for(offers));
    } else if (has_words(option)) {
        print_words(option);
    } else {
        fputs(function_for(offers), stdout);
    }
}

static void print_flag_named(const fth_option *option, const char *name)
{
    const char *argument = option->argument ? option->argument : "VALUE";
    printf("        '--%s%s[", name, option->type == FTH_OPTION_SWITCH ? "" : "=");
    print_escaped(option->help, "[]\\");
    putchar(']');
    if (option->type != FTH_OPTION_SWITCH) {
        fputs(option->type == FTH_OPTION_OPTIONAL ? "::" : ":", stdout);
        print_escaped(argument, ":\\");
        putchar(':');
        print_action(option);
    }
    puts("' \\");
    if (option->type == FTH_OPTION_SWITCH)
        printf("        '--no-%s' \\\n", name);
}

static void print_flag(const fth_option *option)
{
    print_flag_named(option, option->name);
    if (option->alias)
        print_flag_named(option, option->alias);
}

static void print_first(const fth_command *command)
{
    fputs("        '1:", stdout);
    fputs(command->parts ? "service" : "action", stdout);
    fputs(":((", stdout);
    for (size_t i = 0; command->actions && command->actions(i).name; i++)
        print_choice(command->actions(i));
    for (const fth_command *const *part = command->parts; part && *part; part++)
        print_choice((fth_choice){fth_command_last_word(*part), (*part)->summary});
    puts("))' \\");
}

static void print_function(const fth_command *command)
{
    const fth_option_table table = fth_command_table(command);
    const char *rest = function_for(fth_completion_positional_offers(command));
    fputs("_farthing_", stdout);
    print_identifier(command->name);
    puts("() {\n    local context curcontext=$curcontext state state_descr line\n    typeset -A opt_args\n"
         "    _arguments -S \\\n        '--help[show what the command does and takes]' \\");
    for (size_t i = 0; i < table.count; i++)
        if (fth_options_is_taken(&table, &table.options[i]))
            print_flag(&table.options[i]);
    if (command->actions || command->parts)
        print_first(command);
    if (command->wraps)
        printf("        '*::job:{ if (( CURRENT == 1 )); then compadd %s; else _farthing_command; fi }'\n",
               command->wraps->name);
    else if (command->parts)
        puts("        '*::arguments:_farthing_part'");
    else
        printf("        '*:%s:%s'\n", *rest ? "argument" : " ", rest);
    puts("}\n");
}

static void print_description(const fth_command *command)
{
    if (strchr(command->name, ' '))
        return;
    fputs("        '", stdout);
    print_escaped(command->name, ":\\");
    putchar(':');
    print_escaped(command->summary, "\\");
    puts("'");
}

static void print_part_case(const fth_command *command)
{
    for (const fth_command *const *part = command->parts; part && *part; part++) {
        printf("        %s) _farthing_", fth_command_last_word(*part));
        print_identifier((*part)->name);
        puts(" ;;");
    }
}

void fth_completion_print_zsh(void)
{
    puts("#compdef farthing\n# zsh completion for farthing; made by `farthing completion zsh`\n");
    fth_completion_visit(print_function);
    puts("_farthing_runs() {\n"
         "    local -a ids\n"
         "    ids=(runs/*/run.json(N:h:t))\n"
         "    _alternative 'runs:run:compadd -a ids' 'folders:folder:_files -/'\n"
         "}\n\n"
         "_farthing_runs_or_files() {\n"
         "    local -a ids\n"
         "    ids=(runs/*/run.json(N:h:t))\n"
         "    _alternative 'runs:run:compadd -a ids' 'files:file:_files'\n"
         "}\n\n"
         "_farthing_part() {\n"
         "    case $words[1] in");
    fth_completion_visit(print_part_case);
    puts("    esac\n}\n\n"
         "_farthing_command() {\n"
         "    local -a commands\n"
         "    commands=(");
    fth_completion_visit(print_description);
    puts("    )\n"
         "    if (( CURRENT == 1 )); then\n"
         "        _describe -t commands command commands\n"
         "    else\n"
         "        local function=_farthing_${words[1]//[^a-z0-9]/_}\n"
         "        (( $+functions[$function] )) && $function\n"
         "    fi\n"
         "}\n\n"
         "_farthing() {\n"
         "    _arguments -S '--help[list the commands]' '--version[print the version]' '*::command:_farthing_command'\n"
         "}\n\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
         "    _farthing \"$@\"\n"
         "else\n"
         "    compdef _farthing farthing\n"
         "fi");
}
