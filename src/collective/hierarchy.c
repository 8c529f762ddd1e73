/* Collectives among several machines, some of which have several members: "shm+gloo".
 *
 * The members of a machine share memory. The first of them is its leader and takes part in the
 * exchange between machines for all of them. A sum is made in each machine, then among the leaders,
 * and the other members copy the result. Both halves are collectives of their own (shm.c, gloo.c)
 * with members, ranks and keys of their own.
 *
 * While leaders exchange, their members wait. Data goes in pieces, so that a slow link is not
 * mistaken for a leader that is stuck. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective/agree.h"
#include "collective/transport.h"

enum { PIECE_BYTES = 16 << 20 };

static const fth_transport *const inside = &fth_transport_shm;

/* The part of a key store under a prefix. */
typedef struct prefixed_keys {
    fth_key_store keys;
    char prefix[24];
} prefixed_keys;

typedef struct hierarchy {
    const fth_transport *between; /* gloo */
    void *local;                  /* of `inside`; NULL: this machine has one member */
    void *leaders;                /* of `between`; NULL: this member does not lead */
    int size, machines;
    int *machine;         /* of each rank, numbered in the order of their leaders */
    int *local_rank;      /* of each rank, in its machine */
    int rank, local_size; /* of this member */
    bool contiguous;      /* the members of each machine follow each other */
    size_t *begins;       /* machines + 1 of them, for one call */
    prefixed_keys local_keys, leader_keys;
} hierarchy;

/* ---- keys ---- */

static const char *add_prefix(const prefixed_keys *part, const char *key, char *text, size_t size)
{
    snprintf(text, size, "%s/%s", part->prefix, key);
    return text;
}

static fth_status put_prefixed(void *context, const char *key, const void *bytes, size_t size)
{
    char text[200];
    const prefixed_keys *part = context;
    return part->keys.put(part->keys.context, add_prefix(part, key, text, sizeof text), bytes, size);
}

static fth_status get_prefixed(void *context, const char *key, fth_deadline deadline, void **bytes, size_t *size)
{
    char text[200];
    const prefixed_keys *part = context;
    return part->keys.get(part->keys.context, add_prefix(part, key, text, sizeof text), deadline, bytes, size);
}

/* ---- opening ---- */

/* Numbers machines by their first member. */
static void number_members(hierarchy *all, const fth_member *members)
{
    all->contiguous = true;
    for (int r = 0; r < all->size; r++) {
        int first = 0;
        while (members[first].node != members[r].node)
            first++;
        all->machine[r] = first == r ? all->machines++ : all->machine[first];
        for (int q = first; q < r; q++) {
            all->local_rank[r] += all->machine[q] == all->machine[r];
            all->contiguous = all->contiguous && all->machine[q] == all->machine[r];
        }
    }
    for (int r = 0; r < all->size; r++)
        all->local_size += all->machine[r] == all->machine[all->rank];
}

/* Opens `transport` among the members that `takes_part` selects; this one has `rank` there. */
static fth_status open_part(hierarchy *all, const fth_collective_options *options, const fth_transport *transport,
                            bool (*takes_part)(const hierarchy *all, int rank), int rank, prefixed_keys *keys,
                            void **state)
{
    fth_status status = FTH_OK;
    fth_member *members = NULL;
    fth_collective_options part = *options;
    int unreached = -1, number = 0;

    FTH_TRY(fth_allocate((size_t)all->size, sizeof *members, &members));
    part.size = 0;
    for (int r = 0; r < all->size; r++)
        if (takes_part(all, r))
            members[part.size++] = options->members[r];
    keys->keys = options->keys;
    part.rank = rank;
    part.members = members;
    part.keys = (fth_key_store){keys, put_prefixed, get_prefixed};
    part.unreached = &unreached;
    if (part.size > 1)
        FTH_TRY(transport->open(&part, state));

out:
    for (int r = 0; unreached >= 0 && options->unreached && r < all->size; r++)
        if (takes_part(all, r) && number++ == unreached)
            *options->unreached = r;
    free(members);
    return status;
}

