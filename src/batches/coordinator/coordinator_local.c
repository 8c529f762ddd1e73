/* See coordinator_local.h. */
#include "batches/coordinator/coordinator_local.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "batches/coordinator/coordinator_watch.h"

enum {
    WHOLE_LOOK_EVERY = 16
}; /* Most looks end at the highest slot in use; every 16th covers all slots, and finds new clients. */
static const double ASK_AGAIN_S = 1;

/* The last state seen of a slot. */
typedef struct seen_slot {
    uint64_t job; /* 0: free */
    int64_t next, stride, end;
    uint64_t counters[FTH_SLOT_COUNTERS];
    fth_item_id wanted;
    double wanted_at_s; /* 0: it is not waiting */
} seen_slot;

struct fth_local_clients {
    fth_local_clients_options with;
    fth_host *host;
    unsigned looks; /* of the polling thread */

    pthread_mutex_t mutex; /* guards the members below; taken before those of jobs and dispatcher */
    int highest;           /* in use */
    seen_slot seen[FTH_BOARD_SLOTS];
};

/* ---- polling ---- */

/* With the lock held. True if anything has changed. */
static bool note(fth_local_clients *clients, int slot, const fth_slot_state *state)
{
    seen_slot *seen = &clients->seen[slot];
    uint64_t more[FTH_SLOT_COUNTERS];
    bool moved = false, counted = false;
    if (seen->job != state->job)
        *seen = (seen_slot){.job = state->job, .next = -1};
    if (slot > clients->highest)
        clients->highest = slot;
    for (int i = 0; i < FTH_SLOT_COUNTERS; i++) {
        more[i] = state->counters[i] > seen->counters[i] ? state->counters[i] - seen->counters[i] : 0;
        seen->counters[i] = state->counters[i];
        counted = counted || more[i] > 0;
    }
    if (counted)
        fth_served_jobs_count(clients->with.jobs, state->job, more);
    if (seen->next < 0 && state->begin < state->next) /* batches taken before the first look */
        fth_served_jobs_move(clients->with.jobs, state->job, slot, state->begin, state->stride, state->end);
    if (state->next != seen->next || state->stride != seen->stride || state->end != seen->end) {
        seen->next = state->next;
        seen->stride = state->stride;
        seen->end = state->end;
        fth_served_jobs_move(clients->with.jobs, state->job, slot, state->next, state->stride, state->end);
        moved = true;
    }
    return moved || counted;
}

/* With the lock held: has a wanted item made first, and asks again now and then. */
static void note_wait(fth_local_clients *clients, int slot, const fth_slot_state *state, bool again)
{
    seen_slot *seen = &clients->seen[slot];
    double now = fth_clock_seconds();
    if (!state->waiting) {
        seen->wanted_at_s = 0;
        return;
    }
    if (!again && seen->wanted_at_s > 0 && fth_item_id_equal(seen->wanted, state->wanted) &&
        now - seen->wanted_at_s < ASK_AGAIN_S)
        return;
    seen->wanted = state->wanted;
    seen->wanted_at_s = now;
    fth_dispatcher_want(clients->with.dispatcher, state->job, state->wanted);
}

bool fth_local_clients_look(fth_local_clients *clients)
{
    bool moved = false;
    fth_slot_state state;
    pthread_mutex_lock(&clients->mutex);
    int last = clients->looks++ % WHOLE_LOOK_EVERY == 0 ? FTH_BOARD_SLOTS - 1 : clients->highest;
    int highest = -1;
    for (int slot = 0; slot <= last; slot++) {
        if (!fth_board_read(clients->with.board, slot, &state))
            continue;
        highest = slot;
        moved = note(clients, slot, &state) || moved;
        note_wait(clients, slot, &state, false);
    }
    clients->highest = highest;
    pthread_mutex_unlock(&clients->mutex);
    return moved;
}

/* ---- requests ---- */

/* Why a job cannot expect an item; or, if it can, the item's state. */
static fth_status explain(fth_dispatcher *dispatcher, uint64_t job, fth_item_id id, json_t **answer)
{
    static const char *const states[] = {"unknown", "waiting", "being made", "ready", "failed"};
    fth_dispatcher_failure failure = {.status = FTH_OK};
    fth_item_state state = fth_dispatcher_look(dispatcher, id, NULL, NULL);
    if (fth_dispatcher_explain(dispatcher, job, id, &failure))
        *answer = json_pack("{s:s, s:s}", "status", fth_status_name(failure.status), "error", failure.reason);
    else
        *answer = json_pack("{s:s, s:s}", "status", fth_status_name(FTH_OK), "state", states[state]);
    return *answer ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the answer");
}

