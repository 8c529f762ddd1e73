/* The client of a rendezvous: JSON or bytes over one HTTP connection, with errors that name both
 * sides. For one thread. */
#ifndef FTH_CLUSTER_RENDEZVOUS_CLIENT_H
#define FTH_CLUSTER_RENDEZVOUS_CLIENT_H

#include <jansson.h>

#include "base/base.h"
#include "http/http.h"

typedef struct fth_rendezvous_client fth_rendezvous_client;

/* `address`: "host:port"; `who`: the caller, for messages: "rank 2 on b (process 4711)". */
fth_status fth_rendezvous_client_open(const char *address, const char *token, const char *who,
                                      fth_rendezvous_client **client);
void fth_rendezvous_client_free(fth_rendezvous_client *client);
/* Sends further requests to another address. */
fth_status fth_rendezvous_client_point(fth_rendezvous_client *client, const char *address);

/* Called every 50 ms while a request waits; true: give up, with FTH_INTERRUPTED. */
typedef bool (*fth_give_up)(void *context);

/* Waits until a rendezvous answers. FTH_INVALID, after some seconds at most, if the name does not
 * resolve or another server answers; FTH_TIMEOUT if there is no answer until the deadline. */
fth_status fth_rendezvous_client_reach(fth_rendezvous_client *client, fth_deadline deadline, fth_give_up give_up,
                                       void *context);

/* The same in one try. */
fth_status fth_rendezvous_client_probe(fth_rendezvous_client *client, double seconds, fth_give_up give_up,
                                       void *context);

/* *code is the answer's HTTP code, or 0. A refusal is FTH_INVALID with the rendezvous's message;
 * FTH_PEER_LOST: it cannot be reached. json_decref() the answer, an object. */
fth_status fth_rendezvous_client_post(fth_rendezvous_client *client, const char *path, const json_t *request,
                                      fth_deadline deadline, fth_give_up give_up, void *context, int *code,
                                      json_t **answer);

/* The newest group's generation, as the last successful probe found it. */
int64_t fth_rendezvous_client_generation(const fth_rendezvous_client *client);

/* The rendezvous's new address, if the last request was refused with FTH_RENDEZVOUS_MOVED or a
 * probe found that it would be; else NULL. Valid until the next request. */
const char *fth_rendezvous_client_moved(const fth_rendezvous_client *client);

typedef struct fth_rendezvous_bytes {
    void *bytes;
    size_t size;
} fth_rendezvous_bytes;

/* PUT with `request`; GET if it is NULL. free() the answer's bytes. */
fth_status fth_rendezvous_client_bytes(fth_rendezvous_client *client, const char *target,
                                       const fth_rendezvous_bytes *request, fth_deadline deadline, fth_give_up give_up,
                                       void *context, int *code, fth_rendezvous_bytes *answer);

#endif
