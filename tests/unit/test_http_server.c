/* The HTTP server, from a plain socket: routes, bodies and their limits, held exchanges, files,
 * TLS, stopping. */
#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/server.h"

enum { LIMIT = 4096, BIG = 3 << 20 };

typedef struct service {
    fth_server *server;
    _Atomic(fth_exchange *) waiting;
    atomic_int released, handled;
    int file;
    char *big;
} service;

/* ---- handlers ---- */

static void echo(void *context, fth_exchange *exchange)
{
    size_t size = 0;
    const char *body = fth_exchange_body(exchange, &size);
    ((service *)context)->handled++;
    fth_exchange_set_header(exchange, "X-Target", fth_exchange_target(exchange));
    fth_exchange_set_header(exchange, "X-Client", fth_exchange_client(exchange));
    fth_exchange_answer(exchange, 200, "text/plain", body, size);
}

static void query(void *context, fth_exchange *exchange)
{
    (void)context;
    const char *name = fth_exchange_query(exchange, "name"), *header = fth_exchange_header(exchange, "X-Word");
    fth_exchange_answer_json(
        exchange, 200,
        json_pack("{s:s, s:s?, s:s?}", "path", fth_exchange_path(exchange), "name", name, "word", header));
}

static void hold(void *context, fth_exchange *exchange)
{
    service *s = context;
    fth_exchange_hold(exchange, 60, 304);
    s->waiting = exchange;
}

static void hold_briefly(void *context, fth_exchange *exchange)
{
    service *s = context;
    fth_exchange_set_header(exchange, "ETag", "\"7\"");
    fth_exchange_hold(exchange, 0.05, 304);
    s->waiting = exchange;
}

static void hold_and_answer(void *context, fth_exchange *exchange)
{
    (void)context;
    fth_exchange_hold(exchange, 60, 304);
    fth_exchange_answer(exchange, 202, NULL, NULL, 0);
}

static void count_release(void *data)
{
    ((service *)data)->released++;
}

static void file(void *context, fth_exchange *exchange)
{
    fth_exchange_set_data(exchange, context, count_release);
    fth_exchange_answer_file(exchange, 206, "application/octet-stream", ((service *)context)->file, 100, BIG - 100);
}

/* More than what the sockets of a connection take by themselves. */
enum { HUGE_BYTES = 64 << 20 };

static void huge(void *context, fth_exchange *exchange)
{
    char *bytes = calloc(1, HUGE_BYTES);
    (void)context;
    fth_exchange_answer_large(exchange, 200, NULL, bytes, HUGE_BYTES);
    free(bytes);
}

static void forget(void *context, fth_exchange *exchange)
{
    (void)context;
    (void)exchange;
}

static bool admit(void *context, fth_exchange *exchange, const fth_route *route, fth_role *role)
{
    const char *given = fth_exchange_header(exchange, "X-Role");
    (void)context;
    assert_non_null(route);
    if (given) {
        assert_true(fth_role_find(given, role));
        fth_exchange_set_authenticated(exchange);
    }
    if (!fth_exchange_header(exchange, "X-Intruder"))
        return true;
    fth_exchange_answer(exchange, 401, "text/plain", "who?", 4);
    return false;
}

static const fth_route routes[] = {
    {"POST", "/echo", echo, FTH_ROLE_NONE, LIMIT, NULL},
    {"POST", "/big", echo, FTH_ROLE_NONE, BIG, NULL},
    {"GET", "/query", query, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/any/*", query, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/hold", hold, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/brief", hold_briefly, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/both", hold_and_answer, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/file", file, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/huge", huge, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/forget", forget, FTH_ROLE_NONE, 0, NULL},
    {"POST", "/train", echo, FTH_ROLE_TRAIN, FTH_SERVER_BODY, NULL},
    {"GET", "/read", query, FTH_ROLE_READ, 0, "reading"},
    {"POST", "/read", echo, FTH_ROLE_ADMIN, LIMIT, "reading"},
    {0},
};

static int start(void **state)
{
    service *s = calloc(1, sizeof *s);
    s->big = malloc(BIG);
    for (int i = 0; i < BIG; i++)
        s->big[i] = (char)(i * 7 + i / 1000);
    s->file = memfd_create("test", 0);
    assert_int_equal(write(s->file, s->big, BIG), BIG);
    fth_server_options options = {.routes = routes,
                                  .context = s,
                                  .admit = admit,
                                  .threads = 2,
                                  .max_body_bytes = 8,
                                  .max_memory_bytes = 2 * BIG,
                                  .idle_s = 5};
    assert_int_equal(fth_server_start(&options, &s->server), FTH_OK);
    *state = s;
    return 0;
}

static int stop(void **state)
{
    service *s = *state;
    fth_server_stop(s->server, 2);
    close(s->file);
    free(s->big);
    free(s);
    return 0;
}

/* ---- a client ---- */

static int dial_from(const service *s, const char *source)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)fth_server_port(s->server))};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    inet_pton(AF_INET, source, &from.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 30}, sizeof(struct timeval));
    return fd;
}

