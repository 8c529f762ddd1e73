/* The rendezvous and memberships together: real HTTP on the loopback, with threads as members. */
#include "test_cluster_members.h"

#include <arpa/inet.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/rendezvous_client.h"
#include "cluster/rendezvous_find.h"
#include "http/server.h"

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
    assert_int_equal(fth_membership_get(members[1].membership, "a key/with ?&", test_deadline_in(20), &bytes, &size),
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

static void one_on_loopback_is_for_this_machine_alone(void **state)
{
    (void)state;
    assert_string_equal(fth_rendezvous_listening_address("127.0.0.1:29400"), "127.0.0.1");
    assert_string_equal(fth_rendezvous_listening_address("localhost:29400"), "127.0.0.1");
    assert_null(fth_rendezvous_listening_address("node1:29400"));
    assert_null(fth_rendezvous_listening_address("127.0.0.2:29400")); /* loopback, and another address */
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
    assert_int_equal(members[1].ended_generation, members[1].view.generation);
    assert_non_null(strstr(members[1].reason, "rank 0 on a (process"));
    assert_non_null(strstr(members[1].reason, "left: preempted"));
    assert_int_equal(fth_membership_get(members[1].membership, "key", test_deadline_in(20), &bytes, &size),
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
    begin_join(&members[1]);
    join_until(&members[0], 2);
    pthread_join(members[1].thread, NULL);
    assert_int_equal(members[1].status, FTH_OK);
    assert_int_equal(members[1].view.rank, 1);
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

/* ---- what goes wrong ---- */

/* Opens a membership that must be refused, within 10 s, in words that name its host and rank. */
static void expect_refusal(const char *address, const char *token, const char *run, const char *configuration,
                           fth_status expected, const char *message)
{
    fth_membership *membership = NULL;
    fth_membership_options options = {.rendezvous = address,
                                      .token = token,
                                      .run = run,
                                      .node = "node-b",
                                      .host = "b.example",
                                      .address = "",
                                      .rank = 1,
                                      .configuration = configuration};
    assert_int_equal(fth_membership_open(&options, test_deadline_in(60), &membership), expected);
    assert_null(membership);
    assert_message_has("rank 1 on node-b");
    assert_message_has(message);
}

static void members_that_do_not_fit_are_refused(void **state)
{
    meeting fixture = {0};
    test_member member;
    int code = 0;
    json_t *answer = NULL;
    (void)state;
    start(&fixture, 1, 2, "secret");
    expect_refusal(fixture.address, "wrong", "a run", "{}", FTH_INVALID, "the token is not the one");
    expect_refusal(fixture.address, "", "a run", "{}", FTH_INVALID, "the token is missing");
    expect_refusal(fixture.address, "secret", "another", "{}", FTH_INVALID,
                   "is of run another and this rendezvous of run a run");
    open_member(&fixture, &member, "a");
    expect_refusal(fixture.address, "secret", "a run", "{\"batch\": 32, \"lr\": 0.1}", FTH_INVALID,
                   "batch is 64 on a and 32 on node-b; lr is not set on a and 0.1");
    close_member(&member);

    fth_rendezvous_client *client = NULL;
    assert_int_equal(fth_rendezvous_client_open(fixture.address, "secret", "the test", &client), FTH_OK);
    json_t *request = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:{}}", "version", "0.0.1", "run",
                                "a run", "configuration", "{}", "instance", "x", "node", "b", "host", "b.example",
                                "address", "", "process", 7, "local_rank", 0, "rank", 1, "facts");
    assert_non_null(request);
    assert_int_equal(
        fth_rendezvous_client_post(client, "/open", request, test_deadline_in(20), NULL, NULL, &code, &answer),
        FTH_INVALID);
    assert_int_equal(code, 409);
    assert_message_has("rank 1 on b (process 7) runs farthing 0.0.1 and the rendezvous " FTH_VERSION);
    json_decref(request);
    fth_rendezvous_client_free(client);
    fth_rendezvous_stop(fixture.rendezvous);
}

static void members_that_found_other_data_are_refused(void **state)
{
    meeting fixture = {0};
    test_member members[2];
    json_t *more = json_pack("{s:i}", "number of images", 180), *fewer = json_pack("{s:i}", "number of images", 145);
    (void)state;
    start(&fixture, 2, 2, "secret");
    open_member(&fixture, &members[0], "a");
    open_member(&fixture, &members[1], "b");
    assert_int_equal(fth_membership_announce(members[0].membership, more), FTH_OK);
    assert_int_equal(fth_membership_announce(members[1].membership, fewer), FTH_OK);
    assert_int_equal(fth_membership_join(members[0].membership, NULL, &members[0].view), FTH_TIMEOUT);
    assert_int_equal(fth_membership_join(members[1].membership, NULL, &members[1].view), FTH_INVALID);
    assert_message_has("b (process ");
    assert_message_has("nodes have different data: number of images is 180 on a and 145 on b");

    close_member(&members[0]); /* what it found counts no more */
    assert_int_equal(fth_membership_join(members[1].membership, NULL, &members[1].view), FTH_TIMEOUT);
    open_member(&fixture, &members[0], "a");
    assert_int_equal(fth_membership_announce(members[0].membership, fewer), FTH_OK);
    join_all(members, 2);
    close_member(&members[0]);
    close_member(&members[1]);
    json_decref(more);
    json_decref(fewer);
    fth_rendezvous_stop(fixture.rendezvous);
}

static void names_and_ports_that_are_wrong_are_named(void **state)
{
    meeting fixture = {0};
    (void)state;
    expect_refusal("no-such-host.invalid:1234", "", "a run", "{}", FTH_INVALID, "no-such-host.invalid");
    start(&fixture, 1, 1, "");
    fth_rendezvous *second = NULL;
    fth_rendezvous_options options = {.address = "127.0.0.1",
                                      .port = fth_rendezvous_port(fixture.rendezvous),
                                      .token = "",
                                      .run = "a run",
                                      .least = 1,
                                      .most = 1};
    assert_int_equal(fth_rendezvous_start(&options, &second), FTH_IO);
    assert_null(second);
    char holder[64];
    snprintf(holder, sizeof holder, "which process %d (", (int)getpid());
    assert_message_has(holder);
    fth_rendezvous_stop(fixture.rendezvous);

    /* Nobody there: waited for, as it may come later, until the deadline. */
    fth_membership *membership = NULL;
    fth_membership_options nobody = {
        .rendezvous = fixture.address, .token = "", .run = "a run", .node = "b", .host = "b.example", .rank = 1};
    assert_int_equal(fth_membership_open(&nobody, fth_deadline_in(0.5), &membership), FTH_TIMEOUT);
    assert_message_has("rank 1 on b");
    assert_message_has("cannot reach the rendezvous at 127.0.0.1:");
}

/* Something that is no rendezvous: says `greeting` to whoever connects, and closes the connection,
 * or never does. */
typedef struct stranger {
    int socket;
    const char *greeting;
    pthread_t thread;
    char address[64];
} stranger;

static void *run_stranger(void *context)
{
    stranger *other = context;
    for (;;) {
        int client = accept(other->socket, NULL, NULL);
        if (client < 0)
            return NULL;
        if (other->greeting) {
            char request[4096];
            if (read(client, request, sizeof request) > 0 &&
                write(client, other->greeting, strlen(other->greeting)) > 0)
                shutdown(client, SHUT_WR);
            close(client);
        } /* else it stays open, and the kernel closes it with the process */
    }
}

static void begin_stranger(stranger *other, const char *greeting)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    other->greeting = greeting;
    other->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(other->socket, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(other->socket, 64), 0);
    getsockname(other->socket, (struct sockaddr *)&name, &length);
    snprintf(other->address, sizeof other->address, "127.0.0.1:%d", ntohs(name.sin_port));
    assert_int_equal(pthread_create(&other->thread, NULL, run_stranger, other), 0);
}

