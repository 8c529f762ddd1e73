/* An agent between clients of its machine and a coordinator, which is a server of this test: it
 * says of everything that it is ready at once, unless told otherwise, and keeps account. */
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/child.h"
#include "base/process.h"
#include "batches/agent/agent.h"
#include "batches/cache/cache.h"
#include "batches/job.h"
#include "batches/prefetch/item_task.h"
#include "http/server.h"
#include "test_batches_redis_server.h"

enum { SET_COUNT = 256, BATCH = 4, PAYLOAD_BYTES = 20000, JOB = 77 };
static const double WAIT_S = 60; /* generous: the machine may be busy */

/* ---- the coordinator ---- */

typedef struct fake_coordinator {
    fth_server *server;
    int port;
    pthread_mutex_t mutex;
    /* guarded by mutex */
    bool knows_job;
    int registrations, syncs, fetched, lost;
    fth_item_id failing; /* if has_failing */
    bool has_failing;
    int to_be_missing, to_be_damaged; /* of the next items that are asked for */
    bool finished, left;
    int64_t next; /* of the last process in the last sync */
    json_int_t hits;
    fth_cache *redis; /* NULL: entries are given over HTTP */
    char cache[128];
} fake_coordinator;

/* The entry of an id: its contents follow from it. */
static void *make_entry(fth_item_id id, fth_receipt *receipt)
{
    uint8_t *entry = NULL;
    assert_int_equal(fth_allocate_aligned(sizeof(fth_item_header) + PAYLOAD_BYTES, &entry), FTH_OK);
    for (int i = 0; i < PAYLOAD_BYTES; i++)
        entry[sizeof(fth_item_header) + i] = (uint8_t)(id.words[i % 2] >> i % 64);
    fth_item_seal(entry, id, FTH_ITEM_BATCH, PAYLOAD_BYTES, receipt);
    return entry;
}

static void answer_jobs(void *context, fth_exchange *exchange)
{
    fake_coordinator *coordinator = context;
    size_t size;
    const void *body = fth_exchange_body(exchange, &size);
    json_t *request = json_loadb(body, size, 0, NULL), *spec = json_object_get(request, "job");
    const json_t *resume = json_object_get(request, "resume");
    if (strcmp(json_string_value(json_object_get(spec, "data")), "refused") == 0) {
        fth_exchange_answer_json(exchange, 403,
                                 json_pack("{s:s, s:s}", "error", "your key may not read it", "status", "invalid"));
    } else {
        pthread_mutex_lock(&coordinator->mutex);
        coordinator->registrations++;
        coordinator->knows_job = true;
        fth_exchange_answer_json(exchange, 200,
                                 json_pack("{s:I, s:O, s:{s:i, s:i}, s:s}", "job",
                                           resume ? json_integer_value(resume) : (json_int_t)JOB, "spec", spec, "set",
                                           "training", SET_COUNT, "validation", 0, "cache", coordinator->cache));
        pthread_mutex_unlock(&coordinator->mutex);
    }
    json_decref(request);
}

/* With the mutex held. */
static void note_jobs(fake_coordinator *coordinator, const json_t *request)
{
    const json_t *job = json_array_get(json_object_get(request, "jobs"), 0);
    const json_t *process = json_array_get(json_object_get(job, "processes"), 0);
    if (process)
        coordinator->next = json_integer_value(json_array_get(process, 1));
    if (job)
        coordinator->hits = json_integer_value(json_array_get(json_object_get(job, "counters"), FTH_SLOT_HITS));
    coordinator->finished |= json_array_size(json_object_get(request, "finished")) > 0;
    coordinator->left |= json_array_size(json_object_get(request, "left")) > 0;
    coordinator->lost += (int)json_array_size(json_object_get(request, "lost"));
    coordinator->syncs++;
}

