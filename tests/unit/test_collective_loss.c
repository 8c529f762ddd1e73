/* Members that are killed, stopped or told to give up, in the middle of calls: the others notice,
 * name them, and keep their values to themselves. */
#include "test_collective_members.h"

#include <dirent.h>
#include <pthread.h>

#include "base/process.h"

enum { VALUES = 300000, VICTIM = 1 };

/* ---- calls without end ---- */

typedef fth_status endless_call(fth_collective *collective, float *values);

static fth_status all_reduce(fth_collective *collective, float *values)
{
    return fth_collective_all_reduce(collective, values, VALUES, FTH_WIRE_F32);
}

static fth_status all_gather(fth_collective *collective, float *values)
{
    static const size_t begins[] = {0, 100, 200000, VALUES};
    return fth_collective_all_gather(collective, values, begins);
}

static fth_status broadcast(fth_collective *collective, float *values)
{
    return fth_collective_broadcast(collective, values, VALUES * sizeof *values, 0);
}

static fth_status sum(fth_collective *collective, float *values)
{
    double few[3] = {values[0], values[1], 1};
    return fth_collective_sum(collective, few, 3);
}

/* What members call, and where their values lie. */
typedef struct endless {
    endless_call *call;
    bool in_memory;
    const char *lost; /* what messages say of the victim */
} endless;

static void open_with_memory(const test_member *member, fth_shared_memory **memory, fth_collective **collective)
{
    test_member with_memory = *member;
    CHECK(fth_shared_memory_create(VALUES * sizeof(float), memory) == FTH_OK);
    with_memory.memory = *memory;
    CHECK(open_member(&with_memory, collective) == FTH_OK);
}

static void announce_rank(const char *event, int rank)
{
    char name[40];
    snprintf(name, sizeof name, "%s %d", event, rank);
    announce(name);
}

static void await_all(const char *event, int size)
{
    for (int r = 0; r < size; r++) {
        char name[40];
        snprintf(name, sizeof name, "%s %d", event, r);
        await(name);
    }
}

/* Calls until one fails. */
static fth_status call_without_end(const test_member *member, fth_collective *collective, float *values)
{
    const endless *what = member->context;
    for (int calls = 0;; calls++) {
        fth_status status = what->call(collective, values);
        if (status != FTH_OK)
            return status;
        if (calls == 10)
            announce_rank("calling", member->rank);
    }
}

static void survive_a_kill(const test_member *member)
{
    const endless *what = member->context;
    fth_shared_memory *memory;
    fth_collective *collective;
    float *elsewhere = calloc(VALUES, sizeof *elsewhere);
    open_with_memory(member, &memory, &collective);
    double start = fth_clock_seconds();
    CHECK(call_without_end(member, collective, what->in_memory ? fth_shared_memory_get(memory) : elsewhere) ==
          FTH_PEER_LOST);
    CHECK(fth_clock_seconds() - start < 50); /* long before the timeout */
    CHECK_MESSAGE(what->lost);
    CHECK(what->call(collective, elsewhere) == FTH_PEER_LOST);
    CHECK_MESSAGE(what->lost);
    fth_collective_close(collective);
    fth_shared_memory_free(memory);
    free(elsewhere);
}

static void kill_during(test_member member, int victim, endless what, useconds_t after_us)
{
    pid_t processes[MAX_MEMBERS];
    int ends[MAX_MEMBERS];
    char lost[40];
    snprintf(lost, sizeof lost, "rank %d on test", victim);
    what.lost = lost;
    member.context = &what;
    test_make_folder(NULL);
    for (int r = 0; r < member.size; r++)
        processes[r] = start_member(member, r, survive_a_kill);
    await_all("calling", member.size);
    usleep(after_us); /* another moment of a call each time */
    kill(processes[victim], SIGKILL);
    for (int r = 0; r < member.size; r++)
        ends[r] = end_member(processes[r]);
    for (int r = 0; r < member.size; r++)
        assert_true(r == victim ? WIFSIGNALED(ends[r]) : ends[r] == 0);
    test_remove_folder(NULL);
}

static void a_killed_member_is_noticed(void **state)
{
    (void)state;
    static endless_call *const calls[] = {all_reduce, all_gather, broadcast, sum};
    for (size_t c = 0; c < FTH_COUNT_OF(calls); c++)
        for (int in_memory = 0; in_memory < 2; in_memory++)
            kill_during((test_member){.size = 3}, VICTIM, (endless){.call = calls[c], .in_memory = in_memory},
                        (useconds_t)(c * 170 + (size_t)in_memory * 90));
}

