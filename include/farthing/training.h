/* Training: options, a network, data, and what happens while it runs.
 *
 *     fth_training *training;
 *     fth_training_create(&training);
 *     fth_training_set(training, "epochs", "3");
 *     fth_training_use_network(training, network);
 *     if (fth_training_run(training) != FTH_OK)
 *         puts(fth_error_message());
 *
 * A training is a run as the program's are: it has a folder in "runs" (by default ./runs) with its
 * record, its checkpoints and its models, `farthing report` shows it, and with "resume" it
 * continues where it was stopped or killed. Apart from warnings and errors (log.h) nothing is
 * printed; no signal handler is installed, and the process is never ended.
 *
 * An fth_training is used by one thread at a time, but for fth_training_stop(). Several may run at
 * once, each in a thread of its own: give each its share of the processors with "threads". */
#ifndef FARTHING_TRAINING_H
#define FARTHING_TRAINING_H

#include <farthing/data.h>
#include <farthing/network.h>
#include <farthing/status.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fth_training fth_training;

/* With the program's defaults: mnist-cnn on digits. The caller owns *training and frees it with
 * fth_training_free(). */
FTH_API fth_status fth_training_create(fth_training **training);
/* NULL is fine. Not while it runs. */
FTH_API void fth_training_free(fth_training *training);

/* Sets an option of `farthing train`, by its flag's name and as text: "lr", "0.1"; "for", "10m";
 * "nesterov", "yes". docs/OPTIONS.md lists them. FTH_INVALID, with the nearest name or what is
 * valid, for what the program would refuse too, and for options of other commands and of its output
 * ("confusion", "json", "dry-run"). */
FTH_API fth_status fth_training_set(fth_training *training, const char *name, const char *value);

/* Sets the options in a run file (YAML) of the program; what is set later wins. Options that
 * fth_training_set() refuses because they are of other commands or of the program's output have no
 * effect here. */
FTH_API fth_status fth_training_read_file(fth_training *training, const char *path);

/* Trains `network`, which must be finished, instead of the option "model"; setting that later
 * undoes it. Its images' size and the number of classes must be the data's. */
FTH_API fth_status fth_training_use_network(fth_training *training, const fth_network *network);

/* Trains on `data` instead of the option "data"; setting that later undoes it. */
FTH_API fth_status fth_training_use_data(fth_training *training, const fth_data *data);

/* ---- while it runs ---- */

/* How far the training has come, after a step. */
typedef struct fth_training_progress {
    int64_t epoch, epochs;    /* the current one, from 1; the last one, 0: no such limit */
    int64_t step, steps;      /* updates done; in all, 0: not known ahead */
    double loss, accuracy;    /* of training, over the latest steps; NAN before the first result */
    double samples_per_s;     /* likewise */
    double elapsed_s, left_s; /* left: NAN if it is not known */
    bool validating;          /* training waits for a validation */
} fth_training_progress;

typedef enum fth_event_kind {
    FTH_EVENT_OTHER, /* see `name` */
    FTH_EVENT_START,
    FTH_EVENT_RESUME,
    FTH_EVENT_STEP,  /* now and then */
    FTH_EVENT_EPOCH, /* has been validated */
    FTH_EVENT_BEST,  /* the model of this validation is the best so far, and `file` has it */
    FTH_EVENT_CHECKPOINT,
    FTH_EVENT_WARNING,
    FTH_EVENT_INTERRUPTED,
    FTH_EVENT_ERROR,
    FTH_EVENT_END
} fth_event_kind;

/* Something that goes into the run's record. Numbers that an event does not have are NAN, texts
 * NULL; everything is lent for the call. */
typedef struct fth_training_event {
    fth_event_kind kind;
    const char *name;                            /* "epoch": as in the record */
    int64_t step;                                /* updates done; -1: unknown */
    double epoch;                                /* passes over the data, a fraction within one */
    double loss, accuracy;                       /* of training */
    double validation_loss, validation_accuracy; /* EPOCH, BEST, END */
    double learning_rate, samples_per_s, elapsed_s;
    const char *file, *message;
    const char *json; /* the whole event, one line of the record: docs/RUNS.md */
} fth_training_event;

/* Called in the thread that runs the training. Returning anything but 0 stops it, as
 * fth_training_stop() does. They must not use the training otherwise, and must not throw. */
typedef int (*fth_progress_function)(void *context, const fth_training_progress *progress);
typedef int (*fth_event_function)(void *context, const fth_training_event *event);

/* After every step: must be quick. NULL: none. */
FTH_API void fth_training_on_progress(fth_training *training, fth_progress_function function, void *context);
FTH_API void fth_training_on_event(fth_training *training, fth_event_function function, void *context);

/* Trains until a limit is reached ("epochs", "steps", "for", "until"; 3 epochs if there is none).
 * FTH_INTERRUPTED if it was stopped: everything is saved, and running it again with "resume" set to
 * "auto" continues (a run stopped before its first step leaves no folder, and starts over). On
 * another failure the checkpoints saved so far stay. May be called again: for another run, or to
 * resume. FTH_UNSUPPORTED in a process forked after this thread had trained. */
FTH_API fth_status fth_training_run(fth_training *training);

/* Asks a training that runs to finish its step, save and return. Any thread may call it at any
 * time, but not a signal handler. Has no effect before fth_training_run() has begun: a thread that
 * starts another to run the training and may stop it at once should set a flag that a callback
 * returns. */
FTH_API void fth_training_stop(fth_training *training);

/* ---- the result ---- */

typedef struct fth_training_result {
    bool already_finished; /* there was nothing left to resume */
    double loss, accuracy; /* of validation, with the final weights; NAN if the run was stopped or failed */
    double best_loss, best_accuracy;
    double epochs, seconds;              /* of the run so far, including the parts before a resume; NAN: unknown */
    double samples_per_s;                /* NAN if the run was stopped or failed */
    int64_t steps;                       /* updates done so far */
    const char *run_id, *run_folder;     /* NULL: there is no run folder */
    const char *last_model, *best_model; /* safetensors files; NULL: none */
} fth_training_result;

/* Lent: until the next run, or the training is freed. Before the first run everything is NAN, 0 or
 * NULL. */
FTH_API const fth_training_result *fth_training_get_result(const fth_training *training);

#ifdef __cplusplus
}
#endif

#endif
