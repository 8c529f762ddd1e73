/* The agent of a machine: has the one connection to a coordinator, a segment for the jobs of its machine, and fills it with what they
 * need next, from the coordinator or from Redis. Started by the first client (as `farthing batches-agent`, or from Python), found by the
 * others through the socket's path; a lock file makes it one. It ends when it has had no clients for `idle_s`. */
#ifndef FTH_BATCHES_AGENT_H
#define FTH_BATCHES_AGENT_H

#include "batches/host.h"

typedef struct fth_batches_agent_options {
    const char *url;                  /* "http://host:port" */
    const char *pinned_key, *ca_file; /* as fth_http_client_options */
    uint64_t memory_bytes;            /* 0: a quarter of what is free, 1 GiB at most */
    double idle_s;                    /* 0: 30 */
    const fth_stop *stop;
} fth_batches_agent_options;

/* Runs until it is idle or stopped. FTH_OK at once if this machine has one already. */
fth_status fth_batches_agent_run(const fth_batches_agent_options *options);

#endif
