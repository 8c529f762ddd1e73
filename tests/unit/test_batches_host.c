/* The socket of a host: clients get slots and memory, however others behave, and leave nothing
 * behind. */
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "batches/client/client_connection.h"
#include "batches/memory/host.h"
#include "batches/memory/host_packet.h"

enum { MEMORY = 1 << 20, JOB = 77 };

/* A host, and a supplier that counts. */
typedef struct hosting {
    char path[TEST_MAX_PATH];
    fth_board *board;
    fth_segment_cache *segment;
    fth_host *host;
    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t changed;
    int slow, wakes, left, finished, left_hits;
    bool let_go;
} hosting;

static fth_status answer(void *context, int slot, json_t *request, json_t **result, uint64_t *job)
{
    hosting *h = context;
    const char *op = json_string_value(json_object_get(request, "op"));
    if (!op)
        return fth_fail(FTH_INVALID, "no op");
    if (strcmp(op, "slow") == 0) {
        pthread_mutex_lock(&h->mutex);
        h->slow++;
        pthread_cond_broadcast(&h->changed);
        while (!h->let_go)
            pthread_cond_wait(&h->changed, &h->mutex);
        pthread_mutex_unlock(&h->mutex);
    }
    if (strcmp(op, "register") == 0 || strcmp(op, "join") == 0)
        *job = JOB;
    if (strcmp(op, "fail") == 0)
        return fth_fail(FTH_UNSUPPORTED, "not here");
    if (strcmp(op, "large") == 0) {
        *result = json_array();
        for (int i = 0; i < 20000; i++)
            json_array_append_new(*result, json_sprintf("class number %d", i));
        *result = json_pack("{s:o}", "names", *result);
        return FTH_OK;
    }
    *result = json_pack("{s:s, s:i}", "op", op, "from", slot);
    return FTH_OK;
}

static void wake(void *context, int slot)
{
    hosting *h = context;
    (void)slot;
    pthread_mutex_lock(&h->mutex);
    h->wakes++;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

static void left(void *context, int slot, uint64_t job, bool finished)
{
    hosting *h = context;
    fth_slot_state seen;
    pthread_mutex_lock(&h->mutex);
    assert_int_equal(job, JOB);
    assert_true(fth_board_read(h->board, slot, &seen));
    h->left_hits = (int)seen.counters[FTH_SLOT_HITS];
    h->left++;
    h->finished += finished;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

static void open_host(hosting *h)
{
    fth_host_handler supplier = {.context = h, .answer = answer, .wake = wake, .left = left};
    assert_int_equal(fth_host_open(h->path, h->segment, h->board, &supplier, &h->host), FTH_OK);
}

static int open_hosting(void **state)
{
    hosting *h = calloc(1, sizeof *h);
    test_make_folder(state);
    assert_non_null(h);
    test_path(h->path, "socket");
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->changed, NULL);
    assert_int_equal(fth_board_create(&h->board), FTH_OK);
    assert_int_equal(fth_segment_create(MEMORY, h->board, &h->segment), FTH_OK);
    open_host(h);
    *state = h;
    return 0;
}

static int close_hosting(void **state)
{
    hosting *h = *state;
    fth_host_close(h->host);
    fth_segment_free(h->segment);
    fth_board_free(h->board);
    free(h);
    return test_remove_folder(state);
}

#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        fth_deadline end = test_deadline_in(60);                                                                       \
        while (!(condition) && !fth_deadline_passed(end))                                                              \
            usleep(1000);                                                                                              \
        assert_true(condition);                                                                                        \
    } while (0)

/* A number that the supplier counts. */
static int counted(hosting *h, const int *number)
{
    pthread_mutex_lock(&h->mutex);
    int value = *number;
    pthread_mutex_unlock(&h->mutex);
    return value;
}

static fth_host_link *connect_to(const hosting *h)
{
    fth_host_link *link = NULL;
    assert_int_equal(fth_host_connect(h->path, test_deadline_in(60), &link), FTH_OK);
    return link;
}

static json_t *ask(fth_host_link *link, const char *op, int fds[2])
{
    json_t *request = json_pack("{s:s}", "op", op), *got = NULL;
    assert_int_equal(fth_host_ask(link, request, test_deadline_in(60), &got, fds), FTH_OK);
    json_decref(request);
    return got;
}

