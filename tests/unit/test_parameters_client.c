/* A worker's side of shards (parameters/client.h), against a whole server in this process. */
#include "support.h"

#include <stdio.h>
#include <unistd.h>

#include "parameters/client_internal.h"
#include "parameters/parameters.h"

enum { SAMPLES = 10 };

typedef struct fixture {
    fth_train_options train;
    fth_parameters *server;
    char runs[TEST_MAX_PATH], shards[TEST_MAX_PATH], url[64];
} fixture;

static void write_shards(void)
{
    char manifest[2048];
    char folder[TEST_MAX_PATH];
    assert_int_equal(fth_folder_create(test_path(folder, "shards")), FTH_OK);
    test_write_text("shards/a.tar", "0123456789");
    test_write_text("shards/b.tar", "0123456789");
    snprintf(
        manifest, sizeof manifest,
        "{\"format\":1,\"dataset\":\"squares\",\"classes\":2,\"class_names\":[\"x\",\"y\"],\"channels\":1,\"height\":2,"
        "\"width\":2,\"normalization\":{\"mean\":[0.5],\"std\":[0.5]},\"samples\":20,\"seed\":0,\"shards\":["
        "{\"name\":\"a.tar\",\"samples\":10,\"size_bytes\":10,\"sha256\":\"%064d\"},"
        "{\"name\":\"b.tar\",\"samples\":10,\"size_bytes\":10,\"sha256\":\"%064d\"}]}",
        0, 0);
    test_write_text("shards/shards.json", manifest);
}

static void start_server(fixture *f, const char *name)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:i, s:s, s:f}", "model", "linear", "runs", f->runs, "name", name,
                             "epochs", 1, "optimizer", "sgd", "lr", 0.1);
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &f->train), FTH_OK);
    assert_int_equal(fth_options_from_json(&fth_train_option_table, &f->train, json, "the test"), FTH_OK);
    json_decref(json);
    fth_parameters_options options = {.train = &f->train,
                                      .shards = f->shards,
                                      .ends_by_epochs = true,
                                      .consistency = {FTH_CONSISTENCY_ASYNC, 0},
                                      .lease_s = 600,
                                      .durability = FTH_DURABILITY_KILL};
    if (fth_parameters_start(&options, &f->server) != FTH_OK)
        fail_msg("%s", fth_error_message());
    snprintf(f->url, sizeof f->url, "http://127.0.0.1:%d", fth_parameters_port(f->server));
}

