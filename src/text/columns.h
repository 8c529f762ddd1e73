/* Which columns of a table are the text, the second text of a pair, and the label.
 *
 * They can be named, by a name in the heading or a number from 1 on, several with commas between
 * them: texts of several columns are joined by spaces, and several label columns are that many
 * numbers or labels. What is not named is found:
 *
 *     with a heading      the names that data sets usually have: text, sentence, review, ...; title with description or content;
 *                         sentence1 and sentence2, premise and hypothesis, ... for pairs; label, class, category, ...
 *     without             the published sets' order, where the first column is a number: label, text, text ... (AG News, Yelp,
 *                         DBPedia); else text, label
 *
 * The first row is a heading if it has one of the names that were asked for or are usual, or lacks
 * a number where all rows below it have one. */
#ifndef FTH_TEXT_COLUMNS_H
#define FTH_TEXT_COLUMNS_H

#include "text/table.h"

/* What the user asks for; NULL or "": found. */
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
    fth_column_list text, pair, label; /* pair: perhaps none */
    bool heading;
} fth_columns;

/* Leaves the table before its first row of data. */
fth_status fth_columns_choose(fth_text_table *table, const fth_column_names *names, fth_columns *columns);

/* The heading's name of a column, or "column N" without one; free() it. Leaves the table before its
 * first row of data. */
fth_status fth_columns_name(fth_text_table *table, const fth_columns *columns, int column, char **name);

#endif
