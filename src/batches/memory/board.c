/* See board.h.
 *
 * A slot has three parts on separate cache lines: the wait (a futex word and the id), position and
 * counters, and the pins. What the owner relies on (which slots are taken, by which process and
 * job) is not in the shared memory, with one exception: an owner that takes over a board learns
 * from it which processes may have pins.
 *
 * Pins are hazard pointers. A client stores the offset and then checks that the row is still there;
 * the owner removes the row and then looks for the offset. All four steps are sequentially
 * consistent, so at least one side sees the other. */
#include "batches/memory/board.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/futex.h"
#include "batches/memory/mapping.h"

/* The futex word: the phase of the wait, its result, and a count that distinguishes one wait from
 * the next. */
enum { WAIT_NONE, WAIT_WAITING, WAIT_ENDED, WAIT_PHASES = 3, STATUS_SHIFT = 2, STATUS_MASK = 63, COUNT_STEP = 256 };
enum { POSITION_TRIES = 8, UNKNOWN_PROCESS = -1, HOLDER_SHIFT = 32 };
#define BOARD_MAGIC  UINT64_C(0x3130445241424646) /* "FFBARD01" */
#define POSITION_MAX (INT64_MAX / 4)

struct fth_slot {
    _Alignas(64) _Atomic uint32_t wait; /* futex */
    _Atomic uint64_t wanted[2];
    _Alignas(64) _Atomic uint64_t version; /* of the position: odd while it changes */
    _Atomic int64_t next, stride, end;
    _Atomic uint64_t holder; /* client that holds the slot, for an owner that takes over; 0: it has left */
    _Atomic uint64_t counters[FTH_SLOT_COUNTERS];
    _Atomic int64_t begin;                             /* part of the position */
    _Alignas(64) _Atomic uint64_t pins[FTH_SLOT_PINS]; /* offset + 1; 0: none */
};

typedef struct board_memory {
    uint64_t magic;
    uint64_t slot_bytes, slot_count;
    uint64_t number; /* random */
    _Alignas(64) fth_slot slots[FTH_BOARD_SLOTS];
} board_memory;

/* The owner's knowledge of a slot. */
typedef struct board_client {
    _Atomic bool taken; /* written with the mutex held */
    bool left_over;     /* of an earlier owner: no connection clears it; guarded by the mutex */
    uint64_t job;       /* likewise */
    int64_t process;    /* likewise */
} board_client;

struct fth_board {
    fth_mapping mapping;
    board_memory *memory;
    pthread_mutex_t mutex;
    board_client *clients; /* NULL in a client */
    _Atomic int used;      /* slots from here on were never taken */
    uint32_t taken;        /* a count that differs for every holder of a slot; guarded by mutex */
    fth_slot *own;         /* of a client */
    uint64_t own_holder;
    pid_t process;
};

/* ---- creating and mapping ---- */

static fth_status make_board(bool owner, fth_board **board)
{
    fth_status status = FTH_OK;
    fth_board *made = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->mapping.fd = -1;
    pthread_mutex_init(&made->mutex, NULL);
    /* Not where an earlier owner began. */
    made->taken = (uint32_t)(uint64_t)(fth_clock_wall_seconds() * 1e3);
    if (owner)
        FTH_TRY(fth_allocate(FTH_BOARD_SLOTS, sizeof *made->clients, &made->clients));
    *board = made;
    made = NULL;
out:
    fth_board_free(made);
    return status;
}

static fth_status map_board(fth_board *board, int fd)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_mapping_open(fd, true, sizeof *board->memory, &board->mapping));
    board->memory = board->mapping.bytes;
    FTH_REQUIRE(board->memory->magic == BOARD_MAGIC && board->memory->slot_bytes == sizeof(fth_slot) &&
                    board->memory->slot_count == FTH_BOARD_SLOTS,
                FTH_CORRUPT, "not a board of this version of the batch cache");
out:
    return status;
}

