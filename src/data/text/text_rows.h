/* Rows of tables before they are tokenized: texts in one block of memory, and labels by their
 * numbers. */
#ifndef FTH_DATA_TEXT_ROWS_H
#define FTH_DATA_TEXT_ROWS_H

#include "data/data.h"
#include "text/columns.h"
#include "text/labels.h"
#include "text/tokenizer.h"

typedef struct fth_text_row {
    uint64_t begin;                     /* in the text */
    uint32_t first_bytes, second_bytes; /* second_bytes: UINT32_MAX if it is no pair */
} fth_text_row;

typedef struct fth_text_rows {
    char *text;
    size_t text_size, text_capacity;
    fth_text_row *rows;
    size_t count, capacity;
    /* Numbers from fth_labels_meet(): one for each row; or, if labels are sets, up to
     * label_ends[row]. */
    int32_t *labels;
    size_t label_count, label_capacity;
    uint64_t *label_ends;
    size_t end_capacity;
    /* If labels are numbers: `width` for each row. */
    float *numbers;
    size_t number_count, number_capacity;
    int width; /* 0: unknown so far */
} fth_text_rows;

void fth_text_rows_release(fth_text_rows *rows);

/* Adds the rows of a table, which must be before its first row. If labels are sets in several
 * columns, the columns' names have been added as labels 0, 1, ... in order. The texts take at most
 * `size_bytes`. `stop` may be NULL. */
fth_status fth_text_rows_read(fth_text_rows *rows, fth_text_table *table, const fth_columns *columns,
                              fth_label_kind kind, fth_labels *labels, size_t size_bytes, const fth_stop *stop);

/* The text of a row, lent. */
fth_text_pair fth_text_rows_get(const fth_text_rows *rows, size_t row);

#endif
