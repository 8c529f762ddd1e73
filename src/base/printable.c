/* See printable.h. A text consists of units: characters, and single bytes that belong to none. */
#include "base/printable.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"

enum { ESCAPE_SIZE = 8, FORMATTED_SIZE = 4096 };

typedef enum unit_kind {
    UNIT_PRINTABLE,
    UNIT_CONTROL, /* a character that a terminal interprets */
    UNIT_INVALID  /* a byte that is not part of UTF-8 */
} unit_kind;

typedef struct text_unit {
    size_t length; /* bytes */
    unit_kind kind;
    uint32_t code;
} text_unit;

static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* The unit that begins at `text`, which is not empty. A NUL is no continuation, so nothing behind
 * the end is read. */
static text_unit first_unit(const char *text)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000}; /* of a length; below it is overlong */
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned lead = bytes[0];
    text_unit invalid = {.length = 1, .kind = UNIT_INVALID, .code = lead};
    size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    if (length == 0)
        return invalid;
    uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (bytes[i] >> 6 != 2)
            return invalid;
        code = code << 6 | (bytes[i] & 0x3fu);
    }
    if (code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return invalid;
    return (text_unit){.length = length, .kind = is_control(code) ? UNIT_CONTROL : UNIT_PRINTABLE, .code = code};
}

/* The escape of a unit that is not printable; gives its length. Those that JSON leaves in its
 * strings get the form that JSON understands. */
static size_t write_escape(text_unit unit, char escape[ESCAPE_SIZE])
{
    static const char named[] = "\tt\nn\rr";
    const char *letter = unit.kind == UNIT_CONTROL && unit.length == 1 ? strchr(named, (char)unit.code) : NULL;
    if (letter && *letter)
        return (size_t)snprintf(escape, ESCAPE_SIZE, "\\%c", letter[1]);
    return (size_t)snprintf(escape, ESCAPE_SIZE, unit.code < 0x20 || unit.kind == UNIT_INVALID ? "\\x%02x" : "\\u%04x",
                            (unsigned)unit.code);
}

/* Copies units while they fit, those of kind `from` and above as escapes; gives the length, without
 * the NUL. */
static size_t escape_into(const char *text, unit_kind from, char *to, size_t size)
{
    size_t used = 0;
    while (*text) {
        char escape[ESCAPE_SIZE];
        text_unit unit = first_unit(text);
        size_t length = unit.kind >= from ? write_escape(unit, escape) : unit.length;
        if (used + length >= size)
            break;
        memcpy(to + used, unit.kind >= from ? escape : text, length);
        used += length;
        text += unit.length;
    }
    to[used] = '\0';
    return used;
}

static char *escape_copy(const char *text, unit_kind from)
{
    size_t size = 1;
    for (const char *at = text; *at;) {
        char escape[ESCAPE_SIZE];
        text_unit unit = first_unit(at);
        size += unit.kind >= from ? write_escape(unit, escape) : unit.length;
        at += unit.length;
    }
    char *copy = malloc(size);
    if (copy)
        escape_into(text, from, copy, size);
    return copy;
}

bool fth_is_printable(const char *text)
{
    while (*text) {
        text_unit unit = first_unit(text);
        if (unit.kind != UNIT_PRINTABLE)
            return false;
        text += unit.length;
    }
    return true;
}

char *fth_printable(const char *text)
{
    return escape_copy(text, UNIT_CONTROL);
}

char *fth_text_to_utf8(const char *text)
{
    return escape_copy(text, UNIT_INVALID);
}

/* Takes off the beginning of a character whose rest vsnprintf() had no room for. */
static void drop_partial_character(char *text, size_t length)
{
    size_t lead = length;
    while (lead > 0 && length - lead < 3 && ((unsigned char)text[lead - 1] & 0xc0) == 0x80)
        lead--;
    if (lead > 0 && (unsigned char)text[lead - 1] >= 0xc0 && first_unit(text + lead - 1).kind == UNIT_INVALID)
        text[lead - 1] = '\0';
}

size_t fth_printable_format(char *text, size_t size, const char *format, va_list arguments)
{
    char formatted[FORMATTED_SIZE];
    int length = vsnprintf(formatted, sizeof formatted, format, arguments);
    if (length < 0)
        formatted[0] = '\0';
    else if (length >= (int)sizeof formatted)
        drop_partial_character(formatted, sizeof formatted - 1);
    fth_address_hide_secrets(formatted);
    return escape_into(formatted, UNIT_CONTROL, text, size);
}

__attribute__((format(printf, 3, 4))) static void copy_format(char *copy, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fth_printable_format(copy, size, format, arguments);
    va_end(arguments);
}

void fth_printable_copy(char *copy, size_t size, const char *text)
{
    copy_format(copy, size, "%s", text);
}

static void print(FILE *output, const char *format, va_list arguments)
{
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0)
        return;
    for (const char *at = text; *at;) {
        char escape[ESCAPE_SIZE];
        text_unit unit = first_unit(at);
        bool plain = unit.kind == UNIT_PRINTABLE;
        fwrite(plain ? at : escape, 1, plain ? unit.length : write_escape(unit, escape), output);
        at += unit.length;
    }
    free(text);
}

void fth_print(FILE *output, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print(output, format, arguments);
    va_end(arguments);
}

void fth_print_line(FILE *output, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print(output, format, arguments);
    va_end(arguments);
    fputc('\n', output);
}
