/* The inside of a membership, shared by membership.c (life and calls), membership_requests.c
 * (requests to the rendezvous, and retries), membership_heartbeat.c (the thread that beats) and
 * membership_keys.c (keys of the group).
 *
 * Two HTTP clients: `caller` is for calls, which the training thread makes, and `beater` for the
 * heartbeat thread. A call that cannot reach the rendezvous tries again; only the heartbeat decides
 * that the rendezvous has been unreachable for too long.
 *
 * `mutex` guards what both threads use. `delivery` is held while on_end() runs and while a new
 * group is taken over, so that the end of a group is never reported to a caller that is already in
 * the next one; on_end() must not call the membership. */
#ifndef FTH_CLUSTER_MEMBERSHIP_INTERNAL_H
#define FTH_CLUSTER_MEMBERSHIP_INTERNAL_H

#include <pthread.h>

#include "cluster/membership.h"
#include "cluster/presence.h"
#include "cluster/protocol.h"
#include "cluster/rendezvous_client.h"
#include "cluster/succession.h"

enum { FTH_MEMBERSHIP_MAX_ACTIVITY = 63 };
static const double FTH_MEMBERSHIP_PAUSE_S = 0.2;  /* between two tries */
static const double FTH_MEMBERSHIP_GIVE_UP_S = 60; /* for a call that cannot reach the rendezvous */
static const double FTH_MEMBERSHIP_REQUEST_S = 15; /* for one request, which the rendezvous holds for 10 s at most */

struct fth_membership {
    fth_membership_options options; /* texts are copies */
    char *found;                    /* sent with joins, or NULL */
    char instance[33];              /* a random name of this membership */
    char *who;                      /* "rank 2 on b (process 4711)", for messages */
    fth_rendezvous_client *caller;
    fth_succession *succession; /* where the rendezvous is when it is lost */
    fth_presence presence;      /* of the nodes of groups so far */
    json_t *run;                /* the run that was found, or NULL */
    int blamed;                 /* a rank of the newest group, for the next join; -1: none */
    struct {
        fth_rendezvous_client *client;
        pthread_t thread;
        bool running;
    } heartbeat;

    pthread_mutex_t delivery;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool closing;
    int64_t member; /* the incarnation; 0: not a member */
    struct {
        int64_t generation; /* 0: there was none yet */
        int rank;
        bool live;           /* as far as is known here */
        bool ending;         /* others wait to join */
        char *reason;        /* why it ended */
    } group;                 /* the newest one */
    int64_t beat_generation; /* sent with the beat under way */
    struct {
        int64_t step;
        char activity[FTH_MEMBERSHIP_MAX_ACTIVITY + 1];
    } report;
    struct {
        char *address;
        double lost_after_s; /* how long it waits for a member */
        double heard_s;      /* when it answered last */
    } rendezvous;
};

/* How long a call continues after a stop was requested; NULL: it ignores stops. */
typedef struct fth_stop_patience {
    fth_stop *stop; /* or NULL */
    bool in_group;  /* this process was in a group, whose members stop together: they get time to form the next one */
} fth_stop_patience;

/* membership_requests.c */
/* Makes this process a member if it is not, and posts `request`, an object to which it adds the
 * member; `path` NULL: only the first. Retries until `give_up` while the rendezvous cannot be
 * reached, and follows it to another node. FTH_INTERRUPTED when the patience is spent. */
fth_status fth_membership_ask(fth_membership *membership, const char *path, json_t *request,
                              fth_stop_patience *patience, fth_deadline give_up, int *code, json_t **answer);
/* fth_give_up, of an fth_stop_patience. */
bool fth_membership_patience_spent(void *patience);
/* True if the code means that the caller is no longer a member there. */
bool fth_membership_is_gone(int code);
int64_t fth_membership_get_member(fth_membership *membership);
/* The incarnation is over: the next call makes this process a new member. */
void fth_membership_forget(fth_membership *membership, int64_t member);
/* The rendezvous is at `address` from now on, where this process will be a new member. Takes the
 * address. */
void fth_membership_move(fth_membership *membership, char *address);
/* True if the rendezvous has not answered for so long that it counts as lost. */
bool fth_membership_is_unreachable(fth_membership *membership, double *silent_s);

/* membership_heartbeat.c: the thread */
void *fth_membership_beat(void *membership);

/* group_view.c: from an answer to /join */
fth_status fth_group_view_read(const json_t *answer, fth_group_view *view);

#endif
