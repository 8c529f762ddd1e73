/* The inside of the trainer, shared by the loop (trainer.c) and what it saves
 * (trainer_save.c). */
#ifndef FTH_TRAIN_TRAINER_INTERNAL_H
#define FTH_TRAIN_TRAINER_INTERNAL_H

#include <pthread.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/writer.h"
#include "spot/spot.h"
#include "train/reporter.h"
#include "train/setup.h"
#include "train/snapshot.h"

typedef struct fth_validation fth_validation;

/* Where the training thread is, for the guardian (trainer_stop.c). */
typedef enum fth_phase {
    FTH_PHASE_BEGIN,   /* nothing to save yet */
    FTH_PHASE_STEP,    /* in an update, which cannot be interrupted */
    FTH_PHASE_BETWEEN, /* looks at requests to stop now and then */
    FTH_PHASE_ENDING   /* saving for the last time */
} fth_phase;

typedef struct fth_guardian {
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    fth_phase phase;
    double phase_since_s, step_s; /* the latter a mean of the last few; 0: not known */
    bool ending, abandoning, closed;
} fth_guardian;

/* Saves, see trainer_writer.c. `place` and `snapshots` are the writer's too while it works. */
typedef struct fth_saving {
    fth_checkpoint_place place;
    fth_writer *writer; /* NULL before the first save */
    fth_engine *engine; /* whose state is saved */
    fth_snapshot *snapshots[FTH_WRITER_SLOTS];
    char name_suffix[32];         /* of manifests: ".json", "-f000002.json" */
    _Atomic int64_t written_step; /* of the newest checkpoint that this process stored; -1: none */
    _Atomic int64_t local_step;   /* of the copy on this machine, where the store did not take it; 0: none */
    _Atomic bool hurry;           /* the machine goes: nothing but the checkpoint itself */
    fth_run_store *run_store;     /* NULL: the run's folder is the store */
    const char *best_path;
    int64_t skipped; /* snapshots that a newer one replaced before they were written */
    bool failed;     /* the last save did, with this message */
    char message[768];
    uint64_t size_bytes;    /* of the last checkpoint */
    double save_s, stall_s; /* means of the last few; 0: not known yet */
    pthread_t closer;       /* writes the last checkpoint to a store, while the training thread watches the clock */
    bool closing;           /* it is to be joined */
} fth_saving;

typedef struct fth_trainer {
    fth_beginning beginning;
    fth_setup setup;
    const fth_strategy *strategy;
    const fth_train_observer *observer;
    fth_stop *stop;

    fth_interval interval;

    void *strategy_state;
    fth_validation *validation; /* beside training; NULL until there is one */
    fth_loader *loader;
    fth_reporter *reporter;
    fth_store *store;         /* the run's folder, where checkpoints are; NULL with --checkpoints */
    fth_run_store *run_store; /* what --checkpoints names, or NULL */
    fth_saving saving;
    fth_watch *watch; /* NULL: nobody is listened to */
    fth_guardian guardian;
    char *checkpoint_folder; /* or URL, for messages */
    char *download_folder, *last_path, *best_path;

    fth_position position;
    int64_t restored_step;      /* where this process began; 0 for a new run */
    size_t state_bytes;         /* of a checkpoint, about */
    bool begun;                 /* the start was told: from here on there is something to save */
    double checkpoint_overhead; /* of --checkpoint-every auto */
    int interruptions;          /* of the run so far */

    fth_spending *spending;
    bool finished_elsewhere; /* the strategy says that training is over */
    bool prepared;           /* every plan is there: from here on nothing large is allocated */
    double saved_at_s;       /* of the last checkpoint, or try */
    int64_t saved_step;
    bool unsettled; /* batches are with the strategy that no result was given for */
} fth_trainer;

void fth_trainer_release(fth_trainer *trainer);

/* ---- saving ---- */

/* A checkpoint of now, written while training goes on. A failure is a warning unless it is the `last` chance: that one
 * is waited for. */
fth_status fth_trainer_checkpoint(fth_trainer *trainer, bool last);
/* Starts the writer; with `ahead` it makes room for the first snapshot, so that the first save does not have to. */
fth_status fth_trainer_open_writer(fth_trainer *trainer, bool ahead);
/* Tells about saves that ended. FTH_DIVERGED if one found a weight that is not a number, FTH_PEER_LOST if the run is
 * somebody else's now. */
fth_status fth_trainer_follow_saves(fth_trainer *trainer);
/* Waits for those under way; the last one's failure is an error. */
fth_status fth_trainer_finish_saves(fth_trainer *trainer, fth_deadline deadline);
/* The same at the end of a run, however long it takes; FTH_INTERRUPTED if a stop leaves no more time for it. A store that
 * has not taken it within seconds, or refuses it, leaves a copy here. */
fth_status fth_trainer_finish_last_save(fth_trainer *trainer);
/* The last save before a stop, as far as the time allows; a copy stays here where the store does not take it. */
fth_status fth_trainer_save_at_stop(fth_trainer *trainer, const fth_stop_reason *reason);
void fth_saving_close(fth_saving *saving);
/* The newest good checkpoint, if there is one, becomes the engine's and the trainer's state. */
fth_status fth_trainer_restore(fth_trainer *trainer, bool *restored);
fth_status fth_trainer_save_model(fth_trainer *trainer, const char *path);
/* The same with the weights of another engine, which are of `step`, after `batches`. */
fth_status fth_trainer_save_weights(fth_trainer *trainer, fth_engine *engine, int64_t step, int64_t batches,
                                    const char *path);
/* After a restore: a best model that the restored state does not know, because it was saved later, is removed. */
void fth_trainer_check_best(fth_trainer *trainer);

