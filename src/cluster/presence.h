/* Which share of a run's nodes a member reaches: what it may do when the network splits depends on
 * that.
 *
 *     no base -> base: the nodes of the first group
 *     base    -> base: the nodes of a group that has more than half of the base's nodes
 *             -> the same base, where a smaller group is formed, or members wait for one
 *
 * Of the groups that follow a base, or wait to be formed, at most one has more than half of its
 * nodes: that one speaks for the run. A smaller one may be all that is left, or may be cut off from
 * others that train on; it cannot know. So it keeps comparing itself with the same base, whatever
 * groups it forms. */
#ifndef FTH_CLUSTER_PRESENCE_H
#define FTH_CLUSTER_PRESENCE_H

#include <jansson.h>

#include "base/base.h"

typedef struct fth_presence {
    json_t *base; /* an array of names; NULL: there was no group yet */
} fth_presence;

/* Names in `nodes`, an array, may be repeated. */
double fth_presence_share(const fth_presence *presence, const json_t *nodes);
/* The same for a group that was formed, which becomes the base if its share is above 0.5. */
double fth_presence_take_group(fth_presence *presence, const json_t *nodes);
void fth_presence_release(fth_presence *presence);

#endif
