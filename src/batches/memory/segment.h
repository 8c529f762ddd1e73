/* A host's part of the cache: shared memory that one process owns and writes, and the jobs of the
 * host read in place.
 *
 * The memory is a memfd without a name, which the owner passes to clients over a Unix socket
 * (host.h): it vanishes with the last process that has it, whatever is killed. Clients get a
 * descriptor that can only be read.
 *
 *     header | index (a table by id, one writer, readers without locks) | entries
 *
 * A reader finds a row, announces in its slot of the board (board.h) that it is reading there,
 * looks at the row again, and checks the entry. The owner reuses memory only where no live client
 * announces anything. An entry that is being written is in no row yet, so a killed owner leaves
 * nothing half-written to be found; a process that takes over the memory builds its list of free
 * memory from the rows. */
#ifndef FTH_BATCHES_SEGMENT_H
#define FTH_BATCHES_SEGMENT_H

#include "batches/item.h"
#include "batches/memory/board.h"

typedef struct fth_segment_cache fth_segment_cache;

/* ---- the owner; any of its threads ---- */

fth_status fth_segment_create(uint64_t memory_bytes, fth_board *board, fth_segment_cache **segment);
/* Takes over what another process created and has left, with all whole entries in it. `fd`, which
 * may be the read-only one, is duplicated. `board` is the one that its clients have
 * (fth_board_adopt), or else they must be gone. FTH_CORRUPT if it is none, FTH_INVALID if its owner
 * is alive. */
fth_status fth_segment_adopt(int fd, fth_board *board, fth_segment_cache **segment);
/* What an owner has left in clients that are alive, if it was opened under the same name and with
 * as much memory; else new ones. So an owner that was killed finds its entries again. *found:
 * entries may be in it. */
fth_status fth_segment_open(const char *name, uint64_t memory_bytes, fth_board **board, fth_segment_cache **segment,
                            bool *found);
/* What it can be found under, not 0: a hash. */
void fth_segment_set_name(fth_segment_cache *segment, uint64_t name);
void fth_segment_free(fth_segment_cache *segment);
int fth_segment_read_only_fd(const fth_segment_cache *segment); /* lent */
uint64_t fth_segment_capacity(const fth_segment_cache *segment);
uint64_t
fth_segment_used(fth_segment_cache *segment); /* entries, those that are being written and those that are still read */

/* Room for an entry, at a 64-byte boundary; FTH_NO_MEMORY if there is none: evict, then try again;
 * FTH_INVALID if there never will be. */
fth_status fth_segment_begin(fth_segment_cache *segment, uint64_t size_bytes, void **entry);
/* Makes the entry visible, and wakes clients that wait for it. If the id is already there, the room
 * is freed again. */
void fth_segment_publish(fth_segment_cache *segment, void *entry, const fth_receipt *receipt);
void fth_segment_cancel(fth_segment_cache *segment, void *entry);
/* True if it was there. It is no longer found; its memory is free once nobody reads it. */
bool fth_segment_evict(fth_segment_cache *segment, fth_item_id id);
bool fth_segment_has(fth_segment_cache *segment, fth_item_id id, fth_receipt *receipt);
/* Holds an entry for the owner's own use (serving it to another host); let go with
 * fth_segment_release(). */
bool fth_segment_hold(fth_segment_cache *segment, fth_item_id id, const void **entry, uint64_t *size_bytes);
void fth_segment_release(fth_segment_cache *segment, const void *entry);
void fth_segment_visit(fth_segment_cache *segment, void (*visit)(void *context, const fth_receipt *receipt),
                       void *context);

/* ---- a client ---- */

typedef struct fth_segment_view fth_segment_view;
fth_status fth_segment_map(int fd, fth_segment_view **view); /* `fd` is duplicated */
void fth_segment_unmap(fth_segment_view *view);
/* Finds, pins and checks an entry: it stays as it is until it is unpinned. *found false: not there.
 * FTH_CORRUPT: there, and damaged. FTH_NO_SPACE: FTH_SLOT_PINS are pinned already. Any thread, each
 * with pins of its own; no locks and no system calls. */
typedef struct fth_pin {
    const void *entry;
    uint64_t size_bytes;
    int place; /* in the client's slot */
} fth_pin;
fth_status fth_segment_pin(fth_segment_view *view, fth_slot *slot, fth_item_id id, fth_pin *pin, bool *found);
void fth_segment_unpin(fth_slot *slot, fth_pin *pin);

#endif
