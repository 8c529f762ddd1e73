/* Notices against metadata services on loopback: real HTTP, scripted by each test, and not always
 * sane. */
#include "support.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http/server.h"
#include "spot/spot.h"

enum { PATIENCE_S = 20 * TEST_SLOWDOWN, MAX_ANSWERS = 16 };

/* The answer to one path; whoever changes it wakes who waits. */
typedef struct answer {
    const char *method, *path;
    int code;
    char body[2048];
    double hold_s; /* answers only after this long */
    int asked;
} answer;

static struct service {
    pthread_mutex_t mutex;
    answer answers[MAX_ANSWERS];
    int count;
    char token[32]; /* AWS: what is valid now; "": tokens are not wanted */
    int tokens_given;
    int etag; /* Google: of all values */
    fth_exchange *held[8];
    answer *held_for[8];
    fth_exchange *slow[64]; /* nobody answers these before the end */
    int slow_count;
    char acknowledged[256];
    int without_header; /* requests that lack what this cloud wants */
    fth_server *server;
} service = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void give(fth_exchange *exchange, const answer *a)
{
    char etag[16];
    snprintf(etag, sizeof etag, "e%d", service.etag);
    fth_exchange_set_header(exchange, "ETag", etag);
    fth_exchange_set_header(exchange, "Metadata-Flavor", "Google");
    fth_exchange_answer(exchange, a ? a->code : 404, "text/plain", a ? a->body : "", a ? strlen(a->body) : 0);
}

static answer *find(const char *method, const char *path)
{
    for (int i = 0; i < service.count; i++)
        if (strcmp(service.answers[i].method, method) == 0 && strcmp(service.answers[i].path, path) == 0)
            return &service.answers[i];
    return NULL;
}

static bool allowed(fth_exchange *exchange, const char *path)
{
    const char *token = fth_exchange_header(exchange, "X-aws-ec2-metadata-token");
    if (strncmp(path, "/latest/", 8) == 0)
        return !*service.token || (token && strcmp(token, service.token) == 0);
    const char *name = strncmp(path, "/metadata/", 10) == 0 ? "Metadata" : "Metadata-Flavor";
    return fth_exchange_header(exchange, name) != NULL;
}

static void be_slow(fth_exchange *exchange, double seconds)
{
    fth_exchange_hold(exchange, seconds, 503);
    assert_true(service.slow_count < 64);
    service.slow[service.slow_count++] = exchange;
}

static void get(void *context, fth_exchange *exchange)
{
    (void)context;
    const char *path = fth_exchange_path(exchange);
    pthread_mutex_lock(&service.mutex);
    answer *a = find("GET", path);
    if (a)
        a->asked++;
    char etag[16];
    snprintf(etag, sizeof etag, "e%d", service.etag);
    const char *last = fth_exchange_query(exchange, "last_etag");
    bool wait = fth_exchange_query(exchange, "wait_for_change") && last && strcmp(last, etag) == 0;
    if (!allowed(exchange, path)) {
        service.without_header++;
        fth_exchange_answer(exchange, 401, "text/plain", "", 0);
    } else if (a && a->hold_s > 0) {
        be_slow(exchange, a->hold_s);
    } else if (wait) {
        fth_exchange_hold(exchange, 30, 503);
        for (int i = 0; i < 8; i++) {
            if (service.held[i])
                continue;
            service.held[i] = exchange;
            service.held_for[i] = a;
            break;
        }
    } else {
        give(exchange, a);
    }
    pthread_mutex_unlock(&service.mutex);
}