static void tell(fth_host_link *link, const char *op)
{
    json_t *request = json_pack("{s:s}", "op", op);
    assert_int_equal(fth_host_tell(link, request), FTH_OK);
    json_decref(request);
}

static void assert_answered(fth_host_link *link, const char *op)
{
    json_t *got = ask(link, op, NULL);
    assert_string_equal(json_string_value(json_object_get(got, "op")), op);
    json_decref(got);
}

/* Registers, and maps what it is given. */
static fth_slot *enter(fth_host_link *link, fth_board **board, fth_segment_view **view)
{
    int fds[2];
    json_t *got = ask(link, "register", fds);
    assert_int_equal(fth_segment_map(fds[0], view), FTH_OK);
    assert_int_equal(fth_board_map(fds[1], board), FTH_OK);
    fth_slot *slot = fth_board_slot(*board, (int)json_integer_value(json_object_get(got, "slot")));
    assert_non_null(slot);
    json_decref(got);
    close(fds[0]);
    close(fds[1]);
    return slot;
}

static fth_item_id put(hosting *h, uint64_t number, uint64_t size)
{
    void *entry;
    fth_receipt receipt;
    fth_item_id id = {{number, number}};
    assert_int_equal(fth_segment_begin(h->segment, size, &entry), FTH_OK);
    fth_item_seal(entry, id, FTH_ITEM_ENCODED, size - sizeof(fth_item_header), &receipt);
    fth_segment_publish(h->segment, entry, &receipt);
    return id;
}

static void a_client_gets_memory_and_a_slot(void **state)
{
    hosting *h = *state;
    fth_host_link *link = connect_to(h), *second = connect_to(h);
    fth_board *board, *second_board;
    fth_segment_view *view, *second_view;
    fth_pin pin;
    bool found;
    fth_item_id id = put(h, 5, 1000);
    fth_slot *slot = enter(link, &board, &view), *second_slot = enter(second, &second_board, &second_view);
    assert_int_equal(fth_segment_pin(view, slot, id, &pin, &found), FTH_OK);
    assert_true(found);
    fth_segment_unpin(slot, &pin);
    assert_int_equal(fth_host_clients(h->host), 2);

    /* a connection has one job */
    json_t *got = ask(link, "join", NULL);
    assert_string_equal(json_string_value(json_object_get(got, "status")), "invalid");
    json_decref(got);
    got = ask(link, "describe", NULL);
    assert_true(json_integer_value(json_object_get(got, "from")) >= 0);
    json_decref(got);

    tell(link, "wake");
    UNTIL(counted(h, &h->wakes) == 1);
    fth_slot_count(slot, FTH_SLOT_HITS, 9);
    tell(link, "finish");
    fth_segment_unmap(view);
    fth_board_free(board);
    fth_host_disconnect(link);
    UNTIL(counted(h, &h->left) == 1);
    assert_int_equal(counted(h, &h->finished), 1);
    assert_int_equal(counted(h, &h->left_hits), 9);

    fth_slot_want(second_slot, id);
    fth_segment_unmap(second_view);
    fth_board_free(second_board);
    fth_host_disconnect(second);
    UNTIL(counted(h, &h->left) == 2);
    assert_int_equal(counted(h, &h->finished), 1);
    UNTIL(fth_host_clients(h->host) == 0);
}

static void failures_are_answers(void **state)
{
    hosting *h = *state;
    fth_host_link *link = connect_to(h);
    json_t *got = ask(link, "fail", NULL);
    assert_string_equal(json_string_value(json_object_get(got, "error")), "not here");
    assert_int_equal(fth_status_find(json_string_value(json_object_get(got, "status"))), FTH_UNSUPPORTED);
    json_decref(got);
    assert_answered(link, "describe");
    fth_host_disconnect(link);
}

static void large_answers_arrive(void **state)
{
    hosting *h = *state;
    fth_host_link *link = connect_to(h);
    json_t *got = ask(link, "large", NULL);
    assert_int_equal(json_array_size(json_object_get(got, "names")), 20000);
    json_decref(got);
    fth_host_disconnect(link);
}

