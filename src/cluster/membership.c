/* See membership.h: the client of rendezvous.c.
 *
 * Two HTTP clients: that of the calls below, which the training thread makes, and that of the
 * thread that beats. A call that finds the rendezvous unreachable tries again; the beating thread
 * alone decides that it has been so for too long.
 *
 * `mutex` guards what both threads know. `delivery` is held while on_end() is called and while a
 * new group is taken over, so that the end of one group is never reported to a caller that has the
 * next one already; on_end() must not call the membership. */
#include "cluster/membership.h"

#include <inttypes.h>
#include <math.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "cluster/presence.h"
#include "cluster/protocol.h"
#include "cluster/rendezvous_client.h"
#include "cluster/rendezvous_find.h"
#include "cluster/succession.h"

enum { MAX_ACTIVITY = 63 };
static const double CLOCKS_APART_S = 30, PAUSE_S = 0.2, SHORT_S = 5, GIVE_UP_S = 60, LEAVE_S = 2;
static const double ENTER_S = 2;          /* for one try to become a member */
static const double HELD_S = 10;          /* what the rendezvous holds a request at most */
static const double STOP_TOGETHER_S = 12; /* for members of a group that ended to come back */

struct fth_membership {
    fth_membership_options options; /* texts are copies */
    char *found;                    /* what join() shows, or NULL */
    char instance[33];              /* of this membership alone */
    char *who;                      /* "rank 2 on b (process 4711)", for messages */
    fth_rendezvous_client *caller, *beater;
    fth_succession *succession; /* where the rendezvous is when it is lost */
    fth_presence presence;      /* of the nodes of groups so far */
    json_t *run;                /* what was found, or NULL */
    int blamed;                 /* a rank of the newest group, for the next join; -1: none */
    pthread_t thread;
    bool beating;

    pthread_mutex_t delivery;
    pthread_mutex_t mutex; /* of everything below */
    pthread_cond_t changed;
    bool closing;
    char *address;  /* of the rendezvous */
    int64_t member; /* the incarnation; 0: not a member */
    struct {
        int64_t generation; /* 0: there was none yet */
        int rank;
        bool live;           /* it has not ended, as far as is known here */
        bool ending;         /* others wait to join */
        char *reason;        /* why it ended */
    } group;                 /* the newest one */
    int64_t beat_generation; /* that the beat under way has told */
    struct {
        int64_t step;
        char activity[MAX_ACTIVITY + 1];
    } report;
    double lost_after_s; /* as the rendezvous has it */
    double heard_s;      /* when the rendezvous answered last */
};

/* ---- small things ---- */

/* How long a call waits once a stop was asked for; NULL: it takes no notice of that. */
typedef struct stop_patience {
    fth_stop *stop; /* NULL: nobody can ask */
    bool in_group; /* this process was in a group, whose members stop together: they are given the time to form the next
                      one */
} stop_patience;

/* Of the time that there is, at most half. */
static double find_patience_s(const fth_stop_reason *reason)
{
    const double notice_s = reason->deadline.at_seconds - reason->asked_at_s;
    return notice_s < 2 * STOP_TOGETHER_S ? notice_s / 2 : STOP_TOGETHER_S;
}

static bool is_spent(const stop_patience *patience)
{
    if (!patience || !patience->stop || !atomic_load(&patience->stop->asked))
        return false;
    const fth_stop_reason reason = fth_stop_get(patience->stop);
    return !patience->in_group || reason.kind == FTH_STOP_FENCED ||
           fth_clock_seconds() - reason.asked_at_s >= find_patience_s(&reason);
}

static bool is_over(void *context)
{
    fth_membership *membership = context;
    pthread_mutex_lock(&membership->mutex);
    bool over = membership->closing;
    pthread_mutex_unlock(&membership->mutex);
    return over;
}

/* A beat is given up when there is a new group, of which the rendezvous shall know that this member
 * knows. */
