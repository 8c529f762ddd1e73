/* farthing completion: prints a script that makes a shell complete commands, flags and values.
 *
 * It is generated from the tables of commands and options, so nothing has to be updated by hand.
 * The scripts are static: completing does not run farthing. */
#include "cli/manual/completion.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct shell {
    const char *name, *summary;
    void (*print)(void);
} shells[] = {
    {"bash", "eval \"$(farthing completion bash)\" in ~/.bashrc", fth_completion_print_bash},
    {"zsh", "farthing completion zsh > a folder of $fpath/_farthing", fth_completion_print_zsh},
    {"fish", "farthing completion fish > ~/.config/fish/completions/farthing.fish", fth_completion_print_fish},
};

static fth_choice choose_shell(size_t index)
{
    if (index >= FTH_COUNT_OF(shells))
        return (fth_choice){0};
    return (fth_choice){.name = shells[index].name, .summary = shells[index].summary};
}

/* ---- what the shells share ---- */

unsigned fth_completion_offers(const char *placeholder)
{
    static const struct {
        const char *word;
        unsigned offers;
    } words[] = {
        {"FILE", FTH_OFFER_FILES},    {"TRACE", FTH_OFFER_FILES},   {"IMAGE", FTH_OFFER_FILES},
        {"PATH", FTH_OFFER_FILES},    {"ADDRESS", FTH_OFFER_FILES}, {"FOLDER", FTH_OFFER_FOLDERS},
        {"PLACE", FTH_OFFER_FOLDERS}, {"STORE", FTH_OFFER_FOLDERS}, {"RUN", FTH_OFFER_RUNS},
        {"ID", FTH_OFFER_RUNS},
    };
    unsigned offers = 0;
    for (const char *at = placeholder ? placeholder : ""; *at;) {
        size_t length = 0;
        while (isupper((unsigned char)at[length]))
            length++;
        for (size_t i = 0; i < FTH_COUNT_OF(words); i++)
            if (length == strlen(words[i].word) && strncmp(at, words[i].word, length) == 0)
                offers |= words[i].offers;
        at += length > 0 ? length : 1;
    }
    return offers;
}

unsigned fth_completion_positional_offers(const fth_command *command)
{
    unsigned offers = 0;
    bool is_value = false; /* of the flag before */
    for (const char *at = command->arguments; *(at += strspn(at, " "));) {
        char word[64];
        size_t length = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        bool is_flag = strncmp(word + strspn(word, "["), "--", 2) == 0;
        if (!is_flag && !is_value)
            offers |= fth_completion_offers(word);
        is_value = is_flag && !strchr(word, ']');
        at += length;
    }
    return offers;
}

void fth_completion_visit(void (*visit)(const fth_command *command))
{
    for (const fth_command *const *command = fth_commands; *command; command++) {
        if ((*command)->hidden)
            continue;
        visit(*command);
        for (const fth_command *const *part = (*command)->parts; part && *part; part++)
            visit(*part);
    }
}

/* ---- the command ---- */

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    (void)options;
    if (arguments->count != 1)
        return fth_cli_usage(command, "missing the shell: bash, zsh or fish");
    for (size_t i = 0; i < FTH_COUNT_OF(shells); i++)
        if (strcmp(shells[i].name, arguments->positional[0]) == 0) {
            shells[i].print();
            return FTH_EXIT_OK;
        }
    return fth_cli_usage_choice(command, "the shell", arguments->positional[0], choose_shell);
}

const fth_command fth_command_completion = {
    .name = "completion",
    .arguments = "SHELL",
    .summary = "print a script that completes commands, flags and values in a shell",
    .actions = choose_shell,
    .examples = (const fth_example[]){{"eval \"$(farthing completion bash)\"", "enable completion in this bash"}, {0}},
    .run = run,
};
