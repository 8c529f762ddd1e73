/* See segment.h.
 *
 * The index is a hash table with linear probing, of a fixed size. A row's state and a count of its changes are one word:
 *
 *     empty -> changing -> live -> changing -> empty
 *
 * A reader stops at an empty row and passes over all others that are not its own. It believes a row if the word is the same before it
 * read it and after it has announced its pin; then the owner, who changes the word first and looks for pins second, sees the pin.
 * When a row is taken out, rows behind it move up, so that none are left that only lead to others; `moves` is odd meanwhile, and a
 * reader that found nothing looks again if it has changed.
 *
 * Memory is handed out by space.h, whose state is the owner's alone. Entries that are evicted wait in `retired` until no client
 * pins them and the owner does not hold them.
 *
 * A process has the memory as its owner while it holds a lock on the file (flock), which ends with it. */
#include "batches/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "batches/mapping.h"
#include "batches/space.h"

enum { ROW_EMPTY, ROW_CHANGING, ROW_LIVE, ROW_STATES = 3 };
enum { MIN_ROWS = 1 << 10, MAX_ROWS = 1 << 22, BYTES_PER_ROW = 1024, MANY_RETIRED = 32, QUICK_LOOKS = 32 };
#define MOVES_S       0.1
#define SEGMENT_FILE  "farthing-batches"
#define SEGMENT_MAGIC UINT64_C(0x31304d4745534646) /* "FFSEGM01" */

typedef struct segment_row {
    _Alignas(64) _Atomic uint64_t state; /* a ROW_ constant, and a count of changes */
    _Atomic uint64_t id[2];
    _Atomic uint64_t offset; /* in the memory as a whole */
    _Atomic uint64_t size_bytes, checksum;
} segment_row;

typedef struct segment_header {
    uint64_t magic;
    uint64_t row_count;    /* a power of two */
    uint64_t entry_offset; /* where entries begin */
    uint64_t entry_bytes;
    _Atomic uint64_t moves; /* of rows, counted at beginning and end: odd while they move */
    uint64_t name;          /* a hash of what it was opened under; 0: nothing */
    uint64_t board;         /* fth_board_number() */
    uint64_t reserved;
    segment_row rows[];
} segment_header;

/* An entry that has memory: being written, evicted, or held by the owner. */
typedef struct segment_entry {
    uint32_t block;
    uint64_t offset; /* in the memory as a whole */
    int holds;       /* of those that are held */
} segment_entry;

typedef struct segment_list {
    segment_entry *entries;
    size_t count, capacity;
} segment_list;

struct fth_segment_cache {
    fth_mapping mapping;
    int read_only_fd;
    fth_board *board;
    segment_header *memory;
    pthread_mutex_t mutex; /* of all below */
    fth_space *space;
    uint32_t *blocks; /* of each row that is live */
    uint64_t live;    /* rows */
    uint64_t backed;  /* entries that end before this offset have pages */
    segment_list begun, retired, held;
    uint64_t *pins; /* room for fth_board_list_pins() */
};

/* What is in a row. */
typedef struct row_facts {
    fth_receipt receipt;
    uint64_t offset;
    bool evicted; /* it is in no row, but clients still read it */
} row_facts;

/* ---- rows ---- */

static uint64_t choose_rows(uint64_t memory_bytes)
{
    uint64_t rows = MIN_ROWS;
    while (rows < MAX_ROWS && rows < memory_bytes / BYTES_PER_ROW)
        rows *= 2;
    return rows;
}

static uint64_t find_entry_offset(uint64_t row_count)
{
    return fth_align_up(sizeof(segment_header) + row_count * sizeof(segment_row), 4096);
}

static uint64_t home_of(uint64_t row_count, fth_item_id id)
{
    return (id.words[0] ^ id.words[1] * UINT64_C(0x9e3779b97f4a7c15)) & (row_count - 1);
}

static bool row_has_id(segment_row *row, fth_item_id id)
{
    return atomic_load_explicit(&row->id[0], memory_order_acquire) == id.words[0] &&
           atomic_load_explicit(&row->id[1], memory_order_acquire) == id.words[1];
}

