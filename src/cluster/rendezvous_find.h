/* How an agent finds the rendezvous that its workers are to be members of: whether it is to be on
 * this machine, and waiting for it where it is on another. */
#ifndef FTH_CLUSTER_RENDEZVOUS_FIND_H
#define FTH_CLUSTER_RENDEZVOUS_FIND_H

#include "base/base.h"
#include "base/stop.h"

typedef struct fth_rendezvous_place {
    const char *address; /* "host:port" */
    const char *token;   /* "": none */
    const char *run;     /* that has to be the rendezvous's */
    const char *node;    /* who asks */
} fth_rendezvous_place;

/* True if this machine has the address that the host of "host:port" stands for; false also where
 * that is not known. */
bool fth_rendezvous_is_here(const char *address);

/* What a rendezvous at "host:port" listens on (fth_rendezvous_options.address): loopback where its
 * members are to find it there, else NULL, every address of this machine. */
const char *fth_rendezvous_listening_address(const char *address);

/* Waits until there is a rendezvous. FTH_INVALID, at once, if what answers there is something else,
 * wants another token or is another run's; FTH_TIMEOUT at the deadline; FTH_INTERRUPTED when `stop`
 * is asked. */
fth_status fth_rendezvous_reach(const fth_rendezvous_place *place, fth_stop *stop, fth_deadline deadline);
/* How many processes are members now. */
fth_status fth_rendezvous_count_members(const fth_rendezvous_place *place, int *count);
/* Whether there has been a group. */
fth_status fth_rendezvous_has_begun(const fth_rendezvous_place *place, bool *begun);

#endif
