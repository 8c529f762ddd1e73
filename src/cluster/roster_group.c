/* Groups of the roster: when one is formed, of whom and in which order; when a member holds one up.
 *
 * Order: nodes in the order of their first members, and in each node its members. Members of the
 * group before keep their order; new ones follow: the one that found the run, then by the
 * launcher's rank, then as they came. So rank 0 stays rank 0 as long as it is there, and members of
 * one node are neighbours. */
#include "cluster/roster_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMED = 8 };
static const double PREPARING_S = 60; /* for members that have opened when enough others are ready */

void fth_roster_release_group(fth_formed_group *group)
{
    free(group->members);
    json_decref(group->list);
    free(group->reason);
    *group = (fth_formed_group){0};
}

fth_roster_group fth_roster_get_group(const fth_roster *roster)
{
    const fth_formed_group *group = &roster->group;
    return (fth_roster_group){.generation = group->generation,
                              .live = group->live,
                              .size = group->size,
                              .nodes = group->nodes,
                              .members = group->members,
                              .list = group->list,
                              .reason = group->reason ? group->reason : ""};
}

int64_t fth_roster_newest(const fth_roster *roster)
{
    return roster->newest_generation;
}

int fth_roster_rank(const fth_roster *roster, int64_t id)
{
    for (int rank = 0; rank < roster->group.size; rank++)
        if (roster->group.members[rank] == id)
            return rank;
    return -1;
}

void fth_roster_end_group(fth_roster *roster, double now_s, const char *reason)
{
    if (!roster->group.live)
        return;
    roster->group.live = false;
    roster->group.ended_s = now_s;
    free(roster->group.reason);
    roster->group.reason = reason ? strdup(reason) : NULL;
}

/* ---- nodes ---- */

/* Its rank in the newest group, of this rendezvous or of the one before; INT_MAX: it was not in
 * it. */
static int former_rank(const fth_roster *roster, const fth_roster_member *member)
{
    return member->group.generation > 0 && member->group.generation == roster->newest_generation ? member->group.rank
                                                                                                 : INT_MAX;
}

static int launcher_rank(const fth_roster_member *member)
{
    return member->launched.rank >= 0 ? member->launched.rank : INT_MAX;
}

