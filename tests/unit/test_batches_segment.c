/* Shared memory of the batch cache: owner and clients in one process, by threads, and what a client
 * or a dead owner can do to the memory. test_batches_storm.c has them in processes that are
 * killed. */
#include "support.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "batches/memory/host_packet.h"
#include "batches/memory/segment.h"

enum { MEMORY = 1 << 20 };

/* Owner and one client. */
typedef struct segment_world {
    fth_board *board, *client_board;
    fth_segment_cache *segment;
    fth_segment_view *view;
    fth_slot *slot;
    int slot_number;
} segment_world;

static fth_item_id id_of(uint64_t number)
{
    return (fth_item_id){{number * UINT64_C(0x9e3779b97f4a7c15), ~number}};
}

static void open_client(segment_world *world)
{
    assert_int_equal(fth_board_map(fth_board_fd(world->board), &world->client_board), FTH_OK);
    assert_int_equal(fth_segment_map(fth_segment_read_only_fd(world->segment), &world->view), FTH_OK);
    world->slot_number = fth_board_take(world->board, 7, getpid());
    assert_true(world->slot_number >= 0);
    world->slot = fth_board_slot(world->client_board, world->slot_number);
}

static void close_client(segment_world *world)
{
    fth_segment_unmap(world->view);
    fth_board_free(world->client_board);
}

static int open_world(void **state)
{
    segment_world *made = calloc(1, sizeof *made);
    assert_int_equal(fth_board_create(&made->board), FTH_OK);
    assert_int_equal(fth_segment_create(MEMORY, made->board, &made->segment), FTH_OK);
    open_client(made);
    *state = made;
    return 0;
}

static int close_world(void **state)
{
    segment_world *world = *state;
    close_client(world);
    fth_segment_free(world->segment);
    fth_board_free(world->board);
    free(world);
    return 0;
}

/* An entry whose bytes all follow from its number. */
static void fill(void *entry, uint64_t number, uint64_t size, fth_receipt *receipt)
{
    memset((char *)entry + sizeof(fth_item_header), (int)(number % 251), size - sizeof(fth_item_header));
    fth_item_seal(entry, id_of(number), FTH_ITEM_ENCODED, size - sizeof(fth_item_header), receipt);
}

static bool is_filled(const void *entry, uint64_t number, uint64_t size)
{
    const uint8_t *bytes = entry;
    for (uint64_t i = sizeof(fth_item_header); i < size; i++)
        if (bytes[i] != number % 251)
            return false;
    return true;
}

static fth_status put(fth_segment_cache *segment, uint64_t number, uint64_t size)
{
    void *entry;
    fth_receipt receipt;
    fth_status status = fth_segment_begin(segment, size, &entry);
    if (status == FTH_OK) {
        fill(entry, number, size, &receipt);
        fth_segment_publish(segment, entry, &receipt);
    }
    return status;
}

static bool pin(segment_world *world, uint64_t number, fth_pin *pin)
{
    bool found = false;
    assert_int_equal(fth_segment_pin(world->view, world->slot, id_of(number), pin, &found), FTH_OK);
    return found;
}

static void what_is_published_is_found(void **state)
{
    segment_world *world = *state;
    fth_pin held;
    void *entry;
    fth_receipt receipt;

    assert_false(pin(world, 1, &held));
    assert_int_equal(fth_segment_begin(world->segment, 5000, &entry), FTH_OK);
    assert_int_equal((uintptr_t)entry % 64, 0);
    fill(entry, 1, 5000, &receipt);
    assert_false(pin(world, 1, &held)); /* it is being written */
    fth_segment_publish(world->segment, entry, &receipt);
    assert_true(pin(world, 1, &held));
    assert_int_equal(held.size_bytes, 5000);
    assert_true(is_filled(held.entry, 1, 5000));
    fth_segment_unpin(world->slot, &held);
    assert_false(pin(world, 2, &held));

    fth_receipt found;
    assert_true(fth_segment_has(world->segment, id_of(1), &found));
    assert_memory_equal(&found, &receipt, sizeof found);
    uint64_t used = fth_segment_used(world->segment);
    assert_int_equal(put(world->segment, 1, 300), FTH_OK); /* a second one is not needed */
    assert_int_equal(fth_segment_used(world->segment), used);
    assert_int_equal(fth_segment_begin(world->segment, 300, &entry), FTH_OK);
    fth_segment_cancel(world->segment, entry);
    assert_int_equal(fth_segment_used(world->segment), used);
    assert_true(fth_segment_evict(world->segment, id_of(1)));
    assert_false(fth_segment_evict(world->segment, id_of(1)));
    assert_false(pin(world, 1, &held));
    assert_int_equal(fth_segment_used(world->segment), 0);
}

