/* The heartbeat of a membership: about once a second it tells the rendezvous that this process is
 * alive and what it does. The answer comes after a second, or at once when something happens:
 *
 *     beat -> the group is live      -> note whether others wait to join, beat again
 *          -> the group has ended    -> end_group(), which calls on_end()
 *          -> not a member any more  -> end_group(); the next call makes this process a new member
 *          -> no answer              -> pause, beat again; after lost_after_s: end_group() */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "cluster/membership_internal.h"

static bool is_over(void *context)
{
    fth_membership *membership = context;
    pthread_mutex_lock(&membership->mutex);
    bool over = membership->closing;
    pthread_mutex_unlock(&membership->mutex);
    return over;
}

/* A beat is given up when this process is in a new group: the next beat tells the rendezvous. */
static bool is_outdated(void *context)
{
    fth_membership *membership = context;
    pthread_mutex_lock(&membership->mutex);
    bool outdated =
        membership->closing || (membership->group.live && membership->group.generation != membership->beat_generation);
    pthread_mutex_unlock(&membership->mutex);
    return outdated;
}

static void note_heard(fth_membership *membership)
{
    pthread_mutex_lock(&membership->mutex);
    membership->rendezvous.heard_s = fth_clock_seconds();
    pthread_mutex_unlock(&membership->mutex);
}

/* The group of this generation, if it is still the newest, has ended. */
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

/* One request; the answer comes after a second, or when something has happened. */
static fth_status beat(fth_membership *membership, int64_t *generation, json_t **answer, int *code)
{
    pthread_mutex_lock(&membership->mutex);
    int64_t member = membership->member;
    *generation = membership->beat_generation = membership->group.live ? membership->group.generation : 0;
    json_t *request = json_pack("{s:I, s:I, s:b, s:I, s:s}", "member", (json_int_t)member, "generation",
                                (json_int_t)*generation, "ending", membership->group.ending, "step",
                                (json_int_t)membership->report.step, "activity", membership->report.activity);
    fth_status status = fth_rendezvous_client_point(membership->heartbeat.client, membership->rendezvous.address);
    /* The beat waits until just after the rendezvous counts as lost, so that it notices the loss,
     * but long enough for a slow answer. */
    double left_s = membership->rendezvous.heard_s + membership->rendezvous.lost_after_s + 0.05 - fth_clock_seconds();
    pthread_mutex_unlock(&membership->mutex);
    if (status == FTH_OK)
        status = fth_rendezvous_client_post(membership->heartbeat.client, "/beat", request,
                                            fth_deadline_in(fmax(left_s, 1.5)), is_outdated, membership, code, answer);
    json_decref(request);
    if (fth_membership_is_gone(*code)) { /* this incarnation may have joined a group meanwhile */
        pthread_mutex_lock(&membership->mutex);
        *generation = membership->member == member ? membership->group.generation : 0;
        pthread_mutex_unlock(&membership->mutex);
        fth_membership_forget(membership, member);
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

/* Waits for a moment, or until this process is a member. */
static void pause_beating(fth_membership *membership)
{
    struct timespec until = fth_deadline_timespec(fth_deadline_in(FTH_MEMBERSHIP_PAUSE_S));
    pthread_mutex_lock(&membership->mutex);
    if (!membership->closing)
        pthread_cond_clockwait(&membership->changed, &membership->mutex, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&membership->mutex);
}

void *fth_membership_beat(void *context)
{
    fth_membership *membership = context;
    while (!is_over(membership)) {
        json_t *answer = NULL;
        int64_t generation = 0;
        int code = 0;
        if (fth_membership_get_member(membership) == 0) {
            pause_beating(membership);
            continue;
        }
        fth_status status = beat(membership, &generation, &answer, &code);
        if (status == FTH_OK) {
            take_beat(membership, generation, answer);
        } else if (fth_membership_is_gone(code)) {
            note_heard(membership);
            end_group(membership, generation, fth_error_message());
        } else if (status != FTH_INTERRUPTED) {
            double silent_s;
            if (fth_membership_is_unreachable(membership, &silent_s)) {
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
