/* The host of a machine's clients: a Unix socket on which jobs register and get the descriptors of
 * segment and board.
 *
 * The coordinator is the host of its own machine if the cache is its shared memory. On other
 * machines, and if the cache is Redis, an agent is (agent.h): it fills a segment for the jobs of
 * its machine. The first client starts it, and it exits when it has had no clients for a while. So
 * a machine has one connection to the coordinator, regardless of its number of jobs and workers.
 *
 * The socket is in a folder that only its user can enter; opening it is the permission to use the
 * owner's access. Messages are JSON, one per packet (SOCK_SEQPACKET):
 *
 *     {"op":"register", "job":{spec}, "name":..., "resume":ID?}
 *                                -> {"job":ID, "slot":N, "spec":{...}, "set":{...}}, 2 descriptors
 *     {"op":"join", "job":ID}    another process of the job (a data worker)
 *                                -> {"slot":N}, 2 descriptors
 *     {"op":"describe", "data":NAME}                    -> {"set":{...}}
 *     {"op":"wake"}              this client waits: look at its slot; no answer
 *     {"op":"failed?", "id":ID}  why an item could not be made
 *                                -> {"status":..., "error":...}
 *     {"op":"lost", "id":ID}     the entry is damaged: make or fetch it again     -> {}
 *     {"op":"figures"}           the job's figures, as GET /v1/jobs/JOB (coordinator.h)
 *     {"op":"finish"}            the job is done, not merely gone
 *
 * Every answer may instead be {"error":..., "status":...}, with a name of fth_status_name(). A
 * request that expects an answer has a number "n", which the answer repeats; fth_host_ask() does
 * this. An answer too large for a packet is in a memory file, whose descriptor comes with the
 * packet {"large":BYTES}.
 *
 * Requests have at most FTH_HOST_REQUEST_BYTES. The host handles one at a time per client, and only
 * from processes of its own user. A client that does not read its answers is dropped; no client can
 * block the others. */
#ifndef FTH_BATCHES_HOST_H
#define FTH_BATCHES_HOST_H

#include <jansson.h>

#include "batches/memory/segment.h"

enum { FTH_HOST_REQUEST_BYTES = 65536, FTH_HOST_CLIENTS = FTH_BOARD_SLOTS };

/* Handles requests for a host: a coordinator, or an agent. */
typedef struct fth_host_handler {
    void *context;
    /* Answers a request other than "wake" and "finish"; the host frees *answer. `slot` is the
     * client's, or -1 before it has one. For "register" and "join", *job (not 0) is the job for
     * which the client then gets a slot; the host adds "slot" and the descriptors. May take some
     * time; several threads call it at once. */
    fth_status (*answer)(void *context, int slot, json_t *request, json_t **answer, uint64_t *job);
    /* Both are called from the host's thread and must not block. */
    void (*wake)(void *context, int slot); /* a client waits */
    /* A client is gone; its slot can still be read, and is cleared afterwards. `slot` is -1 if
     * there was none left for the job given by `answer`. Not called for clients that are there when
     * the host closes. */
    void (*left)(void *context, int slot, uint64_t job, bool finished);
} fth_host_handler;

typedef struct fth_host fth_host;
/* FTH_INVALID if another process serves that path. What a killed host has left there is
 * replaced. */
fth_status fth_host_open(const char *socket_path, fth_segment_cache *segment, fth_board *board,
                         const fth_host_handler *handler, fth_host **host);
void fth_host_close(fth_host *host);
int fth_host_clients(const fth_host *host); /* connections */

/* The socket's path for a coordinator's address, this user and key (may be NULL); free() it. All
 * names of this machine are equal. The folder is $XDG_RUNTIME_DIR/farthing or /tmp/farthing-UID; it
 * is created, or refused if it belongs to another user or others can enter it. */
fth_status fth_host_socket_path(const char *address, int port, const char *access_key, char **path);
/* The same for a coordinator that serves the clients of its own machine, whatever addresses it
 * listens on; never equal to an agent's. */
fth_status fth_host_own_socket_path(int port, char **path);

/* ---- a client's end (host_link.c); any thread ---- */
typedef struct fth_host_link fth_host_link;
/* FTH_PEER_LOST if there is no host. */
fth_status fth_host_connect(const char *socket_path, fth_deadline deadline, fth_host_link **link);
/* In a forked process, this leaves the parent's connection alone. */
void fth_host_disconnect(fth_host_link *link);
/* One request and its answer, which may be an error. `fds` (may be NULL) gets the descriptors of
 * segment and board, which the caller closes, or -1. FTH_PEER_LOST if the host is gone. */
fth_status fth_host_ask(fth_host_link *link, json_t *request, fth_deadline deadline, json_t **answer, int fds[2]);
/* A request without an answer; never blocks. */
fth_status fth_host_tell(fth_host_link *link, json_t *request);
bool fth_host_is_gone(fth_host_link *link); /* does not block */

#endif
