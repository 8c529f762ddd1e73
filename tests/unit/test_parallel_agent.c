/* An agent whose workers are shell scripts: /bin/sh is the program, and "train" a file in the
 * folder they work in. */
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "cluster/rendezvous.h"
#include "parallel/agent.h"
#include "parallel/remote_control.h"

enum { MAX_SHOWN = 1 << 16 };

static struct {
    char output[MAX_SHOWN], messages[MAX_SHOWN];
} shown;

static fth_stop stop;

static void collect(void *context, fth_relay_stream stream, const char *line)
{
    (void)context;
    char *all = stream == FTH_RELAY_OUTPUT ? shown.output : shown.messages;
    size_t length = strlen(all);
    snprintf(all + length, MAX_SHOWN - length, "%s\n", line);
}

static int begin(void **state)
{
    memset(&shown, 0, sizeof shown);
    stop = (fth_stop)FTH_STOP_INITIALIZER;
    return test_make_folder(state) || chdir(test_folder);
}

static int end(void **state)
{
    return chdir("/") || test_remove_folder(state);
}

static const char *const no_arguments[] = {NULL};

static fth_agent_options describe(int workers)
{
    return (fth_agent_options){.program = "/bin/sh",
                               .arguments = no_arguments,
                               .command = "farthing launch -- train",
                               .workers = workers,
                               .least = 1,
                               .most = 1,
                               .token = "",
                               .run = "run",
                               .node = "b",
                               .wait_s = 30,
                               .max_restarts = 3,
                               .stop = &stop,
                               .show = collect};
}

/* Runs `script` in every worker. */
static fth_status run(const fth_agent_options *options, const char *script, fth_exit_code *code)
{
    test_write_text("train", script);
    return fth_agent_run(options, code);
}

