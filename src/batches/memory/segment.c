/* The owner of a segment: see segment.h, and segment_index.h for the protocol with readers.
 *
 * space.h allocates the memory; its state is private to the owner. Evicted entries wait in
 * `retired` until no client pins them and the owner does not hold them.
 *
 * A process owns the memory while it holds a lock on the file (flock), which ends with the
 * process. */
#include "batches/memory/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "batches/memory/mapping.h"
#include "batches/memory/segment_index.h"
#include "batches/memory/space.h"

enum { MANY_RETIRED = 32 };

/* An entry with memory: in progress, evicted, or held by the owner. */
typedef struct segment_entry {
    uint32_t block;
    uint64_t offset; /* in the whole memory */
    int holds;       /* for held entries */
} segment_entry;

typedef struct segment_list {
    segment_entry *entries;
    size_t count, capacity;
} segment_list;

struct fth_segment_cache {
    fth_mapping mapping;
    int read_only_fd;
    fth_board *board;
    fth_segment_header *memory;
    pthread_mutex_t mutex; /* guards the members below */
    fth_space *space;
    uint32_t *blocks; /* of each live row */
    uint64_t live;    /* number of live rows */
    uint64_t backed;  /* entries that end before this offset have pages */
    segment_list begun, retired, held;
    uint64_t *pins; /* room for fth_board_list_pins() */
};

/* ---- lists ---- */

static fth_status add_to_list(segment_list *list, segment_entry entry)
{
    fth_status status = fth_grow(&list->entries, list->count, &list->capacity, sizeof *list->entries);
    if (status == FTH_OK)
        list->entries[list->count++] = entry;
    return status;
}

static segment_entry *find_in_list(const segment_list *list, uint64_t offset)
{
    for (size_t i = list->count; i-- > 0;)
        if (list->entries[i].offset == offset)
            return &list->entries[i];
    return NULL;
}

static void remove_from_list(segment_list *list, segment_entry *entry)
{
    *entry = list->entries[--list->count];
}

/* ---- creating ---- */

static fth_status make_segment(fth_board *board, fth_segment_cache **segment)
{
    fth_status status = FTH_OK;
    fth_segment_cache *made = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->mapping.fd = made->read_only_fd = -1;
    made->board = board;
    pthread_mutex_init(&made->mutex, NULL);
    FTH_TRY(fth_allocate((size_t)FTH_BOARD_SLOTS * FTH_SLOT_PINS, sizeof *made->pins, &made->pins));
    *segment = made;
    made = NULL;
out:
    fth_segment_free(made);
    return status;
}

/* Common to both ways of opening one, once the memory has its header. */
static fth_status become_owner(fth_segment_cache *segment)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(flock(segment->mapping.fd, LOCK_EX | LOCK_NB) == 0, FTH_INVALID,
                "the memory of the batch cache belongs to a running process");
    FTH_TRY(fth_mapping_reopen(segment->mapping.fd, false, &segment->read_only_fd));
    FTH_TRY(fth_space_create(segment->memory->entry_bytes, &segment->space));
    segment->backed = segment->memory->entry_offset;
    FTH_TRY(fth_allocate(segment->memory->row_count, sizeof *segment->blocks, &segment->blocks));
out:
    return status;
}

fth_status fth_segment_create(uint64_t memory_bytes, fth_board *board, fth_segment_cache **segment)
{
    fth_status status = FTH_OK;
    fth_segment_cache *made = NULL;
    uint64_t rows = fth_rows_choose_count(memory_bytes), entries = memory_bytes / FTH_SPACE_UNIT * FTH_SPACE_UNIT;

    *segment = NULL;
    FTH_REQUIRE(entries > 0 && entries < (uint64_t)INT64_MAX / 2, FTH_INVALID,
                "the batch cache cannot have %" PRIu64 " bytes of memory", memory_bytes);
    FTH_TRY(make_segment(board, &made));
    FTH_TRY(fth_mapping_create(FTH_SEGMENT_FILE, fth_rows_end(rows) + entries, &made->mapping));
    made->memory = made->mapping.bytes;
    made->memory->row_count = rows;
    made->memory->entry_offset = fth_rows_end(rows);
    made->memory->entry_bytes = entries;
    made->memory->board = fth_board_number(board);
    FTH_TRY(become_owner(made));
    made->memory->magic = FTH_SEGMENT_MAGIC;
    *segment = made;
    made = NULL;
out:
    fth_segment_free(made);
    return status;
}