static row_facts read_row(segment_row *row)
{
    row_facts facts = {
        .receipt = {.id = {{atomic_load_explicit(&row->id[0], memory_order_acquire),
                            atomic_load_explicit(&row->id[1], memory_order_acquire)}},
                    .size_bytes = atomic_load_explicit(&row->size_bytes, memory_order_acquire),
                    .checksum = atomic_load_explicit(&row->checksum, memory_order_acquire)},
        .offset = atomic_load_explicit(&row->offset, memory_order_acquire),
    };
    return facts;
}

/* The row's state word after its next change. */
static uint64_t changed_state(uint64_t state, int to)
{
    return (state | ROW_STATES) + 1 + (uint64_t)to;
}

static void set_row_state(segment_row *row, int to)
{
    atomic_store(&row->state, changed_state(atomic_load(&row->state), to));
}

static void write_row(segment_row *row, const row_facts *facts)
{
    set_row_state(row, ROW_CHANGING);
    atomic_store_explicit(&row->id[0], facts->receipt.id.words[0], memory_order_release);
    atomic_store_explicit(&row->id[1], facts->receipt.id.words[1], memory_order_release);
    atomic_store_explicit(&row->size_bytes, facts->receipt.size_bytes, memory_order_release);
    atomic_store_explicit(&row->checksum, facts->receipt.checksum, memory_order_release);
    atomic_store_explicit(&row->offset, facts->offset, memory_order_release);
    set_row_state(row, ROW_LIVE);
}

/* The row of an id; or -1, with the empty row that it would get, if there is one, in *vacant. */
static int64_t find_row(segment_header *memory, uint64_t row_count, fth_item_id id, int64_t *vacant)
{
    uint64_t at = home_of(row_count, id);
    *vacant = -1;
    for (uint64_t i = 0; i < row_count; i++, at = (at + 1) & (row_count - 1)) {
        segment_row *row = &memory->rows[at];
        int state = (int)(atomic_load_explicit(&row->state, memory_order_acquire) & ROW_STATES);
        if (state == ROW_EMPTY) {
            *vacant = (int64_t)at;
            return -1;
        }
        if (state == ROW_LIVE && row_has_id(row, id))
            return (int64_t)at;
    }
    return -1;
}

static void begin_moves(segment_header *memory)
{
    atomic_store(&memory->moves, atomic_load(&memory->moves) | 1);
}

static void end_moves(segment_header *memory)
{
    atomic_store(&memory->moves, (atomic_load(&memory->moves) | 1) + 1);
}

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

/* ---- making ---- */

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

/* What both ways of getting one have in common, once the memory has its header. */
static fth_status become_owner(fth_segment_cache *segment)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(flock(segment->mapping.fd, LOCK_EX | LOCK_NB) == 0, FTH_INVALID,
                "the memory of the batch cache belongs to a process that is running");
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
    uint64_t rows = choose_rows(memory_bytes), entries = memory_bytes / FTH_SPACE_UNIT * FTH_SPACE_UNIT;

    *segment = NULL;
    FTH_REQUIRE(entries > 0 && entries < (uint64_t)INT64_MAX / 2, FTH_INVALID,
                "the batch cache cannot have %" PRIu64 " bytes of memory", memory_bytes);
    FTH_TRY(make_segment(board, &made));
    FTH_TRY(fth_mapping_create(SEGMENT_FILE, find_entry_offset(rows) + entries, &made->mapping));
    made->memory = made->mapping.bytes;
    made->memory->row_count = rows;
    made->memory->entry_offset = find_entry_offset(rows);
    made->memory->entry_bytes = entries;
    made->memory->board = fth_board_number(board);
    FTH_TRY(become_owner(made));
    made->memory->magic = SEGMENT_MAGIC;
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

/* A header that fits the memory it is in. */
static fth_status check_header(const fth_mapping *mapping)
{
    const segment_header *memory = mapping->bytes;
    uint64_t rows = memory->row_count, entries = memory->entry_bytes;
    if (memory->magic != SEGMENT_MAGIC || rows < MIN_ROWS || rows > MAX_ROWS || (rows & (rows - 1)) != 0 ||
        memory->entry_offset != find_entry_offset(rows) || memory->entry_offset >= mapping->size_bytes ||
        entries != mapping->size_bytes - memory->entry_offset || entries % FTH_SPACE_UNIT != 0)
        return fth_fail(FTH_CORRUPT, "not memory of the batch cache, or another version's");
    return FTH_OK;
}