static fth_worker_client *open_client(const fixture *f, const char *worker, const json_t *function)
{
    fth_worker_client *client = NULL;
    if (fth_worker_open(&(fth_worker_options){.url = f->url, .worker = worker, .patience_s = 60, .function = function},
                        &client) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return client;
}

static int set_up(void **state)
{
    static fixture f;
    test_make_folder(state);
    f = (fixture){0};
    test_path(f.runs, "runs");
    test_path(f.shards, "shards");
    write_shards();
    start_server(&f, "run");
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    FTH_IGNORE(fth_parameters_stop(f->server, false), "a killed server may leave a checkpoint unsaved");
    fth_options_release(&fth_train_option_table, &f->train);
    return test_remove_folder(state);
}

/* ---- pushes ---- */

/* A gradient of linear's two parameters, written as it travels. */
typedef struct test_push {
    int64_t version;
    fth_shard_span span;
    char *bytes;
    size_t size;
} test_push;

static fth_status make_body(void *context, const char *worker, int64_t sequence, fth_push_body *body)
{
    fth_status status = FTH_OK;
    test_push *push = context;
    static const float weight[2 * 4] = {0.5f}, bias[2] = {0};
    fth_tensor_view views[] = {{.name = "fc.weight", .dtype = FTH_F32, .shape = FTH_SHAPE(2, 4), .data = weight},
                               {.name = "fc.bias", .dtype = FTH_F32, .shape = FTH_SHAPE(2), .data = bias}};
    char numbers[6][24], *header = NULL;
    const int64_t values[] = {sequence,         push->version,   push->span.to - push->span.from,
                              push->span.epoch, push->span.from, push->span.to};
    size_t header_bytes = 0;

    for (int i = 0; i < 6; i++)
        snprintf(numbers[i], sizeof numbers[i], "%lld", (long long)values[i]);
    fth_metadata_entry metadata[] = {{"worker", worker},      {"sequence", numbers[0]},   {"version", numbers[1]},
                                     {"samples", numbers[2]}, {"shard", push->span.name}, {"epoch", numbers[3]},
                                     {"from", numbers[4]},    {"to", numbers[5]}};
    FTH_TRY(fth_safetensors_header(views, 2, metadata, FTH_COUNT_OF(metadata), &header, &header_bytes));
    free(push->bytes);
    push->size = header_bytes + sizeof weight + sizeof bias;
    push->bytes = malloc(push->size);
    memcpy(push->bytes, header, header_bytes);
    memcpy(push->bytes + header_bytes, weight, sizeof weight);
    memcpy(push->bytes + header_bytes + sizeof weight, bias, sizeof bias);
    *body = (fth_push_body){push->bytes, push->size, -1, 0};

out:
    free(header);
    return status;
}

/* Pushes for `count` samples from the lease's `from` on. */
static fth_push_outcome push_samples(fth_worker_client *client, const fth_shard_lease *lease, int64_t count,
                                     int64_t version)
{
    test_push push = {.version = version};
    fth_push_outcome outcome;
    push.span = (fth_shard_span){.epoch = lease->epoch, .from = lease->from, .to = lease->from + count};
    snprintf(push.span.name, sizeof push.span.name, "%s", lease->shard);
    if (fth_worker_push(client, &(fth_push){&push, make_body}, &outcome) != FTH_OK)
        fail_msg("%s", fth_error_message());
    free(push.bytes);
    return outcome;
}

static fth_shard_answer take(fth_worker_client *client, const fth_shard_offer *brought, double seconds,
                             fth_shard_lease *lease)
{
    fth_shard_answer answer;
    if (fth_worker_take_shard(client, brought, fth_deadline_in(seconds), lease, &answer) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return answer;
}

/* Gives back what is left of a worker's shard. */
static void return_shard(fth_worker_client *client)
{
    char body[128];
    fth_http_response response = {0};
    snprintf(body, sizeof body, "{\"worker\": \"%s\"}", fth_worker_name(client));
    const fth_question question = {
        .method = "POST", .target = "/returnShard", .body = body, .body_bytes = strlen(body)};
    assert_int_equal(fth_client_ask(client, &question, &response), FTH_OK);
    assert_int_equal(response.code, 200);
    fth_http_response_release(&response);
}

/* ---- tests ---- */

static void test_through_all_shards(void **state)
{
    fixture *f = *state;
    fth_worker_client *a = open_client(f, "a", NULL), *b = open_client(f, "b", NULL);
    fth_shard_lease lease, others;
    assert_int_equal(take(a, NULL, 60, &lease), FTH_SHARD_TAKEN);
    assert_string_equal(lease.shard, "a.tar");
    assert_int_equal(lease.to, SAMPLES);
    assert_int_equal(lease.seed, 1);
    assert_non_null(strstr(lease.url, "/shards/a.tar"));
    assert_int_equal(push_samples(a, &lease, 4, 0), FTH_PUSH_APPLIED);
    assert_int_equal(push_samples(a, &lease, 4, 1), FTH_PUSH_LEASE); /* the same samples */
    lease.from += 4;
    assert_int_equal(take(b, NULL, 60, &others), FTH_SHARD_TAKEN);
    assert_string_equal(others.shard, "b.tar");
    assert_int_equal(push_samples(b, &lease, 4, 1), FTH_PUSH_LEASE); /* another's shard */
    return_shard(a);
    fth_shard_lease_release(&lease);
    assert_int_equal(push_samples(b, &others, SAMPLES, 1), FTH_PUSH_APPLIED);
    fth_shard_lease_release(&others);
    assert_int_equal(take(b, NULL, 60, &others), FTH_SHARD_TAKEN); /* what is left of a's */
    assert_string_equal(others.shard, "a.tar");
    assert_int_equal(others.from, 4);
    assert_int_equal(take(a, NULL, 0, &lease), FTH_SHARD_WAIT);
    assert_null(lease.url);
    assert_int_equal(push_samples(b, &others, SAMPLES - 4, 2), FTH_PUSH_APPLIED);
    assert_int_equal(take(a, NULL, 60, &lease), FTH_SHARD_DONE);
    assert_int_equal(push_samples(b, &others, 1, 3), FTH_PUSH_FINISHED);
    fth_shard_lease_release(&others);
    assert_true(fth_parameters_progress(f->server) == 1);
    assert_true(fth_worker_sent_bytes(b) > 100 && fth_worker_received_bytes(b) > 100);
    fth_worker_close(a);
    fth_worker_close(b);
}

static void test_brought_and_after_a_restart(void **state)
{
    fixture *f = *state;
    fth_worker_client *a = open_client(f, "a", NULL);
    fth_shard_offer mine = {.run = "r", .name = "mine.tar", .samples = SAMPLES, .epochs = 1}, other = mine;
    fth_shard_lease lease, again;
    fth_shard_answer answer;
    assert_int_equal(take(a, &mine, 60, &lease), FTH_SHARD_TAKEN);
    assert_string_equal(lease.shard, "r/mine.tar");
    assert_string_equal(lease.url, "");
    assert_int_equal(push_samples(a, &lease, 3, 0), FTH_PUSH_APPLIED);
    other.samples++;
    assert_int_equal(fth_worker_take_shard(a, &other, test_deadline_in(60), &again, &answer), FTH_INVALID);
    assert_message_has("another file");
    fth_worker_close(a);
    FTH_IGNORE(fth_parameters_stop(f->server, false), "a killed server may leave a checkpoint unsaved");
    fth_options_release(&fth_train_option_table, &f->train);
    start_server(f, "run");
    a = open_client(f, "a", NULL);
    assert_int_equal(take(a, &mine, 60, &again), FTH_SHARD_TAKEN);
    assert_int_equal(again.from, 3);
    assert_int_equal(push_samples(a, &again, SAMPLES - 3, 1), FTH_PUSH_APPLIED);
    fth_shard_lease_release(&again);
    assert_int_equal(take(a, &mine, 60, &again), FTH_SHARD_DONE);
    fth_shard_lease_release(&lease);
    fth_worker_close(a);
}

/* A worker whose registration ended asks as if nothing had been. */
static void test_a_worker_that_was_let_go_registers_again(void **state)
{
    fixture *f = *state;
    fth_worker_client *a = open_client(f, "a", NULL);
    fth_shard_lease lease;
    assert_int_equal(take(a, NULL, 60, &lease), FTH_SHARD_TAKEN);
    fth_shard_lease_release(&lease);
    fth_parameters_let_go(f->server, "a");
    while (fth_parameters_workers(f->server) > 0)
        usleep(1000);
    assert_int_equal(take(a, NULL, 60, &lease), FTH_SHARD_TAKEN);
    fth_shard_lease_release(&lease);
    fth_parameters_let_go(f->server, "a");
    while (fth_parameters_workers(f->server) > 0)
        usleep(1000);
    assert_int_equal(take(a, NULL, 60, &lease), FTH_SHARD_TAKEN);
    fth_shard_lease_release(&lease);
    fth_worker_close(a);
}

static void test_usage_is_recorded(void **state)
{
    fixture *f = *state;
    char path[TEST_MAX_PATH], *text = NULL;
    size_t size = 0;
    json_t *function =
        json_pack("{s:s, s:s, s:s, s:i}", "provider", "openwhisk", "function", "train", "id", "abc", "memory_mb", 256);
    fth_worker_client *a = open_client(f, "a", function);
    fth_worker_set_usage(a, json_pack("{s:f, s:s}", "seconds", 2.5, "ended", "deadline"));
    fth_worker_set_usage(a, json_pack("{s:f, s:s}", "seconds", 3.5, "ended", "done"));
    json_decref(function);
    fth_worker_close(a);
    snprintf(path, sizeof path, "%s/events.jsonl", fth_parameters_get_facts(f->server).run_folder);
    assert_int_equal(fth_file_read_all(path, 1 << 20, &text, &size), FTH_OK);
    const char *line = strstr(text, "{\"worker\":");
    assert_non_null(line);
    assert_non_null(strstr(line, "\"event\":\"invocation\""));
    json_t *event = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    const char *worker = NULL, *provider = NULL, *name = NULL, *id = NULL, *ended = NULL;
    int memory_mb = 0;
    double seconds = 0;
    assert_int_equal(json_unpack(event, "{s:s, s:s, s:s, s:s, s:i, s:F, s:s}", "worker", &worker, "provider", &provider,
                                 "function", &name, "id", &id, "memory_mb", &memory_mb, "seconds", &seconds, "ended",
                                 &ended),
                     0);
    assert_string_equal(worker, "a");
    assert_string_equal(provider, "openwhisk");
    assert_string_equal(name, "train");
    assert_string_equal(id, "abc");
    assert_string_equal(ended, "done");
    assert_true(memory_mb == 256 && seconds == 3.5);
    json_decref(event);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_through_all_shards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_brought_and_after_a_restart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_worker_that_was_let_go_registers_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_usage_is_recorded, set_up, tear_down),
    };
    fth_log_set_level(FTH_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
