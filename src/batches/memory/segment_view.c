/* A client's end of a segment (segment.h). */
#include <sched.h>
#include <stdlib.h>

#include "batches/memory/segment.h"
#include "batches/memory/segment_index.h"
#include "batches/memory/space.h"

enum { QUICK_LOOKS = 32 };
#define MOVES_S 0.1

struct fth_segment_view {
    fth_mapping mapping;
    fth_segment_header *memory; /* read-only */
    uint64_t row_count;         /* checked once; the value in memory is not used again */
    uint64_t entry_offset;
};

fth_status fth_segment_map(int fd, fth_segment_view **view)
{
    fth_status status = FTH_OK;
    fth_segment_view *made = NULL;

    *view = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    FTH_TRY(fth_mapping_open(fd, false, sizeof *made->memory, &made->mapping));
    made->memory = made->mapping.bytes;
    FTH_TRY(fth_segment_check_header(&made->mapping));
    made->row_count = made->memory->row_count;
    made->entry_offset = made->memory->entry_offset;
    *view = made;
    made = NULL;
out:
    fth_segment_unmap(made);
    return status;
}

void fth_segment_unmap(fth_segment_view *view)
{
    if (!view)
        return;
    fth_mapping_close(&view->mapping);
    free(view);
}

/* As fth_rows_find(), concurrent with the owner: an entry that is there all the time is found.
 * Waits for an owner that is preempted while it moves rows, but only for a moment, since it may
 * have been killed. */
static int64_t look_for_row(fth_segment_view *view, fth_item_id id)
{
    fth_deadline give_up = {0};
    for (int looks = 0;; looks++) {
        int64_t vacant;
        uint64_t moves = atomic_load(&view->memory->moves);
        int64_t at = fth_rows_find(view->memory, view->row_count, id, &vacant);
        if (at >= 0 || (moves % 2 == 0 && atomic_load(&view->memory->moves) == moves))
            return at;
        if (looks < QUICK_LOOKS)
            continue;
        if (looks == QUICK_LOOKS)
            give_up = fth_deadline_in(MOVES_S);
        else if (fth_deadline_passed(give_up))
            return -1;
        sched_yield();
    }
}

/* Finds and pins an entry; its row is known to have existed after the pin was announced. */
static fth_status find_and_pin(fth_segment_view *view, fth_slot *slot, fth_item_id id, fth_row_facts *facts, int *place)
{
    int64_t at;
    *place = -1;
    while ((at = look_for_row(view, id)) >= 0) {
        fth_segment_row *row = &view->memory->rows[at];
        uint64_t state = atomic_load(&row->state);
        *facts = fth_row_read(row);
        if ((state & FTH_ROW_STATES) != FTH_ROW_LIVE || !fth_item_id_equal(facts->receipt.id, id))
            continue; /* it was just removed or moved */
        *place = fth_slot_pin(slot, facts->offset);
        if (*place < 0)
            return fth_fail(FTH_NO_SPACE, "%d cached items are in use at once; give some back", (int)FTH_SLOT_PINS);
        if (atomic_load(&row->state) == state)
            return FTH_OK;
        fth_slot_unpin(slot, *place);
        *place = -1;
    }
    return FTH_OK;
}

fth_status fth_segment_pin(fth_segment_view *view, fth_slot *slot, fth_item_id id, fth_pin *pin, bool *found)
{
    fth_status status = FTH_OK;
    fth_row_facts facts;
    int place = -1;

    *found = false;
    *pin = (fth_pin){.place = -1};
    FTH_TRY(find_and_pin(view, slot, id, &facts, &place));
    if (place < 0)
        goto out;
    FTH_REQUIRE(facts.offset >= view->entry_offset && facts.offset % FTH_SPACE_UNIT == 0 &&
                    facts.offset < view->mapping.size_bytes &&
                    facts.receipt.size_bytes <= view->mapping.size_bytes - facts.offset,
                FTH_CORRUPT, "the index of the batch cache is damaged");
    const void *entry = (const char *)view->mapping.bytes + facts.offset;
    FTH_TRY(fth_item_check(entry, facts.receipt.size_bytes, id, &facts.receipt));
    *pin = (fth_pin){.entry = entry, .size_bytes = facts.receipt.size_bytes, .place = place};
    *found = true;
out:
    if (status != FTH_OK && place >= 0)
        fth_slot_unpin(slot, place);
    return status;
}

void fth_segment_unpin(fth_slot *slot, fth_pin *pin)
{
    if (pin->place >= 0)
        fth_slot_unpin(slot, pin->place);
    *pin = (fth_pin){.place = -1};
}