static int dial(const service *s)
{
    return dial_from(s, "127.0.0.1");
}

static void say(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* the server has answered and closed; what it said can be read */
        bytes += sent;
        size -= (size_t)sent;
    }
}

typedef struct answer {
    int code;
    char head[4096];
    char *body;
    size_t size;
} answer;

/* One answer; its body by Content-Length, unless it is an answer to HEAD. */
static answer hear(int fd, bool head_only)
{
    answer a = {0};
    size_t used = 0;
    while (used < sizeof a.head - 1 && !strstr(a.head, "\r\n\r\n")) {
        ssize_t got = recv(fd, a.head + used, 1, 0);
        if (got <= 0)
            return a;
        used += (size_t)got;
    }
    sscanf(a.head, "HTTP/1.1 %d", &a.code);
    const char *length = strcasestr(a.head, "\r\nContent-Length: ");
    a.size = length ? (size_t)strtoull(length + 18, NULL, 10) : 0;
    a.body = calloc(1, a.size + 1);
    for (size_t at = 0; !head_only && at < a.size;) {
        ssize_t got = recv(fd, a.body + at, a.size - at, 0);
        assert_true(got > 0);
        at += (size_t)got;
    }
    return a;
}

static answer ask(const service *s, const char *request, bool head_only)
{
    int fd = dial(s);
    say(fd, request, strlen(request));
    answer a = hear(fd, head_only);
    close(fd);
    return a;
}

static void expect_code(const service *s, const char *request, int code)
{
    answer a = ask(s, request, false);
    assert_int_equal(a.code, code);
    free(a.body);
}

/* ---- tests ---- */

