/* The rendezvous: where the members of a run meet. An HTTP service that an agent of `farthing
 * launch`, or the process of rank 0, has in a thread.
 *
 * It forms a group as soon as there are `most` nodes, or `least` and nobody new has come for
 * join_wait_s; after the first group, as soon as every member that is alive has come back. A member
 * that has not been heard of for lost_after_s is lost; so is one whose connection its agent reports
 * as ended. One that is alive but has not moved for stuck_after_s, while the others wait for it, in
 * an exchange or for the next group, is stuck: it is named and left out. */
#ifndef FTH_CLUSTER_RENDEZVOUS_H
#define FTH_CLUSTER_RENDEZVOUS_H

#include "base/base.h"

typedef struct fth_rendezvous fth_rendezvous;

typedef struct fth_rendezvous_options {
    const char *address; /* NULL: every one of this machine */
    int port;            /* 0: any free one */
    const char *token;   /* "": none is asked for */
    const char *run;
    int least, most;      /* nodes */
    double join_wait_s;   /* 0: 3 */
    double lost_after_s;  /* 0: 4 */
    double stuck_after_s; /* 0: 60 */
    int first_least;      /* of a successor (succession.h) alone: nodes that the first group needs */
    /* How long nobody is asked to find the run. A machine that was lost and is back may have a
     * successor, which announces itself within this time. */
    double find_after_s;
} fth_rendezvous_options;

/* FTH_IO, with who holds the port where that can be known, if it is taken. */
fth_status fth_rendezvous_start(const fth_rendezvous_options *options, fth_rendezvous **rendezvous);
int fth_rendezvous_port(const fth_rendezvous *rendezvous);
int fth_rendezvous_count(fth_rendezvous *rendezvous);          /* its members now */
int64_t fth_rendezvous_generation(fth_rendezvous *rendezvous); /* of its live group; 0: there is none */
void fth_rendezvous_stop(fth_rendezvous *rendezvous);

/* For agents: a worker of this node, or every one (process 0), has ended, for this reason: "signal
 * 9". The others know at once instead of after lost_after_s. Takes 3 s at most. */
fth_status fth_rendezvous_report_lost(const char *rendezvous, const char *token, const char *node, int64_t process,
                                      const char *reason);

#endif
