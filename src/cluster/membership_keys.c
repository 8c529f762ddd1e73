/* The keys of the present group: see membership.h. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/process.h"
#include "cluster/membership_internal.h"

/* The member and its group; FTH_PEER_LOST if the group has ended. */
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

/* One request for a key. A group that has ended is FTH_PEER_LOST, and *ended. */
static fth_status exchange_once(fth_membership *membership, const fth_rendezvous_bytes *request, const char *key,
                                fth_deadline deadline, int *code, fth_rendezvous_bytes *answer, bool *ended)
{
    int64_t member, generation;
    fth_status status = get_present(membership, &member, &generation);
    *ended = true;
    if (status != FTH_OK)
        return status;
    char *target = make_target(key, member, generation);
    if (!target)
        return fth_fail(FTH_NO_MEMORY, "no memory for a key");
    double left_s = fmin(fth_deadline_left_seconds(deadline), FTH_MEMBERSHIP_REQUEST_S);
    status = fth_rendezvous_client_bytes(membership->caller, target, request, fth_deadline_in(left_s), has_ended,
                                         membership, code, answer);
    free(target);
    if (fth_membership_is_gone(*code) || *code == FTH_RENDEZVOUS_ENDED)
        return fth_fail_within(FTH_PEER_LOST, "key %s", key);
    if (status == FTH_INTERRUPTED) {
        status = get_present(membership, &member, &generation);
        return status != FTH_OK ? status : fth_fail(FTH_PEER_LOST, "the group has ended");
    }
    *ended = false;
    return status;
}

/* Repeats the request while the rendezvous cannot be reached, or while the key is not there. */
static fth_status exchange_key(fth_membership *membership, const fth_rendezvous_bytes *request, const char *key,
                               fth_deadline deadline, fth_rendezvous_bytes *answer)
{
    for (;;) {
        bool ended;
        int code = 0;
        fth_status status = exchange_once(membership, request, key, deadline, &code, answer, &ended);
        bool missing = status == FTH_OK && code == 202;
        if (!missing && (ended || (status != FTH_PEER_LOST && status != FTH_TIMEOUT)))
            return status;
        free(answer->bytes);
        *answer = (fth_rendezvous_bytes){0};
        if (missing && fth_deadline_passed(deadline))
            return fth_fail(FTH_TIMEOUT, "the key %s did not come to %s in time", key, membership->who);
        if (!missing && fth_deadline_left_seconds(deadline) <= FTH_MEMBERSHIP_PAUSE_S)
            return status;
        if (!missing)
            fth_sleep(FTH_MEMBERSHIP_PAUSE_S);
    }
}

fth_status fth_membership_put(void *context, const char *key, const void *bytes, size_t size)
{
    fth_rendezvous_bytes request = {.bytes = (void *)bytes, .size = size}, answer = {0};
    fth_status status = exchange_key(context, &request, key, fth_deadline_in(FTH_MEMBERSHIP_GIVE_UP_S), &answer);
    free(answer.bytes);
    return status;
}

fth_status fth_membership_get(void *context, const char *key, fth_deadline deadline, void **bytes, size_t *size)
{
    fth_rendezvous_bytes answer = {0};
    fth_status status = exchange_key(context, NULL, key, deadline, &answer);
    *bytes = answer.bytes;
    *size = answer.size;
    return status;
}
