/* The run record: what a run was asked to do and everything that happened to it.
 *
 *     runs/<id>/run.json        configuration, versions, machine; rewritten whole on each resume
 *     runs/<id>/events.jsonl    append-only, one JSON object a line: steps, epochs, ...
 *     runs/<id>/checkpoints/    see checkpoint.h
 *     runs/<id>/last.safetensors, best.safetensors
 *
 * Reports read nothing else. A process killed while writing leaves at most one torn last line,
 * which readers skip. After a resume from step S, readers drop the step and epoch events with a
 * higher step that precede the resume.
 *
 * A run exists from its first step on, or while a process holds its lock. A folder left by a
 * process that failed or was killed before the first step is neither found nor listed, and its name
 * may be reused.
 *
 * run.json:
 *     {"id", "created" (UTC text), "created_s" (wall seconds), "farthing" (version),
 *      "identity" (16 hex digits), "configuration": {every option by its flag's name},
 *      "data": {"name", "classes", "channels", "height", "width", "training_samples",
 *      "validation_samples"}, "parameters" (trained numbers),
 *      "machine": {"host", "cpu", "cores", "memory_bytes", "system", "device"}}
 *
 * All events have "event", "time" (wall seconds) and "process_s" (seconds since the start of the
 * process that wrote them, on a monotonic clock; older versions recorded it only in "start" and
 * "resume"). Losses are means over samples, accuracies shares in 0..1, "step" counts updates, and
 * "epoch" in step events is a fraction of passes over the data. A number that is unknown is left
 * out.
 *
 * METERS stands for "read_s" (opening the data set, before "elapsed_s" begins), "data_wait_s",
 * "decode_s" and "fetch_s" (in other threads, so in parallel to the rest), "compute_s",
 * "checkpoint_s", "evaluate_s" and "peak_memory_bytes"; on an accelerator also "accelerator_s" (its
 * own time on runs), "accelerator_utilization" (0..1, of the last moments) and
 * "accelerator_memory_bytes" (in use, by all processes). "elapsed_s", "samples" and METERS count
 * from the start of the run over all resumes; in "epoch" events METERS are of that epoch.
 *
 *     start        id, folder, model, data, device, parameters, batches_per_epoch, host, cloud,
 *                  instance, region, market, price_usd_per_hour, price_source (where known),
 *                  waited_s (for another machine to give up the run), previous_seen_s (last sign of
 *                  life of a killed machine, wall clock), previous_process_s (how long its process
 *                  had run by then), skipped (files among the images in formats that are not read,
 *                  if any: {count, names: the first ten})
 *     resume       the same and step, epoch, elapsed_s: where training continues; reason: why this
 *                  process has the record, if another process of the run had it before
 *     weights      file, format, message (where the head was replaced): the initial weights
 *     step         step, epoch, loss, accuracy (of training, since the step event before),
 *                  learning_rate, samples_per_s (since then), elapsed_s, samples, METERS; in the
 *                  first one of a process: first_step_s
 *     epoch        epoch (from 1), step, train_loss, train_accuracy, validation_loss,
 *                  validation_accuracy (where validated), seconds (training), samples_per_s,
 *                  elapsed_s, samples, METERS
 *     validation   step, epoch, validation_loss, validation_accuracy, elapsed_s, samples: within an
 *                  epoch
 *     best         step, epoch, validation_loss, validation_accuracy, by ("loss", "accuracy"), file
 *     checkpoint   step, seconds, bytes, file
 *     bad_images   step, epoch, count (in this process so far), images: [{name, reason, part}]:
 *                  unreadable image files
 *     worker_lost  step, worker, process, reason, batch, replaced, lost: a worker process ended and
 *                  was replaced
 *     invocation   worker, provider, function, id, memory_mb, seconds, cold, peak_bytes,
 *                  received_bytes, sent_bytes, ended ("done", "deadline", "error", "lost"): a
 *                  function that worked for a parameter server has ended
 *     warning      step, message: a checkpoint or model could not be written; it is tried again
 *     error        step, epoch, status, message: the run failed
 *     interrupted  step, epoch, reason (for people), elapsed_s, samples, METERS: stopped on
 *                  request; can be resumed
 *     test         step, data, samples, test_loss, test_accuracy, seconds, file: the best model on
 *                  test samples
 *     end          validation_accuracy, validation_loss (of the final weights; also as accuracy,
 *                  loss), test_loss, test_accuracy, test_samples (of the best model, where there
 *                  are test samples), epochs, steps, seconds, samples_per_s, model, best,
 *                  best_loss, best_accuracy, best_step, best_by (of the model kept as the best),
 *                  reason ("epochs", "steps", "for", "until", "budget", "server"; of a parameter
 *                  server "workers"), samples, elapsed_s, METERS
 *
 * Where the price of the machine is known, "step", "epoch", "interrupted" and "end" also have
 * "spent_usd": the cost of the run so far, on all its machines. */
