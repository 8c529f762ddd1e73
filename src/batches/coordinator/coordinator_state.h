/* The state that survives a restart of the coordinator, in one small file: jobs with their specs,
 * positions and counters, the agents' counters, and spending. A thread writes it when something has
 * changed, about once a second and at once after a registration. The file is complete or absent
 * (base/file.h). A lock on the folder excludes a second coordinator. */
#ifndef FTH_BATCHES_COORDINATOR_STATE_H
#define FTH_BATCHES_COORDINATOR_STATE_H

#include "batches/coordinator/coordinator_agents.h"
#include "batches/coordinator/coordinator_jobs.h"

typedef struct fth_state_saver fth_state_saver;

/* Locks the folder, and creates it if necessary. FTH_INVALID if another process has it. */
fth_status fth_state_saver_open(const char *folder, fth_state_saver **saver);
/* Loads the file into the parts, if there is one. An unreadable file is renamed, with a warning.
 * The arguments outlive the saver. */
void fth_state_saver_load(fth_state_saver *saver, fth_served_jobs *jobs, fth_agents *agents,
                          fth_dispatcher *dispatcher);
fth_status fth_state_saver_start(fth_state_saver *saver);
void fth_state_saver_nudge(fth_state_saver *saver); /* save soon; NULL is allowed */
/* Saves a last time. NULL is allowed. */
void fth_state_saver_close(fth_state_saver *saver);

#endif