static void answer_sync(void *context, fth_exchange *exchange)
{
    fake_coordinator *coordinator = context;
    size_t size, i;
    const void *body = fth_exchange_body(exchange, &size);
    json_t *request = json_loadb(body, size, 0, NULL), *ready = json_array(), *failed = json_array(), *id_text;
    json_t *unknown = json_array();

    pthread_mutex_lock(&coordinator->mutex);
    note_jobs(coordinator, request);
    if (!coordinator->knows_job)
        json_array_append_new(unknown, json_integer(JOB));
    json_array_foreach(json_object_get(request, "wanted"), i, id_text)
    {
        fth_item_id id;
        fth_receipt receipt;
        fth_item_id_parse(json_string_value(id_text), &id);
        if (coordinator->has_failing && fth_item_id_equal(id, coordinator->failing)) {
            json_array_append_new(failed, json_pack("{s:O, s:s, s:s}", "id", id_text, "status", "corrupt", "error",
                                                    "cat.jpg is not an image"));
            continue;
        }
        void *entry = make_entry(id, &receipt), *room = NULL;
        if (coordinator->redis && fth_cache_begin(coordinator->redis, receipt.size_bytes, &room) == FTH_OK) {
            memcpy(room, entry, receipt.size_bytes);
            FTH_IGNORE(fth_cache_put(coordinator->redis, room, &receipt), "the test finds that it is missing");
        }
        json_array_append_new(ready, fth_receipt_save(&receipt));
        free(entry);
    }
    pthread_mutex_unlock(&coordinator->mutex);
    fth_exchange_answer_json(exchange, 200,
                             json_pack("{s:o, s:o, s:o}", "ready", ready, "failed", failed, "unknown", unknown));
    json_decref(request);
}

static void answer_item(void *context, fth_exchange *exchange)
{
    fake_coordinator *coordinator = context;
    fth_item_id id;
    fth_receipt receipt;
    fth_item_id_parse(strrchr(fth_exchange_path(exchange), '/') + 1, &id);
    uint8_t *entry = make_entry(id, &receipt);
    pthread_mutex_lock(&coordinator->mutex);
    bool is_missing = coordinator->to_be_missing > 0, is_damaged = coordinator->to_be_damaged > 0;
    coordinator->to_be_missing -= is_missing;
    coordinator->to_be_damaged -= is_damaged && !is_missing;
    coordinator->fetched += !is_missing && !is_damaged;
    pthread_mutex_unlock(&coordinator->mutex);
    if (is_damaged)
        entry[100] ^= 1;
    if (is_missing)
        fth_exchange_answer_json(exchange, 404, json_pack("{s:s}", "error", "no such item"));
    else
        fth_exchange_answer(exchange, 200, "application/octet-stream", entry, receipt.size_bytes);
    free(entry);
}

static void answer_data(void *context, fth_exchange *exchange)
{
    (void)context;
    fth_exchange_answer_json(exchange, 200, json_pack("{s:s}", "path", fth_exchange_path(exchange)));
}

static const fth_route routes[] = {
    {.method = "POST", .path = "/v1/jobs", .handle = answer_jobs, .max_body_bytes = 1 << 20},
    {.method = "POST", .path = "/v1/sync", .handle = answer_sync, .max_body_bytes = 1 << 20},
    {.method = "GET", .path = "/v1/items/*", .handle = answer_item},
    {.method = "GET", .path = "/v1/data/*", .handle = answer_data},
    {0},
};

static void coordinator_start(fake_coordinator *coordinator)
{
    fth_server_options options = {.port = coordinator->port, .routes = routes, .context = coordinator};
    if (fth_server_start(&options, &coordinator->server) != FTH_OK)
        fail_msg("%s", fth_error_message());
    coordinator->port = fth_server_port(coordinator->server);
}

static void coordinator_stop(fake_coordinator *coordinator)
{
    if (coordinator->server)
        fth_server_stop(coordinator->server, 5);
    coordinator->server = NULL;
}

#define READ_LOCKED(coordinator, member)                                                                               \
    ({                                                                                                                 \
        pthread_mutex_lock(&(coordinator)->mutex);                                                                     \
        __typeof__((coordinator)->member) locked_value = (coordinator)->member;                                        \
        pthread_mutex_unlock(&(coordinator)->mutex);                                                                   \
        locked_value;                                                                                                  \
    })

#define WAIT_UNTIL(condition)                                                                                          \
    do {                                                                                                               \
        fth_deadline wait_deadline = test_deadline_in(WAIT_S);                                                         \
        while (!(condition)) {                                                                                         \
            assert_false(fth_deadline_passed(wait_deadline));                                                          \
            short_sleep();                                                                                             \
        }                                                                                                              \
    } while (0)