static void a_slow_answer_holds_up_nobody(void **state)
{
    hosting *h = *state;
    fth_host_link *slow = connect_to(h), *leaving = connect_to(h), *other = connect_to(h);
    json_t *request = json_pack("{s:s}", "op", "slow"), *got = NULL;
    assert_int_equal(fth_host_ask(slow, request, fth_deadline_in(0.05), &got, NULL), FTH_TIMEOUT);
    assert_null(got);
    assert_int_equal(fth_host_ask(leaving, request, fth_deadline_in(0.05), &got, NULL), FTH_TIMEOUT);
    UNTIL(counted(h, &h->slow) == 2);
    assert_answered(other, "describe");
    fth_host_disconnect(leaving); /* while it is being answered */
    assert_answered(other, "describe");
    pthread_mutex_lock(&h->mutex);
    h->let_go = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
    assert_answered(slow, "describe"); /* and not the late answer to what was given up */
    UNTIL(fth_host_clients(h->host) == 2);
    json_decref(request);
    fth_host_disconnect(slow);
    fth_host_disconnect(other);
}

static int connect_plainly(const hosting *h)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    memcpy(address.sun_path, h->path, strlen(h->path));
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void bad_clients_are_dropped(void **state)
{
    hosting *h = *state;
    fth_host_link *good = connect_to(h);
    char *big = calloc(1, FTH_HOST_REQUEST_BYTES + 1000);
    const char *const packets[] = {
        "", "x", "{", "[]", "{\"op\":\"describe\",\"n\":1}{", "\xff\xff", "{\"op\":1,\"op\":2}"};
    assert_non_null(big);
    for (size_t i = 0; i <= FTH_COUNT_OF(packets); i++) {
        int fd = connect_plainly(h);
        char byte;
        if (i < FTH_COUNT_OF(packets))
            assert_true(send(fd, packets[i], strlen(packets[i]), 0) >= 0);
        else
            assert_true(send(fd, big, FTH_HOST_REQUEST_BYTES + 1000, 0) > 0);
        assert_int_equal(recv(fd, &byte, 1, 0), 0); /* hung up */
        close(fd);
    }
    /* what is JSON and no known request is the supplier's to refuse */
    int fd = connect_plainly(h);
    char text[1000] = "";
    assert_true(send(fd, "{\"n\":[1]}", 9, 0) == 9);
    assert_true(recv(fd, text, sizeof text - 1, 0) > 0);
    assert_non_null(strstr(text, "no op"));
    close(fd);
    assert_answered(good, "describe");
    fth_host_disconnect(good);
    free(big);
}

/* Asks and never reads: it is dropped when its socket is full, and others are served all the
 * while. */
static void who_does_not_read_is_dropped(void **state)
{
    hosting *h = *state;
    fth_host_link *good = connect_to(h);
    int fd = connect_plainly(h);
    UNTIL(fth_host_clients(h->host) == 2);
    fth_deadline end = test_deadline_in(60);
    while (fth_host_clients(h->host) == 2 && !fth_deadline_passed(end)) {
        send(fd, "{\"op\":\"describe\",\"n\":1}", 23, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_answered(good, "describe");
    }
    assert_int_equal(fth_host_clients(h->host), 1);
    close(fd);
    fth_host_disconnect(good);
}

/* Descriptors that a client sends are not kept. */
static void descriptors_of_clients_are_not_taken(void **state)
{
    hosting *h = *state;
    int fd = connect_plainly(h), pipes[2];
    char byte, text[1000];
    assert_int_equal(pipe(pipes), 0);
    json_t *request = json_pack("{s:s, s:i}", "op", "describe", "n", 1);
    assert_int_equal(fth_packet_send(fd, request, (int[]){pipes[1], pipes[1]}), FTH_OK);
    assert_true(recv(fd, text, sizeof text, 0) > 0);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &byte, 1), 0); /* nobody else has the other end */
    close(pipes[0]);
    close(fd);
    json_decref(request);
}

static void many_clients_are_served(void **state)
{
    hosting *h = *state;
    enum { MANY = 200 };
    fth_host_link *links[MANY];
    for (int i = 0; i < MANY; i++)
        links[i] = connect_to(h);
    for (int i = 0; i < MANY; i++) {
        json_t *got = ask(links[i], "register", NULL);
        assert_int_equal(json_integer_value(json_object_get(got, "slot")), i);
        json_decref(got);
    }
    for (int i = 0; i < MANY; i++)
        assert_answered(links[i], "describe");
    for (int i = 0; i < MANY; i++)
        fth_host_disconnect(links[i]);
    UNTIL(counted(h, &h->left) == MANY);
}

