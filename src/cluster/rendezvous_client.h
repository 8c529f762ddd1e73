/* Requests to a rendezvous: JSON or bytes over one HTTP client, with errors that say who asked
 * whom. For one thread. */
#ifndef FTH_CLUSTER_RENDEZVOUS_CLIENT_H
#define FTH_CLUSTER_RENDEZVOUS_CLIENT_H

#include <jansson.h>

#include "base/base.h"
#include "http/http.h"

typedef struct fth_rendezvous_client fth_rendezvous_client;

/* `address`: "host:port"; `who` asks, for messages: "rank 2 on b (process 4711)". */
fth_status fth_rendezvous_client_open(const char *address, const char *token, const char *who,
                                      fth_rendezvous_client **client);
void fth_rendezvous_client_free(fth_rendezvous_client *client);
/* From now on requests go to another one. */
fth_status fth_rendezvous_client_point(fth_rendezvous_client *client, const char *address);

/* While a request waits, every 50 ms: whether to give up, with FTH_INTERRUPTED. */
typedef bool (*fth_give_up)(void *context);

/* Waits until a rendezvous answers there. FTH_INVALID, after some seconds at most, if the name does
 * not resolve or something else answers; FTH_TIMEOUT if nobody does until the deadline. */
fth_status fth_rendezvous_client_reach(fth_rendezvous_client *client, fth_deadline deadline, fth_give_up give_up,
                                       void *context);

/* One try: whether a rendezvous answers there within so many seconds. */
bool fth_rendezvous_client_probe(fth_rendezvous_client *client, double seconds, fth_give_up give_up, void *context);

/* *code is that of the answer, or 0. Answers that are refusals fail with the message of the
 * rendezvous: FTH_INVALID; FTH_PEER_LOST where it cannot be reached. json_decref() the answer, an
 * object. */
fth_status fth_rendezvous_client_post(fth_rendezvous_client *client, const char *path, const json_t *request,
                                      fth_deadline deadline, fth_give_up give_up, void *context, int *code,
                                      json_t **answer);

/* After a probe that was answered: the generation of the newest group that is known there. */
int64_t fth_rendezvous_client_generation(const fth_rendezvous_client *client);

/* Where the rendezvous is instead, if the last request was refused with FTH_RENDEZVOUS_MOVED, or
 * would have been; else NULL. Valid until the next request. */
const char *fth_rendezvous_client_moved(const fth_rendezvous_client *client);

typedef struct fth_rendezvous_bytes {
    void *bytes;
    size_t size;
} fth_rendezvous_bytes;

/* PUT with `request`, GET where it is NULL. free() the answer's bytes. */
fth_status fth_rendezvous_client_bytes(fth_rendezvous_client *client, const char *target,
                                       const fth_rendezvous_bytes *request, fth_deadline deadline, fth_give_up give_up,
                                       void *context, int *code, fth_rendezvous_bytes *answer);

#endif