/* ---- the agent, and a client ---- */

typedef struct agent_fixture {
    fake_coordinator coordinator;
    char url[64];
    fth_stop stop;
    pthread_t agent;
    bool has_agent;
    uint64_t memory_bytes;
    _Atomic fth_status agent_status;
    test_redis redis;
    /* the client */
    char *path;
    fth_host_link *link;
    fth_board *board;
    fth_slot *slot;
    fth_segment_view *view;
    fth_job_spec spec;
} agent_fixture;

static int set_up(void **state)
{
    agent_fixture *fixture = NULL;
    test_make_folder(NULL);
    setenv("XDG_RUNTIME_DIR", test_folder, 1);
    assert_int_equal(fth_allocate(1, sizeof *fixture, &fixture), FTH_OK);
    pthread_mutex_init(&fixture->coordinator.mutex, NULL);
    fixture->stop = (fth_stop)FTH_STOP_INITIALIZER;
    snprintf(fixture->coordinator.cache, sizeof fixture->coordinator.cache, "shm");
    coordinator_start(&fixture->coordinator);
    snprintf(fixture->url, sizeof fixture->url, "http://127.0.0.1:%d", fixture->coordinator.port);
    fixture->spec = (fth_job_spec){.data = "set",
                                   .version = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                                   .split = FTH_TRAIN,
                                   .transform = "none",
                                   .batch = BATCH,
                                   .shuffle = true,
                                   .sharing = FTH_SHARE_NONE,
                                   .order_seed = 5,
                                   .augment_seed = 6,
                                   .format = FTH_FORMAT_BATCHES};
    *state = fixture;
    return 0;
}

static void *run_agent(void *context)
{
    agent_fixture *fixture = context;
    fixture->agent_status = fth_batches_agent_run(
        &(fth_batches_agent_options){.url = fixture->url,
                                     .memory_bytes = fixture->memory_bytes ? fixture->memory_bytes : 64 << 20,
                                     .idle_s = WAIT_S,
                                     .stop = &fixture->stop});
    return NULL;
}

static void agent_start(agent_fixture *fixture)
{
    assert_int_equal(fth_host_socket_path("127.0.0.1", fixture->coordinator.port, NULL, &fixture->path), FTH_OK);
    assert_int_equal(pthread_create(&fixture->agent, NULL, run_agent, fixture), 0);
    fixture->has_agent = true;
}

static void client_close(agent_fixture *fixture)
{
    fth_segment_unmap(fixture->view);
    fth_board_free(fixture->board);
    fth_host_disconnect(fixture->link);
    fixture->view = NULL;
    fixture->board = NULL;
    fixture->link = NULL;
}

static int tear_down(void **state)
{
    agent_fixture *fixture = *state;
    client_close(fixture);
    fth_stop_ask(&fixture->stop, FTH_STOP_REQUEST, 1, "test", "the test is over");
    if (fixture->has_agent)
        pthread_join(fixture->agent, NULL);
    coordinator_stop(&fixture->coordinator);
    fth_cache_free(fixture->coordinator.redis);
    redis_kill(&fixture->redis);
    free(fixture->path);
    free(fixture);
    return test_remove_folder(NULL);
}

static json_t *ask(agent_fixture *fixture, json_t *request, int fds[2])
{
    json_t *answer = NULL;
    if (fth_host_ask(fixture->link, request, test_deadline_in(WAIT_S), &answer, fds) != FTH_OK)
        fail_msg("%s", fth_error_message());
    json_decref(request);
    return answer;
}

static void client_connect(agent_fixture *fixture)
{
    WAIT_UNTIL(fth_host_connect(fixture->path, fth_deadline_in(1), &fixture->link) == FTH_OK);
}

/* Registers the fixture's spec, and maps what it gets. */
static void client_open(agent_fixture *fixture)
{
    int fds[2] = {-1, -1};
    client_connect(fixture);
    json_t *answer = ask(
        fixture,
        json_pack("{s:s, s:o, s:s}", "op", "register", "job", fth_job_spec_save(&fixture->spec), "name", "a job"), fds);
    if (json_object_get(answer, "error"))
        fail_msg("%s", json_string_value(json_object_get(answer, "error")));
    assert_int_equal(json_integer_value(json_object_get(answer, "job")), JOB);
    assert_int_equal(fth_segment_map(fds[0], &fixture->view), FTH_OK);
    assert_int_equal(fth_board_map(fds[1], &fixture->board), FTH_OK);
    fixture->slot = fth_board_slot(fixture->board, (int)json_integer_value(json_object_get(answer, "slot")));
    assert_non_null(fixture->slot);
    close(fds[0]);
    close(fds[1]);
    json_decref(answer);
}