static void there_is_one_host_at_a_path(void **state)
{
    hosting *h = *state;
    fth_host_handler supplier = {.context = h, .answer = answer, .wake = wake, .left = left};
    fth_host *other = NULL;
    assert_int_equal(fth_host_open(h->path, h->segment, h->board, &supplier, &other), FTH_INVALID);
    assert_message_has("another process");
    assert_null(other);
    fth_host_link *link = connect_to(h);
    assert_answered(link, "describe");
    assert_false(fth_host_is_gone(link));
    fth_host_close(h->host);
    assert_true(fth_host_is_gone(link));
    json_t *request = json_pack("{s:s}", "op", "describe"), *got = NULL;
    assert_int_equal(fth_host_ask(link, request, test_deadline_in(60), &got, NULL), FTH_PEER_LOST);
    json_decref(request);
    fth_host_disconnect(link);
    assert_false(test_exists("socket"));
    assert_false(test_exists("socket.lock"));
    assert_int_equal(fth_host_connect(h->path, test_deadline_in(60), &link), FTH_PEER_LOST);
    open_host(h);
}

/* What a killed host leaves is replaced. */
static void a_dead_host_is_replaced(void **state)
{
    hosting *h = *state;
    fth_host_link *link;
    fth_host_close(h->host);
    h->host = NULL;
    pid_t child = fork();
    if (child == 0) {
        open_host(h);
        raise(SIGKILL);
    }
    assert_true(waitpid(child, NULL, 0) == child);
    assert_true(test_exists("socket"));
    assert_int_equal(fth_host_connect(h->path, test_deadline_in(60), &link), FTH_PEER_LOST);
    open_host(h);
    link = connect_to(h);
    assert_answered(link, "describe");
    fth_host_disconnect(link);
}

/* A client that is killed while it reads, and one whose socket a child of its own still has. */
static void killed_clients_pin_nothing(void **state)
{
    hosting *h = *state;
    for (int with_child = 0; with_child < 2; with_child++) {
        fth_item_id id = put(h, 5, MEMORY);
        int pipes[2], stay[2];
        char byte = 0;
        assert_int_equal(pipe(pipes), 0);
        assert_int_equal(pipe(stay), 0);
        pid_t child = fork();
        if (child == 0) {
            fth_board *board;
            fth_segment_view *view;
            fth_pin pin;
            bool found = false;
            close(stay[1]);
            fth_slot *slot = enter(connect_to(h), &board, &view);
            FTH_IGNORE(fth_segment_pin(view, slot, id, &pin, &found), "the parent checks `found`");
            if (with_child && fork() == 0)
                _exit(read(stay[0], &byte, 1) != 0);
            byte = found;
            _exit(write(pipes[1], &byte, 1) != 1 || pause());
        }
        close(stay[0]);
        assert_int_equal(read(pipes[0], &byte, 1), 1);
        assert_int_equal(byte, 1);
        assert_true(fth_segment_evict(h->segment, id));
        assert_int_equal(fth_segment_used(h->segment), MEMORY);
        kill(child, SIGKILL);
        assert_true(waitpid(child, NULL, 0) == child);
        UNTIL(fth_segment_used(h->segment) == 0);
        UNTIL(counted(h, &h->left) == with_child + 1);
        close(stay[1]);
        close(pipes[0]);
        close(pipes[1]);
    }
}

/* A client that is stopped holds what it reads, and no more than that. */
static void a_paused_client_holds_only_what_it_reads(void **state)
{
    hosting *h = *state;
    fth_item_id id = put(h, 5, MEMORY / 4);
    int pipes[2];
    char byte = 0;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        fth_board *board;
        fth_segment_view *view;
        fth_pin pin;
        bool found = false;
        fth_slot *slot = enter(connect_to(h), &board, &view);
        FTH_IGNORE(fth_segment_pin(view, slot, id, &pin, &found), "the parent checks `found`");
        byte = found;
        _exit(write(pipes[1], &byte, 1) != 1 || pause());
    }
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    kill(child, SIGSTOP);
    assert_true(fth_segment_evict(h->segment, id));
    for (uint64_t i = 100; i < 120; i++)
        assert_true(fth_segment_evict(h->segment, put(h, i, MEMORY / 2)));
    assert_int_equal(fth_segment_used(h->segment), MEMORY / 4);
    fth_host_link *link = connect_to(h);
    assert_answered(link, "describe");
    fth_host_disconnect(link);
    kill(child, SIGKILL);
    assert_true(waitpid(child, NULL, 0) == child);
    UNTIL(fth_segment_used(h->segment) == 0);
    close(pipes[0]);
    close(pipes[1]);
}

