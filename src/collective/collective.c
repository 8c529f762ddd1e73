/* See collective.h. What all transports have in common: the choice of one, checks of arguments, and
 * the rule that a group in which a call has failed stays failed, in every member. */
#include "collective/collective.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective/transport.h"

const fth_transport *const fth_transports[] = {&fth_transport_shm, &fth_transport_gloo, &fth_transport_hierarchy, NULL};

struct fth_collective {
    const fth_transport *transport; /* NULL: one member */
    void *state;                    /* the transport's */
    int size;
    pthread_mutex_t mutex;
    char failure[500]; /* guarded by mutex: why every call fails from now on; "": none has failed */
};

/* ---- opening ---- */

/* True if some members share a machine; *all: all of them do. */
static bool share_machines(const fth_collective_options *options, bool *all)
{
    bool some = false;
    *all = true;
    for (int r = 0; r < options->size; r++) {
        *all = *all && options->members[r].node == options->members[0].node;
        for (int q = 0; q < r; q++)
            some = some || options->members[q].node == options->members[r].node;
    }
    return some;
}

static bool is_auto(const fth_collective_options *options)
{
    return !options->transport || strcmp(options->transport, "auto") == 0;
}

static const char *choose_transport(const fth_collective_options *options)
{
    bool all, some = share_machines(options, &all);
    return !is_auto(options) ? options->transport : all ? "shm" : some ? "shm+gloo" : "gloo";
}

static fth_status check_options(const fth_collective_options *options)
{
    bool all;
    if (options->size < 1 || options->rank < 0 || options->rank >= options->size)
        return fth_fail(FTH_INVALID, "no rank %d in a group of %d", options->rank, options->size);
    share_machines(options, &all);
    if (strcmp(choose_transport(options), "shm") == 0 && !all)
        return fth_fail(FTH_INVALID, "shm cannot connect %d members on several machines; choose auto or gloo",
                        options->size);
    return FTH_OK;
}

static fth_status open_transport(fth_collective *collective, const fth_collective_options *options, const char *name)
{
    fth_status status = FTH_OK;
    const fth_transport *const *transport = fth_transports, *loaded = NULL;

    while (*transport && strcmp((*transport)->name, name) != 0)
        transport++;
    FTH_REQUIRE(*transport, FTH_UNSUPPORTED, "this build of farthing has no transport '%s'", name);
    FTH_TRY(fth_transport_load(*transport, &loaded));
    FTH_TRY(loaded->open(options, &collective->state));
    collective->transport = loaded;

out:
    return status;
}

/* If members of one machine cannot share memory, because they are in different containers, all use
 * gloo. Shared memory fails in every member or in none. */
static fth_status open_any(fth_collective *collective, const fth_collective_options *options)
{
    const char *name = choose_transport(options);
    fth_status status = open_transport(collective, options, name);
    if (status != FTH_UNSUPPORTED || !is_auto(options) || strcmp(name, "gloo") == 0)
        return status;
    fth_log_info("%s; using gloo instead of shared memory", fth_error_message());
    return open_transport(collective, options, "gloo");
}

fth_status fth_collective_open(const fth_collective_options *options, fth_collective **collective)
{
    fth_status status = FTH_OK;
    fth_collective *made = NULL;

    FTH_TRY(check_options(options));
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    pthread_mutex_init(&made->mutex, NULL);
    made->size = options->size;
    if (options->size > 1)
        FTH_TRY(open_any(made, options));
    *collective = made;
    made = NULL;

out:
    fth_collective_close(made);
    return status;
}

void fth_collective_close(fth_collective *collective)
{
    if (!collective)
        return;
    if (collective->transport)
        collective->transport->close(collective->state);
    pthread_mutex_destroy(&collective->mutex);
    free(collective);
}

const char *fth_collective_transport(const fth_collective *collective)
{
    return collective->transport ? collective->transport->name : "none";
}

/* ---- failures ---- */

/* The first reason stays. */
static void set_failure(fth_collective *collective, const char *reason)
{
    pthread_mutex_lock(&collective->mutex);
    if (!collective->failure[0])
        snprintf(collective->failure, sizeof collective->failure, "%s", *reason ? reason : "the group has ended");
    pthread_mutex_unlock(&collective->mutex);
}

static fth_status check_alive(fth_collective *collective)
{
    fth_status status = FTH_OK;
    pthread_mutex_lock(&collective->mutex);
    if (collective->failure[0])
        status = fth_fail(FTH_PEER_LOST, "%s", collective->failure);
    pthread_mutex_unlock(&collective->mutex);
    return status;
}

void fth_collective_abort(fth_collective *collective, const char *reason)
{
    set_failure(collective, reason);
    if (collective->transport)
        collective->transport->abort(collective->state, reason);
}

/* Takes the status of a call. If it failed, the other members must not wait for this one. */
static fth_status finish(fth_collective *collective, fth_status status)
{
    char reason[sizeof collective->failure];
    if (status == FTH_OK)
        return status;
    snprintf(reason, sizeof reason, "%s", fth_error_message());
    fth_collective_abort(collective, reason);
    return fth_fail(status, "%s", reason);
}

/* ---- calls ---- */

static fth_status check_ranges(const fth_collective *collective, const size_t *begins)
{
    for (int r = 0; r < collective->size; r++)
        if (begins[r] > begins[r + 1])
            return fth_fail(FTH_INVALID, "range %d ends at %zu, before it begins at %zu", r, begins[r + 1], begins[r]);
    return FTH_OK;
}

/* Returns from the calling function, which has `collective`, if there is nothing to exchange. */
#define RETURN_UNLESS_NEEDED(size)                                                                                     \
    do {                                                                                                               \
        fth_status alive = check_alive(collective);                                                                    \
        if (alive != FTH_OK || !collective->transport || (size) == 0)                                                  \
            return alive;                                                                                              \
    } while (0)

fth_status fth_collective_all_reduce(fth_collective *collective, float *values, size_t count, fth_wire wire)
{
    RETURN_UNLESS_NEEDED(count);
    return finish(collective, collective->transport->all_reduce(collective->state, values, count, wire));
}

fth_status fth_collective_sum(fth_collective *collective, double *values, size_t count)
{
    RETURN_UNLESS_NEEDED(count);
    return finish(collective, collective->transport->sum(collective->state, values, count));
}

fth_status fth_collective_all_gather(fth_collective *collective, float *values, const size_t *begins)
{
    fth_status status = check_ranges(collective, begins);
    if (status != FTH_OK)
        return status;
    RETURN_UNLESS_NEEDED(begins[collective->size] - begins[0]);
    return finish(collective, collective->transport->all_gather(collective->state, values, begins));
}

fth_status fth_collective_broadcast(fth_collective *collective, void *bytes, size_t size, int root)
{
    if (root < 0 || root >= collective->size)
        return fth_fail(FTH_INVALID, "no rank %d in a group of %d", root, collective->size);
    RETURN_UNLESS_NEEDED(size);
    return finish(collective, collective->transport->broadcast(collective->state, bytes, size, root));
}
