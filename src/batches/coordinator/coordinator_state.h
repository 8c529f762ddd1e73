/* What a coordinator must know after it was killed, in one small file: jobs with their specs,
 * positions and counters, what agents have counted, and what was spent. It is written by a thread
 * of its own when something has changed, about once a second and at once after a registration, and
 * is whole or absent (base/file.h). A lock on the folder keeps a second coordinator out. */
#ifndef FTH_BATCHES_COORDINATOR_STATE_H
#define FTH_BATCHES_COORDINATOR_STATE_H

#include "batches/coordinator/coordinator_agents.h"
#include "batches/coordinator/coordinator_jobs.h"

typedef struct fth_state_saver fth_state_saver;

/* Locks the folder, which is made if need be. FTH_INVALID if another process has it. */
fth_status fth_state_saver_open(const char *folder, fth_state_saver **saver);
/* Fills the parts from the file, if there is one; a file that cannot be read is put aside, with a
 * warning. What is given outlives the keeper. */
void fth_state_saver_load(fth_state_saver *saver, fth_served_jobs *jobs, fth_agents *agents,
                          fth_dispatcher *dispatcher);
fth_status fth_state_saver_start(fth_state_saver *saver);
void fth_state_saver_nudge(fth_state_saver *saver); /* save soon; NULL is fine */
/* Saves a last time. NULL is fine. */
void fth_state_saver_close(fth_state_saver *saver);

#endif
