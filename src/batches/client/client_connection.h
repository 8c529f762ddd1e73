/* A job's connection to the host of its machine (host.h): the socket, the mapped segment, and a
 * slot of the board.
 *
 * It is shared by whoever reads from it, and goes with its last lease: a batch that is being used
 * stays as it is, even where another connection has taken the place of this one. Any thread. */
#ifndef FTH_BATCHES_CLIENT_CONNECTION_H
#define FTH_BATCHES_CLIENT_CONNECTION_H

#include "batches/client/client.h"
#include "batches/memory/host.h"

typedef struct fth_connection fth_connection;

/* An entry that is being read, pinned where it lies. */
typedef struct fth_item_lease {
    fth_connection *connection; /* NULL: none */
    fth_pin pin;
} fth_item_lease;

/* Where the host of an address is: the coordinator itself, or this machine's agent, which is
 * started if there is none. free() *path. */
fth_status fth_connection_find_host(const fth_batches_address *address, fth_deadline deadline, char **path);
/* Sends one request on a connection of its own, such as {"op":"describe"}. The request is
 * stolen. */
fth_status fth_connection_ask_once(const char *path, json_t *request, fth_deadline deadline, json_t **answer);

/* Registers or joins with `request` (stolen), which gives a slot. */
fth_status fth_connection_open(const char *path, json_t *request, fth_deadline deadline, json_t **answer,
                               fth_connection **connection);
fth_connection *fth_connection_hold(fth_connection *connection); /* another user of it */
void fth_connection_release(fth_connection *connection);         /* NULL: nothing */

/* Whether the host has gone, as far as its socket says. */
bool fth_connection_is_lost(fth_connection *connection);
/* One request and its answer; FTH_TIMEOUT means that the connection is lost, too. The request is
 * stolen; `answer` may be NULL. */
fth_status fth_connection_ask(fth_connection *connection, json_t *request, fth_deadline deadline, json_t **answer);
void fth_connection_tell(fth_connection *connection, json_t *request);

/* Finds and pins an entry; FTH_CORRUPT: it is damaged. */
fth_status fth_connection_pin(fth_connection *connection, fth_item_id id, fth_item_lease *lease, bool *found);
void fth_item_lease_release(fth_item_lease *lease);
/* Waits for an item. FTH_OK: look again; FTH_TIMEOUT: not yet; others: it cannot be made. One
 * thread at a time waits for what the host says; the others look for theirs now and then. */
fth_status fth_connection_wait(fth_connection *connection, fth_item_id id, fth_deadline deadline);

fth_slot *fth_connection_slot(fth_connection *connection);
/* In a process that was forked: closes the socket, without a message. */
void fth_connection_abandon(fth_connection *connection);

#endif
