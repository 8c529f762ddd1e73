/* Tables of texts and labels: CSV, TSV and JSON lines, read row by row from memory.
 *
 *     CSV           RFC 4180: quoted fields may hold commas, newlines and doubled quotes. Lines end
 *                   with LF, CRLF or CR. If the first line has no comma, semicolons or tabs
 *                   separate fields.
 *     TSV           fields separated by tabs, one row a line; quotes are ordinary, as in GLUE
 *     JSON lines    an object a line; the columns are the keys of the first
 *
 * Byte order marks and empty lines are skipped. Every row must have as many fields as the first.
 * Fields may hold any bytes, including NUL. */
#ifndef FTH_TEXT_TABLE_H
#define FTH_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

typedef enum fth_text_format { FTH_TEXT_CSV, FTH_TEXT_TSV, FTH_TEXT_JSON_LINES } fth_text_format;

/* The format by a name's ending: .csv, .tsv, .jsonl, .ndjson or .json, with or without .gz, .xz or
 * .zst. *stem_length (may be NULL) is the length before it. False for other names. */
bool fth_text_format_find(const char *name, fth_text_format *format, size_t *stem_length);

typedef struct fth_table_field {
    const char *text; /* not terminated */
    size_t size_bytes;
    bool missing; /* JSON: null, an object, or a missing key */
    bool list;    /* JSON: an array, whose items are separated by FTH_FIELD_SEPARATOR */
} fth_table_field;
#define FTH_FIELD_SEPARATOR '\x1f'

/* Compares a field with a text, ignoring ASCII case. */
bool fth_table_field_is(const fth_table_field *field, const char *text);

typedef struct fth_table_row {
    const fth_table_field *fields;
    int count;
    size_t line; /* where it begins, from 1 */
} fth_table_row;

typedef struct fth_text_table fth_text_table;

/* `bytes` and `name` outlive the table; `name` begins error messages. */
fth_status fth_text_table_open(const char *bytes, size_t size_bytes, const char *name, fth_text_format format,
                               fth_text_table **table);
void fth_text_table_free(fth_text_table *table);
const char *fth_text_table_name(const fth_text_table *table);

/* The keys of JSON lines, lent; NULL for other formats, whose first row may be a heading. */
const fth_table_row *fth_text_table_columns(const fth_text_table *table);

/* The next row, lent until the next call; *row is NULL after the last. */
fth_status fth_text_table_next(fth_text_table *table, const fth_table_row **row);
/* Returns to the first row. */
void fth_text_table_rewind(fth_text_table *table);

#endif
