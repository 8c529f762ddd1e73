/* The inside of the rendezvous, shared by rendezvous.c (its life, and requests that wait) and
 * rendezvous_routes.c (the handlers). One mutex guards everything; the HTTP server's is taken
 * inside it, never the other way round. */
#ifndef FTH_CLUSTER_RENDEZVOUS_INTERNAL_H
#define FTH_CLUSTER_RENDEZVOUS_INTERNAL_H

#include <pthread.h>

#include "cluster/agreement.h"
#include "cluster/group_keys.h"
#include "cluster/protocol.h"
#include "cluster/rendezvous.h"
#include "cluster/rendezvous_requests.h"
#include "http/long_poll.h"

typedef enum fth_wait_kind { FTH_WAIT_BEAT, FTH_WAIT_JOIN, FTH_WAIT_FIND, FTH_WAIT_KEY } fth_wait_kind;

/* A member's request that waits for its answer. */
typedef struct fth_wait {
    fth_long_poll poll;
    fth_wait_kind kind;
    int64_t member;
    int64_t generation; /* of the member's group, as far as it knows; of a join: it wants a newer one */
    bool ending;        /* whether the member knows that others wait to join */
    char *key;
} fth_wait;

struct fth_rendezvous {
    fth_server *server;
    char *run;
    char token_hash[65];
    bool needs_token;
    fth_roster_options limits;
    pthread_t ticker;
    bool ticking;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool stopping;
    fth_roster *roster;
    fth_group_keys *keys;
    fth_long_polls waiting;
    fth_agreement configuration, found; /* see fth_membership_options and fth_membership_announce() */
    int64_t finder;                     /* the member whose `found` counts */
    struct {
        char *address; /* of a successor; NULL: there is none */
        double until_s;
    } moved;
};

/* rendezvous.c: with the mutex held */
/* Refuses a caller that is not a member, with the reason if it is known. */
void fth_rendezvous_refuse_stranger(fth_rendezvous *rendezvous, fth_exchange *exchange, int64_t member);
/* Where the rendezvous has moved, or NULL. */
const char *fth_rendezvous_successor(const fth_rendezvous *rendezvous);
/* Redirects the caller to the successor; false: there is none. */
bool fth_rendezvous_redirect(const fth_rendezvous *rendezvous, fth_exchange *exchange);
/* True if the member's group is the live one; else refuses. */
bool fth_rendezvous_check_group(fth_rendezvous *rendezvous, fth_exchange *exchange, int64_t member, int64_t generation);
/* Answers now, or within `seconds`. Takes the key. */
void fth_rendezvous_hold(fth_rendezvous *rendezvous, fth_exchange *exchange, const fth_wait *request, double seconds);
/* A member has one beat here: a new one replaces one that the member has given up. */
void fth_rendezvous_drop_former_beat(fth_rendezvous *rendezvous, int64_t member);

/* rendezvous_routes.c */
extern const fth_route fth_rendezvous_routes[];
/* Refuses browsers and callers without the token, and redirects members to a successor. */
bool fth_rendezvous_admit(void *rendezvous, fth_exchange *exchange, const fth_route *route, fth_role *role);

#endif