static void an_entry_larger_than_the_cache_is_never_tried_again(void **state)
{
    segment_world *world = *state;
    void *entry;
    assert_int_equal(fth_segment_begin(world->segment, MEMORY + 1, &entry), FTH_NO_SPACE);
    assert_null(entry);
    assert_non_null(strstr(fth_error_message(), "--cache-memory"));
}

static void an_entry_can_be_smaller_than_its_room(void **state)
{
    segment_world *world = *state;
    void *entry;
    fth_receipt receipt;
    fth_pin held;
    assert_int_equal(fth_segment_begin(world->segment, MEMORY, &entry), FTH_OK);
    fill(entry, 1, 1000, &receipt);
    fth_segment_publish(world->segment, entry, &receipt);
    assert_int_equal(fth_segment_used(world->segment), 1024);
    assert_true(pin(world, 1, &held));
    assert_int_equal(held.size_bytes, 1000);
    fth_segment_unpin(world->slot, &held);
}

static void pinned_memory_is_not_used_again(void **state)
{
    segment_world *world = *state;
    fth_pin held;
    void *entry;
    assert_int_equal(put(world->segment, 1, MEMORY / 2), FTH_OK);
    assert_int_equal(put(world->segment, 2, MEMORY / 2), FTH_OK);
    assert_int_equal(fth_segment_begin(world->segment, MEMORY / 2, &entry), FTH_NO_MEMORY);
    assert_true(pin(world, 1, &held));
    assert_true(fth_segment_evict(world->segment, id_of(1)));
    assert_int_equal(fth_segment_begin(world->segment, MEMORY / 2, &entry), FTH_NO_MEMORY);
    assert_true(is_filled(held.entry, 1, MEMORY / 2));
    assert_int_equal(fth_segment_used(world->segment), MEMORY);
    fth_segment_unpin(world->slot, &held);
    assert_int_equal(put(world->segment, 3, MEMORY / 2), FTH_OK);

    /* a client that is gone pins nothing */
    assert_true(pin(world, 3, &held));
    fth_segment_evict(world->segment, id_of(3));
    fth_board_clear(world->board, world->slot_number);
    assert_int_equal(put(world->segment, 4, MEMORY / 2), FTH_OK);
}

static void what_the_owner_holds_is_not_used_again(void **state)
{
    segment_world *world = *state;
    const void *first, *second;
    uint64_t size;
    void *entry;
    assert_int_equal(put(world->segment, 1, MEMORY), FTH_OK);
    assert_false(fth_segment_hold(world->segment, id_of(2), &first, &size));
    assert_true(fth_segment_hold(world->segment, id_of(1), &first, &size));
    assert_true(fth_segment_hold(world->segment, id_of(1), &second, &size));
    assert_ptr_equal(first, second);
    assert_int_equal(size, MEMORY);
    fth_segment_evict(world->segment, id_of(1));
    fth_segment_release(world->segment, first);
    assert_int_equal(fth_segment_begin(world->segment, 64, &entry), FTH_NO_MEMORY);
    fth_segment_release(world->segment, first);
    assert_int_equal(fth_segment_begin(world->segment, 64, &entry), FTH_OK);
    fth_segment_cancel(world->segment, entry);
}

static void a_client_has_so_many_pins(void **state)
{
    segment_world *world = *state;
    fth_pin pins[FTH_SLOT_PINS], more;
    bool found;
    assert_int_equal(put(world->segment, 1, 200), FTH_OK);
    for (int i = 0; i < FTH_SLOT_PINS; i++)
        assert_true(pin(world, 1, &pins[i]));
    assert_int_equal(fth_segment_pin(world->view, world->slot, id_of(1), &more, &found), FTH_NO_SPACE);
    assert_false(found);
    fth_segment_unpin(world->slot, &pins[17]);
    assert_true(pin(world, 1, &more));
    assert_int_equal(more.place, 17);
}