static void end_stranger(stranger *other)
{
    shutdown(other->socket, SHUT_RDWR);
    pthread_join(other->thread, NULL);
    close(other->socket);
}

static void strangers_on_the_port_are_recognized(void **state)
{
    static const char *const greetings[] = {
        "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\noops",
        "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"service\": \"x\"}",
        "SSH-2.0-OpenSSH_9.2p1 Debian\r\n",
        "\x15\x03\x01 garbage",
        NULL,
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(greetings); i++) {
        stranger other;
        begin_stranger(&other, greetings[i]);
        expect_refusal(other.address, "secret", "a run", "{}", FTH_INVALID, "is not a farthing rendezvous");
        assert_message_has(other.address);
        end_stranger(&other);
    }
}

/* ---- clocks ---- */

static void stub_rendezvous(void *context, fth_exchange *exchange)
{
    (void)context;
    fth_exchange_answer_json(exchange, 200,
                             json_pack("{s:s, s:i, s:f, s:{s:f}}", "service", "farthing rendezvous", "member", 1,
                                       "wall_s", fth_clock_wall_seconds() + 100, "limits", "lost_after_s", 4.0));
}

static char warnings[1024];

static void take_log(void *context, fth_log_level level, const char *message)
{
    (void)context;
    if (level == FTH_LOG_WARNING)
        snprintf(warnings, sizeof warnings, "%s", message);
}

