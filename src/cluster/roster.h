/* The rendezvous's roster: the members of a run, and the groups that they form. A state machine
 * without clock, thread or socket: callers pass the time, so that every course of events can be
 * tested.
 *
 *                    add                  join                 a group is formed
 *     (a process) ---------> preparing ---------> waiting ---------------------------> in the group
 *                                                    ^                                       |
 *                                                    +---------------------------------------+
 *                                                       join, after the group ended or to end it
 *
 * From each state a member can leave or be lost; it is gone then, and its number, the incarnation,
 * is never used again: a process that turns out to be alive after all is added as a new member.
 *
 * There is at most one live group. It ends when one of its members is lost, leaves or asks for the
 * next one; its list never changes. The next group is formed once every member of the ended one has
 * come back or is gone. Times are seconds of one monotonic clock, that of the rendezvous. */
#ifndef FTH_CLUSTER_ROSTER_H
#define FTH_CLUSTER_ROSTER_H

#include <jansson.h>

#include "base/base.h"

typedef struct fth_roster fth_roster;

typedef struct fth_roster_options {
    int least, most; /* nodes; see rendezvous.h, as for all of these; no defaults here */
    double join_wait_s, lost_after_s, stuck_after_s;
    int first_least;     /* of a successor (succession.h): how many nodes its first group needs; 0: least */
    double find_after_s; /* nobody is asked to find the run for this long */
    /* Incarnations are numbered from here on. Another one for each rendezvous, so that a member of
     * one is never taken for that of another. */
    int64_t first_member;
} fth_roster_options;

fth_status fth_roster_create(const fth_roster_options *options, double now_s, fth_roster **roster);
void fth_roster_free(fth_roster *roster);

/* ---- what happens ---- */

/* Who a process says it is. */
typedef struct fth_newcomer {
    const char *instance; /* one for each membership, whatever its incarnations */
    const char *node, *host, *address;
    int64_t process;
    int local_rank, rank; /* rank: set by a launcher, or -1 */
    int local_size; /* processes that were started on its node: at the beginning a node counts when all have come */
    json_t *facts;  /* borrowed */
    /* Of a rendezvous before this one: the newest group it was in there, and its rank; 0: none. */
    int64_t generation;
    int former_rank;
    int expected; /* how many members of that group, itself included, it expects here; 0: not known */
    json_t *run;  /* that it has from there, or NULL; borrowed */
    bool hosts;   /* the rendezvous is on its machine */
} fth_newcomer;

/* *member is its incarnation, above 0. A former incarnation of the same instance is lost with
 * this. */
fth_status fth_roster_add(fth_roster *roster, double now_s, const fth_newcomer *newcomer, int64_t *member);
/* A sign of life; with its step and what it does unless `activity` is NULL. False, here and below:
 * not a member. */
bool fth_roster_hear(fth_roster *roster, double now_s, int64_t member, int64_t step, const char *activity);
/* Its connection closed: it is lost unless it is heard of again soon. */
void fth_roster_hang_up(fth_roster *roster, double now_s, int64_t member);
/* It could not connect to the member of this rank in the group of that generation. Two that say so
 * of each other are apart: the later rank is left out, and its node kept out for a while, which is
 * longer each time. */
void fth_roster_blame(fth_roster *roster, int64_t member, int64_t generation, int rank);
/* It wants a group newer than `after`. */
bool fth_roster_join(fth_roster *roster, double now_s, int64_t member, int64_t after);
bool fth_roster_leave(fth_roster *roster, double now_s, int64_t member, const char *reason);
/* This process, or every process of the node (0), has ended, as an agent reports. Gives how many
 * members that were. */
int fth_roster_lose(fth_roster *roster, double now_s, const char *node, int64_t process, const char *reason);
/* Time passes: finds lost and stuck members and forms groups. At least every half second, or the
 * roster takes it that it was itself stopped, and gives everybody that time. */
void fth_roster_advance(fth_roster *roster, double now_s);

/* ---- the run ---- */

typedef enum fth_run_part {
    FTH_RUN_FIND, /* this member finds the run */
    FTH_RUN_WAIT, /* another one does */
    FTH_RUN_KNOWN /* it is found */
} fth_run_part;

/* What a member that wants the run is to do. What was found counts until the last one that has it
 * leaves; if that one was lost, others go on with it. */
fth_run_part fth_roster_ask_run(fth_roster *roster, double now_s, int64_t member);
/* False if it is not the one that finds the run. */
bool fth_roster_set_run(fth_roster *roster, int64_t member, json_t *run);
json_t *fth_roster_get_run(const fth_roster *roster); /* borrowed, or NULL */

/* ---- what is so ---- */

typedef struct fth_roster_group {
    int64_t generation; /* 0: there was none yet */
    bool live;
    int size, nodes;
    const int64_t *members; /* by rank */
    json_t *list;           /* what members get: an object for each, by rank; borrowed */
    const char *reason;     /* why it ended */
} fth_roster_group;

/* The newest group. Valid until the next call that changes something. */
fth_roster_group fth_roster_get_group(const fth_roster *roster);
/* The generation of the newest group that this roster or one of its members was in. */
int64_t fth_roster_newest(const fth_roster *roster);
/* The member's rank in the newest group; -1 if it is in none. */
int fth_roster_rank(const fth_roster *roster, int64_t member);
/* True if there are members that wait and that the live group would take in. */
bool fth_roster_is_ending(const fth_roster *roster);
int fth_roster_count(const fth_roster *roster);
bool fth_roster_has(const fth_roster *roster, int64_t member);
/* Why this one is not a member any more, or NULL if that is not known. */
const char *fth_roster_why_gone(const fth_roster *roster, int64_t member);
/* What a member that waits is waiting for: "2 nodes of at least 3: a, b". `few`: for nodes that are
 * missing. free() it. */
char *fth_roster_missing(const fth_roster *roster, int64_t member, bool *few);
/* The nodes of those that wait, an array of names. The caller's. */
json_t *fth_roster_list_ready(const fth_roster *roster);
/* How many of those that wait come before this member: its rank, if they were a group. */
int fth_roster_count_before(const fth_roster *roster, int64_t member);
/* All of it for people and programs that watch. The caller's. */
json_t *fth_roster_describe(const fth_roster *roster, double now_s);

#endif