static void test_routes(void **state)
{
    service *s = *state;
    answer a = ask(s, "GET /query?name=a%20b&x=1 HTTP/1.1\r\nHost: x\r\nX-Word: hello\r\n\r\n", false);
    assert_int_equal(a.code, 200);
    assert_string_equal(a.body, "{\"path\":\"/query\",\"name\":\"a b\",\"word\":\"hello\"}");
    assert_non_null(strstr(a.head, "Content-Type: application/json"));
    free(a.body);
    a = ask(s, "GET /any/thing/here HTTP/1.1\r\nHost: x\r\n\r\n", false);
    assert_non_null(strstr(a.body, "/any/thing/here"));
    free(a.body);
    a = ask(s, "HEAD /query HTTP/1.1\r\nHost: x\r\n\r\n", true);
    assert_int_equal(a.code, 200);
    assert_true(a.size > 10);
    free(a.body);
    expect_code(s, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404);
    a = ask(s, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", false);
    assert_int_equal(a.code, 405);
    assert_non_null(strstr(a.head, "Allow: POST"));
    free(a.body);
    expect_code(s, "GET /forget HTTP/1.1\r\nHost: x\r\n\r\n", 500);
    a = ask(s, "nonsense\r\n\r\n", false); /* answered or cut off, and no harm done */
    assert_true(a.code == 0 || a.code == 400);
    free(a.body);
    expect_code(s, "GET /query HTTP/1.1\r\nHost: x\r\n\r\n", 200);
}

/* The route's role is enforced before the body's size is looked at, and that before the handler. */
static void test_roles(void **state)
{
    service *s = *state;
    int handled = s->handled;
    expect_code(s, "GET /read HTTP/1.1\r\nHost: x\r\n\r\n", 403);
    expect_code(s, "GET /read HTTP/1.1\r\nHost: x\r\nX-Role: read\r\n\r\n", 200);
    expect_code(s, "GET /read HTTP/1.1\r\nHost: x\r\nX-Role: admin\r\n\r\n", 200);
    answer a = ask(s, "HEAD /read HTTP/1.1\r\nHost: x\r\n\r\n", true);
    assert_int_equal(a.code, 403);
    free(a.body);
    expect_code(s, "POST /read HTTP/1.1\r\nHost: x\r\nX-Role: train\r\nContent-Length: 2\r\n\r\nno", 403);
    expect_code(s, "POST /train HTTP/1.1\r\nHost: x\r\nX-Role: read\r\nContent-Length: 5000000\r\n\r\n", 403);
    expect_code(s, "POST /train HTTP/1.1\r\nHost: x\r\nX-Role: train\r\nContent-Length: 9\r\n\r\n123456789", 413);
    assert_int_equal(s->handled, handled);
    expect_code(s, "POST /train HTTP/1.1\r\nHost: x\r\nX-Role: train\r\nContent-Length: 8\r\n\r\n12345678", 200);
    assert_int_equal(s->handled, handled + 1);
}

static void add_count(void *context, const char *metric, int code, uint64_t count)
{
    char **text = context, *longer = fth_format("%s%s %d %d; ", *text, metric, code, (int)count);
    free(*text);
    *text = longer;
}

static char *counts_of(const service *s)
{
    char *text = fth_format("%s", "");
    fth_server_visit_counts(s->server, add_count, &text);
    return text;
}

/* Requests are counted when they have ended, which is after the client has its answer. */
static void test_counts(void **state)
{
    service *s = *state;
    const char *wanted = "/query 200 2; /query 405 1; reading 200 1; reading 403 2; other 404 1; ";
    char *counts = NULL;
    expect_code(s, "GET /query HTTP/1.1\r\nHost: x\r\n\r\n", 200);
    expect_code(s, "GET /query?name=x HTTP/1.1\r\nHost: x\r\n\r\n", 200);
    expect_code(s, "PUT /query HTTP/1.1\r\nHost: x\r\n\r\n", 405);
    expect_code(s, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404);
    expect_code(s, "GET /read HTTP/1.1\r\nHost: x\r\n\r\n", 403);
    expect_code(s, "POST /read HTTP/1.1\r\nHost: x\r\n\r\n", 403);
    expect_code(s, "GET /read HTTP/1.1\r\nHost: x\r\nX-Role: read\r\n\r\n", 200);
    for (int i = 0; i < 2000; i++) {
        counts = counts_of(s);
        if (strcmp(counts, wanted) == 0)
            break;
        free(counts);
        counts = NULL;
        usleep(5000);
    }
    assert_non_null(counts);
    free(counts);
}

static void test_bodies(void **state)
{
    service *s = *state;
    answer a = ask(s, "POST /echo?a=%2F HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", false);
    assert_int_equal(a.code, 200);
    assert_string_equal(a.body, "hello");
    assert_non_null(strstr(a.head, "X-Target: /echo?a=%2F"));
    assert_non_null(strstr(a.head, "X-Client: 127.0.0.1"));
    free(a.body);
    a = ask(s, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            false);
    assert_string_equal(a.body, "abcde");
    free(a.body);

    /* Two on one connection, one of them refused with its small body unread by the handler. */
    int fd = dial(s), handled = s->handled;
    const char *intruder = "POST /echo HTTP/1.1\r\nHost: x\r\nX-Intruder: 1\r\nContent-Length: 5\r\n\r\nhello"
                           "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok";
    say(fd, intruder, strlen(intruder));
    a = hear(fd, false);
    assert_int_equal(a.code, 401);
    free(a.body);
    a = hear(fd, false);
    assert_int_equal(a.code, 200);
    assert_string_equal(a.body, "ok");
    assert_int_equal(s->handled, handled + 1);
    free(a.body);
    close(fd);
}

static void test_limits(void **state)
{
    service *s = *state;
    int handled = s->handled;
    expect_code(s, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n", 413);
    expect_code(s, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9999\r\n\r\n", 413);
    expect_code(s, "GET /query HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 413);
    expect_code(s, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999999\r\n\r\n", 413);

    int fd = dial(s); /* small and over the limit: read, thrown away, and the connection goes on */
    const char *head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n";
    say(fd, head, strlen(head));
    say(fd, s->big, 10000);
    answer a = hear(fd, false);
    assert_int_equal(a.code, 413);
    free(a.body);
    const char *again = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1fff\r\n";
    say(fd, again, strlen(again));
    say(fd, s->big, 0x1fff);
    say(fd, "\r\n0\r\n\r\n", 7);
    a = hear(fd, false);
    assert_int_equal(a.code, 413);
    assert_int_equal(s->handled, handled);
    free(a.body);
    close(fd);

    /* Three of four bodies fit into the memory; the next is sent away until one is done. */
    int fds[2];
    char big[128];
    snprintf(big, sizeof big, "POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", BIG);
    for (int i = 0; i < 2; i++) {
        fds[i] = dial(s);
        say(fds[i], big, strlen(big));
        say(fds[i], s->big, BIG / 2);
    }
    for (int i = 0; i < 500 && fth_server_body_bytes(s->server) < 2 * BIG; i++)
        usleep(10000);
    assert_int_equal(fth_server_body_bytes(s->server), 2 * BIG);
    fd = dial(s);
    say(fd, big, strlen(big));
    a = hear(fd, false);
    assert_int_equal(a.code, 503);
    assert_non_null(strstr(a.head, "Retry-After: 1"));
    free(a.body);
    close(fd);
    close(fds[0]);
    say(fds[1], s->big + BIG / 2, BIG - BIG / 2);
    a = hear(fds[1], false);
    assert_int_equal(a.code, 200);
    assert_memory_equal(a.body, s->big, BIG);
    free(a.body);
    close(fds[1]);
    for (int i = 0; i < 500 && fth_server_body_bytes(s->server) > 0; i++)
        usleep(10000);
    assert_int_equal(fth_server_body_bytes(s->server), 0);
}

static void *answer_later(void *context)
{
    service *s = context;
    while (!s->waiting)
        usleep(1000);
    fth_exchange_answer(atomic_exchange(&s->waiting, NULL), 200, "text/plain", "late", 4);
    return NULL;
}

static void test_holding(void **state)
{
    service *s = *state;
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, answer_later, s);
        answer a = ask(s, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", false);
        assert_int_equal(a.code, 200);
        assert_string_equal(a.body, "late");
        free(a.body);
        pthread_join(thread, NULL);
    }
    answer a = ask(s, "GET /brief HTTP/1.1\r\nHost: x\r\n\r\n", false);
    assert_int_equal(a.code, 304);
    assert_non_null(strstr(a.head, "ETag: \"7\""));
    free(a.body);
    fth_exchange_answer(atomic_exchange(&s->waiting, NULL), 200, "text/plain", "too late", 8);
    expect_code(s, "GET /both HTTP/1.1\r\nHost: x\r\n\r\n", 202);

    /* The client goes away while it is held. */
    int fd = dial(s);
    say(fd, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 32);
    while (!s->waiting)
        usleep(1000);
    close(fd);
    fth_exchange_answer(atomic_exchange(&s->waiting, NULL), 200, "text/plain", "nobody", 6);
}

/* Many held at once cost no thread: two threads serve others meanwhile. */
static void test_holding_many(void **state)
{
    service *s = *state;
    enum { COUNT = 100 };
    int fds[COUNT];
    fth_exchange *held[COUNT];
    for (int i = 0; i < COUNT; i++) {
        fds[i] = dial(s);
        say(fds[i], "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 32);
        while (!(held[i] = atomic_exchange(&s->waiting, NULL)))
            usleep(100);
    }
    expect_code(s, "GET /query HTTP/1.1\r\nHost: x\r\n\r\n", 200);
    for (int i = 0; i < COUNT; i++)
        fth_exchange_answer(held[i], 200, NULL, &i, sizeof i);
    for (int i = 0; i < COUNT; i++) {
        answer a = hear(fds[i], false);
        assert_int_equal(a.code, 200);
        assert_memory_equal(a.body, &i, sizeof i);
        free(a.body);
        close(fds[i]);
    }
}

static void test_large_answers(void **state)
{
    service *s = *state;
    answer a = ask(s, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n", false);
    assert_int_equal(a.code, 206);
    assert_int_equal(a.size, BIG - 100);
    assert_memory_equal(a.body, s->big + 100, BIG - 100);
    free(a.body);

    int fd = dial(s); /* asks, and goes away without reading */
    say(fd, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n", 32);
    usleep(20000);
    close(fd);
    for (int i = 0; i < 500 && s->released < 2; i++)
        usleep(10000);
    assert_int_equal(s->released, 2);
}

/* Answers that nobody reads take no more memory than there is for them. */
static void test_large_answers_have_a_limit(void **state)
{
    (void)state;
    static const char request[] = "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n";
    service s = {0};
    fth_server_options options = {.routes = routes,
                                  .context = &s,
                                  .admit = admit,
                                  .max_body_bytes = 8,
                                  .max_memory_bytes = 2 * HUGE_BYTES + 1000};
    assert_int_equal(fth_server_start(&options, &s.server), FTH_OK);
    int readers[2];
    for (int i = 0; i < 2; i++) {
        readers[i] = dial(&s);
        say(readers[i], request, strlen(request));
        answer a = hear(readers[i], true);
        assert_int_equal(a.code, 200);
        free(a.body);
    }
    assert_int_equal(fth_server_body_bytes(s.server), 2 * HUGE_BYTES);
    answer a = ask(&s, request, false);
    assert_int_equal(a.code, 503);
    assert_non_null(strcasestr(a.head, "Retry-After"));
    free(a.body);
    for (int i = 0; i < 2; i++)
        close(readers[i]);
    for (int i = 0; i < 500 && fth_server_body_bytes(s.server) > 0; i++)
        usleep(10000);
    assert_int_equal(fth_server_body_bytes(s.server), 0);
    a = ask(&s, request, true);
    assert_int_equal(a.code, 200);
    free(a.body);
    fth_server_stop(s.server, 2);
}

/* A stop answers what is held, and an answer after it is harmless. */
static void test_stop(void **state)
{
    (void)state;
    service s = {0};
    fth_server_options options = {.routes = routes, .context = &s, .admit = admit, .max_body_bytes = 8, .threads = 1};
    assert_int_equal(fth_server_start(&options, &s.server), FTH_OK);
    int fd = dial(&s), silent = dial(&s);
    say(fd, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 32);
    while (!s.waiting)
        usleep(1000);
    say(silent, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf", 55);
    usleep(20000);
    double began = fth_clock_seconds();
    fth_server_stop(s.server, 0.3);
    assert_true(fth_clock_seconds() - began < 20);
    answer a = hear(fd, false);
    assert_int_equal(a.code, 503);
    free(a.body);
    fth_exchange_answer(s.waiting, 200, NULL, NULL, 0);
    close(fd);
    close(silent);
}

/* ---- slow clients ---- */

static bool is_open(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got > 0 || (got < 0 && errno == EAGAIN);
}

/* A byte now and then does not keep a connection open, neither before its first request nor after
 * one. */
static void test_headers_have_a_deadline(void **state)
{
    (void)state;
    static const char whole[] = "GET /query HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char *const beginnings[] = {"", "GET /que", "GET /query HTTP/1.1\r\nHost: x\r\nX-Word: "};
    enum { COUNT = 2 * FTH_COUNT_OF(beginnings) };
    service s = {0};
    int fds[COUNT], open = COUNT;
    fth_server_options options = {
        .routes = routes, .context = &s, .admit = admit, .max_body_bytes = 8, .threads = 1, .idle_s = 1};
    assert_int_equal(fth_server_start(&options, &s.server), FTH_OK);
    for (int i = 0; i < COUNT; i++) {
        fds[i] = dial(&s);
        if (i % 2 == 1) {
            say(fds[i], whole, strlen(whole));
            answer a = hear(fds[i], false);
            assert_int_equal(a.code, 200);
            free(a.body);
        }
        say(fds[i], beginnings[i / 2], strlen(beginnings[i / 2]));
    }
    for (double began = fth_clock_seconds(); open > 0 && fth_clock_seconds() < began + 30; usleep(50000)) {
        open = 0;
        for (int i = 0; i < COUNT; i++) {
            say(fds[i], "a", 1);
            open += is_open(fds[i]);
        }
    }
    assert_int_equal(open, 0);
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    fth_server_stop(s.server, 2);
}

/* Far more connections than there is room for: headers that never end, bodies that do not come,
 * answers that nobody reads. Each new client is served at once; clients that are known, that wait
 * for an answer or come from elsewhere stay. */
static void test_slow_clients_leave_room(void **state)
{
    enum { ROOM = 32, SLOW = 300 };
    (void)state;
    static const char unread[] = "GET /query HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char *const beginnings[] = {
        "", "GET /query HTTP/1.1\r\nX-Word: ", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", unread};
    service s = {0};
    fth_server_options options = {
        .routes = routes, .context = &s, .admit = admit, .max_body_bytes = 8, .threads = 2, .max_connections = ROOM};
    assert_int_equal(fth_server_start(&options, &s.server), FTH_OK);
    static const char keyed[] = "GET /read HTTP/1.1\r\nHost: x\r\nX-Role: read\r\n\r\n";
    int known = dial(&s), held = dial(&s), elsewhere = dial_from(&s, "127.0.0.2");
    say(known, keyed, strlen(keyed));
    answer a = hear(known, false);
    assert_int_equal(a.code, 200);
    free(a.body);
    say(held, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 32);
    while (!s.waiting)
        usleep(1000);
    int slow[SLOW];
    for (int i = 0; i < SLOW; i++) {
        const char *beginning = beginnings[(size_t)i % FTH_COUNT_OF(beginnings)];
        slow[i] = dial(&s);
        for (int k = 0; k < (beginning == unread ? 100 : 1); k++)
            say(slow[i], beginning, strlen(beginning));
        if (i % 30 == 0)
            expect_code(&s, "GET /query HTTP/1.1\r\nHost: x\r\n\r\n", 200);
    }
    expect_code(&s, "GET /query HTTP/1.1\r\nHost: x\r\n\r\n", 200);
    expect_code(&s, keyed, 200);
    assert_true(is_open(known) && is_open(held) && is_open(elsewhere));
    say(known, keyed, strlen(keyed));
    a = hear(known, false);
    assert_int_equal(a.code, 200);
    free(a.body);
    fth_exchange_answer(s.waiting, 200, NULL, NULL, 0);
    a = hear(held, false);
    assert_int_equal(a.code, 200);
    free(a.body);
    int left = 0;
    for (int i = 0; i < SLOW; i++) {
        char bytes[4096];
        while (recv(slow[i], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
            continue;
        left += is_open(slow[i]);
        close(slow[i]);
    }
    assert_true(left <= ROOM);
    close(known), close(held), close(elsewhere);
    fth_server_stop(s.server, 2);
}

static void test_bad_options(void **state)
{
    service *s = *state;
    fth_server *server = NULL;
    const fth_server_options good = {
        .routes = routes, .admit = admit, .max_body_bytes = 8, .port = fth_server_port(s->server)};
    fth_server_options options = good;
    assert_int_equal(fth_server_start(&options, &server), FTH_IO);
    assert_message_has("in use");
    options.address = "300.1.1.1";
    assert_int_equal(fth_server_start(&options, &server), FTH_INVALID);
    options = good;
    options.port = 0;
    options.certificate_pem = options.key_pem = "no";
    assert_int_equal(fth_server_start(&options, &server), FTH_IO);
    options = good;
    options.admit = NULL; /* nobody would be refused */
    assert_int_equal(fth_server_start(&options, &server), FTH_INVALID);
    assert_message_has("/train needs the role train");
    options = good;
    options.max_body_bytes = 0;
    assert_int_equal(fth_server_start(&options, &server), FTH_INVALID);
    assert_message_has("/train takes a body");
    assert_null(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_routes, start, stop),
        cmocka_unit_test_setup_teardown(test_roles, start, stop),
        cmocka_unit_test_setup_teardown(test_counts, start, stop),
        cmocka_unit_test_setup_teardown(test_bodies, start, stop),
        cmocka_unit_test_setup_teardown(test_limits, start, stop),
        cmocka_unit_test_setup_teardown(test_holding, start, stop),
        cmocka_unit_test_setup_teardown(test_holding_many, start, stop),
        cmocka_unit_test_setup_teardown(test_large_answers, start, stop),
        cmocka_unit_test_setup_teardown(test_bad_options, start, stop),
        cmocka_unit_test(test_large_answers_have_a_limit),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_headers_have_a_deadline),
        cmocka_unit_test(test_slow_clients_leave_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
