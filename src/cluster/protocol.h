/* What the rendezvous (rendezvous.c) and its clients (rendezvous_client.c) share, besides the
 * requests listed at the top of rendezvous.c. */
#ifndef FTH_CLUSTER_PROTOCOL_H
#define FTH_CLUSTER_PROTOCOL_H

/* In every answer as "service", so that another server on the port is recognized. */
#define FTH_RENDEZVOUS_NAME "farthing rendezvous"

/* HTTP codes with a meaning of their own. */
enum {
    FTH_RENDEZVOUS_GONE = 410,  /* the caller is no longer a member */
    FTH_RENDEZVOUS_ENDED = 412, /* the caller's group has ended */
    FTH_RENDEZVOUS_MOVED = 421  /* the rendezvous is elsewhere: at "moved", "host:port" */
};

enum { FTH_RENDEZVOUS_MAX_NAME = 256 }; /* of nodes, hosts, runs and addresses */

#endif