/* Orders members, and so their nodes; `in_node`: the members of one node. */
static int compare(const fth_roster *roster, const fth_roster_member *a, const fth_roster_member *b, bool in_node)
{
    const int64_t keys[][2] = {
        {former_rank(roster, a), former_rank(roster, b)},
        {a->id != roster->finder, b->id != roster->finder},
        {launcher_rank(a), launcher_rank(b)},
        {in_node ? a->launched.local_rank : 0, in_node ? b->launched.local_rank : 0},
        {a->id, b->id},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(keys); i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* A node of the group to come: its members that wait. */
typedef struct candidate_node {
    const fth_roster_member *first;
    int waiting;
} candidate_node;

static candidate_node *find_node(candidate_node *nodes, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(nodes[i].first->node, name) == 0)
            return &nodes[i];
    return NULL;
}

/* True where nobody is left of the group before: everybody is new, as at the beginning. */
static bool begins(const fth_roster *roster)
{
    for (size_t i = 0; i < roster->count; i++)
        if (fth_roster_rank(roster, roster->members[i]->id) >= 0)
            return false;
    return true;
}

/* True if workers that have not come yet are waited for: before the first group. Later one of them
 * may have been given up. */
static bool awaits_all(const fth_roster *roster)
{
    return roster->group.generation == 0 && begins(roster);
}

/* How many members its node needs to count: at the beginning all that were started there, later
 * one. */
static int needed_on_node(const fth_roster_member *member, bool beginning)
{
    return beginning && member->group.generation == 0 ? member->launched.local_size : 1;
}

/* Nodes with waiting members, in order, without those that need more. */
static int collect_nodes(const fth_roster *roster, candidate_node *nodes)
{
    int count = 0, complete = 0;
    bool beginning = awaits_all(roster);
    for (size_t i = 0; i < roster->count; i++) {
        const fth_roster_member *member = roster->members[i];
        if (member->state != FTH_ROSTER_WAITING || fth_roster_is_kept_out(roster, member))
            continue;
        candidate_node *node = find_node(nodes, count, member->node);
        if (!node) {
            node = &nodes[count++];
            *node = (candidate_node){.first = member};
        }
        node->waiting++;
        if (compare(roster, member, node->first, false) < 0)
            node->first = member;
    }
    for (int i = 0; i < count; i++)
        if (nodes[i].waiting >= needed_on_node(nodes[i].first, beginning))
            nodes[complete++] = nodes[i];
    for (int i = 1; i < complete; i++) { /* insertion: they are few, and almost sorted */
        candidate_node node = nodes[i];
        int to = i;
        for (; to > 0 && compare(roster, node.first, nodes[to - 1].first, false) < 0; to--)
            nodes[to] = nodes[to - 1];
        nodes[to] = node;
    }
    return complete;
}

/* ---- forming ---- */

static bool has_any(const fth_roster *roster, fth_roster_state state)
{
    for (size_t i = 0; i < roster->count; i++)
        if (roster->members[i]->state == state)
            return true;
    return false;
}

/* Whether all are back that were in the newest group, which had another rendezvous, and are not
 * lost with that. */
static bool is_reunited(const fth_roster *roster)
{
    int expected = 0, waiting = 0;
    for (size_t i = 0; i < roster->count; i++) {
        const fth_roster_member *member = roster->members[i];
        if (member->group.generation != roster->newest_generation)
            continue;
        waiting += member->state == FTH_ROSTER_WAITING;
        expected = member->group.expected > expected ? member->group.expected : expected;
    }
    return expected > 0 && waiting >= expected;
}

/* No further process can come, or none that there is room for. A launcher that sets ranks starts
 * `most` processes, on fewer nodes perhaps. */
static bool is_complete(const fth_roster *roster, candidate_node *nodes, int count)
{
    int ranked = 0, preparing = 0;
    for (size_t i = 0; i < roster->count; i++) {
        const fth_roster_member *member = roster->members[i];
        ranked += member->state == FTH_ROSTER_WAITING && member->launched.rank >= 0;
        preparing += member->state == FTH_ROSTER_PREPARING && find_node(nodes, count, member->node);
    }
    return is_reunited(roster) || ranked >= roster->options.most || (count >= roster->options.most && preparing == 0);
}

/* How many nodes a group needs now. */
static int least_now(const fth_roster *roster)
{
    const fth_roster_options *options = &roster->options;
    return roster->group.generation == 0 && options->first_least > options->least ? options->first_least
                                                                                  : options->least;
}

/* Whether a group of these nodes may be formed now. */
static bool is_time(fth_roster *roster, double now_s, candidate_node *nodes, int count)
{
    bool enough = count >= least_now(roster);
    if (enough && !roster->enough)
        roster->enough_s = now_s;
    roster->enough = enough;
    if (!enough || has_any(roster, FTH_ROSTER_GROUPED))
        return false;
    if (!begins(roster) || is_complete(roster, nodes, count))
        return true;
    if (now_s - roster->arrival_s < roster->options.join_wait_s)
        return false;
    return !has_any(roster, FTH_ROSTER_PREPARING) || now_s - roster->enough_s >= PREPARING_S;
}

static json_t *describe_member(const fth_roster_member *member, int node_number, int local_rank)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:b, s:O}", "node", member->node, "host", member->host, "address",
                     member->address, "node_number", node_number, "local_rank", local_rank, "process",
                     (json_int_t)member->process, "hosts", member->hosts, "facts", member->facts);
}

