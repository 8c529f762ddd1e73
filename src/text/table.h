/* Tables of texts and labels: CSV, TSV and JSON lines, row by row, from bytes in memory.
 *
 *     CSV           RFC 4180: fields in quotes may hold commas, newlines and doubled quotes. Lines end in LF, CRLF or CR. Where the
 *                   first line has no comma but semicolons or tabs, those separate the fields.
 *     TSV           fields between tabs, one row a line; quotes are text like any other, as in the files of GLUE
 *     JSON lines    an object a line; the columns are the keys of the first one
 *
 * A byte order mark is passed over, and so are empty lines. Every row has as many fields as the
 * first: one that has not is an error that names the line. Fields may hold any bytes, NULs too. */
#ifndef FTH_TEXT_TABLE_H
#define FTH_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

typedef enum fth_text_format { FTH_TEXT_CSV, FTH_TEXT_TSV, FTH_TEXT_JSON_LINES } fth_text_format;

/* The format by how a name ends: .csv, .tsv, .jsonl, .ndjson or .json, with .gz, .xz or .zst behind
 * it or not. *stem_length (may be NULL) is what comes before. False for other names. */
bool fth_text_format_find(const char *name, fth_text_format *format, size_t *stem_length);

typedef struct fth_table_field {
    const char *text; /* no NUL behind it */
    size_t size_bytes;
    bool missing; /* JSON: null, an object, or the row lacks the key */
    bool list;    /* JSON: an array, whose items are separated by FTH_FIELD_SEPARATOR */
} fth_table_field;
#define FTH_FIELD_SEPARATOR '\x1f'

/* True if the field is that text, in any case of ASCII letters. */
bool fth_table_field_is(const fth_table_field *field, const char *text);

typedef struct fth_table_row {
    const fth_table_field *fields;
    int count;
    size_t line; /* on which it begins, from 1 on */
} fth_table_row;

typedef struct fth_text_table fth_text_table;

/* `bytes` and `name`, which begins error messages, outlive the table. */
fth_status fth_text_table_open(const char *bytes, size_t size_bytes, const char *name, fth_text_format format,
                               fth_text_table **table);
void fth_text_table_free(fth_text_table *table);
const char *fth_text_table_name(const fth_text_table *table);

/* The keys of JSON lines; NULL for others, whose first row may be a heading. Lent. */
const fth_table_row *fth_text_table_columns(const fth_text_table *table);

/* The next row, lent until the next call; *row is NULL after the last. */
fth_status fth_text_table_next(fth_text_table *table, const fth_table_row **row);
/* Begins at the first row again. */
void fth_text_table_rewind(fth_text_table *table);

#endif
