/* Writing roff. Input lines stay short, as mandoc's lint asks for, and each sentence begins one, so
 * that formatters know where it ends. */
#include <stdlib.h>
#include <string.h>

#include "cli/manual/manual.h"

enum { LINE_BYTES = 76 }; /* of 80: mandoc reads a letter like × as an escape of 8 */

/* NULL: the letter stands for itself. */
static const char *escape_of(char letter)
{
    switch (letter) {
    case '\\': return "\\e";
    case '-': return "\\-";
    case '~': return "\\(ti";
    case '^': return "\\(ha";
    case '\'': return "\\(aq";
    case '"': return "\\(dq";
    default: return NULL;
    }
}

static void put_escaped(FILE *out, char letter)
{
    const char *escape = escape_of(letter);
    if (escape)
        fputs(escape, out);
    else
        putc(letter, out);
}

void fth_roff_literal(FILE *out, const char *text)
{
    if (*text == '.')
        fputs("\\&", out);
    for (; *text; text++)
        put_escaped(out, *text);
}

void fth_roff_heading(FILE *out, const char *macro, const char *text)
{
    fprintf(out, ".%s \"", macro);
    for (; *text; text++)
        if (*text != '`')
            put_escaped(out, *text);
    fputs("\"\n", out);
}

/* A word of a paragraph; returns whether bold type is on behind it. */
static bool put_word(FILE *out, const char *word, size_t length, bool bold)
{
    if (*word == '.')
        fputs("\\&", out);
    for (size_t i = 0; i < length; i++) {
        if (word[i] == '`') {
            bold = !bold;
            fputs(bold ? "\\fB" : "\\fR", out);
        } else {
            put_escaped(out, word[i]);
        }
    }
    return bold;
}

/* The bytes that put_word() writes. */
static size_t measure_word(const char *word, size_t length)
{
    size_t bytes = *word == '.' ? strlen("\\&") : 0;
    for (size_t i = 0; i < length; i++) {
        const char *escape = word[i] == '`' ? "\\fB" : escape_of(word[i]);
        bytes += escape ? strlen(escape) : 1;
    }
    return bytes;
}

void fth_roff_text(FILE *out, const char *text)
{
    size_t at = 0;
    bool bold = false, sentence_ended = false;
    while (*(text += strspn(text, " \n"))) {
        size_t length = strcspn(text, " \n"), bytes = measure_word(text, length);
        if (at > 0 && (sentence_ended || at + 1 + bytes > LINE_BYTES)) {
            putc('\n', out);
            at = 0;
        }
        if (at > 0)
            putc(' ', out);
        bold = put_word(out, text, length, bold);
        at += bytes + (at > 0);
        sentence_ended = text[length - 1] == '.' && !bold;
        text += length;
    }
    fputs(bold ? "\\fR\n" : "\n", out);
}

/* As it is, up to the end of the paragraph. */
static void put_lines(FILE *out, const char *text, size_t length)
{
    fputs(".EX\n", out);
    for (const char *line = text; line < text + length;) {
        size_t width = strcspn(line, "\n");
        char *copy = fth_format("%.*s", (int)width, line);
        fth_roff_literal(out, copy ? copy : "");
        putc('\n', out);
        free(copy);
        line += width + 1;
    }
    fputs(".EE\n", out);
}

void fth_roff_details(FILE *out, const char *text)
{
    bool first = true;
    while (*(text += strspn(text, "\n"))) {
        const char *end = strstr(text, "\n\n");
        size_t length = end ? (size_t)(end - text) : strlen(text);
        char *paragraph = fth_format("%.*s", (int)length, text);
        if (!first)
            fputs(".PP\n", out);
        if (*text == ' ')
            put_lines(out, text, length);
        else
            fth_roff_text(out, paragraph ? paragraph : "");
        free(paragraph);
        first = false;
        text += length;
    }
}