/* Nearly as many entries as rows allow, dropped and put again in another order: all are found, and
 * only they. */
static void many_entries_come_and_go(void **state)
{
    segment_world *world = *state;
    enum { ENTRIES = 1400, ROUNDS = 20000 };
    static bool there[ENTRIES];
    fth_random_key key = fth_random_key_for(5, FTH_RANDOM_GENERATE);
    memset(there, 0, sizeof there);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t number = fth_random_below(key, i, ENTRIES);
        if (there[number])
            assert_true(fth_segment_evict(world->segment, id_of(number)));
        else
            assert_int_equal(put(world->segment, number, 100 + number % 300), FTH_OK);
        there[number] = !there[number];
        for (number = 0; i % 1000 == 999 && number < ENTRIES; number++) {
            fth_pin held;
            assert_int_equal(pin(world, number, &held), there[number]);
            fth_segment_unpin(world->slot, &held);
            assert_int_equal(fth_segment_has(world->segment, id_of(number), NULL), there[number]);
        }
    }
}

static void rows_run_out_without_harm(void **state)
{
    segment_world *world = *state;
    uint64_t number = 0;
    fth_pin held;
    while (put(world->segment, number, 100) == FTH_OK)
        number++;
    assert_int_equal(number, 768);
    assert_true(pin(world, 767, &held));
    fth_segment_unpin(world->slot, &held);
    fth_segment_evict(world->segment, id_of(5));
    assert_int_equal(put(world->segment, 5000, 100), FTH_OK);
}

static void damage_is_found(void **state)
{
    segment_world *world = *state;
    fth_pin held;
    bool found = true;
    const void *entry;
    uint64_t size;
    assert_int_equal(put(world->segment, 1, 1000), FTH_OK);
    assert_true(fth_segment_hold(world->segment, id_of(1), &entry, &size));
    ((uint8_t *)(uintptr_t)entry)[700] ^= 1;
    assert_int_equal(fth_segment_pin(world->view, world->slot, id_of(1), &held, &found), FTH_CORRUPT);
    assert_false(found);
    assert_message_has("checksum");
    fth_segment_release(world->segment, entry);
    fth_segment_evict(world->segment, id_of(1)); /* and the failed pin is not one */
    assert_int_equal(fth_segment_used(world->segment), 0);
}

static void clients_cannot_write_the_segment(void **state)
{
    segment_world *world = *state;
    int fd = fth_segment_read_only_fd(world->segment);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(ftruncate(fth_board_fd(world->board), 0), -1);
}

static void other_descriptors_are_refused(void **state)
{
    segment_world *world = *state;
    fth_segment_view *view;
    fth_segment_cache *segment;
    fth_board *board;
    int file = memfd_create("test", MFD_ALLOW_SEALING);
    assert_int_equal(fth_segment_map(file, &view), FTH_CORRUPT);
    assert_int_equal(ftruncate(file, 1 << 20), 0);
    assert_int_equal(fth_segment_map(file, &view), FTH_CORRUPT);
    assert_int_equal(fth_board_map(file, &board), FTH_CORRUPT);
    assert_int_equal(fth_segment_map(-1, &view), FTH_CORRUPT);
    assert_int_equal(fth_segment_map(fth_board_fd(world->board), &view), FTH_CORRUPT);
    assert_int_equal(fth_segment_adopt(fth_board_fd(world->board), world->board, &segment), FTH_CORRUPT);
    assert_int_equal(fth_board_map(fth_segment_read_only_fd(world->segment), &board), FTH_CORRUPT);
    /* its owner is alive */
    assert_int_equal(fth_segment_adopt(fth_segment_read_only_fd(world->segment), world->board, &segment), FTH_INVALID);
    close(file);
}

static void count_receipt(void *context, const fth_receipt *receipt)
{
    (void)receipt;
    ++*(int *)context;
}