static void put(void *context, fth_exchange *exchange)
{
    (void)context;
    pthread_mutex_lock(&service.mutex);
    const answer *a = find("PUT", fth_exchange_path(exchange));
    const char *seconds = fth_exchange_header(exchange, "X-aws-ec2-metadata-token-ttl-seconds");
    if (a && a->hold_s > 0) {
        be_slow(exchange, a->hold_s);
    } else if (a) {
        give(exchange, a);
    } else if (!seconds || atoi(seconds) < 1 || atoi(seconds) > 21600) {
        fth_exchange_answer(exchange, 400, "text/plain", "", 0);
    } else {
        snprintf(service.token, sizeof service.token, "token-%d==", ++service.tokens_given);
        fth_exchange_answer(exchange, 200, "text/plain", service.token, strlen(service.token));
    }
    pthread_mutex_unlock(&service.mutex);
}

static void post(void *context, fth_exchange *exchange)
{
    (void)context;
    size_t size = 0;
    const char *body = fth_exchange_body(exchange, &size);
    pthread_mutex_lock(&service.mutex);
    snprintf(service.acknowledged, sizeof service.acknowledged, "%.*s", (int)size, body);
    fth_exchange_answer(exchange, 200, "text/plain", "", 0);
    pthread_mutex_unlock(&service.mutex);
}

static const fth_route routes[] = {{"GET", "/*", get, FTH_ROLE_NONE, 0, NULL},
                                   {"PUT", "/*", put, FTH_ROLE_NONE, 1024, NULL},
                                   {"POST", "/*", post, FTH_ROLE_NONE, 4096, NULL},
                                   {0}};

/* Sets what a path answers from now on; those who wait for a change of a Google value hear of
 * it. */
