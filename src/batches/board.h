/* The board of a host: memory that its clients write, and the owner of the segment reads. A slot for each client process says
 * which job it belongs to, where it is, what it is reading and what it waits for, so that positions and pins cost no
 * messages. Nothing in it is trusted: a client can spoil only its own slot, and numbers are checked when they are read.
 *
 * When a client's connection closes, the owner clears its slot. */
#ifndef FTH_BATCHES_BOARD_H
#define FTH_BATCHES_BOARD_H

#include <stdatomic.h>

#include "batches/item.h"

enum { FTH_BOARD_SLOTS = 1024, FTH_SLOT_PINS = 64 };

/* What a client counts, since it registered. */
typedef enum fth_slot_counter {
    FTH_SLOT_HITS,   /* items that were there when they were asked for */
    FTH_SLOT_WAITS,  /* items that were waited for */
    FTH_SLOT_MISSES, /* items that the job had to fetch and decode itself */
    FTH_SLOT_WAIT_NS,
    FTH_SLOT_BYTES,
    FTH_SLOT_FETCH_NS, /* of what it did itself */
    FTH_SLOT_DECODE_NS,
    FTH_SLOT_CORRUPT, /* entries that were damaged */
    FTH_SLOT_COUNTERS
} fth_slot_counter;

typedef struct fth_board fth_board;
typedef struct fth_slot fth_slot; /* in shared memory */

/* ---- the owner ---- */
fth_status fth_board_create(fth_board **board);
void fth_board_free(fth_board *board);
int fth_board_fd(const fth_board *board);
/* A free slot for a client of `job`; -1: none. */
int fth_board_take(fth_board *board, uint64_t job, int64_t process);
void fth_board_clear(fth_board *board, int slot);
typedef struct fth_slot_state {
    uint64_t job;
    int64_t process;
    int64_t next, stride, end; /* it needs batches next, next + stride, ...; below end (0: no end) */
    bool waiting;
    fth_item_id wanted; /* if it is waiting */
    uint64_t counters[FTH_SLOT_COUNTERS];
} fth_slot_state;
/* False if the slot is free. */
bool fth_board_read(const fth_board *board, int slot, fth_slot_state *state);
/* Whether any client announces that it reads `entry` (its offset in the segment). */
bool fth_board_is_pinned(const fth_board *board, uint64_t offset);
/* Ends the waits for an item: it is there, or has failed, which `status` says. */
void fth_board_wake(fth_board *board, fth_item_id id, fth_status status);

/* ---- a client ---- */
fth_status fth_board_map(int fd, fth_board **board);
fth_slot *fth_board_slot(fth_board *board, int slot);
void fth_slot_set_position(fth_slot *slot, int64_t next, int64_t stride, int64_t end);
void fth_slot_count(fth_slot *slot, fth_slot_counter counter, uint64_t amount);
/* Says what it waits for; then tell the host (host.h) and wait; FTH_TIMEOUT when the deadline passes, else what the owner
 * said. One thread of a slot at a time. */
void fth_slot_want(fth_slot *slot, fth_item_id id);
fth_status fth_slot_wait(fth_slot *slot, fth_deadline deadline);

#endif