#ifndef FTH_RECORD_RECORD_H
#define FTH_RECORD_RECORD_H

#include <jansson.h>

#include "base/base.h"

/* ---- writing ---- */

typedef struct fth_record fth_record;

/* Starts a run: makes <runs>/<id>/, which must not exist yet (an empty id: one is made up from the
 * time, `hint` and a random part) and writes run.json from `configuration` (its members copied)
 * with id, time (unless it has a "created_s"), version and machine added. */
fth_status fth_record_create(const char *runs_folder, const char *id, const char *hint, const json_t *configuration,
                             const json_t *machine, fth_record **record);
/* An id as fth_record_create() would generate it, for callers that need it before the folder
 * exists. NULL without memory; free() it. */
char *fth_record_make_id(const char *hint);
/* True if the run took a step: its events contain one, or there is a checkpoint. Also true of a run
 * that ended, even if its budget was spent before the first step. */
bool fth_record_has_begun(const char *run_folder);
bool fth_record_events_have_begun(const char *events, size_t size_bytes); /* of an events file's text */
/* Removes a run that took no step; false, with nothing changed, if it took one. Files that are not
 * the record's own stay. Call this before fth_record_free(). */
bool fth_record_discard_unbegun(fth_record *record);
/* Removes a run with everything it created; *freed_bytes is also set after a partial failure.
 * FTH_INVALID if it is being trained or is not a run's folder. Other files stay, and the folder
 * with them; *others_left is then true. Both results may be NULL. */
fth_status fth_record_remove(const char *run_folder, uint64_t *freed_bytes, bool *others_left);
/* True if the folder at `path` is a run, part of one, or contains only runs, and these contain only
 * files that runs create. */
bool fth_record_is_runs_alone(const char *path);
/* Removes what was left under `runs_folder` by processes that were killed before the first step of
 * a run with this "identity". */
void fth_record_sweep(const char *runs_folder, const char *identity);
/* Opens an existing run to continue it; takes its lock like _create. Terminates a torn last
 * line. */
fth_status fth_record_resume(const char *run_folder, fth_record **record);
/* Makes a run folder match a record from elsewhere: `run` becomes run.json, and `events` its
 * events. If the folder has these events and more after them, it keeps the extra ones (a process
 * was killed before it stored them). Holds the lock meanwhile. */
fth_status fth_record_restore(const char *run_folder, const char *run, const char *events, size_t events_bytes);
/* Removes such a folder. Cannot fail, and does not change the error message. */
void fth_record_remove_copy(const char *run_folder);
/* Rewrites run.json with a changed configuration; "id", "created" and "created_s" stay. */
fth_status fth_record_configure(fth_record *record, const json_t *configuration, const json_t *machine);
void fth_record_free(fth_record *record);

/* The record holds an exclusive lock on the run folder while open (flock), so that two processes
 * cannot train one run; a second one gets FTH_INVALID naming the process that holds it. */

bool fth_record_is_locked(const char *run_folder);

/* A run's name is a plain file name: letters, digits, '.', '_' and '-', not beginning with '.' or
 * '-'; "" is fine. */
fth_status fth_record_check_id(const char *id);
/* Check of --runs: runs are kept in local folders, not in stores. */
fth_status fth_record_check_runs_folder(const char *folder);

const char *fth_record_folder(const fth_record *record);
const char *fth_record_id(const fth_record *record);

/* Appends `event` (stolen) with "event": `name` and "time" (wall seconds) set in it. */
fth_status fth_record_append(fth_record *record, const char *name, json_t *event);
/* Makes what was appended durable. */
fth_status fth_record_sync(fth_record *record);

/* ---- reading ---- */

typedef struct fth_record_point {
    int64_t step;
    int64_t steps; /* of training: the values are means over so many */
    double epoch;  /* fractional */
    double elapsed_s;
    double loss, accuracy; /* NAN where unknown */
    double learning_rate;  /* NAN where unknown */
    double samples_per_s;  /* NAN where unknown */
    double machine_s;      /* how long its machine had worked on the run by then */
    size_t machine;        /* index of the machine that made it */
} fth_record_point;

typedef struct fth_record_series {
    fth_record_point *points;
    size_t count;
} fth_record_series;

/* How a machine's part of a run ended, according to the record. */
typedef enum fth_record_ending {
    FTH_ENDING_UNKNOWN, /* still going, or killed */
    FTH_ENDING_FINISHED,
    FTH_ENDING_INTERRUPTED,
    FTH_ENDING_FAILED
} fth_record_ending;

