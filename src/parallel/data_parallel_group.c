/* See data_parallel_group.h. */
#include "parallel/data_parallel_group.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/rendezvous.h"
#include "cluster/rendezvous_find.h"
#include "train/loop/spending.h"

enum { MOST_FAILURES = 5 }; /* to connect to the members of groups, one after another */

/* The rendezvous finds lost members, and those that reach it and not each other, in seconds, and
 * stuck ones in a minute: this is for what is left. */
enum { COLLECTIVE_TIMEOUT_S = 120 };

static const char has_ended[] = "it has ended"; /* why members leave at the end */

struct fth_worker_group {
    const fth_train_options *options;
    fth_stop *stop;
    fth_launched launched;
    fth_rendezvous *rendezvous; /* that this process has; or NULL */
    fth_membership *membership; /* NULL: alone */
    fth_group_view view;
    char **names; /* of the view's members */
    bool left;
    int failures; /* to connect to the members, since it last succeeded */

    pthread_mutex_t mutex; /* guards what follows, which the membership's thread changes too */
    fth_collective *collective;
    const fth_backend_collectives *collectives; /* of `devices` */
    fth_device_group *devices;                  /* or NULL */
    bool finishing;
    int64_t ended; /* generation of the last group that has; that of the one before may come while the next is joined */
    char reason[256];
};

/* ---- opening ---- */

/* A member that is done is not waited for by those that have agreed on the end: its last calls are
 * over, and theirs may be half done. */
static bool is_over(const char *reason)
{
    const size_t length = strlen(reason), end = strlen(has_ended);
    return length >= end && strcmp(reason + length - end, has_ended) == 0;
}

/* From the membership's thread: nobody may go on waiting for a member. */
static void on_end(void *context, int64_t generation, const char *reason)
{
    fth_worker_group *group = context;
    pthread_mutex_lock(&group->mutex);
    group->ended = generation;
    snprintf(group->reason, sizeof group->reason, "%s", reason);
    if (group->collective && !(group->finishing && is_over(reason)))
        fth_collective_abort(group->collective, reason);
    if (group->devices && !(group->finishing && is_over(reason)))
        group->collectives->abort(group->devices, reason);
    pthread_mutex_unlock(&group->mutex);
}

/* Where this process has the rendezvous: of a launcher that fixes the number of processes. */
static fth_status start_rendezvous(fth_worker_group *group)
{
    fth_status status = FTH_OK;
    const fth_launched *launched = &group->launched;
    const char *colon = strrchr(launched->rendezvous, ':');

    FTH_REQUIRE(colon, FTH_INVALID, "the rendezvous %s has no port", launched->rendezvous);
    FTH_TRY(fth_rendezvous_start(
        &(fth_rendezvous_options){.address = fth_rendezvous_listening_address(launched->rendezvous),
                                  .port = atoi(colon + 1),
                                  .token = launched->token,
                                  .run = launched->run,
                                  .least = launched->least,
                                  .most = launched->most},
        &group->rendezvous));

out:
    return status;
}

/* What the others, and the record, know of this process: its machine and what that costs, for the
 * bill. */
static fth_status describe_self(const fth_worker_group *group, json_t **facts)
{
    fth_status status = FTH_OK;
    fth_train_options options = *group->options; /* whose texts stay as they are without a run */
    fth_spending *spending = NULL;

    *facts = json_pack("{s:s, s:i}", "launcher", group->launched.launcher, "processors", fth_processors_usable());
    FTH_REQUIRE(*facts, FTH_NO_MEMORY, "no memory for what others know of this process");
    FTH_TRY(fth_spending_create(&spending));
    fth_spending_begin_identify(spending, options.store.watch);
    FTH_TRY(fth_spending_find_price(spending, &options, NULL));
    fth_spending_describe_machine(spending, *facts);

out:
    fth_spending_free(spending);
    return status;
}

