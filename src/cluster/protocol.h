/* What rendezvous.c and membership.c say to each other, beyond what is at the top of
 * rendezvous.c. */
#ifndef FTH_CLUSTER_PROTOCOL_H
#define FTH_CLUSTER_PROTOCOL_H

/* In every answer as "service", so that something else on the port is recognized. */
#define FTH_RENDEZVOUS_NAME "farthing rendezvous"

/* Codes of answers with a meaning of their own. */
enum {
    FTH_RENDEZVOUS_GONE = 410,  /* the caller is not a member any more */
    FTH_RENDEZVOUS_ENDED = 412, /* its group has ended */
    FTH_RENDEZVOUS_MOVED = 421  /* the rendezvous is elsewhere: at "moved", "host:port" */
};

#endif
