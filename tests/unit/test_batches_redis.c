/* The Redis cache against real servers: one, with passwords, TLS, several, full, paused, killed, a
 * replica, and what is none. */
#include "support.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "batches/cache/cache.h"
#include "http/tls.h"
#include "test_batches_entries.h"
#include "test_batches_redis_server.h"

enum { SERVERS = 3, THREADS = 6 };

typedef struct redis_fixture {
    test_redis servers[SERVERS];
    fth_cache *cache;
} redis_fixture;

static int set_up(void **state)
{
    static redis_fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    *state = &fixture;
    unsetenv("FARTHING_REDIS_PASSWORD");
    unsetenv("FARTHING_REDIS_USER");
    return test_make_folder(NULL);
}

static int tear_down(void **state)
{
    redis_fixture *fixture = *state;
    fth_cache_free(fixture->cache);
    for (int i = 0; i < SERVERS; i++)
        redis_kill(&fixture->servers[i]);
    return test_remove_folder(NULL);
}

static fth_status open_at(const char *address, fth_cache **cache)
{
    return fth_cache_open(address, &(fth_cache_options){.memory_bytes = 1 << 30, .deadline_s = 5 * TEST_SLOWDOWN},
                          cache);
}

/* Opens the first server's cache, with what comes before and after host and port. */
static fth_status open_first(redis_fixture *fixture, const char *before, const char *after)
{
    char address[256];
    fth_cache_free(fixture->cache);
    fixture->cache = NULL;
    snprintf(address, sizeof address, "redis://%s127.0.0.1:%d%s", before, fixture->servers[0].port, after);
    return open_at(address, &fixture->cache);
}

/* ---- addresses ---- */

static void addresses_are_checked(void **state)
{
    static const char *const good[] = {"redis://localhost",
                                       "redis://10.0.0.1:6379",
                                       "rediss://a:1,b:2,c:3",
                                       "redis://:secret@host/2",
                                       "redis://user:p%40ss@host:1/run-7",
                                       "redis://[::1]:6379/0/name",
                                       "shm"};
    static const struct {
        const char *address, *message;
    } bad[] = {
        {"redis://", "HOST:PORT"},
        {"redis://host:0", "HOST:PORT"},
        {"redis://host:70000", "HOST:PORT"},
        {"redis://a,,b", "HOST:PORT"},
        {"redis://a:1,a:1", "named twice"},
        {"redis://a/x{y}", "letters, digits"},
        {"redis://a?x=1", "must not contain '?'"},
        {"redis://user@a", "without a password"},
        {"memcached://a", "expected shm, redis://"},
        {"shmm", "expected shm, redis://"},
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(good); i++)
        if (fth_cache_check(good[i]) != FTH_OK)
            fail_msg("%s: %s", good[i], fth_error_message());
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        assert_int_equal(fth_cache_check(bad[i].address), FTH_INVALID);
        assert_message_of(bad[i].address, bad[i].message);
    }
}

/* ---- one server ---- */

static void entries_come_back_as_they_were(void **state)
{
    redis_fixture *fixture = *state;
    uint64_t numbers[300];
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], NULL);
    assert_int_equal(open_first(fixture, "", ""), FTH_OK);
    assert_int_equal(redis_count(&fixture->servers[0]), 0); /* the check at opening leaves nothing */
    put_range(fixture->cache, 0, 150);
    for (size_t i = 0; i < 300; i++)
        numbers[i] = i; /* half of them are not there */
    assert_int_equal(get_numbers(fixture->cache, numbers, 300, SERVER_START_S, NULL), 150);
    assert_int_equal(count_all(fixture->cache), 150);

    fth_item_id gone[] = {id_of(0), id_of(1), id_of(1000)};
    assert_int_equal(fth_cache_remove(fixture->cache, gone, 3), FTH_OK);
    assert_int_equal(get_numbers(fixture->cache, numbers, 300, SERVER_START_S, NULL), 148);
    assert_int_equal(count_all(fixture->cache), 148);

    /* Another prefix is another cache. */
    fth_cache *other = NULL;
    char address[128];
    snprintf(address, sizeof address, "redis://127.0.0.1:%d/other", fixture->servers[0].port);
    assert_int_equal(open_at(address, &other), FTH_OK);
    assert_int_equal(count_all(other), 0);
    assert_int_equal(get_range(other, 0, 10, NULL), 0);
    fth_cache_free(other);
}