static bool is_local(const hierarchy *all, int rank)
{
    return all->machine[rank] == all->machine[all->rank];
}

static bool leads(const hierarchy *all, int rank)
{
    return all->local_rank[rank] == 0;
}

static void hierarchy_close(void *state)
{
    hierarchy *all = state;
    if (!all)
        return;
    if (all->leaders)
        all->between->close(all->leaders);
    if (all->local)
        inside->close(all->local);
    free(all->machine);
    free(all->local_rank);
    free(all->begins);
    free(all);
}

/* Exchanges whether the members of each machine have connected: all return the same. */
static fth_status agree_on_machines(hierarchy *all, const fth_collective_options *options, fth_status connected,
                                    fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_member *leaders = NULL;
    int number = leads(all, all->rank) ? all->machine[all->rank] : -1;

    FTH_TRY(fth_allocate((size_t)all->machines, sizeof *leaders, &leaders));
    for (int r = 0; r < all->size; r++)
        if (leads(all, r))
            leaders[all->machine[r]] = options->members[r];
    FTH_TRY(fth_agree(&options->keys, "machines", leaders, all->machines, number, connected, deadline));

out:
    free(leaders);
    return status;
}

/* Connects the leaders; their members wait, and learn why it failed. */
static fth_status connect_machines(hierarchy *all, const fth_collective_options *options)
{
    fth_status status = FTH_OK;
    double nothing = 0;
    char reason[400];

    if (leads(all, all->rank))
        status = fth_transport_load(&fth_transport_gloo, &all->between);
    if (leads(all, all->rank) && status == FTH_OK)
        status =
            open_part(all, options, all->between, leads, all->machine[all->rank], &all->leader_keys, &all->leaders);
    if (!all->local)
        return status;
    if (status == FTH_OK)
        return inside->sum(all->local, &nothing, 1);
    snprintf(reason, sizeof reason, "%s", fth_error_message());
    inside->abort(all->local, reason);
    return fth_fail(status, "%s", reason);
}

static fth_status hierarchy_open(const fth_collective_options *options, void **state)
{
    fth_status status = FTH_OK;
    hierarchy *all = NULL;

    FTH_TRY(fth_allocate(1, sizeof *all, &all));
    all->rank = options->rank;
    all->size = options->size;
    FTH_TRY(fth_allocate((size_t)all->size, sizeof *all->machine, &all->machine));
    FTH_TRY(fth_allocate((size_t)all->size, sizeof *all->local_rank, &all->local_rank));
    number_members(all, options->members);
    FTH_TRY(fth_allocate((size_t)all->machines + 1, sizeof *all->begins, &all->begins));
    snprintf(all->local_keys.prefix, sizeof all->local_keys.prefix, "machine%d", all->machine[all->rank]);
    snprintf(all->leader_keys.prefix, sizeof all->leader_keys.prefix, "leaders");
    fth_deadline deadline = fth_deadline_in(fth_collective_timeout(options));
    status = open_part(all, options, inside, is_local, all->local_rank[all->rank], &all->local_keys, &all->local);
    FTH_TRY(agree_on_machines(all, options, status, deadline));
    FTH_TRY(connect_machines(all, options));
    *state = all;
    all = NULL;

out:
    hierarchy_close(all);
    return status;
}

static void hierarchy_abort(void *state, const char *reason)
{
    hierarchy *all = state;
    if (all->leaders)
        all->between->abort(all->leaders, reason);
    if (all->local)
        inside->abort(all->local, reason);
}

/* ---- calls ---- */

/* Copies the leader's bytes to its machine. */
static fth_status copy_from_leader(hierarchy *all, void *bytes, size_t size)
{
    return all->local && size > 0 ? inside->broadcast(all->local, bytes, size, 0) : FTH_OK;
}

