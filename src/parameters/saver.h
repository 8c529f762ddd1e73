/* Checkpoints of a server, written in the background (checkpoint/writer.h), and continuing from
 * them.
 *
 *     due -> vectors copied, log rotated (applying thread) -> written, then logs from before it removed (writer)
 *
 * Until the new checkpoint is whole, the old one and both logs are there. A checkpoint is made
 * between steps only: gradients that were stored for a step are in the log. One memory holds the
 * copy, time after time: it is the writer's until that is idle again. */
#ifndef FTH_PARAMETERS_SAVER_H
#define FTH_PARAMETERS_SAVER_H

#include "parameters/health.h"
#include "parameters/journal.h"
#include "parameters/shards.h"
#include "store/store.h"

typedef struct fth_served_saver fth_served_saver;

typedef struct fth_served_saver_options {
    const fth_served_model *model;
    fth_served_position *position;
    const fth_updates *updates;
    fth_journal *journal;
    fth_workers *workers;
    fth_shards *shards;
    fth_served_usage *usage;
    fth_served_record *record;
    fth_parameters_metrics *metrics;
    fth_health *health;
    fth_store *store;       /* further copies of checkpoints go there; or NULL */
    double every_s;         /* 0: not by time */
    int64_t every_versions; /* 0: not by number */
} fth_served_saver_options;

/* Everything in the options outlives the saver. All functions are for the applying thread, before
 * it starts or after it has ended for its owner. */
fth_status fth_served_saver_create(const fth_served_saver_options *options, fth_served_saver **saver);
/* Cancels what is being written. */
void fth_served_saver_free(fth_served_saver *saver);

/* Loads the newest checkpoint: of this machine or, where it has none, of the store. Without any the
 * initial weights become one, so that a log always has something to begin from. */
fth_status fth_served_saver_restore(fth_served_saver *saver);

/* Begins a checkpoint if one is due and none is being written; reports how the one before went. */
void fth_served_saver_begin_if_due(fth_served_saver *saver);
/* The next look finds one due. */
void fth_served_saver_request(fth_served_saver *saver);
/* Waits for the checkpoint being written. */
void fth_served_saver_finish(fth_served_saver *saver);
/* Saves what no checkpoint has yet, in the calling thread. Nothing to do in the middle of a step:
 * then the log has more than a checkpoint could say. */
fth_status fth_served_saver_save_now(fth_served_saver *saver);

#endif
