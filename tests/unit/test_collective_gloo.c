/* The gloo transport among processes of this machine, each of which is one member: sums to the bit,
 * members that are lost, stopped or aborted, and addresses that are wrong. */
#include "test_collective_members.h"

#include <math.h>
#include <pthread.h>

#include "collective/transport.h"
#include "collective/wire.h"

static const fth_transport *gloo; /* once a member has loaded the plugin */
static const test_member *member; /* that this process is */
static bool stops_while_opening;

/* More than calls take, and more than a member may: see run_body(). */
static const double patience_s = 30 * TEST_SLOWDOWN, endless_s = 1000 * TEST_SLOWDOWN;

/* Stops this process where it would get the others' addresses: they have its own by then. */
static fth_status get_key_or_stop(void *prefix, const char *key, fth_deadline deadline, void **bytes, size_t *size)
{
    if (stops_while_opening)
        kill(getpid(), SIGSTOP);
    return get_key(prefix, key, deadline, bytes, size);
}

static fth_status open_gloo(double timeout_s, const char *address, void **state)
{
    fth_member members[MAX_MEMBERS];
    char names[MAX_MEMBERS][48];
    for (int i = 0; i < member->size; i++) {
        snprintf(names[i], sizeof names[i], "rank %d on host%d", i, i);
        members[i] = (fth_member){.node = i, .name = names[i]};
    }
    const fth_collective_options options = {
        .rank = member->rank,
        .size = member->size,
        .members = members,
        .keys = {"group", put_key, get_key_or_stop},
        .address = address,
        .timeout_s = timeout_s,
    };
    fth_status status = fth_transport_load(&fth_transport_gloo, &gloo);
    return status == FTH_OK ? gloo->open(&options, state) : status;
}

static void (*body_here)(void);

static void run_body(const test_member *self)
{
    member = self;
    alarm(60 * TEST_SLOWDOWN); /* its default ends a member that hangs */
    body_here();
}

/* Runs `body` in `size` processes. Each must end with exit status 0, but those in `killed` (bits):
 * they are killed. */
static void run_group(int size, void (*body)(void), unsigned killed)
{
    pid_t processes[MAX_MEMBERS];
    int failures = 0;
    test_remove_folder(NULL); /* the keys of the group before */
    test_make_folder(NULL);
    body_here = body;
    for (int r = 0; r < size; r++)
        processes[r] = start_member((test_member){.size = size}, r, run_body);
    for (int r = 0; r < size; r++)
        failures += !(killed >> r & 1) && end_member(processes[r]) != 0;
    for (int r = 0; r < size; r++)
        if (killed >> r & 1) {
            kill(processes[r], SIGKILL);
            end_member(processes[r]);
        }
    assert_int_equal(failures, 0);
}

static void *open_or_fail(double timeout_s)
{
    void *state = NULL;
    CHECK(open_gloo(timeout_s, NULL, &state) == FTH_OK);
    return state;
}

/* ---- sums ---- */

/* The sines are computed once: each number is asked for by every rank that checks a sum. */
static float value_of(int rank, size_t i)
{
    enum { PERIOD = 10007 };
    static float sines[MAX_MEMBERS][PERIOD];
    if (sines[rank][0] == 0)
        for (int at = 0; at < PERIOD; at++)
            sines[rank][at] = (float)sin(1.0 + 17.0 * rank + 0.37 * at);
    return sines[rank][i % PERIOD] * (i % 3 == 0 ? 1e-3f : 1.f);
}

static float rounded(fth_wire wire, float value)
{
    char packed[sizeof(float)];
    fth_wire_pack(wire, &value, 1, packed);
    fth_wire_unpack(wire, packed, 1, &value);
    return value;
}

static float expected_sum(fth_wire wire, size_t i)
{
    float sum = rounded(wire, value_of(0, i));
    for (int rank = 1; rank < member->size; rank++)
        sum += rounded(wire, value_of(rank, i));
    return rounded(wire, sum);
}

static void check_sums(const float *values, size_t begin, size_t end, fth_wire wire)
{
    for (size_t i = begin; i < end; i++) {
        float expected = expected_sum(wire, i);
        if (memcmp(&expected, &values[i], sizeof expected) != 0)
            fprintf(stderr, "number %zu is %.9g, expected %.9g\n", i, (double)values[i], (double)expected);
        CHECK(memcmp(&expected, &values[i], sizeof expected) == 0);
    }
}

