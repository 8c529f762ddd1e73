/* The rendezvous and memberships together: real HTTP on the loopback, with threads as members. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/process.h"
#include "cluster/membership.h"
#include "cluster/rendezvous.h"
#include "http/http.h"

enum { MOST = 8 };
static const double LOST_AFTER_S = 2; /* generous: the machine may be busy */

/* A rendezvous and its members. */
typedef struct meeting {
    fth_rendezvous *rendezvous;
    char address[64];
} meeting;

typedef struct test_member {
    meeting *fixture;
    char node[16];
    int rank; /* a launcher's, or -1 */
    const char *configuration;
    fth_membership *membership;
    fth_group_view view;
    fth_status status;
    char message[512];
    pthread_t thread;
    atomic_int ended;
    char reason[512];
} test_member;

static void start(meeting *fixture, int least, int most, const char *token)
{
    fth_rendezvous_options options = {.address = "127.0.0.1",
                                      .token = token,
                                      .run = "a run",
                                      .least = least,
                                      .most = most,
                                      .join_wait_s = 0.3,
                                      .lost_after_s = LOST_AFTER_S,
                                      .stuck_after_s = 1};
    assert_int_equal(fth_rendezvous_start(&options, &fixture->rendezvous), FTH_OK);
    snprintf(fixture->address, sizeof fixture->address, "127.0.0.1:%d", fth_rendezvous_port(fixture->rendezvous));
}

static void on_end(void *context, const char *reason)
{
    test_member *member = context;
    snprintf(member->reason, sizeof member->reason, "%s", reason);
    member->ended++;
}

static fth_membership_options describe(test_member *member, const char *token)
{
    return (fth_membership_options){.rendezvous = member->fixture->address,
                                    .token = token,
                                    .run = "a run",
                                    .node = member->node,
                                    .host = member->node,
                                    .address = "",
                                    .rank = member->rank,
                                    .configuration = member->configuration ? member->configuration : "{\"batch\": 64}",
                                    .context = member,
                                    .on_end = on_end};
}

static void open_member(meeting *fixture, test_member *member, const char *node)
{
    *member = (test_member){.fixture = fixture, .rank = -1};
    snprintf(member->node, sizeof member->node, "%s", node);
    fth_membership_options options = describe(member, "secret");
    assert_int_equal(fth_membership_open(&options, fth_deadline_in(20), &member->membership), FTH_OK);
}

static void close_member(test_member *member)
{
    fth_membership_close(member->membership);
    fth_group_view_release(&member->view);
    member->membership = NULL;
}

static void *run_join(void *context)
{
    test_member *member = context;
    member->status = fth_membership_join(member->membership, NULL, &member->view);
    snprintf(member->message, sizeof member->message, "%s", fth_error_message());
    return NULL;
}

static void begin_join(test_member *member)
{
    assert_int_equal(pthread_create(&member->thread, NULL, run_join, member), 0);
}

static void join_all(test_member *members, int count)
{
    for (int i = 0; i < count; i++)
        begin_join(&members[i]);
    for (int i = 0; i < count; i++) {
        pthread_join(members[i].thread, NULL);
        if (members[i].status != FTH_OK)
            fail_msg("member %d: %s", i, members[i].message);
    }
}

/* Waits for something that another thread brings about. */
#define wait_until(condition)                                                                                          \
    do {                                                                                                               \
        fth_deadline limit = fth_deadline_in(60);                                                                      \
        while (!(condition)) {                                                                                         \
            assert_false(fth_deadline_passed(limit));                                                                  \
            usleep(2000);                                                                                              \
        }                                                                                                              \
    } while (0)

/* ---- groups ---- */

static void members_form_a_group_and_exchange_keys(void **state)
{
    meeting fixture = {0};
    test_member members[3];
    (void)state;
    start(&fixture, 2, 2, "secret");
    open_member(&fixture, &members[0], "a");
    open_member(&fixture, &members[1], "b");
    open_member(&fixture, &members[2], "a");
    join_all(members, 3);
    assert_int_equal(members[0].view.generation, 1);
    assert_int_equal(members[0].view.size, 3);
    assert_int_equal(members[0].view.nodes, 2);
    /* Members of one node are neighbours. */
    assert_int_equal(members[0].view.rank, 0);
    assert_int_equal(members[2].view.rank, 1);
    assert_int_equal(members[1].view.rank, 2);
    assert_string_equal(members[1].view.members[1].node, "a");
    assert_int_equal(members[1].view.members[1].local_rank, 1);
    assert_int_equal(members[1].view.members[2].node_number, 1);
    assert_string_equal(members[1].view.members[2].address, "127.0.0.1");
    assert_int_equal(members[1].view.members[2].process, getpid());

    void *bytes;
    size_t size;
    assert_int_equal(fth_membership_put(members[0].membership, "a key/with ?&", "\0one", 4), FTH_OK);
    assert_int_equal(fth_membership_get(members[1].membership, "a key/with ?&", fth_deadline_in(20), &bytes, &size),
                     FTH_OK);
    assert_int_equal(size, 4);
    assert_memory_equal(bytes, "\0one", 4);
    free(bytes);
    assert_int_equal(fth_membership_get(members[1].membership, "other", fth_deadline_in(0.05), &bytes, &size),
                     FTH_TIMEOUT);
    for (int i = 0; i < 3; i++)
        close_member(&members[i]);
    fth_rendezvous_stop(fixture.rendezvous);
}