static fth_item_id id_of(const agent_fixture *fixture, int64_t number)
{
    int64_t samples[BATCH];
    fth_batch_plan plan = {.samples = samples};
    fth_job_plan_batch(&fixture->spec, SET_COUNT, number, &plan);
    return fth_job_batch_id(&fixture->spec, &plan);
}

static void check_and_unpin(agent_fixture *fixture, fth_item_id id, fth_pin *pin)
{
    fth_receipt receipt;
    void *expected = make_entry(id, &receipt);
    assert_int_equal(pin->size_bytes, receipt.size_bytes);
    assert_memory_equal(pin->entry, expected, receipt.size_bytes);
    free(expected);
    fth_segment_unpin(fixture->slot, pin);
}

/* Takes a batch, as a job does: FTH_OK and its contents are right, or what the agent said. */
static fth_status take_batch(agent_fixture *fixture, int64_t number)
{
    fth_item_id id = id_of(fixture, number);
    fth_deadline deadline = test_deadline_in(WAIT_S);
    fth_slot_set_position(fixture->slot, number, 1, 0);
    for (;;) {
        fth_pin pin;
        bool found = false;
        assert_int_equal(fth_segment_pin(fixture->view, fixture->slot, id, &pin, &found), FTH_OK);
        if (!found) {
            fth_slot_want(fixture->slot, id);
            assert_int_equal(fth_segment_pin(fixture->view, fixture->slot, id, &pin, &found), FTH_OK);
            if (found)
                fth_slot_stop_wanting(fixture->slot);
        }
        if (found) {
            fth_slot_count(fixture->slot, FTH_SLOT_HITS, 1);
            check_and_unpin(fixture, id, &pin);
            fth_slot_set_position(fixture->slot, number + 1, 1, 0);
            return FTH_OK;
        }
        json_t *request = json_pack("{s:s}", "op", "wake");
        assert_int_equal(fth_host_tell(fixture->link, request), FTH_OK);
        json_decref(request);
        fth_status status = fth_slot_wait(fixture->slot, deadline);
        assert_int_not_equal(status, FTH_TIMEOUT);
        if (status != FTH_OK)
            return status;
    }
}

static void take_batches(agent_fixture *fixture, int64_t first, int64_t count)
{
    for (int64_t i = first; i < first + count; i++)
        assert_int_equal(take_batch(fixture, i), FTH_OK);
}

/* Connections to a port of this machine, as the kernel lists them. */
static int count_connections(int port)
{
    FILE *file = fopen("/proc/net/tcp", "r");
    char line[512];
    int count = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned local_port, state;
        if (sscanf(line, "%*d: %*x:%x %*x:%*x %x", &local_port, &state) == 2 && (int)local_port == port && state == 1)
            count++;
    }
    fclose(file);
    return count;
}

/* ---- tests ---- */