/* What an owner leaves is taken over by a descriptor of a client, with what the client pins. */
static void memory_is_taken_over(void **state)
{
    segment_world *world = *state;
    fth_pin held;
    void *entry;
    int fd = dup(fth_segment_read_only_fd(world->segment)), board_fd = dup(fth_board_fd(world->board)), count = 0;
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(put(world->segment, i, 1000 + i), FTH_OK);
    for (uint64_t i = 0; i < 100; i += 3)
        fth_segment_evict(world->segment, id_of(i));
    assert_int_equal(fth_segment_begin(world->segment, 100000, &entry), FTH_OK); /* half written, and lost */
    uint64_t used = fth_segment_used(world->segment) - (100000 + 63) / 64 * 64;
    assert_true(pin(world, 40, &held));
    fth_segment_free(world->segment);
    fth_board_free(world->board);

    assert_int_equal(fth_board_adopt(board_fd, &world->board), FTH_OK);
    assert_int_equal(fth_segment_adopt(fd, world->board, &world->segment), FTH_OK);
    close(fd);
    close(board_fd);
    assert_int_equal(fth_segment_used(world->segment), used);
    fth_segment_visit(world->segment, count_receipt, &count);
    assert_int_equal(count, 66);
    /* the pin of before is still one */
    assert_true(fth_segment_evict(world->segment, id_of(40)));
    assert_int_equal(fth_segment_used(world->segment), used);
    assert_true(is_filled(held.entry, 40, 1040));
    fth_segment_unpin(world->slot, &held);
    assert_int_equal(fth_segment_used(world->segment), used - 1088);
    /* the old view serves on */
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(pin(world, i, &held), i % 3 != 0 && i != 40);
        fth_segment_unpin(world->slot, &held);
    }
    assert_int_equal(put(world->segment, 1000, 5000), FTH_OK);
    assert_true(pin(world, 1000, &held));
    fth_segment_unpin(world->slot, &held);
    assert_false(fth_board_take(world->board, 1, 0) == world->slot_number); /* its process is alive */
}

/* Whatever the rows say, taking over must not read outside, and what it keeps is whole. */
static void damaged_memory_is_taken_over_in_part(void **state)
{
    segment_world *world = *state;
    fth_random_key key = fth_random_key_for(9, FTH_RANDOM_GENERATE);
    uint64_t draw = 0;
    for (int round = 0; round < 50; round++) {
        int fd = dup(fth_segment_read_only_fd(world->segment));
        for (uint64_t i = 0; i < 50; i++)
            assert_int_equal(put(world->segment, i, 1000 + i), FTH_OK);
        fth_segment_free(world->segment);

        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        FILE *file = fopen(path, "r+");
        assert_non_null(file);
        for (int i = 0; i < 400; i++) { /* in the rows, 1024 of 64 bytes behind a header of 64 */
            uint64_t value = fth_random_below(key, draw++, 4) == 0 ? fth_random_below(key, draw++, MEMORY)
                                                                   : fth_random_below(key, draw++, UINT64_MAX);
            fseek(file, (long)(64 + 8 * fth_random_below(key, draw++, 1024 * 8)), SEEK_SET);
            assert_int_equal(fwrite(&value, 8, 1, file), 1);
        }
        fclose(file);
        assert_int_equal(fth_segment_adopt(fd, world->board, &world->segment), FTH_OK);
        close(fd);
        int found = 0;
        for (uint64_t i = 0; i < 50; i++) {
            fth_pin held;
            if (pin(world, i, &held)) {
                assert_true(is_filled(held.entry, i, 1000 + i));
                found++;
            }
            fth_segment_unpin(world->slot, &held);
        }
        assert_true(found > 0);
        for (uint64_t i = 0; i < 50; i++)
            fth_segment_evict(world->segment, id_of(i));
        assert_int_equal(fth_segment_used(world->segment), 0);
    }
}

/* An owner in a process of its own, which sends its descriptors and waits to be killed. */
static pid_t start_owner(const char *name, int fds[2], int *socket)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    pid_t child = fork();
    if (child == 0) {
        fth_board *board;
        fth_segment_cache *segment;
        bool found = true;
        json_t *message = json_object();
        if (fth_segment_open(name, MEMORY, &board, &segment, &found) != FTH_OK || found)
            _exit(1);
        for (uint64_t i = 0; i < 20; i++)
            FTH_IGNORE(put(segment, i, 2000 + i), "the parent finds that it is missing");
        const int passed[] = {fth_segment_read_only_fd(segment), fth_board_fd(board)};
        FTH_IGNORE(fth_packet_send(ends[1], message, passed), "the parent waits for it");
        _exit(pause());
    }
    close(ends[1]);
    json_t *message = NULL;
    struct pollfd readable = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&readable, 1, 60000), 1);
    assert_int_equal(fth_packet_receive(ends[0], &message, fds), FTH_OK);
    assert_non_null(message);
    json_decref(message);
    *socket = ends[0];
    return child;
}