/* Puts the node's members into the group, in order. */
static bool add_node(const fth_roster *roster, fth_formed_group *group, const char *node)
{
    int begin = group->size;
    for (size_t i = 0; i < roster->count; i++) {
        const fth_roster_member *member = roster->members[i];
        if (member->state != FTH_ROSTER_WAITING || strcmp(member->node, node) != 0)
            continue;
        int to = group->size++;
        for (; to > begin; to--) {
            if (compare(roster, member, fth_roster_find(roster, group->members[to - 1]), true) > 0)
                break;
            group->members[to] = group->members[to - 1];
        }
        group->members[to] = member->id;
    }
    for (int rank = begin; rank < group->size; rank++) {
        const fth_roster_member *member = fth_roster_find(roster, group->members[rank]);
        if (json_array_append_new(group->list, describe_member(member, group->nodes, rank - begin)) != 0)
            return false;
    }
    group->nodes++;
    return true;
}

static void begin_group(fth_roster *roster, double now_s, const candidate_node *nodes, int count)
{
    fth_formed_group group = {.generation = roster->newest_generation + 1, .live = true};
    bool complete = true;

    if (count > roster->options.most)
        count = roster->options.most;
    group.members = calloc(roster->count, sizeof *group.members);
    group.list = json_array();
    for (int i = 0; group.members && group.list && complete && i < count; i++)
        complete = add_node(roster, &group, nodes[i].first->node);
    if (!group.members || !group.list || !complete) { /* no memory: tried again when time advances */
        fth_roster_release_group(&group);
        return;
    }
    fth_roster_release_group(&roster->group);
    roster->group = group;
    roster->newest_generation = group.generation;
    roster->enough = false;
    for (int rank = 0; rank < group.size; rank++) {
        fth_roster_member *member = fth_roster_find(roster, group.members[rank]);
        member->state = FTH_ROSTER_GROUPED;
        member->state_s = member->moved_s = now_s;
        member->group.generation = group.generation;
        member->group.rank = rank;
        member->group.expected = 0;
        member->step = member->unreached = 0;
        member->activity[0] = '\0';
    }
}

void fth_roster_form_group(fth_roster *roster, double now_s)
{
    if (roster->group.live || roster->count == 0)
        return;
    if (!has_any(roster, FTH_ROSTER_GROUPED))
        fth_roster_part(roster, now_s);
    candidate_node *nodes = calloc(roster->count, sizeof *nodes);
    int count = nodes ? collect_nodes(roster, nodes) : 0;
    if (is_time(roster, now_s, nodes, count))
        begin_group(roster, now_s, nodes, count);
    free(nodes);
}

/* ---- who waits ---- */

/* Whether the live group would take in this member: it has room, or has its node already. */
static bool has_room_for(const fth_roster *roster, const fth_roster_member *member)
{
    if (roster->group.nodes < roster->options.most)
        return true;
    for (int rank = 0; rank < roster->group.size; rank++) {
        const fth_roster_member *other = fth_roster_find(roster, roster->group.members[rank]);
        if (other && strcmp(other->node, member->node) == 0)
            return true;
    }
    return false;
}

bool fth_roster_is_ending(const fth_roster *roster)
{
    if (!roster->group.live)
        return false;
    for (size_t i = 0; i < roster->count; i++) {
        const fth_roster_member *member = roster->members[i];
        if (member->state == FTH_ROSTER_WAITING && has_room_for(roster, member) &&
            !fth_roster_is_kept_out(roster, member) &&
            (roster->advanced_s - member->state_s >= roster->options.join_wait_s ||
             !has_any(roster, FTH_ROSTER_PREPARING)))
            return true;
    }
    return false;
}

json_t *fth_roster_list_ready(const fth_roster *roster)
{
    json_t *nodes = json_array();
    for (size_t i = 0; i < roster->count; i++)
        if (roster->members[i]->state == FTH_ROSTER_WAITING)
            json_array_append_new(nodes, json_string(roster->members[i]->node));
    return nodes;
}

int fth_roster_count_before(const fth_roster *roster, int64_t id)
{
    const fth_roster_member *member = fth_roster_find(roster, id);
    int count = 0;
    for (size_t i = 0; member && i < roster->count; i++) {
        const fth_roster_member *other = roster->members[i];
        count += other->state == FTH_ROSTER_WAITING && compare(roster, other, member, true) < 0;
    }
    return count;
}

static char *append(char *text, const char *separator, const char *more)
{
    char *longer = text ? fth_format("%s%s%s", text, *text ? separator : "", more) : NULL;
    free(text);
    return longer;
}

