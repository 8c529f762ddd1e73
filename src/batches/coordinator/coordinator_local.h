/* The clients of this machine: the host's socket (host.h), and the positions, counters and waits on
 * the board (board.h), which is polled every few milliseconds while something changes. A
 * coordinator whose cache is its own memory has such clients, and so has an agent. */
#ifndef FTH_BATCHES_COORDINATOR_LOCAL_H
#define FTH_BATCHES_COORDINATOR_LOCAL_H

#include "batches/coordinator/coordinator_jobs.h"
#include "batches/memory/host.h"

typedef struct fth_local_clients fth_local_clients;
typedef struct fth_watcher fth_watcher;

/* Requests that a coordinator answers itself and an agent passes on. */
typedef struct fth_local_requests {
    void *context;
    fth_status (*register_job)(void *context, const json_t *request, uint64_t *job, json_t **answer);
    fth_status (*join_job)(void *context, uint64_t job, json_t **answer);
    fth_status (*describe_set)(void *context, const char *name, json_t **answer);
    fth_status (*describe_job)(void *context, uint64_t job, json_t **answer);
} fth_local_requests;

/* All pointers outlive the clients. */
typedef struct fth_local_clients_options {
    const char *path; /* of the socket */
    const fth_local_requests *requests;
    fth_served_jobs *jobs;
    fth_dispatcher *dispatcher;
    fth_segment_cache *segment;
    fth_board *board;
    fth_watcher *watcher; /* woken when a client comes or waits */
} fth_local_clients_options;

fth_status fth_local_clients_open(const fth_local_clients_options *options, fth_local_clients **clients);
void fth_local_clients_close(fth_local_clients *clients);
int fth_local_clients_count(const fth_local_clients *clients);
/* Polls the board; one thread only. True if anything has changed since the last time. */
bool fth_local_clients_look(fth_local_clients *clients);

#endif
