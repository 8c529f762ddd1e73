/* See shm_group.h. */
#include "collective/shm_group.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/futex.h"
#include "collective/agree.h"
#include "collective/shared_memory.h"

enum {
    BOARD_BYTES = 4096,
    REASON_BYTES = 400,
    SPINS = 1000, /* about 40 us; less than it takes to sleep and be woken in a virtual machine */
    FIRST_NAP_MS = 1,
    LONGEST_NAP_MS = 5
};

/* Whether a member is still in the group. */
enum { PRESENT, LEAVING, GONE };

/* The first page of a member's region. */
typedef struct shm_board {
    _Alignas(64) _Atomic uint32_t step; /* futex */
    _Alignas(64) _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic uint32_t presence; /* LEAVING while `reason` is written */
    char reason[REASON_BYTES];
    fth_shm_call call;
} shm_board;
_Static_assert(sizeof(shm_board) <= BOARD_BYTES, "a board fits its page");

typedef struct shm_member {
    fth_shared_memory *region; /* board, then inbox */
    shm_board *board;
    fth_shared_memory *attached;     /* memory of another process */
    const fth_shared_memory *memory; /* that one, or this process's own; NULL: none */
    char *name;
    int process; /* pidfd; -1 for this process */
} shm_member;

struct fth_shm_group {
    int rank, size;
    double timeout_s;
    int spins;     /* before a wait becomes a sleep */
    uint32_t step; /* of this member */
    shm_member *members;
    struct pollfd *polls; /* of one check */
};

