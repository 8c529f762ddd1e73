/* A connection to a coordinator over HTTP: signed requests with JSON bodies, and entries. There is
 * one TCP connection; threads take turns in the order of their calls. */
#ifndef FTH_BATCHES_COORDINATOR_LINK_H
#define FTH_BATCHES_COORDINATOR_LINK_H

#include <jansson.h>

#include "batches/item.h"

typedef struct fth_coordinator_link fth_coordinator_link;

typedef struct fth_coordinator_link_options {
    const char *url;                  /* "http://host:port"; may contain secrets (base/address.h) */
    const char *pinned_key, *ca_file; /* as fth_http_client_options */
} fth_coordinator_link_options;

/* Connects when first used. The key, if any, comes from the environment (http/signature.h). */
fth_status fth_coordinator_link_open(const fth_coordinator_link_options *options, fth_coordinator_link **link);
void fth_coordinator_link_free(fth_coordinator_link *link);
const char *fth_coordinator_link_url(const fth_coordinator_link *link); /* without secrets */

/* One request and its answer, both JSON (`body` may be NULL); json_decref() the answer. An error
 * answer fails with its status and text. FTH_PEER_LOST and FTH_TIMEOUT: the coordinator is away.
 * Does not retry. */
fth_status fth_coordinator_ask(fth_coordinator_link *link, const char *method, const char *target, const json_t *body,
                               fth_deadline deadline, json_t **answer);
/* Downloads the entry of a receipt into memory of its size, and checks it. *found false: it is
 * gone. */
fth_status fth_coordinator_get_item(fth_coordinator_link *link, const fth_receipt *receipt, fth_deadline deadline,
                                    void *entry, bool *found);
/* Uploads an entry. */
fth_status fth_coordinator_put_item(fth_coordinator_link *link, const void *entry, const fth_receipt *receipt,
                                    fth_deadline deadline);

#endif
