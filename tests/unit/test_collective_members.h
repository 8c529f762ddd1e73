/* What tests of collectives share: members that are processes, and keys that are files of the
 * test's folder.
 *
 * A member's body runs in a forked process and says what is wrong with CHECK, which ends that
 * process; run_members() fails the test if one did not end well. */
#ifndef TEST_COLLECTIVE_MEMBERS_H
#define TEST_COLLECTIVE_MEMBERS_H

#include "support.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/plugin.h"
#include "collective/collective.h"

enum { MAX_MEMBERS = 8 };

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: %s; last message: %s\n", __FILE__, __LINE__, member->rank, #condition,    \
                    fth_error_message());                                                                              \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define CHECK_MESSAGE(part) CHECK(strstr(fth_error_message(), part))

/* A group to be, and one of its members. */
typedef struct test_member {
    int rank, size;
    const int *nodes;      /* of each; NULL: all on one */
    const char *transport; /* NULL: auto */
    double timeout_s;      /* 0: a minute or, where tests are slow, more */
    const char *keys;      /* prefix of its keys, for several groups in one test */
    fth_status (*put)(void *prefix, const char *key, const void *bytes, size_t size); /* NULL: put_key */
    const fth_shared_memory *memory;
    void *context;
} test_member;

/* ---- keys ---- */

static inline void key_path(char *path, const char *prefix, const char *key)
{
    char name[TEST_MAX_PATH / 2];
    snprintf(name, sizeof name, "key %s %s", prefix, key);
    for (char *c = name; *c; c++)
        *c = *c == '/' ? '+' : *c;
    test_path(path, name);
}

static inline fth_status put_key(void *prefix, const char *key, const void *bytes, size_t size)
{
    char path[TEST_MAX_PATH], temporary[TEST_MAX_PATH + 40];
    key_path(path, prefix, key);
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    FILE *file = fopen(temporary, "w");
    bool good = file && fwrite(bytes, 1, size, file) == size;
    good = (!file || fclose(file) == 0) && good && rename(temporary, path) == 0;
    return good ? FTH_OK : fth_fail(FTH_IO, "cannot put %s", key);
}

static inline fth_status get_key(void *prefix, const char *key, fth_deadline deadline, void **bytes, size_t *size)
{
    char path[TEST_MAX_PATH];
    key_path(path, prefix, key);
    FILE *file;
    while (!(file = fopen(path, "r"))) {
        if (fth_deadline_passed(deadline))
            return fth_fail(FTH_TIMEOUT, "no key %s", key);
        usleep(500);
    }
    enum { MAX_VALUE = 1 << 16 };
    *bytes = malloc(MAX_VALUE);
    *size = fread(*bytes, 1, MAX_VALUE, file);
    fclose(file);
    return FTH_OK;
}

/* Processes of a test tell each other how far they are. */
static inline void announce(const char *event)
{
    if (put_key("event", event, "", 0) != FTH_OK)
        _exit(1);
}

static inline void await(const char *event)
{
    void *bytes = NULL;
    size_t size;
    if (get_key("event", event, test_deadline_in(60), &bytes, &size) != FTH_OK)
        _exit(1);
    free(bytes);
}

/* ---- members ---- */

static inline fth_status open_member(const test_member *member, fth_collective **collective)
{
    static char names[MAX_MEMBERS][40];
    fth_member members[MAX_MEMBERS];
    for (int r = 0; r < member->size; r++) {
        snprintf(names[r], sizeof names[r], "rank %d on test", r);
        members[r] = (fth_member){.node = member->nodes ? member->nodes[r] : 0, .name = names[r]};
    }
    fth_collective_options options = {
        .rank = member->rank,
        .size = member->size,
        .members = members,
        .keys = {(void *)(member->keys ? member->keys : "group"), member->put ? member->put : put_key, get_key},
        .transport = member->transport,
        .timeout_s = member->timeout_s > 0 ? member->timeout_s : 60 * TEST_SLOWDOWN,
        .memory = member->memory,
    };
    return fth_collective_open(&options, collective);
}

/* Skips a test that needs gloo where there is none. */
static inline void require_gloo(void)
{
    char path[FTH_PLUGIN_PATH_SIZE];
    if (fth_plugin_find("gloo", path) == FTH_OK)
        return;
    print_message("no gloo: %s\n", fth_error_message());
    skip();
}

typedef void member_body(const test_member *member);

static inline pid_t start_member(test_member member, int rank, member_body *body)
{
    pid_t process = fork();
    assert_true(process >= 0);
    if (process == 0) {
        member.rank = rank;
        body(&member);
        _exit(0);
    }
    return process;
}

/* The wait status of a process; one that takes too long is killed, and fails the test. */
static inline int end_member(pid_t process)
{
    fth_deadline deadline = test_deadline_in(90);
    int end = 0;
    pid_t ended;
    while ((ended = waitpid(process, &end, WNOHANG)) == 0) {
        if (fth_deadline_passed(deadline)) {
            kill(process, SIGKILL);
            waitpid(process, &end, 0);
            fail_msg("a member did not end");
        }
        usleep(500);
    }
    assert_int_equal(ended, process);
    return end;
}

/* `size` processes, which all must end well. */
static inline void run_members(test_member member, member_body *body)
{
    pid_t processes[MAX_MEMBERS];
    int failures = 0;
    for (int r = 0; r < member.size; r++)
        processes[r] = start_member(member, r, body);
    for (int r = 0; r < member.size; r++)
        failures += end_member(processes[r]) != 0;
    assert_int_equal(failures, 0);
}

#endif