static void wake_sleepers(shm_board *board)
{
    if (atomic_load(&board->sleepers) > 0)
        fth_futex_wake(&board->step, INT_MAX);
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- opening ---- */

enum { KEY_BYTES = 40 };

static const char *place_key(char key[KEY_BYTES], int rank)
{
    snprintf(key, KEY_BYTES, "shm/place/%d", rank);
    return key;
}

/* A member's description is a line for its region, and one for its memory if it has any. */
static fth_status publish(const fth_shm_group *group, const fth_collective_options *options)
{
    char region[FTH_SHARED_PLACE], memory[FTH_SHARED_PLACE] = "", key[KEY_BYTES], text[2 * FTH_SHARED_PLACE];
    fth_shared_memory_describe(group->members[group->rank].region, region);
    if (options->memory)
        fth_shared_memory_describe(options->memory, memory);
    int length = snprintf(text, sizeof text, "%s\n%s", region, memory);
    return options->keys.put(options->keys.context, place_key(key, group->rank), text, (size_t)length);
}

static fth_status attach(fth_shm_group *group, int rank, char *description)
{
    fth_status status = FTH_OK;
    shm_member *peer = &group->members[rank];
    char *memory = strchr(description, '\n');

    FTH_REQUIRE(memory, FTH_CORRUPT, "not a description of shared memory: '%s'", description);
    *memory++ = '\0';
    /* First the process, then its memory: if the memory is the right one, so is the process. */
    peer->process = (int)syscall(SYS_pidfd_open, (pid_t)atol(description), 0);
    FTH_REQUIRE(peer->process >= 0, FTH_UNSUPPORTED, "cannot watch process %ld: %s", atol(description),
                strerror(errno));
    FTH_TRY(fth_shared_memory_attach(description, true, &peer->region));
    FTH_REQUIRE(fth_shared_memory_size(peer->region) == fth_shared_memory_size(group->members[group->rank].region),
                FTH_INVALID, "it has another version of farthing");
    peer->board = fth_shared_memory_get(peer->region);
    if (*memory) {
        FTH_TRY(fth_shared_memory_attach(memory, true, &peer->attached));
        peer->memory = peer->attached;
    }

out:
    return status;
}

static fth_status attach_all(fth_shm_group *group, const fth_key_store *keys, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    char key[KEY_BYTES], *description = NULL;

    for (int r = 0; r < group->size; r++) {
        if (r == group->rank)
            continue;
        status = fth_get_text(keys, place_key(key, r), deadline, &description);
        if (status == FTH_OK)
            status = attach(group, r, description);
        if (status != FTH_OK) {
            status = fth_fail_within(status, "cannot share memory with %s", group->members[r].name);
            goto out;
        }
        free(description);
        description = NULL;
    }

out:
    free(description);
    return status;
}

fth_status fth_shm_group_open(const fth_collective_options *options, size_t inbox_bytes, fth_shm_group **group)
{
    fth_status status = FTH_OK;
    fth_shm_group *made = NULL;
    double timeout_s = fth_collective_timeout(options);
    fth_deadline deadline = fth_deadline_in(timeout_s);

    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    *made = (fth_shm_group){.rank = options->rank, .size = options->size, .timeout_s = timeout_s};
    /* Not by those that this process may use: launchers bind each member to a processor of its
     * own. */
    made->spins = options->size <= fth_processors_online() ? SPINS : 0;
    FTH_TRY(fth_allocate((size_t)made->size, sizeof *made->members, &made->members));
    FTH_TRY(fth_allocate((size_t)made->size, sizeof *made->polls, &made->polls));
    for (int r = 0; r < made->size; r++) {
        made->members[r].process = -1;
        made->members[r].name = strdup(options->members[r].name);
        FTH_REQUIRE(made->members[r].name, FTH_NO_MEMORY, "no memory for a name");
    }
    shm_member *self = &made->members[made->rank];
    FTH_TRY(fth_shared_memory_create(BOARD_BYTES + inbox_bytes, &self->region));
    self->board = fth_shared_memory_get(self->region);
    self->memory = options->memory;
    FTH_TRY(publish(made, options));
    status = attach_all(made, &options->keys, deadline);
    FTH_TRY(fth_agree(&options->keys, "shm/attached", options->members, made->size, made->rank, status, deadline));
    *group = made;
    made = NULL;

out:
    fth_shm_group_close(made);
    return status;
}

static void leave(fth_shm_group *group, const char *reason)
{
    shm_board *own = group->members[group->rank].board;
    uint32_t present = PRESENT;
    if (!own || !atomic_compare_exchange_strong(&own->presence, &present, LEAVING))
        return;
    snprintf(own->reason, sizeof own->reason, "%s", reason);
    atomic_store(&own->presence, GONE);
    wake_sleepers(own);
}

void fth_shm_group_abort(fth_shm_group *group, const char *reason)
{
    leave(group, reason);
    for (int r = 0; r < group->size; r++) /* the thread of this process that waits sleeps on one of these */
        wake_sleepers(group->members[r].board);
}

void fth_shm_group_close(fth_shm_group *group)
{
    if (!group)
        return;
    if (group->members)
        leave(group, "it has closed its end");
    for (int r = 0; group->members && r < group->size; r++) {
        shm_member *each = &group->members[r];
        fth_shared_memory_free(each->region);
        fth_shared_memory_free(each->attached);
        free(each->name);
        if (each->process >= 0)
            close(each->process);
    }
    free(group->members);
    free(group->polls);
    free(group);
}

/* ---- steps ---- */

static bool has_come(const fth_shm_group *group, int rank)
{
    uint32_t step = atomic_load_explicit(&group->members[rank].board->step, memory_order_acquire);
    return (int32_t)(step - group->step) >= 0;
}

void fth_shm_group_step(fth_shm_group *group)
{
    shm_board *own = group->members[group->rank].board;
    atomic_store(&own->step, ++group->step);
    wake_sleepers(own);
}

/* Fails if a member has not come and never will. */
static fth_status check_members(fth_shm_group *group)
{
    shm_board *own = group->members[group->rank].board;
    if (atomic_load(&own->presence) == GONE)
        return fth_fail(FTH_PEER_LOST, "%s", own->reason);
    for (int r = 0; r < group->size; r++)
        group->polls[r] = (struct pollfd){.fd = group->members[r].process, .events = POLLIN};
    poll(group->polls, (nfds_t)group->size, 0);
    for (int r = 0; r < group->size; r++) {
        const shm_member *each = &group->members[r];
        bool gone = r != group->rank && atomic_load(&each->board->presence) == GONE;
        bool ended = group->polls[r].revents != 0;
        if ((!gone && !ended) || has_come(group, r)) /* what it did before it went counts */
            continue;
        if (gone)
            return fth_fail(FTH_PEER_LOST, "%s left the group: %.*s", each->name, REASON_BYTES - 1,
                            each->board->reason);
        return fth_fail(FTH_PEER_LOST, "%s has ended", each->name);
    }
    return FTH_OK;
}

static fth_status sleep_until_come(fth_shm_group *group, int rank)
{
    fth_status status = FTH_OK;
    shm_board *other = group->members[rank].board;
    fth_deadline deadline = fth_deadline_in(group->timeout_s);
    int nap_ms = FIRST_NAP_MS;

    atomic_fetch_add(&other->sleepers, 1);
    while (!has_come(group, rank)) {
        FTH_TRY(check_members(group));
        FTH_REQUIRE(!fth_deadline_passed(deadline), FTH_PEER_LOST, "%s has not answered for %g s",
                    group->members[rank].name, group->timeout_s);
        uint32_t step = atomic_load(&other->step);
        if ((int32_t)(step - group->step) < 0)
            fth_futex_sleep(&other->step, step, nap_ms / 1e3);
        nap_ms = nap_ms < LONGEST_NAP_MS ? nap_ms + 1 : LONGEST_NAP_MS;
    }

out:
    atomic_fetch_sub(&other->sleepers, 1);
    return status;
}

fth_status fth_shm_group_wait(fth_shm_group *group)
{
    fth_status status = FTH_OK;
    int spins = group->spins;
    for (int r = 0; r < group->size; r++) {
        for (; spins > 0 && !has_come(group, r); spins--)
            relax();
        if (!has_come(group, r))
            FTH_TRY(sleep_until_come(group, r));
    }

out:
    return status;
}

/* ---- what members have ---- */

const char *fth_shm_group_name(const fth_shm_group *group, int rank)
{
    return group->members[rank].name;
}

fth_shm_call *fth_shm_group_call(fth_shm_group *group, int rank)
{
    return &group->members[rank].board->call;
}

void *fth_shm_group_inbox(fth_shm_group *group, int rank)
{
    return (char *)group->members[rank].board + BOARD_BYTES;
}

uint64_t fth_shm_group_find(const fth_shm_group *group, const void *bytes, size_t size)
{
    const fth_shared_memory *memory = group->members[group->rank].memory;
    if (!memory)
        return FTH_SHM_ELSEWHERE;
    uintptr_t begin = (uintptr_t)fth_shared_memory_get(memory), at = (uintptr_t)bytes;
    size_t available = fth_shared_memory_size(memory);
    bool inside = at >= begin && at - begin <= available && size <= available - (at - begin);
    return inside ? at - begin : FTH_SHM_ELSEWHERE;
}

fth_status fth_shm_group_protect(fth_shm_group *group, uint64_t offset, size_t size)
{
    return fth_shared_memory_replace(group->members[group->rank].memory, offset, offset + size);
}

void *fth_shm_group_memory(const fth_shm_group *group, int rank, uint64_t offset, size_t size)
{
    const fth_shared_memory *memory = group->members[rank].memory;
    if (!memory || offset > fth_shared_memory_size(memory) || size > fth_shared_memory_size(memory) - offset)
        return NULL;
    return (char *)fth_shared_memory_get(memory) + offset;
}