static void a_job_gets_its_batches_over_one_connection(void **state)
{
    agent_fixture *fixture = *state;
    agent_start(fixture);
    client_open(fixture);
    take_batches(fixture, 0, 40);
    assert_int_equal(count_connections(fixture->coordinator.port), 1);
    WAIT_UNTIL(READ_LOCKED(&fixture->coordinator, next) == 40);
    WAIT_UNTIL(READ_LOCKED(&fixture->coordinator, hits) == 40);
    assert_true(READ_LOCKED(&fixture->coordinator, fetched) <= 40 + 64); /* each once, and what comes next */

    /* Another process of the job. */
    agent_fixture second = {.path = fixture->path, .spec = fixture->spec};
    int fds[2] = {-1, -1};
    client_connect(&second);
    json_t *answer = ask(&second, json_pack("{s:s, s:i}", "op", "join", "job", JOB), fds);
    assert_true(fds[0] >= 0 && fds[1] >= 0);
    close(fds[0]);
    close(fds[1]);
    assert_non_null(json_object_get(answer, "spec"));
    json_decref(answer);
    answer = ask(&second, json_pack("{s:s, s:s}", "op", "describe", "data", "a b"), NULL);
    assert_string_equal(json_string_value(json_object_get(json_object_get(answer, "set"), "path")), "/v1/data/a b");
    json_decref(answer);
    answer = ask(&second, json_pack("{s:s}", "op", "nonsense"), NULL);
    assert_non_null(json_object_get(answer, "error"));
    json_decref(answer);
    fth_host_disconnect(second.link);
    assert_int_equal(count_connections(fixture->coordinator.port), 1);

    answer = ask(fixture, json_pack("{s:s}", "op", "finish"), NULL);
    json_decref(answer);
    client_close(fixture);
    WAIT_UNTIL(READ_LOCKED(&fixture->coordinator, finished));
    assert_int_equal(READ_LOCKED(&fixture->coordinator, hits), 40); /* the last counters come with it */
    assert_false(READ_LOCKED(&fixture->coordinator, left));
}

static void a_job_that_vanishes_has_left(void **state)
{
    agent_fixture *fixture = *state;
    agent_start(fixture);
    client_open(fixture);
    take_batches(fixture, 0, 2);
    client_close(fixture);
    WAIT_UNTIL(READ_LOCKED(&fixture->coordinator, left));
    assert_false(READ_LOCKED(&fixture->coordinator, finished));
}

static void memory_for_a_few_is_enough(void **state)
{
    agent_fixture *fixture = *state;
    fixture->memory_bytes = 1 << 20;
    agent_start(fixture);
    client_open(fixture);
    take_batches(fixture, 0, 200); /* three epochs, of which a third fits */
}

static void samples_are_fetched_where_the_form_is_samples(void **state)
{
    agent_fixture *fixture = *state;
    int64_t samples[BATCH];
    fth_batch_plan plan = {.samples = samples};
    fixture->spec.format = FTH_FORMAT_ENCODED;
    agent_start(fixture);
    client_open(fixture);
    fth_slot_set_position(fixture->slot, 3, 1, 4);
    fth_job_plan_batch(&fixture->spec, SET_COUNT, 3, &plan);
    for (int i = 0; i < BATCH; i++) {
        fth_item_id id = fth_job_sample_id(&fixture->spec, FTH_ITEM_ENCODED, samples[i]);
        fth_pin pin;
        bool found = false;
        WAIT_UNTIL(fth_segment_pin(fixture->view, fixture->slot, id, &pin, &found) == FTH_OK && found);
        check_and_unpin(fixture, id, &pin);
    }
    /* It ends there. */
    fth_job_plan_batch(&fixture->spec, SET_COUNT, 4, &plan);
    for (int i = 0; i < BATCH; i++) {
        fth_pin pin;
        bool found = false;
        fth_item_id id = fth_job_sample_id(&fixture->spec, FTH_ITEM_ENCODED, samples[i]);
        assert_int_equal(fth_segment_pin(fixture->view, fixture->slot, id, &pin, &found), FTH_OK);
        assert_false(found);
    }
}

static void a_failure_reaches_the_client_that_waits(void **state)
{
    agent_fixture *fixture = *state;
    char text[FTH_ITEM_ID_TEXT];
    fixture->coordinator.failing = id_of(fixture, 3);
    fixture->coordinator.has_failing = true;
    agent_start(fixture);
    client_open(fixture);
    take_batches(fixture, 0, 3);
    assert_int_equal(take_batch(fixture, 3), FTH_CORRUPT);
    fth_item_id_format(fixture->coordinator.failing, text);
    json_t *answer = ask(fixture, json_pack("{s:s, s:s}", "op", "failed?", "id", text), NULL);
    assert_string_equal(json_string_value(json_object_get(answer, "status")), "corrupt");
    assert_string_equal(json_string_value(json_object_get(answer, "error")), "cat.jpg is not an image");
    json_decref(answer);
    take_batches(fixture, 4, 3);
}

