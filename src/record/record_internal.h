/* Shared by the readers of a record, and with their fuzz target. */
#ifndef FTH_RECORD_RECORD_INTERNAL_H
#define FTH_RECORD_RECORD_INTERNAL_H

#include "record/record.h"

/* Adds what the lines of an events file say to `summary`, whose `folder` and `events` are set. */
fth_status fth_record_read_events(const char *text, size_t size, fth_record_summary *summary);

/* Adds what an event says about the machine that wrote it: record_machines.c. *machine_s: how long
 * that one had worked on the run by then. */
fth_status fth_record_follow_machine(fth_record_summary *summary, size_t *capacity, const char *name, json_t *event,
                                     double *machine_s);
void fth_record_release_machines(fth_record_summary *summary);
/* How long the machine had worked on the run at `event`. */
double fth_record_seconds_until(const fth_record_machine *machine, const json_t *event);

/* Finds the nodes that trained with the machines, once all events are read: record_nodes.c. */
fth_status fth_record_find_nodes(fth_record_summary *summary);
void fth_record_release_nodes(fth_record_summary *summary);

/* record_remove.c. Both hold for folders whose lock the caller has. */
/* Removes the files of a record that took no step, run.json last, but not its lock. */
void fth_record_remove_files(const char *run_folder);
/* Removes the lock and the folder, unless the folder contains anything else. */
void fth_record_remove_folder(const char *run_folder);

#endif
