/* The clients of the coordinator's own machine, where the cache is its shared memory: the host's
 * socket (host.h), and what the board (board.h) says of positions, counts and waits. The board is
 * looked at every few milliseconds while something moves. */
#ifndef FTH_BATCHES_COORDINATOR_LOCAL_H
#define FTH_BATCHES_COORDINATOR_LOCAL_H

#include "batches/coordinator/coordinator_jobs.h"
#include "batches/memory/host.h"

typedef struct fth_local_clients fth_local_clients;

typedef struct fth_local_clients_options {
    const fth_served_sets *sets;
    fth_served_jobs *jobs;
    fth_dispatcher *dispatcher;
    fth_segment_cache *segment;
    fth_board *board;
    int port;
    void *context;
    void (*wake)(void *context);       /* somebody waits, or comes: look soon. From any thread */
    void (*registered)(void *context); /* a job has: keep that */
} fth_local_clients_options;

fth_status fth_local_clients_open(const fth_local_clients_options *options, fth_local_clients **clients);
void fth_local_clients_close(fth_local_clients *clients);
int fth_local_clients_count(const fth_local_clients *clients);
/* Reads the board; from one thread. True if something has moved since the last time. */
bool fth_local_clients_look(fth_local_clients *clients);

#endif