static void free_list(segment_list *list)
{
    free(list->entries);
}

void fth_segment_free(fth_segment_cache *segment)
{
    if (!segment)
        return;
    fth_mapping_close(&segment->mapping);
    if (segment->read_only_fd >= 0)
        close(segment->read_only_fd);
    pthread_mutex_destroy(&segment->mutex);
    fth_space_free(segment->space);
    free(segment->blocks);
    free_list(&segment->begun);
    free_list(&segment->retired);
    free_list(&segment->held);
    free(segment->pins);
    free(segment);
}

/* ---- taking over ---- */

/* By offset; a row precedes a pin of the same place. */
static int compare_places(const void *a, const void *b)
{
    const fth_row_facts *left = a, *right = b;
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    return (int)left->evicted - (int)right->evicted;
}

/* Whether a row of unknown origin can be an entry's: it lies inside, and the header there agrees.
 * Readers check the payload. */
static bool row_is_plausible(const fth_segment_cache *segment, const fth_row_facts *facts)
{
    const fth_segment_header *memory = segment->memory;
    fth_item_header header;
    if (facts->offset < memory->entry_offset || facts->offset % FTH_SPACE_UNIT != 0 ||
        facts->offset >= segment->mapping.size_bytes || facts->receipt.size_bytes < sizeof header ||
        facts->receipt.size_bytes > segment->mapping.size_bytes - facts->offset)
        return false;
    memcpy(&header, (const char *)segment->mapping.bytes + facts->offset, sizeof header);
    return header.magic == FTH_ITEM_MAGIC && header.kind < FTH_ITEM_KINDS &&
           fth_item_id_equal(header.id, facts->receipt.id) && header.checksum == facts->receipt.checksum &&
           header.payload_bytes == facts->receipt.size_bytes - sizeof header;
}

static fth_status list_rows(fth_segment_cache *segment, fth_row_facts **rows, size_t *count)
{
    fth_status status = FTH_OK;
    size_t capacity = 0;
    for (uint64_t i = 0; i < segment->memory->row_count; i++) {
        fth_segment_row *row = &segment->memory->rows[i];
        if ((atomic_load(&row->state) & FTH_ROW_STATES) != FTH_ROW_LIVE)
            continue;
        FTH_TRY(fth_grow(rows, *count, &capacity, sizeof **rows));
        (*rows)[(*count)++] = fth_row_read(row);
    }
out:
    return status;
}

/* Adds what clients read without a row: entries that the last owner had evicted. Their headers give
 * the sizes. */
static fth_status list_pinned(fth_segment_cache *segment, fth_row_facts **rows, size_t *count)
{
    fth_status status = FTH_OK;
    fth_item_header header;
    size_t capacity = *count, pin_count = fth_board_list_pins(segment->board, segment->pins);
    for (size_t i = 0; i < pin_count; i++) {
        uint64_t offset = segment->pins[i];
        if (offset % FTH_SPACE_UNIT != 0 || offset > segment->mapping.size_bytes - sizeof header)
            continue;
        memcpy(&header, (const char *)segment->mapping.bytes + offset, sizeof header);
        FTH_TRY(fth_grow(rows, *count, &capacity, sizeof **rows));
        (*rows)[(*count)++] = (fth_row_facts){.receipt = {.id = header.id,
                                                          .size_bytes = sizeof header + header.payload_bytes,
                                                          .checksum = header.checksum},
                                              .offset = offset,
                                              .evicted = true};
    }
out:
    return status;
}

/* Gives a row of the last owner memory and a new row, if it is plausible and overlaps nothing
 * before it. */
