/* Before each update all workers agree on what comes next: one small sum, and where something is
 * asked for, who asked and why. All of them see the same sums, so all of them take the same
 * branch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/data_parallel.h"

/* What is counted: how many workers ask for it. */
enum { END, STOP, LEAVE, CHECKPOINT, JOIN, COUNTS };

/* A worker's reason, as it travels: plain bytes, the same in processes of one version. */
typedef struct fth_agreed_reason {
    char end[64];
    int64_t stop_kind;
    double deadline_s; /* from now */
    char source[32], message[256];
} fth_agreed_reason;

static fth_status sum(fth_data_parallel *self, double *values, size_t count)
{
    return fth_worker_group_translate_status(
        self->group, fth_collective_sum(fth_worker_group_collective(self->group), values, count));
}

/* The lowest rank that asks; at least one does. */
static fth_status find_first(fth_data_parallel *self, bool asks, int *first)
{
    fth_status status = FTH_OK;
    const fth_group_view *view = fth_worker_group_view(self->group);
    double *asking = NULL;

    FTH_TRY(fth_allocate((size_t)view->size, sizeof *asking, &asking));
    asking[view->rank] = asks;
    FTH_TRY(sum(self, asking, (size_t)view->size));
    for (*first = 0; *first < view->size - 1 && asking[*first] == 0;)
        ++*first;

out:
    free(asking);
    return status;
}

/* The reason of the first of those that ask, for all. */
static fth_status share_reason(fth_data_parallel *self, const fth_intent *intent, bool asks, fth_agreed_reason *reason,
                               int *first)
{
    fth_status status = FTH_OK;
    fth_stop_reason stop = fth_stop_get(self->stop);

    memset(reason, 0, sizeof *reason);
    snprintf(reason->end, sizeof reason->end, "%s", intent->end ? intent->end : "");
    reason->stop_kind = stop.kind;
    reason->deadline_s = isfinite(stop.deadline.at_seconds) ? fth_deadline_left_seconds(stop.deadline) : INFINITY;
    snprintf(reason->source, sizeof reason->source, "%s", stop.source);
    snprintf(reason->message, sizeof reason->message, "%s", stop.message);
    FTH_TRY(find_first(self, asks, first));
    FTH_TRY(fth_worker_group_translate_status(
        self->group,
        fth_collective_broadcast(fth_worker_group_collective(self->group), reason, sizeof *reason, *first)));
    reason->end[sizeof reason->end - 1] = reason->source[sizeof reason->source - 1] = '\0';
    reason->message[sizeof reason->message - 1] = '\0';

out:
    return status;
}

static fth_status agree_on_end(fth_data_parallel *self, fth_intent *intent)
{
    fth_agreed_reason reason;
    int first;
    fth_status status = share_reason(self, intent, intent->end != NULL, &reason, &first);
    if (status != FTH_OK)
        return status;
    memcpy(self->ended, reason.end, sizeof self->ended);
    *intent = (fth_intent){.end = self->ended};
    return FTH_OK;
}

/* Of all. Those that were not asked are asked now. */
static fth_status agree_on_stop(fth_data_parallel *self, fth_intent *intent)
{
    fth_agreed_reason reason;
    int first;
    fth_status status = share_reason(self, intent, intent->stop, &reason, &first);
    if (status != FTH_OK)
        return status;
    if (!intent->stop && self->stop)
        fth_stop_ask(self->stop, (fth_stop_kind)reason.stop_kind, reason.deadline_s, reason.source, "%s (%s)",
                     reason.message, fth_worker_group_name(self->group, first));
    *intent = (fth_intent){.stop = true};
    return FTH_OK;
}

/* Of some: they stop, and the others are to continue without them. */
static fth_status let_leave(fth_data_parallel *self, fth_intent *intent)
{
    fth_agreed_reason reason;
    int first;
    fth_status status = share_reason(self, intent, intent->leave, &reason, &first);
    if (status != FTH_OK)
        return status;
    if (!intent->leave) {
        /* A sum in which those that leave take no part: it ends when the rendezvous knows that they
         * have left, and the next group is not formed with them. */
        double nothing = 0;
        FTH_IGNORE(sum(self, &nothing, 1), "the group dissolves in any case");
        return fth_fail(FTH_PEER_LOST, "%s leaves: %s", fth_worker_group_name(self->group, first), reason.message);
    }
    self->apart = true;
    if (fth_worker_group_leave(self->group, reason.message) != FTH_OK)
        fth_log_warning("%s", fth_error_message()); /* then the others miss it: this one goes all the same */
    *intent = (fth_intent){.stop = true, .leave = true};
    return FTH_OK;
}

fth_status fth_data_parallel_agree(fth_data_parallel *self, fth_intent *intent)
{
    fth_status status = FTH_OK;
    const int size = fth_worker_group_view(self->group)->size;
    double counts[COUNTS] = {[END] = intent->end != NULL,
                             [STOP] = intent->stop,
                             [LEAVE] = intent->stop && intent->leave,
                             [CHECKPOINT] = intent->checkpoint,
                             [JOIN] = fth_worker_group_is_ending(self->group)};

    FTH_TRY(sum(self, counts, COUNTS));
    if (counts[END] > 0)
        FTH_TRY(agree_on_end(self, intent));
    else if (counts[STOP] > counts[LEAVE] || (counts[LEAVE] > 0 && counts[LEAVE] == size))
        FTH_TRY(agree_on_stop(self, intent));
    else if (counts[LEAVE] > 0)
        FTH_TRY(let_leave(self, intent));
    else {
        *intent = (fth_intent){.checkpoint = counts[CHECKPOINT] > 0, .rejoin = counts[JOIN] > 0};
        goto out;
    }
    self->finishing = true;
    fth_worker_group_set_finishing(self->group);

out:
    return status;
}