static int count_on_node(const fth_roster *roster, const char *node, fth_roster_state state)
{
    int count = 0;
    for (size_t i = 0; i < roster->count; i++)
        count += roster->members[i]->state == state && strcmp(roster->members[i]->node, node) == 0;
    return count;
}

/* The nodes that have members in this state, each once; with how many of them are there where some
 * miss: those are not in *count. */
static char *list_nodes(const fth_roster *roster, fth_roster_state state, int *count)
{
    bool beginning = state == FTH_ROSTER_WAITING && awaits_all(roster);
    char *text = strdup("");
    int named = 0;
    *count = 0;
    for (size_t i = 0; i < roster->count; i++) {
        const fth_roster_member *member = roster->members[i];
        bool first = member->state == state;
        for (size_t k = 0; first && k < i; k++)
            first = roster->members[k]->state != state || strcmp(roster->members[k]->node, member->node) != 0;
        if (!first)
            continue;
        int there = count_on_node(roster, member->node, state);
        int needed = needed_on_node(member, beginning);
        char *name = there < needed ? fth_format("%s (%d of %d workers)", member->node, there, needed)
                                    : fth_format("%s", member->node);
        *count += there >= needed;
        if (++named <= MOST_NAMED)
            text = append(text, ", ", name ? name : "?");
        else if (named == MOST_NAMED + 1)
            text = append(text, ", ", "...");
        free(name);
    }
    return text;
}

char *fth_roster_missing(const fth_roster *roster, int64_t id, bool *few)
{
    const fth_roster_member *member = fth_roster_find(roster, id);
    int ready_count, late_count, preparing_count;
    char *ready = list_nodes(roster, FTH_ROSTER_WAITING, &ready_count);
    char *late = list_nodes(roster, FTH_ROSTER_GROUPED, &late_count);
    char *preparing = list_nodes(roster, FTH_ROSTER_PREPARING, &preparing_count);
    char *text = NULL;

    *few = false;
    if (!ready || !late || !preparing) {
        text = NULL;
    } else if (roster->group.live) {
        text = member && has_room_for(roster, member)
                   ? fth_format("waiting until the group of %s takes this process in",
                                FTH_COUNTED(roster->group.size, "member"))
                   : fth_format("the group has its %s: this process waits for a place",
                                FTH_COUNTED(roster->group.nodes, "node"));
    } else if (late_count > 0) {
        text = fth_format("waiting for members of the last group to come back: %s", late);
    } else {
        *few = !roster->enough;
        text = fth_format("%s of at least %d: %s%s%s%s", FTH_COUNTED(ready_count, "node"), least_now(roster), ready,
                          *preparing ? " (preparing: " : "", preparing, *preparing ? ")" : "");
    }
    free(ready);
    free(late);
    free(preparing);
    return text;
}

/* ---- who is stuck ---- */

/* In a live group nothing has moved for too long while some members wait in the exchange of a step:
 * the others hold them up. If all are in the same exchange, see roster_apart.c. */
void fth_roster_remove_stuck(fth_roster *roster, double now_s)
{
    double limit_s = roster->options.stuck_after_s;
    int64_t newest = -1;
    if (!roster->group.live)
        return;
    for (size_t i = 0; i < roster->count; i++) {
        const fth_roster_member *member = roster->members[i];
        if (member->state != FTH_ROSTER_GROUPED)
            continue;
        if (now_s - member->moved_s < limit_s)
            return;
        if (fth_roster_exchanges(member) && member->step > newest)
            newest = member->step;
    }
    if (newest < 0)
        return;
    for (size_t i = roster->count; i-- > 0;) {
        fth_roster_member *member = roster->members[i];
        if (member->state == FTH_ROSTER_GROUPED && (!fth_roster_exchanges(member) || member->step < newest))
            fth_roster_remove(roster, now_s, member, "has been %s step %" PRId64 " for %.0f s while others waited",
                              *member->activity ? member->activity : "preparing", member->step,
                              now_s - member->moved_s);
    }
}