static void entries_expire_unless_they_are_used(void **state)
{
    redis_fixture *fixture = *state;
    char text[FTH_ITEM_ID_TEXT];
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], NULL);
    assert_int_equal(open_first(fixture, "", ""), FTH_OK);
    put_range(fixture->cache, 5, 1);
    fth_item_id_format(id_of(5), text);
    redisReply *reply = redis_say(&fixture->servers[0], "PTTL farthing:batches:%s", text);
    assert_in_range(reply->integer, 3000 * 1000, 3600 * 1000);
    freeReplyObject(reply);
    freeReplyObject(redis_say(&fixture->servers[0], "PEXPIRE farthing:batches:%s 900000", text));
    assert_int_equal(get_range(fixture->cache, 5, 1, NULL), 1);
    reply = redis_say(&fixture->servers[0], "PTTL farthing:batches:%s", text);
    assert_in_range(reply->integer, 3000 * 1000, 3600 * 1000);
    freeReplyObject(reply);
}

static void a_damaged_entry_is_left_out(void **state)
{
    redis_fixture *fixture = *state;
    char text[FTH_ITEM_ID_TEXT], other[FTH_ITEM_ID_TEXT];
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], NULL);
    assert_int_equal(open_first(fixture, "", ""), FTH_OK);
    put_range(fixture->cache, 0, 5);
    fth_item_id_format(id_of(1), text);
    freeReplyObject(redis_say(&fixture->servers[0], "SETRANGE farthing:batches:%s 99 xyz", text));
    fth_item_id_format(id_of(2), text);
    freeReplyObject(redis_say(&fixture->servers[0], "APPEND farthing:batches:%s xyz", text));
    fth_item_id_format(id_of(3), text);
    fth_item_id_format(id_of(4), other);
    freeReplyObject(redis_say(&fixture->servers[0], "RENAME farthing:batches:%s farthing:batches:%s", text, other));
    fth_item_id_format(id_of(0), text);
    freeReplyObject(redis_say(&fixture->servers[0], "SET farthing:batches:%s %b", text, "", (size_t)0));
    assert_int_equal(get_range(fixture->cache, 0, 5, NULL), 0);
    freeReplyObject(redis_say(&fixture->servers[0], "DEL farthing:batches:%s", text));
    freeReplyObject(redis_say(&fixture->servers[0], "LPUSH farthing:batches:%s x", text));
    fth_status status;
    assert_int_equal(get_range(fixture->cache, 0, 5, &status), 0);
    assert_int_equal(status, FTH_IO);
    assert_message_has("WRONGTYPE");
}

static void take_size(void *context, size_t which, const void *entry, uint64_t size_bytes)
{
    (void)entry;
    ((uint64_t *)context)[which] = size_bytes;
}