static fth_status adopt_row(fth_segment_cache *segment, const fth_row_facts *row)
{
    fth_segment_header *memory = segment->memory;
    int64_t vacant = -1;
    if (!row_is_plausible(segment, row) ||
        (!row->evicted && (fth_rows_find(memory, memory->row_count, row->receipt.id, &vacant) >= 0 || vacant < 0)))
        return FTH_OK;
    uint32_t block = fth_space_take_at(segment->space, row->offset - memory->entry_offset, row->receipt.size_bytes);
    if (block == FTH_NO_BLOCK)
        return FTH_OK;
    if (row->evicted)
        return add_to_list(&segment->retired, (segment_entry){.block = block, .offset = row->offset});
    fth_row_write(&memory->rows[vacant], row);
    segment->blocks[vacant] = block;
    segment->live++;
    return FTH_OK;
}

/* Rebuilds the index from the last owner's rows, and keeps memory that clients read. All rows are
 * removed before pins are listed, so that a client that finds a row meanwhile notices its
 * removal. */
static fth_status adopt_rows(fth_segment_cache *segment)
{
    fth_status status = FTH_OK;
    fth_row_facts *rows = NULL;
    size_t count = 0;

    fth_rows_begin_moves(segment->memory);
    FTH_TRY(list_rows(segment, &rows, &count));
    for (uint64_t i = 0; i < segment->memory->row_count; i++)
        fth_row_set_state(&segment->memory->rows[i], FTH_ROW_EMPTY);
    FTH_TRY(list_pinned(segment, &rows, &count));
    if (count > 0)
        qsort(rows, count, sizeof *rows, compare_places);
    for (size_t i = 0; i < count; i++)
        FTH_TRY(adopt_row(segment, &rows[i]));
    fth_rows_end_moves(segment->memory);
out:
    free(rows);
    return status;
}

fth_status fth_segment_adopt(int fd, fth_board *board, fth_segment_cache **segment)
{
    fth_status status = FTH_OK;
    fth_segment_cache *made = NULL;

    *segment = NULL;
    FTH_TRY(make_segment(board, &made));
    FTH_TRY(fth_mapping_open(fd, true, sizeof *made->memory, &made->mapping));
    made->memory = made->mapping.bytes;
    FTH_TRY(fth_segment_check_header(&made->mapping));
    FTH_TRY(become_owner(made));
    made->memory->board = fth_board_number(board);
    FTH_TRY(adopt_rows(made));
    *segment = made;
    made = NULL;
out:
    fth_segment_free(made);
    return status;
}

/* ---- the owner ---- */

void fth_segment_set_name(fth_segment_cache *segment, uint64_t name)
{
    segment->memory->name = name;
}

int fth_segment_read_only_fd(const fth_segment_cache *segment)
{
    return segment->read_only_fd;
}

uint64_t fth_segment_capacity(const fth_segment_cache *segment)
{
    return segment->memory->entry_bytes;
}

static uint64_t offset_of(const fth_segment_cache *segment, const void *entry)
{
    return (uint64_t)((const char *)entry - (const char *)segment->mapping.bytes);
}