/* ---- stores (trainer_store.c) ---- */

/* Where to begin: in a store, waiting for its lease, or as beginning.h says. */
fth_status fth_trainer_find_run(fth_trainer *trainer, const fth_train_options *asked);
/* The same to look at only: no lease, no local record but the copy in `folder`, made if there is a run. */
fth_status fth_trainer_look_for_run(fth_trainer *trainer, const fth_train_options *asked, const char *folder);
/* Where checkpoints go; after the record was opened. */
fth_status fth_trainer_open_store(fth_trainer *trainer);
/* The record is in the store from now on. */
fth_status fth_trainer_begin_store(fth_trainer *trainer, bool resumed);
/* Is the best model that the restored state knows in the store? */
bool fth_trainer_best_is_stored(const fth_trainer *trainer);
/* At the end: models there, and a best model from another machine here. */
fth_status fth_trainer_store_models(fth_trainer *trainer);
/* At a stop with a deadline, after the checkpoint: the best model, which may be of the last validation and nowhere
 * else, if it fits. Otherwise says so. From any thread. */
void fth_trainer_store_best_in_time(fth_trainer *trainer, const fth_stop_reason *reason);
/* Of a finished run: models that are not here yet. */
void fth_trainer_fetch_models(fth_trainer *trainer);
/* A run that never took a step leaves nothing behind, here or in a store; of any other run nothing is touched. */
void fth_trainer_discard_unbegun(fth_trainer *trainer);
/* The last events, and then the run is free for the next. */
fth_status fth_trainer_leave_store(fth_trainer *trainer);

/* ---- the copy on this machine (trainer_local.c) ---- */

/* The state as it is, into the run's folder here, for a store that does not take it. */
fth_status fth_trainer_save_local_copy(fth_trainer *trainer);
void fth_trainer_drop_local_copy(fth_trainer *trainer); /* the store has taken it after all */
/* Where that is and what becomes of it, for people; NULL: there is none. free() it. */
char *fth_trainer_describe_local_copy(const fth_trainer *trainer);
/* Before a restore: a copy that an earlier process left here goes to the store, if the run has not gone on since. */
fth_status fth_trainer_bring_local_copy(fth_trainer *trainer);

/* ---- stopping in time (trainer_stop.c) ---- */

fth_status fth_guardian_start(fth_trainer *trainer);
void fth_guardian_stop(fth_trainer *trainer);
fth_status fth_trainer_open_watch(fth_trainer *trainer, const fth_train_options *asked);
/* Says where the training thread is. Does not return if the process is being ended meanwhile. */
void fth_trainer_enter(fth_trainer *trainer, fth_phase phase);
void fth_trainer_leave_step(fth_trainer *trainer);

typedef enum fth_save_choice {
    FTH_SAVE_AFTER,   /* what is being written is finished first */
    FTH_SAVE_INSTEAD, /* that is cancelled */
    FTH_SAVE_NOT      /* only that can be finished in time */
} fth_save_choice;
/* What to do about unsaved work, given the time that is left. */
fth_save_choice fth_trainer_choose_save(const fth_trainer *trainer, const fth_stop_reason *reason);
/* Whether a copy on this machine is worth making where a store does not take the last checkpoint. */
bool fth_trainer_wants_local_copy(const fth_trainer *trainer, const fth_stop_reason *reason);
/* When a save to the store is no longer waited for alone: that copy takes time too. */
fth_deadline fth_trainer_store_deadline(const fth_trainer *trainer, const fth_stop_reason *reason);
/* When everything has to be recorded and the process has to end. */
fth_deadline fth_trainer_leaving_deadline(const fth_stop_reason *reason);
/* Ends the process, whose threads may wait for a store that does not answer. Returns where there is nobody to do it. */
void fth_trainer_leave_at_once(fth_trainer *trainer);
/* How a preemption's notice was used, into the record and the log; nothing for other reasons to stop. */
void fth_trainer_tell_notice(fth_trainer *trainer, const fth_stop_reason *reason);
void fth_trainer_acknowledge(fth_trainer *trainer);
/* What notice sources have to say beside notices. */
void fth_trainer_tell_news(fth_trainer *trainer);

/* ---- --checkpoint-every auto (trainer_interval.c) ---- */

fth_status fth_trainer_begin_interval(fth_trainer *trainer);
void fth_trainer_adapt_interval(fth_trainer *trainer);
/* Seconds between saves that cost `cost_s` each and take `written_s` to be written. */
double fth_young_interval(double cost_s, double between_s, double written_s, double overhead);

/* ---- validating (trainer_validate.c) ---- */

/* Validates the weights as they are, waiting for it, and keeps them if they are the best; FTH_INTERRUPTED if a stop is
 * asked for meanwhile. */
fth_status fth_trainer_validate(fth_trainer *trainer, fth_deadline deadline, fth_evaluation *evaluation);
fth_status fth_trainer_keep_best(fth_trainer *trainer);
/* The epoch that ended, with its validation if one is due: `beside` training it is begun here, with a copy of the
 * weights, and told when it is done. */
fth_status fth_trainer_finish_epoch(fth_trainer *trainer, bool beside);
/* Begins a validation that an earlier process left undone; tells about one that is done. With `wait` it is waited for;
 * FTH_INTERRUPTED if a stop is asked for meanwhile. */
fth_status fth_trainer_follow_validation(fth_trainer *trainer, bool wait);
/* Ends a validation beside training at once; state.pending keeps what is still to be told. */
void fth_trainer_cancel_validation(fth_trainer *trainer);
void fth_validation_free(fth_validation *validation); /* after cancelling; NULL is fine */

#endif
