/* See roster.h. Groups: roster_group.c; members that do not reach each other: roster_apart.c. */
#include "cluster/roster_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const double HANG_UP_S = 1;    /* a connection that closed may be made again */
static const double RANK_ZERO_S = 10; /* for the launcher's rank 0, which should find the run */
static const double HOST_S = 5;       /* for a member on the rendezvous's machine, likewise, where there are no ranks */
static const double LONGEST_PAUSE_S = 1; /* between two calls of advance; longer: this process did not run */

fth_status fth_roster_create(const fth_roster_options *options, double now_s, fth_roster **result)
{
    fth_status status = FTH_OK;
    fth_roster *roster = NULL;

    *result = NULL;
    FTH_REQUIRE(options->least >= 1 && options->most >= options->least, FTH_INVALID,
                "a group of %d to %d nodes cannot be; expected at least 1, and no less than that at most",
                options->least, options->most);
    FTH_TRY(fth_allocate(1, sizeof *roster, &roster));
    roster->options = *options;
    roster->advanced_s = roster->created_s = now_s;
    roster->newest_member = options->first_member;
    *result = roster;

out:
    return status;
}

static void free_member(fth_roster_member *member)
{
    free(member->instance);
    free(member->node);
    free(member->host);
    free(member->address);
    json_decref(member->facts);
    free(member);
}

void fth_roster_free(fth_roster *roster)
{
    if (!roster)
        return;
    for (size_t i = 0; i < roster->count; i++)
        free_member(roster->members[i]);
    for (size_t i = 0; i < FTH_ROSTER_REMEMBERED; i++)
        free(roster->gone[i].reason);
    for (size_t i = 0; i < FTH_ROSTER_KEPT_OUT; i++)
        free(roster->apart.nodes[i].node);
    free(roster->members);
    fth_roster_release_group(&roster->group);
    json_decref(roster->run);
    free(roster);
}

/* ---- finding and naming ---- */

fth_roster_member *fth_roster_find(const fth_roster *roster, int64_t id)
{
    for (size_t i = 0; i < roster->count; i++)
        if (roster->members[i]->id == id)
            return roster->members[i];
    return NULL;
}

bool fth_roster_has(const fth_roster *roster, int64_t id)
{
    return fth_roster_find(roster, id) != NULL;
}

int fth_roster_count(const fth_roster *roster)
{
    return (int)roster->count;
}

static char *name_member(const fth_roster *roster, const fth_roster_member *member)
{
    int rank = fth_roster_rank(roster, member->id);
    return rank >= 0 ? fth_format("rank %d on %s (process %" PRId64 ")", rank, member->node, member->process)
                     : fth_format("process %" PRId64 " on %s", member->process, member->node);
}

const char *fth_roster_why_gone(const fth_roster *roster, int64_t id)
{
    for (size_t i = 0; i < FTH_ROSTER_REMEMBERED; i++)
        if (roster->gone[i].id == id)
            return roster->gone[i].reason;
    return NULL;
}

/* ---- members that go ---- */

/* `what` follows the member's name: "was lost: ...". */
void fth_roster_remove(fth_roster *roster, double now_s, fth_roster_member *member, const char *what, ...)
{
    va_list arguments;
    char text[512];
    size_t place = 0;

    va_start(arguments, what);
    vsnprintf(text, sizeof text, what, arguments);
    va_end(arguments);
    char *name = name_member(roster, member);
    char *reason = fth_format("%s %s", name ? name : "a member", text);
    free(name);
    if (fth_roster_rank(roster, member->id) >= 0)
        fth_roster_end_group(roster, now_s, reason);
    free(roster->gone[roster->next_gone].reason);
    roster->gone[roster->next_gone].id = member->id;
    roster->gone[roster->next_gone].reason = reason;
    roster->next_gone = (roster->next_gone + 1) % FTH_ROSTER_REMEMBERED;

    while (roster->members[place] != member)
        place++;
    memmove(&roster->members[place], &roster->members[place + 1],
            (roster->count - place - 1) * sizeof roster->members[0]);
    roster->count--;
    free_member(member);
}

/* ---- what happens ---- */

static bool is_known_by_launcher(const fth_roster *roster)
{
    for (size_t i = 0; i < roster->count; i++)
        if (roster->members[i]->launched.rank >= 0)
            return true;
    return false;
}