static fth_status open_membership(fth_worker_group *group)
{
    fth_status status = FTH_OK;
    const fth_launched *launched = &group->launched;
    const double patience_s = 60; /* of launchers that start processes one after the other */
    json_t *asked = fth_options_to_json(&fth_train_option_table, group->options, true), *facts = NULL;
    char *configuration = asked ? json_dumps(asked, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    char host[256] = "unknown";

    FTH_TRY(describe_self(group, &facts));
    FTH_REQUIRE(configuration, FTH_NO_MEMORY, "no memory for a run's configuration");
    gethostname(host, sizeof host - 1);
    FTH_TRY(fth_membership_open(&(fth_membership_options){.rendezvous = launched->rendezvous,
                                                          .token = launched->token,
                                                          .run = launched->run,
                                                          .node = launched->node,
                                                          .host = host,
                                                          .address = "",
                                                          .local_rank = launched->local_rank,
                                                          .local_size = launched->local_size,
                                                          .rank = launched->rank,
                                                          .configuration = configuration,
                                                          .facts = facts,
                                                          .context = group,
                                                          .on_end = on_end},
                                fth_deadline_in(patience_s), &group->membership));

out:
    json_decref(asked);
    json_decref(facts);
    free(configuration);
    return status;
}

fth_status fth_worker_group_open(fth_launched *launched, const fth_train_options *options, fth_stop *stop,
                                 fth_worker_group **result)
{
    fth_status status = FTH_OK;
    fth_worker_group *group = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *group, &group));
    *group =
        (fth_worker_group){.options = options, .stop = stop, .launched = *launched, .mutex = PTHREAD_MUTEX_INITIALIZER};
    *launched = (fth_launched){0};
    if (strcmp(group->launched.launcher, "none") != 0) {
        if (group->launched.hosts_rendezvous)
            FTH_TRY(start_rendezvous(group));
        FTH_TRY(open_membership(group));
    }
    *result = group;
    group = NULL;

out:
    fth_worker_group_close(group);
    return status;
}

/* Slurm and MPI bind each process to processors of its own, unless told otherwise. */
static bool has_own_processors(const fth_launched *launched)
{
    static const char *const binding[] = {"slurm", "open-mpi", "mpich"};
    for (size_t i = 0; i < FTH_COUNT_OF(binding); i++)
        if (strcmp(launched->launcher, binding[i]) == 0)
            return fth_processors_usable() * launched->local_size <= fth_processors_online();
    return false;
}

int fth_worker_group_processors(const fth_worker_group *group)
{
    const int usable = fth_processors_usable(), workers = group->launched.local_size;
    if (workers <= 1 || has_own_processors(&group->launched))
        return usable;
    return usable > workers ? usable / workers : 1;
}

const char *fth_worker_group_node(const fth_worker_group *group)
{
    return group->launched.node;
}

fth_status fth_worker_group_find_run(fth_worker_group *group, json_t **run)
{
    *run = NULL;
    return group->membership ? fth_membership_find_run(group->membership, group->stop, run) : FTH_OK;
}

fth_status fth_worker_group_share_run(fth_worker_group *group, const json_t *run)
{
    return group->membership ? fth_membership_share_run(group->membership, run) : FTH_OK;
}

fth_status fth_worker_group_announce(fth_worker_group *group, const json_t *found)
{
    return group->membership ? fth_membership_announce(group->membership, found) : FTH_OK;
}

/* ---- groups ---- */

/* Whether the present group has; with the mutex held. */
static bool is_ended(const fth_worker_group *group)
{
    return group->view.generation > 0 && group->ended == group->view.generation;
}

static void release_names(fth_worker_group *group)
{
    for (int r = 0; group->names && r < group->view.size; r++)
        free(group->names[r]);
    free(group->names);
    group->names = NULL;
}

static void close_collective(fth_worker_group *group)
{
    pthread_mutex_lock(&group->mutex);
    fth_collective *collective = group->collective;
    group->collective = NULL;
    group->finishing = false;
    pthread_mutex_unlock(&group->mutex);
    fth_collective_close(collective);
}

/* The group of a process that was started by hand. */
static fth_status form_alone(fth_group_view *view)
{
    fth_status status = FTH_OK;

    if (view->size == 1)
        return FTH_OK;
    FTH_TRY(fth_allocate(1, sizeof *view->members, &view->members));
    *view = (fth_group_view){.generation = 1, .rank = 0, .size = 1, .nodes = 1, .present = 1, .members = view->members};
    char host[256] = "unknown";
    gethostname(host, sizeof host - 1);
    view->members[0] = (fth_group_member){.node = fth_format("%s", host),
                                          .host = fth_format("%s", host),
                                          .address = fth_format("%s", ""),
                                          .process = getpid()};
    FTH_REQUIRE(view->members[0].node && view->members[0].host && view->members[0].address, FTH_NO_MEMORY,
                "no memory for a group of one");

out:
    return status;
}

static fth_status name_members(fth_worker_group *group)
{
    fth_status status = FTH_OK;
    const fth_group_view *view = &group->view;

    FTH_TRY(fth_allocate((size_t)view->size, sizeof *group->names, &group->names));
    for (int r = 0; r < view->size; r++) {
        group->names[r] =
            fth_format("rank %d on %s (process %lld)", r, view->members[r].node, (long long)view->members[r].process);
        FTH_REQUIRE(group->names[r], FTH_NO_MEMORY, "no memory for a member's name");
    }

out:
    return status;
}

