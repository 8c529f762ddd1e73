/* Owner and readers of the shared memory, in processes that are killed and stopped at any moment:
 * nobody ever reads a wrong byte, and in the end nothing is left in use. */
#include "support.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "batches/memory/host.h"

enum { MEMORY = 400000, NUMBERS = 64, READERS = 4, ROUNDS = 60, HELD = 3, PAUSE_US = 20000 };

/* What processes count, in memory of theirs. */
typedef struct tally {
    _Atomic uint64_t wrong, hits, waits, published, owners;
} tally;

/* What the test gives to its processes. */
typedef struct storm_state {
    char path[TEST_MAX_PATH];
    tally *tally;
    int segment_fd, board_fd; /* -1 before there is any */
    pid_t owner, readers[READERS];
    bool stopped[READERS];
} storm_state;

static fth_item_id id_of(uint64_t number)
{
    return (fth_item_id){{number * UINT64_C(0x9e3779b97f4a7c15), ~number}};
}

static uint64_t size_of(uint64_t number)
{
    return 1000 + number * number * 7;
}

static bool is_right(const void *entry, uint64_t number, uint64_t size)
{
    const uint8_t *bytes = entry;
    if (size != size_of(number))
        return false;
    for (uint64_t i = sizeof(fth_item_header); i < size; i++)
        if (bytes[i] != (uint8_t)(number + i / 64))
            return false;
    return true;
}

/* ---- the owner ---- */

static fth_status answer(void *context, int slot, json_t *request, json_t **result, uint64_t *job)
{
    (void)context, (void)slot, (void)request;
    *job = 1;
    *result = json_object();
    return FTH_OK;
}

static void wake(void *context, int slot)
{
    (void)context, (void)slot;
}

static void left(void *context, int slot, uint64_t job, bool finished)
{
    (void)context, (void)slot, (void)job, (void)finished;
}

static void publish(fth_segment_cache *segment, uint64_t number, fth_random_key key, uint64_t draw)
{
    void *entry = NULL;
    fth_receipt receipt;
    while (fth_segment_begin(segment, size_of(number), &entry) == FTH_NO_MEMORY) {
        for (uint64_t i = 0; i < 8; i++)
            fth_segment_evict(segment, id_of(fth_random_below(key, draw + i, NUMBERS)));
        draw += 8;
        sched_yield(); /* who reads what is needed may be waiting for the processor */
    }
    for (uint64_t i = sizeof(fth_item_header); i < size_of(number); i++)
        ((uint8_t *)entry)[i] = (uint8_t)(number + i / 64);
    fth_item_seal(entry, id_of(number), FTH_ITEM_ENCODED, size_of(number) - sizeof(fth_item_header), &receipt);
    fth_segment_publish(segment, entry, &receipt);
}

static void be_owner(const storm_state *storm)
{
    fth_host_handler supplier = {.answer = answer, .wake = wake, .left = left};
    fth_random_key key = fth_random_key_for((uint64_t)getpid(), FTH_RANDOM_GENERATE);
    fth_board *board = NULL;
    fth_segment_cache *segment = NULL;
    fth_host *host = NULL;
    fth_status status = storm->board_fd < 0 ? fth_board_create(&board) : fth_board_adopt(storm->board_fd, &board);
    if (status == FTH_OK)
        status = storm->segment_fd < 0 ? fth_segment_create(MEMORY, board, &segment)
                                       : fth_segment_adopt(storm->segment_fd, board, &segment);
    if (status != FTH_OK || fth_host_open(storm->path, segment, board, &supplier, &host) != FTH_OK) {
        fprintf(stderr, "owner: %s\n", fth_error_message());
        storm->tally->wrong++;
        _exit(1);
    }
    storm->tally->owners++;
    for (uint64_t draw = 0;; draw += 1000) {
        publish(segment, fth_random_below(key, draw, NUMBERS), key, draw + 1);
        storm->tally->published++;
        if (fth_random_below(key, draw + 1, 3) == 0)
            fth_segment_evict(segment, id_of(fth_random_below(key, draw + 2, NUMBERS)));
    }
}

/* ---- a reader ---- */

/* Reads until the host has gone. */
static void read_from(const storm_state *storm, fth_host_link *link, fth_segment_view *view, fth_slot *slot,
                      fth_random_key key, uint64_t *draw)
{
    fth_pin pins[HELD] = {{.place = -1}, {.place = -1}, {.place = -1}};
    uint64_t numbers[HELD] = {0};
    while (!fth_host_is_gone(link)) {
        size_t which = fth_random_below(key, (*draw)++, HELD);
        bool found = false;
        if (pins[which].place >= 0 && !is_right(pins[which].entry, numbers[which], pins[which].size_bytes))
            storm->tally->wrong++; /* it changed while it was pinned */
        fth_segment_unpin(slot, &pins[which]);
        numbers[which] = fth_random_below(key, (*draw)++, NUMBERS);
        if (fth_segment_pin(view, slot, id_of(numbers[which]), &pins[which], &found) != FTH_OK) {
            fprintf(stderr, "reader: %s\n", fth_error_message());
            storm->tally->wrong++;
        }
        if (found && !is_right(pins[which].entry, numbers[which], pins[which].size_bytes))
            storm->tally->wrong++;
        if (found) {
            storm->tally->hits++;
            continue;
        }
        fth_slot_want(slot, id_of(numbers[which]));
        if (fth_slot_wait(slot, fth_deadline_in(0.005)) == FTH_OK)
            storm->tally->waits++;
    }
    for (int i = 0; i < HELD; i++) {
        if (pins[i].place >= 0 && !is_right(pins[i].entry, numbers[i], pins[i].size_bytes))
            storm->tally->wrong++;
        fth_segment_unpin(slot, &pins[i]);
    }
}

