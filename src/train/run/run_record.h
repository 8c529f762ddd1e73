/* The record of a run that begins or is continued: its folder, and run.json, which says what the
 * run is and on which machine. */
#ifndef FTH_TRAIN_RUN_RECORD_H
#define FTH_TRAIN_RUN_RECORD_H

#include "train/setup/setup.h"

/* Creates the folder of a new run, or opens that of the run to continue as it is. fth_record_free()
 * the record. */
fth_status fth_run_record_open(const fth_run_selection *selection, const fth_setup *setup, const fth_spending *spending,
                               fth_record **record);
/* The id that a new run gets: --name, or one that is made up. NULL without memory. free() it. */
char *fth_run_record_make_id(const fth_train_options *options);
/* Brings run.json of a continued run up to date with what was given now. */
fth_status fth_run_record_configure(fth_record *record, const fth_run_selection *selection, const fth_setup *setup,
                                    const fth_spending *spending);

#endif