/* Connects to the members of the view. */
static fth_status open_collective(fth_worker_group *group, const fth_shared_memory *memory)
{
    fth_status status = FTH_OK;
    const fth_group_view *view = &group->view;
    fth_member *members = NULL;
    fth_collective *collective = NULL;
    int unreached = -1;

    FTH_TRY(name_members(group));
    FTH_TRY(fth_allocate((size_t)view->size, sizeof *members, &members));
    for (int r = 0; r < view->size; r++)
        members[r] = (fth_member){.node = view->members[r].node_number, .name = group->names[r]};
    const char *address = view->members[view->rank].address;
    FTH_TRY(fth_collective_open(
        &(fth_collective_options){.rank = view->rank,
                                  .size = view->size,
                                  .members = members,
                                  .keys = {group->membership, fth_membership_put, fth_membership_get},
                                  .address = address && *address ? address : NULL,
                                  .transport = group->options->peers.transport,
                                  .timeout_s = COLLECTIVE_TIMEOUT_S,
                                  .memory = memory,
                                  .unreached = &unreached},
        &collective));
    pthread_mutex_lock(&group->mutex);
    group->collective = collective;
    if (is_ended(group))
        status = fth_fail(FTH_PEER_LOST, "%s", group->reason);
    pthread_mutex_unlock(&group->mutex);

out:
    if (unreached >= 0)
        fth_membership_blame(group->membership, unreached);
    free(members);
    return status;
}

static bool is_loss(fth_status status)
{
    return status == FTH_PEER_LOST || status == FTH_TIMEOUT || status == FTH_IO;
}

fth_status fth_worker_group_form(fth_worker_group *group, const fth_shared_memory *memory)
{
    fth_status status = FTH_OK;

    close_collective(group);
    release_names(group);
    FTH_TRY(group->membership ? fth_membership_join(group->membership, group->stop, &group->view)
                              : form_alone(&group->view));
    status = open_collective(group, memory);
    group->failures = is_loss(status) ? group->failures + 1 : 0;
    if (group->failures > 0 && group->failures < MOST_FAILURES)
        status = FTH_PEER_LOST;

out:
    return status;
}

void fth_worker_group_set_finishing(fth_worker_group *group)
{
    pthread_mutex_lock(&group->mutex);
    group->finishing = true;
    pthread_mutex_unlock(&group->mutex);
}

void fth_worker_group_abort(fth_worker_group *group, const char *reason)
{
    if (group && group->collective)
        fth_collective_abort(group->collective, reason);
    if (group && group->devices)
        group->collectives->abort(group->devices, reason);
}

void fth_worker_group_set_devices(fth_worker_group *group, const fth_backend_collectives *collectives,
                                  fth_device_group *devices)
{
    pthread_mutex_lock(&group->mutex);
    group->collectives = collectives;
    group->devices = devices;
    if (devices && is_ended(group))
        collectives->abort(devices, group->reason);
    pthread_mutex_unlock(&group->mutex);
}

const fth_group_view *fth_worker_group_view(const fth_worker_group *group)
{
    return &group->view;
}

fth_collective *fth_worker_group_collective(const fth_worker_group *group)
{
    return group->collective; /* only the training thread changes it */
}

const char *fth_worker_group_name(const fth_worker_group *group, int rank)
{
    return group->names[rank];
}

fth_status fth_worker_group_translate_status(fth_worker_group *group, fth_status status)
{
    if (!is_loss(status))
        return status;
    pthread_mutex_lock(&group->mutex);
    if (is_ended(group))
        fth_set_error("%s", group->reason);
    pthread_mutex_unlock(&group->mutex);
    return FTH_PEER_LOST;
}

/* ---- what others hear of this process ---- */

void fth_worker_group_report(fth_worker_group *group, int64_t step, const char *activity)
{
    if (group->membership && !group->left)
        fth_membership_report(group->membership, step, activity);
}

bool fth_worker_group_is_ending(const fth_worker_group *group)
{
    return group->membership && fth_membership_is_ending(group->membership);
}

fth_status fth_worker_group_leave(fth_worker_group *group, const char *reason)
{
    if (!group->membership || group->left)
        return FTH_OK;
    group->left = true;
    return fth_membership_leave(group->membership, reason);
}

void fth_worker_group_close(fth_worker_group *group)
{
    if (!group)
        return;
    if (group->view.size > 0)
        FTH_IGNORE(fth_worker_group_leave(group, has_ended), "the others may end at the same time");
    close_collective(group);
    release_names(group);
    fth_membership_close(group->membership);
    fth_rendezvous_stop(group->rendezvous);
    fth_group_view_release(&group->view);
    fth_launched_release(&group->launched);
    pthread_mutex_destroy(&group->mutex);
    free(group);
}
