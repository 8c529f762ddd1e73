/* The state of a table, for its readers: table_delimited.c (CSV, TSV) and table_json.c. */
#ifndef FTH_TEXT_TABLE_INTERNAL_H
#define FTH_TEXT_TABLE_INTERNAL_H

#include "text/table.h"

enum { FTH_MAX_COLUMNS = 4096 };

/* Text of fields that are not in the file as such. */
typedef struct fth_table_text {
    char *bytes;
    size_t size, capacity;
} fth_table_text;

struct fth_text_table {
    const char *name;
    const char *bytes;
    size_t size_bytes, begin; /* `begin`: the first row */
    fth_text_format format;
    char delimiter;
    size_t at, line;   /* of the next row */
    int width;         /* fields in a row; 0: unknown so far */
    fth_table_row row; /* the current one */
    fth_table_field *fields;
    size_t *copies; /* where in `text` each field is; SIZE_MAX: in the file */
    size_t field_capacity, copy_capacity;
    fth_table_text text;
    char **keys; /* (width) of JSON lines; `columns` points to them */
    fth_table_field *key_fields;
    fth_table_row columns;
};

/* Adds a field to the row: one in the file, or the row's text from `begin` on. */
fth_status fth_text_table_add_field(fth_text_table *table, fth_table_field field);
fth_status fth_text_table_add_copy(fth_text_table *table, fth_table_field field, size_t begin);
fth_status fth_table_text_add(fth_table_text *text, const char *bytes, size_t size_bytes);

/* Reads a row from `at` on, which is not the end; *found is false if only empty lines were left. */
fth_status fth_text_table_read_delimited(fth_text_table *table, bool *found);
fth_status fth_text_table_read_json(fth_text_table *table, bool *found);
fth_status fth_text_table_read_keys(fth_text_table *table);

#endif
