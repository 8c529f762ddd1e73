/* A host's part of the cache: shared memory that one process owns and writes, and the host's jobs
 * read in place.
 *
 * The memory is an anonymous memfd, which the owner passes to clients over a Unix socket (host.h):
 * it vanishes with the last process that has it, whatever is killed. Clients get a read-only
 * descriptor.
 *
 *     header | index (a table by id, one writer, lock-free readers) | entries
 *
 * A reader finds a row, announces in its slot of the board (board.h) that it reads there, looks at
 * the row again, and checks the entry. The owner reuses memory only if no live client announces it.
 * An entry in progress has no row, so a killed owner leaves no half-written entry to be found. A
 * process that takes over the memory rebuilds the list of free memory from the rows. */
#ifndef FTH_BATCHES_SEGMENT_H
#define FTH_BATCHES_SEGMENT_H

#include "batches/item.h"
#include "batches/memory/board.h"

typedef struct fth_segment_cache fth_segment_cache;

/* ---- the owner; any of its threads ---- */

fth_status fth_segment_create(uint64_t memory_bytes, fth_board *board, fth_segment_cache **segment);
/* Takes over memory that another process has left, with all complete entries. `fd`, which may be
 * the read-only one, is duplicated. `board` is that of its clients (fth_board_adopt); with another
 * board they must be gone. FTH_CORRUPT if it is not a segment, FTH_INVALID if its owner is
 * alive. */
fth_status fth_segment_adopt(int fd, fth_board *board, fth_segment_cache **segment);
/* Takes over what an owner of the same name and size has left in live clients, or else creates
 * both. So a killed owner finds its entries again. *found: there may be entries. */
fth_status fth_segment_open(const char *name, uint64_t memory_bytes, fth_board **board, fth_segment_cache **segment,
                            bool *found);
/* The name to be found under, a hash other than 0. */
void fth_segment_set_name(fth_segment_cache *segment, uint64_t name);
void fth_segment_free(fth_segment_cache *segment);
int fth_segment_read_only_fd(const fth_segment_cache *segment); /* lent */
uint64_t fth_segment_capacity(const fth_segment_cache *segment);
/* Of entries, including those in progress and evicted ones that are still read. */
uint64_t fth_segment_used(fth_segment_cache *segment);

/* Room for an entry, 64-byte aligned. FTH_NO_MEMORY if there is none: evict, then try again.
 * FTH_NO_SPACE if it is larger than the whole memory. */
fth_status fth_segment_begin(fth_segment_cache *segment, uint64_t size_bytes, void **entry);
/* Makes the entry visible, and wakes clients that wait for it. If the id already exists, the room
 * is freed. */
void fth_segment_publish(fth_segment_cache *segment, void *entry, const fth_receipt *receipt);
void fth_segment_cancel(fth_segment_cache *segment, void *entry);
/* True if it existed. It is no longer found; its memory is freed once nobody reads it. */
bool fth_segment_evict(fth_segment_cache *segment, fth_item_id id);
bool fth_segment_has(fth_segment_cache *segment, fth_item_id id, fth_receipt *receipt);
/* Holds an entry for the owner's own use, such as serving it over HTTP; release it with
 * fth_segment_release(). */
bool fth_segment_hold(fth_segment_cache *segment, fth_item_id id, const void **entry, uint64_t *size_bytes);
void fth_segment_release(fth_segment_cache *segment, const void *entry);
void fth_segment_visit(fth_segment_cache *segment, void (*visit)(void *context, const fth_receipt *receipt),
                       void *context);

/* ---- a client ---- */

typedef struct fth_segment_view fth_segment_view;
fth_status fth_segment_map(int fd, fth_segment_view **view); /* `fd` is duplicated */
void fth_segment_unmap(fth_segment_view *view);
/* Finds, pins and checks an entry, which stays unchanged until it is unpinned. *found false: it is
 * not there. FTH_CORRUPT: it is damaged. FTH_NO_SPACE: FTH_SLOT_PINS are pinned already. Any
 * thread; without locks and system calls. */
typedef struct fth_pin {
    const void *entry;
    uint64_t size_bytes;
    int place; /* in the client's slot */
} fth_pin;
fth_status fth_segment_pin(fth_segment_view *view, fth_slot *slot, fth_item_id id, fth_pin *pin, bool *found);
void fth_segment_unpin(fth_slot *slot, fth_pin *pin);

#endif