static bool is_outdated(void *context)
{
    fth_membership *membership = context;
    pthread_mutex_lock(&membership->mutex);
    bool outdated =
        membership->closing || (membership->group.live && membership->group.generation != membership->beat_generation);
    pthread_mutex_unlock(&membership->mutex);
    return outdated;
}

static bool patience_is_spent(void *context)
{
    return is_spent(context);
}

static int64_t get_member(fth_membership *membership)
{
    pthread_mutex_lock(&membership->mutex);
    int64_t member = membership->member;
    pthread_mutex_unlock(&membership->mutex);
    return member;
}

static void note_heard(fth_membership *membership)
{
    pthread_mutex_lock(&membership->mutex);
    membership->heard_s = fth_clock_seconds();
    pthread_mutex_unlock(&membership->mutex);
}

/* True if the rendezvous has not been heard of for so long that it counts as lost. */
static bool is_unreachable(fth_membership *membership, double *silent_s)
{
    pthread_mutex_lock(&membership->mutex);
    *silent_s = fth_clock_seconds() - membership->heard_s;
    bool unreachable = *silent_s >= membership->lost_after_s;
    pthread_mutex_unlock(&membership->mutex);
    return unreachable;
}

/* This incarnation is over: the next join opens another. */
static void forget_member(fth_membership *membership, int64_t member)
{
    pthread_mutex_lock(&membership->mutex);
    if (membership->member == member)
        membership->member = 0;
    pthread_mutex_unlock(&membership->mutex);
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
                     fth_rendezvous_is_here(membership->address));
}

static void compare_clocks(const fth_membership *membership, double wall_s)
{
    double apart_s = fth_clock_wall_seconds() - wall_s;
    if (fabs(apart_s) > CLOCKS_APART_S)
        fth_log_warning("the clock of %s is %.0f s %s that of the rendezvous; training does not mind, but certificates "
                        "and leases do: set the clocks",
                        membership->options.node, fabs(apart_s), apart_s > 0 ? "ahead of" : "behind");
}

/* From now on the rendezvous is there, where this process is to be a new member. Takes
 * `address`. */
static void move_to(fth_membership *membership, char *address)
{
    pthread_mutex_lock(&membership->mutex);
    free(membership->address);
    membership->address = address;
    membership->member = 0;
    pthread_mutex_unlock(&membership->mutex);
}

/* Whether the rendezvous has answered that it is elsewhere: then this process goes there. */
static bool follow(fth_membership *membership, int code)
{
    const char *moved = code == FTH_RENDEZVOUS_MOVED ? fth_rendezvous_client_moved(membership->caller) : NULL;
    char *address = moved ? strdup(moved) : NULL;
    if (!address)
        return false;
    fth_log_info("%s goes to the rendezvous at %s", membership->who, address);
    move_to(membership, address);
    return true;
}

/* Reaches the rendezvous and becomes a member. */
static fth_status enter(fth_membership *membership, stop_patience *patience, fth_deadline deadline, int *code)
{
    fth_status status = FTH_OK;
    json_t *request = NULL, *answer = NULL, *limits = NULL;
    json_int_t member = 0;
    double lost_after_s = 0, wall_s = 0;

    *code = 0;
    FTH_TRY(fth_rendezvous_client_point(membership->caller, membership->address));
    FTH_TRY(fth_rendezvous_client_reach(membership->caller, deadline, patience_is_spent, patience));
    request = describe_self(membership);
    FTH_REQUIRE(request, FTH_INVALID, "the names of %s are not valid UTF-8", membership->who);
    FTH_TRY(fth_rendezvous_client_post(membership->caller, "/open", request, deadline, patience_is_spent, patience,
                                       code, &answer));
    FTH_REQUIRE(json_unpack(answer, "{s:I, s:F, s:o}", "member", &member, "wall_s", &wall_s, "limits", &limits) == 0 &&
                    json_unpack(limits, "{s:F}", "lost_after_s", &lost_after_s) == 0,
                FTH_CORRUPT, "the answer of the rendezvous to %s lacks a member", membership->who);
    fth_succession_set_limits(membership->succession, limits);
    compare_clocks(membership, wall_s);
    pthread_mutex_lock(&membership->mutex);
    membership->lost_after_s = lost_after_s;
    membership->member = member;
    membership->heard_s = fth_clock_seconds();
    pthread_cond_signal(&membership->changed);
    pthread_mutex_unlock(&membership->mutex);

out:
    json_decref(request);
    json_decref(answer);
    return status;
}

