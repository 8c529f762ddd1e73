/* What the files of the agent share besides their own headers. */
#ifndef FTH_BATCHES_AGENT_INTERNAL_H
#define FTH_BATCHES_AGENT_INTERNAL_H

#include "batches/agent/agent.h"

/* The socket's path: that of the URL's host and port, for this user and key. free() it. */
fth_status fth_batches_agent_path(const fth_batches_agent_options *options, char **path);
/* The file beside it for the messages of an agent that a client starts. free() it. */
char *fth_batches_agent_log(const char *path);

#endif
