/* The HTTP client against servers that answer, stall, break off and say too much. */
#include "support.h"

#include "http/http.h"
#include "http/reach.h"
#include "stub_server.h"

static char *echo(void *context, const stub_request *request, size_t *size_bytes, bool *close)
{
    (void)context, (void)close;
    if (strcmp(request->target, "/missing") == 0)
        return stub_answer(404, "", "no such thing", size_bytes);
    if (strcmp(request->target, "/cut") == 0) {
        *close = true;
        char *text = strdup("HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nshort");
        *size_bytes = strlen(text);
        return text;
    }
    if (strcmp(request->target, "/silent") == 0)
        return NULL;
    if (strcmp(request->target, "/hang") == 0) {
        *size_bytes = 0;
        return strdup(""); /* nothing is sent, and the connection stays */
    }
    char lines[256];
    snprintf(lines, sizeof lines, "X-Method: %s\r\nx-number:  %d \r\n", request->method, request->number);
    return stub_answer(200, lines, request->body_bytes ? request->body : "hello", size_bytes);
}

typedef struct fixture {
    stub_server server;
    fth_http_client *client;
} fixture;

static int start(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    stub_start(&f->server, echo, NULL);
    if (fth_http_client_open(NULL, &f->client) != FTH_OK)
        return -1;
    *state = f;
    return 0;
}

static int stop(void **state)
{
    fixture *f = *state;
    fth_http_client_free(f->client);
    stub_stop(&f->server);
    free(f);
    return 0;
}

static fth_status ask(fixture *f, fth_http_request request, const char *path, fth_http_response *response)
{
    char url[256];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", f->server.port, path);
    request.url = url;
    request.method = request.method ? request.method : "GET";
    return fth_http_perform(f->client, &request, response);
}

static void answers_come_with_their_headers(void **state)
{
    fth_http_response response;
    assert_int_equal(ask(*state, (fth_http_request){0}, "/x", &response), FTH_OK);
    assert_int_equal(response.code, 200);
    assert_string_equal(response.body, "hello");
    assert_int_equal(response.body_bytes, 5);
    char *method = fth_http_header(&response, "x-method"), *number = fth_http_header(&response, "X-Number");
    assert_string_equal(method, "GET");
    assert_string_equal(number, "0");
    assert_null(fth_http_header(&response, "X-Num"));
    free(method);
    free(number);
    fth_http_response_release(&response);
}

static void bodies_are_sent_and_connections_kept(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 5; i++) {
        fth_http_response response;
        char text[100000];
        memset(text, 'a' + i, sizeof text);
        text[sizeof text - 1] = '\0';
        fth_http_request request = {.method = i % 2 ? "PUT" : "POST", .body = text, .body_bytes = sizeof text - 1};
        assert_int_equal(ask(f, request, "/put", &response), FTH_OK);
        assert_int_equal(response.body_bytes, sizeof text - 1);
        assert_memory_equal(response.body, text, sizeof text - 1);
        fth_http_response_release(&response);
    }
    assert_int_equal(atomic_load(&f->server.connections), 1);
}

static void bodies_go_where_they_are_wanted(void **state)
{
    fth_http_response response;
    char room[8] = "-------";
    fth_http_request request = {.into = room, .into_bytes = sizeof room};
    assert_int_equal(ask(*state, request, "/x", &response), FTH_OK);
    assert_null(response.body);
    assert_int_equal(response.body_bytes, 5);
    assert_memory_equal(room, "hello--", 7);
    fth_http_response_release(&response);

    request.into_bytes = 4; /* no room */
    assert_int_equal(ask(*state, request, "/x", &response), FTH_INVALID);
    assert_null(response.body);

    request.into_bytes = sizeof room; /* an error never goes there */
    memcpy(room, "-------", 8);
    assert_int_equal(ask(*state, request, "/missing", &response), FTH_OK);
    assert_int_equal(response.code, 404);
    assert_string_equal(response.body, "no such thing");
    assert_string_equal(room, "-------");
    fth_http_response_release(&response);

    assert_int_equal(ask(*state, (fth_http_request){.max_body_bytes = 4}, "/x", &response), FTH_INVALID);
}