/* ---- taking over ---- */

/* By offset; a row comes before a pin of the same place. */
static int compare_places(const void *a, const void *b)
{
    const row_facts *left = a, *right = b;
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    return (int)left->evicted - (int)right->evicted;
}

/* Whether a row of unknown origin can be an entry's: it lies inside, and what is there says the same of itself. Its
 * payload is checked by who reads it. */
static bool row_is_plausible(const fth_segment_cache *segment, const row_facts *facts)
{
    const segment_header *memory = segment->memory;
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

static fth_status list_rows(fth_segment_cache *segment, row_facts **rows, size_t *count)
{
    fth_status status = FTH_OK;
    size_t capacity = 0;
    for (uint64_t i = 0; i < segment->memory->row_count; i++) {
        segment_row *row = &segment->memory->rows[i];
        if ((atomic_load(&row->state) & ROW_STATES) != ROW_LIVE)
            continue;
        FTH_TRY(fth_grow(rows, *count, &capacity, sizeof **rows));
        (*rows)[(*count)++] = read_row(row);
    }
out:
    return status;
}

/* Adds what clients read and no row has: entries that the last owner had evicted. What is there says how large it is. */
static fth_status list_pinned(fth_segment_cache *segment, row_facts **rows, size_t *count)
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
        (*rows)[(*count)++] = (row_facts){.receipt = {.id = header.id,
                                                      .size_bytes = sizeof header + header.payload_bytes,
                                                      .checksum = header.checksum},
                                          .offset = offset,
                                          .evicted = true};
    }
out:
    return status;
}

/* Gives a row of the last owner its memory and a row of this one, if it makes sense and overlaps nothing before it. */
static fth_status adopt_row(fth_segment_cache *segment, const row_facts *row)
{
    segment_header *memory = segment->memory;
    int64_t vacant = -1;
    if (!row_is_plausible(segment, row) ||
        (!row->evicted && (find_row(memory, memory->row_count, row->receipt.id, &vacant) >= 0 || vacant < 0)))
        return FTH_OK;
    uint32_t block = fth_space_take_at(segment->space, row->offset - memory->entry_offset, row->receipt.size_bytes);
    if (block == FTH_NO_BLOCK)
        return FTH_OK;
    if (row->evicted)
        return add_to_list(&segment->retired, (segment_entry){.block = block, .offset = row->offset});
    write_row(&memory->rows[vacant], row);
    segment->blocks[vacant] = block;
    segment->live++;
    return FTH_OK;
}

/* Keeps what the rows of the last owner say in an index built anew, and the memory that clients read. Rows are gone before pins
 * are looked for, so that a client that finds one of them meanwhile sees that it has. */
static fth_status adopt_rows(fth_segment_cache *segment)
{
    fth_status status = FTH_OK;
    row_facts *rows = NULL;
    size_t count = 0;

    begin_moves(segment->memory);
    FTH_TRY(list_rows(segment, &rows, &count));
    for (uint64_t i = 0; i < segment->memory->row_count; i++)
        set_row_state(&segment->memory->rows[i], ROW_EMPTY);
    FTH_TRY(list_pinned(segment, &rows, &count));
    if (count > 0)
        qsort(rows, count, sizeof *rows, compare_places);
    for (size_t i = 0; i < count; i++)
        FTH_TRY(adopt_row(segment, &rows[i]));
    end_moves(segment->memory);
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
    FTH_TRY(check_header(&made->mapping));
    FTH_TRY(become_owner(made));
    FTH_TRY(adopt_rows(made));
    *segment = made;
    made = NULL;
out:
    fth_segment_free(made);
    return status;
}

/* ---- finding what was left ---- */

/* Descriptors of a segment and its board in another process. */
typedef struct segment_remains {
    uint64_t name, memory_bytes; /* wanted */
    int segment, board;          /* -1: not found */
    uint64_t number;             /* of the board, as the segment has it */
} segment_remains;