static uint64_t job_of_slot(fth_local_clients *clients, int slot)
{
    fth_slot_state state;
    return slot >= 0 && fth_board_read(clients->with.board, slot, &state) ? state.job : 0;
}

static fth_status read_id(const json_t *request, fth_item_id *id)
{
    const char *text = json_string_value(json_object_get(request, "id"));
    return text && fth_item_id_parse(text, id) ? FTH_OK
                                               : fth_fail(FTH_INVALID, "\"id\" must be an item's 32 hex digits");
}

static fth_status answer_request(void *context, int slot, json_t *request, json_t **answer, uint64_t *job)
{
    fth_status status = FTH_OK;
    fth_local_clients *clients = context;
    const fth_local_requests *requests = clients->with.requests;
    const char *op = json_string_value(json_object_get(request, "op"));
    const char *name = json_string_value(json_object_get(request, "data"));
    fth_item_id id;

    *answer = NULL;
    FTH_REQUIRE(op, FTH_INVALID, "the request has no \"op\"");
    if (strcmp(op, "register") == 0) {
        FTH_TRY(requests->register_job(requests->context, request, job, answer));
        fth_watcher_wake(clients->with.watcher);
    } else if (strcmp(op, "join") == 0) {
        *job = (uint64_t)json_integer_value(json_object_get(request, "job"));
        FTH_TRY(requests->join_job(requests->context, *job, answer));
        fth_watcher_wake(clients->with.watcher);
    } else if (strcmp(op, "describe") == 0) {
        FTH_TRY(requests->describe_set(requests->context, name ? name : "", answer));
    } else if (strcmp(op, "figures") == 0) {
        FTH_TRY(requests->describe_job(requests->context, job_of_slot(clients, slot), answer));
    } else if (strcmp(op, "failed?") == 0) {
        FTH_TRY(read_id(request, &id));
        FTH_TRY(explain(clients->with.dispatcher, job_of_slot(clients, slot), id, answer));
    } else if (strcmp(op, "lost") == 0) {
        FTH_TRY(read_id(request, &id));
        if (fth_segment_evict(clients->with.segment, id)) /* else another client has reported it */
            fth_dispatcher_lost(clients->with.dispatcher, id);
        *answer = json_object();
    } else {
        status = fth_fail(FTH_INVALID, "unknown request \"%.40s\"", op);
    }

out:
    return status;
}

static void wake(void *context, int slot)
{
    fth_local_clients *clients = context;
    fth_slot_state state;
    pthread_mutex_lock(&clients->mutex);
    if (slot >= 0 && slot < FTH_BOARD_SLOTS && fth_board_read(clients->with.board, slot, &state)) {
        note(clients, slot, &state);
        note_wait(clients, slot, &state, true);
    }
    pthread_mutex_unlock(&clients->mutex);
    fth_watcher_wake(clients->with.watcher);
}

static void left(void *context, int slot, uint64_t job, bool finished)
{
    fth_local_clients *clients = context;
    fth_slot_state state;
    pthread_mutex_lock(&clients->mutex);
    for (int i = 0; i < FTH_BOARD_SLOTS;
         i++) /* its last counters, and those of other processes of the job, which may not have been seen yet */
        if (fth_board_read(clients->with.board, i, &state) && state.job == job)
            note(clients, i, &state);
    if (slot >= 0 && slot < FTH_BOARD_SLOTS)
        clients->seen[slot] = (seen_slot){0};
    fth_served_jobs_leave(clients->with.jobs, job, slot, finished);
    pthread_mutex_unlock(&clients->mutex);
}

/* ---- opening and closing ---- */

fth_status fth_local_clients_open(const fth_local_clients_options *options, fth_local_clients **result)
{
    fth_status status = FTH_OK;
    fth_local_clients *clients = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *clients, &clients));
    clients->with = *options;
    clients->highest = -1;
    pthread_mutex_init(&clients->mutex, NULL);
    FTH_TRY(fth_host_open(options->path, options->segment, options->board,
                          &(fth_host_handler){.context = clients, .answer = answer_request, .wake = wake, .left = left},
                          &clients->host));
    *result = clients;
    clients = NULL;

out:
    fth_local_clients_close(clients);
    return status;
}

void fth_local_clients_close(fth_local_clients *clients)
{
    if (!clients)
        return;
    fth_host_close(clients->host);
    pthread_mutex_destroy(&clients->mutex);
    free(clients);
}

int fth_local_clients_count(const fth_local_clients *clients)
{
    return fth_host_clients(clients->host);
}