static void what_breaks_is_told_apart(void **state)
{
    fth_http_response response;
    assert_int_equal(ask(*state, (fth_http_request){0}, "/cut", &response), FTH_PEER_LOST);
    assert_int_equal(ask(*state, (fth_http_request){0}, "/silent", &response), FTH_PEER_LOST);
    assert_int_equal(response.failure, FTH_HTTP_NO_ANSWER);
    fth_http_request request = {.deadline = fth_deadline_in(0.3)};
    assert_int_equal(ask(*state, request, "/hang", &response), FTH_TIMEOUT);
    request = (fth_http_request){.stall_s = 1, .deadline = fth_deadline_in(60)};
    assert_int_equal(ask(*state, request, "/hang", &response), FTH_PEER_LOST);
    request = (fth_http_request){.method = "GET", .url = "http://127.0.0.1:1/a?secret=1"};
    assert_int_equal(fth_http_perform(((fixture *)*state)->client, &request, &response), FTH_PEER_LOST);
    assert_int_equal(response.failure, FTH_HTTP_UNREACHED);
    assert_null(strstr(fth_error_message(), "secret")); /* queries may hold signatures */
    request.url = "gopher://127.0.0.1/";
    assert_int_equal(fth_http_perform(((fixture *)*state)->client, &request, &response), FTH_INVALID);
    /* and the client goes on */
    assert_int_equal(ask(*state, (fth_http_request){0}, "/x", &response), FTH_OK);
    fth_http_response_release(&response);
}

/* What a server may have acted on is not sent again behind the caller's back. */
static void bodies_are_sent_once(void **state)
{
    fixture *f = *state;
    fth_http_response response;
    fth_http_request request = {.method = "PUT", .body = "x", .body_bytes = 1};
    assert_int_equal(ask(f, request, "/x", &response), FTH_OK); /* the connection is a kept one from now on */
    fth_http_response_release(&response);
    assert_int_equal(ask(f, request, "/silent", &response), FTH_PEER_LOST);
    assert_int_equal(atomic_load(&f->server.requests), 2);
}

static int refuse(void *context, uint64_t sent_bytes, uint64_t received_bytes)
{
    (void)sent_bytes, (void)received_bytes;
    ++*(int *)context;
    return 1;
}

static void requests_can_be_ended(void **state)
{
    int calls = 0;
    fth_http_response response;
    fth_http_request request = {.progress = refuse, .progress_context = &calls};
    assert_int_equal(ask(*state, request, "/hang", &response), FTH_INTERRUPTED);
    assert_true(calls > 0);
}

static void heads_have_no_body(void **state)
{
    fth_http_response response;
    assert_int_equal(ask(*state, (fth_http_request){.method = "HEAD"}, "/missing", &response), FTH_OK);
    assert_int_equal(response.code, 404);
    assert_int_equal(response.body_bytes, 0);
    fth_http_response_release(&response);
}

static void escapes(void **state)
{
    (void)state;
    char *text = fth_http_escape("a/b c+\xc3\xa9~", true);
    assert_string_equal(text, "a/b%20c%2B%C3%A9~");
    free(text);
    text = fth_http_escape("a/b", false);
    assert_string_equal(text, "a%2Fb");
    free(text);
}

static void loopback_is_the_host_alone(void **state)
{
    (void)state;
    static const char *const here[] = {"http://127.0.0.1:1", "https://localhost:2/x", "http://u:p@127.8.9.1",
                                       "http://[::1]:29500", "http://LOCALHOST"};
    static const char *const elsewhere[] = {"http://127.example.org",
                                            "http://localhost.example.org:2",
                                            "http://127.0.0.1@example.org",
                                            "http://10.0.0.1/127.0.0.1",
                                            "localhost",
                                            ""};
    for (size_t i = 0; i < FTH_COUNT_OF(here); i++)
        assert_true(fth_http_is_loopback(here[i]));
    for (size_t i = 0; i < FTH_COUNT_OF(elsewhere); i++)
        assert_false(fth_http_is_loopback(elsewhere[i]));
}