/* Whether a descriptor is the wanted segment's, and nobody owns it. */
static bool is_left(int fd, segment_remains *remains)
{
    segment_header head;
    bool is_it = pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head && head.magic == SEGMENT_MAGIC &&
                 head.name == remains->name && head.entry_bytes == remains->memory_bytes;
    if (!is_it || flock(fd, LOCK_EX | LOCK_NB) != 0)
        return false;
    flock(fd, LOCK_UN);
    remains->number = head.board;
    return true;
}

/* Takes the descriptors that start with `prefix` in a process's folder of them, up to the first that is wanted. */
static int find_descriptor(const char *folder, const char *prefix, segment_remains *remains,
                           bool (*wanted)(int fd, segment_remains *remains))
{
    DIR *files = opendir(folder);
    int found = -1;
    for (struct dirent *file; files && found < 0 && (file = readdir(files));) {
        char path[600], target[64] = "";
        snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
        if (readlink(path, target, sizeof target - 1) <= 0 || strncmp(target, prefix, strlen(prefix)) != 0)
            continue;
        found = open(path, O_RDONLY | O_CLOEXEC);
        if (found >= 0 && !wanted(found, remains)) {
            close(found);
            found = -1;
        }
    }
    if (files)
        closedir(files);
    return found;
}

static bool is_its_board(int fd, segment_remains *remains)
{
    return remains->number != 0 && fth_board_number_of(fd) == remains->number;
}

static void close_remains(segment_remains *remains)
{
    if (remains->segment >= 0)
        close(remains->segment);
    if (remains->board >= 0)
        close(remains->board);
    remains->segment = remains->board = -1;
}

/* Looks through the processes of this user. */
static bool find_remains(segment_remains *remains)
{
    DIR *processes = opendir("/proc");
    bool found = false;
    for (struct dirent *process; processes && !found && (process = readdir(processes));) {
        char folder[300];
        struct stat facts;
        snprintf(folder, sizeof folder, "/proc/%s/fd", process->d_name);
        if (process->d_name[0] < '1' || process->d_name[0] > '9' || stat(folder, &facts) != 0 ||
            facts.st_uid != geteuid())
            continue;
        remains->segment = find_descriptor(folder, "/memfd:" SEGMENT_FILE, remains, is_left);
        if (remains->segment >= 0)
            remains->board = find_descriptor(folder, "/memfd:" FTH_BOARD_FILE, remains, is_its_board);
        found = remains->board >= 0;
        if (!found)
            close_remains(remains);
    }
    if (processes)
        closedir(processes);
    return found;
}

fth_status fth_segment_open(const char *name, uint64_t memory_bytes, fth_board **board, fth_segment_cache **segment,
                            bool *found)
{
    fth_status status = FTH_OK;
    segment_remains remains = {.name = fth_hash(name, strlen(name), 0) | 1,
                               .memory_bytes = memory_bytes / FTH_SPACE_UNIT * FTH_SPACE_UNIT,
                               .segment = -1,
                               .board = -1};
    *board = NULL;
    *segment = NULL;
    *found = find_remains(&remains) && fth_board_adopt(remains.board, board) == FTH_OK &&
             fth_segment_adopt(remains.segment, *board, segment) == FTH_OK;
    if (!*found) {
        fth_board_free(*board);
        *board = NULL;
        FTH_TRY(fth_board_create(board));
        FTH_TRY(fth_segment_create(memory_bytes, *board, segment));
        (*segment)->memory->name = remains.name;
    }
out:
    if (status != FTH_OK) {
        fth_board_free(*board);
        *board = NULL;
    }
    close_remains(&remains);
    return status;
}

/* ---- the owner ---- */

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

/* Frees the memory of evicted entries that nobody reads. */
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

/* Room in the space; the caller has the mutex. */
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

