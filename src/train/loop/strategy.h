/* Strategies: how a training step is carried out, and by whom. A strategy is a row of capabilities
 * and functions; the rows are in src/parallel, one file each. The trainer, the program and the
 * reports ask a row what it can do and never which one it is.
 *
 * The trainer calls, in this order:
 *
 *     meet         before the run is looked for: one of several peers finds it, the others get what
 *                  it found
 *     share_run    in the one that found it
 *     announce     the data are open and the model is built
 *     connect      joins peers and may refuse to begin; nothing of the run has been written yet
 *     synchronize  the engine has its first weights, or a checkpoint's; peers may have others
 *     open         workers start from these weights
 *     describe     adds to the "start" event
 *     agree        between updates: peers end, stop and save together
 *     step ...     one call per batch; take_event after each update
 *     drain        before anything looks at the weights as a whole: a checkpoint, validation, the
 *                  end
 *     close        always, once meet, connect or open has set the state
 *
 * Where a peer is lost in agree(), step() or drain(), they return FTH_PEER_LOST; with rejoin() the
 * others form a group again, synchronize, and continue after the last update that one of them has
 * finished. The trainer then has its part of the next batch again, so no sample is repeated or left
 * out.
 *
 * All of them are called from the training thread. */
#ifndef FTH_TRAIN_STRATEGY_H
#define FTH_TRAIN_STRATEGY_H

#include "train/engine/engine.h"

/* Whose optimizer, learning rate and weights apply. */
typedef enum fth_optimizer_owner {
    FTH_OPTIMIZER_OF_ENGINE,  /* the trainer's engine updates its own vectors */
    FTH_OPTIMIZER_OF_WORKERS, /* workers update vectors that the trainer's engine sees */
    FTH_OPTIMIZER_OF_SERVER   /* another process, which sends the weights; this process saves only its own position */
} fth_optimizer_owner;

/* A process's place among peers that train one model together. Zeroed: it is alone. */
typedef struct fth_peer_place {
    fth_share part; /* of every training batch; `batch` counts the samples of all parts */
    bool follows;   /* a peer leads, and owns the run; this process writes nothing */
    double present; /* share of the last group's machines that this process reaches. Above 0.5, no other process can
                       lead the run */
} fth_peer_place;

/* What a process intends to do before the next update. */
typedef struct fth_intent {
    const char *end; /* end, for the reason that the "end" event gives; NULL: continue */
    bool stop;       /* save and end: a stop was asked for */
    bool leave;      /* with `stop`: only this machine, which is being preempted; peers continue without it */
    bool checkpoint;
    bool rejoin; /* set only by agree(): new peers wait to join, so a new group is formed first */
} fth_intent;

/* Wide because it is a table of functions and capabilities, without state. */
struct fth_strategy {
    const char *name, *summary;

    /* ---- capabilities ---- */

    /* Options that only strategies listing them accept; NULL-terminated, or NULL. */
    const char *const *options;
    fth_optimizer_owner optimizer;
    /* Workers with engines of their own compute the gradients: the trainer's engine holds the
     * weights and needs no training plans. */
    bool has_workers;
    bool validates_alongside;  /* an epoch may be validated, on a copy of the weights, while the next one is trained */
    bool takes_checkpoints;    /* a checkpoint holds the whole run, so that it can live in a store (--checkpoints) */
    bool keeps_data_on_device; /* the engine may make batches from a data set that it keeps on its device */
    /* What may end the training with fth_step_result.finished, as the reason of the "end" event;
     * NULL: nothing. */
    const char *ended_by;

    /* ---- functions ---- */