fth_status fth_roster_add(fth_roster *roster, double now_s, const fth_newcomer *newcomer, int64_t *id)
{
    fth_status status = FTH_OK;
    fth_roster_member *member = NULL;

    *id = 0;
    for (size_t i = roster->count; i-- > 0;) {
        fth_roster_member *former = roster->members[i];
        if (strcmp(former->instance, newcomer->instance) == 0)
            fth_roster_remove(roster, now_s, former, "was lost: the process has opened a new membership");
    }
    FTH_REQUIRE(roster->count < FTH_ROSTER_MOST_MEMBERS, FTH_INVALID,
                "the rendezvous has its limit of %d members; process %" PRId64 " on %s is refused",
                FTH_ROSTER_MOST_MEMBERS, newcomer->process, newcomer->node);
    if (roster->count == 0)
        roster->began_s = now_s;
    FTH_TRY(fth_grow(&roster->members, roster->count, &roster->capacity, sizeof roster->members[0]));
    FTH_TRY(fth_allocate(1, sizeof *member, &member));
    member->instance = strdup(newcomer->instance);
    member->node = strdup(newcomer->node);
    member->host = strdup(newcomer->host);
    member->address = strdup(newcomer->address);
    member->facts = newcomer->facts ? json_incref(newcomer->facts) : json_object();
    if (!member->instance || !member->node || !member->host || !member->address || !member->facts) {
        free_member(member);
        return fth_fail(FTH_NO_MEMORY, "no memory for a member");
    }
    member->id = ++roster->newest_member;
    member->process = newcomer->process;
    member->launched.local_rank = newcomer->local_rank;
    member->launched.local_size = newcomer->local_size;
    member->launched.rank = newcomer->rank;
    member->heard_s = member->state_s = member->moved_s = roster->arrival_s = now_s;
    member->hung_up_s = -1;
    member->group.generation = newcomer->generation;
    member->group.rank = newcomer->former_rank;
    member->group.expected = newcomer->expected;
    member->hosts = newcomer->hosts;
    member->has_run = newcomer->run != NULL;
    if (newcomer->run && !roster->run)
        roster->run = json_incref(newcomer->run);
    if (newcomer->generation > roster->newest_generation)
        roster->newest_generation = newcomer->generation;
    roster->members[roster->count++] = member;
    *id = member->id;

out:
    return status;
}

bool fth_roster_hear(fth_roster *roster, double now_s, int64_t id, int64_t step, const char *activity)
{
    fth_roster_member *member = fth_roster_find(roster, id);
    if (!member)
        return false;
    member->heard_s = now_s;
    member->hung_up_s = -1;
    if (activity && (step != member->step || strcmp(activity, member->activity) != 0)) {
        fth_roster_note_exchange(roster, now_s, member);
        member->step = step;
        snprintf(member->activity, sizeof member->activity, "%s", activity);
        member->moved_s = now_s;
    }
    return true;
}

void fth_roster_hang_up(fth_roster *roster, double now_s, int64_t id)
{
    fth_roster_member *member = fth_roster_find(roster, id);
    if (member && member->hung_up_s < 0)
        member->hung_up_s = now_s;
}

bool fth_roster_join(fth_roster *roster, double now_s, int64_t id, int64_t after)
{
    fth_roster_member *member = fth_roster_find(roster, id);
    if (!fth_roster_hear(roster, now_s, id, 0, NULL))
        return false;
    if (member->state == FTH_ROSTER_WAITING)
        return true;
    if (member->state == FTH_ROSTER_GROUPED && roster->group.live) {
        if (roster->group.generation > after)
            return true; /* it has not seen its group yet */
        char *name = name_member(roster, member);
        char *reason = fth_roster_is_ending(roster) ? fth_format("new members join")
                                                    : fth_format("%s asks for a new group", name ? name : "a member");
        fth_roster_end_group(roster, now_s, reason);
        free(reason);
        free(name);
    }
    member->state = FTH_ROSTER_WAITING;
    member->state_s = now_s;
    if (member->group.generation == 0)
        roster->arrival_s = now_s;
    fth_roster_form_group(roster, now_s);
    return true;
}

/* When the last one that had the run has left, it is over, or is found again. When that one was
 * lost, the next member continues the same run. */
static void drop_forgotten_run(fth_roster *roster)
{
    for (size_t i = 0; i < roster->count; i++)
        if (roster->members[i]->has_run)
            return;
    json_decref(roster->run);
    roster->run = NULL;
}

bool fth_roster_leave(fth_roster *roster, double now_s, int64_t id, const char *reason)
{
    fth_roster_member *member = fth_roster_find(roster, id);
    if (!member)
        return false;
    fth_roster_remove(roster, now_s, member, "left: %s", reason);
    drop_forgotten_run(roster);
    fth_roster_form_group(roster, now_s);
    return true;
}

int fth_roster_lose(fth_roster *roster, double now_s, const char *node, int64_t process, const char *reason)
{
    int lost = 0;
    for (size_t i = roster->count; i-- > 0;) {
        fth_roster_member *member = roster->members[i];
        if (strcmp(member->node, node) == 0 && (process == 0 || member->process == process)) {
            fth_roster_remove(roster, now_s, member, "was lost: %s", reason);
            lost++;
        }
    }
    fth_roster_form_group(roster, now_s);
    return lost;
}

/* ---- time ---- */

/* If nobody called for a while, this process was stopped or starved: that says nothing about
 * members. */
