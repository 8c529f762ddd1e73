/* What members do when the rendezvous is lost with the machine that had it: one of them has
 * another.
 *
 *     member     -> searching   no answer for lost_after_s
 *     searching  -> waiting     at the first rendezvous, if it answers; at a candidate that
 *                               answers; or its node's turn has come: it becomes a candidate, and
 *                               waits there itself
 *     waiting    -> member      a group is formed there: the candidate has the rendezvous from now
 *                               on, and says so
 *                -> waiting     elsewhere: the first rendezvous answers, or a better candidate
 *                -> searching   no answer any more
 *
 * Every member knows, from its last group, the nodes in the order of ranks, those first that the
 * rendezvous was not on. The first node's turn comes when it begins to search, the second's TURN_S
 * later, and so on. At its turn a node becomes a candidate: it serves on the same port, in one of
 * its processes (the port keeps others out). Members look for one at the nodes whose turn it is or
 * was, and bring along what it has to know: their generation and rank, and the run.
 *
 * A candidate may be on the node that is cut off, so it is no rendezvous yet. Its first group needs
 * more than half of the nodes of the last one (of two nodes: one), and never fewer than the least
 * number, so that a network that splits, where nothing is lost, does not get two groups. (A least
 * number that is more than half of the most excludes two for certain.) Members that wait leave a
 * candidate for one that knows of a newer group, or of the same with an earlier turn: so those that
 * can reach each other meet, however the network was split before.
 *
 * New processes know only the first address, and the machine that had it may come back. So the
 * process that has a successor, as long as there is a group, tells whatever rendezvous answers
 * there, again and again, that it has moved: that one then sends members, its own and new ones, to
 * the successor. */
#ifndef FTH_CLUSTER_SUCCESSION_H
#define FTH_CLUSTER_SUCCESSION_H

#include <jansson.h>

#include "cluster/membership.h"
#include "cluster/rendezvous_client.h"

typedef struct fth_succession fth_succession;

/* `home` is the first rendezvous. Texts are copied. */
fth_status fth_succession_create(const char *home, const char *token, const char *run, const char *node,
                                 const char *who, fth_succession **succession);
/* Stops a rendezvous that this process has, once the others have left it or after some seconds. */
void fth_succession_free(fth_succession *succession);

/* From the answers of the rendezvous: "limits" and the members of the newest group. */
void fth_succession_set_limits(fth_succession *succession, const json_t *limits);
/* That group was formed at `address`: a candidate that is there, in this process, has the
 * rendezvous from now on. */
void fth_succession_set_members(fth_succession *succession, const char *address, const json_t *members);

/* How many members of the last group are expected where this process goes: all but those that were
 * lost with its rendezvous or did not become its successor at their turn. */
int fth_succession_count_expected(const fth_succession *succession);
/* Where to go after `silent_s` without an answer from the one at `former`: to a rendezvous or a
 * candidate, which may be in this process. NULL: nowhere yet. free() it. */
char *fth_succession_find(fth_succession *succession, const char *former, double silent_s, fth_give_up give_up,
                          void *context);
/* Where to go for one that waits at `present` with too few others: to the first rendezvous, if it
 * answers and does not send members to `present`, or to a better candidate; one of this process is
 * stopped then. NULL: stay, and ask again. Takes a second or two. free() it. */
char *fth_succession_find_others(fth_succession *succession, const char *present, fth_give_up give_up, void *context);

#endif