/* ---- beating ---- */

/* The present group, if it is still `generation`, has ended. */
static void end_group(fth_membership *membership, int64_t generation, const char *reason)
{
    char *copy = strdup(reason);
    pthread_mutex_lock(&membership->delivery);
    pthread_mutex_lock(&membership->mutex);
    bool ended = membership->group.live && membership->group.generation == generation;
    if (ended) {
        membership->group.live = false;
        free(membership->group.reason);
        membership->group.reason = copy;
        copy = NULL;
    }
    pthread_mutex_unlock(&membership->mutex);
    if (ended && membership->options.on_end)
        membership->options.on_end(membership->options.context, generation, reason);
    pthread_mutex_unlock(&membership->delivery);
    free(copy);
}

/* Whether the answer means that the caller is not a member there any more. */
static bool is_gone(int code)
{
    return code == FTH_RENDEZVOUS_GONE || code == FTH_RENDEZVOUS_MOVED;
}

/* One request; the answer comes after a second, or when something has happened. */
static fth_status beat(fth_membership *membership, int64_t *generation, json_t **answer, int *code)
{
    pthread_mutex_lock(&membership->mutex);
    int64_t member = membership->member;
    *generation = membership->beat_generation = membership->group.live ? membership->group.generation : 0;
    json_t *request = json_pack("{s:I, s:I, s:b, s:I, s:s}", "member", (json_int_t)member, "generation",
                                (json_int_t)*generation, "ending", membership->group.ending, "step",
                                (json_int_t)membership->report.step, "activity", membership->report.activity);
    fth_status status = fth_rendezvous_client_point(membership->beater, membership->address);
    /* Until just after the rendezvous counts as lost, so that no other beat is needed to find that;
     * but enough for a slow answer. */
    double left_s = membership->heard_s + membership->lost_after_s + 0.05 - fth_clock_seconds();
    pthread_mutex_unlock(&membership->mutex);
    if (status == FTH_OK)
        status = fth_rendezvous_client_post(membership->beater, "/beat", request, fth_deadline_in(fmax(left_s, 1.5)),
                                            is_outdated, membership, code, answer);
    json_decref(request);
    if (is_gone(*code)) { /* whatever group this incarnation has come into meanwhile */
        pthread_mutex_lock(&membership->mutex);
        *generation = membership->member == member ? membership->group.generation : 0;
        pthread_mutex_unlock(&membership->mutex);
        forget_member(membership, member);
    }
    return status;
}

static void take_beat(fth_membership *membership, int64_t generation, const json_t *answer)
{
    int live = 0, ending = 0;
    const char *reason = "";
    note_heard(membership);
    if (json_unpack((json_t *)answer, "{s:b, s:b, s:s}", "live", &live, "ending", &ending, "reason", &reason) != 0 ||
        generation == 0)
        return;
    if (!live) {
        end_group(membership, generation, reason);
        return;
    }
    pthread_mutex_lock(&membership->mutex);
    if (membership->group.generation == generation)
        membership->group.ending = ending;
    pthread_mutex_unlock(&membership->mutex);
}

/* Waits for a moment, or for a membership where there is none. */
static void pause_beating(fth_membership *membership)
{
    struct timespec until = fth_deadline_timespec(fth_deadline_in(PAUSE_S));
    pthread_mutex_lock(&membership->mutex);
    if (!membership->closing)
        pthread_cond_clockwait(&membership->changed, &membership->mutex, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&membership->mutex);
}