static fth_exit_code run_well(int workers, const char *script)
{
    fth_exit_code code = FTH_EXIT_FAILURE;
    fth_agent_options options = describe(workers);
    if (run(&options, script, &code) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return code;
}

static void assert_shown(const char *all, const char *part)
{
    if (!strstr(all, part))
        fail_msg("\"%s\" is not in:\n%s", part, all);
}

static int start_rendezvous(const char *token, const char *name, fth_rendezvous **rendezvous)
{
    const fth_rendezvous_options options = {.address = "127.0.0.1", .token = token, .run = name, .least = 1, .most = 2};
    assert_int_equal(fth_rendezvous_start(&options, rendezvous), FTH_OK);
    return fth_rendezvous_port(*rendezvous);
}

static void workers_get_what_they_need(void **state)
{
    (void)state;
    assert_int_equal(run_well(2, "echo $FARTHING_LAUNCH_RUN $FARTHING_NODE $FARTHING_NODES $FARTHING_LOCAL_RANK of "
                                 "$FARTHING_LOCAL_SIZE\n"
                                 "echo $FARTHING_RENDEZVOUS | grep -q '^127.0.0.1:[0-9]*$' && echo address\n"
                                 "grep -Eq '^[0-9a-f]{64}$' $FARTHING_TOKEN_FILE && echo token\n"
                                 "echo $FARTHING_LAUNCH_COMMAND\n"
                                 "echo hello >&2\n"),
                     FTH_EXIT_OK);
    assert_shown(shown.output, "farthing launch -- train\n");
    assert_shown(shown.output, "run b 1:1 0 of 2\n");
    assert_shown(shown.output, "run b 1:1 1 of 2\n");
    assert_shown(shown.output, "address\n");
    assert_shown(shown.output, "token\n");
    assert_shown(shown.messages, "[b 0] hello\n");
    assert_shown(shown.messages, "[b 1] hello\n");
}

static void one_worker_needs_no_name(void **state)
{
    (void)state;
    assert_int_equal(run_well(1, "echo hello >&2"), FTH_EXIT_OK);
    assert_string_equal(shown.messages, "hello\n");
}

static void a_killed_worker_starts_again(void **state)
{
    (void)state;
    assert_int_equal(run_well(2, "mkdir mark$FARTHING_LOCAL_RANK && kill -9 $$\n"
                                 "echo again; touch again$FARTHING_LOCAL_RANK\n"
                                 "while [ ! -e again0 ] || [ ! -e again1 ]; do sleep 0.01; done\n"),
                     FTH_EXIT_OK);
    assert_string_equal(shown.output, "again\nagain\n");
}

/* It was lost just before the others were done, and waits for a group that never comes. */
static void nobody_waits_for_one_that_is_late(void **state)
{
    (void)state;
    assert_int_equal(run_well(2, "if [ $FARTHING_LOCAL_RANK = 0 ]; then\n"
                                 "    while [ ! -e mark ]; do sleep 0.01; done; exit 0\n"
                                 "fi\n"
                                 "mkdir mark0 && kill -9 $$\n"
                                 "touch mark; exec sleep 1000\n"),
                     FTH_EXIT_OK);
}

static void one_that_is_always_lost_ends_it(void **state)
{
    (void)state;
    fth_exit_code code = FTH_EXIT_OK;
    fth_agent_options options = describe(1);
    options.max_restarts = 1;
    assert_int_equal(run(&options, "kill -11 $$", &code), FTH_PEER_LOST);
    assert_int_equal(code, FTH_EXIT_FAILURE);
    assert_message_has("worker 0 on b was lost 2 times");
    assert_message_has("signal 11");
}

/* The other one is stopped; what is said last is the failure. */
static void a_failure_ends_all(void **state)
{
    (void)state;
    fth_exit_code code = FTH_EXIT_OK;
    fth_agent_options options = describe(2);
    assert_int_equal(run(&options,
                         "trap 'echo stopped; exit 75' TERM\n"
                         "if [ $FARTHING_LOCAL_RANK = 0 ]; then touch up; while true; do sleep 0.01; done; fi\n"
                         "while [ ! -e up ]; do sleep 0.01; done\n"
                         "echo 'farthing: error: no such data' >&2; exit 2\n",
                         &code),
                     FTH_PEER_LOST);
    assert_int_equal(code, FTH_EXIT_USAGE);
    assert_message_has("worker 1 on b failed: no such data");
    assert_shown(shown.output, "stopped\n");
}

/* For other nodes the failure of this one is no stop: its workers leave. */
static void a_failure_leaves_other_nodes_alone(void **state)
{
    (void)state;
    char address[64];
    fth_exit_code code = FTH_EXIT_OK;
    fth_rendezvous *rendezvous = NULL;
    fth_agent_options options = describe(2);
    snprintf(address, sizeof address, "127.0.0.1:%d", start_rendezvous("", "run", &rendezvous));
    options.rendezvous = address;
    options.most = 2;
    assert_int_equal(run(&options,
                         "trap 'echo left; exit 75' USR1\n"
                         "if [ $FARTHING_LOCAL_RANK = 0 ]; then touch up; while true; do sleep 0.01; done; fi\n"
                         "while [ ! -e up ]; do sleep 0.01; done\n"
                         "exit 1\n",
                         &code),
                     FTH_PEER_LOST);
    assert_int_equal(code, FTH_EXIT_FAILURE);
    assert_string_equal(shown.output, "left\n");
    fth_rendezvous_stop(rendezvous);
}

static void stopped_workers_are_not_started_again(void **state)
{
    (void)state;
    assert_int_equal(run_well(2, "echo once; exit 75"), FTH_EXIT_INTERRUPTED);
    assert_string_equal(shown.output, "once\nonce\n");
}

/* One was taken out alone and the others trained to the end. */
static void one_that_is_done_counts(void **state)
{
    (void)state;
    assert_int_equal(run_well(2, "exit $((75 * FARTHING_LOCAL_RANK))"), FTH_EXIT_OK);
}

/* Asks for a stop once both workers are up. */
static void *ask_later(void *context)
{
    const fth_stop_kind *kind = context;
    fth_deadline deadline = test_deadline_in(60);
    while (!(test_exists("up0") && test_exists("up1")) && !fth_deadline_passed(deadline))
        usleep(1000);
    fth_stop_ask(&stop, *kind, 20, "test", "the test wants it");
    return NULL;
}

static fth_exit_code stop_workers(fth_stop_kind kind, const char *script)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask_later, &kind), 0);
    fth_exit_code code = run_well(2, script);
    pthread_join(thread, NULL);
    return code;
}

static void a_stop_reaches_the_workers(void **state)
{
    (void)state;
    const char *script = "trap 'echo request; exit 75' INT; trap 'echo preemption; exit 75' USR1\n"
                         "touch up$FARTHING_LOCAL_RANK; while true; do sleep 0.01; done\n";
    assert_int_equal(stop_workers(FTH_STOP_REQUEST, script), FTH_EXIT_INTERRUPTED);
    assert_string_equal(shown.output, "request\nrequest\n");
    unlink("up0");
    unlink("up1");
    memset(&shown, 0, sizeof shown);
    stop = (fth_stop)FTH_STOP_INITIALIZER;
    assert_int_equal(stop_workers(FTH_STOP_PREEMPTION, script), FTH_EXIT_INTERRUPTED);
    assert_string_equal(shown.output, "preemption\npreemption\n");
}

static fth_stop_kind wait_for_stop(void)
{
    fth_deadline deadline = test_deadline_in(60);
    while (!stop.asked && !fth_deadline_passed(deadline))
        usleep(1000);
    return fth_stop_get(&stop).kind;
}

