/* Packets between a host and its clients (host.h): a JSON object and descriptors. */
#ifndef FTH_BATCHES_HOST_PACKET_H
#define FTH_BATCHES_HOST_PACKET_H

#include <jansson.h>

#include "base/base.h"

enum { FTH_PACKET_FDS = 2 };

/* Sends without blocking. `fds` may be NULL. FTH_TIMEOUT: the peer does not read; FTH_PEER_LOST: it
 * is gone. */
fth_status fth_packet_send(int socket, const json_t *message, const int *fds);
/* Receives without blocking: *message is NULL if there is nothing. With `fds`, takes descriptors
 * (-1: none) and large messages; without, received descriptors are closed. FTH_PEER_LOST at the
 * end, FTH_CORRUPT for an invalid message. */
fth_status fth_packet_receive(int socket, json_t **message, int *fds);

#endif
