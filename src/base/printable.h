/* Making text from outside safe to print.
 *
 * Names of files, classes and hosts, and what servers answer, may contain bytes that a terminal
 * interprets: they move the cursor, rewrite lines, set titles, or make text read in another order.
 * Such bytes are shown as escapes: \n, \r, \t, \x1b (control characters and bytes that are not
 * UTF-8), \u202e (DEL, C1 controls, line separators, bidirectional embeddings, overrides and
 * isolates). All other UTF-8 stays as it is, backslashes included, so printable text is never
 * changed, and escaping twice is the same as once.
 *
 * fth_fail() and fth_log() escape their messages, and tables their cells. Other output that
 * contains text from outside goes through fth_print(). */
#ifndef FTH_BASE_PRINTABLE_H
#define FTH_BASE_PRINTABLE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

bool fth_is_printable(const char *text);

/* The printable form in fresh memory, NULL only without memory; free() it. */
char *fth_printable(const char *text);

/* A formatted message's printable form, with a NUL, in `size` bytes; gives its length. Addresses in
 * it lose their secrets (address.h). The end is cut off if it does not fit, without splitting a
 * character or an escape. */
size_t fth_printable_format(char *text, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* The same of a text as it is. */
void fth_printable_copy(char *copy, size_t size, const char *text);

/* Like fprintf(), with all of the result made printable: a newline comes from fth_print_line()
 * alone. */
void fth_print(FILE *output, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fth_print_line(FILE *output, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A copy that is valid UTF-8, as JSON has to be: bytes that are not become \x escapes and all else
 * stays, control characters included. NULL only without memory; free() it. */
char *fth_text_to_utf8(const char *text);

#endif
