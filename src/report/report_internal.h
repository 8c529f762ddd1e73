/* Shared by the files of this folder: a run's facts as text, and its curves. */
#ifndef FTH_REPORT_REPORT_INTERNAL_H
#define FTH_REPORT_REPORT_INTERNAL_H

#include "report/report.h"

/* An option of the run as text; "-" if the record does not have it. free() it. */
char *fth_report_option(const fth_record_summary *run, const char *name);
/* The momentum of the run's optimizer; "-" if that has none. free() it. */
char *fth_report_momentum(const fth_record_summary *run);

/* "finished", "stopped, at step 120", "failed: ..." free() it. */
char *fth_report_state(const fth_record_summary *run);
/* Why it ended or was stopped; NULL if it is running, was killed or does not say. free() it. */
char *fth_report_ended(const fth_record_summary *run);
/* Had another model than the one kept as the best a higher accuracy? */
bool fth_report_saw_better(const fth_record_summary *run);

typedef enum fth_measure { FTH_LOSS, FTH_ACCURACY } fth_measure; /* accuracy in percent */

/* The curve of a series: arrays to free() in the line. */
fth_status fth_report_curve(const fth_record_series *series, fth_measure measure, fth_chart_axis axis,
                            const char *label, fth_chart_line *line);
/* Is there anything to draw? */
bool fth_report_has(const fth_record_series *series, fth_measure measure);
void fth_report_curve_release(fth_chart_line *line);

/* The default axis becomes one: steps mean the same in all runs only if the batch does; otherwise
 * epochs. */
fth_chart_axis fth_report_choose_axis(const fth_record_summary *runs, size_t run_count, fth_chart_axis asked);
const char *fth_report_axis_name(fth_chart_axis axis);

/* The mean of the last points, a twentieth of all; NAN if there are none. */
double fth_report_last_training_loss(const fth_record_summary *run);

/* A run's machines, their cost and their interruptions (bill.c); nothing if the record names no
 * machine. */
fth_status fth_report_bill(FILE *output, const fth_record_summary *run, const fth_catalogue *catalogue);
json_t *fth_report_bill_json(const fth_record_summary *run, const fth_catalogue *catalogue); /* or NULL */

/* Its functions (bill_functions.c); nothing where there were none. The catalogue may be NULL. */
fth_status fth_report_functions(FILE *output, const fth_ledger *ledger, const fth_catalogue *catalogue);
void fth_report_functions_json(const fth_ledger *ledger, const fth_catalogue *catalogue, json_t *bill);

/* The run's use of a batch cache (data_section.c); nothing if it used none. */
fth_status fth_report_data(FILE *output, const fth_record_summary *run);
json_t *fth_report_data_json(const fth_record_summary *run); /* or NULL */

/* ---- pictures (picture.c) ---- */

/* What curves span: the smallest value above 0, the largest, and how far right. */
typedef struct fth_picture_extent {
    double low, high, right;
} fth_picture_extent;

/* Writes a script for gnuplot that begins with fth_picture_begin(). */
typedef fth_status (*fth_picture_writer)(FILE *script, bool svg, const char *title, const void *context);

fth_status fth_picture_draw(const char *path, const char *title, fth_picture_writer write, const void *context);
/* The terminal and the look of all panels, side by side. */
void fth_picture_begin(FILE *script, bool svg, int panels);
void fth_picture_begin_panels(FILE *script, const char *title, int panels);
/* Single-quoted for gnuplot. */
void fth_picture_quote(FILE *script, const char *text);
/* The data of a line, as a block $<kind><number>; widens `seen`. */
void fth_picture_series(FILE *script, const fth_chart_line *line, size_t number, const char *kind,
                        fth_picture_extent *seen);
/* The range of the y axis for losses. */
void fth_picture_loss_axis(FILE *script, const fth_picture_extent *seen);
/* Places the legend outside the axes: beside them, or below where the `longest` name, in columns,
 * is too long for that. */
void fth_picture_key(FILE *script, size_t longest);
/* Adds an entry to a plot's legend that says which lines are of validation; nothing is drawn. */
void fth_picture_key_validation(FILE *script, const char *separator);
/* The colour of line i. */
const char *fth_picture_colour(size_t i);

#endif
