/* What the files of the agent share besides their own headers. */
#ifndef FTH_BATCHES_AGENT_INTERNAL_H
#define FTH_BATCHES_AGENT_INTERNAL_H

#include "batches/agent/agent.h"

/* The path of the socket, which depends on the URL's host and port, this user and the access key.
 * free() it. */
fth_status fth_batches_agent_path(const fth_batches_agent_options *options, char **path);
/* The log beside it of an agent that a client starts. free() it. */
char *fth_batches_agent_log(const char *path);

#endif
