/* Packets between a host and its clients (host.h): a JSON object, and descriptors. */
#ifndef FTH_BATCHES_HOST_PACKET_H
#define FTH_BATCHES_HOST_PACKET_H

#include <jansson.h>

#include "base/base.h"

enum { FTH_PACKET_FDS = 2 };

/* Sends without waiting. `fds` may be NULL. FTH_TIMEOUT: the other side does not read;
 * FTH_PEER_LOST: it has gone. */
fth_status fth_packet_send(int socket, const json_t *message, const int *fds);
/* Receives without waiting: *message NULL if there is nothing. With `fds`, takes descriptors (-1:
 * none), and large messages; without, those that are sent are closed. FTH_PEER_LOST at the end,
 * FTH_CORRUPT for what is no message. */
fth_status fth_packet_receive(int socket, json_t **message, int *fds);

#endif