/* One machine's part of a run: a process, from its start to its last sign of life. Work that a
 * later resume undid is included: it was paid for. */
typedef struct fth_record_machine {
    json_t *event;          /* its "start" or "resume" */
    json_t *notice;         /* its last "notice", or NULL */
    double began_s, last_s; /* wall clock: to compare machines with each other */
    double seconds;         /* that it worked on the run, by its own steady clock where events have it */
    double first_elapsed_s, last_elapsed_s; /* the run's training time when it took over, and when last seen */
    int64_t first_step, last_step;
    double first_epoch, last_epoch;
    double learning_rate; /* the last; NAN: no step was recorded */
    double silent_s;      /* of a killed machine: from its last event to its last sign of life */
    fth_record_ending ending;
} fth_record_machine;

/* A node that trained in the group of a machine, other than the one that writes the record. */
typedef struct fth_record_node {
    size_t machine; /* index of the machine */
    char *name;     /* that of no other node */
    json_t *facts;  /* host, instance, price and more, as in a "start" event */
    double seconds; /* on the machine's clock */
} fth_record_node;

/* The model that is kept as the best, by one measure. */
typedef struct fth_record_best {
    const char *by; /* "loss" or "accuracy"; lives with the summary's events. NULL: no model is kept */
    int64_t step;
    double loss, accuracy;
} fth_record_best;

/* An immutable value. It is wide because each field is a fact of the run. */
typedef struct fth_record_summary {
    char *folder, *id;
    json_t *run;                  /* run.json */
    fth_record_series training;   /* "step" events that count */
    fth_record_series validation; /* of "epoch" and "validation" events, and of an "end" within an epoch */
    json_t *end;                  /* the last "end" event, or NULL while unfinished */
    bool finished;                /* ended by itself: not interrupted, not failed */
    double elapsed_s;             /* training time over all resumes */
    int64_t steps, samples;
    double read_s; /* opening the data set, before the training time */
    double data_wait_s, decode_s, fetch_s, compute_s, checkpoint_s, evaluate_s;
    double samples_per_s; /* over the training time */
    /* Of validation; NAN where none. The best are the lowest and highest seen, which need not be of
     * one model. */
    double best_loss, best_accuracy, last_loss, last_accuracy;
    double test_loss,
        test_accuracy;    /* of the best model, where the run has ended; NAN where there are no test samples */
    fth_record_best kept; /* the model in best.safetensors */
    int64_t peak_memory_bytes;
    double accelerator_s, accelerator_utilization; /* the latter a mean over time; NAN where there was no accelerator */
    int64_t accelerator_memory_bytes;              /* the most; 0 where there was none */
    int resumes;
    json_t *events;               /* array of all other events that count: checkpoints, errors, resumes */
    fth_record_machine *machines; /* in time's order */
    size_t machine_count;
    fth_record_node *nodes; /* the other nodes of data-parallel training */
    size_t node_count;
} fth_record_summary;

fth_status fth_record_read(const char *run_folder, fth_record_summary *summary);
/* Updates the machines as if `event`, a "resume", came next in the record. */
fth_status fth_record_add_resume(fth_record_summary *summary, json_t *event);
void fth_record_release(fth_record_summary *summary);

/* True for the folder of a run: it has a run.json, and took a step or is locked. */
bool fth_record_exists(const char *run_folder);

/* The runs under a folder, newest first: the names of their folders. */
typedef struct fth_record_list {
    char **ids; /* a NULL follows the last */
    size_t count;
} fth_record_list;
/* No runs if there is no such folder. */
fth_status fth_record_list_runs(const char *runs_folder, fth_record_list *list);
/* Only the runs that are unfinished and not being trained. */
fth_status fth_record_list_unfinished(const char *runs_folder, fth_record_list *list);
void fth_record_list_release(fth_record_list *list);
/* "a, b, c", for a message: the first few ids. free() it; NULL where there is no memory. */
char *fth_record_list_format(const fth_record_list *list);

/* Bytes that a run takes on disk, links not followed. */
uint64_t fth_record_disk_bytes(const char *run_folder);

/* The newest run under `runs_folder` whose run.json has this "identity" string (NULL: any) and that
 * is unfinished (or finished, as asked); *folder is NULL if there is none. free() the folder. */
fth_status fth_record_find(const char *runs_folder, const char *identity, bool finished, char **folder);

/* run.json alone. */
fth_status fth_record_read_run(const char *run_folder, json_t **run);

/* Finds the run folder for an id or a path that the user typed; the error lists the existing runs.
 * free() it. */
fth_status fth_record_locate(const char *runs_folder, const char *id_or_path, char **folder);

#endif
