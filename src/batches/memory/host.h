/* The clients of one host: a Unix socket on which jobs register and get the descriptors of segment
 * and board.
 *
 * The coordinator is the host's own where the cache is its shared memory. On other machines, and
 * where the cache is Redis, an agent is (agent.h): it keeps a segment for the jobs of its machine
 * and fills it from the cache. It is started by the first client and ends by itself when it has had
 * no clients for a while. So a machine has one connection to the coordinator, however many jobs and
 * workers it has.
 *
 * The socket is in a folder that only its user can enter; who can open it may use what its owner
 * may. Messages are JSON, one a packet (SOCK_SEQPACKET):
 *
 *     {"op":"register", "job":{spec}, "name":..., "resume":ID?}  -> {"job":ID, "slot":N, "spec":{...}, "set":{...}} and
 * two descriptors
 *     {"op":"join", "job":ID}       another process of the same job (a data worker)      -> {"slot":N} and two
 * descriptors
 *     {"op":"describe", "data":NAME}                                                     -> {"set":{...}}
 *     {"op":"wake"}                 this client waits for something: look at its slot   (no answer)
 *     {"op":"failed?", "id":ID}     why an item could not be made                       -> {"status":..., "error":...}
 *     {"op":"lost", "id":ID}        the entry is damaged: it is made, or fetched, again  -> {}
 *     {"op":"figures"}              what the job has cost so far                        -> as GET /v1/jobs/JOB
 * (coordinator.h)
 *     {"op":"finish"}               the job is done, not merely gone
 *
 * Every answer may be {"error":..., "status":...} instead, the status as fth_status_name() has it.
 * A request that is to be answered has a number, "n", which its answer has too; fth_host_ask() sees
 * to that. An answer that is too large for a packet is in memory of its own, whose descriptor the
 * packet {"large":BYTES} brings.
 *
 * The host takes requests of at most FTH_HOST_REQUEST_BYTES, one at a time of each client, from
 * processes of its own user. A client that does not read its answers is dropped; no client can keep
 * the host from the others. */
#ifndef FTH_BATCHES_HOST_H
#define FTH_BATCHES_HOST_H

#include <jansson.h>

#include "batches/memory/segment.h"

enum { FTH_HOST_REQUEST_BYTES = 65536, FTH_HOST_CLIENTS = FTH_BOARD_SLOTS };

/* Who stands behind a host: the coordinator itself, or an agent that asks it. */
typedef struct fth_host_handler {
    void *context;
    /* Answers a request (not "wake" or "finish"); *answer is the host's to free. `slot`: the
     * client's, or -1 before it has one. For "register" and "join", *job (not 0) is whom the client
     * then gets a slot for; the host adds "slot" and the descriptors. May take its time, if it
     * ends: it is called from a few threads, for several clients at once. */
    fth_status (*answer)(void *context, int slot, json_t *request, json_t **answer, uint64_t *job);
    /* From the host's thread; must not wait. */
    void (*wake)(void *context, int slot); /* a client waits */
    /* A client has gone; its slot can still be read, and is cleared afterwards. `slot` is -1 if
     * there was none left for a job that `answer` gave. Not called for clients that are there when
     * the host is closed. */
    void (*left)(void *context, int slot, uint64_t job, bool finished);
} fth_host_handler;

typedef struct fth_host fth_host;
/* FTH_INVALID if another process serves that path. What a killed one has left there is replaced. */
fth_status fth_host_open(const char *socket_path, fth_segment_cache *segment, fth_board *board,
                         const fth_host_handler *handler, fth_host **host);
void fth_host_close(fth_host *host);
int fth_host_clients(const fth_host *host); /* connections */

/* Where the socket of a coordinator's address is, for this user and key (may be NULL); free() it.
 * All names of this machine are one; a coordinator of this machine has its own without a key, since
 * who can open it may use what its owner may. It is in $XDG_RUNTIME_DIR/farthing or
 * /tmp/farthing-UID, which is made, or refused if it is somebody else's or others can enter it. */
fth_status fth_host_socket_path(const char *address, int port, const char *access_key, char **path);
/* The same of a coordinator that serves the clients of its own machine itself, whatever the
 * addresses at which it listens: never an agent's. */
fth_status fth_host_own_socket_path(int port, char **path);

/* ---- a client's end (host_link.c); any thread ---- */
typedef struct fth_host_link fth_host_link;
/* FTH_PEER_LOST if nobody is there. */
fth_status fth_host_connect(const char *socket_path, fth_deadline deadline, fth_host_link **link);
/* In a process that was forked, this leaves its parent's connection alone. */
void fth_host_disconnect(fth_host_link *link);
/* One request and its answer, which may be an error; `fds` (may be NULL) gets the descriptors of
 * segment and board, the caller's to close, or -1. FTH_PEER_LOST if the host has gone. */
fth_status fth_host_ask(fth_host_link *link, json_t *request, fth_deadline deadline, json_t **answer, int fds[2]);
/* A request without an answer; never waits. */
fth_status fth_host_tell(fth_host_link *link, json_t *request);
bool fth_host_is_gone(fth_host_link *link); /* without waiting */

#endif