static void large_entries_are_whole_and_larger_ones_refused(void **state)
{
    redis_fixture *fixture = *state;
    const uint64_t large = (UINT64_C(24) << 20) + 12345;
    void *entry = NULL;
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], NULL);
    assert_int_equal(open_first(fixture, "", ""), FTH_OK);
    assert_int_equal(put_sized(fixture->cache, 1, large), FTH_OK);
    redisReply *reply = redis_say(&fixture->servers[0], "DBSIZE");
    assert_int_equal(reply->integer, 1);
    freeReplyObject(reply);
    put_range(fixture->cache, 2, 3);
    /* The large one is not what take_entry() expects: look at the sizes alone. */
    uint64_t sizes[4] = {0};
    fth_item_id ids[] = {id_of(2), id_of(1), id_of(3), id_of(4)};
    assert_int_equal(fth_cache_get(fixture->cache, ids, 4, test_deadline_in(SERVER_START_S), take_size, sizes), FTH_OK);
    assert_int_equal(sizes[1], large);
    assert_int_equal(sizes[3], size_of(4));

    /* Looked at, without being read. */
    fth_receipt receipt = {0};
    bool found = false;
    assert_int_equal(fth_cache_look(fixture->cache, id_of(1), test_deadline_in(SERVER_START_S), &receipt, &found),
                     FTH_OK);
    assert_true(found && fth_item_id_equal(receipt.id, id_of(1)) && receipt.size_bytes == large);
    assert_int_equal(fth_cache_look(fixture->cache, id_of(9), test_deadline_in(SERVER_START_S), &receipt, &found),
                     FTH_OK);
    assert_false(found);

    assert_int_equal(fth_cache_begin(fixture->cache, UINT64_C(600) << 20, &entry), FTH_UNSUPPORTED);
    assert_message_has("smaller batch");
}

/* ---- servers that refuse ---- */

static void passwords_are_asked_for_and_never_shown(void **state)
{
    redis_fixture *fixture = *state;
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], (const char *[]){"--requirepass", "hidden-word", NULL});

    assert_int_equal(open_first(fixture, "", ""), FTH_INVALID);
    assert_message_has("requires a password; set FARTHING_REDIS_PASSWORD");
    assert_int_equal(open_first(fixture, ":wrong-word@", ""), FTH_INVALID);
    assert_message_has("does not accept this user and password");
    assert_null(strstr(fth_error_message(), "wrong-word"));
    assert_int_equal(open_first(fixture, ":hidden-word@", ""), FTH_OK);
    assert_null(strstr(fth_cache_name(fixture->cache), "hidden-word"));
    put_range(fixture->cache, 0, 3);

    setenv("FARTHING_REDIS_PASSWORD", "hidden-word", 1);
    assert_int_equal(open_first(fixture, "", ""), FTH_OK);
    assert_int_equal(get_range(fixture->cache, 0, 3, NULL), 3);
    unsetenv("FARTHING_REDIS_PASSWORD");
}

static void users_may_do_what_their_rules_allow(void **state)
{
    redis_fixture *fixture = *state;
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], NULL);
    redis_do(&fixture->servers[0], "ACL SETUSER reader on >letters ~farthing:* +@read +hello");
    redis_do(&fixture->servers[0], "ACL SETUSER writer on >p@ss:/w ~farthing:* +@read +@write +@connection");
    assert_int_equal(open_first(fixture, "reader:letters@", ""), FTH_INVALID);
    assert_message_has("does not give this user enough permissions");
    assert_int_equal(open_first(fixture, "writer:p%40ss%3A%2Fw@", "/name"), FTH_OK);
    put_range(fixture->cache, 0, 3);
    assert_int_equal(count_all(fixture->cache), 3);
    assert_int_equal(open_first(fixture, "writer:other@", ""), FTH_INVALID);
}

static void a_full_server_says_so(void **state)
{
    redis_fixture *fixture = *state;
    fth_status status = FTH_OK;
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], (const char *[]){"--maxmemory", "4mb", "--maxmemory-policy", "noeviction", NULL});
    assert_int_equal(open_first(fixture, "", ""), FTH_OK);
    for (uint64_t i = 0; i < 50 && status == FTH_OK; i++)
        status = put_sized(fixture->cache, i, 200 << 10);
    assert_int_equal(status, FTH_NO_MEMORY);
    assert_message_has("is full; raise its maxmemory");
    /* It can still be opened, listed and emptied. */
    assert_int_equal(open_first(fixture, "", ""), FTH_OK);
    fth_item_id id = id_of(0);
    assert_int_equal(fth_cache_remove(fixture->cache, &id, 1), FTH_OK);
    assert_int_equal(put_sized(fixture->cache, 100, 1000), FTH_OK);
}

