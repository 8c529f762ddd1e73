/* What a table consists of, for the two readers: table_delimited.c (CSV, TSV) and table_json.c. */
#ifndef FTH_TEXT_TABLE_INTERNAL_H
#define FTH_TEXT_TABLE_INTERNAL_H

#include "text/table.h"

enum { FTH_MAX_COLUMNS = 4096 };

/* Text made for a row: fields that are not in the file as they are. */
typedef struct fth_table_text {
    char *bytes;
    size_t size, capacity;
} fth_table_text;

struct fth_text_table {
    const char *name;
    const char *bytes;
    size_t size_bytes, begin; /* the first row's place */
    fth_text_format format;
    char delimiter;
    size_t at, line;   /* of the next row */
    int width;         /* fields of every row; 0: not known yet */
    fth_table_row row; /* the current one */
    fth_table_field *fields;
    size_t *copies; /* where in `text` each field lies, SIZE_MAX: in the file */
    size_t field_capacity, copy_capacity;
    fth_table_text text;
    char **keys; /* (width) of JSON lines, which `columns` is made of */
    fth_table_field *key_fields;
    fth_table_row columns;
};

/* Adds a field to the row: one that lies in the file, or what was added to the row's text from
 * `begin` on. */
fth_status fth_text_table_add_field(fth_text_table *table, fth_table_field field);
fth_status fth_text_table_add_copy(fth_text_table *table, fth_table_field field, size_t begin);
fth_status fth_table_text_add(fth_table_text *text, const char *bytes, size_t size_bytes);

/* Read a row from `at` on, which is not at the end; false in *found where there was none but empty
 * lines. */
fth_status fth_text_table_read_delimited(fth_text_table *table, bool *found);
fth_status fth_text_table_read_json(fth_text_table *table, bool *found);
fth_status fth_text_table_read_keys(fth_text_table *table);

#endif
