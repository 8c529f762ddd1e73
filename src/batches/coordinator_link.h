/* A connection to a coordinator over HTTP: signed requests, JSON both ways, and entries. One TCP
 * connection; any thread, and each waits for its turn, in the order in which they came. */
#ifndef FTH_BATCHES_COORDINATOR_LINK_H
#define FTH_BATCHES_COORDINATOR_LINK_H

#include <jansson.h>

#include "batches/item.h"

typedef struct fth_coordinator_link fth_coordinator_link;

typedef struct fth_coordinator_link_options {
    const char *url;                  /* "http://host:port", may have secrets (base/address.h) */
    const char *pinned_key, *ca_file; /* as fth_http_client_options */
} fth_coordinator_link_options;

/* Connects when it is first used. The key is the environment's (http/signature.h), if there is
 * one. */
fth_status fth_coordinator_link_open(const fth_coordinator_link_options *options, fth_coordinator_link **link);
void fth_coordinator_link_free(fth_coordinator_link *link);
const char *fth_coordinator_link_url(const fth_coordinator_link *link); /* without secrets */

/* One request: `body` (may be NULL) and the answer in JSON; json_decref() it. An answer that is an
 * error fails with its status and text. FTH_PEER_LOST and FTH_TIMEOUT: the coordinator is away.
 * Tries once. */
fth_status fth_coordinator_ask(fth_coordinator_link *link, const char *method, const char *target, const json_t *body,
                               fth_deadline deadline, json_t **answer);
/* Gets the entry that a receipt is for, to memory of its size, and checks it. *found false: it is
 * not there any more. */
fth_status fth_coordinator_get_item(fth_coordinator_link *link, const fth_receipt *receipt, fth_deadline deadline,
                                    void *entry, bool *found);
/* Hands in an entry. */
fth_status fth_coordinator_put_item(fth_coordinator_link *link, const void *entry, const fth_receipt *receipt,
                                    fth_deadline deadline);

#endif