    /* Optional: checks combinations of options. */
    fth_status (*check)(const fth_train_options *options);
    /* Optional: true if the strategy starts processes of this program for these options. */
    bool (*starts_processes)(const fth_train_options *options);
    /* Optional, if processes are started: runs the whole training with them, instead of
     * fth_train(). `program` is this program's file, `options` may be changed, and the observer
     * gets only progress. */
    fth_status (*supervise)(fth_train_options *options, const char *program, const fth_train_observer *observer,
                            fth_stop *stop, fth_train_outcome *outcome);
    /* Optional: true if workers decode recipes of a data set in memory themselves. */
    bool (*makes_images)(const fth_train_options *options);
    /* Optional, before the run is looked for: reaches peers, and sets *run to what one of them
     * found (the caller frees it), or to NULL: then this process finds it and passes it to
     * share_run(). Waits as connect() does. connect() gets the state. */
    fth_status (*meet)(const fth_train_options *options, fth_stop *stop, void **state, json_t **run);
    fth_status (*share_run)(void *state, const json_t *run);
    /* Optional, after meet(): this machine's name for messages; lent. */
    const char *(*get_node)(const void *state);
    /* Optional, after meet(): this process's number of processors, which it shares with peers on
     * its machine. */
    int (*count_processors)(const void *state);
    /* Optional: the text of the exported network (model/exported_model.h) that another process
     * trains, where the options name one; the caller's. *text is NULL if this process finds it by
     * itself. */
    fth_status (*get_network)(const fth_train_options *options, const fth_stop *stop, char **text);
    /* Optional, after meet(): what this process found its data and model to be, as names and
     * values. connect() fails if a peer found something else, because their steps would not fit
     * together. */
    fth_status (*announce)(void *state, const json_t *found);
    /* Optional: connects to the processes it needs, before the run has a record; fails if they
     * refuse. open() then gets its state. From here on, every wait ends when `stop` is asked, which
     * outlives the strategy: step() succeeds if the batch already counts, else it returns
     * FTH_INTERRUPTED. `place` comes zeroed. */
    fth_status (*connect)(fth_engine *engine, const fth_train_options *options, fth_stop *stop, void **state,
                          fth_peer_place *place);
    /* Optional, after connect() and rejoin(), in every process: gives all of them the weights,
     * optimizer state and position of the furthest process. *position is this process's own, and is
     * replaced; the caller frees it. */
    fth_status (*synchronize)(void *state, json_t **position);
    fth_status (*open)(fth_engine *engine, const fth_train_options *options, void **state);
    /* Optional, after open(): adds the workers to the "start" event: "workers" and "worker_kind",
     * or "worker", "server" and "version". */
    void (*describe)(const void *state, json_t *event);
    /* Optional, before each update: makes `intent` the same in every process. If only a peer was
     * asked to stop, asks connect()'s `stop` first, with the peer's reason and deadline. If some
     * processes leave and others do not, returns their stop and `leave` in those that leave, and
     * FTH_PEER_LOST in the others; if all leave, it is a stop without `leave`. At the end of the
     * run, `checkpoint` means that the process is still saving; agree() is called until no process
     * sets it, by the saving process from a thread of its own. */
    fth_status (*agree)(void *state, fth_intent *intent);
    /* Optional: after FTH_PEER_LOST, or if agree() asks for it, forms a group of the processes that
     * are left, and perhaps of new ones. FTH_TIMEOUT, every few seconds, while there are too few:
     * `place` then says whether another waiting process comes first (`follows`), and which share of
     * the machines waits (`present`). The first saves, and all call again. */
    fth_status (*rejoin)(void *state, fth_peer_place *place);
    /* Computes gradients of `batch`, and updates after each group of `accumulate` batches. A
     * strategy with several workers may only copy the batch and return the sum of what was finished
     * meanwhile: `result` is then of earlier batches, with 0 samples if none is done. A part of a
     * batch (fth_peer_place) may be empty. */
    fth_status (*step)(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result);
    /* Optional: waits until every batch taken is part of the weights, and returns the missing
     * results. */
    fth_status (*drain)(void *state, fth_step_result *result);
    /* Optional: false while this process cannot save without drain(): peers have parts of a
     * checkpoint, or an update is half made. */
    bool (*is_whole)(const void *state);
    /* Optional: sums a few numbers over all peers that share a task (validation). */
    fth_status (*sum)(void *state, double *values, size_t count);
    /* Optional: the next event for the record, with its name but without a time, or NULL. The
     * caller owns it. */
    json_t *(*take_event)(void *state);
    void (*close)(void *state);
};

/* ---- lists of strategies: NULL-terminated, as fth_strategies in parallel/parallel.h ---- */

/* FTH_INVALID, with the nearest name or all names, if there is none of that name. */
fth_status fth_strategy_find(const fth_strategy *const *strategies, const char *name, const fth_strategy **strategy);
/* The strategy that options->strategy names, if the given options suit it. */
fth_status fth_strategy_choose(const fth_strategy *const *strategies, const fth_train_options *options,
                               const fth_strategy **strategy);

#endif
