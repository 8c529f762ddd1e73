/* A process's membership in a run that several processes train together.
 *
 * The members of a run meet at a rendezvous (rendezvous.h). It puts them into groups, one after the
 * other: each has a generation, its number, and members that do not change. A group ends when one
 * of its members is lost or leaves, or when new members wait to join it; those that are left join
 * again and get the next one.
 *
 *     open -> find_run -> prepare (data, device, plans) -> join -> train -> leave -> close
 *                                                            ^       |
 *                                                            '-------' the group ends: on_end()
 *
 * One member finds the run (which may be in a store, with a lease to wait for) and shares what it
 * found. The others wait for that; members that come later get it at once. A process that comes
 * while others train prepares itself before it joins, so that they wait for it as little as
 * possible.
 *
 * From open to close a thread of the membership tells the rendezvous about once a second that this
 * process is alive, and what it does; the answer comes at once when the group has ended. */
#ifndef FTH_CLUSTER_MEMBERSHIP_H
#define FTH_CLUSTER_MEMBERSHIP_H

#include <jansson.h>

#include "base/base.h"
#include "base/stop.h"

typedef struct fth_membership fth_membership;

typedef struct fth_membership_options {
    const char *rendezvous; /* "host:port" */
    const char *token;      /* that all members and the rendezvous know; "": none */
    const char *run;        /* the run's name: two runs on one rendezvous are an error */
    const char *node;    /* which machine this is: a name that its processes have in common and no other machine has */
    const char *host;    /* the machine's own name, for the record */
    const char *address; /* where other machines reach this one; "": the source address of its requests */
    int local_rank;      /* among the processes of this machine */
    int local_size;      /* how many of them there are: the first group waits for all */
    int rank;            /* that a launcher has set; -1: the rendezvous decides */
    const char *configuration; /* of what was asked: members that differ are refused, with both nodes named */
    json_t *facts;             /* for the other members and the record: machine, price, ...; borrowed */
    void *context;
    /* From the membership's thread: the group of this generation has ended, for this reason ("rank
     * 2 on b.example was lost: ..."). Threads that wait for a member must stop waiting. */
    void (*on_end)(void *context, int64_t generation, const char *reason);
} fth_membership_options;

/* A member of a group: the list is the same, in the same order, in every member. */
typedef struct fth_group_member {
    char *node, *host, *address;
    int node_number; /* 0 for the first member's */
    int local_rank;  /* among the group's members on that machine */
    int64_t process;
    json_t *facts;
} fth_group_member;

typedef struct fth_group_view {
    int64_t generation; /* 1 for the first */
    int rank, size, nodes;
    double present;            /* share of the run's nodes that the group has: presence.h */
    fth_group_member *members; /* by rank */
} fth_group_view;
void fth_group_view_release(fth_group_view *view);

/* Reaches the rendezvous. FTH_INVALID, naming node and rank, if it refuses this process: wrong
 * token, another run, version or configuration; FTH_TIMEOUT if it cannot be reached. */
fth_status fth_membership_open(const fth_membership_options *options, fth_deadline deadline,
                               fth_membership **membership);
void fth_membership_close(fth_membership *membership);

/* Whether this process is the one that finds the run: then *run is NULL, and it shares what it
 * found. Otherwise waits for what was found; json_decref() it. FTH_INTERRUPTED when `stop` is
 * asked. */
fth_status fth_membership_find_run(fth_membership *membership, fth_stop *stop, json_t **run);
fth_status fth_membership_share_run(fth_membership *membership, const json_t *run);

/* Before join: what this process found where it is, such as how many images, as an object.
 * FTH_INVALID from join, with nodes and values, if it is not what the first that joined had
 * found. */
fth_status fth_membership_announce(fth_membership *membership, const json_t *found);

/* Waits until there is a group with this process, and frees what *view held. FTH_INTERRUPTED when
 * `stop` is asked; some seconds after that where this process was in a group before, whose members
 * are to stop together. While there are fewer nodes than the least number, returns FTH_TIMEOUT
 * every few seconds, with a message that says what is missing, as view->rank how many of those that
 * wait come before this process, and as view->present the share of the nodes that they have: 0
 * where no rendezvous answers. The first of them saves, and all call again. */
fth_status fth_membership_join(fth_membership *membership, fth_stop *stop, fth_group_view *view);

/* What this process does now: its own words for messages ("computing", "exchanging"), and its step.
 * A member that does the same for longer than the others would wait is found stuck. Cheap. */
void fth_membership_report(fth_membership *membership, int64_t step, const char *activity);
/* Before a join: that the member of this rank in the present group could not be connected to. If
 * that one says the same of this process, they are not put into one group for a while. */
void fth_membership_blame(fth_membership *membership, int rank);
/* True if others wait to join: members end the group together, between two updates. */
bool fth_membership_is_ending(const fth_membership *membership);

/* Leaves for good: the group ends at once for the others, which is not a loss. `reason` is for
 * them: "preempted". */
fth_status fth_membership_leave(fth_membership *membership, const char *reason);

/* Keys of the present group: collective.h's fth_key_store, with the membership as context. */
fth_status fth_membership_put(void *membership, const char *key, const void *bytes, size_t size);
fth_status fth_membership_get(void *membership, const char *key, fth_deadline deadline, void **bytes, size_t *size);

#endif