static void a_refusal_of_the_coordinator_is_passed_on(void **state)
{
    agent_fixture *fixture = *state;
    agent_start(fixture);
    client_connect(fixture);
    snprintf(fixture->spec.data, sizeof fixture->spec.data, "refused");
    json_t *answer =
        ask(fixture, json_pack("{s:s, s:o}", "op", "register", "job", fth_job_spec_save(&fixture->spec)), NULL);
    assert_string_equal(json_string_value(json_object_get(answer, "status")), "invalid");
    assert_non_null(strstr(json_string_value(json_object_get(answer, "error")), "your key may not read it"));
    json_decref(answer);
    answer = ask(fixture, json_pack("{s:s, s:i}", "op", "join", "job", 5), NULL);
    assert_non_null(strstr(json_string_value(json_object_get(answer, "error")), "no job 5"));
    json_decref(answer);
}

static void entries_that_are_missing_or_damaged_are_asked_for_again(void **state)
{
    agent_fixture *fixture = *state;
    fixture->coordinator.to_be_missing = 2;
    fixture->coordinator.to_be_damaged = 2;
    agent_start(fixture);
    client_open(fixture);
    take_batches(fixture, 0, 10);
    WAIT_UNTIL(READ_LOCKED(&fixture->coordinator, lost) == 4);

    /* What a client finds damaged here is fetched again. */
    char text[FTH_ITEM_ID_TEXT];
    fth_item_id_format(id_of(fixture, 9), text);
    json_decref(ask(fixture, json_pack("{s:s, s:s}", "op", "lost", "id", text), NULL));
    assert_int_equal(take_batch(fixture, 9), FTH_OK);
}

static void a_coordinator_that_is_restarted_gets_its_jobs_back(void **state)
{
    agent_fixture *fixture = *state;
    fake_coordinator *coordinator = &fixture->coordinator;
    agent_start(fixture);
    client_open(fixture);
    take_batches(fixture, 0, 5);

    /* While it is away, what is here can be read, and who waits for more is told. */
    coordinator_stop(coordinator);
    fth_status status = FTH_OK;
    int64_t number = 5;
    for (; status == FTH_OK; number++)
        status = take_batch(fixture, number);
    assert_int_equal(status, FTH_PEER_LOST);
    number--;

    pthread_mutex_lock(&coordinator->mutex);
    coordinator->knows_job = false;
    pthread_mutex_unlock(&coordinator->mutex);
    coordinator_start(coordinator);
    WAIT_UNTIL(READ_LOCKED(coordinator, registrations) == 2);
    WAIT_UNTIL(take_batch(fixture, number) == FTH_OK);
    take_batches(fixture, number + 1, 10);
    assert_int_equal(count_connections(coordinator->port), 1);
}

static void entries_come_from_redis_in_spite_of_losses(void **state)
{
    agent_fixture *fixture = *state;
    fake_coordinator *coordinator = &fixture->coordinator;
    SKIP_WITHOUT_REDIS();
    redis_start(&fixture->redis, NULL);
    snprintf(coordinator->cache, sizeof coordinator->cache, "redis://127.0.0.1:%d", fixture->redis.port);
    assert_int_equal(fth_cache_open(coordinator->cache, &(fth_cache_options){0}, &coordinator->redis), FTH_OK);
    fixture->memory_bytes = 1 << 20;
    agent_start(fixture);
    client_open(fixture);
    take_batches(fixture, 0, 20);
    redis_do(&fixture->redis, "FLUSHALL");
    take_batches(fixture, 20, 20);
    assert_int_equal(READ_LOCKED(coordinator, fetched), 0);

    /* Redis is killed: what is here can be read, and who waits for more is told. */
    redis_kill(&fixture->redis);
    fth_status status = FTH_OK;
    int64_t number = 40;
    for (; status == FTH_OK; number++)
        status = take_batch(fixture, number);
    assert_int_equal(status, FTH_PEER_LOST);
    redis_restart(&fixture->redis);
    WAIT_UNTIL(take_batch(fixture, number - 1) == FTH_OK);
    take_batches(fixture, number, 20);
}

/* ---- starting ---- */

typedef struct agent_starter {
    const agent_fixture *fixture;
    char *path;
    fth_status status;
} agent_starter;

