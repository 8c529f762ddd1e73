/* The agent of a node: what `farthing launch` is on each machine.
 *
 * It has the rendezvous where that is to be on this machine, starts the node's workers (this
 * program again, with `train --strategy data-parallel`), watches them, and reports an end to the
 * rendezvous at once, so that no worker waits for one that is gone. A worker that is lost starts
 * again and joins; one that fails ends the node.
 *
 *     find the rendezvous -> start workers -> watch ... all are done -> let others leave -> end
 *                                               | a stop was asked for: passed on, the workers save
 *                                               |   and end together
 *                                               ' a worker failed: the others are stopped, and the
 *                                                 launch fails
 *
 * All of it is in the calling thread; the rendezvous has threads of its own. When the agent ends,
 * however, its workers do. */
#ifndef FTH_PARALLEL_AGENT_H
#define FTH_PARALLEL_AGENT_H

#include "base/exit_code.h"
#include "parallel/relay.h"

typedef enum fth_hosting {
    FTH_HOSTING_AUTO, /* the node whose address the rendezvous has */
    FTH_HOSTING_YES,
    FTH_HOSTING_NO
} fth_hosting;

typedef struct fth_agent_options {
    const char *program;          /* the file of this program */
    const char *const *arguments; /* of `train`; NULL-terminated */
    const char *command;          /* how a person starts all of this: "farthing launch ... -- train" */
    int workers;
    int least, most;        /* nodes */
    const char *rendezvous; /* "host:port"; NULL: on this machine alone, at any free port */
    fth_hosting hosting;
    const char *token; /* "": none; for a rendezvous on this machine alone one is made up */
    const char *run, *node;
    double wait_s;    /* for a rendezvous elsewhere */
    int max_restarts; /* of each worker */
    fth_stop *stop;
    void *context;
    /* Takes a line of a worker: of its output, or a message with the worker's name before it. */
    void (*show)(void *context, fth_relay_stream stream, const char *line);
} fth_agent_options;

/* Runs this node's part of a training. *code is the exit code in any case, also with a failure,
 * which has its message. */
fth_status fth_agent_run(const fth_agent_options *options, fth_exit_code *code);

#endif