static bool is_pinned(const fth_segment_cache *segment, size_t pin_count, uint64_t offset)
{
    size_t low = 0, high = pin_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (segment->pins[middle] < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < pin_count && segment->pins[low] == offset;
}

/* Frees the memory of evicted entries without readers. */
static void free_retired(fth_segment_cache *segment)
{
    if (segment->retired.count == 0)
        return;
    size_t pin_count = fth_board_list_pins(segment->board, segment->pins);
    for (size_t i = segment->retired.count; i-- > 0;) {
        segment_entry *entry = &segment->retired.entries[i];
        if (is_pinned(segment, pin_count, entry->offset) || find_in_list(&segment->held, entry->offset))
            continue;
        fth_space_give_back(segment->space, entry->block);
        remove_from_list(&segment->retired, entry);
    }
}

uint64_t fth_segment_used(fth_segment_cache *segment)
{
    pthread_mutex_lock(&segment->mutex);
    free_retired(segment);
    uint64_t used = fth_space_used(segment->space);
    pthread_mutex_unlock(&segment->mutex);
    return used;
}

/* Allocates memory. With the mutex held. */
static uint32_t take_block(fth_segment_cache *segment, uint64_t size_bytes)
{
    if (segment->live + segment->begun.count >= segment->memory->row_count / 4 * 3)
        return FTH_NO_BLOCK;
    uint32_t block = fth_space_take(segment->space, size_bytes);
    if (block == FTH_NO_BLOCK && segment->retired.count > 0) {
        free_retired(segment);
        block = fth_space_take(segment->space, size_bytes);
    }
    return block;
}

/* Allocates pages for an entry that may have none, so that a lack of memory is an error and not a
 * signal. */
static fth_status back_entry(fth_segment_cache *segment, uint64_t begin, uint64_t end)
{
    int result;
    do
        result = fallocate(segment->mapping.fd, 0, (off_t)begin, (off_t)(end - begin));
    while (result != 0 && errno == EINTR);
    if (result != 0)
        return fth_fail(FTH_NO_MEMORY, "no memory for %.1f MB of the batch cache: %s; use a smaller --cache-memory",
                        (double)(end - begin) / 1e6, strerror(errno));
    pthread_mutex_lock(&segment->mutex);
    if (begin <= segment->backed && end > segment->backed)
        segment->backed = end;
    pthread_mutex_unlock(&segment->mutex);
    return FTH_OK;
}

fth_status fth_segment_begin(fth_segment_cache *segment, uint64_t size_bytes, void **entry)
{
    fth_status status = FTH_OK;
    uint64_t begin = 0, end = 0;

    *entry = NULL;
    uint64_t whole = segment->mapping.size_bytes - segment->memory->entry_offset;
    FTH_REQUIRE(size_bytes <= whole, FTH_NO_SPACE,
                "its %.1f MB exceed the whole cache of %.1f MB: increase --cache-memory, or use "
                "smaller batches",
                (double)size_bytes / 1e6, (double)whole / 1e6);
    pthread_mutex_lock(&segment->mutex);
    uint32_t block = take_block(segment, size_bytes);
    bool taken = block != FTH_NO_BLOCK;
    if (taken) {
        begin = segment->memory->entry_offset + fth_space_offset(segment->space, block);
        end = begin + fth_space_size(segment->space, block);
        status = add_to_list(&segment->begun, (segment_entry){.block = block, .offset = begin});
        if (status != FTH_OK)
            fth_space_give_back(segment->space, block);
    }
    bool backed = end <= segment->backed;
    pthread_mutex_unlock(&segment->mutex);
    FTH_TRY(status);
    FTH_REQUIRE(taken, FTH_NO_MEMORY, "the batch cache has no room for %" PRIu64 " bytes", size_bytes);
    *entry = (char *)segment->mapping.bytes + begin;
    if (!backed && (status = back_entry(segment, begin, end)) != FTH_OK) {
        fth_segment_cancel(segment, *entry);
        *entry = NULL;
    }
out:
    return status;
}

void fth_segment_publish(fth_segment_cache *segment, void *entry, const fth_receipt *receipt)
{
    fth_segment_header *memory = segment->memory;
    int64_t vacant;

    pthread_mutex_lock(&segment->mutex);
    segment_entry *begun = find_in_list(&segment->begun, offset_of(segment, entry));
    if (begun) {
        fth_row_facts facts = {.receipt = *receipt, .offset = begun->offset};
        uint32_t block = begun->block;
        remove_from_list(&segment->begun, begun);
        if (fth_rows_find(memory, memory->row_count, receipt->id, &vacant) >= 0 || vacant < 0 ||
            receipt->size_bytes > fth_space_size(segment->space, block)) {
            fth_space_give_back(segment->space, block);
        } else {
            fth_space_shrink(segment->space, block, receipt->size_bytes);
            segment->blocks[vacant] = block;
            segment->live++;
            fth_row_write(&memory->rows[vacant], &facts);
        }
    }
    pthread_mutex_unlock(&segment->mutex);
    fth_board_wake(segment->board, receipt->id, FTH_OK);
}

void fth_segment_cancel(fth_segment_cache *segment, void *entry)
{
    pthread_mutex_lock(&segment->mutex);
    segment_entry *begun = find_in_list(&segment->begun, offset_of(segment, entry));
    if (begun) {
        fth_space_give_back(segment->space, begun->block);
        remove_from_list(&segment->begun, begun);
    }
    pthread_mutex_unlock(&segment->mutex);
}

/* Removes a live row, and moves up later rows that were found by way of it. */
static void remove_row(fth_segment_cache *segment, uint64_t hole)
{
    fth_segment_header *memory = segment->memory;
    uint64_t mask = memory->row_count - 1;
    fth_rows_begin_moves(memory);
    fth_row_set_state(&memory->rows[hole], FTH_ROW_CHANGING);
    for (uint64_t at = (hole + 1) & mask; (atomic_load(&memory->rows[at].state) & FTH_ROW_STATES) != FTH_ROW_EMPTY;
         at = (at + 1) & mask) {
        fth_row_facts facts = fth_row_read(&memory->rows[at]);
        uint64_t home = fth_rows_home(memory->row_count, facts.receipt.id);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue; /* its probe starts behind the hole */
        fth_row_write(&memory->rows[hole], &facts);
        segment->blocks[hole] = segment->blocks[at];
        fth_row_set_state(&memory->rows[at], FTH_ROW_CHANGING);
        hole = at;
    }
    fth_row_set_state(&memory->rows[hole], FTH_ROW_EMPTY);
    fth_rows_end_moves(memory);
}

bool fth_segment_evict(fth_segment_cache *segment, fth_item_id id)
{
    int64_t vacant;
    pthread_mutex_lock(&segment->mutex);
    int64_t row = fth_rows_find(segment->memory, segment->memory->row_count, id, &vacant);
    if (row >= 0) {
        segment_entry entry = {.block = segment->blocks[row],
                               .offset =
                                   atomic_load_explicit(&segment->memory->rows[row].offset, memory_order_relaxed)};
        remove_row(segment, (uint64_t)row);
        segment->live--;
        /* If the list cannot grow, the entry's memory is lost until the owner ends. */
        if (add_to_list(&segment->retired, entry) == FTH_OK && segment->retired.count % MANY_RETIRED == 0)
            free_retired(segment);
    }
    pthread_mutex_unlock(&segment->mutex);
    return row >= 0;
}

bool fth_segment_has(fth_segment_cache *segment, fth_item_id id, fth_receipt *receipt)
{
    int64_t vacant;
    pthread_mutex_lock(&segment->mutex);
    int64_t row = fth_rows_find(segment->memory, segment->memory->row_count, id, &vacant);
    if (row >= 0 && receipt)
        *receipt = fth_row_read(&segment->memory->rows[row]).receipt;
    pthread_mutex_unlock(&segment->mutex);
    return row >= 0;
}

bool fth_segment_hold(fth_segment_cache *segment, fth_item_id id, const void **entry, uint64_t *size_bytes)
{
    int64_t vacant;
    bool held = false;
    pthread_mutex_lock(&segment->mutex);
    int64_t row = fth_rows_find(segment->memory, segment->memory->row_count, id, &vacant);
    if (row >= 0) {
        fth_row_facts facts = fth_row_read(&segment->memory->rows[row]);
        segment_entry *found = find_in_list(&segment->held, facts.offset);
        if (found)
            found->holds++;
        held = found || add_to_list(&segment->held, (segment_entry){.offset = facts.offset, .holds = 1}) == FTH_OK;
        *entry = (const char *)segment->mapping.bytes + facts.offset;
        *size_bytes = facts.receipt.size_bytes;
    }
    pthread_mutex_unlock(&segment->mutex);
    return held;
}

void fth_segment_release(fth_segment_cache *segment, const void *entry)
{
    pthread_mutex_lock(&segment->mutex);
    segment_entry *found = find_in_list(&segment->held, offset_of(segment, entry));
    if (found && --found->holds == 0)
        remove_from_list(&segment->held, found);
    pthread_mutex_unlock(&segment->mutex);
}

void fth_segment_visit(fth_segment_cache *segment, void (*visit)(void *context, const fth_receipt *receipt),
                       void *context)
{
    fth_row_facts *rows = NULL;
    size_t count = 0;
    pthread_mutex_lock(&segment->mutex);
    FTH_IGNORE(list_rows(segment, &rows, &count), "without memory, nothing is visited");
    pthread_mutex_unlock(&segment->mutex);
    for (size_t i = 0; i < count; i++)
        visit(context, &rows[i].receipt);
    free(rows);
}