enum { LARGE = 700003 };

static void fill(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = value_of(member->rank, i);
}

static void member_that_reduces(void)
{
    static const size_t counts[] = {0, 1, 5, 1000, 33000, 70001, LARGE};
    float *values = malloc(LARGE * sizeof *values);
    void *state = open_or_fail(patience_s);
    for (size_t c = 0; c < FTH_COUNT_OF(counts); c++)
        for (int wire = FTH_WIRE_F32; wire <= FTH_WIRE_BF16; wire++) {
            fill(values, counts[c]);
            CHECK(gloo->all_reduce(state, values, counts[c], wire) == FTH_OK);
            check_sums(values, 0, counts[c], wire);
        }
    gloo->close(state);
}

static void sums_are_those_of_the_ranks_in_order(void **state)
{
    (void)state;
    run_group(2, member_that_reduces, 0);
    run_group(3, member_that_reduces, 0);
    run_group(6, member_that_reduces, 0);
}

static void member_that_sums(void)
{
    enum { COUNT = 50001 };
    double *values = malloc(COUNT * sizeof *values);
    void *state = open_or_fail(patience_s);
    for (size_t count = 1; count <= COUNT; count += 10000) {
        for (size_t i = 0; i < count; i++)
            values[i] = 1.0 / (1 + member->rank) + (double)i;
        CHECK(gloo->sum(state, values, count) == FTH_OK);
        for (size_t i = 0; i < count; i++) {
            double expected = 1.0 + (double)i;
            for (int rank = 1; rank < member->size; rank++)
                expected += 1.0 / (1 + rank) + (double)i;
            CHECK(values[i] == expected);
        }
    }
    gloo->close(state);
}

static void small_sums_keep_their_digits(void **state)
{
    (void)state;
    run_group(2, member_that_sums, 0);
    run_group(5, member_that_sums, 0);
    run_group(8, member_that_sums, 0);
}

static void member_with_ranges(void)
{
    size_t begins[17] = {0};
    float *values = malloc(LARGE * sizeof *values);
    void *state = open_or_fail(patience_s);
    /* The second range is empty, and the last takes what is left. */
    for (int i = 1; i < member->size; i++)
        begins[i] = i == 1 ? 1001 : begins[i - 1] + (i == 2 ? 0 : 100000);
    begins[member->size] = LARGE;
    size_t begin = begins[member->rank], end = begins[member->rank + 1];
    for (size_t i = 0; i < LARGE; i++)
        values[i] = i < begin || i >= end ? NAN : expected_sum(FTH_WIRE_F32, i);
    CHECK(gloo->all_gather(state, values, begins) == FTH_OK);
    check_sums(values, 0, LARGE, FTH_WIRE_F32);
    gloo->close(state);
}

static void ranges_are_summed_and_gathered(void **state)
{
    (void)state;
    run_group(2, member_with_ranges, 0);
    run_group(4, member_with_ranges, 0);
}

static void member_that_broadcasts(void)
{
    static const size_t sizes[] = {1, 1000, 65537, 3000001};
    unsigned char *bytes = malloc(3000001);
    void *state = open_or_fail(patience_s);
    for (size_t s = 0; s < FTH_COUNT_OF(sizes); s++)
        for (int root = 0; root < member->size; root++) {
            for (size_t i = 0; i < sizes[s]; i++)
                bytes[i] = member->rank == root ? (unsigned char)(i * 31 + root) : 0xee;
            CHECK(gloo->broadcast(state, bytes, sizes[s], root) == FTH_OK);
            for (size_t i = 0; i < sizes[s]; i++)
                CHECK(bytes[i] == (unsigned char)(i * 31 + root));
        }
    gloo->close(state);
}

static void what_the_root_has_is_for_all(void **state)
{
    (void)state;
    run_group(2, member_that_broadcasts, 0);
    run_group(5, member_that_broadcasts, 0);
}

/* ---- ends ---- */

static fth_status reduce_until_it_fails(void *state)
{
    float *values = calloc(LARGE, sizeof *values);
    fth_status status;
    do
        status = gloo->all_reduce(state, values, LARGE, FTH_WIRE_F32);
    while (status == FTH_OK);
    free(values);
    return status;
}

static void *kill_this_process(void *unused)
{
    usleep(20000);
    kill(getpid(), SIGKILL);
    return unused;
}

