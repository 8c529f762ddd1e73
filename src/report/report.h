/* Reports: tables and charts made from run records. */
#ifndef FTH_REPORT_REPORT_H
#define FTH_REPORT_REPORT_H

#include <stdio.h>

#include "record/record.h"

/* One run: a table of what it did and what it took, and a loss chart as wide as `columns`. */
fth_status fth_report_run(FILE *output, const fth_record_summary *run, int columns);

/* Several runs side by side: a table, and their loss curves in one chart. */
fth_status fth_report_compare(FILE *output, const fth_record_summary *runs, size_t run_count, int columns);

/* The same as JSON, one object per run. */
json_t *fth_report_json(const fth_record_summary *run);

/* Loss curves as a picture: PNG or SVG by the path's ending, drawn by gnuplot. */
fth_status fth_report_picture(const char *path, const fth_record_summary *runs, size_t run_count);

/* ---- pieces ---- */

typedef struct fth_chart_line {
    const char *label;
    const double *x, *y; /* NAN y values are gaps */
    size_t count;
} fth_chart_line;

/* Draws lines in the terminal with braille dots, axes labelled, one marker or colour per line. */
fth_status fth_chart_print(FILE *output, const fth_chart_line *lines, size_t line_count, const char *x_label,
                           const char *y_label, int columns, int rows);

#endif