typedef struct waiting {
    fth_connection *connection;
    fth_item_id id;
    fth_status status;
} waiting;

static void *wait_for_item(void *context)
{
    waiting *w = context;
    w->status = fth_connection_wait(w->connection, w->id, test_deadline_in(60));
    return NULL;
}

static void a_thread_that_waits_for_something_else_holds_up_nobody(void **state)
{
    hosting *h = *state;
    fth_connection *connection = NULL;
    json_t *answered = NULL;
    pthread_t thread;
    assert_int_equal(fth_connection_open(h->path, json_pack("{s:s}", "op", "register"), test_deadline_in(60), &answered,
                                         &connection),
                     FTH_OK);
    waiting never = {.connection = connection, .id = {{9, 9}}, .status = FTH_OK};
    assert_int_equal(pthread_create(&thread, NULL, wait_for_item, &never), 0);
    UNTIL(counted(h, &h->wakes) == 1);
    waiting soon = {.connection = connection, .id = put(h, 1, 1000), .status = FTH_IO};
    wait_for_item(&soon);
    assert_int_equal(soon.status, FTH_OK);
    fth_slot_state seen;
    assert_true(fth_board_read(h->board, 0, &seen) && seen.waiting); /* the other does, still */
    fth_board_wake(h->board, never.id, FTH_CORRUPT);
    pthread_join(thread, NULL);
    assert_int_equal(never.status, FTH_CORRUPT);
    json_decref(answered);
    fth_connection_release(connection);
}

static void the_folder_of_sockets_is_this_users_alone(void **state)
{
    (void)state;
    char folder[TEST_MAX_PATH], runtime[TEST_MAX_PATH], *path = NULL, *other = NULL;
    struct stat facts;
    const char *kept = getenv("XDG_RUNTIME_DIR");
    char *before = kept ? strdup(kept) : NULL;
    test_path(runtime, "");
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    test_path(folder, "/farthing");
    assert_int_equal(fth_host_socket_path("cache", 7070, NULL, &path), FTH_OK);
    assert_int_equal(stat(folder, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0700);
    assert_int_equal(fth_host_socket_path("cache", 7071, NULL, &other), FTH_OK);
    assert_string_not_equal(path, other);
    free(other);
    assert_int_equal(fth_host_socket_path("cache", 7070, "key", &other), FTH_OK);
    assert_string_not_equal(path, other);
    assert_null(strstr(other, "key"));
    free(other);
    free(path);

    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(fth_host_socket_path("cache", 7070, NULL, &path), FTH_INVALID);
    assert_message_has("chmod 700");
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(symlink("/tmp", folder), 0);
    assert_int_equal(fth_host_socket_path("cache", 7070, NULL, &path), FTH_INVALID);
    assert_message_has("not a folder");
    unlink(folder);
    if (before)
        setenv("XDG_RUNTIME_DIR", before, 1);
    else
        unsetenv("XDG_RUNTIME_DIR");
    free(before);
}

#define HOST_TEST(test) cmocka_unit_test_setup_teardown(test, open_hosting, close_hosting)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOST_TEST(a_client_gets_memory_and_a_slot),
        HOST_TEST(failures_are_answers),
        HOST_TEST(large_answers_arrive),
        HOST_TEST(a_slow_answer_holds_up_nobody),
        HOST_TEST(bad_clients_are_dropped),
        HOST_TEST(who_does_not_read_is_dropped),
        HOST_TEST(descriptors_of_clients_are_not_taken),
        HOST_TEST(many_clients_are_served),
        HOST_TEST(there_is_one_host_at_a_path),
        HOST_TEST(a_dead_host_is_replaced),
        HOST_TEST(killed_clients_pin_nothing),
        HOST_TEST(a_paused_client_holds_only_what_it_reads),
        HOST_TEST(a_thread_that_waits_for_something_else_holds_up_nobody),
        HOST_TEST(the_folder_of_sockets_is_this_users_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