static void member_of_a_group_that_loses_one(void)
{
    pthread_t thread;
    void *state = open_or_fail(endless_s); /* it is not a deadline that ends the calls */
    if (member->rank == 1)
        pthread_create(&thread, NULL, kill_this_process, NULL);
    CHECK(reduce_until_it_fails(state) == FTH_PEER_LOST);
    CHECK_MESSAGE("lost rank 1 on host1");
    double one = 1;
    CHECK(gloo->sum(state, &one, 1) == FTH_PEER_LOST && strstr(fth_error_message(), "rank 1 on host1"));
    gloo->close(state);
}

static void a_killed_member_is_noticed_and_named(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        run_group(4, member_of_a_group_that_loses_one, 1 << 1);
}

static void *stop_this_process(void *unused)
{
    usleep(20000);
    kill(getpid(), SIGSTOP);
    return unused;
}

static void member_of_a_group_with_a_stopped_one(void)
{
    pthread_t thread;
    void *state = open_or_fail(2);
    if (member->rank == 0)
        pthread_create(&thread, NULL, stop_this_process, NULL);
    CHECK(reduce_until_it_fails(state) == FTH_PEER_LOST);
    CHECK_MESSAGE("lost rank 0 on host0: nothing came from it for 2 s");
    gloo->close(state);
}

static void a_stopped_member_is_found_by_its_deadline(void **state)
{
    (void)state;
    run_group(2, member_of_a_group_with_a_stopped_one, 1);
}

static void *abort_soon(void *state)
{
    usleep(20000);
    gloo->abort(state, "the group has ended: rank 9 is preempted");
    return NULL;
}

static void member_that_is_aborted(void)
{
    pthread_t thread;
    void *state = open_or_fail(endless_s);
    if (member->rank == 1) { /* makes no call: only an abort ends that of the other */
        char done;
        CHECK(read(STDIN_FILENO, &done, 0) == 0);
        kill(getpid(), SIGSTOP);
    }
    CHECK(pthread_create(&thread, NULL, abort_soon, state) == 0);
    CHECK(reduce_until_it_fails(state) == FTH_PEER_LOST);
    CHECK_MESSAGE("rank 9 is preempted");
    pthread_join(thread, NULL);
    gloo->abort(state, "again");
    CHECK(gloo->broadcast(state, &thread, 1, 0) == FTH_PEER_LOST && strstr(fth_error_message(), "rank 9 is preempted"));
    gloo->close(state);
}

static void an_abort_ends_a_call_that_waits(void **state)
{
    (void)state;
    run_group(2, member_that_is_aborted, 1 << 1);
}

/* Others hear the reason of the one that was told, perhaps before they have opened the group. */
static void member_that_hears_of_an_abort(void)
{
    void *state = NULL;
    fth_status status = open_gloo(endless_s, NULL, &state);
    CHECK(status == FTH_OK || member->rank != 2);
    if (member->rank == 2)
        gloo->abort(state, "rank 9 is preempted");
    if (status == FTH_OK)
        status = reduce_until_it_fails(state);
    CHECK(status == FTH_PEER_LOST && strstr(fth_error_message(), "rank 9 is preempted"));
    if (state)
        gloo->close(state);
}

static void an_abort_reaches_all_members(void **state)
{
    (void)state;
    run_group(3, member_that_hears_of_an_abort, 0);
}

static void *continue_soon(void *process)
{
    usleep(50000);
    kill(*(pid_t *)process, SIGCONT);
    return NULL;
}

/* Rank 0 is stopped while the others end. When it goes on, it still has numbers to send them, and
 * their reason to read. */
static void member_that_hears_of_an_abort_late(void)
{
    void *state = NULL, *bytes;
    size_t size;
    pid_t process = getpid();
    pthread_t thread;
    fth_status status = open_gloo(endless_s, NULL, &state);
    CHECK(status == FTH_OK || member->rank == 1); /* as above */
    if (member->rank == 0)
        CHECK(put_key("event", "process", &process, sizeof process) == FTH_OK);
    if (member->rank == 2) {
        CHECK(get_key("event", "process", test_deadline_in(60), &bytes, &size) == FTH_OK);
        CHECK(kill(*(pid_t *)bytes, SIGSTOP) == 0);
        CHECK(pthread_create(&thread, NULL, continue_soon, bytes) == 0);
        gloo->abort(state, "rank 9 is preempted");
    }
    if (status == FTH_OK)
        status = reduce_until_it_fails(state);
    CHECK(status == FTH_PEER_LOST && strstr(fth_error_message(), "rank 9 is preempted"));
    if (member->rank == 2)
        pthread_join(thread, NULL);
    if (state)
        gloo->close(state);
}