static bool open_again(const char *name, uint64_t size, fth_board **board, fth_segment_cache **segment)
{
    bool found = false;
    assert_int_equal(fth_segment_open(name, size, board, segment, &found), FTH_OK);
    return found;
}

/* A killed owner finds its entries again, as long as a client has them. */
static void what_a_killed_owner_left_is_found(void **state)
{
    (void)state;
    char name[64];
    int fds[2], socket;
    fth_board *board;
    fth_segment_cache *segment;
    snprintf(name, sizeof name, "test %d", (int)getpid());
    pid_t owner = start_owner(name, fds, &socket);
    assert_false(open_again(name, MEMORY, &board, &segment)); /* it is alive */
    fth_segment_free(segment);
    fth_board_free(board);
    kill(owner, SIGKILL);
    assert_true(waitpid(owner, NULL, 0) == owner);
    assert_false(open_again("another", MEMORY, &board, &segment));
    fth_segment_free(segment);
    fth_board_free(board);
    assert_false(open_again(name, MEMORY / 2, &board, &segment));
    fth_segment_free(segment);
    fth_board_free(board);

    assert_true(open_again(name, MEMORY, &board, &segment));
    for (uint64_t i = 0; i < 20; i++)
        assert_true(fth_segment_has(segment, id_of(i), NULL));
    fth_segment_free(segment);
    fth_board_free(board);
    close(fds[0]);
    close(fds[1]);
    close(socket);
    assert_false(open_again(name, MEMORY, &board, &segment)); /* nobody has it any more */
    fth_segment_free(segment);
    fth_board_free(board);
}

/* ---- waiting ---- */

static void *publish_soon(void *context)
{
    segment_world *world = context;
    fth_slot_state seen;
    do
        fth_board_read(world->board, world->slot_number, &seen);
    while (!seen.waiting || !fth_item_id_equal(seen.wanted, id_of(9)));
    FTH_IGNORE(put(world->segment, 8, 100), "in a thread; the test finds that it is missing"); /* not the one */
    FTH_IGNORE(put(world->segment, 9, 100), "in a thread; the test finds that it is missing");
    return NULL;
}

static void a_wait_ends_with_the_item(void **state)
{
    segment_world *world = *state;
    pthread_t thread;
    fth_pin held;
    fth_slot_state seen;
    assert_int_equal(pthread_create(&thread, NULL, publish_soon, world), 0);
    fth_slot_want(world->slot, id_of(9));
    assert_int_equal(fth_slot_wait(world->slot, test_deadline_in(60)), FTH_OK);
    pthread_join(thread, NULL);
    assert_true(pin(world, 9, &held));
    fth_segment_unpin(world->slot, &held);
    assert_true(fth_board_read(world->board, world->slot_number, &seen));
    assert_false(seen.waiting);
}

static void waits_end_in_time_and_with_failures(void **state)
{
    segment_world *world = *state;
    fth_slot_want(world->slot, id_of(9));
    fth_board_wake(world->board, id_of(8), FTH_OK);
    assert_int_equal(fth_slot_wait(world->slot, fth_deadline_in(0.01)), FTH_TIMEOUT);
    fth_board_wake(world->board, id_of(9), FTH_OK); /* too late: it is for nobody */
    fth_slot_want(world->slot, id_of(10));
    assert_int_equal(fth_slot_wait(world->slot, fth_deadline_in(0.01)), FTH_TIMEOUT);
    fth_slot_want(world->slot, id_of(10));
    fth_board_wake(world->board, id_of(10), FTH_IO);
    assert_int_equal(fth_slot_wait(world->slot, test_deadline_in(60)), FTH_IO);
    fth_slot_want(world->slot, id_of(11));
    fth_slot_stop_wanting(world->slot);
    fth_board_wake(world->board, id_of(11), FTH_OK);
    fth_slot_want(world->slot, id_of(12));
    fth_board_clear(world->board, world->slot_number);
    assert_int_equal(fth_slot_wait(world->slot, test_deadline_in(60)), FTH_PEER_LOST);
}

