/* A job's connection to the host of its machine (host.h): the socket, the mapped segment, and a
 * slot of the board.
 *
 * It is reference-counted and lives as long as its last lease: a batch in use stays valid even
 * after a new connection has replaced this one. Any thread. */
#ifndef FTH_BATCHES_CLIENT_CONNECTION_H
#define FTH_BATCHES_CLIENT_CONNECTION_H

#include "batches/client/client.h"
#include "batches/memory/host.h"

typedef struct fth_connection fth_connection;

/* An entry in use, pinned in the segment. */
typedef struct fth_item_lease {
    fth_connection *connection; /* NULL: none */
    fth_pin pin;
} fth_item_lease;

/* Finds the host of an address: the coordinator itself, or this machine's agent, which is started
 * if necessary. free() *path. */
fth_status fth_connection_find_host(const fth_batches_address *address, fth_deadline deadline, char **path);
/* Sends one request, such as {"op":"describe"}, on its own connection. Steals the request. */
fth_status fth_connection_ask_once(const char *path, json_t *request, fth_deadline deadline, json_t **answer);

/* Registers or joins with `request`, which is stolen, and gets a slot. */
fth_status fth_connection_open(const char *path, json_t *request, fth_deadline deadline, json_t **answer,
                               fth_connection **connection);
fth_connection *fth_connection_hold(fth_connection *connection); /* adds a reference */
void fth_connection_release(fth_connection *connection);         /* NULL: nothing */

/* Whether the host is gone, as far as its socket shows. */
bool fth_connection_is_lost(fth_connection *connection);
/* One request and its answer. After FTH_TIMEOUT the connection is lost, too. Steals the request;
 * `answer` may be NULL. */
fth_status fth_connection_ask(fth_connection *connection, json_t *request, fth_deadline deadline, json_t **answer);
void fth_connection_tell(fth_connection *connection, json_t *request);

/* Finds and pins an entry; FTH_CORRUPT: it is damaged. */
fth_status fth_connection_pin(fth_connection *connection, fth_item_id id, fth_item_lease *lease, bool *found);
void fth_item_lease_release(fth_item_lease *lease);
/* Waits for an item. FTH_OK: look again; FTH_TIMEOUT: not yet; others: it cannot be made. One
 * thread at a time waits for the host's wake; the others look for their items now and then. */
fth_status fth_connection_wait(fth_connection *connection, fth_item_id id, fth_deadline deadline);

fth_slot *fth_connection_slot(fth_connection *connection);
/* In a forked process: closes the socket without a message. */
void fth_connection_abandon(fth_connection *connection);

#endif
