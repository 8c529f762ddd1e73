/* See membership.h. A client of the rendezvous (rendezvous.c):
 *
 *     not a member -- open --> preparing -- join --> in a group -- it ends --> joining again ...
 *                                                        |
 *                                                        '-- leave, close --> not a member
 *
 * If the rendezvous is lost, the next call finds its successor (succession.h) and enters there as a
 * new member, which brings along its generation, its rank and the run. */
#include <inttypes.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "cluster/membership_internal.h"

static const double SHORT_S = 5; /* for a join while there are too few nodes */
static const double LEAVE_S = 2;

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
    membership->rendezvous.address = strdup(options->rendezvous);
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
    if (!membership->rendezvous.address || !copy->rendezvous || !copy->token || !copy->run || !copy->node ||
        !copy->host || !copy->address || !copy->configuration || !copy->facts || !membership->who)
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
    FTH_TRY(fth_rendezvous_client_open(options->rendezvous, token, membership->who, &membership->heartbeat.client));
    FTH_TRY(fth_succession_create(options->rendezvous, token, membership->options.run, membership->options.node,
                                  membership->who, &membership->succession));
    FTH_TRY(fth_rendezvous_client_reach(membership->caller, deadline, NULL, NULL));
    FTH_TRY(fth_membership_ask(membership, NULL, NULL, NULL, deadline, &code, NULL));
    FTH_REQUIRE(fth_thread_start(&membership->heartbeat.thread, "membership", fth_membership_beat, membership) == 0,
                FTH_NO_MEMORY, "no thread for a membership");
    membership->heartbeat.running = true;
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
    if (membership->heartbeat.running) {
        pthread_mutex_lock(&membership->mutex);
        membership->closing = true;
        pthread_cond_signal(&membership->changed);
        pthread_mutex_unlock(&membership->mutex);
        pthread_join(membership->heartbeat.thread, NULL);
    }
    if (membership->member)
        FTH_IGNORE(fth_membership_leave(membership, "the process ended"), "the rendezvous notices the silence");
    fth_rendezvous_client_free(membership->caller);
    fth_rendezvous_client_free(membership->heartbeat.client);
    fth_succession_free(membership->succession);
    fth_presence_release(&membership->presence);
    json_decref(membership->run);
    free(membership->rendezvous.address);
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

/* ---- the run ---- */

/* For a successor of the rendezvous. */
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
    fth_stop_patience patience = {.stop = stop};
    int code = 0;

    *run_found = NULL;
    do {
        json_decref(answer);
        answer = NULL;
        FTH_TRY(fth_membership_ask(membership, "/find", request, &patience, fth_deadline_in(FTH_MEMBERSHIP_GIVE_UP_S),
                                   &code, &answer));
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
    fth_status status = request ? fth_membership_ask(membership, "/share", request, NULL,
                                                     fth_deadline_in(FTH_MEMBERSHIP_GIVE_UP_S), &code, &answer)
                                : fth_fail(FTH_INVALID, "the run cannot be shared: it is not valid JSON");
    if (status == FTH_OK)
        keep_run(membership, (json_t *)run_found);
    json_decref(request);
    json_decref(answer);
    return status;
}

/* ---- groups ---- */

/* The membership is in this group from now on. */
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
    fth_stop_patience patience = {.stop = stop};
    int code = 0, few = 0, before = 0;
    const char *waiting = "";
    json_t *ready = NULL;

    fth_group_view_release(view);
    pthread_mutex_lock(&membership->mutex);
    membership->group.live = false; /* its end is not reported any more */
    int64_t after = membership->group.generation;
    pthread_mutex_unlock(&membership->mutex);
    patience.in_group = after > 0;
    request = json_pack("{s:I, s:i, s:s, s:s*}", "after", (json_int_t)after, "unreached", membership->blamed, "node",
                        membership->options.node, "found", membership->found);
    membership->blamed = -1;
    for (;;) {
        status = fth_membership_ask(membership, "/join", request, &patience, fth_deadline_in(FTH_MEMBERSHIP_GIVE_UP_S),
                                    &code, &answer);
        if (code == 409)
            status = fth_fail_within(status, "%s", membership->who);
        FTH_TRY(status);
        if (code != 202)
            break;
        FTH_REQUIRE(json_unpack(answer, "{s:s, s:b, s:i, s:o}", "waiting", &waiting, "few", &few, "before", &before,
                                "ready", &ready) == 0,
                    FTH_CORRUPT, "the answer of the rendezvous to %s says nothing", membership->who);
        char *address = few ? fth_succession_find_others(membership->succession, membership->rendezvous.address,
                                                         fth_membership_patience_spent, &patience)
                            : NULL;
        if (address)
            fth_membership_move(membership, address);
        view->rank = before;
        view->present = fth_presence_share(&membership->presence, ready);
        FTH_REQUIRE(!few || !fth_deadline_passed(deadline), FTH_TIMEOUT, "there are too few nodes: %s", waiting);
        json_decref(answer);
        answer = NULL;
    }
    FTH_TRY(fth_group_view_read(answer, view));
    take_group(membership, view);
    fth_succession_set_members(membership->succession, membership->rendezvous.address,
                               json_object_get(answer, "members"));

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
    int64_t member = fth_membership_get_member(membership);
    int code = 0;
    json_t *answer = NULL;
    pthread_mutex_lock(&membership->mutex);
    membership->member = 0; /* the heartbeat pauses */
    membership->group.live = false;
    pthread_mutex_unlock(&membership->mutex);
    if (member == 0)
        return FTH_OK;
    json_t *request = json_pack("{s:I, s:s}", "member", (json_int_t)member, "reason", reason);
    fth_status status = fth_rendezvous_client_post(membership->caller, "/leave", request, fth_deadline_in(LEAVE_S),
                                                   NULL, NULL, &code, &answer);
    json_decref(request);
    json_decref(answer);
    return fth_membership_is_gone(code) ? FTH_OK : status;
}