static answer *say(const char *method, const char *path, int code, const char *format, ...)
{
    pthread_mutex_lock(&service.mutex);
    answer *a = find(method, path);
    if (!a) {
        assert_true(service.count < MAX_ANSWERS);
        a = &service.answers[service.count++];
        *a = (answer){.method = method, .path = path};
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(a->body, sizeof a->body, format, arguments);
    va_end(arguments);
    a->code = code;
    service.etag++;
    for (int i = 0; i < 8; i++) {
        if (service.held[i])
            give(service.held[i], service.held_for[i]);
        service.held[i] = NULL;
    }
    pthread_mutex_unlock(&service.mutex);
    return a;
}

static int asked(const char *method, const char *path)
{
    pthread_mutex_lock(&service.mutex);
    const answer *a = find(method, path);
    int count = a ? a->asked : 0;
    pthread_mutex_unlock(&service.mutex);
    return count;
}

/* ---- each test has a fresh service; clouds other than the one named are off ---- */

static char own_endpoint[64];

static int set_up(void **state)
{
    service.count = service.tokens_given = service.without_header = 0;
    service.etag = 1;
    service.token[0] = service.acknowledged[0] = '\0';
    assert_int_equal(fth_server_start(&(fth_server_options){.routes = routes}, &service.server), FTH_OK);
    snprintf(own_endpoint, sizeof own_endpoint, "http://127.0.0.1:%d/", fth_server_port(service.server));
    setenv("FARTHING_AWS_METADATA", "off", 1);
    setenv("FARTHING_GCP_METADATA", "off", 1);
    setenv("FARTHING_AZURE_METADATA", "off", 1);
    return test_make_folder(state);
}

static int tear_down(void **state)
{
    pthread_mutex_lock(&service.mutex);
    for (int i = 0; i < service.slow_count; i++)
        give(service.slow[i], NULL);
    for (int i = 0; i < 8; i++) {
        if (service.held[i])
            give(service.held[i], NULL);
        service.held[i] = NULL;
    }
    service.slow_count = 0;
    pthread_mutex_unlock(&service.mutex);
    fth_server_stop(service.server, 5);
    return test_remove_folder(state);
}

static void be(const char *variable)
{
    setenv(variable, own_endpoint, 1);
}

static fth_watch *watch(const char *sources, fth_stop *stop)
{
    fth_watch *opened = NULL;
    assert_int_equal(fth_watch_open_paced(sources, 0.05, stop, &opened), FTH_OK);
    return opened;
}

static void nap(double seconds)
{
    usleep((useconds_t)(seconds * 1e6));
}

static fth_stop_reason wait_for_notice(const fth_stop *stop)
{
    for (double began = fth_clock_seconds(); !stop->asked && fth_clock_seconds() - began < PATIENCE_S;)
        nap(0.01);
    fth_stop_reason reason = fth_stop_get(stop);
    assert_int_equal(reason.kind, FTH_STOP_PREEMPTION);
    return reason;
}

static void wait_for_news(fth_watch *watched, const char *part)
{
    char text[FTH_NEWS_BYTES] = "";
    for (double began = fth_clock_seconds(); fth_clock_seconds() - began < PATIENCE_S; nap(0.01))
        if (fth_watch_take_news(watched, text, sizeof text) && strstr(text, part))
            return;
    fail_msg("no news of \"%s\"; the last: \"%s\"", part, text);
}

static void wait_until_asked(const char *path, int times)
{
    for (double began = fth_clock_seconds(); asked("GET", path) < times && fth_clock_seconds() - began < PATIENCE_S;)
        nap(0.01);
    assert_true(asked("GET", path) >= times);
}

/* Freeing ends what waits; a second or two is what a busy machine may take. */
static void close_watch(fth_watch *watched)
{
    double began = fth_clock_seconds();
    fth_watch_free(watched);
    assert_true(fth_clock_seconds() - began < 5);
}

static void utc_in(double seconds, char *text, size_t size)
{
    fth_clock_format_utc(fth_clock_wall_seconds() + seconds, text, size);
}

/* ---- AWS ---- */

static const char action_path[] = "/latest/meta-data/spot/instance-action";
static const char rebalance_path[] = "/latest/meta-data/events/recommendations/rebalance";

static void test_aws_notice(void **state)
{
    (void)state;
    char when[64];
    fth_stop stop = FTH_STOP_INITIALIZER;
    be("FARTHING_AWS_METADATA");
    say("GET", action_path, 404, "not found");
    say("GET", rebalance_path, 200, "{\"noticeTime\":\"2020-10-16T19:18:24Z\"}");
    fth_watch *watched = watch("aws", &stop);
    wait_for_news(watched, "rebalancing");
    assert_false(stop.asked);
    utc_in(100, when, sizeof when);
    say("GET", action_path, 200, "{\"action\":\"terminate\",\"time\":\"%s\"}", when);
    fth_stop_reason reason = wait_for_notice(&stop);
    assert_string_equal(reason.source, "aws");
    assert_non_null(strstr(reason.message, "terminate"));
    double left = fth_deadline_left_seconds(reason.deadline);
    assert_true(left > 60 && left < 101);
    close_watch(watched);
}

static void test_aws_renews_its_token(void **state)
{
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    be("FARTHING_AWS_METADATA");
    say("GET", action_path, 404, "");
    fth_watch *watched = watch("aws", &stop);
    wait_until_asked(action_path, 1);
    pthread_mutex_lock(&service.mutex);
    assert_int_equal(service.tokens_given, 1);
    snprintf(service.token, sizeof service.token, "another");
    pthread_mutex_unlock(&service.mutex);
    say("GET", action_path, 200, "{\"action\":\"stop\",\"time\":\"not a time\"}");
    fth_stop_reason reason = wait_for_notice(&stop);
    assert_int_equal(service.tokens_given, 2);
    double left = fth_deadline_left_seconds(reason.deadline);
    assert_true(left > 60 && left <= 120);
    close_watch(watched);
}

/* There are two minutes at most. */
static void test_aws_far_time_is_not_believed(void **state)
{
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    be("FARTHING_AWS_METADATA");
    say("GET", action_path, 200, "{\"action\":\"terminate\",\"time\":\"2999-01-01T00:00:00Z\"}");
    fth_watch *watched = watch("aws", &stop);
    assert_true(fth_deadline_left_seconds(wait_for_notice(&stop).deadline) <= 120);
    close_watch(watched);
}

static void test_aws_garbage_is_no_notice(void **state)
{
    (void)state;
    static const char *const garbage[] = {"<html>", "{}", "[]", "", "{\"action\":7}", "null"};
    fth_stop stop = FTH_STOP_INITIALIZER;
    be("FARTHING_AWS_METADATA");
    fth_watch *watched = watch("aws", &stop);
    for (size_t i = 0; i < 2; i++) {
        say("GET", action_path, 200, "%s", garbage[i]);
        wait_until_asked(action_path, asked("GET", action_path) + 1);
        nap(0.05);
    }
    assert_false(stop.asked);
    wait_for_news(watched, "no sense");
    close_watch(watched);
    for (size_t i = 2; i < FTH_COUNT_OF(garbage); i++) { /* right at the start */
        say("GET", action_path, 200, "%s", garbage[i]);
        watched = watch("aws", &stop);
        wait_for_news(watched, "no sense");
        close_watch(watched);
    }
    assert_false(stop.asked);
}

/* In a container the answer to the token request gets lost: that must not look like quiet. */
static void test_aws_hop_limit_is_told(void **state)
{
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    be("FARTHING_AWS_METADATA");
    snprintf(service.token, sizeof service.token, "nobody has it");
    say("PUT", "/latest/api/token", 200, "")->hold_s = 60;
    say("GET", action_path, 404, "");
    fth_watch *watched = watch("auto", &stop);
    wait_for_news(watched, "hop-limit");
    close_watch(watched);
}

/* ---- Google ---- */

static const char preempted_path[] = "/computeMetadata/v1/instance/preempted";
static const char maintenance_path[] = "/computeMetadata/v1/instance/maintenance-event";

static void test_gcp_waits_without_polling(void **state)
{
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    be("FARTHING_GCP_METADATA");
    say("GET", preempted_path, 200, "FALSE");
    say("GET", maintenance_path, 200, "NONE");
    fth_watch *watched = watch("gcp", &stop);
    wait_until_asked(preempted_path, 2);
    wait_until_asked(maintenance_path, 2);
    nap(1.5);
    assert_int_equal(asked("GET", preempted_path), 2); /* the second is held */
    assert_int_equal(service.without_header, 0);
    say("GET", maintenance_path, 200, "MIGRATE_ON_HOST_MAINTENANCE");
    wait_for_news(watched, "another host");
    assert_false(stop.asked);
    say("GET", preempted_path, 200, "TRUE");
    fth_stop_reason reason = wait_for_notice(&stop);
    assert_string_equal(reason.source, "gcp");
    assert_true(fth_deadline_left_seconds(reason.deadline) <= 30);
    close_watch(watched);
}

static void test_gcp_maintenance(void **state)
{
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    be("FARTHING_GCP_METADATA");
    say("GET", preempted_path, 200, "FALSE");
    say("GET", maintenance_path, 200, "TERMINATE_ON_HOST_MAINTENANCE\n");
    fth_watch *watched = watch("gcp", &stop);
    assert_non_null(strstr(wait_for_notice(&stop).message, "maintenance"));
    close_watch(watched);
}

static void test_gcp_errors_are_news(void **state)
{
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    be("FARTHING_GCP_METADATA");
    say("GET", preempted_path, 503, "TRUE");
    say("GET", maintenance_path, 200, "<html>TERMINATE_ON_HOST_MAINTENANCE");
    fth_watch *watched = watch("gcp", &stop);
    wait_for_news(watched, "503");
    assert_false(stop.asked);
    say("GET", preempted_path, 200, "FALSE");
    wait_for_news(watched, "answers again");
    close_watch(watched);
}

/* Two threads ask, but what neither gets is told once. */
static void test_gcp_that_is_silent_is_news_once(void **state)
{
    char text[FTH_NEWS_BYTES];
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    be("FARTHING_GCP_METADATA");
    say("GET", preempted_path, 403, "");
    say("GET", maintenance_path, 403, "");
    fth_watch *watched = watch("gcp", &stop);
    wait_for_news(watched, "may this process ask its metadata service?");
    wait_until_asked(maintenance_path, 5);
    assert_false(fth_watch_take_news(watched, text, sizeof text));
    close_watch(watched);
}

/* ---- Azure ---- */

static const char events_path[] = "/metadata/scheduledevents";
static const char compute_path[] = "/metadata/instance/compute";

static void say_event(const char *id, const char *type, const char *resources, double in_s)
{
    char when[64];
    time_t at = (time_t)(fth_clock_wall_seconds() + in_s);
    struct tm parts;
    strftime(when, sizeof when, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&at, &parts));
    say("GET", events_path, 200,
        "{\"DocumentIncarnation\":2,\"Events\":[{\"EventId\":\"%s\",\"EventType\":\"%s\",\"ResourceType\":"
        "\"VirtualMachine\",\"Resources\":[%s],\"EventStatus\":\"Scheduled\",\"NotBefore\":\"%s\"}]}",
        id, type, resources, when);
}