static void a_replica_is_refused(void **state)
{
    redis_fixture *fixture = *state;
    char port[16];
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[1], NULL);
    snprintf(port, sizeof port, "%d", fixture->servers[1].port);
    redis_start(&fixture->servers[0], (const char *[]){"--replicaof", "127.0.0.1", port, NULL});
    assert_int_equal(open_first(fixture, "", ""), FTH_INVALID);
    assert_message_has("read-only replica; give the address of its master");
}

static void a_database_is_chosen_by_its_number(void **state)
{
    redis_fixture *fixture = *state;
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], NULL);
    assert_int_equal(open_first(fixture, "", "/3"), FTH_OK);
    put_range(fixture->cache, 0, 2);
    assert_int_equal(redis_count(&fixture->servers[0]), 0);
    assert_int_equal(count_all(fixture->cache), 2);
    assert_int_equal(open_first(fixture, "", "/99"), FTH_INVALID);
    assert_message_has("no such database");
}

/* Answers one connection as a web server answers what it does not understand. */
static void *answer_as_web_server(void *context)
{
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    int listener = *(int *)context, fd = accept(listener, NULL, NULL);
    char byte;
    (void)!recv(fd, &byte, 1, 0);
    (void)!send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    while (recv(fd, &byte, 1, 0) > 0)
        ;
    close(fd);
    return NULL;
}

static void what_is_not_redis_is_named(void **state)
{
    redis_fixture *fixture = *state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t thread;
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    fixture->servers[0].port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&thread, NULL, answer_as_web_server, &listener), 0);
    assert_int_equal(open_first(fixture, "", ""), FTH_INVALID);
    assert_message_has("does not answer like Redis");
    pthread_join(thread, NULL);
    close(listener);
    assert_int_equal(open_first(fixture, "", ""), FTH_PEER_LOST);
    assert_message_has("check that the server runs");
}

/* ---- TLS ---- */

static void tls_is_checked(void **state)
{
    redis_fixture *fixture = *state;
    char *certificate = NULL, *key = NULL, certificate_path[TEST_MAX_PATH], key_path[TEST_MAX_PATH], address[128];
    SKIP_WITHOUT_REDIS();
    assert_int_equal(fth_tls_make_certificate("localhost", &certificate, &key), FTH_OK);
    test_write_text("certificate.pem", certificate);
    test_write_text("key.pem", key);
    test_path(certificate_path, "certificate.pem");
    test_path(key_path, "key.pem");
    free(certificate);
    free(key);
    fixture->servers[0].tls_only = true;
    redis_start(&fixture->servers[0],
                (const char *[]){"--tls-cert-file", certificate_path, "--tls-key-file", key_path, "--tls-ca-cert-file",
                                 certificate_path, "--tls-auth-clients", "no", "--requirepass", "word", NULL});

    snprintf(address, sizeof address, "rediss://:word@127.0.0.1:%d", fixture->servers[0].port);
    assert_int_equal(open_at(address, &fixture->cache), FTH_INVALID);
    assert_message_has("untrusted certificate");
    setenv("FARTHING_REDIS_CA", certificate_path, 1);
    assert_int_equal(open_at(address, &fixture->cache), FTH_OK);
    unsetenv("FARTHING_REDIS_CA");
    put_range(fixture->cache, 0, 100);
    assert_int_equal(put_sized(fixture->cache, 1000, 20 << 20), FTH_OK);
    assert_int_equal(get_range(fixture->cache, 0, 100, NULL), 100);
    uint64_t size_bytes = 0;
    fth_item_id id = id_of(1000);
    assert_int_equal(fth_cache_get(fixture->cache, &id, 1, test_deadline_in(SERVER_START_S), take_size, &size_bytes),
                     FTH_OK);
    assert_int_equal(size_bytes, 20 << 20);
    fth_cache_free(fixture->cache);
    fixture->cache = NULL;

    /* The wrong scheme, both ways. */
    assert_int_equal(open_first(fixture, "", ""), FTH_PEER_LOST);
    assert_message_has("if it speaks TLS, write rediss://");
    redis_start(&fixture->servers[1], NULL);
    snprintf(address, sizeof address, "rediss://127.0.0.1:%d", fixture->servers[1].port);
    const fth_cache_options options = {.memory_bytes = 1 << 30, .ca_file = certificate_path, .deadline_s = 5};
    assert_int_equal(fth_cache_open(address, &options, &fixture->cache), FTH_TIMEOUT);
    assert_message_has("write redis:// if it does not speak TLS");
}