static bool enter(const storm_state *storm, fth_host_link **link, int fds[2], int *slot)
{
    json_t *request = json_pack("{s:s}", "op", "register"), *got = NULL;
    bool entered = fth_host_connect(storm->path, fth_deadline_in(10), link) == FTH_OK &&
                   fth_host_ask(*link, request, fth_deadline_in(10), &got, fds) == FTH_OK && fds[0] >= 0;
    *slot = (int)json_integer_value(json_object_get(got, "slot"));
    json_decref(request);
    json_decref(got);
    if (!entered) {
        fth_host_disconnect(*link);
        *link = NULL;
    }
    return entered;
}

static void be_reader(const storm_state *storm)
{
    fth_random_key key = fth_random_key_for((uint64_t)getpid(), FTH_RANDOM_GENERATE);
    uint64_t draw = 0;
    for (;;) {
        fth_host_link *link = NULL;
        fth_board *board = NULL;
        fth_segment_view *view = NULL;
        int fds[2], slot;
        if (!enter(storm, &link, fds, &slot)) {
            usleep(1000);
            continue;
        }
        if (fth_segment_map(fds[0], &view) != FTH_OK || fth_board_map(fds[1], &board) != FTH_OK)
            storm->tally->wrong++;
        else
            read_from(storm, link, view, fth_board_slot(board, slot), key, &draw);
        close(fds[0]);
        close(fds[1]);
        fth_segment_unmap(view);
        fth_board_free(board);
        fth_host_disconnect(link);
    }
}

/* ---- the storm ---- */

static pid_t start(const storm_state *storm, void (*be)(const storm_state *))
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            be(storm);
        _exit(1);
    }
    assert_true(child > 0);
    return child;
}

static void end(pid_t process)
{
    kill(process, SIGKILL);
    assert_true(waitpid(process, NULL, 0) == process);
}

#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        fth_deadline until = test_deadline_in(60);                                                                     \
        while (!(condition) && !fth_deadline_passed(until))                                                            \
            usleep(1000);                                                                                              \
        assert_true(condition);                                                                                        \
    } while (0)

/* What is left when all are dead can be taken over, and is all free once it is evicted. */
static void check_remains(const storm_state *storm)
{
    fth_board *board = NULL;
    fth_segment_cache *segment = NULL;
    assert_int_equal(fth_board_adopt(storm->board_fd, &board), FTH_OK);
    assert_int_equal(fth_segment_adopt(storm->segment_fd, board, &segment), FTH_OK);
    assert_true(fth_segment_used(segment) > 0);
    fth_board_clear_dead(board);
    for (uint64_t i = 0; i < NUMBERS; i++)
        fth_segment_evict(segment, id_of(i));
    assert_int_equal(fth_segment_used(segment), 0);
    fth_segment_free(segment);
    fth_board_free(board);
}

static void nobody_reads_a_wrong_byte(void **state)
{
    (void)state;
    storm_state storm = {.segment_fd = -1, .board_fd = -1};
    fth_random_key key = fth_random_key_for(14, FTH_RANDOM_GENERATE);
    fth_host_link *link = NULL;
    int fds[2], slot;

    test_path(storm.path, "socket");
    storm.tally = mmap(NULL, sizeof *storm.tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(storm.tally, MAP_FAILED);
    storm.owner = start(&storm, be_owner);
    while (!enter(&storm, &link, fds, &slot)) /* a client that hands its descriptors to the next owner */
        usleep(1000);
    storm.segment_fd = fds[0];
    storm.board_fd = fds[1];
    fth_host_disconnect(link);
    for (int i = 0; i < READERS; i++)
        storm.readers[i] = start(&storm, be_reader);

    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t which = fth_random_below(key, 2 * round, READERS);
        usleep(PAUSE_US);
        switch (fth_random_below(key, 2 * round + 1, 4)) {
        case 0:
            end(storm.owner);
            storm.owner = start(&storm, be_owner);
            break;
        case 1:
            end(storm.readers[which]);
            storm.readers[which] = start(&storm, be_reader);
            storm.stopped[which] = false;
            break;
        case 2:
            kill(storm.readers[which], SIGSTOP);
            storm.stopped[which] = true;
            break;
        default:
            for (int i = 0; i < READERS; i++)
                kill(storm.readers[i], SIGCONT);
            memset(storm.stopped, 0, sizeof storm.stopped);
        }
    }
    for (int i = 0; i < READERS; i++)
        kill(storm.readers[i], SIGCONT);
    uint64_t hits = storm.tally->hits;
    UNTIL(storm.tally->hits > hits + 100); /* it still goes on */
    for (int i = 0; i < READERS; i++)
        end(storm.readers[i]);
    end(storm.owner);
    assert_int_equal(storm.tally->wrong, 0);
    assert_true(storm.tally->owners > 1);
    check_remains(&storm);
    close(storm.segment_fd);
    close(storm.board_fd);
    munmap(storm.tally, sizeof *storm.tally);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_reads_a_wrong_byte, test_make_folder, test_remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
