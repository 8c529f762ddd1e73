/* The clients of one host: a Unix socket on which jobs register and get the descriptors of segment and board.
 *
 * The coordinator is the host's own where the cache is its shared memory. On other machines, and where the cache is Redis, an
 * agent is (agent.h): it keeps a segment for the jobs of its machine and fills it from the cache. It is started by the first
 * client and ends by itself when it has had no clients for a while. So a machine has one connection to the coordinator,
 * however many jobs and workers it has.
 *
 * The socket is in a folder that only its user can enter; who can open it may use what its owner may. Messages are JSON, one
 * a packet (SOCK_SEQPACKET):
 *
 *     {"op":"register", "job":{spec}, "name":..., "resume":ID?}  -> {"job":ID, "slot":N, "spec":{...}, "set":{...}} and two descriptors
 *     {"op":"join", "job":ID}       another process of the same job (a data worker)      -> {"slot":N} and two descriptors
 *     {"op":"describe", "data":NAME}                                                     -> {"set":{...}}
 *     {"op":"wake"}                 this client waits for something: look at its slot   (no answer)
 *     {"op":"failed?", "id":ID}     why an item could not be made                       -> {"status":..., "error":...}
 *     {"op":"figures"}              what the job has cost so far                        -> as GET /v1/jobs/JOB (coordinator.h)
 *     {"op":"finish"}               the job is done, not merely gone
 *
 * Every answer may be {"error":..., "status":...} instead. */
#ifndef FTH_BATCHES_HOST_H
#define FTH_BATCHES_HOST_H

#include <jansson.h>

#include "batches/segment.h"

/* Who stands behind a host: the coordinator itself, or an agent that asks it. Called from the host's thread. */
typedef struct fth_host_supplier {
    void *context;
    /* Answers a request (not "wake"); *answer is the host's to free. `slot`: the client's, or -1 before it has one. */
    fth_status (*answer)(void *context, int slot, json_t *request, json_t **answer, uint64_t *job);
    void (*wake)(void *context, int slot); /* a client waits */
    void (*left)(void *context, int slot, uint64_t job, bool finished);
} fth_host_supplier;

typedef struct fth_host fth_host;
fth_status fth_host_open(const char *socket_path, fth_segment_cache *segment, fth_board *board,
                         const fth_host_supplier *supplier, fth_host **host);
void fth_host_close(fth_host *host);
int fth_host_clients(const fth_host *host);

/* Where the socket of a coordinator's address is, for this user and key; free() it. The folder is made, or refused if
 * somebody else's. */
fth_status fth_host_socket_path(const char *address, int port, const char *access_key, char **path);

/* ---- a client's end ---- */
typedef struct fth_host_link fth_host_link;
fth_status fth_host_connect(const char *socket_path, fth_deadline deadline, fth_host_link **link);
void fth_host_disconnect(fth_host_link *link);
/* One request and its answer; `fds` (may be NULL) gets two descriptors, or -1. FTH_PEER_LOST if the host has gone. */
fth_status fth_host_ask(fth_host_link *link, json_t *request, fth_deadline deadline, json_t **answer, int fds[2]);
fth_status fth_host_tell(fth_host_link *link, json_t *request);
bool fth_host_is_gone(fth_host_link *link); /* without waiting */

#endif
