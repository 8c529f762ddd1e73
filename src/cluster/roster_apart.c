/* Members that reach the rendezvous and not each other.
 *
 * Nobody knows it who does not try: while a group exchanges, everybody waits. An exchange that
 * takes much longer than those before it therefore ends the group, and members connect again. If
 * all of them can, the next one may take longer still. Those that cannot connect say to whom. Only
 * two who say so of each other are apart: others may have waited for one of them. The later
 * rank is left out, and its node is kept out of groups for a while: each try costs the others some
 * seconds, so it is twice as long after each. */
#include "cluster/roster_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char EXCHANGING[] = "exchanging";
static const double TIMES_LONGEST = 5; /* an exchange that takes so many times the longest before it stands still, */
static const double TIMES_LOST_AFTER = 1.5; /* if it is also so many times lost_after_s: lost members are found first */
static const double FIRST_PAUSE_S = 10, LONGEST_PAUSE_S = 600;

/* ---- exchanges that stand still ---- */

bool fth_roster_exchanges(const fth_roster_member *member)
{
    return member->state == FTH_ROSTER_GROUPED && strcmp(member->activity, EXCHANGING) == 0;
}

void fth_roster_note_exchange(fth_roster *roster, double now_s, const fth_roster_member *member)
{
    if (roster->group.live && fth_roster_exchanges(member))
        roster->apart.longest_s = fmax(roster->apart.longest_s, now_s - member->moved_s);
}

void fth_roster_end_stalled(fth_roster *roster, double now_s)
{
    double known_s = fmax(roster->apart.longest_s, roster->apart.stalled_s); /* 0: this is the first exchange */
    double limit_s = known_s > 0 ? fmax(TIMES_LOST_AFTER * roster->options.lost_after_s, TIMES_LONGEST * known_s)
                                 : roster->options.stuck_after_s / 2;
    double since_s = -INFINITY;
    int64_t step = -1;
    if (!roster->group.live || roster->group.nodes < 2)
        return;
    for (int rank = 0; rank < roster->group.size; rank++) {
        const fth_roster_member *member = fth_roster_find(roster, roster->group.members[rank]);
        if (!member || !fth_roster_exchanges(member) || (rank > 0 && member->step != step))
            return;
        step = member->step;
        since_s = fmax(since_s, member->moved_s);
    }
    if (now_s - since_s < limit_s)
        return;
    char *reason = fth_format("the exchange of step %" PRId64 " has stood still for %.1f s", step, now_s - since_s);
    roster->apart.stalled_s = now_s - since_s;
    fth_roster_end_group(roster, now_s, reason);
    free(reason);
}

/* ---- who is apart ---- */

void fth_roster_blame(fth_roster *roster, int64_t id, int64_t generation, int rank)
{
    fth_roster_member *member = fth_roster_find(roster, id);
    bool known = rank >= 0 && rank < roster->group.size && generation == roster->group.generation;
    if (member && known)
        member->unreached = roster->group.members[rank];
}

static fth_kept_out *find_kept_out(fth_roster *roster, const char *node)
{
    for (size_t i = 0; i < FTH_ROSTER_KEPT_OUT; i++)
        if (roster->apart.nodes[i].node && strcmp(roster->apart.nodes[i].node, node) == 0)
            return &roster->apart.nodes[i];
    return NULL;
}

bool fth_roster_is_kept_out(const fth_roster *roster, const fth_roster_member *member)
{
    const fth_kept_out *entry = find_kept_out((fth_roster *)roster, member->node);
    return entry && roster->advanced_s < entry->until_s;
}

/* Gives for how long. */
static double keep_out(fth_roster *roster, double now_s, const char *node)
{
    fth_kept_out *entry = find_kept_out(roster, node);
    if (!entry) {
        entry = &roster->apart.nodes[roster->apart.next];
        roster->apart.next = (roster->apart.next + 1) % FTH_ROSTER_KEPT_OUT;
        free(entry->node);
        *entry = (fth_kept_out){.node = strdup(node)}; /* without memory for it: it comes back at once */
    }
    bool again = entry->pause_s > 0 && now_s - entry->until_s < LONGEST_PAUSE_S;
    entry->pause_s = again ? fmin(2 * entry->pause_s, LONGEST_PAUSE_S) : FIRST_PAUSE_S;
    entry->until_s = now_s + entry->pause_s;
    return entry->pause_s;
}

void fth_roster_part(fth_roster *roster, double now_s)
{
    for (int rank = roster->group.size - 1; rank > 0; rank--) {
        fth_roster_member *member = fth_roster_find(roster, roster->group.members[rank]);
        const fth_roster_member *other = member ? fth_roster_find(roster, member->unreached) : NULL;
        int other_rank = other ? fth_roster_rank(roster, other->id) : -1;
        if (other_rank < 0 || other_rank > rank || other->unreached != member->id)
            continue;
        double pause_s = keep_out(roster, now_s, member->node);
        roster->apart.stalled_s = 0; /* that was the reason */
        fth_log_warning(
            "rank %d on %s and rank %d on %s cannot connect to each other; leaving out the latter for %.0f s",
            other_rank, other->node, rank, member->node, pause_s);
        fth_roster_remove(roster, now_s, member,
                          "was left out for %.0f s: it and rank %d on %s cannot connect to each other", pause_s,
                          other_rank, other->node);
    }
}
