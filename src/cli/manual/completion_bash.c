/* The completion of bash. Two generated functions hold the tables: _farthing_flags lists the flags
 * of a command, and _farthing_value says what a flag's value can be. The rest determines the
 * position of the cursor in the line. */
#include <stdio.h>

#include "cli/manual/completion.h"

static void print_words(const fth_option *option)
{
    fth_choice choice;
    for (size_t i = 0; (choice = fth_options_choice(option, i)).name; i++)
        printf(" %s", choice.name);
}

/* What follows a flag: "files folders runs" as far as they fit, then words. */
static void print_value(const fth_option *option)
{
    unsigned offers = fth_completion_offers(option->argument);
    printf("value='%s%s%s", offers & FTH_OFFER_FILES ? " files" : "", offers & FTH_OFFER_FOLDERS ? " folders" : "",
           offers & FTH_OFFER_RUNS ? " runs" : "");
    printf("' words='");
    print_words(option);
    printf("'%s", option->type == FTH_OPTION_OPTIONAL ? " optional=1" : "");
}

static void print_flags(const fth_command *command)
{
    const fth_option_table table = fth_command_table(command);
    printf("        '%s') flags='--help", command->name);
    for (size_t i = 0; i < table.count; i++) {
        const fth_option *option = &table.options[i];
        if (!fth_options_is_taken(&table, option))
            continue;
        printf(" --%s", option->name);
        if (option->type == FTH_OPTION_SWITCH)
            printf(" --no-%s", option->name);
        if (option->alias)
            printf(" --%s", option->alias);
    }
    puts("' ;;");
}

static void print_values(const fth_command *command)
{
    const fth_option_table table = fth_command_table(command);
    for (size_t i = 0; i < table.count; i++) {
        const fth_option *option = &table.options[i];
        if (!fth_options_is_taken(&table, option) || option->type == FTH_OPTION_SWITCH)
            continue;
        printf("        '%s --%s'", command->name, option->name);
        if (option->alias)
            printf(" | '%s --%s'", command->name, option->alias);
        fputs(") ", stdout);
        print_value(option);
        puts(" ;;");
    }
}

/* What comes without a flag: the words that a command takes first, its parts, and files. */
static void print_positional(const fth_command *command)
{
    unsigned offers = fth_completion_positional_offers(command);
    printf("        '%s') first='", command->name);
    for (size_t i = 0; command->actions && command->actions(i).name; i++)
        printf(" %s", command->actions(i).name);
    for (const fth_command *const *part = command->parts; part && *part; part++)
        printf(" %s", fth_command_last_word(*part));
    printf("' value='%s%s%s'", offers & FTH_OFFER_FILES ? " files" : "", offers & FTH_OFFER_FOLDERS ? " folders" : "",
           offers & FTH_OFFER_RUNS ? " runs" : "");
    if (command->wraps)
        printf(" wraps='%s'", command->wraps->name);
    puts(" ;;");
}

static void print_part(const fth_command *command)
{
    for (const fth_command *const *part = command->parts; part && *part; part++)
        printf("        '%s') command='%s' ;;\n", (*part)->name, (*part)->name);
}

void fth_completion_print_bash(void)
{
    puts("# bash completion for farthing; made by `farthing completion bash`\n\n"
         "_farthing_flags() {\n    case $1 in");
    fth_completion_visit(print_flags);
    puts("    esac\n}\n\n"
         "# Of a flag: value (files, folders, runs), words and whether the value may be left out; fails if it has "
         "none.\n"
         "_farthing_value() {\n    value= words= optional=\n    case \"$1 $2\" in");
    fth_completion_visit(print_values);
    puts("        *) return 1 ;;\n    esac\n}\n\n"
         "_farthing_positional() {\n    first= value= wraps=\n    case $1 in");
    fth_completion_visit(print_positional);
    puts("    esac\n}\n\n"
         "_farthing_part() {\n    case \"$1 $2\" in");
    fth_completion_visit(print_part);
    puts("        *) return 1 ;;\n    esac\n}\n");
    printf("_farthing_offer() { # KINDS WORDS\n"
           "    local kind run found\n"
           "    mapfile -t found < <(compgen -W \"$2\" -- \"$cur\")\n"
           "    COMPREPLY+=(\"${found[@]}\")\n"
           "    for kind in $1; do\n"
           "        compopt -o filenames\n"
           "        case $kind in\n"
           "            files) mapfile -t found < <(compgen -f -- \"$cur\") ;;\n"
           "            *) mapfile -t found < <(compgen -d -- \"$cur\") ;;\n"
           "        esac\n"
           "        COMPREPLY+=(\"${found[@]}\")\n"
           "        [[ $kind == runs ]] || continue\n"
           "        for run in runs/*/run.json; do\n"
           "            run=${run#runs/} run=${run%%/run.json}\n"
           "            [[ -e runs/$run/run.json && $run == \"$cur\"* ]] && COMPREPLY+=(\"$run\")\n"
           "        done\n"
           "    done\n"
           "}\n\n"
           "_farthing() {\n"
           "    local IFS=$' \\t\\n' cur command= flags value words optional first wraps word flag= ended= count=0 i\n"
           "    local commands='");
    for (const fth_command *const *command = fth_commands; *command; command++)
        if (!(*command)->hidden)
            printf(" %s", (*command)->name);
    puts(" --help --version'\n"
         "    COMPREPLY=()\n"
         "    cur=${COMP_WORDS[COMP_CWORD]}\n"
         "    # bash makes --flag=value three words.\n"
         "    [[ $cur == = ]] && cur=\n"
         "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "        word=${COMP_WORDS[i]}\n"
         "        if [[ -z $command ]]; then\n"
         "            [[ $word != -* ]] && command=$word\n"
         "        elif [[ $word == = ]]; then\n"
         "            :\n"
         "        elif [[ -n $flag && $word != --* ]]; then\n"
         "            flag=\n"
         "        elif [[ $word == -- ]]; then\n"
         "            _farthing_positional \"$command\"\n"
         "            if [[ -n $wraps ]]; then command= count=0 commands=$wraps; else ended=1; fi\n"
         "            flag=\n"
         "        elif [[ $word == --* && -z $ended ]]; then\n"
         "            flag=$word\n"
         "            _farthing_value \"$command\" \"$flag\" || flag=\n"
         "        elif [[ $count == 0 ]] && _farthing_part \"$command\" \"$word\"; then\n"
         "            :\n"
         "        else\n"
         "            ((count++))\n"
         "        fi\n"
         "    done\n"
         "    if [[ -z $command ]]; then\n"
         "        _farthing_offer '' \"$commands\"\n"
         "        return\n"
         "    fi\n"
         "    if [[ -n $flag ]] && _farthing_value \"$command\" \"$flag\"; then\n"
         "        if [[ -z $optional || $cur != -* ]]; then\n"
         "            _farthing_offer \"$value\" \"$words\"\n"
         "            [[ -z $optional ]] && return\n"
         "        fi\n"
         "    fi\n"
         "    if [[ -z $ended && $cur == -* ]]; then\n"
         "        _farthing_flags \"$command\"\n"
         "        _farthing_offer '' \"$flags\"\n"
         "        return\n"
         "    fi\n"
         "    _farthing_positional \"$command\"\n"
         "    [[ $count == 0 ]] || first=\n"
         "    [[ -z $first ]] || value=\n"
         "    _farthing_offer \"$value\" \"$first\"\n"
         "}\n\n"
         "complete -F _farthing farthing");
}
