/* The rows of a set's tables before they are tokens: texts in one block of memory, and labels as
 * they were met. */
#ifndef FTH_DATA_TEXT_ROWS_H
#define FTH_DATA_TEXT_ROWS_H

#include "data/data.h"
#include "text/columns.h"
#include "text/labels.h"
#include "text/tokenizer.h"

typedef struct fth_text_row {
    uint64_t begin;                     /* in the text */
    uint32_t first_bytes, second_bytes; /* second: UINT32_MAX if it is no pair */
} fth_text_row;

typedef struct fth_text_rows {
    char *text;
    size_t text_size, text_capacity;
    fth_text_row *rows;
    size_t count, capacity;
    /* Numbers that fth_labels_meet() gave: one of each row, or, of sets, any number of them, up to
     * label_ends[row]. */
    int32_t *labels;
    size_t label_count, label_capacity;
    uint64_t *label_ends;
    size_t end_capacity;
    /* Labels that are numbers: `width` of each row. */
    float *numbers;
    size_t number_count, number_capacity;
    int width; /* 0: not known yet */
} fth_text_rows;

void fth_text_rows_release(fth_text_rows *rows);

/* Adds the rows of a table that is before its first one. What several label columns of sets are
 * called has been met as the labels 0, 1, ... in their order. The table's text takes at most
 * `size_bytes`. `stop` may be NULL. */
fth_status fth_text_rows_read(fth_text_rows *rows, fth_text_table *table, const fth_columns *columns,
                              fth_label_kind kind, fth_labels *labels, size_t size_bytes, const fth_stop *stop);

/* The text of a row, lent. */
fth_text_pair fth_text_rows_get(const fth_text_rows *rows, size_t row);

#endif
