/* Requests of a member to the rendezvous.
 *
 *     not a member -- enter() --> member -- post --> answered
 *          ^                        |
 *          |                        +-- 410 or moved: forgotten, or at another rendezvous
 *          '------------------------'
 *
 * fth_membership_ask() is the only retry loop: one step at a time, with a pause where the
 * rendezvous cannot be reached, at its successor once it counts as lost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "cluster/membership_internal.h"
#include "cluster/rendezvous_find.h"

static const double CLOCKS_APART_S = 30;
static const double ENTER_S = 2;          /* for one try to become a member */
static const double STOP_TOGETHER_S = 12; /* for members of a group that ended to form the next one */

/* ---- patience ---- */

/* At most half of the time that is left. */
static double patience_s(const fth_stop_reason *reason)
{
    const double notice_s = reason->deadline.at_seconds - reason->asked_at_s;
    return notice_s < 2 * STOP_TOGETHER_S ? notice_s / 2 : STOP_TOGETHER_S;
}

static bool is_spent(const fth_stop_patience *patience)
{
    if (!patience || !patience->stop || !atomic_load(&patience->stop->asked))
        return false;
    const fth_stop_reason reason = fth_stop_get(patience->stop);
    return !patience->in_group || reason.kind == FTH_STOP_FENCED ||
           fth_clock_seconds() - reason.asked_at_s >= patience_s(&reason);
}

bool fth_membership_patience_spent(void *context)
{
    return is_spent(context);
}

/* ---- the state ---- */

int64_t fth_membership_get_member(fth_membership *membership)
{
    pthread_mutex_lock(&membership->mutex);
    int64_t member = membership->member;
    pthread_mutex_unlock(&membership->mutex);
    return member;
}

bool fth_membership_is_unreachable(fth_membership *membership, double *silent_s)
{
    pthread_mutex_lock(&membership->mutex);
    *silent_s = fth_clock_seconds() - membership->rendezvous.heard_s;
    bool unreachable = *silent_s >= membership->rendezvous.lost_after_s;
    pthread_mutex_unlock(&membership->mutex);
    return unreachable;
}

void fth_membership_forget(fth_membership *membership, int64_t member)
{
    pthread_mutex_lock(&membership->mutex);
    if (membership->member == member)
        membership->member = 0;
    pthread_mutex_unlock(&membership->mutex);
}

bool fth_membership_is_gone(int code)
{
    return code == FTH_RENDEZVOUS_GONE || code == FTH_RENDEZVOUS_MOVED;
}

/* ---- becoming a member ---- */

static json_t *describe_self(fth_membership *membership)
{
    const fth_membership_options *options = &membership->options;
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:i, s:i, s:O, s:I, s:i, s:i, s:O*, s:b}",
                     "version", FTH_VERSION, "run", options->run, "configuration", options->configuration, "instance",
                     membership->instance, "node", options->node, "host", options->host, "address", options->address,
                     "process", (json_int_t)getpid(), "local_rank", options->local_rank, "local_size",
                     options->local_size, "rank", options->rank, "facts", options->facts, "generation",
                     (json_int_t)membership->group.generation, "former_rank", membership->group.rank, "expected",
                     fth_succession_count_expected(membership->succession), "known_run", membership->run, "hosts",
                     fth_rendezvous_is_here(membership->rendezvous.address));
}

static void compare_clocks(const fth_membership *membership, double wall_s)
{
    double apart_s = fth_clock_wall_seconds() - wall_s;
    if (fabs(apart_s) > CLOCKS_APART_S)
        fth_log_warning("the clock of %s is %.0f s %s that of the rendezvous; training does not mind, but certificates "
                        "and leases do: set the clocks",
                        membership->options.node, fabs(apart_s), apart_s > 0 ? "ahead of" : "behind");
}

void fth_membership_move(fth_membership *membership, char *address)
{
    pthread_mutex_lock(&membership->mutex);
    free(membership->rendezvous.address);
    membership->rendezvous.address = address;
    membership->member = 0;
    pthread_mutex_unlock(&membership->mutex);
}

/* Goes where the rendezvous says that it is; false: it says nothing of the kind. */
static bool follow(fth_membership *membership, int code)
{
    const char *moved = code == FTH_RENDEZVOUS_MOVED ? fth_rendezvous_client_moved(membership->caller) : NULL;
    char *address = moved ? strdup(moved) : NULL;
    if (!address)
        return false;
    fth_log_info("%s goes to the rendezvous at %s", membership->who, address);
    fth_membership_move(membership, address);
    return true;
}