static fth_status hierarchy_all_reduce(void *state, float *values, size_t count, fth_wire wire)
{
    fth_status status = FTH_OK;
    hierarchy *all = state;
    const size_t most = PIECE_BYTES / sizeof *values;

    for (size_t at = 0; at < count; at += most) {
        size_t piece = count - at < most ? count - at : most;
        if (all->local)
            FTH_TRY(inside->all_reduce(all->local, values + at, piece, FTH_WIRE_F32));
        if (all->leaders)
            FTH_TRY(all->between->all_reduce(all->leaders, values + at, piece, wire));
        FTH_TRY(copy_from_leader(all, values + at, piece * sizeof *values));
    }

out:
    return status;
}

static fth_status hierarchy_sum(void *state, double *values, size_t count)
{
    fth_status status = FTH_OK;
    hierarchy *all = state;

    if (all->local)
        FTH_TRY(inside->sum(all->local, values, count));
    if (all->leaders)
        FTH_TRY(all->between->sum(all->leaders, values, count));
    FTH_TRY(copy_from_leader(all, values, count * sizeof *values));

out:
    return status;
}

/* The ranges of machines; each has members with consecutive ranks. */
static const size_t *join_ranges(hierarchy *all, const size_t *begins)
{
    for (int r = all->size - 1; r >= 0; r--)
        all->begins[all->machine[r]] = begins[r];
    all->begins[all->machines] = begins[all->size];
    return all->begins;
}

static fth_status hierarchy_broadcast(void *state, void *bytes, size_t size, int root)
{
    fth_status status = FTH_OK;
    hierarchy *all = state;
    bool roots_machine = is_local(all, root);

    for (size_t at = 0; at < size; at += PIECE_BYTES) {
        size_t piece = size - at < PIECE_BYTES ? size - at : PIECE_BYTES;
        char *part = (char *)bytes + at;
        if (roots_machine && all->local)
            FTH_TRY(inside->broadcast(all->local, part, piece, all->local_rank[root]));
        if (all->leaders)
            FTH_TRY(all->between->broadcast(all->leaders, part, piece, all->machine[root]));
        if (!roots_machine)
            FTH_TRY(copy_from_leader(all, part, piece));
    }

out:
    return status;
}

static fth_status hierarchy_all_gather(void *state, float *values, const size_t *begins)
{
    fth_status status = FTH_OK;
    hierarchy *all = state;

    if (!all->contiguous) {
        for (int r = 0; r < all->size; r++)
            if (begins[r + 1] > begins[r])
                FTH_TRY(hierarchy_broadcast(all, values + begins[r], (begins[r + 1] - begins[r]) * sizeof *values, r));
        goto out;
    }
    const size_t *ranges = join_ranges(all, begins);
    const size_t *local_begins = begins + all->rank - all->local_rank[all->rank];
    int machine = all->machine[all->rank];
    if (all->local && ranges[machine + 1] > ranges[machine])
        FTH_TRY(inside->all_gather(all->local, values, local_begins));
    if (all->leaders)
        FTH_TRY(all->between->all_gather(all->leaders, values, ranges));
    FTH_TRY(copy_from_leader(all, values + begins[0], (ranges[machine] - begins[0]) * sizeof *values));
    FTH_TRY(copy_from_leader(all, values + ranges[machine + 1],
                             (begins[all->size] - ranges[machine + 1]) * sizeof *values));

out:
    return status;
}

const fth_transport fth_transport_hierarchy = {
    .name = "shm+gloo",
    .summary = "shared memory in each machine, and gloo among one member of each",
    .open = hierarchy_open,
    .close = hierarchy_close,
    .abort = hierarchy_abort,
    .all_reduce = hierarchy_all_reduce,
    .sum = hierarchy_sum,
    .all_gather = hierarchy_all_gather,
    .broadcast = hierarchy_broadcast,
};
