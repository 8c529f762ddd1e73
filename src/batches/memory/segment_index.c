/* See segment_index.h. */
#include "batches/memory/segment_index.h"

#include "batches/memory/space.h"

enum { MIN_ROWS = 1 << 10, MAX_ROWS = 1 << 22, BYTES_PER_ROW = 1024 };

uint64_t fth_rows_choose_count(uint64_t memory_bytes)
{
    uint64_t rows = MIN_ROWS;
    while (rows < MAX_ROWS && rows < memory_bytes / BYTES_PER_ROW)
        rows *= 2;
    return rows;
}

uint64_t fth_rows_end(uint64_t row_count)
{
    return fth_align_up(sizeof(fth_segment_header) + row_count * sizeof(fth_segment_row), 4096);
}

uint64_t fth_rows_home(uint64_t row_count, fth_item_id id)
{
    return (id.words[0] ^ id.words[1] * UINT64_C(0x9e3779b97f4a7c15)) & (row_count - 1);
}

static bool row_has_id(fth_segment_row *row, fth_item_id id)
{
    return atomic_load_explicit(&row->id[0], memory_order_acquire) == id.words[0] &&
           atomic_load_explicit(&row->id[1], memory_order_acquire) == id.words[1];
}

fth_row_facts fth_row_read(fth_segment_row *row)
{
    fth_row_facts facts = {
        .receipt = {.id = {{atomic_load_explicit(&row->id[0], memory_order_acquire),
                            atomic_load_explicit(&row->id[1], memory_order_acquire)}},
                    .size_bytes = atomic_load_explicit(&row->size_bytes, memory_order_acquire),
                    .checksum = atomic_load_explicit(&row->checksum, memory_order_acquire)},
        .offset = atomic_load_explicit(&row->offset, memory_order_acquire),
    };
    return facts;
}

/* The row's next state word. */
static uint64_t changed_state(uint64_t state, int to)
{
    return (state | FTH_ROW_STATES) + 1 + (uint64_t)to;
}

void fth_row_set_state(fth_segment_row *row, int to)
{
    atomic_store(&row->state, changed_state(atomic_load(&row->state), to));
}

void fth_row_write(fth_segment_row *row, const fth_row_facts *facts)
{
    fth_row_set_state(row, FTH_ROW_CHANGING);
    atomic_store_explicit(&row->id[0], facts->receipt.id.words[0], memory_order_release);
    atomic_store_explicit(&row->id[1], facts->receipt.id.words[1], memory_order_release);
    atomic_store_explicit(&row->size_bytes, facts->receipt.size_bytes, memory_order_release);
    atomic_store_explicit(&row->checksum, facts->receipt.checksum, memory_order_release);
    atomic_store_explicit(&row->offset, facts->offset, memory_order_release);
    fth_row_set_state(row, FTH_ROW_LIVE);
}

int64_t fth_rows_find(fth_segment_header *memory, uint64_t row_count, fth_item_id id, int64_t *vacant)
{
    uint64_t at = fth_rows_home(row_count, id);
    *vacant = -1;
    for (uint64_t i = 0; i < row_count; i++, at = (at + 1) & (row_count - 1)) {
        fth_segment_row *row = &memory->rows[at];
        int state = (int)(atomic_load_explicit(&row->state, memory_order_acquire) & FTH_ROW_STATES);
        if (state == FTH_ROW_EMPTY) {
            *vacant = (int64_t)at;
            return -1;
        }
        if (state == FTH_ROW_LIVE && row_has_id(row, id))
            return (int64_t)at;
    }
    return -1;
}

void fth_rows_begin_moves(fth_segment_header *memory)
{
    atomic_store(&memory->moves, atomic_load(&memory->moves) | 1);
}

void fth_rows_end_moves(fth_segment_header *memory)
{
    atomic_store(&memory->moves, (atomic_load(&memory->moves) | 1) + 1);
}

fth_status fth_segment_check_header(const fth_mapping *mapping)
{
    const fth_segment_header *memory = mapping->bytes;
    uint64_t rows = memory->row_count, entries = memory->entry_bytes;
    if (memory->magic != FTH_SEGMENT_MAGIC || rows < MIN_ROWS || rows > MAX_ROWS || (rows & (rows - 1)) != 0 ||
        memory->entry_offset != fth_rows_end(rows) || memory->entry_offset >= mapping->size_bytes ||
        entries != mapping->size_bytes - memory->entry_offset || entries % FTH_SPACE_UNIT != 0)
        return fth_fail(FTH_CORRUPT, "not a segment of this version of the batch cache");
    return FTH_OK;
}