static void *run(void *context)
{
    fth_membership *membership = context;
    while (!is_over(membership)) {
        json_t *answer = NULL;
        int64_t generation = 0;
        int code = 0;
        if (get_member(membership) == 0) {
            pause_beating(membership);
            continue;
        }
        fth_status status = beat(membership, &generation, &answer, &code);
        if (status == FTH_OK) {
            take_beat(membership, generation, answer);
        } else if (is_gone(code)) {
            note_heard(membership);
            end_group(membership, generation, fth_error_message());
        } else if (status != FTH_INTERRUPTED) {
            double silent_s;
            if (is_unreachable(membership, &silent_s)) {
                char *reason = fth_format("the rendezvous at %s has not answered %s for %.1f s",
                                          membership->options.rendezvous, membership->who, silent_s);
                end_group(membership, generation, reason ? reason : "the rendezvous does not answer");
                free(reason);
            }
            pause_beating(membership);
        }
        json_decref(answer);
    }
    return NULL;
}

/* ---- open and close ---- */

static fth_status copy_options(fth_membership *membership, const fth_membership_options *options)
{
    unsigned char random[16];
    if (RAND_bytes(random, sizeof random) != 1)
        return fth_fail(FTH_IO, "no random numbers for a membership");
    fth_hex_encode(random, sizeof random, membership->instance);
    fth_membership_options *copy = &membership->options;
    *copy = *options;
    membership->blamed = -1;
    membership->address = strdup(options->rendezvous);
    copy->rendezvous = strdup(options->rendezvous);
    copy->token = strdup(options->token ? options->token : "");
    copy->run = strdup(options->run);
    copy->node = strdup(options->node);
    copy->host = strdup(options->host);
    copy->address = strdup(options->address ? options->address : "");
    copy->configuration = strdup(options->configuration ? options->configuration : "");
    copy->facts = options->facts ? json_incref(options->facts) : json_object();
    membership->who = options->rank >= 0
                          ? fth_format("rank %d on %s (process %d)", options->rank, options->node, (int)getpid())
                          : fth_format("%s (process %d)", options->node, (int)getpid());
    if (!membership->address || !copy->rendezvous || !copy->token || !copy->run || !copy->node || !copy->host ||
        !copy->address || !copy->configuration || !copy->facts || !membership->who)
        return fth_fail(FTH_NO_MEMORY, "no memory for a membership");
    return FTH_OK;
}

fth_status fth_membership_open(const fth_membership_options *options, fth_deadline deadline, fth_membership **result)
{
    fth_status status = FTH_OK;
    fth_membership *membership = NULL;
    int code = 0;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *membership, &membership));
    pthread_mutex_init(&membership->delivery, NULL);
    pthread_mutex_init(&membership->mutex, NULL);
    pthread_cond_init(&membership->changed, NULL);
    FTH_TRY(copy_options(membership, options));
    const char *token = membership->options.token;
    FTH_TRY(fth_rendezvous_client_open(options->rendezvous, token, membership->who, &membership->caller));
    FTH_TRY(fth_rendezvous_client_open(options->rendezvous, token, membership->who, &membership->beater));
    FTH_TRY(fth_succession_create(options->rendezvous, token, membership->options.run, membership->options.node,
                                  membership->who, &membership->succession));
    do
        status = enter(membership, NULL, deadline, &code);
    while (follow(membership, code) && !fth_deadline_passed(deadline));
    FTH_TRY(status);
    FTH_REQUIRE(fth_thread_start(&membership->thread, "membership", run, membership) == 0, FTH_NO_MEMORY,
                "no thread for a membership");
    membership->beating = true;
    *result = membership;
    membership = NULL;

out:
    fth_membership_close(membership);
    return status;
}

