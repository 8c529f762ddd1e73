/* farthing functions: commands for functions of OpenWhisk, AWS Lambda or this machine. */
#include "cli/functions/functions_cli.h"

static const fth_command *const verbs[] = {&fth_functions_deploy,
                                           &fth_functions_invoke,
                                           &fth_functions_status,
                                           &fth_functions_logs,
                                           &fth_functions_remove,
                                           &fth_functions_package,
                                           NULL};

static fth_choice choose_verb(size_t index)
{
    const fth_command *verb = verbs[index];
    return verb ? (fth_choice){fth_command_last_word(verb), verb->summary} : (fth_choice){0};
}

const fth_command fth_command_functions = {
    .name = "functions",
    .arguments = "WHAT [--flag value ...]",
    .summary = "train in functions of OpenWhisk and AWS Lambda",
    .details = "`farthing functions WHAT --help` describes each command.\n",
    .parts = verbs,
    .list_parts = choose_verb,
    .part_subject = "what to do",
};