/* Becomes a member, in one try. */
static fth_status enter(fth_membership *membership, fth_stop_patience *patience, fth_deadline deadline, int *code)
{
    fth_status status = FTH_OK;
    json_t *request = NULL, *answer = NULL, *limits = NULL;
    json_int_t member = 0;
    double lost_after_s = 0, wall_s = 0;

    *code = 0;
    FTH_TRY(fth_rendezvous_client_point(membership->caller, membership->rendezvous.address));
    FTH_TRY(fth_rendezvous_client_probe(membership->caller, fth_deadline_left_seconds(deadline),
                                        fth_membership_patience_spent, patience));
    request = describe_self(membership);
    FTH_REQUIRE(request, FTH_INVALID, "the names of %s are not valid UTF-8", membership->who);
    FTH_TRY(fth_rendezvous_client_post(membership->caller, "/open", request, deadline, fth_membership_patience_spent,
                                       patience, code, &answer));
    FTH_REQUIRE(json_unpack(answer, "{s:I, s:F, s:o}", "member", &member, "wall_s", &wall_s, "limits", &limits) == 0 &&
                    json_unpack(limits, "{s:F}", "lost_after_s", &lost_after_s) == 0,
                FTH_CORRUPT, "the answer of the rendezvous to %s lacks a member", membership->who);
    fth_succession_set_limits(membership->succession, limits);
    compare_clocks(membership, wall_s);
    pthread_mutex_lock(&membership->mutex);
    membership->rendezvous.lost_after_s = lost_after_s;
    membership->member = member;
    membership->rendezvous.heard_s = fth_clock_seconds();
    pthread_cond_signal(&membership->changed);
    pthread_mutex_unlock(&membership->mutex);

out:
    json_decref(request);
    json_decref(answer);
    return status;
}

/* ---- asking ---- */

static bool is_at_home(const fth_membership *membership)
{
    return strcmp(membership->rendezvous.address, membership->options.rendezvous) == 0;
}

/* A request gives up when a stop is requested, or when the rendezvous itself hangs: it then accepts
 * requests and answers none. */
typedef struct waiter {
    fth_membership *membership;
    const fth_stop_patience *patience;
} waiter;

static bool is_exhausted(void *context)
{
    const waiter *own = context;
    double silent_s;
    return is_spent(own->patience) || fth_membership_is_unreachable(own->membership, &silent_s);
}

/* One try. */
static fth_status ask_once(fth_membership *membership, const char *path, json_t *request, fth_stop_patience *patience,
                           int *code, json_t **answer)
{
    fth_status status = FTH_OK;
    *code = 0;
    if (fth_membership_get_member(membership) == 0)
        FTH_TRY(enter(membership, patience, fth_deadline_in(ENTER_S), code));
    if (!path)
        goto out;
    int64_t member = fth_membership_get_member(membership);
    json_object_set_new(request, "member", json_integer(member));
    FTH_TRY(fth_rendezvous_client_point(membership->caller, membership->rendezvous.address));
    status = fth_rendezvous_client_post(membership->caller, path, request, fth_deadline_in(FTH_MEMBERSHIP_REQUEST_S),
                                        is_exhausted, &(waiter){membership, patience}, code, answer);
    if (status == FTH_INTERRUPTED && !is_spent(patience))
        status = fth_fail(FTH_PEER_LOST, "the rendezvous at %s does not answer %s", membership->rendezvous.address,
                          membership->who);
    if (*code == FTH_RENDEZVOUS_GONE) {
        fth_log_warning("%s joins again as a new member: %s", membership->who, fth_error_message());
        fth_membership_forget(membership, member);
    }

out:
    return status;
}

fth_status fth_membership_ask(fth_membership *membership, const char *path, json_t *request,
                              fth_stop_patience *patience, fth_deadline give_up, int *code, json_t **answer)
{
    for (;;) {
        double silent_s = 0;
        if (is_spent(patience))
            return fth_fail(FTH_INTERRUPTED, "a stop was asked for while %s waited for others", membership->who);
        fth_status status = ask_once(membership, path, request, patience, code, answer);
        if (status == FTH_OK)
            return status;
        if (*code == FTH_RENDEZVOUS_GONE || follow(membership, *code))
            continue;
        bool unreachable = status == FTH_PEER_LOST || status == FTH_TIMEOUT;
        bool refused = status == FTH_INVALID && fth_membership_get_member(membership) == 0 && !is_at_home(membership);
        if ((!unreachable && !refused) || fth_deadline_passed(give_up))
            return status;
        fth_membership_is_unreachable(membership, &silent_s);
        char *address = fth_succession_find(membership->succession, membership->rendezvous.address, silent_s,
                                            fth_membership_patience_spent, patience);
        if (address)
            fth_membership_move(membership, address);
        fth_sleep(FTH_MEMBERSHIP_PAUSE_S);
    }
}
