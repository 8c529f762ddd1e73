/* Supervised processes: shell scripts that are done, fail, are killed or do not stop. */
#include "support.h"

#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "parallel/supervisor.h"

/* What each process runs, and how often each ended. */
typedef struct scripted {
    const char *script;
    int starts[8], ends[8];
} scripted;

static fth_status add_script(void *context, int number, fth_words *words)
{
    scripted *all = context;
    fth_status status = FTH_OK;

    all->starts[number]++;
    FTH_TRY(fth_words_add(words, "sh"));
    FTH_TRY(fth_words_add(words, "-c"));
    FTH_TRY(fth_words_add(words, "%s", all->script));
    FTH_TRY(fth_words_add(words, "sh"));
    FTH_TRY(fth_words_add(words, "%d", number));
    FTH_TRY(fth_words_add(words, "%s/supervised", test_folder));

out:
    return status;
}

static void count_end(void *context, int number, pid_t process, const fth_child_end *end)
{
    assert_true(process > 0 && (end->code >= 0 || end->signal > 0));
    ((scripted *)context)->ends[number]++;
}

static fth_supervisor *start(scripted *all, int count, int max_restarts)
{
    fth_supervisor *supervisor = NULL;
    char folder[300];
    snprintf(folder, sizeof folder, "%s/supervised", test_folder);
    fth_supervisor_options options = {.program = "/bin/sh",
                                      .folder = folder,
                                      .count = count,
                                      .max_restarts = max_restarts,
                                      .context = all,
                                      .add_arguments = add_script,
                                      .on_end = count_end};
    if (fth_supervisor_start(&options, &supervisor) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return supervisor;
}

/* Looks until nothing is left or something fails. */
static fth_status look_to_the_end(fth_supervisor *supervisor)
{
    fth_deadline deadline = test_deadline_in(60);
    fth_status status = FTH_OK;
    while (status == FTH_OK && fth_supervisor_left(supervisor) > 0) {
        assert_false(fth_deadline_passed(deadline));
        status = fth_supervisor_look(supervisor);
        usleep(1000);
    }
    return status;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s/supervised'", test_folder);
    return system(command);
}

static void all_of_them_are_done(void **state)
{
    (void)state;
    scripted all = {.script = "exit 0"};
    fth_supervisor *supervisor = start(&all, 3, 0);
    assert_int_equal(look_to_the_end(supervisor), FTH_OK);
    for (int number = 1; number <= 3; number++)
        assert_true(all.starts[number] == 1 && all.ends[number] == 1);
    fth_supervisor_free(supervisor);
}

/* The first life of each leaves a mark and is killed; the second finds it. */
static void a_lost_one_starts_again(void **state)
{
    (void)state;
    scripted all = {.script = "test -e $2/mark$1 && exit 0; touch $2/mark$1; kill -9 $$"};
    fth_supervisor *supervisor = start(&all, 2, 1);
    assert_int_equal(look_to_the_end(supervisor), FTH_OK);
    for (int number = 1; number <= 2; number++)
        assert_true(all.starts[number] == 2 && all.ends[number] == 2);
    fth_supervisor_free(supervisor);
}

/* "Stopped and saved" is for whoever stopped it, so it starts again; but not for ever. */
static void one_that_is_always_lost_ends_it(void **state)
{
    (void)state;
    scripted all = {.script = "exit 75"};
    fth_supervisor *supervisor = start(&all, 1, 2);
    assert_int_equal(look_to_the_end(supervisor), FTH_PEER_LOST);
    assert_message_has("worker 1 was lost 3 times");
    assert_int_equal(all.starts[1], 3);
    assert_int_equal(fth_supervisor_left(supervisor), 0);
    fth_supervisor_free(supervisor);
}

static void a_failure_carries_its_last_line(void **state)
{
    (void)state;
    scripted all = {.script = "echo first >&2; echo the data is gone >&2; exit 1"};
    fth_supervisor *supervisor = start(&all, 1, 5);
    assert_int_equal(look_to_the_end(supervisor), FTH_PEER_LOST);
    assert_message_has("worker 1 failed: the data is gone");
    assert_int_equal(all.starts[1], 1);
    fth_supervisor_free(supervisor);
}

/* A pause that has not passed holds a restart back, and a stop calls it off. */
static void restarts_pause_and_a_stop_calls_them_off(void **state)
{
    (void)state;
    scripted all = {.script = "kill -9 $$"};
    fth_supervisor *supervisor = NULL;
    char folder[300];
    snprintf(folder, sizeof folder, "%s/supervised", test_folder);
    fth_supervisor_options options = {.program = "/bin/sh",
                                      .folder = folder,
                                      .count = 1,
                                      .max_restarts = 100,
                                      .first_pause_s = 1e6,
                                      .context = &all,
                                      .add_arguments = add_script,
                                      .on_end = count_end};
    assert_int_equal(fth_supervisor_start(&options, &supervisor), FTH_OK);
    fth_deadline deadline = test_deadline_in(60);
    while (all.ends[1] < 2 && !fth_deadline_passed(deadline)) {
        assert_int_equal(fth_supervisor_look(supervisor), FTH_OK);
        usleep(1000);
    }
    assert_int_equal(fth_supervisor_look(supervisor), FTH_OK);
    assert_int_equal(all.starts[1], 2); /* at once after the first loss, not after the second */
    assert_int_equal(fth_supervisor_left(supervisor), 1);
    fth_supervisor_stop(supervisor, test_deadline_in(60));
    assert_int_equal(fth_supervisor_left(supervisor), 0);
    fth_supervisor_free(supervisor);
}

static void wait_for_file(const char *name)
{
    char path[400];
    fth_deadline deadline = test_deadline_in(60);
    snprintf(path, sizeof path, "%s/supervised/%s", test_folder, name);
    while (!fth_file_exists(path)) {
        assert_false(fth_deadline_passed(deadline));
        usleep(1000);
    }
}

/* One stops when it is asked to, with time to say goodbye; one does not, and is killed at the
 * deadline. */
static void a_stop_reaches_all_and_has_a_deadline(void **state)
{
    (void)state;
    scripted all = {.script = "trap 'test $1 = 1 && touch $2/goodbye && exit 75' TERM; touch $2/up$1; "
                              "while true; do sleep 0.01; done"};
    fth_supervisor *supervisor = start(&all, 2, 5);
    wait_for_file("up1");
    wait_for_file("up2");
    fth_log_set_level(FTH_LOG_ERROR);
    fth_supervisor_stop(supervisor, fth_deadline_in(1));
    fth_log_set_level(FTH_LOG_WARNING);
    wait_for_file("goodbye");
    assert_int_equal(fth_supervisor_left(supervisor), 0);
    assert_true(all.starts[1] == 1 && all.starts[2] == 1);
    fth_supervisor_free(supervisor);
}

/* Where processes are asked to stop one by one, one that has is done. */
static void a_stop_may_be_an_end(void **state)
{
    (void)state;
    scripted all = {.script = "exit 75"};
    fth_supervisor *supervisor = NULL;
    fth_supervisor_options options = {.program = "/bin/sh",
                                      .count = 2,
                                      .may_stop = true,
                                      .context = &all,
                                      .add_arguments = add_script,
                                      .on_end = count_end};
    assert_int_equal(fth_supervisor_start(&options, &supervisor), FTH_OK);
    assert_int_equal(look_to_the_end(supervisor), FTH_OK);
    assert_true(all.starts[1] == 1 && all.ends[1] == 1 && all.starts[2] == 1 && all.ends[2] == 1);
    fth_supervisor_free(supervisor);
}

static fth_status give_variable(void *context, int number, fth_words *variables, fth_child_options *child)
{
    (void)context;
    (void)child;
    return fth_words_add(variables, "OF_ITS_OWN=%d", 10 * number);
}

static void name_node(void *context, int number, char *name, size_t size)
{
    (void)context;
    snprintf(name, size, "worker %d on b", number);
}

static char *quote(void *context, int number)
{
    (void)context;
    return fth_format("farthing: error: line %d", number);
}

static void each_has_variables_and_a_name_of_its_own(void **state)
{
    (void)state;
    scripted all = {.script = "test $OF_ITS_OWN = 20 && exit 1; exit 0"};
    fth_supervisor *supervisor = NULL;
    fth_supervisor_options options = {.program = "/bin/sh",
                                      .count = 2,
                                      .context = &all,
                                      .add_arguments = add_script,
                                      .prepare = give_variable,
                                      .write_name = name_node,
                                      .last_message = quote};
    assert_int_equal(fth_supervisor_start(&options, &supervisor), FTH_OK);
    assert_int_equal(look_to_the_end(supervisor), FTH_PEER_LOST);
    assert_message_has("worker 2 on b failed: line 2");
    fth_supervisor_free(supervisor);
}

static void a_program_that_is_missing_is_named(void **state)
{
    (void)state;
    scripted all = {.script = ""};
    fth_supervisor *supervisor = NULL;
    char folder[300];
    test_require_spawn_errors();
    snprintf(folder, sizeof folder, "%s/supervised", test_folder);
    fth_supervisor_options options = {
        .program = "/nonexistent/farthing", .folder = folder, .count = 2, .context = &all, .add_arguments = add_script};
    assert_int_equal(fth_supervisor_start(&options, &supervisor), FTH_IO);
    assert_message_has("/nonexistent/farthing");
    assert_null(supervisor);
}

/* Where nobody supervises, nothing happens; where the supervisor is another than the parent, it is
 * gone. */
static void a_supervised_process_follows_its_parent(void **state)
{
    (void)state;
    unsetenv("FARTHING_PARENT_PROCESS");
    assert_int_equal(fth_supervisor_follow_parent(), FTH_OK);
    setenv("FARTHING_PARENT_PROCESS", "1", 1);
    assert_int_equal(fth_supervisor_follow_parent(), getppid() == 1 ? FTH_OK : FTH_PEER_LOST);
    unsetenv("FARTHING_PARENT_PROCESS");
}

#define TEST(function) cmocka_unit_test_teardown(function, remove_folder)

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(all_of_them_are_done),
        TEST(a_lost_one_starts_again),
        TEST(one_that_is_always_lost_ends_it),
        TEST(a_failure_carries_its_last_line),
        TEST(restarts_pause_and_a_stop_calls_them_off),
        TEST(a_stop_reaches_all_and_has_a_deadline),
        TEST(a_stop_may_be_an_end),
        TEST(each_has_variables_and_a_name_of_its_own),
        TEST(a_program_that_is_missing_is_named),
        TEST(a_supervised_process_follows_its_parent),
    };
    return cmocka_run_group_tests(tests, test_make_folder, test_remove_folder);
}
