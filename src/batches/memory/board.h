/* The board of a host: shared memory that its clients write and the segment's owner reads. Each
 * client process has a slot with its job, its position, what it reads and what it waits for, so
 * that positions and pins cost no messages. Nothing on it is trusted: a client can only corrupt
 * what the owner knows about clients, and numbers are checked when they are read.
 *
 * When a client's connection closes, the owner clears its slot. A client that closes its connection
 * must have no pins. */
#ifndef FTH_BATCHES_BOARD_H
#define FTH_BATCHES_BOARD_H

#include <stdatomic.h>

#include "batches/item.h"

#define FTH_BOARD_FILE "farthing-board" /* as shown in /proc */
enum { FTH_BOARD_SLOTS = 1024, FTH_SLOT_PINS = 64 };

/* A client's counters since its registration. */
typedef enum fth_slot_counter {
    FTH_SLOT_HITS,   /* items that were there at once */
    FTH_SLOT_WAITS,  /* items that were waited for */
    FTH_SLOT_MISSES, /* items that the job fetched and decoded itself */
    FTH_SLOT_WAIT_NS,
    FTH_SLOT_BYTES,
    FTH_SLOT_FETCH_NS, /* of the job's own work */
    FTH_SLOT_DECODE_NS,
    FTH_SLOT_CORRUPT, /* entries that were damaged */
    FTH_SLOT_SAMPLES, /* samples of the batches taken, from wherever */
    FTH_SLOT_COUNTERS
} fth_slot_counter;

typedef struct fth_board fth_board;
typedef struct fth_slot fth_slot; /* in shared memory */

/* ---- the owner; any of its threads ---- */
fth_status fth_board_create(fth_board **board);
/* Takes over the board of an owner that is gone, whose clients may still read by their slots. These
 * stay taken until the clients have freed their boards or ended. `fd` is duplicated. FTH_CORRUPT if
 * it is not a board. */
fth_status fth_board_adopt(int fd, fth_board **board);
void fth_board_free(fth_board *board);
/* A random number that links a segment to its board; of a descriptor: 0 if it is not a board. */
uint64_t fth_board_number(const fth_board *board);
uint64_t fth_board_number_of(int fd);
int fth_board_fd(const fth_board *board);
/* A free slot for a client of `job`; -1: none. `process` 0: unknown. */
int fth_board_take(fth_board *board, uint64_t job, int64_t process);
void fth_board_clear(fth_board *board, int slot);
/* Clears adopted slots whose clients are gone, since no connection does. */
void fth_board_clear_dead(fth_board *board);
typedef struct fth_slot_state {
    uint64_t job;
    int64_t process;
    int64_t next, stride,
        end;       /* it needs batches next, next + stride, ... below end (0: no end); next is -1 until known */
    int64_t begin; /* it has taken begin, begin + stride, ... below next */
    bool waiting;
    fth_item_id wanted; /* while it is waiting */
    uint64_t counters[FTH_SLOT_COUNTERS];
} fth_slot_state;
/* False if the slot is free. */
bool fth_board_read(fth_board *board, int slot, fth_slot_state *state);
/* Lists the offsets that clients are reading, sorted; at most FTH_BOARD_SLOTS * FTH_SLOT_PINS.
 * Returns their number. */
size_t fth_board_list_pins(const fth_board *board, uint64_t *offsets);
/* Ends the waits for an item, which is ready or has failed with `status`. */
void fth_board_wake(fth_board *board, fth_item_id id, fth_status status);

/* ---- a client ---- */
fth_status fth_board_map(int fd, fth_board **board);  /* fth_board_free() it; `fd` is duplicated */
fth_slot *fth_board_slot(fth_board *board, int slot); /* the client's own; NULL: there is no such slot */
/* If it follows the last position by strides, the batches in between count as taken. */
void fth_slot_set_position(fth_slot *slot, int64_t next, int64_t stride, int64_t end);
void fth_slot_count(fth_slot *slot, fth_slot_counter counter, uint64_t amount);
/* Waiting for an item, one thread of a slot at a time:
 *
 *     want -> look once more -> tell the host (host.h) -> wait
 *                    found   -> stop wanting
 *
 * An item published after want() ends the wait. FTH_TIMEOUT when the deadline passes, else the
 * owner's status, without a message: ask the host for the reason. */
void fth_slot_want(fth_slot *slot, fth_item_id id);
void fth_slot_stop_wanting(fth_slot *slot);
fth_status fth_slot_wait(fth_slot *slot, fth_deadline deadline);
/* Announces that `offset` of the segment is being read (see fth_segment_pin()); -1: all
 * FTH_SLOT_PINS are in use. */
int fth_slot_pin(fth_slot *slot, uint64_t offset);
void fth_slot_unpin(fth_slot *slot, int place);

#endif
