/* The run record: what a run was asked to do and everything that happened to it.
 *
 *     runs/<id>/run.json        configuration, versions, machine; written once, rewritten whole on each resume
 *     runs/<id>/events.jsonl    append-only, one JSON object a line: steps, epochs, checkpoints, resumes, errors, end
 *     runs/<id>/checkpoints/    see checkpoint.h
 *     runs/<id>/last.safetensors, best.safetensors
 *
 * Everything that reports reads these and nothing else. A process killed while writing leaves at most one
 * torn last line, which readers skip. After a resume from step S, step and epoch events with a higher step
 * from before the resume did not count: readers drop them. */
#ifndef FTH_RECORD_RECORD_H
#define FTH_RECORD_RECORD_H

#include <jansson.h>

#include "base/base.h"

/* ---- writing ---- */

typedef struct fth_record fth_record;

/* Starts a run: makes <runs>/<id>/, which must not exist yet (an empty id: one is made up from the time, `hint` and
 * a random part) and writes run.json from `configuration` (copied) with versions and the machine added. */
fth_status fth_record_create(const char *runs_folder, const char *id, const char *hint, const json_t *configuration,
                             const json_t *machine, fth_record **record);
/* Goes on with a run that exists; takes its lock like _create does. Ends a torn last line. */
fth_status fth_record_resume(const char *run_folder, fth_record **record);
void fth_record_free(fth_record *record);

/* The record holds an exclusive lock on the run folder while open (flock), so that two processes cannot train one
 * run; a second one gets FTH_INVALID naming the process that holds it. */

/* A run's name is a plain file name: letters, digits, '.', '_' and '-', not beginning with '.' or '-'; "" is fine. */
fth_status fth_record_check_id(const char *id);

const char *fth_record_folder(const fth_record *record);
const char *fth_record_id(const fth_record *record);

/* Appends `event` (stolen) with "event": `name` and "time" (wall seconds) added. */
fth_status fth_record_append(fth_record *record, const char *name, json_t *event);
/* Makes what was appended durable. */
fth_status fth_record_sync(fth_record *record);

/* ---- reading ---- */

typedef struct fth_record_point {
    int64_t step;
    double epoch; /* fractional */
    double elapsed_s;
    double loss, accuracy; /* NAN where unknown */
    double learning_rate;  /* NAN where unknown */
    double samples_per_s;  /* NAN where unknown */
} fth_record_point;

typedef struct fth_record_series {
    fth_record_point *points;
    size_t count;
} fth_record_series;

typedef struct fth_record_summary {
    char *folder, *id;
    json_t *run;                           /* run.json */
    fth_record_series training;            /* "step" events that count */
    fth_record_series validation;          /* "epoch" events' validation results */
    json_t *end;                           /* the last "end" event, or NULL while unfinished */
    bool finished;                         /* ended by itself: not interrupted, not failed */
    double elapsed_s;                      /* training time over all resumes */
    int64_t steps, samples;
    double data_wait_s, decode_s, compute_s, checkpoint_s, evaluate_s;
    double samples_per_s;                  /* over the training time */
    double best_loss, best_accuracy, last_loss, last_accuracy; /* of validation; NAN where none */
    int64_t peak_memory_bytes;
    int resumes;
    json_t *events;                        /* array of all other events that count: checkpoints, errors, resumes */
} fth_record_summary;

fth_status fth_record_read(const char *run_folder, fth_record_summary *summary);
void fth_record_release(fth_record_summary *summary);

/* The newest run under `runs_folder` whose run.json has this "identity" string and that is unfinished (or finished,
 * as asked); *folder is NULL if there is none. free() the folder. */
fth_status fth_record_find(const char *runs_folder, const char *identity, bool finished, char **folder);

/* Turns what a user typed (an id, or a path) into a run folder; the error lists the runs there are. free() it. */
fth_status fth_record_locate(const char *runs_folder, const char *id_or_path, char **folder);

#endif