static void be_azure(void)
{
    be("FARTHING_AZURE_METADATA");
    say("GET", compute_path, 200,
        "{\"name\":\"trainer_1\",\"vmSize\":\"Standard_NC6s_v3\",\"location\":\"westeurope\",\"vmId\":\"7\","
        "\"priority\":\"Spot\"}");
    say("GET", events_path, 200, "{\"DocumentIncarnation\":1,\"Events\":[]}");
}

static void test_azure_own_events_count(void **state)
{
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    be_azure();
    fth_watch *watched = watch("azure", &stop);
    wait_until_asked(events_path, 1);
    say_event("others", "Preempt", "\"trainer_2\",\"trainer_11\"", 30);
    wait_until_asked(events_path, asked("GET", events_path) + 2);
    assert_false(stop.asked);
    say_event("pause", "Freeze", "\"trainer_1\"", 30);
    wait_for_news(watched, "pause");
    assert_false(stop.asked);
    say_event("ours-\\\"1\\\"", "Preempt", "\"_trainer_1\"", 25);
    fth_stop_reason reason = wait_for_notice(&stop);
    assert_string_equal(reason.source, "azure");
    double left = fth_deadline_left_seconds(reason.deadline);
    assert_true(left > 5 && left <= 26);
    assert_string_equal(service.acknowledged, "");
    fth_watch_acknowledge(watched);
    assert_string_equal(service.acknowledged, "{\"StartRequests\":[{\"EventId\":\"ours-\\\"1\\\"\"}]}");
    close_watch(watched);
}

