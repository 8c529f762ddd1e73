/* What members do when the rendezvous is lost with the machine that had it: one of them has another.
 *
 * Every member knows, from its last group, the nodes in the order of ranks, those first that the rendezvous was not on. After
 * lost_after_s without an answer the first node's turn comes, TURN_S later the second's, and so on: at its turn a node
 * serves a rendezvous on the same port, in one of its processes (the port keeps others out), and everybody looks for one at
 * the nodes whose turn it is or was. Members bring along what the successor has to know: their generation and rank, and the
 * run.
 *
 * Against two groups of one run, where the network is split and nothing is lost: a successor forms its first group only with
 * more than half of the nodes of the last one (of two nodes: one), and never with fewer than the least number. A least number
 * that is more than half of the most excludes two groups for certain. Members that are too few keep asking at the address they
 * began with, and return to it when somebody answers.
 *
 * New processes know only that address, and the machine that had it may come back. So the process that has a successor, as
 * long as there is a group, tells whatever rendezvous answers there, again and again, that it has moved: that one then sends members, its
 * own and new ones, to the successor. */
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
void fth_succession_set_members(fth_succession *succession, const json_t *members);

/* Where there is a rendezvous now, after `silent_s` without an answer from the one at `former`; this process may have started
 * it. NULL: nowhere yet. free() it. */
char *fth_succession_find(fth_succession *succession, const char *former, double silent_s, fth_give_up give_up,
                          void *context);
/* Whether the first rendezvous answers again, and does not send members to `former`. One that this process has is
 * stopped then. */
bool fth_succession_home_is_back(fth_succession *succession, const char *former, fth_give_up give_up, void *context);

#endif
