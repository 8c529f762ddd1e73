/* Functions' processes under limits: what they see, what they may use, and that nothing of them is
 * left. */
#include "support.h"

#include <math.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "platform/sandbox.h"

#ifdef __SANITIZE_THREAD__ /* which takes that much itself */
static const uint64_t limit_bytes = 400 << 20;
#else
static const uint64_t limit_bytes = 48 << 20;
#endif
/* A program that is checked for its use of memory maps more than an rlimit of that size allows. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static const bool has_room_for_rlimit = false;
#else
static const bool has_room_for_rlimit = true;
#endif

/* This program again, as the function: see main(). */
static fth_sandbox *start_as(const char *part, const fth_sandbox_options *more)
{
    char self[TEST_MAX_PATH];
    const char *command[] = {fth_process_program(self, sizeof self), part, test_folder, NULL};
    const char *variables[] = {"ONLY=this one", NULL};
    fth_sandbox_options options = *more;
    fth_sandbox *sandbox = NULL;
    options.command = command;
    options.variables = variables;
    options.folder = test_folder;
    if (fth_sandbox_start(&options, &sandbox) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return sandbox;
}

/* QEMU accepts limits of memory, and ignores them. */
static bool rlimits_apply(void)
{
    struct rlimit before, within;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    const struct rlimit lower = {.rlim_cur = before.rlim_cur - 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &lower), 0);
    assert_int_equal(getrlimit(RLIMIT_DATA, &within), 0);
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
    return within.rlim_cur == lower.rlim_cur;
}

/* Processes are limited by a cgroup, and by an rlimit. */
static int ways_to_limit(void)
{
    return has_room_for_rlimit && rlimits_apply() ? 2 : 1;
}

/* A supervisor without a cgroup finds what its function started by adopting it, which QEMU refuses. */
static bool finds_strays(const fth_sandbox *sandbox)
{
    return strcmp(fth_sandbox_limited_by(sandbox), "cgroup") == 0 || prctl(PR_SET_CHILD_SUBREAPER, 0) == 0;
}

static void require_that_strays_are_found(void)
{
    fth_sandbox *sandbox = start_as("hold", &(fth_sandbox_options){.memory_bytes = limit_bytes});
    bool found = finds_strays(sandbox);
    fth_sandbox_free(sandbox);
    if (found)
        return;
    print_message("SKIP: there is no cgroup, and processes cannot be adopted, as in QEMU\n");
    skip();
}

static fth_child_end wait_for_end(fth_sandbox *sandbox, bool *out_of_memory)
{
    fth_child_end end;
    fth_deadline deadline = test_deadline_in(60);
    while (!fth_sandbox_has_ended(sandbox, &end, out_of_memory)) {
        assert_false(fth_deadline_passed(deadline));
        usleep(1000);
    }
    return end;
}

static void assert_file(const char *name, const char *expected)
{
    char path[TEST_MAX_PATH], *text = NULL;
    size_t size;
    assert_int_equal(fth_file_read_all(test_path(path, name), 1 << 20, &text, &size), FTH_OK);
    assert_string_equal(text, expected);
    free(text);
}

static void wait_for_file(const char *name)
{
    fth_deadline deadline = test_deadline_in(60);
    while (!test_exists(name)) {
        assert_false(fth_deadline_passed(deadline));
        usleep(1000);
    }
}

static long read_number(const char *name)
{
    char path[TEST_MAX_PATH], *text = NULL;
    size_t size;
    wait_for_file(name);
    assert_int_equal(fth_file_read_all(test_path(path, name), 100, &text, &size), FTH_OK);
    long number = atol(text);
    free(text);
    return number;
}

/* One that has ended, and that its new parent has not collected yet, counts: in a container that
 * may be never. */
static bool is_gone(long process)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    const char *after_name = got > 0 ? strrchr(text, ')') : NULL;
    return !after_name || after_name[2] == 'Z' || after_name[2] == 'X';
}

static void wait_until_gone(long process)
{
    fth_deadline deadline = test_deadline_in(60);
    assert_true(process > 1);
    while (!is_gone(process)) {
        assert_false(fth_deadline_passed(deadline));
        usleep(1000);
    }
}