void fth_membership_close(fth_membership *membership)
{
    if (!membership)
        return;
    if (membership->beating) {
        pthread_mutex_lock(&membership->mutex);
        membership->closing = true;
        pthread_cond_signal(&membership->changed);
        pthread_mutex_unlock(&membership->mutex);
        pthread_join(membership->thread, NULL);
    }
    if (membership->member)
        fth_membership_leave(membership, "the process ended");
    fth_rendezvous_client_free(membership->caller);
    fth_rendezvous_client_free(membership->beater);
    fth_succession_free(membership->succession);
    fth_presence_release(&membership->presence);
    json_decref(membership->run);
    free(membership->address);
    free(membership->found);
    const fth_membership_options *options = &membership->options;
    free((char *)options->rendezvous);
    fth_wipe_text((char *)options->token);
    free((char *)options->run);
    free((char *)options->node);
    free((char *)options->host);
    free((char *)options->address);
    free((char *)options->configuration);
    json_decref(options->facts);
    free(membership->who);
    free(membership->group.reason);
    pthread_mutex_destroy(&membership->delivery);
    pthread_mutex_destroy(&membership->mutex);
    pthread_cond_destroy(&membership->changed);
    free(membership);
}

/* ---- calls ---- */

static bool is_at_home(const fth_membership *membership)
{
    return strcmp(membership->address, membership->options.rendezvous) == 0;
}

/* What a call gives up for: a stop, and a rendezvous that is stopped itself, which takes requests
 * and answers none. */
typedef struct waiter {
    fth_membership *membership;
    const stop_patience *patience;
} waiter;

static bool is_exhausted(void *context)
{
    const waiter *own = context;
    double silent_s;
    return is_spent(own->patience) || is_unreachable(own->membership, &silent_s);
}

/* The call, as this member, whom it makes one first where needed. `request` gets the member's
 * number. */
static fth_status ask_once(fth_membership *membership, const char *path, json_t *request, stop_patience *patience,
                           int *code, json_t **answer)
{
    fth_status status = FTH_OK;
    *code = 0;
    if (get_member(membership) == 0)
        FTH_TRY(enter(membership, patience, fth_deadline_in(ENTER_S), code));
    int64_t member = get_member(membership);
    json_object_set_new(request, "member", json_integer(member));
    FTH_TRY(fth_rendezvous_client_point(membership->caller, membership->address));
    status = fth_rendezvous_client_post(membership->caller, path, request, fth_deadline_in(HELD_S + 5), is_exhausted,
                                        &(waiter){membership, patience}, code, answer);
    if (status == FTH_INTERRUPTED && !is_spent(patience))
        status =
            fth_fail(FTH_PEER_LOST, "the rendezvous at %s does not answer %s", membership->address, membership->who);
    if (*code == FTH_RENDEZVOUS_GONE) {
        fth_log_warning("%s joins again as a new member: %s", membership->who, fth_error_message());
        forget_member(membership, member);
    }

out:
    return status;
}

/* A call that the rendezvous may hold. Where it cannot be reached, tries again, at its successor
 * after a while, for GIVE_UP_S at most. */
static fth_status ask(fth_membership *membership, const char *path, json_t *request, stop_patience *patience, int *code,
                      json_t **answer)
{
    fth_deadline give_up = fth_deadline_in(GIVE_UP_S);
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
        bool refused = status == FTH_INVALID && get_member(membership) == 0 && !is_at_home(membership);
        if ((!unreachable && !refused) || fth_deadline_passed(give_up))
            return status;
        is_unreachable(membership, &silent_s);
        char *address =
            fth_succession_find(membership->succession, membership->address, silent_s, patience_is_spent, patience);
        if (address)
            move_to(membership, address);
        nanosleep(&(struct timespec){.tv_nsec = (long)(PAUSE_S * 1e9)}, NULL);
    }
}

/* A successor of the rendezvous will need it. */
static void keep_run(fth_membership *membership, json_t *run_found)
{
    json_incref(run_found);
    json_decref(membership->run);
    membership->run = run_found;
}

