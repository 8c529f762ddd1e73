/* The index of a segment in shared memory: a hash table of fixed size with linear probing. A row's
 * state and a count of its changes share one word:
 *
 *     empty -> changing -> live -> changing -> empty
 *
 * A reader stops at an empty row and skips all others that do not have its id. It trusts a row if
 * the word is the same before reading the row and after announcing the pin; in that case the owner,
 * which changes the word first and looks for pins second, sees the pin. When a row is removed,
 * later rows move up, so that there are no tombstones. `moves` is odd meanwhile, and a reader that
 * found nothing looks again if it has changed.
 *
 * Only the owner writes, one thread at a time. */
#ifndef FTH_BATCHES_SEGMENT_INDEX_H
#define FTH_BATCHES_SEGMENT_INDEX_H

#include <stdatomic.h>

#include "batches/item.h"
#include "batches/memory/mapping.h"

#define FTH_SEGMENT_FILE  "farthing-batches"           /* as shown in /proc */
#define FTH_SEGMENT_MAGIC UINT64_C(0x31304d4745534646) /* "FFSEGM01" */

enum { FTH_ROW_EMPTY, FTH_ROW_CHANGING, FTH_ROW_LIVE, FTH_ROW_STATES = 3 };

typedef struct fth_segment_row {
    _Alignas(64) _Atomic uint64_t state; /* a ROW_ constant and a count of changes */
    _Atomic uint64_t id[2];
    _Atomic uint64_t offset; /* in the whole memory */
    _Atomic uint64_t size_bytes, checksum;
} fth_segment_row;

typedef struct fth_segment_header {
    uint64_t magic;
    uint64_t row_count;    /* a power of two */
    uint64_t entry_offset; /* where entries begin */
    uint64_t entry_bytes;
    _Atomic uint64_t moves; /* counts the beginning and end of each move: odd during moves */
    uint64_t name;          /* hash of the name it was opened under; 0: none */
    uint64_t board;         /* fth_board_number() */
    uint64_t reserved;
    fth_segment_row rows[];
} fth_segment_header;

/* The contents of a row. */
typedef struct fth_row_facts {
    fth_receipt receipt;
    uint64_t offset;
    bool evicted; /* has no row, but clients still read it */
} fth_row_facts;

uint64_t fth_rows_choose_count(uint64_t memory_bytes);
uint64_t fth_rows_end(uint64_t row_count); /* where entries can begin */
/* FTH_CORRUPT unless the header fits its memory. */
fth_status fth_segment_check_header(const fth_mapping *mapping);

/* Where the probe for an id starts. */
uint64_t fth_rows_home(uint64_t row_count, fth_item_id id);
/* The row of an id; or -1, and in *vacant the empty row it would get, if there is one. */
int64_t fth_rows_find(fth_segment_header *memory, uint64_t row_count, fth_item_id id, int64_t *vacant);
fth_row_facts fth_row_read(fth_segment_row *row);

void fth_row_set_state(fth_segment_row *row, int to);
void fth_row_write(fth_segment_row *row, const fth_row_facts *facts);
void fth_rows_begin_moves(fth_segment_header *memory);
void fth_rows_end_moves(fth_segment_header *memory);

#endif
