/* The inside of the roster, shared by roster.c (members), roster_group.c (groups) and
 * roster_apart.c (members that do not reach each other). */
#ifndef FTH_CLUSTER_ROSTER_INTERNAL_H
#define FTH_CLUSTER_ROSTER_INTERNAL_H

#include "cluster/roster.h"

enum {
    FTH_ROSTER_MOST_MEMBERS = 4096,
    FTH_ROSTER_REMEMBERED = 256,
    FTH_ROSTER_KEPT_OUT = 16,
    FTH_ROSTER_MAX_ACTIVITY = 64
};

typedef enum fth_roster_state { FTH_ROSTER_PREPARING, FTH_ROSTER_WAITING, FTH_ROSTER_GROUPED } fth_roster_state;

typedef struct fth_roster_member {
    int64_t id; /* the incarnation */
    char *instance;
    char *node, *host, *address;
    int64_t process;
    struct { /* as its launcher numbered it; rank -1: it did not */
        int rank, local_rank, local_size;
    } launched;
    json_t *facts;
    fth_roster_state state;
    double state_s;   /* since when */
    double heard_s;   /* the last sign of life */
    double hung_up_s; /* when its connection closed; below 0: it did not */
    bool asks_run, has_run, hosts;
    struct {
        int64_t generation; /* of the newest group it was in, here or at a former rendezvous; 0: none */
        int rank;
        int expected; /* here, where it was formed elsewhere; 0: not known */
    } group;
    int64_t step;
    char activity[FTH_ROSTER_MAX_ACTIVITY];
    double moved_s;    /* when step or activity changed */
    int64_t unreached; /* the member that it could not connect to; 0: none */
} fth_roster_member;

typedef struct fth_formed_group {
    int64_t generation;
    bool live;
    int size, nodes;
    int64_t *members; /* by rank */
    json_t *list;
    char *reason;
    double ended_s;
} fth_formed_group;

/* A node that is kept out, since it and another member of the run do not reach each other. */
typedef struct fth_kept_out {
    char *node;
    double until_s, pause_s;
} fth_kept_out;

struct fth_roster {
    fth_roster_options options;
    fth_roster_member **members; /* in the order of their coming */
    size_t count, capacity;
    int64_t newest_member, newest_generation;
    fth_formed_group group; /* the newest */
    double created_s;
    double began_s;   /* when the first member came */
    double arrival_s; /* when a new member came last */
    double enough_s;  /* since when there are enough nodes for the first group */
    bool enough;
    double advanced_s;
    int64_t finder; /* who finds the run, or found it */
    json_t *run;
    struct {
        int64_t id;
        char *reason;
    } gone[FTH_ROSTER_REMEMBERED]; /* the last ones, a ring */
    size_t next_gone;
    struct {
        fth_kept_out nodes[FTH_ROSTER_KEPT_OUT]; /* the last ones, a ring */
        size_t next;
        double longest_s; /* of exchanges that came to their end */
        double stalled_s; /* how long the one took that was ended last, for no reason that was found */
    } apart;
};

/* roster.c */
fth_roster_member *fth_roster_find(const fth_roster *roster, int64_t id); /* or NULL */
void fth_roster_remove(fth_roster *roster, double now_s, fth_roster_member *member, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

/* roster_group.c */
/* If there is a live group, it has ended. */
void fth_roster_end_group(fth_roster *roster, double now_s, const char *reason);
/* Forms the next group if everybody is there whom it waits for. */
void fth_roster_form_group(fth_roster *roster, double now_s);
void fth_roster_remove_stuck(fth_roster *roster, double now_s);

/* roster_apart.c */
/* True if it waits in the exchange of a step, with its group. */
bool fth_roster_exchanges(const fth_roster_member *member);
/* A member goes on from what it did: how long exchanges take is known from that. */
void fth_roster_note_exchange(fth_roster *roster, double now_s, const fth_roster_member *member);
/* Ends the live group if its exchange stands still. */
void fth_roster_end_stalled(fth_roster *roster, double now_s);
/* Leaves out members that wait and do not reach each other. */
void fth_roster_part(fth_roster *roster, double now_s);
bool fth_roster_is_kept_out(const fth_roster *roster, const fth_roster_member *member);
void fth_roster_release_group(fth_formed_group *group);

#endif