static void backoff_doubles_and_ends(void **state)
{
    (void)state;
    fth_backoff backoff = {.first_s = 1, .most_s = 4};
    static const double most[] = {1, 2, 4, 4};
    for (size_t i = 0; i < FTH_COUNT_OF(most); i++) {
        double wait_s = fth_backoff_next_s(&backoff, 0);
        assert_true(wait_s >= most[i] / 2 && wait_s <= most[i]);
    }
    assert_true(fth_backoff_next_s(&backoff, 9) == 9);
    assert_false(fth_backoff_wait(&backoff, 0, fth_deadline_in(0.1))); /* no room: and no sleep */
    fth_backoff quick = {.first_s = 0.001, .most_s = 0.001};
    assert_true(fth_backoff_wait(&quick, 0, fth_deadline_in(10)));
    assert_int_equal(quick.tries, 1);
}

/* What a name resolves to is looked at when it is connected to. */
static void reaches_only_what_it_may(void **state)
{
    static const struct {
        const char *address;
        bool not_metadata, elsewhere;
    } rows[] = {{"93.184.216.34", true, true},
                {"10.0.0.5", true, true},
                {"127.0.0.1", true, false},
                {"0.0.0.0", true, false},
                {"169.254.169.254", false, false},
                {"169.253.0.1", true, true},
                {"100.100.100.200", false, false},
                {"100.100.100.201", true, true},
                {"::1", true, false},
                {"::", true, false},
                {"2600:1f18::1", true, true},
                {"fe80::1", false, false},
                {"fd00:ec2::254", false, false},
                {"fd20:ce::254", false, false},
                {"fd12::1", true, true},
                {"::ffff:10.0.0.5", true, true},
                {"::ffff:127.0.0.1", true, false},
                {"::ffff:169.254.1.1", false, false},
                {"64:ff9b::a9fe:1", false, false},
                {"64:ff9b::a00:5", true, true},
                {"2002:a9fe:1::1", false, false}};
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(rows); i++) {
        struct sockaddr_storage address = {.ss_family = strchr(rows[i].address, ':') ? AF_INET6 : AF_INET};
        const struct sockaddr *a = (const struct sockaddr *)&address;
        void *bytes = address.ss_family == AF_INET ? (void *)&((struct sockaddr_in *)&address)->sin_addr
                                                   : (void *)&((struct sockaddr_in6 *)&address)->sin6_addr;
        assert_int_equal(inet_pton(address.ss_family, rows[i].address, bytes), 1);
        if (!fth_http_reach_allows(FTH_HTTP_ANYWHERE, a) ||
            fth_http_reach_allows(FTH_HTTP_NO_METADATA, a) != rows[i].not_metadata ||
            fth_http_reach_allows(FTH_HTTP_ELSEWHERE, a) != rows[i].elsewhere)
            fail_msg("%s", rows[i].address);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reaches_only_what_it_may),
        cmocka_unit_test_setup_teardown(answers_come_with_their_headers, start, stop),
        cmocka_unit_test_setup_teardown(bodies_are_sent_and_connections_kept, start, stop),
        cmocka_unit_test_setup_teardown(bodies_go_where_they_are_wanted, start, stop),
        cmocka_unit_test_setup_teardown(what_breaks_is_told_apart, start, stop),
        cmocka_unit_test_setup_teardown(bodies_are_sent_once, start, stop),
        cmocka_unit_test_setup_teardown(requests_can_be_ended, start, stop),
        cmocka_unit_test_setup_teardown(heads_have_no_body, start, stop),
        cmocka_unit_test(escapes),
        cmocka_unit_test(loopback_is_the_host_alone),
        cmocka_unit_test(backoff_doubles_and_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