/* Has the kernel make pages for an entry that may have none yet, so that there is a failure to report where memory is short,
 * and not a signal. */
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
    segment_header *memory = segment->memory;
    int64_t vacant;

    pthread_mutex_lock(&segment->mutex);
    segment_entry *begun = find_in_list(&segment->begun, offset_of(segment, entry));
    if (begun) {
        row_facts facts = {.receipt = *receipt, .offset = begun->offset};
        uint32_t block = begun->block;
        remove_from_list(&segment->begun, begun);
        if (find_row(memory, memory->row_count, receipt->id, &vacant) >= 0 || vacant < 0 ||
            receipt->size_bytes > fth_space_size(segment->space, block)) {
            fth_space_give_back(segment->space, block);
        } else {
            fth_space_shrink(segment->space, block, receipt->size_bytes);
            segment->blocks[vacant] = block;
            segment->live++;
            write_row(&memory->rows[vacant], &facts);
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

/* Takes a live row out, and moves up those behind it that are found by way of it. */
static void remove_row(fth_segment_cache *segment, uint64_t hole)
{
    segment_header *memory = segment->memory;
    uint64_t mask = memory->row_count - 1;
    begin_moves(memory);
    set_row_state(&memory->rows[hole], ROW_CHANGING);
    for (uint64_t at = (hole + 1) & mask; (atomic_load(&memory->rows[at].state) & ROW_STATES) != ROW_EMPTY;
         at = (at + 1) & mask) {
        row_facts facts = read_row(&memory->rows[at]);
        uint64_t home = home_of(memory->row_count, facts.receipt.id);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue; /* its probe begins behind the hole */
        write_row(&memory->rows[hole], &facts);
        segment->blocks[hole] = segment->blocks[at];
        set_row_state(&memory->rows[at], ROW_CHANGING);
        hole = at;
    }
    set_row_state(&memory->rows[hole], ROW_EMPTY);
    end_moves(memory);
}

bool fth_segment_evict(fth_segment_cache *segment, fth_item_id id)
{
    int64_t vacant;
    pthread_mutex_lock(&segment->mutex);
    int64_t row = find_row(segment->memory, segment->memory->row_count, id, &vacant);
    if (row >= 0) {
        segment_entry entry = {.block = segment->blocks[row],
                               .offset =
                                   atomic_load_explicit(&segment->memory->rows[row].offset, memory_order_relaxed)};
        remove_row(segment, (uint64_t)row);
        segment->live--;
        /* Without memory to remember it by, the entry's own memory is lost until the owner ends. */
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
    int64_t row = find_row(segment->memory, segment->memory->row_count, id, &vacant);
    if (row >= 0 && receipt)
        *receipt = read_row(&segment->memory->rows[row]).receipt;
    pthread_mutex_unlock(&segment->mutex);
    return row >= 0;
}

bool fth_segment_hold(fth_segment_cache *segment, fth_item_id id, const void **entry, uint64_t *size_bytes)
{
    int64_t vacant;
    bool held = false;
    pthread_mutex_lock(&segment->mutex);
    int64_t row = find_row(segment->memory, segment->memory->row_count, id, &vacant);
    if (row >= 0) {
        row_facts facts = read_row(&segment->memory->rows[row]);
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
    row_facts *rows = NULL;
    size_t count = 0;
    pthread_mutex_lock(&segment->mutex);
    list_rows(segment, &rows, &count);
    pthread_mutex_unlock(&segment->mutex);
    for (size_t i = 0; i < count; i++)
        visit(context, &rows[i].receipt);
    free(rows);
}

/* ---- a client ---- */

struct fth_segment_view {
    fth_mapping mapping;
    segment_header *memory; /* cannot be written */
    uint64_t row_count;     /* checked once; what is in the memory is not looked at again */
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
    FTH_TRY(check_header(&made->mapping));
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

/* As find_row(), while the owner works: what is there all the time is found. An owner that has no processor while it moves rows is
 * waited for, one that was killed then only for a moment. */
static int64_t look_for_row(fth_segment_view *view, fth_item_id id)
{
    fth_deadline give_up = {0};
    for (int looks = 0;; looks++) {
        int64_t vacant;
        uint64_t moves = atomic_load(&view->memory->moves);
        int64_t at = find_row(view->memory, view->row_count, id, &vacant);
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

/* Finds an entry and pins it; the row is then known to have been there after the pin was announced. */
static fth_status find_and_pin(fth_segment_view *view, fth_slot *slot, fth_item_id id, row_facts *facts, int *place)
{
    int64_t at;
    *place = -1;
    while ((at = look_for_row(view, id)) >= 0) {
        segment_row *row = &view->memory->rows[at];
        uint64_t state = atomic_load(&row->state);
        *facts = read_row(row);
        if ((state & ROW_STATES) != ROW_LIVE || !fth_item_id_equal(facts->receipt.id, id))
            continue; /* it was removed or moved just now */
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
    row_facts facts;
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