static void *ensure_agent(void *context)
{
    agent_starter *starter = context;
    fth_batches_agent_options options = {.url = starter->fixture->url, .memory_bytes = 8 << 20, .idle_s = 1};
    /* This test's program is the agent, too: see main(). */
    starter->status = fth_batches_agent_ensure(&options, (const char *[]){"/proc/self/exe", "agent", NULL},
                                               test_deadline_in(WAIT_S), &starter->path);
    return NULL;
}

/* The process that has the socket, as the kernel knows it. */
static int64_t socket_owner(const char *path)
{
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size), 0);
    close(fd);
    return peer.pid;
}

static void many_that_start_an_agent_get_the_same(void **state)
{
    agent_fixture *fixture = *state;
    enum { STARTERS = 4 };
    agent_starter starters[STARTERS];
    pthread_t threads[STARTERS];
    for (int i = 0; i < STARTERS; i++) {
        starters[i] = (agent_starter){.fixture = fixture};
        assert_int_equal(pthread_create(&threads[i], NULL, ensure_agent, &starters[i]), 0);
    }
    for (int i = 0; i < STARTERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(starters[i].status, FTH_OK);
        assert_string_equal(starters[i].path, starters[0].path);
        if (i > 0)
            free(starters[i].path);
    }
    fixture->path = starters[0].path;
    int64_t first = socket_owner(fixture->path);
    client_open(fixture);
    take_batches(fixture, 0, 5);

    /* Killed: the next client starts another, and the job goes on where it was. */
    kill((pid_t)first, SIGKILL);
    WAIT_UNTIL(fth_host_is_gone(fixture->link));
    client_close(fixture);
    agent_starter again = {.fixture = fixture};
    ensure_agent(&again);
    assert_int_equal(again.status, FTH_OK);
    free(again.path);
    int64_t second = socket_owner(fixture->path);
    assert_int_not_equal(first, second);
    client_open(fixture);
    take_batches(fixture, 5, 5);

    /* Without clients it ends by itself, and leaves nothing. */
    client_close(fixture);
    WAIT_UNTIL(access(fixture->path, F_OK) != 0);
    fth_child_wait((pid_t)first, test_deadline_in(WAIT_S));
    fth_child_wait((pid_t)second, test_deadline_in(WAIT_S));
    char *folder = fth_path_folder(fixture->path);
    assert_int_equal(rmdir(folder), 0); /* nothing is left in it */
    free(folder);
}

static void an_agent_that_cannot_start_says_why(void **state)
{
    agent_fixture *fixture = *state;
    char *path = NULL;
    fth_batches_agent_options options = {.url = "http://127.0.0.1"};
    assert_int_equal(fth_batches_agent_ensure(&options, NULL, test_deadline_in(WAIT_S), &path), FTH_INVALID);
    assert_message_has("expected http://HOST:PORT");
    options.url = fixture->url;
    assert_int_equal(fth_batches_agent_ensure(&options, (const char *[]){"/proc/self/exe", "broken", NULL},
                                              test_deadline_in(WAIT_S), &path),
                     FTH_PEER_LOST);
    assert_message_has("exit status 3");
    assert_message_has("it is broken");
}

/* "agent --url URL --memory BYTES --idle SECONDS", as ensure_agent() asks for. */
static int be_agent(int argc, char **argv)
{
    fth_batches_agent_options options = {0};
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--url") == 0)
            options.url = argv[i + 1];
        if (strcmp(argv[i], "--memory") == 0)
            options.memory_bytes = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--idle") == 0)
            options.idle_s = strtod(argv[i + 1], NULL);
    }
    return fth_batches_agent_run(&options) == FTH_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_job_gets_its_batches_over_one_connection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_job_that_vanishes_has_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_for_a_few_is_enough, set_up, tear_down),
        cmocka_unit_test_setup_teardown(samples_are_fetched_where_the_form_is_samples, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failure_reaches_the_client_that_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refusal_of_the_coordinator_is_passed_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(entries_that_are_missing_or_damaged_are_asked_for_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_coordinator_that_is_restarted_gets_its_jobs_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(entries_come_from_redis_in_spite_of_losses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_that_start_an_agent_get_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_agent_that_cannot_start_says_why, set_up, tear_down),
    };
    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return be_agent(argc, argv);
    if (argc > 1 && strcmp(argv[1], "broken") == 0) {
        fprintf(stderr, "something first\nit is broken\n");
        return 3;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
