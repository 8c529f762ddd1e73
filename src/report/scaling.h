/* How training scales with workers: a table of runs, each compared with the smallest of the same
 * experiment, two charts, and where each rank's time went. */
#ifndef FTH_REPORT_SCALING_H
#define FTH_REPORT_SCALING_H

#include "report/report.h"

/* One run. */
typedef struct fth_scaling_row {
    const fth_record_summary *run;
    int nodes, workers;      /* that it began with */
    bool changed;            /* workers came or went meanwhile */
    double learning_rate;    /* the highest; NAN: unknown */
    int64_t batch;           /* of all workers together */
    int64_t steps_per_epoch; /* 0: unknown */
    double epochs, epoch_s;  /* passes made, and the time of one; NAN: none was started */
    double trained_s;        /* until its last step */
    double efficiency;       /* of a worker, against one of the smallest run; NAN: unknown */
} fth_scaling_row;

/* `rows` has room for all runs; sorted by workers. */
void fth_scaling_make(const fth_record_summary *runs, size_t run_count, fth_scaling_row *rows);
/* "4 workers on 2 nodes" */
void fth_scaling_label(const fth_scaling_row *row, char *text, size_t size);

/* Where the time of each rank went, over the whole run; nothing if the record does not have it. */
fth_status fth_scaling_print_ranks(FILE *output, const fth_record_summary *run);
json_t *fth_scaling_json(const fth_record_summary *run); /* or NULL */

#endif