fth_status fth_membership_find_run(fth_membership *membership, fth_stop *stop, json_t **run_found)
{
    fth_status status = FTH_OK;
    json_t *request = json_object(), *answer = NULL;
    stop_patience patience = {.stop = stop};
    int code = 0;

    *run_found = NULL;
    do {
        json_decref(answer);
        answer = NULL;
        FTH_TRY(ask(membership, "/find", request, &patience, &code, &answer));
    } while (code == 202);
    if (!json_is_true(json_object_get(answer, "find"))) {
        *run_found = json_incref(json_object_get(answer, "run"));
        FTH_REQUIRE(*run_found, FTH_CORRUPT, "the answer of the rendezvous to %s lacks the run", membership->who);
        keep_run(membership, *run_found);
    }

out:
    json_decref(request);
    json_decref(answer);
    return status;
}

fth_status fth_membership_share_run(fth_membership *membership, const json_t *run_found)
{
    json_t *request = json_pack("{s:O}", "run", (json_t *)run_found), *answer = NULL;
    int code = 0;
    fth_status status = request ? ask(membership, "/share", request, NULL, &code, &answer)
                                : fth_fail(FTH_INVALID, "the run cannot be shared: it is not valid JSON");
    if (status == FTH_OK)
        keep_run(membership, (json_t *)run_found);
    json_decref(request);
    json_decref(answer);
    return status;
}

void fth_group_view_release(fth_group_view *view)
{
    for (int i = 0; view->members && i < view->size; i++) {
        free(view->members[i].node);
        free(view->members[i].host);
        free(view->members[i].address);
        json_decref(view->members[i].facts);
    }
    free(view->members);
    *view = (fth_group_view){0};
}

static fth_status read_view(const json_t *answer, fth_group_view *view)
{
    fth_status status = FTH_OK;
    json_int_t generation = 0;
    json_t *list = NULL;

    FTH_REQUIRE(json_unpack((json_t *)answer, "{s:I, s:i, s:i, s:o}", "generation", &generation, "rank", &view->rank,
                            "nodes", &view->nodes, "members", &list) == 0 &&
                    json_is_array(list),
                FTH_CORRUPT, "the answer of the rendezvous lacks a group");
    view->generation = generation;
    FTH_TRY(fth_allocate(json_array_size(list), sizeof *view->members, &view->members));
    view->size = (int)json_array_size(list);
    for (int i = 0; i < view->size; i++) {
        fth_group_member *member = &view->members[i];
        const char *node, *host, *address;
        json_int_t process;
        json_t *facts;
        FTH_REQUIRE(json_unpack(json_array_get(list, (size_t)i), "{s:s, s:s, s:s, s:i, s:i, s:I, s:o}", "node", &node,
                                "host", &host, "address", &address, "node_number", &member->node_number, "local_rank",
                                &member->local_rank, "process", &process, "facts", &facts) == 0,
                    FTH_CORRUPT, "member %d in the answer of the rendezvous is incomplete", i);
        member->process = process;
        member->facts = json_incref(facts);
        member->node = strdup(node);
        member->host = strdup(host);
        member->address = strdup(address);
        FTH_REQUIRE(member->node && member->host && member->address, FTH_NO_MEMORY, "no memory for a group");
    }
    FTH_REQUIRE(view->rank >= 0 && view->rank < view->size, FTH_CORRUPT, "rank %d in a group of %d", view->rank,
                view->size);

out:
    if (status != FTH_OK)
        fth_group_view_release(view);
    return status;
}

/* From here on the membership is in this group. */
static void take_group(fth_membership *membership, fth_group_view *view)
{
    json_t *nodes = json_array();
    for (int i = 0; i < view->size; i++)
        json_array_append_new(nodes, json_string(view->members[i].node));
    view->present = fth_presence_take_group(&membership->presence, nodes);
    json_decref(nodes);
    pthread_mutex_lock(&membership->delivery);
    pthread_mutex_lock(&membership->mutex);
    membership->group.generation = view->generation;
    membership->group.rank = view->rank;
    membership->group.live = true;
    membership->group.ending = false;
    membership->report.step = 0;
    membership->report.activity[0] = '\0';
    pthread_mutex_unlock(&membership->mutex);
    pthread_mutex_unlock(&membership->delivery);
}