static void a_member_that_leaves_ends_the_group_for_all(void **state)
{
    meeting fixture = {0};
    test_member members[3];
    void *bytes;
    size_t size;
    (void)state;
    start(&fixture, 1, 3, "secret");
    open_member(&fixture, &members[0], "a");
    open_member(&fixture, &members[1], "b");
    open_member(&fixture, &members[2], "c");
    join_all(members, 3);
    assert_int_equal(fth_membership_leave(members[0].membership, "preempted"), FTH_OK);
    wait_until(members[1].ended && members[2].ended);
    assert_non_null(strstr(members[1].reason, "rank 0 on a (process"));
    assert_non_null(strstr(members[1].reason, "left: preempted"));
    assert_int_equal(fth_membership_get(members[1].membership, "key", fth_deadline_in(20), &bytes, &size),
                     FTH_PEER_LOST);
    assert_message_has("left: preempted");
    join_all(&members[1], 2);
    assert_int_equal(members[1].view.generation, 2);
    assert_int_equal(members[1].view.rank, 0);
    assert_int_equal(members[2].view.rank, 1);
    assert_int_equal(members[0].ended, 0);
    for (int i = 0; i < 3; i++)
        close_member(&members[i]);
    fth_rendezvous_stop(fixture.rendezvous);
}

static void an_agent_reports_a_worker_that_ended(void **state)
{
    meeting fixture = {0};
    test_member members[2];
    (void)state;
    start(&fixture, 1, 3, "secret");
    open_member(&fixture, &members[0], "a");
    open_member(&fixture, &members[1], "b");
    join_all(members, 2);
    assert_int_equal(fth_rendezvous_report_lost(fixture.address, "wrong", "b", getpid(), "signal 9"), FTH_INVALID);
    assert_message_has("token");
    assert_int_equal(fth_rendezvous_report_lost(fixture.address, "secret", "b", getpid(), "signal 9"), FTH_OK);
    wait_until(members[0].ended && members[1].ended);
    assert_non_null(strstr(members[0].reason, "rank 1 on b"));
    assert_non_null(strstr(members[0].reason, "signal 9"));
    /* It was not true: the process joins again as a new member, behind the others. */
    join_all(members, 2);
    assert_true(members[1].view.generation >= 2);
    for (int i = 0; i < 2; i++)
        close_member(&members[i]);
    fth_rendezvous_stop(fixture.rendezvous);
}

static void a_joiner_is_taken_in_between_two_updates(void **state)
{
    meeting fixture = {0};
    test_member members[2];
    (void)state;
    start(&fixture, 1, 2, "secret");
    open_member(&fixture, &members[0], "a");
    join_all(members, 1);
    assert_int_equal(members[0].view.size, 1);
    assert_false(fth_membership_is_ending(members[0].membership));
    open_member(&fixture, &members[1], "b");
    begin_join(&members[1]);
    wait_until(fth_membership_is_ending(members[0].membership));
    assert_int_equal(members[0].ended, 0);
    join_all(members, 1);
    pthread_join(members[1].thread, NULL);
    assert_int_equal(members[1].status, FTH_OK);
    assert_int_equal(members[0].view.rank, 0);
    assert_int_equal(members[1].view.rank, 1);
    assert_int_equal(members[1].view.generation, 2);
    assert_false(fth_membership_is_ending(members[0].membership));
    for (int i = 0; i < 2; i++)
        close_member(&members[i]);
    fth_rendezvous_stop(fixture.rendezvous);
}

static void too_few_nodes_are_named(void **state)
{
    meeting fixture = {0};
    test_member member;
    (void)state;
    start(&fixture, 2, 2, "secret");
    open_member(&fixture, &member, "a");
    assert_int_equal(fth_membership_join(member.membership, NULL, &member.view), FTH_TIMEOUT);
    assert_message_has("1 node of at least 2: a");
    close_member(&member);
    fth_rendezvous_stop(fixture.rendezvous);
}

/* ---- the run ---- */

static void *run_find(void *context)
{
    test_member *member = context;
    json_t *run = NULL;
    member->status = fth_membership_find_run(member->membership, NULL, &run);
    snprintf(member->message, sizeof member->message, "%s", run ? json_string_value(run) : "");
    json_decref(run);
    return NULL;
}

static void one_member_finds_the_run_and_another_if_it_dies(void **state)
{
    meeting fixture = {0};
    test_member members[3];
    json_t *run = NULL;
    (void)state;
    start(&fixture, 1, 3, "secret");
    for (int i = 0; i < 3; i++)
        open_member(&fixture, &members[i], i == 0 ? "a" : i == 1 ? "b" : "c");
    assert_int_equal(fth_membership_find_run(members[0].membership, NULL, &run), FTH_OK);
    assert_null(run);
    pthread_create(&members[1].thread, NULL, run_find, &members[1]);
    close_member(&members[0]);
    pthread_join(members[1].thread, NULL);
    assert_int_equal(members[1].status, FTH_OK);
    assert_string_equal(members[1].message, "");
    json_t *found = json_string("what was found");
    assert_int_equal(fth_membership_share_run(members[2].membership, found), FTH_INVALID);
    pthread_create(&members[2].thread, NULL, run_find, &members[2]);
    assert_int_equal(fth_membership_share_run(members[1].membership, found), FTH_OK);
    json_decref(found);
    pthread_join(members[2].thread, NULL);
    assert_string_equal(members[2].message, "what was found");
    for (int i = 1; i < 3; i++)
        close_member(&members[i]);
    fth_rendezvous_stop(fixture.rendezvous);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_form_a_group_and_exchange_keys),
        cmocka_unit_test(a_member_that_leaves_ends_the_group_for_all),
        cmocka_unit_test(an_agent_reports_a_worker_that_ended),
        cmocka_unit_test(a_joiner_is_taken_in_between_two_updates),
        cmocka_unit_test(too_few_nodes_are_named),
        cmocka_unit_test(one_member_finds_the_run_and_another_if_it_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
