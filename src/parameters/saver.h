/* Checkpoints of a server, written in the background (checkpoint/writer.h), and restoring them.
 *
 *     due -> vectors copied, log rotated (applying thread) -> written, older logs removed (writer)
 *
 * The old checkpoint and both logs stay until the new checkpoint is complete. Checkpoints are made
 * between steps only: gradients stored for an unfinished step are in the log. One memory snapshot
 * serves all checkpoints; it belongs to the writer until the writer is idle. */
#ifndef FTH_PARAMETERS_SAVER_H
#define FTH_PARAMETERS_SAVER_H

#include "parameters/parts.h"

typedef struct fth_served_saver fth_served_saver;

/* The parts outlive the saver. All functions are for the applying thread; before it starts and
 * after it has ended, for the server's owner. */
fth_status fth_served_saver_create(const fth_server_parts *parts, fth_served_saver **saver);
/* Cancels what is being written. */
void fth_served_saver_free(fth_served_saver *saver);

/* Loads the newest checkpoint of this machine or else of the store. If there is none, saves the
 * initial weights as one, so that a log always has a checkpoint to start from. */
fth_status fth_served_saver_restore(fth_served_saver *saver);

/* Reports how the last checkpoint went; starts one if it is due and none is being written. */
void fth_served_saver_begin_if_due(fth_served_saver *saver);
/* Makes one due. */
void fth_served_saver_request(fth_served_saver *saver);
/* Waits for the checkpoint that is being written. */
void fth_served_saver_finish(fth_served_saver *saver);
/* Saves what no checkpoint has yet, in the calling thread. Does nothing in the middle of a step,
 * when the log has more than a checkpoint can hold. */
fth_status fth_served_saver_save_now(fth_served_saver *saver);

#endif