static void the_owner_sees_positions_and_counters(void **state)
{
    segment_world *world = *state;
    fth_slot_state seen;
    assert_false(fth_board_read(world->board, world->slot_number + 1, &seen));
    assert_true(fth_board_read(world->board, world->slot_number, &seen));
    assert_int_equal(seen.next, -1); /* nothing is prepared for who has not said where it is */
    fth_slot_set_position(world->slot, 12, 4, 100);
    fth_slot_count(world->slot, FTH_SLOT_HITS, 3);
    fth_slot_count(world->slot, FTH_SLOT_HITS, 2);
    assert_true(fth_board_read(world->board, world->slot_number, &seen));
    assert_int_equal(seen.job, 7);
    assert_int_equal(seen.process, getpid());
    assert_int_equal(seen.next, 12);
    assert_int_equal(seen.stride, 4);
    assert_int_equal(seen.end, 100);
    assert_int_equal(seen.counters[FTH_SLOT_HITS], 5);
    assert_int_equal(seen.begin, 12);
    fth_slot_set_position(world->slot, 20, 4, 100);
    assert_true(fth_board_read(world->board, world->slot_number, &seen));
    assert_int_equal(seen.begin, 12); /* it has taken 12 and 16 */
    fth_slot_set_position(world->slot, 21, 4, 100);
    assert_true(fth_board_read(world->board, world->slot_number, &seen));
    assert_int_equal(seen.begin, 21); /* it has gone elsewhere */
    fth_slot_set_position(world->slot, INT64_MIN, -1, INT64_MAX);
    assert_true(fth_board_read(world->board, world->slot_number, &seen));
    assert_true(seen.next == 0 && seen.stride == 1 && seen.end > 0 && seen.end < INT64_MAX / 2);
    fth_board_clear(world->board, world->slot_number);
    assert_false(fth_board_read(world->board, world->slot_number, &seen));
}

static void all_slots_can_be_taken(void **state)
{
    segment_world *world = *state;
    for (int i = 1; i < FTH_BOARD_SLOTS; i++)
        assert_true(fth_board_take(world->board, 1, 0) >= 0);
    assert_int_equal(fth_board_take(world->board, 1, 0), -1);
    fth_board_clear(world->board, 77);
    assert_int_equal(fth_board_take(world->board, 1, 0), 77);
    assert_null(fth_board_slot(world->client_board, FTH_BOARD_SLOTS));
    assert_null(fth_board_slot(world->client_board, -1));
}

/* Noise over the whole board: the owner goes on, and ends each call. */
static void a_board_full_of_noise_does_no_harm(void **state)
{
    segment_world *world = *state;
    fth_random_key key = fth_random_key_for(3, FTH_RANDOM_GENERATE);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fth_board_fd(world->board));
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    for (int i = 1; i < FTH_BOARD_SLOTS; i++)
        assert_true(fth_board_take(world->board, 1, 0) >= 0);
    fseek(file, 64, SEEK_SET);
    for (uint64_t i = 0; i < FTH_BOARD_SLOTS * 768 / 8; i++) {
        uint64_t noise = fth_random_below(key, i, UINT64_MAX);
        fwrite(&noise, 8, 1, file);
    }
    fclose(file);
    for (int i = 0; i < FTH_BOARD_SLOTS; i++) {
        fth_slot_state seen;
        assert_true(fth_board_read(world->board, i, &seen));
        assert_true(seen.next >= 0 && seen.stride >= 1 && seen.end >= 0);
    }
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(put(world->segment, i, 1000), FTH_OK);
        assert_true(fth_segment_evict(world->segment, id_of(i)));
    }
    for (int i = 0; i < FTH_BOARD_SLOTS; i++)
        fth_board_clear(world->board, i);
    assert_int_equal(fth_segment_used(world->segment), 0);
}

/* ---- many threads ---- */

enum { READERS = 3, WRITERS = 2, NUMBERS = 40, SIZE = 3000 };

typedef struct reader_traffic {
    segment_world *world;
    _Atomic bool stop;
    _Atomic int wrong;
    _Atomic uint64_t hits;
} reader_traffic;

static void *read_all_the_time(void *context)
{
    reader_traffic *traffic = context;
    for (uint64_t i = 0; !traffic->stop; i++) {
        uint64_t number = (i * 7) % NUMBERS;
        fth_pin held;
        bool found;
        if (fth_segment_pin(traffic->world->view, traffic->world->slot, id_of(number), &held, &found) != FTH_OK)
            traffic->wrong++;
        if (found && !is_filled(held.entry, number, SIZE + number))
            traffic->wrong++;
        if (found)
            traffic->hits++;
        fth_segment_unpin(traffic->world->slot, &held);
    }
    return NULL;
}