/* ---- servers that go away ---- */

static void a_paused_server_costs_one_deadline(void **state)
{
    redis_fixture *fixture = *state;
    uint64_t numbers[] = {0, 1, 2};
    fth_status status;
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], NULL);
    assert_int_equal(open_first(fixture, "", ""), FTH_OK);
    put_range(fixture->cache, 0, 3);

    kill(fixture->servers[0].process, SIGSTOP);
    double begin_s = fth_clock_seconds();
    assert_int_equal(get_numbers(fixture->cache, numbers, 3, 0.2, &status), 0);
    assert_int_equal(status, FTH_TIMEOUT);
    assert_message_has("did not answer in time");
    assert_true(fth_clock_seconds() - begin_s >= 0.2);
    kill(fixture->servers[0].process, SIGCONT);
    fth_deadline deadline = test_deadline_in(SERVER_START_S);
    while (get_numbers(fixture->cache, numbers, 3, 5, &status) != 3) {
        assert_false(fth_deadline_passed(deadline));
        short_sleep();
    }
    assert_int_equal(status, FTH_OK);
}

static void a_restarted_server_is_found_again(void **state)
{
    redis_fixture *fixture = *state;
    fth_status status;
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], NULL);
    assert_int_equal(open_first(fixture, "", ""), FTH_OK);
    put_range(fixture->cache, 0, 20);
    assert_int_equal(get_range(fixture->cache, 0, 20, NULL), 20);

    /* While nobody looked: the old connection is replaced without a word, and what was there has
     * gone. */
    redis_restart(&fixture->servers[0]);
    assert_int_equal(get_range(fixture->cache, 0, 20, NULL), 0);
    put_range(fixture->cache, 0, 20);
    assert_int_equal(get_range(fixture->cache, 0, 20, NULL), 20);

    redis_kill(&fixture->servers[0]);
    assert_int_equal(get_range(fixture->cache, 0, 20, &status), 0);
    assert_int_equal(status, FTH_PEER_LOST);
    assert_int_equal(put_number(fixture->cache, 1), FTH_PEER_LOST);
    redis_restart(&fixture->servers[0]);
    fth_deadline deadline = test_deadline_in(SERVER_START_S);
    while (put_number(fixture->cache, 1) != FTH_OK) {
        assert_false(fth_deadline_passed(deadline));
        short_sleep();
    }
    assert_int_equal(get_range(fixture->cache, 1, 1, NULL), 1);
}

typedef struct cache_user {
    redis_fixture *fixture;
    uint64_t first;
    atomic_bool *stop;
    atomic_int *found, *failed;
} cache_user;

/* Puts and gets until told to stop; whatever is found is right. */
static void *use_cache(void *context)
{
    cache_user *user = context;
    for (uint64_t turn = 0; !atomic_load(user->stop); turn++) {
        uint64_t numbers[8];
        fth_status status;
        for (uint64_t i = 0; i < 8; i++) {
            numbers[i] = user->first + (turn * 8 + i) % 64;
            if (put_number(user->fixture->cache, numbers[i]) != FTH_OK)
                atomic_fetch_add(user->failed, 1);
        }
        atomic_fetch_add(user->found, (int)get_numbers(user->fixture->cache, numbers, 8, 2, &status));
    }
    return NULL;
}

