/* The run record of a parameter server, whose versions are the run's steps, and the folder of its
 * state. Events may be appended from any thread. */
#ifndef FTH_PARAMETERS_RECORD_H
#define FTH_PARAMETERS_RECORD_H

#include <jansson.h>

#include "train/train.h"

typedef struct fth_served_record fth_served_record;

/* The folder of the run to continue: the one that `checkpoints` (a folder; or NULL) belongs to, or
 * that has the name in the options. NULL if it does not exist. free() it. */
char *fth_served_record_find(const fth_train_options *train, const char *checkpoints);

/* Opens that run, or makes one, described by `description` and `machine`, which stay the
 * caller's. */
fth_status fth_served_record_open(const fth_train_options *train, const char *checkpoints, json_t *description,
                                  json_t *machine, fth_served_record **record);
void fth_served_record_free(fth_served_record *record);

bool fth_served_record_resumed(const fth_served_record *record); /* the run existed before */
const char *fth_served_record_id(const fth_served_record *record);
const char *fth_served_record_folder(const fth_served_record *record);
const char *fth_served_record_state_folder(const fth_served_record *record); /* of checkpoints and logs */

/* Takes `event`, which may be NULL; a failure is logged as a warning. */
void fth_served_record_append(fth_served_record *record, const char *name, json_t *event);
/* Writes a warning to the log and the record. */
void fth_served_record_warn(fth_served_record *record, int64_t step, const char *message);
void fth_served_record_sync(fth_served_record *record);

#endif