/* One that leads its machine, and ones that do not, in the first machine and another. */
static void a_killed_member_is_noticed_on_other_machines(void **state)
{
    (void)state;
    static const int nodes[] = {0, 0, 1, 1};
    static endless_call *const calls[] = {all_reduce, broadcast, sum};
    require_gloo();
    for (size_t c = 0; c < FTH_COUNT_OF(calls); c++)
        for (int victim = 1; victim < 4; victim++)
            kill_during((test_member){.size = 4, .nodes = nodes}, victim,
                        (endless){.call = calls[c], .in_memory = victim % 2}, (useconds_t)(c * 170));
}

/* ---- stopped ---- */

static void survive_a_stop(const test_member *member)
{
    fth_shared_memory *memory;
    fth_collective *collective;
    open_with_memory(member, &memory, &collective);
    float *values = fth_shared_memory_get(memory);
    CHECK(call_without_end(member, collective, values) == FTH_PEER_LOST);
    if (member->rank == VICTIM) {
        CHECK_MESSAGE("left the group");
        announce("went on");
    } else {
        CHECK_MESSAGE("rank 1 on test has not answered for 2 s");
        for (int i = 0; i < VALUES; i++)
            values[i] = (float)i;
        announce_rank("gave up", member->rank);
        await("went on");
        for (int i = 0; i < VALUES; i++)
            CHECK(values[i] == (float)i); /* these are of another group by now */
    }
    fth_collective_close(collective);
    fth_shared_memory_free(memory);
}

static void a_stopped_member_is_given_up_and_spoils_nothing(void **state)
{
    (void)state;
    endless what = {.call = all_reduce, .in_memory = true};
    test_member member = {.size = 3, .timeout_s = 2, .context = &what};
    pid_t processes[3];
    for (int r = 0; r < member.size; r++)
        processes[r] = start_member(member, r, survive_a_stop);
    await_all("calling", member.size);
    kill(processes[VICTIM], SIGSTOP);
    await("gave up 0");
    await("gave up 2");
    kill(processes[VICTIM], SIGCONT);
    for (int r = 0; r < member.size; r++)
        assert_int_equal(end_member(processes[r]), 0);
}

/* ---- aborted ---- */

static void *abort_collective(void *collective)
{
    await("about to wait");
    fth_collective_abort(collective, "rank 7 was lost");
    return NULL;
}

static void be_told_to_give_up(const test_member *member)
{
    fth_collective *collective;
    double one = 1;
    CHECK(open_member(member, &collective) == FTH_OK);
    CHECK(fth_collective_sum(collective, &one, 1) == FTH_OK && one == member->size);
    if (member->rank == 0) { /* waits for rank 1, which waits for this one to give up */
        pthread_t thread;
        CHECK(fth_thread_start(&thread, "abort", abort_collective, collective) == 0);
        announce("about to wait");
        double start = fth_clock_seconds();
        CHECK(fth_collective_sum(collective, &one, 1) == FTH_PEER_LOST);
        CHECK(fth_clock_seconds() - start < 50);
        CHECK(strcmp(fth_error_message(), "rank 7 was lost") == 0);
        CHECK(fth_collective_sum(collective, &one, 1) == FTH_PEER_LOST);
        CHECK(strcmp(fth_error_message(), "rank 7 was lost") == 0);
        pthread_join(thread, NULL);
        announce("gave up");
    } else {
        await("gave up");
        if (fth_collective_sum(collective, &one, 1) == FTH_OK) /* rank 0 may have left its number before it gave up */
            CHECK(fth_collective_sum(collective, &one, 1) == FTH_PEER_LOST);
        CHECK_MESSAGE("rank 0 on test left the group: rank 7 was lost");
    }
    fth_collective_close(collective);
}

static void an_abort_ends_a_call_and_reaches_the_others(void **state)
{
    (void)state;
    run_members((test_member){.size = 2}, be_told_to_give_up);
}

/* ---- mistakes ---- */

static void call_something_else(const test_member *member)
{
    fth_collective *collective;
    double values[2] = {0};
    CHECK(open_member(member, &collective) == FTH_OK);
    CHECK(fth_collective_sum(collective, values, member->rank == 0 ? 1 : 2) == FTH_INVALID);
    CHECK_MESSAGE("rank 0 on test");
    CHECK_MESSAGE("rank 1 on test");
    CHECK(fth_collective_sum(collective, values, 1) == FTH_PEER_LOST);
    const size_t backwards[] = {5, 3, 8};
    float floats[8] = {0};
    CHECK(fth_collective_all_gather(collective, floats, backwards) == FTH_INVALID);
    CHECK(fth_collective_broadcast(collective, values, 8, 2) == FTH_INVALID);
    fth_collective_close(collective);
}