static void it_sees_what_it_is_given(void **state)
{
    (void)state;
    const char *command[] = {
        "/bin/sh", "-c",
        "env | grep -v -e ^PWD= -e ^_= -e ^SHLVL=; pwd; ls /proc/self/fd | wc -l; echo words >&2; exit 3", NULL};
    const char *variables[] = {"PATH=/usr/bin:/bin", "EMPTY=", NULL};
    char expected[TEST_MAX_PATH + 100];
    bool out_of_memory = true;
    fth_sandbox *sandbox = NULL;
    fth_sandbox_options options = {.command = command, .variables = variables, .folder = test_folder};
    assert_int_equal(fth_sandbox_start(&options, &sandbox), FTH_OK);
    assert_string_equal(fth_sandbox_limited_by(sandbox), "nothing");
    fth_child_end end = wait_for_end(sandbox, &out_of_memory);
    assert_int_equal(end.code, 3);
    assert_int_equal(end.signal, 0);
    assert_false(out_of_memory);
    fth_sandbox_free(sandbox);
    /* Its three, and the one that ls reads. */
    snprintf(expected, sizeof expected, "PATH=/usr/bin:/bin\nEMPTY=\n%s\n4\n", test_folder);
    assert_file("stdout.log", expected);
    assert_file("stderr.log", "words\n");
}

static void a_program_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    const char *command[] = {"/nowhere/at/all", NULL}, *variables[] = {NULL};
    fth_sandbox *sandbox = NULL;
    fth_sandbox_options options = {
        .command = command, .variables = variables, .folder = test_folder, .memory_bytes = limit_bytes};
    assert_int_equal(fth_sandbox_start(&options, &sandbox), FTH_INVALID);
    assert_message_has("/nowhere/at/all: No such file or directory");
    assert_null(sandbox);
}

static void too_much_memory_ends_it(void **state)
{
    (void)state;
    bool out_of_memory = false;
    fth_sandbox *sandbox = start_as("eat", &(fth_sandbox_options){.memory_bytes = limit_bytes});
    const bool by_group = strcmp(fth_sandbox_limited_by(sandbox), "cgroup") == 0;
    fth_child_end end = wait_for_end(sandbox, &out_of_memory);
    double peak = fth_sandbox_peak_bytes(sandbox);
    fth_sandbox_free(sandbox);
    if (!by_group)
        skip();
    assert_int_equal(end.signal, SIGKILL);
    assert_true(out_of_memory);
    assert_true(peak > 0.9 * (double)limit_bytes && peak <= (double)limit_bytes);
    assert_false(test_exists("survived"));
}

/* Without a cgroup allocations fail, and the program ends by itself. */
static void an_rlimit_makes_allocations_fail(void **state)
{
    (void)state;
    bool out_of_memory = false;
    if (ways_to_limit() < 2) {
        print_message("SKIP: rlimits do not apply, or are too small for this build\n");
        skip();
    }
    fth_sandbox *sandbox = start_as("eat", &(fth_sandbox_options){.memory_bytes = limit_bytes, .no_cgroup = true});
    assert_string_equal(fth_sandbox_limited_by(sandbox), "rlimit");
    fth_child_end end = wait_for_end(sandbox, &out_of_memory);
    fth_sandbox_free(sandbox);
    assert_int_equal(end.code, 12);
    assert_false(test_exists("survived"));
}

static void memory_below_the_limit_is_measured(void **state)
{
    (void)state;
    for (int no_cgroup = 0, ways = ways_to_limit(); no_cgroup < ways; no_cgroup++) {
        fth_sandbox *sandbox =
            start_as("hold", &(fth_sandbox_options){.memory_bytes = limit_bytes, .no_cgroup = no_cgroup});
        wait_for_file("holding");
        double peak = fth_sandbox_peak_bytes(sandbox);
        assert_true(peak >= 8 << 20 && peak <= (double)limit_bytes);
        fth_sandbox_free(sandbox);
        char path[TEST_MAX_PATH];
        remove(test_path(path, "holding"));
    }
}

/* Its child has left its process group and session, ignores what can be ignored, and its parent is
 * gone. */
static void nothing_it_started_is_left(void **state)
{
    (void)state;
    require_that_strays_are_found();
    for (int no_cgroup = 0, ways = ways_to_limit(); no_cgroup < ways; no_cgroup++) {
        char path[TEST_MAX_PATH];
        fth_sandbox *sandbox =
            start_as("parent", &(fth_sandbox_options){.memory_bytes = limit_bytes, .no_cgroup = no_cgroup});
        long process = fth_sandbox_process(sandbox), child = read_number("child");
        assert_false(is_gone(child));
        fth_sandbox_free(sandbox);
        wait_until_gone(process);
        wait_until_gone(child);
        remove(test_path(path, "child"));
    }
}

static void nothing_is_left_when_it_ends_by_itself(void **state)
{
    (void)state;
    bool out_of_memory;
    require_that_strays_are_found();
    fth_sandbox *sandbox = start_as("leave", &(fth_sandbox_options){.memory_bytes = limit_bytes});
    fth_child_end end = wait_for_end(sandbox, &out_of_memory);
    assert_int_equal(end.code, 0);
    assert_true(is_gone(read_number("child"))); /* already: has_ended() promises it */
    fth_sandbox_free(sandbox);
}

