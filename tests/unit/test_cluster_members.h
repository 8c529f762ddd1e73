/* Members of a rendezvous as threads, and as processes, of a test. */
#ifndef TEST_CLUSTER_MEMBERS_H
#define TEST_CLUSTER_MEMBERS_H

#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cluster/membership.h"
#include "cluster/rendezvous.h"

static const double LOST_AFTER_S = 2; /* generous: the machine may be busy */

/* A rendezvous and its members. */
typedef struct meeting {
    fth_rendezvous *rendezvous;
    char address[64];
    double stuck_after_s;  /* 0: the usual minute */
    atomic_int port_known; /* in memory that processes share: the address is there */
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
    char reason[512]; /* with the generation, written before `ended` */
    int64_t ended_generation;
} test_member;

static inline void start_at(meeting *fixture, const char *address, int port, int least, int most, const char *token)
{
    fth_rendezvous_options options = {.address = address,
                                      .port = port,
                                      .token = token,
                                      .run = "a run",
                                      .least = least,
                                      .most = most,
                                      .join_wait_s = 0.3,
                                      .lost_after_s = LOST_AFTER_S,
                                      .stuck_after_s = fixture->stuck_after_s};
    assert_int_equal(fth_rendezvous_start(&options, &fixture->rendezvous), FTH_OK);
    snprintf(fixture->address, sizeof fixture->address, "%s:%d", address, fth_rendezvous_port(fixture->rendezvous));
}

static inline void start(meeting *fixture, int least, int most, const char *token)
{
    start_at(fixture, "127.0.0.1", 0, least, most, token);
}

static inline void on_end(void *context, int64_t generation, const char *reason)
{
    test_member *member = context;
    member->ended_generation = generation;
    snprintf(member->reason, sizeof member->reason, "%s", reason);
    member->ended++;
}

static inline fth_membership_options describe(test_member *member, const char *token)
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

static inline void open_member(meeting *fixture, test_member *member, const char *node)
{
    *member = (test_member){.fixture = fixture, .rank = -1};
    snprintf(member->node, sizeof member->node, "%s", node);
    fth_membership_options options = describe(member, "secret");
    if (fth_membership_open(&options, test_deadline_in(20), &member->membership) != FTH_OK)
        fail_msg("%s: %s", node, fth_error_message());
}

static inline void close_member(test_member *member)
{
    fth_membership_close(member->membership);
    fth_group_view_release(&member->view);
    member->membership = NULL;
}

static inline void *run_join(void *context)
{
    test_member *member = context;
    member->status = fth_membership_join(member->membership, NULL, &member->view);
    snprintf(member->message, sizeof member->message, "%s", fth_error_message());
    return NULL;
}

static inline void begin_join(test_member *member)
{
    assert_int_equal(pthread_create(&member->thread, NULL, run_join, member), 0);
}

static inline void join_all(test_member *members, int count)
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
        fth_deadline limit = test_deadline_in(60);                                                                     \
        while (!(condition)) {                                                                                         \
            assert_false(fth_deadline_passed(limit));                                                                  \
            usleep(2000);                                                                                              \
        }                                                                                                              \
    } while (0)

/* Joins until the group has that many members: the first ones may lack some who come a moment
 * later. */
static inline void join_until(test_member *member, int size)
{
    do {
        int before = member->ended;
        join_all(member, 1);
        if (member->view.size < size)
            wait_until(member->ended > before || fth_membership_is_ending(member->membership));
    } while (member->view.size < size);
}

/* A member in a process of its own, which joins again and again until it is killed. */
static inline pid_t fork_member(meeting *fixture, const char *node)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    test_member member = {.fixture = fixture, .rank = -1};
    snprintf(member.node, sizeof member.node, "%s", node);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (fixture->port_known == 0)
        usleep(1000);
    fth_membership_options options = describe(&member, "secret");
    if (fth_membership_open(&options, test_deadline_in(60), &member.membership) != FTH_OK)
        _exit(1);
    for (;;) {
        int before = member.ended;
        if (fth_membership_join(member.membership, NULL, &member.view) != FTH_OK)
            _exit(2);
        while (member.ended == before && !fth_membership_is_ending(member.membership))
            usleep(2000);
    }
}

#endif