static void threads_survive_a_server_killed_in_mid_use(void **state)
{
    redis_fixture *fixture = *state;
    pthread_t threads[THREADS];
    cache_user users[THREADS];
    atomic_bool stop = false;
    atomic_int found = 0, failed = 0;
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->servers[0], NULL);
    assert_int_equal(open_first(fixture, "", ""), FTH_OK);
    for (int i = 0; i < THREADS; i++) {
        users[i] = (cache_user){.fixture = fixture,
                                .first = (uint64_t)i / 2 * 1000, /* two of them have the same entries */
                                .stop = &stop,
                                .found = &found,
                                .failed = &failed};
        assert_int_equal(pthread_create(&threads[i], NULL, use_cache, &users[i]), 0);
    }
    fth_deadline deadline = test_deadline_in(SERVER_START_S);
    for (int round = 0; round < 3; round++) {
        int before = atomic_load(&found), failures = atomic_load(&failed);
        while (atomic_load(&found) < before + 200 && !fth_deadline_passed(deadline))
            short_sleep();
        redis_kill(&fixture->servers[0]);
        while (atomic_load(&failed) == failures && !fth_deadline_passed(deadline))
            short_sleep();
        redis_restart(&fixture->servers[0]);
    }
    int before = atomic_load(&found);
    while (atomic_load(&found) < before + 200 && !fth_deadline_passed(deadline))
        short_sleep();
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(atomic_load(&found) >= before + 200);
}

/* ---- several servers ---- */

static void several_servers_share_the_entries(void **state)
{
    redis_fixture *fixture = *state;
    char address[256];
    fth_status status;
    SKIP_WITHOUT_REDIS();
    for (int i = 0; i < SERVERS; i++)
        redis_start(&fixture->servers[i], NULL);
    snprintf(address, sizeof address, "redis://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", fixture->servers[0].port,
             fixture->servers[1].port, fixture->servers[2].port);
    assert_int_equal(open_at(address, &fixture->cache), FTH_OK);
    put_range(fixture->cache, 0, 300);
    for (int i = 0; i < SERVERS; i++)
        assert_in_range(redis_count(&fixture->servers[i]), 50, 150);
    assert_int_equal(get_range(fixture->cache, 0, 300, NULL), 300);
    assert_int_equal(count_all(fixture->cache), 300);

    /* One is down: the entries of the others are there, and the call says which server is not. */
    long long lost = redis_count(&fixture->servers[1]);
    redis_kill(&fixture->servers[1]);
    assert_int_equal(get_range(fixture->cache, 0, 300, &status), 300 - lost);
    assert_int_equal(status, FTH_PEER_LOST);
    snprintf(address, sizeof address, "127.0.0.1:%d", fixture->servers[1].port);
    assert_message_has(address);
    redis_restart(&fixture->servers[1]);
    fth_deadline deadline = test_deadline_in(SERVER_START_S);
    do {
        assert_false(fth_deadline_passed(deadline));
        assert_int_equal(get_range(fixture->cache, 0, 300, &status), 300 - lost);
    } while (status != FTH_OK);

    /* The order in the address does not matter. */
    fth_cache *other = NULL;
    snprintf(address, sizeof address, "redis://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", fixture->servers[2].port,
             fixture->servers[0].port, fixture->servers[1].port);
    assert_int_equal(open_at(address, &other), FTH_OK);
    assert_int_equal(get_range(other, 0, 300, NULL), 300 - lost);
    fth_cache_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(addresses_are_checked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(entries_come_back_as_they_were, set_up, tear_down),
        cmocka_unit_test_setup_teardown(entries_expire_unless_they_are_used, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_entry_is_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_entries_are_whole_and_larger_ones_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(passwords_are_asked_for_and_never_shown, set_up, tear_down),
        cmocka_unit_test_setup_teardown(users_may_do_what_their_rules_allow, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_server_says_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_replica_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_database_is_chosen_by_its_number, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_redis_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tls_is_checked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_paused_server_costs_one_deadline, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_restarted_server_is_found_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_survive_a_server_killed_in_mid_use, set_up, tear_down),
        cmocka_unit_test_setup_teardown(several_servers_share_the_entries, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