/* To acknowledge is to speak for all whom the event names. */
static void test_azure_shared_event_is_not_acknowledged(void **state)
{
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    be_azure();
    say_event("both", "Redeploy", "\"trainer_1\",\"trainer_2\"", 600);
    fth_watch *watched = watch("azure", &stop);
    assert_true(fth_deadline_left_seconds(wait_for_notice(&stop).deadline) > 300);
    fth_watch_acknowledge(watched);
    assert_string_equal(service.acknowledged, "");
    close_watch(watched);
}

static void test_azure_garbage_and_slowness(void **state)
{
    (void)state;
    static const char *const garbage[] = {"[[[", "{\"Events\":7}",
                                          "{\"Events\":[7,null,{},{\"EventType\":\"Preempt\"}]}"};
    fth_stop stop = FTH_STOP_INITIALIZER;
    be_azure();
    fth_watch *watched = watch("azure", &stop);
    for (size_t i = 0; i < FTH_COUNT_OF(garbage); i++) {
        say("GET", events_path, 200, "%s", garbage[i]);
        wait_until_asked(events_path, asked("GET", events_path) + 2);
    }
    assert_false(stop.asked);
    close_watch(watched);
    answer *slow = find("GET", events_path);
    slow->hold_s = 60; /* the first question may take minutes */
    int before = asked("GET", events_path);
    watched = watch("azure", &stop);
    wait_until_asked(events_path, before + 1);
    close_watch(watched);
}

