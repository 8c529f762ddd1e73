/* Manual pages, in roff, made from the tables of commands and options. */
#ifndef FTH_CLI_MANUAL_H
#define FTH_CLI_MANUAL_H

#include <stdio.h>

#include "cli/cli.h"

/* farthing(1). */
void fth_manual_print_program(FILE *out);
/* farthing-train(1), farthing-serve-parameters(1), ... */
void fth_manual_print_command(FILE *out, const fth_command *command);
/* "farthing-serve-parameters"; of NULL "farthing". */
void fth_manual_name(const fth_command *command, char *name, size_t size);

/* ---- roff.c: text as roff's man macros take it ---- */

/* A paragraph: lines are filled, `code` in backticks is bold, and nothing is interpreted as a
 * request. */
void fth_roff_text(FILE *out, const char *text);
/* A piece of a line as it is, with everything escaped. */
void fth_roff_literal(FILE *out, const char *text);
/* ".SH EXIT STATUS": a macro with one argument. */
void fth_roff_heading(FILE *out, const char *macro, const char *text);
/* Paragraphs between empty lines; those whose lines are indented stay as they are. */
void fth_roff_details(FILE *out, const char *text);

#endif