fth_status fth_membership_announce(fth_membership *membership, const json_t *found)
{
    free(membership->found);
    membership->found = json_dumps(found, JSON_COMPACT | JSON_SORT_KEYS);
    return membership->found ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for what a member found");
}

fth_status fth_membership_join(fth_membership *membership, fth_stop *stop, fth_group_view *view)
{
    fth_status status = FTH_OK;
    json_t *request = NULL, *answer = NULL;
    const fth_deadline deadline = fth_deadline_in(SHORT_S);
    stop_patience patience = {.stop = stop};
    int code = 0, few = 0, before = 0;
    const char *waiting = "";
    json_t *ready = NULL;

    fth_group_view_release(view);
    pthread_mutex_lock(&membership->mutex);
    membership->group.live = false; /* whoever joins is done with the group before: its end is no news */
    int64_t after = membership->group.generation;
    pthread_mutex_unlock(&membership->mutex);
    patience.in_group = after > 0;
    request = json_pack("{s:I, s:i, s:s, s:s*}", "after", (json_int_t)after, "unreached", membership->blamed, "node",
                        membership->options.node, "found", membership->found);
    membership->blamed = -1;
    for (;;) {
        status = ask(membership, "/join", request, &patience, &code, &answer);
        if (code == 409)
            status = fth_fail_within(status, "%s", membership->who);
        FTH_TRY(status);
        if (code != 202)
            break;
        FTH_REQUIRE(json_unpack(answer, "{s:s, s:b, s:i, s:o}", "waiting", &waiting, "few", &few, "before", &before,
                                "ready", &ready) == 0,
                    FTH_CORRUPT, "the answer of the rendezvous to %s says nothing", membership->who);
        char *address =
            few ? fth_succession_find_others(membership->succession, membership->address, patience_is_spent, &patience)
                : NULL;
        if (address)
            move_to(membership, address);
        view->rank = before;
        view->present = fth_presence_share(&membership->presence, ready);
        FTH_REQUIRE(!few || !fth_deadline_passed(deadline), FTH_TIMEOUT, "there are too few nodes: %s", waiting);
        json_decref(answer);
        answer = NULL;
    }
    FTH_TRY(read_view(answer, view));
    take_group(membership, view);
    fth_succession_set_members(membership->succession, membership->address, json_object_get(answer, "members"));

out:
    json_decref(request);
    json_decref(answer);
    return status;
}

void fth_membership_blame(fth_membership *membership, int rank)
{
    membership->blamed = rank;
}

void fth_membership_report(fth_membership *membership, int64_t step, const char *activity)
{
    pthread_mutex_lock(&membership->mutex);
    membership->report.step = step;
    snprintf(membership->report.activity, sizeof membership->report.activity, "%s", activity);
    pthread_mutex_unlock(&membership->mutex);
}

bool fth_membership_is_ending(const fth_membership *membership)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&membership->mutex;
    pthread_mutex_lock(mutex);
    bool ending = membership->group.ending;
    pthread_mutex_unlock(mutex);
    return ending;
}

fth_status fth_membership_leave(fth_membership *membership, const char *reason)
{
    int64_t member = get_member(membership);
    int code = 0;
    json_t *answer = NULL;
    pthread_mutex_lock(&membership->mutex);
    membership->member = 0; /* nothing is said for it any more */
    membership->group.live = false;
    pthread_mutex_unlock(&membership->mutex);
    if (member == 0)
        return FTH_OK;
    json_t *request = json_pack("{s:I, s:s}", "member", (json_int_t)member, "reason", reason);
    fth_status status = fth_rendezvous_client_post(membership->caller, "/leave", request, fth_deadline_in(LEAVE_S),
                                                   NULL, NULL, &code, &answer);
    json_decref(request);
    json_decref(answer);
    return is_gone(code) ? FTH_OK : status;
}

