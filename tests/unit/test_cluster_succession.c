/* A rendezvous that is lost: members have another, with as many nodes as it needs. */
#include "test_cluster_members.h"

#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>

static atomic_int claims; /* to have the rendezvous */

static void count_claims(void *context, fth_log_level level, const char *message)
{
    (void)context;
    (void)level;
    claims += strstr(message, "has the rendezvous now") != NULL;
}

static void members_have_another_rendezvous(void **state)
{
    meeting fixture = {0};
    test_member members[3];
    json_t *found = json_string("what was found"), *run = NULL;
    (void)state;
    start(&fixture, 2, 3, "secret");
    open_member(&fixture, &members[0], "a");
    open_member(&fixture, &members[1], "b");
    open_member(&fixture, &members[2], "b");
    assert_int_equal(fth_membership_find_run(members[1].membership, NULL, &run), FTH_OK);
    assert_int_equal(fth_membership_share_run(members[1].membership, found), FTH_OK);
    join_all(members, 3);
    assert_int_equal(members[1].view.rank, 0);
    fth_rendezvous_stop(fixture.rendezvous);
    wait_until(members[0].ended && members[1].ended && members[2].ended);
    claims = 0;
    fth_log_set_function(count_claims, NULL);
    join_all(members, 3); /* one of them serves it now */
    fth_log_set_function(NULL, NULL);
    for (int i = 0; i < 3; i++) {
        assert_true(members[i].view.present == 1);
        assert_int_equal(members[i].view.generation, 2);
        assert_int_equal(members[i].view.size, 3);
    }
    assert_int_equal(members[1].view.rank, 0); /* as before */
    assert_int_equal(members[2].view.rank, 1);
    assert_int_equal(members[0].view.rank, 2);
    /* Keys, the end of a group and new members work there as they did. */
    void *bytes;
    size_t size;
    assert_int_equal(fth_membership_put(members[0].membership, "key", "value", 5), FTH_OK);
    assert_int_equal(fth_membership_get(members[2].membership, "key", test_deadline_in(20), &bytes, &size), FTH_OK);
    assert_memory_equal(bytes, "value", 5);
    free(bytes);
    test_member late;
    open_member(&fixture, &late, "d");
    assert_int_equal(fth_membership_find_run(late.membership, NULL, &run), FTH_OK);
    assert_string_equal(json_string_value(run), "what was found");
    json_decref(run);
    json_decref(found);
    begin_join(&late);
    wait_until(fth_membership_is_ending(members[0].membership));
    join_all(members, 3);
    pthread_join(late.thread, NULL);
    assert_int_equal(late.view.size, 4);
    close_member(&late);
    for (int i = 0; i < 3; i++)
        close_member(&members[i]);
}

/* A process that has the rendezvous and a member: the machine that is lost. */
static pid_t fork_host(meeting *fixture, int least, int most)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    test_member member;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    start(fixture, least, most, "secret");
    fixture->port_known = 1;
    open_member(fixture, &member, "a");
    for (;;) {
        int before = member.ended;
        join_all(&member, 1);
        while (member.ended == before && !fth_membership_is_ending(member.membership))
            usleep(2000);
    }
}

static void the_machine_with_the_rendezvous_is_lost(void **state)
{
    test_member members[2];
    (void)state;
    meeting *fixture = mmap(NULL, sizeof *fixture, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(fixture != MAP_FAILED);
    pid_t host = fork_host(fixture, 2, 3);
    wait_until(fixture->port_known);
    open_member(fixture, &members[0], "b");
    open_member(fixture, &members[1], "c");
    begin_join(&members[1]);
    join_until(&members[0], 3);
    pthread_join(members[1].thread, NULL);
    if (members[1].view.size < 3)
        join_until(&members[1], 3);
    kill(host, SIGKILL);
    waitpid(host, NULL, 0);
    wait_until(members[0].ended && members[1].ended);
    int64_t before = members[0].view.generation;
    join_all(members, 2);
    assert_int_equal(members[0].view.size, 2);
    assert_true(members[0].view.generation > before);
    assert_int_equal(members[0].view.generation, members[1].view.generation);
    for (int i = 0; i < 2; i++)
        close_member(&members[i]);
    munmap(fixture, sizeof *fixture);
}

/* One of three that reaches none of the others does not train on by itself, although one node would
 * be enough for a group, and does not claim to have the rendezvous; it returns when the first one
 * answers again. */
static void a_node_that_is_cut_off_waits_and_returns(void **state)
{
    meeting fixture = {0};
    test_member members[3];
    (void)state;
    claims = 0;
    fth_log_set_function(count_claims, NULL);
    start_at(&fixture, "127.0.0.2", 0, 1, 3, "secret");
    open_member(&fixture, &members[0], "a");
    open_member(&fixture, &members[1], "b");
    open_member(&fixture, &members[2], "c");
    join_all(members, 3);
    int port = fth_rendezvous_port(fixture.rendezvous);
    fth_rendezvous_stop(fixture.rendezvous);
    close_member(&members[0]);
    close_member(&members[1]);
    wait_until(members[2].ended);
    fth_status status;
    do /* while it looks for a successor, and then in one of its own */
        status = fth_membership_join(members[2].membership, NULL, &members[2].view);
    while (status == FTH_TIMEOUT && !strstr(fth_error_message(), "1 node of at least 2: c"));
    assert_int_equal(status, FTH_TIMEOUT);
    assert_true(fabs(members[2].view.present - 1.0 / 3) < 1e-9);
    start_at(&fixture, "127.0.0.2", port, 1, 3, "secret");
    open_member(&fixture, &members[0], "a");
    begin_join(&members[2]);
    join_until(&members[0], 2);
    pthread_join(members[2].thread, NULL);
    assert_int_equal(claims, 0);
    fth_log_set_function(NULL, NULL);
    close_member(&members[0]);
    close_member(&members[2]);
    fth_rendezvous_stop(fixture.rendezvous);
}

/* The rendezvous is back while its successor has a group: it sends whoever comes to it there. */
static void a_rendezvous_that_is_back_sends_members_to_its_successor(void **state)
{
    meeting fixture = {0};
    test_member members[2], late;
    (void)state;
    start_at(&fixture, "127.0.0.2", 0, 2, 4, "secret");
    open_member(&fixture, &members[0], "a");
    open_member(&fixture, &members[1], "b");
    join_all(members, 2);
    int port = fth_rendezvous_port(fixture.rendezvous);
    fth_rendezvous_stop(fixture.rendezvous);
    wait_until(members[0].ended && members[1].ended);
    join_all(members, 2);
    int64_t generation = members[0].view.generation;
    assert_true(generation > 1);
    start_at(&fixture, "127.0.0.2", port, 2, 4, "secret");
    open_member(&fixture, &late, "c");
    begin_join(&late);
    wait_until(fth_membership_is_ending(members[0].membership));
    join_all(members, 2);
    pthread_join(late.thread, NULL);
    assert_int_equal(late.status, FTH_OK);
    assert_int_equal(late.view.size, 3);
    assert_true(late.view.generation > generation);
    wait_until(fth_rendezvous_count(fixture.rendezvous) == 0);
    fth_rendezvous_stop(fixture.rendezvous);
    close_member(&late);
    close_member(&members[1]);
    close_member(&members[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_have_another_rendezvous),
        cmocka_unit_test(the_machine_with_the_rendezvous_is_lost),
        cmocka_unit_test(a_node_that_is_cut_off_waits_and_returns),
        cmocka_unit_test(a_rendezvous_that_is_back_sends_members_to_its_successor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