static void clocks_that_are_apart_are_a_warning(void **state)
{
    static const fth_route routes[] = {
        {"GET", "/rendezvous", stub_rendezvous, FTH_ROLE_NONE, 0, NULL},
        {"POST", "/*", stub_rendezvous, FTH_ROLE_NONE, 4096, NULL},
        {0},
    };
    fth_server *server = NULL;
    fth_membership *membership = NULL;
    char address[64];
    (void)state;
    assert_int_equal(fth_server_start(&(fth_server_options){.routes = routes}, &server), FTH_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", fth_server_port(server));
    fth_membership_options options = {
        .rendezvous = address, .token = "", .run = "a run", .node = "b", .host = "b.example", .address = "", .rank = 1};
    fth_log_set_function(take_log, NULL);
    assert_int_equal(fth_membership_open(&options, test_deadline_in(20), &membership), FTH_OK);
    fth_membership_close(membership);
    fth_log_set_function(NULL, NULL);
    assert_non_null(strstr(warnings, "the clock of b is 100 s behind that of the rendezvous"));
    fth_server_stop(server, 1);
}

/* ---- hostile input ---- */

static void garbage_and_crowds_leave_the_service_up(void **state)
{
    enum { CROWD = 300 };
    static const char *const requests[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{",
        "POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]",
        "POST /beat HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"member\":\"\"}",
        "POST /join HTTP/1.1\r\nHost: x\r\nContent-Length: 24\r\n\r\n{\"member\":-1,\"after\":1e9}",
        "POST /lost HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        "PUT /key?member=1&generation=x&key=%00 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "GET /key?member=99999999999999999999&generation=1&key=a HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /share HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "\x16\x03\x01\x02",
        "POST /open HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\nContent-Length: 2\r\n\r\n{}",
    };
    meeting fixture = {0};
    test_member member;
    int crowd[CROWD];
    (void)state;
    start(&fixture, 1, 2, "");
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    name.sin_port = htons((uint16_t)fth_rendezvous_port(fixture.rendezvous));
    for (int i = 0; i < CROWD; i++) {
        const char *request = requests[(size_t)i % FTH_COUNT_OF(requests)];
        crowd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(crowd[i], (struct sockaddr *)&name, sizeof name), 0);
        if (i % 3 > 0)
            assert_true(write(crowd[i], request, strlen(request)) > 0);
    }
    open_member(&fixture, &member, "a");
    join_all(&member, 1);
    assert_int_equal(member.view.size, 1);
    close_member(&member);
    for (int i = 0; i < CROWD; i++)
        close(crowd[i]);
    fth_rendezvous_stop(fixture.rendezvous);
}

/* ---- processes that die, and that stop ---- */

static void members_that_die_or_stop_are_lost(void **state)
{
    test_member member;
    (void)state;
    /* Children are forked before there are threads; they wait for the rendezvous in memory that all
     * share. */
    meeting *fixture = mmap(NULL, sizeof *fixture, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(fixture != MAP_FAILED);
    pid_t dying = fork_member(fixture, "b"), stopping = fork_member(fixture, "c");
    start(fixture, 1, 3, "secret");
    fixture->port_known = 1;
    open_member(fixture, &member, "a");
    join_until(&member, 3);

    int before = member.ended;
    kill(dying, SIGKILL);
    waitpid(dying, NULL, 0);
    wait_until(member.ended > before);
    assert_non_null(strstr(member.reason, " on b "));
    join_all(&member, 1);
    assert_int_equal(member.view.size, 2);

    before = member.ended;
    kill(stopping, SIGSTOP);
    wait_until(member.ended > before);
    assert_non_null(strstr(member.reason, " on c "));
    assert_non_null(strstr(member.reason, "no sign of life"));
    join_all(&member, 1);
    assert_int_equal(member.view.size, 1);

    kill(stopping, SIGCONT); /* it finds itself out, and joins again */
    wait_until(fth_membership_is_ending(member.membership));
    join_all(&member, 1);
    assert_int_equal(member.view.size, 2);
    assert_string_equal(member.view.members[1].node, "c");
    kill(stopping, SIGKILL);
    waitpid(stopping, NULL, 0);
    close_member(&member);
    fth_rendezvous_stop(fixture->rendezvous);
    munmap(fixture, sizeof *fixture);
}

static void a_member_without_a_rendezvous_does_not_hang(void **state)
{
    meeting fixture = {0};
    test_member member;
    fth_stop stop = FTH_STOP_INITIALIZER;
    (void)state;
    start(&fixture, 1, 1, "secret");
    open_member(&fixture, &member, "a");
    join_all(&member, 1);
    fth_rendezvous_stop(fixture.rendezvous);
    wait_until(member.ended);
    assert_non_null(strstr(member.reason, "the rendezvous at 127.0.0.1:"));
    fth_stop_ask(&stop, FTH_STOP_REQUEST, 0, "test", "enough");
    assert_int_equal(fth_membership_join(member.membership, &stop, &member.view), FTH_INTERRUPTED);
    close_member(&member);
}

static void members_that_are_to_stop_form_a_group_first(void **state)
{
    meeting fixture = {0};
    test_member member, newcomer;
    fth_stop stop = FTH_STOP_INITIALIZER;
    (void)state;
    start(&fixture, 1, 1, "secret");
    open_member(&fixture, &member, "a");
    open_member(&fixture, &newcomer, "b");
    join_all(&member, 1);
    fth_stop_ask(&stop, FTH_STOP_REQUEST, INFINITY, "test", "enough");
    assert_int_equal(fth_membership_join(newcomer.membership, &stop, &newcomer.view), FTH_INTERRUPTED);
    assert_int_equal(fth_membership_join(member.membership, &stop, &member.view), FTH_OK);
    close_member(&newcomer);
    close_member(&member);
    fth_rendezvous_stop(fixture.rendezvous);
}

static void too_few_know_who_is_first(void **state)
{
    meeting fixture = {0};
    test_member members[3];
    (void)state;
    start(&fixture, 3, 3, "secret");
    open_member(&fixture, &members[0], "a");
    open_member(&fixture, &members[1], "b");
    open_member(&fixture, &members[2], "c");
    join_all(members, 3);
    int lost = 0;
    while (members[lost].view.rank != 0)
        lost++;
    test_member *first = &members[(lost + 1) % 3], *second = &members[(lost + 2) % 3];
    if (first->view.rank > second->view.rank) {
        test_member *other = first;
        first = second;
        second = other;
    }
    assert_int_equal(fth_membership_leave(members[lost].membership, "it goes"), FTH_OK);
    wait_until(first->ended && second->ended);
    begin_join(second);
    begin_join(first);
    pthread_join(first->thread, NULL);
    pthread_join(second->thread, NULL);
    assert_int_equal(first->status, FTH_TIMEOUT);
    assert_int_equal(first->view.rank, 0);
    assert_int_equal(second->status, FTH_TIMEOUT);
    assert_int_equal(second->view.rank, 1);
    for (int i = 0; i < 3; i++)
        close_member(&members[i]);
    fth_rendezvous_stop(fixture.rendezvous);
}

static void a_member_that_holds_up_the_others_is_stuck(void **state)
{
    meeting fixture = {.stuck_after_s = 3}; /* reports travel with beats, a second apart */
    test_member members[3];
    (void)state;
    start(&fixture, 1, 3, "secret");
    open_member(&fixture, &members[0], "a");
    open_member(&fixture, &members[1], "b");
    open_member(&fixture, &members[2], "c");
    join_all(members, 3);
    for (int i = 0; i < 3; i++)
        fth_membership_report(members[i].membership, 41, i == 2 ? "computing" : "exchanging");
    wait_until(members[0].ended && members[1].ended && members[2].ended);
    assert_non_null(strstr(members[0].reason, "rank 2 on c (process"));
    assert_non_null(strstr(members[0].reason, "has been computing step 41 for "));
    begin_join(&members[1]);
    join_until(&members[0], 2);
    pthread_join(members[1].thread, NULL);
    for (int i = 0; i < 3; i++)
        close_member(&members[i]);
    fth_rendezvous_stop(fixture.rendezvous);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_form_a_group_and_exchange_keys),
        cmocka_unit_test(one_on_loopback_is_for_this_machine_alone),
        cmocka_unit_test(a_member_that_leaves_ends_the_group_for_all),
        cmocka_unit_test(an_agent_reports_a_worker_that_ended),
        cmocka_unit_test(a_joiner_is_taken_in_between_two_updates),
        cmocka_unit_test(too_few_nodes_are_named),
        cmocka_unit_test(one_member_finds_the_run_and_another_if_it_dies),
        cmocka_unit_test(members_that_do_not_fit_are_refused),
        cmocka_unit_test(members_that_found_other_data_are_refused),
        cmocka_unit_test(names_and_ports_that_are_wrong_are_named),
        cmocka_unit_test(strangers_on_the_port_are_recognized),
        cmocka_unit_test(clocks_that_are_apart_are_a_warning),
        cmocka_unit_test(garbage_and_crowds_leave_the_service_up),
        cmocka_unit_test(a_member_without_a_rendezvous_does_not_hang),
        cmocka_unit_test(members_that_are_to_stop_form_a_group_first),
        cmocka_unit_test(too_few_know_who_is_first),
        cmocka_unit_test(a_member_that_holds_up_the_others_is_stuck),
        cmocka_unit_test(members_that_die_or_stop_are_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