/* ---- files ---- */

static void test_file(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double least_s, most_s;
    } cases[] = {{"", 20, 30}, {"12\n", 2, 12}, {"90s", 60, 90}, {"soon\n", 20, 30}};
    char path[TEST_MAX_PATH], sources[TEST_MAX_PATH + 8];
    test_path(path, "preempt.txt");
    snprintf(sources, sizeof sources, "file:%s", path);
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_stop stop = FTH_STOP_INITIALIZER;
        fth_watch *watched = watch(sources, &stop);
        nap(0.1); /* several looks */
        assert_false(stop.asked);
        test_write_text("preempt.txt", cases[i].text);
        fth_stop_reason reason = wait_for_notice(&stop);
        assert_string_equal(reason.source, "file");
        double left = fth_deadline_left_seconds(reason.deadline);
        assert_true(left > cases[i].least_s && left <= cases[i].most_s);
        close_watch(watched);
        assert_int_equal(unlink(path), 0);
    }
}

/* It may come between the start of the process and that of the watch. */
static void test_file_during_start(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH], sources[TEST_MAX_PATH + 8];
    fth_stop stop = FTH_STOP_INITIALIZER;
    test_path(path, "preempt.txt");
    snprintf(sources, sizeof sources, "file:%s", path);
    nap(0.05);
    test_write_text("preempt.txt", "10");
    fth_watch *watched = watch(sources, &stop);
    assert_true(fth_deadline_left_seconds(wait_for_notice(&stop).deadline) <= 10);
    close_watch(watched);

    struct timespec old[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    fth_stop quiet = FTH_STOP_INITIALIZER;
    watched = watch(sources, &quiet);
    nap(0.6);
    assert_false(quiet.asked);
    close_watch(watched);
}

/* ---- where this runs, and the text after --watch ---- */

static void test_identity(void **state)
{
    (void)state;
    fth_machine_identity identity;
    fth_machine_identify(2, &identity);
    assert_string_equal(identity.cloud, "");
    assert_true(*identity.id);

    be("FARTHING_AWS_METADATA");
    say("GET", "/latest/dynamic/instance-identity/document", 200,
        "{\"instanceType\":\"g4dn.xlarge\",\"region\":\"us-east-1\",\"instanceId\":\"i-7\"}");
    say("GET", "/latest/meta-data/instance-life-cycle", 200, "spot");
    fth_machine_identify(5, &identity);
    assert_string_equal(identity.cloud, "aws");
    assert_string_equal(identity.instance, "g4dn.xlarge");
    assert_string_equal(identity.region, "us-east-1");
    assert_string_equal(identity.id, "i-7");
    assert_string_equal(identity.market, "spot");

    setenv("FARTHING_AWS_METADATA", "off", 1);
    be("FARTHING_GCP_METADATA");
    say("GET", "/computeMetadata/v1/instance/machine-type", 200, "projects/1/machineTypes/n1-standard-4");
    say("GET", "/computeMetadata/v1/instance/zone", 200, "projects/1/zones/europe-west4-a");
    say("GET", "/computeMetadata/v1/instance/id", 200, "42");
    say("GET", "/computeMetadata/v1/instance/scheduling/preemptible", 200, "TRUE");
    fth_machine_identify(5, &identity);
    assert_string_equal(identity.cloud, "gcp");
    assert_string_equal(identity.instance, "n1-standard-4");
    assert_string_equal(identity.region, "europe-west4-a");
    assert_string_equal(identity.id, "42");
    assert_string_equal(identity.market, "spot");

    setenv("FARTHING_GCP_METADATA", "off", 1);
    be_azure();
    fth_machine_identify(5, &identity);
    assert_string_equal(identity.cloud, "azure");
    assert_string_equal(identity.instance, "Standard_NC6s_v3");
    assert_string_equal(identity.market, "spot");
}