/* ---- keys ---- */

/* The member and the group whose keys are meant; FTH_PEER_LOST if that has ended. */
static fth_status get_present(fth_membership *membership, int64_t *member, int64_t *generation)
{
    fth_status status = FTH_OK;
    pthread_mutex_lock(&membership->mutex);
    *member = membership->member;
    *generation = membership->group.generation;
    if (!membership->group.live || membership->member == 0)
        status = fth_fail(FTH_PEER_LOST, "the group has ended: %s",
                          membership->group.reason ? membership->group.reason : "this process has left it");
    pthread_mutex_unlock(&membership->mutex);
    return status;
}

static bool has_ended(void *context)
{
    fth_membership *membership = context;
    pthread_mutex_lock(&membership->mutex);
    bool ended = !membership->group.live;
    pthread_mutex_unlock(&membership->mutex);
    return ended;
}

static char *make_target(const char *key, int64_t member, int64_t generation)
{
    char *escaped = fth_http_escape(key, false);
    char *target =
        escaped ? fth_format("/key?member=%" PRId64 "&generation=%" PRId64 "&key=%s", member, generation, escaped)
                : NULL;
    free(escaped);
    return target;
}

/* One request for a key, again and again while the rendezvous cannot be reached and the group has
 * not ended. */
static fth_status exchange_key(fth_membership *membership, const fth_rendezvous_bytes *request, const char *key,
                               fth_deadline deadline, fth_rendezvous_bytes *answer, int *code)
{
    for (;;) {
        int64_t member, generation;
        fth_status status = get_present(membership, &member, &generation);
        if (status != FTH_OK)
            return status;
        char *target = make_target(key, member, generation);
        if (!target)
            return fth_fail(FTH_NO_MEMORY, "no memory for a key");
        double left_s = fmin(fth_deadline_left_seconds(deadline), HELD_S + 5);
        status = fth_rendezvous_client_bytes(membership->caller, target, request, fth_deadline_in(left_s), has_ended,
                                             membership, code, answer);
        free(target);
        if (is_gone(*code) || *code == FTH_RENDEZVOUS_ENDED)
            return fth_fail_within(FTH_PEER_LOST, "key %s", key);
        if (status == FTH_INTERRUPTED) {
            status = get_present(membership, &member, &generation);
            return status != FTH_OK ? status : fth_fail(FTH_PEER_LOST, "the group has ended");
        }
        if (status != FTH_PEER_LOST && status != FTH_TIMEOUT)
            return status;
        if (fth_deadline_left_seconds(deadline) <= PAUSE_S)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = (long)(PAUSE_S * 1e9)}, NULL);
    }
}

fth_status fth_membership_put(void *context, const char *key, const void *bytes, size_t size)
{
    int code = 0;
    fth_rendezvous_bytes request = {.bytes = (void *)bytes, .size = size}, answer = {0};
    fth_status status = exchange_key(context, &request, key, fth_deadline_in(GIVE_UP_S), &answer, &code);
    free(answer.bytes);
    return status;
}

fth_status fth_membership_get(void *context, const char *key, fth_deadline deadline, void **bytes, size_t *size)
{
    fth_membership *membership = context;
    fth_rendezvous_bytes answer = {0};
    int code = 202;

    *bytes = NULL;
    *size = 0;
    while (code == 202) {
        free(answer.bytes);
        answer = (fth_rendezvous_bytes){0};
        if (fth_deadline_passed(deadline))
            return fth_fail(FTH_TIMEOUT, "the key %s did not come to %s in time", key, membership->who);
        fth_status status = exchange_key(membership, NULL, key, deadline, &answer, &code);
        if (status != FTH_OK) {
            free(answer.bytes);
            return status;
        }
    }
    *bytes = answer.bytes;
    *size = answer.size;
    return FTH_OK;
}