static void a_slow_member_hears_why_the_others_ended(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        run_group(3, member_that_hears_of_an_abort_late, 0);
}

/* Who is done first may leave while others still finish the last call. */
static void member_that_leaves_at_once(void)
{
    float *values = malloc(LARGE * sizeof *values);
    void *state = open_or_fail(patience_s);
    for (int i = 0; i < 3; i++) {
        fill(values, LARGE);
        CHECK(gloo->all_reduce(state, values, LARGE, FTH_WIRE_F32) == FTH_OK);
    }
    double one = 1;
    CHECK(gloo->sum(state, &one, 1) == FTH_OK && one == member->size);
    gloo->close(state);
}

static void leaving_disturbs_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        run_group(4, member_that_leaves_at_once, 0);
}

static void member_with_another_count(void)
{
    float *values = calloc(LARGE, sizeof *values);
    void *state = open_or_fail(0.3);
    CHECK(gloo->all_reduce(state, values, LARGE - 1000 * member->rank, FTH_WIRE_F32) == FTH_PEER_LOST);
    CHECK_MESSAGE("lost rank");
    gloo->close(state);
}

static void different_calls_fail_at_the_deadline(void **state)
{
    (void)state;
    run_group(2, member_with_another_count, 0);
}

static void member_with_a_wrong_address(void)
{
    void *state;
    CHECK(open_gloo(1, "no-such-host.invalid", &state) == FTH_INVALID &&
          strstr(fth_error_message(), "no-such-host.invalid"));
    CHECK(open_gloo(1, "192.0.2.1", &state) == FTH_IO && strstr(fth_error_message(), "cannot listen on 192.0.2.1"));
}

static void a_wrong_address_is_named(void **state)
{
    (void)state;
    run_group(2, member_with_a_wrong_address, 0);
}

static void member_that_waits_in_vain(void)
{
    void *state;
    if (member->rank == 1)
        return;
    CHECK(open_gloo(0.3, NULL, &state) == FTH_TIMEOUT && strstr(fth_error_message(), "waiting for rank 1 on host1"));
}

static void member_of_a_group_that_loses_one_while_opening(void)
{
    void *state;
    stops_while_opening = member->rank == 2;
    CHECK(open_gloo(0.5, NULL, &state) == FTH_PEER_LOST);
}

/* No abort can reach a group that is being opened. */
static void a_member_that_stops_while_others_connect_holds_nobody_up(void **state)
{
    (void)state;
    run_group(3, member_of_a_group_that_loses_one_while_opening, 1 << 2);
}

static void a_member_that_does_not_come_is_named(void **state)
{
    (void)state;
    run_group(2, member_that_waits_in_vain, 0);
}

int main(void)
{
    char path[FTH_PLUGIN_PATH_SIZE];
    if (fth_plugin_find("gloo", path) != FTH_OK) {
        print_message("SKIP gloo: %s\n", fth_error_message());
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_ranks_in_order),
        cmocka_unit_test(small_sums_keep_their_digits),
        cmocka_unit_test(ranges_are_summed_and_gathered),
        cmocka_unit_test(what_the_root_has_is_for_all),
        cmocka_unit_test(a_killed_member_is_noticed_and_named),
        cmocka_unit_test(a_stopped_member_is_found_by_its_deadline),
        cmocka_unit_test(an_abort_ends_a_call_that_waits),
        cmocka_unit_test(an_abort_reaches_all_members),
        cmocka_unit_test(a_slow_member_hears_why_the_others_ended),
        cmocka_unit_test(leaving_disturbs_nobody),
        cmocka_unit_test(different_calls_fail_at_the_deadline),
        cmocka_unit_test(a_wrong_address_is_named),
        cmocka_unit_test(a_member_that_does_not_come_is_named),
        cmocka_unit_test(a_member_that_stops_while_others_connect_holds_nobody_up),
    };
    return cmocka_run_group_tests(tests, test_make_folder, test_remove_folder);
}
