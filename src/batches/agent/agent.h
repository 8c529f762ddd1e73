/* The agent of a machine: the coordinator's machinery (jobs, scheduler, dispatcher, host) over a
 * segment of this machine's memory, with one prefetcher, which fetches items from the real
 * coordinator or from Redis. It holds the machine's only connection to the coordinator. The first
 * client starts it (as `farthing batches-agent`, or from Python), others find it by the path of its
 * socket, and a lock file ensures that there is only one. It exits after `idle_s` without clients.
 *
 *     agent.c        puts the parts together; passes on requests
 *     agent_start.c  finds an agent, or starts one
 *     agent_jobs.c   the jobs of its clients, and the reports about them
 *     upstream.c     the prefetcher */
#ifndef FTH_BATCHES_AGENT_H
#define FTH_BATCHES_AGENT_H

#include "batches/memory/host.h"

typedef struct fth_batches_agent_options {
    const char *url;                  /* "http://host:port" */
    const char *pinned_key, *ca_file; /* as fth_http_client_options */
    uint64_t memory_bytes;            /* 0: a quarter of the free memory, at most 1 GiB */
    double idle_s;                    /* 0: 30 */
    const fth_stop *stop;             /* may be NULL */
} fth_batches_agent_options;

/* Runs until it is idle or stopped. Returns FTH_OK at once if this machine already has an agent. */
fth_status fth_batches_agent_run(const fth_batches_agent_options *options);

/* Finds this machine's agent for a coordinator, or starts one in a new process. The caller frees
 * *socket_path, which fth_host_connect() takes. `command` is the program's path and its arguments,
 * NULL-terminated; "--url URL" and, as far as the options are set, "--pinned-key KEY", "--ca-file
 * FILE", "--memory BYTES" and "--idle SECONDS" are appended. NULL: the words in
 * FARTHING_BATCHES_AGENT, separated by newlines, or this program if it is farthing itself.
 * FTH_TIMEOUT, or the reason why the agent exited. */
fth_status fth_batches_agent_ensure(const fth_batches_agent_options *options, const char *const *command,
                                    fth_deadline deadline, char **socket_path);

#define FTH_BATCHES_AGENT_COMMAND "batches-agent"

#endif