fth_status fth_board_create(fth_board **board)
{
    fth_status status = FTH_OK;
    fth_board *made = NULL;
    *board = NULL;
    FTH_TRY(make_board(true, &made));
    FTH_TRY(fth_mapping_create(FTH_BOARD_FILE, sizeof *made->memory, &made->mapping));
    made->memory = made->mapping.bytes;
    made->memory->slot_bytes = sizeof(fth_slot);
    made->memory->slot_count = FTH_BOARD_SLOTS;
    FTH_REQUIRE(getrandom(&made->memory->number, sizeof made->memory->number, 0) == sizeof made->memory->number, FTH_IO,
                "no random numbers: %s", strerror(errno));
    made->memory->magic = BOARD_MAGIC;
    *board = made;
    made = NULL;
out:
    fth_board_free(made);
    return status;
}

static bool process_has_ended(int64_t process)
{
    return process > 0 && process <= INT_MAX && kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

static void empty_slot(fth_slot *slot)
{
    for (int i = 0; i < FTH_SLOT_PINS; i++)
        atomic_store_explicit(&slot->pins[i], 0, memory_order_release);
    for (int i = 0; i < FTH_SLOT_COUNTERS; i++)
        atomic_store_explicit(&slot->counters[i], 0, memory_order_relaxed);
    atomic_store_explicit(&slot->version, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->begin, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->next, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->stride, 1, memory_order_relaxed);
    atomic_store_explicit(&slot->end, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->holder, 0, memory_order_relaxed);
    atomic_store(&slot->wait, WAIT_NONE);
}

fth_status fth_board_adopt(int fd, fth_board **board)
{
    fth_status status = FTH_OK;
    fth_board *made = NULL;
    *board = NULL;
    FTH_TRY(make_board(true, &made));
    FTH_TRY(map_board(made, fd));
    for (int i = 0; i < FTH_BOARD_SLOTS; i++) {
        fth_slot *slot = &made->memory->slots[i];
        uint64_t holder = atomic_load(&slot->holder);
        int64_t process = (int32_t)(uint32_t)holder;
        if (holder == 0 || process_has_ended(process)) {
            empty_slot(slot);
            continue;
        }
        made->clients[i].process = process;
        made->clients[i].left_over = true;
        made->clients[i].taken = true;
        made->used = i + 1;
    }
    *board = made;
    made = NULL;
out:
    fth_board_free(made);
    return status;
}

fth_status fth_board_map(int fd, fth_board **board)
{
    fth_status status = FTH_OK;
    fth_board *made = NULL;
    *board = NULL;
    FTH_TRY(make_board(false, &made));
    FTH_TRY(map_board(made, fd));
    *board = made;
    made = NULL;
out:
    fth_board_free(made);
    return status;
}

void fth_board_free(fth_board *board)
{
    if (!board)
        return;
    uint64_t holder = board->own_holder;
    /* Not in a forked process. Another client may already have the slot. */
    if (board->own && board->process == getpid())
        atomic_compare_exchange_strong(&board->own->holder, &holder, 0);
    fth_mapping_close(&board->mapping);
    pthread_mutex_destroy(&board->mutex);
    free(board->clients);
    free(board);
}

uint64_t fth_board_number(const fth_board *board)
{
    return board->memory->number;
}

uint64_t fth_board_number_of(int fd)
{
    board_memory head;
    size_t size = offsetof(board_memory, slots);
    bool is_board = pread(fd, &head, size, 0) == (ssize_t)size && head.magic == BOARD_MAGIC;
    return is_board ? head.number : 0;
}

int fth_board_fd(const fth_board *board)
{
    return board->mapping.fd;
}

/* ---- the owner ---- */

int fth_board_take(fth_board *board, uint64_t job, int64_t process)
{
    int found = -1;
    pthread_mutex_lock(&board->mutex);
    for (int i = 0; i < FTH_BOARD_SLOTS && found < 0; i++)
        if (!atomic_load(&board->clients[i].taken))
            found = i;
    if (found >= 0) {
        board_client *client = &board->clients[found];
        empty_slot(&board->memory->slots[found]);
        atomic_store(&board->memory->slots[found].holder,
                     (uint64_t)++board->taken << HOLDER_SHIFT |
                         (uint32_t)(process > 0 && process <= INT_MAX ? process : UNKNOWN_PROCESS));
        client->job = job;
        client->process = process;
        client->left_over = false;
        if (atomic_load(&board->used) <= found)
            atomic_store(&board->used, found + 1);
        atomic_store(&client->taken, true);
    }
    pthread_mutex_unlock(&board->mutex);
    return found;
}

static void clear_locked(fth_board *board, int slot)
{
    empty_slot(&board->memory->slots[slot]);
    atomic_store(&board->clients[slot].taken, false);
}

void fth_board_clear(fth_board *board, int slot)
{
    if (slot < 0 || slot >= FTH_BOARD_SLOTS)
        return;
    pthread_mutex_lock(&board->mutex);
    clear_locked(board, slot);
    pthread_mutex_unlock(&board->mutex);
}

void fth_board_clear_dead(fth_board *board)
{
    int used = atomic_load(&board->used);
    pthread_mutex_lock(&board->mutex);
    for (int i = 0; i < used; i++) {
        const board_client *client = &board->clients[i];
        if (atomic_load(&client->taken) && client->left_over &&
            (atomic_load(&board->memory->slots[i].holder) == 0 || process_has_ended(client->process)))
            clear_locked(board, i);
    }
    pthread_mutex_unlock(&board->mutex);
}

static int64_t clamp(int64_t value, int64_t least)
{
    return value < least ? least : value > POSITION_MAX ? POSITION_MAX : value;
}

/* A consistent position, unless the client changes it all the time: then a mix of values. */
static void read_position(fth_slot *slot, fth_slot_state *state)
{
    for (int i = 0; i < POSITION_TRIES; i++) {
        uint64_t before = atomic_load_explicit(&slot->version, memory_order_acquire);
        int64_t begin = atomic_load_explicit(&slot->begin, memory_order_acquire);
        int64_t next = atomic_load_explicit(&slot->next, memory_order_acquire);
        int64_t stride = atomic_load_explicit(&slot->stride, memory_order_acquire);
        int64_t end = atomic_load_explicit(&slot->end, memory_order_acquire);
        state->next = before == 0 ? -1 : clamp(next, 0);
        state->begin = before == 0 ? -1 : clamp(begin, 0);
        state->stride = clamp(stride, 1);
        state->end = clamp(end, 0);
        if (before % 2 == 0 && atomic_load_explicit(&slot->version, memory_order_relaxed) == before)
            break;
    }
}

/* Not relaxed: a thread that sees a new id here must see a new wait in `wait` when it looks
 * again. */
static fth_item_id read_wanted(fth_slot *slot)
{
    return (fth_item_id){{atomic_load_explicit(&slot->wanted[0], memory_order_acquire),
                          atomic_load_explicit(&slot->wanted[1], memory_order_acquire)}};
}

bool fth_board_read(fth_board *board, int slot, fth_slot_state *state)
{
    *state = (fth_slot_state){.stride = 1};
    if (slot < 0 || slot >= atomic_load_explicit(&board->used, memory_order_relaxed))
        return false;
    fth_slot *shared = &board->memory->slots[slot];
    pthread_mutex_lock(&board->mutex);
    const board_client *client = &board->clients[slot];
    bool taken = atomic_load(&client->taken) && !client->left_over;
    state->job = client->job;
    state->process = client->process;
    pthread_mutex_unlock(&board->mutex);
    if (!taken)
        return false;
    read_position(shared, state);
    uint32_t wait = atomic_load(&shared->wait);
    state->wanted = read_wanted(shared);
    state->waiting = (wait & WAIT_PHASES) == WAIT_WAITING && atomic_load(&shared->wait) == wait;
    for (int i = 0; i < FTH_SLOT_COUNTERS; i++)
        state->counters[i] = atomic_load_explicit(&shared->counters[i], memory_order_relaxed);
    return true;
}

static int compare_offsets(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

size_t fth_board_list_pins(const fth_board *board, uint64_t *offsets)
{
    size_t count = 0;
    int used = atomic_load(&board->used);
    for (int i = 0; i < used; i++) {
        if (!atomic_load(&board->clients[i].taken))
            continue;
        for (int j = 0; j < FTH_SLOT_PINS; j++) {
            uint64_t pin = atomic_load(&board->memory->slots[i].pins[j]);
            if (pin != 0)
                offsets[count++] = pin - 1;
        }
    }
    qsort(offsets, count, sizeof *offsets, compare_offsets);
    return count;
}

void fth_board_wake(fth_board *board, fth_item_id id, fth_status status)
{
    int used = atomic_load(&board->used);
    for (int i = 0; i < used; i++) {
        fth_slot *slot = &board->memory->slots[i];
        uint32_t wait = atomic_load(&slot->wait);
        if ((wait & WAIT_PHASES) != WAIT_WAITING || !fth_item_id_equal(read_wanted(slot), id))
            continue;
        uint32_t ended = (wait & ~(uint32_t)(COUNT_STEP - 1)) | (uint32_t)status << STATUS_SHIFT | WAIT_ENDED;
        if (atomic_compare_exchange_strong(&slot->wait, &wait, ended))
            fth_futex_wake(&slot->wait, INT_MAX);
    }
}

/* ---- a client ---- */

fth_slot *fth_board_slot(fth_board *board, int slot)
{
    if (slot < 0 || slot >= FTH_BOARD_SLOTS)
        return NULL;
    board->own = &board->memory->slots[slot];
    board->own_holder = atomic_load(&board->own->holder);
    board->process = getpid();
    return board->own;
}

void fth_slot_set_position(fth_slot *slot, int64_t next, int64_t stride, int64_t end)
{
    int64_t before = atomic_load_explicit(&slot->next, memory_order_relaxed);
    bool goes_on = atomic_load_explicit(&slot->version, memory_order_relaxed) > 0 && next >= before && stride > 0 &&
                   atomic_load_explicit(&slot->stride, memory_order_relaxed) == stride && (next - before) % stride == 0;
    uint64_t version = atomic_fetch_add(&slot->version, 1) + 1;
    if (!goes_on)
        atomic_store_explicit(&slot->begin, next, memory_order_release);
    atomic_store_explicit(&slot->next, next, memory_order_release);
    atomic_store_explicit(&slot->stride, stride, memory_order_release);
    atomic_store_explicit(&slot->end, end, memory_order_release);
    atomic_store_explicit(&slot->version, version + 1, memory_order_release);
}

void fth_slot_count(fth_slot *slot, fth_slot_counter counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&slot->counters[counter], amount, memory_order_relaxed);
}

void fth_slot_want(fth_slot *slot, fth_item_id id)
{
    uint32_t count = atomic_load(&slot->wait) & ~(uint32_t)(COUNT_STEP - 1);
    atomic_store(&slot->wait, count | WAIT_NONE); /* the id changes only while nobody waits */
    atomic_store_explicit(&slot->wanted[0], id.words[0], memory_order_release);
    atomic_store_explicit(&slot->wanted[1], id.words[1], memory_order_release);
    atomic_store(&slot->wait, (count + COUNT_STEP) | WAIT_WAITING);
}

void fth_slot_stop_wanting(fth_slot *slot)
{
    uint32_t count = atomic_load(&slot->wait) & ~(uint32_t)(COUNT_STEP - 1);
    atomic_store(&slot->wait, count | WAIT_NONE);
}

fth_status fth_slot_wait(fth_slot *slot, fth_deadline deadline)
{
    uint32_t wait = atomic_load(&slot->wait);
    while ((wait & WAIT_PHASES) == WAIT_WAITING && !fth_deadline_passed(deadline)) {
        fth_futex_sleep(&slot->wait, wait, fth_deadline_left_seconds(deadline));
        wait = atomic_load(&slot->wait);
    }
    fth_slot_stop_wanting(slot);
    if ((wait & WAIT_PHASES) == WAIT_WAITING)
        return fth_fail(FTH_TIMEOUT, "a cached item did not arrive in time");
    if ((wait & WAIT_PHASES) != WAIT_ENDED)
        return fth_fail(FTH_PEER_LOST, "the batch cache has dropped this client");
    uint32_t said = wait >> STATUS_SHIFT & STATUS_MASK;
    return said <= FTH_INTERRUPTED ? (fth_status)said : FTH_IO;
}

int fth_slot_pin(fth_slot *slot, uint64_t offset)
{
    for (int i = 0; i < FTH_SLOT_PINS; i++) {
        uint64_t none = 0;
        if (atomic_load_explicit(&slot->pins[i], memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong(&slot->pins[i], &none, offset + 1))
            return i;
    }
    return -1;
}

void fth_slot_unpin(fth_slot *slot, int place)
{
    atomic_store_explicit(&slot->pins[place], 0, memory_order_release);
}
