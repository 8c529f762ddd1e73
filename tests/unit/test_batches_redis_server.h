/* Real Redis servers for tests: started on a free port in the test's folder, without files, killed
 * with the test. */
#ifndef TEST_BATCHES_REDIS_SERVER_H
#define TEST_BATCHES_REDIS_SERVER_H

#include "support.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/process.h"

static const double SERVER_START_S = 60; /* generous: the machine may be busy */

typedef struct test_redis {
    int port;
    pid_t process;
    const char *const *extra; /* further arguments */
    bool tls_only;            /* its plain port is not open: not waited for by PING */
} test_redis;

static inline bool find_program(const char *name)
{
    static const char *const folders[] = {"/usr/bin", "/usr/local/bin", "/usr/sbin"};
    for (size_t i = 0; i < FTH_COUNT_OF(folders); i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

#define SKIP_WITHOUT_REDIS()                                                                                           \
    do {                                                                                                               \
        if (!find_program("redis-server")) {                                                                           \
            print_message("SKIP: there is no redis-server (Debian's package redis-server)\n");                         \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

/* A port that nobody has, low enough that a cluster's second port, 10000 above it, exists. */
static inline int free_port(void)
{
    for (;;) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof address;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
        close(fd);
        if (ntohs(address.sin_port) < 55000)
            return ntohs(address.sin_port);
    }
}

static inline void short_sleep(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

static inline bool accepts_connections(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool accepted = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return accepted;
}

/* Starts it on the port that it has; false if it ended at once, as when somebody else has the
 * port. */
static inline bool redis_launch(test_redis *redis)
{
    fth_words words = {0};
    bool is_tied = find_program("setpriv"); /* so that a test that crashes leaves no server behind */
    fth_deadline deadline = test_deadline_in(SERVER_START_S);
    fth_child_end end;
    char log[TEST_MAX_PATH];

    if (is_tied)
        assert_int_equal(fth_words_add(&words, "setpriv") | fth_words_add(&words, "--pdeathsig=KILL"), FTH_OK);
    assert_int_equal(fth_words_add(&words, "redis-server"), FTH_OK);
    assert_int_equal(fth_words_add(&words, "--port"), FTH_OK);
    assert_int_equal(fth_words_add(&words, "%d", redis->tls_only ? 0 : redis->port), FTH_OK);
    assert_int_equal(fth_words_add(&words, "--bind"), FTH_OK);
    assert_int_equal(fth_words_add(&words, "127.0.0.1"), FTH_OK);
    assert_int_equal(fth_words_add(&words, "--save"), FTH_OK);
    assert_int_equal(fth_words_add(&words, "%s", ""), FTH_OK);
    assert_int_equal(fth_words_add(&words, "--dir"), FTH_OK);
    assert_int_equal(fth_words_add(&words, "%s", test_folder), FTH_OK);
    if (redis->tls_only) {
        assert_int_equal(fth_words_add(&words, "--tls-port"), FTH_OK);
        assert_int_equal(fth_words_add(&words, "%d", redis->port), FTH_OK);
    }
    for (const char *const *word = redis->extra; word && *word; word++)
        assert_int_equal(fth_words_add(&words, "%s", *word), FTH_OK);
    snprintf(log, sizeof log, "%s/redis-%d.log", test_folder, redis->port);
    fth_child_options options = {.program = is_tied ? "/usr/bin/setpriv" : "/usr/bin/redis-server",
                                 .arguments = (const char *const *)words.items,
                                 .messages = log};
    assert_int_equal(fth_child_start(&options, &redis->process), FTH_OK);
    fth_words_release(&words);
    while (!accepts_connections(redis->port)) {
        if (fth_child_has_ended(redis->process, &end))
            return false;
        assert_false(fth_deadline_passed(deadline));
        short_sleep();
    }
    return true;
}

static inline void redis_start(test_redis *redis, const char *const *extra)
{
    redis->extra = extra;
    do
        redis->port = free_port();
    while (!redis_launch(redis));
}

static inline void redis_kill(test_redis *redis)
{
    if (redis->process > 0) {
        kill(redis->process, SIGCONT);
        fth_process_kill(redis->process);
    }
    redis->process = 0;
}

static inline void redis_restart(test_redis *redis)
{
    redis_kill(redis);
    while (!redis_launch(redis))
        short_sleep();
}

/* One command, by hiredis alone; freeReplyObject() the answer. */
static inline redisReply *redis_say(const test_redis *redis, const char *format, ...)
{
    redisContext *context = redisConnect("127.0.0.1", redis->port);
    va_list arguments;
    assert_non_null(context);
    assert_int_equal(context->err, 0);
    va_start(arguments, format);
    redisReply *reply = redisvCommand(context, format, arguments);
    va_end(arguments);
    assert_non_null(reply);
    redisFree(context);
    return reply;
}

static inline void redis_do(const test_redis *redis, const char *command)
{
    redisReply *reply = redis_say(redis, command);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", command, reply->str);
    freeReplyObject(reply);
}

static inline long long redis_count(const test_redis *redis)
{
    redisReply *reply = redis_say(redis, "DBSIZE");
    long long count = reply->integer;
    freeReplyObject(reply);
    return count;
}

/* Runs a program of the system to its end; its exit status. */
static inline int run_program(const char *program, const char *const *arguments)
{
    pid_t child;
    fth_child_end end;
    char log[TEST_MAX_PATH];
    fth_child_options options = {.program = program, .arguments = arguments, .messages = test_path(log, "program.log")};
    fth_deadline deadline = test_deadline_in(SERVER_START_S);
    assert_int_equal(fth_child_start(&options, &child), FTH_OK);
    while (!fth_child_has_ended(child, &end)) {
        assert_false(fth_deadline_passed(deadline));
        short_sleep();
    }
    return end.code;
}

#endif
