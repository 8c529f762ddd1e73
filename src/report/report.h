/* Reports: tables and charts made from run records. */
#ifndef FTH_REPORT_REPORT_H
#define FTH_REPORT_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cost/cost.h"
#include "record/record.h"
#include "train/model/confusion.h"

/* One run: tables of what it did and what it took, and charts of loss and accuracy as wide as
 * `columns`. With a catalogue, what a VM would have cost stands beside its functions; NULL:
 * none. */
fth_status fth_report_run(FILE *output, const fth_record_summary *run, const fth_catalogue *catalogue, int columns);

/* What curves are drawn over. By default steps, or epochs where steps do not mean the same in all
 * runs. */
typedef enum fth_chart_axis { FTH_OVER_DEFAULT, FTH_OVER_STEPS, FTH_OVER_EPOCHS, FTH_OVER_TIME } fth_chart_axis;

/* Puts the best run first: by the validation accuracy of the model that is kept, then by its loss,
 * then by the training loss; runs that are equal stay in their order. */
void fth_report_rank(fth_record_summary *runs, size_t run_count);

/* Several runs side by side, in their order: a table no wider than `columns`, a chart of their
 * training losses, and one of their validation accuracies. */
fth_status fth_report_compare(FILE *output, const fth_record_summary *runs, size_t run_count, fth_chart_axis axis,
                              int columns);

/* True if `runs` show how training scales: at least one is data-parallel, and the others have one
 * worker. */
bool fth_report_scales(const fth_record_summary *runs, size_t run_count);
/* Runs with different numbers of workers: a table with each one's efficiency against the smallest
 * of the same experiment; of several also charts of efficiency and epoch time by workers, and of
 * losses over time. */
fth_status fth_report_scaling(FILE *output, const fth_record_summary *runs, size_t run_count, int columns);
/* The charts of fth_report_scaling() as a picture, as fth_report_picture() draws it. */
fth_status fth_report_scaling_picture(const char *path, const fth_record_summary *runs, size_t run_count);

/* Why a run ended, from its run.json and "end" event: "--epochs 3 reached". NULL if that is not
 * known. free() it. */
char *fth_report_ending(const json_t *run, const json_t *end);

/* ---- costs, and files ---- */

/* What several runs cost: a row for each machine of each, and totals. */
fth_status fth_report_bills(FILE *output, const fth_record_summary *runs, size_t run_count);

/* What a report says, as JSON, one object per run. */
json_t *fth_report_json(const fth_record_summary *run, const fth_catalogue *catalogue);

/* Loss and accuracy side by side as a picture, titled with the run's name and drawn by gnuplot: PNG
 * or SVG by the path's ending, or by what stands before it where it has none ("svg:-",
 * "png:/dev/fd/3"). PNG for "-" and for a device or pipe alone. `path` is the user's
 * (base/output.h). */
fth_status fth_report_picture(const char *path, const fth_record_summary *runs, size_t run_count, fth_chart_axis axis);
/* FTH_INVALID where `path` says neither. */
fth_status fth_report_check_picture(const char *path);
/* The path alone. */
const char *fth_report_picture_output(const char *path);

/* ---- pieces ---- */

typedef struct fth_chart_line {
    const char *label;
    const double *x, *y; /* NAN y values are gaps */
    size_t count;
} fth_chart_line;

typedef struct fth_chart {
    const char *x_label, *y_label;
    bool linear;       /* else the y axis is logarithmic where values span decades */
    int columns, rows; /* of the whole, and of the plot in it */
} fth_chart;

/* Draws lines in the terminal with braille dots (plain characters where the terminal has no UTF-8),
 * axes labelled, one marker or colour per line. */
fth_status fth_chart_print(FILE *output, const fth_chart *chart, const fth_chart_line *lines, size_t line_count);

typedef struct fth_table fth_table;

/* A table with aligned columns; widths count characters, not bytes. A heading that begins with '>'
 * (and is shown without it) aligns its column to the right. `headings` may be NULL: no heading
 * row. */
fth_status fth_table_create(const char *const *headings, size_t column_count, fth_table **table);
/* The same with the headings as arguments: FTH_TABLE(&table, "name", ">count"). */
#define FTH_TABLE(table, ...)                                                                                          \
    fth_table_create((const char *const[]){__VA_ARGS__},                                                               \
                     sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), table)
void fth_table_free(fth_table *table);
fth_status fth_table_add_row(fth_table *table, const char *const *cells); /* copied, made printable; NULL: empty */
size_t fth_table_width(const fth_table *table);                           /* in columns, as it is */
void fth_table_print(FILE *output, const fth_table *table);
/* Prints no more than `columns` wide: columns that do not fit follow in further tables, each with
 * the first column. */
void fth_table_print_parts(FILE *output, const fth_table *table, size_t columns);
/* Takes a column away. */
void fth_table_remove_column(fth_table *table, size_t column);
/* Shortens cells of a column until the table fits into `columns`, but not below `least`. */
fth_status fth_table_shorten(fth_table *table, size_t column, size_t columns, size_t least);

/* 1463 -> "1,463"; 0.9871 -> "98.71 %"; 1536 -> "1.5 kB"; NAN -> "-" where a number may be
 * missing. */
void fth_text_count(int64_t number, char *text, size_t size);
void fth_text_percent(double fraction, char *text, size_t size);
void fth_text_bytes(int64_t bytes, char *text, size_t size);
void fth_text_loss(double loss, char *text, size_t size);

/* Columns that `text`, in UTF-8, takes in a terminal: two for a wide character, none for a
 * combining mark. */
size_t fth_text_width(const char *text);
/* Bytes of `text` that fit into `columns`, never splitting a character. */
size_t fth_text_fit(const char *text, size_t columns);

/* A part of a line. */
enum { FTH_MAX_FIELDS = 16 };
typedef struct fth_field {
    char text[96];         /* "": not there */
    char brief[64];        /* a shorter form; "": there is none */
    int importance;        /* where not all fit, the lowest goes first */
    const char *separator; /* before the next one; NULL: ", " */
} fth_field;

/* Joins as many whole fields as fit into `columns`, in their order. Fields are never cut: first
 * they take their brief forms, then they are left out, the least important ones first. */
void fth_fields_fit(const fth_field *fields, size_t count, size_t columns, char *line, size_t size);

/* True if the locale says UTF-8 and FARTHING_ASCII is not set. */
bool fth_terminal_is_utf8(void);
/* True if `output` is a terminal that wants colours: not TERM=dumb, no NO_COLOR. */
bool fth_terminal_has_colour(FILE *output);
/* Width of the terminal behind `output`, else $COLUMNS, else 80; at most 400. */
int fth_terminal_width(FILE *output);
/* The same for what needs some room, a table or chart: at least 40. */
int fth_terminal_columns(FILE *output);

#endif