static void excuse_pause(fth_roster *roster, double now_s)
{
    double pause_s = now_s - roster->advanced_s;
    roster->advanced_s = now_s;
    if (pause_s <= LONGEST_PAUSE_S)
        return;
    for (size_t i = 0; i < roster->count; i++) {
        fth_roster_member *member = roster->members[i];
        member->heard_s += pause_s;
        member->moved_s += pause_s;
        if (member->hung_up_s >= 0)
            member->hung_up_s += pause_s;
    }
    roster->group.ended_s += pause_s;
}

static void remove_silent(fth_roster *roster, double now_s)
{
    const fth_roster_options *options = &roster->options;
    for (size_t i = roster->count; i-- > 0;) {
        fth_roster_member *member = roster->members[i];
        if (member->hung_up_s >= 0 && now_s - member->hung_up_s >= HANG_UP_S)
            fth_roster_remove(roster, now_s, member, "was lost: its connection closed");
        else if (now_s - member->heard_s >= options->lost_after_s)
            fth_roster_remove(roster, now_s, member, "was lost: no sign of life for %.1f s", now_s - member->heard_s);
        else if (member->state == FTH_ROSTER_GROUPED && !roster->group.live &&
                 now_s - roster->group.ended_s >= options->stuck_after_s) /* it is alive: in a long step, or saving */
            fth_roster_remove(
                roster, now_s, member, "was left out: it did not come back within %.0f s (%s step %" PRId64 ")",
                now_s - roster->group.ended_s, *member->activity ? member->activity : "preparing", member->step);
    }
}

void fth_roster_advance(fth_roster *roster, double now_s)
{
    excuse_pause(roster, now_s);
    remove_silent(roster, now_s);
    fth_roster_remove_stuck(roster, now_s);
    fth_roster_end_stalled(roster, now_s);
    fth_roster_form_group(roster, now_s);
}

/* ---- the run ---- */

/* With ranks of a launcher, the lowest that asks, and for a while none but rank 0. Without, for a
 * while only a member on the rendezvous's machine: the same command finds the run again in that
 * machine's folder. */
static bool should_find(const fth_roster *roster, double now_s, const fth_roster_member *member)
{
    if (now_s - roster->created_s < roster->options.find_after_s)
        return false;
    if (member->launched.rank == 0)
        return true;
    if (!is_known_by_launcher(roster))
        return member->hosts || now_s - roster->began_s >= HOST_S;
    if (now_s - roster->began_s < RANK_ZERO_S)
        return false;
    for (size_t i = 0; i < roster->count; i++) {
        const fth_roster_member *other = roster->members[i];
        if (other->asks_run && other->launched.rank >= 0 &&
            (member->launched.rank < 0 || other->launched.rank < member->launched.rank))
            return false;
    }
    return true;
}

fth_run_part fth_roster_ask_run(fth_roster *roster, double now_s, int64_t id)
{
    fth_roster_member *member = fth_roster_find(roster, id);
    if (!member)
        return FTH_RUN_WAIT;
    if (roster->run) {
        member->has_run = true;
        return FTH_RUN_KNOWN;
    }
    member->asks_run = true;
    if (!fth_roster_has(roster, roster->finder) && should_find(roster, now_s, member))
        roster->finder = id;
    return roster->finder == id ? FTH_RUN_FIND : FTH_RUN_WAIT;
}

bool fth_roster_set_run(fth_roster *roster, int64_t id, json_t *run)
{
    fth_roster_member *member = fth_roster_find(roster, id);
    if (!member || roster->finder != id)
        return false;
    json_incref(run);
    json_decref(roster->run);
    roster->run = run;
    member->has_run = true;
    return true;
}

json_t *fth_roster_get_run(const fth_roster *roster)
{
    return roster->run;
}

/* ---- for those who watch ---- */

json_t *fth_roster_describe(const fth_roster *roster, double now_s)
{
    static const char *const states[] = {
        [FTH_ROSTER_PREPARING] = "preparing", [FTH_ROSTER_WAITING] = "waiting", [FTH_ROSTER_GROUPED] = "in the group"};
    json_t *members = json_array();
    for (size_t i = 0; i < roster->count; i++) {
        const fth_roster_member *member = roster->members[i];
        json_array_append_new(members, json_pack("{s:I, s:s, s:s, s:I, s:i, s:s, s:f, s:I, s:s, s:f}", "member",
                                                 (json_int_t)member->id, "node", member->node, "host", member->host,
                                                 "process", (json_int_t)member->process, "rank",
                                                 fth_roster_rank(roster, member->id), "state", states[member->state],
                                                 "heard_s", now_s - member->heard_s, "step", (json_int_t)member->step,
                                                 "activity", member->activity, "unchanged_s", now_s - member->moved_s));
    }
    return json_pack("{s:I, s:b, s:i, s:i, s:s?, s:i, s:i, s:b, s:o}", "generation",
                     (json_int_t)roster->group.generation, "live", roster->group.live, "size", roster->group.size,
                     "nodes", roster->group.nodes, "ended", roster->group.live ? NULL : roster->group.reason, "least",
                     roster->options.least, "most", roster->options.most, "run_known", roster->run != NULL, "members",
                     members);
}
