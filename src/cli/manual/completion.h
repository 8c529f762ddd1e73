/* `farthing completion`: one file per shell turns the tables of commands and options into a
 * script. */
#ifndef FTH_CLI_COMPLETION_H
#define FTH_CLI_COMPLETION_H

#include "cli/cli.h"

/* What a shell can offer for an argument, as bits. */
enum { FTH_OFFER_FILES = 1 << 0, FTH_OFFER_FOLDERS = 1 << 1, FTH_OFFER_RUNS = 1 << 2 };

/* By the words of a placeholder: "FILE.csv", "NAME|FOLDER". */
unsigned fth_completion_offers(const char *placeholder);
/* The same for what a command takes without a flag: "[FILE|RUN] [--data NAME]" has a file and a
 * run. */
unsigned fth_completion_positional_offers(const fth_command *command);

/* Calls `visit` for each visible command, including those below others ("serve parameters"). */
void fth_completion_visit(void (*visit)(const fth_command *command));

void fth_completion_print_bash(void);
void fth_completion_print_zsh(void);
void fth_completion_print_fish(void);

#endif