/* The pipe's other end is the launcher on another machine: it asks, or is gone. */
static void the_launcher_can_stop_an_agent(void **state)
{
    (void)state;
    static const struct {
        const char *orders;
        fth_stop_kind kind;
    } cases[] = {{"who?\nstop\n", FTH_STOP_REQUEST}, {"preempt\n", FTH_STOP_PREEMPTION}, {"sto", FTH_STOP_REQUEST}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        int ends[2];
        fth_remote_control *control = NULL;
        stop = (fth_stop)FTH_STOP_INITIALIZER;
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(fth_remote_control_start(ends[0], &stop, &control), FTH_OK);
        assert_int_equal(write(ends[1], cases[i].orders, strlen(cases[i].orders)), (ssize_t)strlen(cases[i].orders));
        if (!strchr(cases[i].orders, '\n'))
            close(ends[1]); /* in the middle of a line */
        assert_int_equal(wait_for_stop(), cases[i].kind);
        fth_remote_control_free(control);
        close(ends[0]);
        if (strchr(cases[i].orders, '\n'))
            close(ends[1]);
    }
}

static void waiting_for_a_rendezvous_can_be_stopped(void **state)
{
    (void)state;
    fth_exit_code code = FTH_EXIT_OK;
    fth_agent_options options = describe(1);
    options.rendezvous = "127.0.0.1:1"; /* a port that nobody has */
    options.hosting = FTH_HOSTING_NO;
    options.wait_s = 1e6;
    fth_stop_ask(&stop, FTH_STOP_REQUEST, 20, "test", "the test wants it");
    assert_int_equal(run(&options, "echo it has started", &code), FTH_INTERRUPTED);
    assert_int_equal(code, FTH_EXIT_INTERRUPTED);
    assert_string_equal(shown.output, "");
}

static void assert_refused(const char *address, const char *token, fth_hosting hosting, const char *part)
{
    fth_exit_code code = FTH_EXIT_OK;
    fth_agent_options options = describe(1);
    options.rendezvous = address;
    options.token = token;
    options.hosting = hosting;
    options.most = 2;
    options.wait_s = 1;
    assert_int_not_equal(run(&options, "echo it has started", &code), FTH_OK);
    assert_int_equal(code, FTH_EXIT_FAILURE);
    assert_message_has(part);
    assert_string_equal(shown.output, "");
}

static void a_rendezvous_of_others_is_refused(void **state)
{
    (void)state;
    char address[64];
    fth_rendezvous *rendezvous = NULL;
    snprintf(address, sizeof address, "127.0.0.1:%d", start_rendezvous("secret", "run", &rendezvous));
    assert_refused(address, "wrong", FTH_HOSTING_NO, "token");
    assert_refused(address, "wrong", FTH_HOSTING_AUTO, "token"); /* the port is taken, by that rendezvous */
    fth_rendezvous_stop(rendezvous);
    snprintf(address, sizeof address, "127.0.0.1:%d", start_rendezvous("", "other", &rendezvous));
    assert_refused(address, "", FTH_HOSTING_NO, "\"other\"");
    fth_rendezvous_stop(rendezvous);
    assert_refused(address, "", FTH_HOSTING_NO, address); /* nobody is there any more */
}

static void a_name_that_does_not_resolve_is_named(void **state)
{
    (void)state;
    assert_refused("no-such-host.invalid:29400", "", FTH_HOSTING_AUTO, "no-such-host.invalid");
}

/* Two nodes on one machine: the second finds the first's rendezvous on the port. */
static void a_second_node_here_joins_the_first(void **state)
{
    (void)state;
    char address[64];
    fth_exit_code code = FTH_EXIT_FAILURE;
    fth_rendezvous *rendezvous = NULL;
    fth_agent_options options = describe(1);
    snprintf(address, sizeof address, "127.0.0.1:%d", start_rendezvous("secret", "run", &rendezvous));
    options.rendezvous = address;
    options.token = "secret";
    options.most = 2;
    assert_int_equal(run(&options, "cat $FARTHING_TOKEN_FILE; echo", &code), FTH_OK);
    assert_int_equal(code, FTH_EXIT_OK);
    assert_string_equal(shown.output, "secret\n");
    fth_rendezvous_stop(rendezvous);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(workers_get_what_they_need),
        TEST(one_worker_needs_no_name),
        TEST(a_killed_worker_starts_again),
        TEST(nobody_waits_for_one_that_is_late),
        TEST(one_that_is_always_lost_ends_it),
        TEST(a_failure_ends_all),
        TEST(a_failure_leaves_other_nodes_alone),
        TEST(stopped_workers_are_not_started_again),
        TEST(one_that_is_done_counts),
        TEST(a_stop_reaches_the_workers),
        TEST(the_launcher_can_stop_an_agent),
        TEST(waiting_for_a_rendezvous_can_be_stopped),
        TEST(a_rendezvous_of_others_is_refused),
        TEST(a_name_that_does_not_resolve_is_named),
        TEST(a_second_node_here_joins_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