/* The platform is a process of its own here, killed without a chance to clean up. */
static void nothing_survives_its_platform(void **state)
{
    (void)state;
    char self[TEST_MAX_PATH];
    pid_t platform;
    require_that_strays_are_found();
    const char *arguments[] = {fth_process_program(self, sizeof self), "platform", test_folder, NULL};
    assert_int_equal(fth_child_start(&(fth_child_options){.program = arguments[0], .arguments = arguments}, &platform),
                     FTH_OK);
    long function = read_number("function"), child = read_number("child");
    fth_process_kill(platform);
    wait_until_gone(function);
    wait_until_gone(child);
}

/* Its supervisor is killed, which nobody has reason to do: the function ends too, and its cgroup with
 * it. */
static void a_killed_supervisor_takes_the_function_along(void **state)
{
    (void)state;
    char path[64], *text = NULL;
    size_t size;
    bool out_of_memory;
    fth_sandbox *sandbox = start_as("parent", &(fth_sandbox_options){.memory_bytes = limit_bytes});
    const bool by_group = strcmp(fth_sandbox_limited_by(sandbox), "cgroup") == 0;
    long process = fth_sandbox_process(sandbox), child = read_number("child"), supervisor = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", process);
    assert_int_equal(fth_file_read_all(path, 1 << 16, &text, &size), FTH_OK);
    assert_int_equal(sscanf(strstr(text, "PPid:"), "PPid: %ld", &supervisor), 1);
    free(text);
    kill((pid_t)supervisor, SIGKILL);
    wait_for_end(sandbox, &out_of_memory);
    wait_until_gone(process);
    fth_sandbox_free(sandbox);
    if (by_group)
        wait_until_gone(child);
    else
        kill((pid_t)child, SIGKILL);
}

/* ---- this program as the function ---- */

static void write_mark(const char *folder, const char *name, long number)
{
    char path[TEST_MAX_PATH], text[32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(text, sizeof text, "%ld", number);
    if (fth_file_write_all(path, text, strlen(text)) != FTH_OK)
        exit(1);
}

static int eat(const char *folder)
{
    for (int megabyte = 0; megabyte < 400; megabyte++) {
        volatile char *more = malloc(1 << 20); /* else a compiler may see that nobody reads it */
        if (!more)
            return 12;
        for (int i = 0; i < 1 << 20; i += 4096)
            more[i] = 1;
    }
    write_mark(folder, "survived", 1);
    return 0;
}

static void ignore_signals(void)
{
    const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < FTH_COUNT_OF(ignored); i++)
        signal(ignored[i], SIG_IGN);
}

/* A grandchild whose parent ends at once. */
static void start_stray(const char *folder)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            ignore_signals();
            write_mark(folder, "child", getpid());
            for (;;)
                pause();
        }
        _exit(0);
    }
    wait(NULL);
}

static int act(const char *part, const char *folder)
{
    static volatile char held[8 << 20]; /* else a compiler may see which of it is read */
    char path[TEST_MAX_PATH];
    if (strcmp(part, "eat") == 0)
        return eat(folder);
    if (strcmp(part, "hold") == 0) {
        for (size_t i = 0; i < sizeof held; i += 4096)
            held[i] = 1;
        write_mark(folder, "holding", held[sizeof held / 2]);
    } else if (strcmp(part, "platform") == 0) {
        memcpy(test_folder, folder, strlen(folder) + 1);
        fth_sandbox *sandbox = start_as("parent", &(fth_sandbox_options){.memory_bytes = limit_bytes});
        write_mark(folder, "function", fth_sandbox_process(sandbox));
    } else {
        ignore_signals();
        start_stray(folder);
        snprintf(path, sizeof path, "%s/child", folder);
        while (strcmp(part, "leave") == 0)
            if (fth_file_exists(path))
                return 0;
    }
    for (;;)
        pause();
}

int main(int count, char **arguments)
{
    if (count == 3)
        return act(arguments[1], arguments[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_sees_what_it_is_given, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(a_program_that_is_not_there_is_an_error, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(too_much_memory_ends_it, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(an_rlimit_makes_allocations_fail, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(memory_below_the_limit_is_measured, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(nothing_it_started_is_left, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(nothing_is_left_when_it_ends_by_itself, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(nothing_survives_its_platform, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(a_killed_supervisor_takes_the_function_along, test_make_folder, test_remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
