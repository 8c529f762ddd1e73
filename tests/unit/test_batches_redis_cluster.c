/* The Redis cache against a real Redis Cluster of three masters: slots that move, and a server that
 * is lost. */
#include "support.h"

#include "test_batches_entries.h"
#include "test_batches_redis_server.h"

enum { SERVERS = 3, ENTRIES = 200 };

typedef struct cluster_fixture {
    test_redis servers[SERVERS];
    char files[SERVERS][64];
    const char *arguments[SERVERS][8];
    fth_cache *cache;
} cluster_fixture;

static int set_up(void **state)
{
    static cluster_fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    *state = &fixture;
    return test_make_folder(NULL);
}

static int tear_down(void **state)
{
    cluster_fixture *fixture = *state;
    fth_cache_free(fixture->cache);
    for (int i = 0; i < SERVERS; i++)
        redis_kill(&fixture->servers[i]);
    return test_remove_folder(NULL);
}

static bool is_formed(const test_redis *redis)
{
    redisReply *reply = redis_say(redis, "CLUSTER INFO");
    bool formed = reply->str && strstr(reply->str, "cluster_state:ok") && strstr(reply->str, "cluster_size:3");
    freeReplyObject(reply);
    return formed;
}

static void start_cluster(cluster_fixture *fixture)
{
    for (int i = 0; i < SERVERS; i++) {
        snprintf(fixture->files[i], sizeof fixture->files[i], "nodes-%d.conf", i);
        memcpy(fixture->arguments[i],
               (const char *[]){"--cluster-enabled", "yes", "--cluster-config-file", fixture->files[i],
                                "--cluster-node-timeout", "3000", NULL},
               7 * sizeof(char *));
        redis_start(&fixture->servers[i], fixture->arguments[i]);
    }
    for (int i = 0; i < SERVERS; i++) {
        char command[128];
        /* The last has the rest. */
        snprintf(command, sizeof command, "CLUSTER ADDSLOTSRANGE %d %d", i * 5461, i == 2 ? 16383 : (i + 1) * 5461 - 1);
        redis_do(&fixture->servers[i], command);
        snprintf(command, sizeof command, "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        redis_do(&fixture->servers[i], command);
    }
    for (int i = 1; i < SERVERS; i++) {
        char command[128];
        snprintf(command, sizeof command, "CLUSTER MEET 127.0.0.1 %d", fixture->servers[i].port);
        redis_do(&fixture->servers[0], command);
    }
    fth_deadline deadline = test_deadline_in(SERVER_START_S);
    for (int i = 0; i < SERVERS; i++)
        while (!is_formed(&fixture->servers[i])) {
            assert_false(fth_deadline_passed(deadline));
            short_sleep();
        }
}

static void open_cluster(cluster_fixture *fixture)
{
    char address[128];
    snprintf(address, sizeof address, "redis://127.0.0.1:%d/2", fixture->servers[1].port);
    assert_int_equal(fth_cache_open(address, &(fth_cache_options){0}, &fixture->cache), FTH_INVALID);
    assert_message_has("has no databases; remove the number");
    snprintf(address, sizeof address, "redis://127.0.0.1:%d", fixture->servers[1].port);
    if (fth_cache_open(address, &(fth_cache_options){.memory_bytes = 1 << 30}, &fixture->cache) != FTH_OK)
        fail_msg("%s", fth_error_message());
}

/* Moves slots from one server to another with what is in them, while the test goes on. */
static void start_moving(cluster_fixture *fixture, int from, int to, pid_t *child)
{
    char any[64], source[64], target[64], log[TEST_MAX_PATH];
    redisReply *first = redis_say(&fixture->servers[from], "CLUSTER MYID");
    redisReply *second = redis_say(&fixture->servers[to], "CLUSTER MYID");
    snprintf(any, sizeof any, "127.0.0.1:%d", fixture->servers[0].port);
    snprintf(source, sizeof source, "%s", first->str);
    snprintf(target, sizeof target, "%s", second->str);
    fth_child_options options = {.program = "/usr/bin/redis-cli",
                                 .arguments = (const char *[]){"redis-cli", "--cluster", "reshard", any,
                                                               "--cluster-from", source, "--cluster-to", target,
                                                               "--cluster-slots", "600", "--cluster-yes", NULL},
                                 .messages = test_path(log, "reshard.log")};
    assert_int_equal(fth_child_start(&options, child), FTH_OK);
    freeReplyObject(first);
    freeReplyObject(second);
}

static void entries_are_found_while_slots_move(void **state)
{
    cluster_fixture *fixture = *state;
    pid_t child = 0;
    fth_child_end end;
    SKIP_WITHOUT_REDIS();
    start_cluster(fixture);
    open_cluster(fixture);
    put_range(fixture->cache, 0, ENTRIES);
    for (int i = 0; i < SERVERS; i++)
        assert_in_range(redis_count(&fixture->servers[i]), 30, 110);
    assert_int_equal(get_range(fixture->cache, 0, ENTRIES, NULL), ENTRIES);
    assert_int_equal(count_all(fixture->cache), ENTRIES);

    long long before = redis_count(&fixture->servers[2]);
    start_moving(fixture, 2, 0, &child);
    fth_deadline deadline = test_deadline_in(SERVER_START_S);
    do {
        assert_int_equal(get_range(fixture->cache, 0, ENTRIES, NULL), ENTRIES);
        put_range(fixture->cache, 17, 3);
        assert_false(fth_deadline_passed(deadline));
    } while (!fth_child_has_ended(child, &end));
    assert_int_equal(end.code, 0);
    assert_true(redis_count(&fixture->servers[2]) < before);
    assert_int_equal(get_range(fixture->cache, 0, ENTRIES, NULL), ENTRIES);
    assert_int_equal(count_all(fixture->cache), ENTRIES);

    fth_item_id ids[ENTRIES];
    for (uint64_t i = 0; i < ENTRIES; i++)
        ids[i] = id_of(i);
    assert_int_equal(fth_cache_remove(fixture->cache, ids, ENTRIES), FTH_OK);
    assert_int_equal(count_all(fixture->cache), 0);
}

static void a_lost_server_takes_its_own_entries_alone(void **state)
{
    cluster_fixture *fixture = *state;
    uint64_t numbers[ENTRIES];
    fth_status status;
    SKIP_WITHOUT_REDIS();
    start_cluster(fixture);
    for (int i = 0; i < SERVERS; i++) /* else none answers without all slots */
        redis_do(&fixture->servers[i], "CONFIG SET cluster-require-full-coverage no");
    open_cluster(fixture);
    put_range(fixture->cache, 0, ENTRIES);
    long long lost = redis_count(&fixture->servers[1]);
    redis_kill(&fixture->servers[1]);
    for (uint64_t i = 0; i < ENTRIES; i++)
        numbers[i] = i;
    assert_int_equal(get_numbers(fixture->cache, numbers, ENTRIES, 1, &status), ENTRIES - lost);
    assert_int_not_equal(status, FTH_OK);
    redis_restart(&fixture->servers[1]);
    fth_deadline deadline = test_deadline_in(SERVER_START_S);
    do {
        assert_false(fth_deadline_passed(deadline));
        assert_int_equal(get_numbers(fixture->cache, numbers, ENTRIES, 1, &status), ENTRIES - lost);
    } while (status != FTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(entries_are_found_while_slots_move, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lost_server_takes_its_own_entries_alone, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