static atomic_bool no_cloud_logged;

static void take_log(void *context, fth_log_level level, const char *line)
{
    (void)context, (void)level;
    if (strstr(line, "no cloud's metadata service answers here"))
        atomic_store(&no_cloud_logged, true);
}

/* Services that connect and then say nothing delay nobody. */
static void test_silence_is_bounded(void **state)
{
    (void)state;
    fth_machine_identity identity;
    be("FARTHING_AWS_METADATA");
    be("FARTHING_GCP_METADATA");
    be("FARTHING_AZURE_METADATA");
    say("PUT", "/latest/api/token", 200, "")->hold_s = 60;
    say("GET", "/latest/dynamic/instance-identity/document", 200, "")->hold_s = 60;
    say("GET", "/computeMetadata/v1/instance/machine-type", 200, "")->hold_s = 60;
    say("GET", compute_path, 200, "")->hold_s = 60;
    double began = fth_clock_seconds();
    fth_machine_identify(0.5, &identity);
    assert_true(fth_clock_seconds() - began < 10);
    assert_string_equal(identity.cloud, "");

    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_watch *watched = watch("auto", &stop);
    began = fth_clock_seconds();
    close_watch(watched); /* while it is finding out */
    fth_log_set_function(take_log, NULL);
    fth_log_set_level(FTH_LOG_INFO);
    watched = watch("auto", &stop);
    while (!atomic_load(&no_cloud_logged) && fth_clock_seconds() - began < PATIENCE_S)
        nap(0.01);
    assert_true(atomic_load(&no_cloud_logged));
    close_watch(watched);
    fth_log_set_level(FTH_LOG_WARNING);
    fth_log_set_function(NULL, NULL);
}

static void test_auto_finds_the_cloud(void **state)
{
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    be_azure();
    fth_watch *watched = watch("auto", &stop);
    wait_until_asked(events_path, 1);
    say_event("1", "Terminate", "\"trainer_1\"", 300);
    assert_string_equal(wait_for_notice(&stop).source, "azure");
    close_watch(watched);
}

static void test_texts(void **state)
{
    (void)state;
    static const char *const good[] = {"none", "auto", "aws", "aws,gcp,azure", "file:a b.txt", "gcp,file:/x:y"};
    static const char *const bad[] = {"", "aw", "aws,", ",aws", "file", "file:", "auto,aws", "aws gcp", "none,file:x"};
    for (size_t i = 0; i < FTH_COUNT_OF(good); i++)
        assert_int_equal(fth_watch_check(good[i]), FTH_OK);
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++)
        assert_int_equal(fth_watch_check(bad[i]), FTH_INVALID);
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_watch *watched = watch("none", &stop);
    char text[8];
    assert_false(fth_watch_take_news(watched, text, sizeof text));
    fth_watch_acknowledge(watched);
    close_watch(watched);
    watched = watch("gcp,file:/x/y", &stop);
    close_watch(watched);
    fth_watch_free(NULL);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(test_texts),
        SERVED(test_identity),
        SERVED(test_silence_is_bounded),
        SERVED(test_auto_finds_the_cloud),
        SERVED(test_aws_notice),
        SERVED(test_aws_renews_its_token),
        SERVED(test_aws_far_time_is_not_believed),
        SERVED(test_aws_garbage_is_no_notice),
        SERVED(test_aws_hop_limit_is_told),
        SERVED(test_gcp_waits_without_polling),
        SERVED(test_gcp_maintenance),
        SERVED(test_gcp_errors_are_news),
        SERVED(test_gcp_that_is_silent_is_news_once),
        SERVED(test_azure_own_events_count),
        SERVED(test_azure_shared_event_is_not_acknowledged),
        SERVED(test_azure_garbage_and_slowness),
        SERVED(test_file),
        SERVED(test_file_during_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