/* The memory is for fewer entries than there are, so it is used again all the time. */
static void *write_all_the_time(void *context)
{
    reader_traffic *traffic = context;
    for (uint64_t i = 0; !traffic->stop; i++) {
        uint64_t number = (i * 11) % NUMBERS;
        if (put(traffic->world->segment, number, SIZE + number) != FTH_OK)
            fth_segment_evict(traffic->world->segment, id_of((i * 13) % NUMBERS));
        fth_segment_evict(traffic->world->segment, id_of((i * 5) % NUMBERS));
    }
    return NULL;
}

static void readers_and_writers_agree(void **state)
{
    segment_world *world = *state;
    reader_traffic traffic = {.world = world};
    pthread_t threads[READERS + WRITERS];
    fth_segment_free(world->segment);
    fth_segment_unmap(world->view);
    assert_int_equal(fth_segment_create(20 * SIZE, world->board, &world->segment), FTH_OK);
    assert_int_equal(fth_segment_map(fth_segment_read_only_fd(world->segment), &world->view), FTH_OK);
    for (int i = 0; i < READERS + WRITERS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < READERS ? read_all_the_time : write_all_the_time, &traffic), 0);
    fth_deadline end = test_deadline_in(60);
    while (traffic.hits < 5000 && !fth_deadline_passed(end))
        usleep(1000);
    traffic.stop = true;
    for (int i = 0; i < READERS + WRITERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(traffic.wrong, 0);
    assert_true(traffic.hits >= 5000);
}

/* Others come and go around it; what stays is found every time. */
static void *churn(void *context)
{
    reader_traffic *traffic = context;
    for (uint64_t i = 0; !traffic->stop; i++) {
        uint64_t number = 1000 + i % 460; /* with those that stay, nearly as many as there can be */
        fth_segment_evict(traffic->world->segment, id_of(number));
        FTH_IGNORE(put(traffic->world->segment, number, 100), "the segment may be full");
    }
    return NULL;
}

static void what_stays_is_always_found(void **state)
{
    segment_world *world = *state;
    reader_traffic traffic = {.world = world};
    pthread_t thread;
    fth_pin held;
    for (uint64_t i = 0; i < 300; i++)
        assert_int_equal(put(world->segment, i, 100), FTH_OK);
    for (uint64_t i = 1000; i < 1460; i++)
        assert_int_equal(put(world->segment, i, 100), FTH_OK);
    assert_int_equal(pthread_create(&thread, NULL, churn, &traffic), 0);
    int missed = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        missed += !pin(world, i % 300, &held);
        fth_segment_unpin(world->slot, &held);
    }
    traffic.stop = true;
    pthread_join(thread, NULL);
    assert_int_equal(missed, 0);
}

#define WORLD_TEST(test) cmocka_unit_test_setup_teardown(test, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(what_is_published_is_found),
        WORLD_TEST(an_entry_larger_than_the_cache_is_never_tried_again),
        WORLD_TEST(an_entry_can_be_smaller_than_its_room),
        WORLD_TEST(pinned_memory_is_not_used_again),
        WORLD_TEST(what_the_owner_holds_is_not_used_again),
        WORLD_TEST(a_client_has_so_many_pins),
        WORLD_TEST(many_entries_come_and_go),
        WORLD_TEST(rows_run_out_without_harm),
        WORLD_TEST(damage_is_found),
        WORLD_TEST(clients_cannot_write_the_segment),
        WORLD_TEST(other_descriptors_are_refused),
        WORLD_TEST(memory_is_taken_over),
        WORLD_TEST(damaged_memory_is_taken_over_in_part),
        cmocka_unit_test(what_a_killed_owner_left_is_found),
        WORLD_TEST(a_wait_ends_with_the_item),
        WORLD_TEST(waits_end_in_time_and_with_failures),
        WORLD_TEST(the_owner_sees_positions_and_counters),
        WORLD_TEST(all_slots_can_be_taken),
        WORLD_TEST(a_board_full_of_noise_does_no_harm),
        WORLD_TEST(readers_and_writers_agree),
        WORLD_TEST(what_stays_is_always_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
