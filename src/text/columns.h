/* Chooses the columns of a table: the text, the second text of a pair, and the label.
 *
 * The user can name them, by a name in the heading or a number from 1, several separated by commas:
 * texts of several columns are joined by spaces; several label columns are that many numbers or
 * labels. Otherwise they are found:
 *
 *     with a heading      by usual names: text, sentence, review, ...; title with description or
 *                         content; sentence1 and sentence2, premise and hypothesis, ... for pairs;
 *                         label, class, category, ...
 *     without             by published orders: label, text, text ... if the first column is numeric
 *                         (AG News, Yelp, DBPedia); else text, label
 *
 * The first row is a heading if it has one of these names, or lacks a number where all rows below
 * it have one. */
#ifndef FTH_TEXT_COLUMNS_H
#define FTH_TEXT_COLUMNS_H

#include "text/table.h"

/* The user's columns; NULL or "": find them. */
typedef struct fth_column_names {
    const char *text, *pair, *label;
    bool unlabelled; /* the table need not have labels */
} fth_column_names;

enum { FTH_MAX_TEXT_COLUMNS = 16, FTH_MAX_LABEL_COLUMNS = 1024 };

typedef struct fth_column_list {
    int count;
    int columns[FTH_MAX_LABEL_COLUMNS];
} fth_column_list;

typedef struct fth_columns {
    fth_column_list text, pair, label; /* `pair` may be empty */
    bool heading;
} fth_columns;

/* Leaves the table at its first row of data. */
fth_status fth_columns_choose(fth_text_table *table, const fth_column_names *names, fth_columns *columns);

/* The heading of a column, or "column N"; free() it. Leaves the table at its first row of data. */
fth_status fth_columns_name(fth_text_table *table, const fth_columns *columns, int column, char **name);

#endif