static void call_from_another_root(const test_member *member)
{
    fth_collective *collective;
    double value = 0;
    CHECK(open_member(member, &collective) == FTH_OK);
    CHECK(fth_collective_broadcast(collective, &value, sizeof value, member->rank) == FTH_INVALID);
    CHECK_MESSAGE("the root");
    fth_collective_close(collective);
}

static void members_that_call_different_things_hear_of_it(void **state)
{
    (void)state;
    run_members((test_member){.size = 2, .keys = "first"}, call_something_else);
    run_members((test_member){.size = 2, .keys = "second"}, call_from_another_root);
}

static void groups_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const int nodes[] = {0, 1};
    fth_collective *collective = NULL;
    assert_int_equal(open_member(&(test_member){.size = 0}, &collective), FTH_INVALID);
    assert_int_equal(open_member(&(test_member){.size = 2, .rank = 2}, &collective), FTH_INVALID);
    assert_int_equal(open_member(&(test_member){.size = 2, .nodes = nodes, .transport = "shm"}, &collective),
                     FTH_INVALID);
    assert_int_equal(open_member(&(test_member){.size = 2, .transport = "pigeons"}, &collective), FTH_UNSUPPORTED);
    assert_message_has("pigeons");
    assert_int_equal(open_member(&(test_member){.size = 2, .timeout_s = 0.05}, &collective), FTH_TIMEOUT);
    assert_message_has("rank 1 on test");
    assert_null(collective);
}

/* How leaders reach each other does not get through. */
static fth_status put_nothing_of_leaders(void *prefix, const char *key, const void *bytes, size_t size)
{
    return strncmp(key, "leaders/", 8) == 0 ? FTH_OK : put_key(prefix, key, bytes, size);
}

/* Rank 0 cannot reach rank 2, which is alone on its machine, and tells rank 1, which would wait
 * much longer. */
static void miss_a_machine(const test_member *member)
{
    fth_collective *collective = NULL;
    test_member next = *member;
    next.timeout_s = member->rank == 1 ? 60 : 3;
    next.put = member->rank == 2 ? put_nothing_of_leaders : NULL;
    double start = fth_clock_seconds();
    CHECK(open_member(&next, &collective) != FTH_OK);
    CHECK(fth_clock_seconds() - start < 50);
    if (member->rank < 2)
        CHECK_MESSAGE("rank 2 on test");
}

static void a_machine_that_cannot_be_reached_is_named(void **state)
{
    (void)state;
    static const int nodes[] = {0, 0, 1};
    require_gloo();
    run_members((test_member){.size = 3, .nodes = nodes}, miss_a_machine);
}

/* ---- what is left behind ---- */

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static int count_mappings(void)
{
    char line[500];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, file))
        count += strstr(line, "farthing-shared") != NULL;
    fclose(file);
    return count;
}

static void open_and_close(const test_member *member)
{
    enum { TIMES = 100 };
    int descriptors = count_descriptors();
    for (int i = 0; i < TIMES; i++) {
        char prefix[20];
        snprintf(prefix, sizeof prefix, "group%d", i);
        test_member next = *member;
        next.keys = prefix;
        fth_shared_memory *memory;
        fth_collective *collective;
        float values[5] = {1, 1, 1, 1, 1};
        open_with_memory(&next, &memory, &collective);
        CHECK(fth_collective_all_reduce(collective, values, 5, FTH_WIRE_F32) == FTH_OK && values[4] == 3);
        if (i % 2)
            fth_collective_abort(collective, "enough");
        fth_collective_close(collective);
        fth_shared_memory_free(memory);
    }
    CHECK(count_descriptors() == descriptors);
    CHECK(count_mappings() == 0);
}

static void groups_leave_nothing_behind(void **state)
{
    (void)state;
    run_members((test_member){.size = 3}, open_and_close);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_member_is_noticed),
        cmocka_unit_test(a_killed_member_is_noticed_on_other_machines),
        cmocka_unit_test_setup_teardown(a_stopped_member_is_given_up_and_spoils_nothing, test_make_folder,
                                        test_remove_folder),
        cmocka_unit_test_setup_teardown(an_abort_ends_a_call_and_reaches_the_others, test_make_folder,
                                        test_remove_folder),
        cmocka_unit_test_setup_teardown(members_that_call_different_things_hear_of_it, test_make_folder,
                                        test_remove_folder),
        cmocka_unit_test_setup_teardown(groups_that_cannot_be_are_refused, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(a_machine_that_cannot_be_reached_is_named, test_make_folder,
                                        test_remove_folder),
        cmocka_unit_test_setup_teardown(groups_leave_nothing_behind, test_make_folder, test_remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
