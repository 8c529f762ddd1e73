/* The agent of a machine: the coordinator's machinery (jobs, scheduler, dispatcher, host) over a
 * segment of this machine's memory, with one prefetcher that fetches items from the real coordinator
 * or from Redis. It holds the machine's one connection to the coordinator. The first client starts
 * it (as `farthing batches-agent`, or from Python), the others find it by the socket's path, and a
 * lock file makes it one. It exits after `idle_s` without clients.
 *
 *     agent.c        puts the parts together; requests that are passed on
 *     agent_start.c  finding an agent, or starting one
 *     agent_jobs.c   the jobs of its clients, and what is reported of them
 *     upstream.c     the prefetcher */
#ifndef FTH_BATCHES_AGENT_H
#define FTH_BATCHES_AGENT_H

#include "batches/memory/host.h"

typedef struct fth_batches_agent_options {
    const char *url;                  /* "http://host:port" */
    const char *pinned_key, *ca_file; /* as fth_http_client_options */
    uint64_t memory_bytes;            /* 0: a quarter of what is free, 1 GiB at most */
    double idle_s;                    /* 0: 30 */
    const fth_stop *stop;             /* may be NULL */
} fth_batches_agent_options;

/* Runs until it is idle or stopped. FTH_OK at once if this machine has one already. */
fth_status fth_batches_agent_run(const fth_batches_agent_options *options);

/* Finds the agent of this machine for a coordinator, or starts one as a process of its own: gives
 * the path of the socket, where fth_host_connect() finds it; free() it. `command` runs an agent
 * when "--url URL" and, where options have them, "--pinned-key KEY", "--ca-file FILE", "--memory
 * BYTES" and "--idle SECONDS" are added to it: words, NULL-terminated, the program's path first.
 * NULL: the words in the environment's FARTHING_BATCHES_AGENT, with newlines between them, or this
 * program, if it is farthing itself. FTH_TIMEOUT, or why the agent ended. */
fth_status fth_batches_agent_ensure(const fth_batches_agent_options *options, const char *const *command,
                                    fth_deadline deadline, char **socket_path);

#define FTH_BATCHES_AGENT_COMMAND "batches-agent"

#endif
