/* Prefetchers: the list of them, threads that share batches, and functions, whose every way to fail
 * is met: they answer 500, garbage, too much, for another item, never, or "cached" without having
 * cached anything; and their cold start. */
#include "batches_item.h"
#include "batches_memory_cache.h"

#include <stdatomic.h>

#include "base/process.h"
#include "batches/prefetch/prefetch.h"
#include "http/server.h"

/* ---- a source with a list of orders ---- */

enum { MOST_ORDERS = 512 };

typedef struct test_source {
    fth_prefetch_set *set;
    fth_cache *cache;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    fth_order orders[MOST_ORDERS];
    int count, taken, done;
    int times[MOST_ORDERS]; /* that it ended */
    fth_status statuses[MOST_ORDERS];
    char reasons[MOST_ORDERS][256];
    char prefetcher[128]; /* of the last */
    double usd;
    fth_prefetch_result sum;
} test_source;

static bool take(void *context, const char *prefetcher, fth_deadline deadline, fth_order *order)
{
    test_source *source = context;
    (void)prefetcher;
    struct timespec until = fth_deadline_timespec(deadline);
    pthread_mutex_lock(&source->mutex);
    int waited = 0;
    while (source->taken == source->count && waited == 0)
        waited = pthread_cond_clockwait(&source->changed, &source->mutex, CLOCK_MONOTONIC, &until);
    bool found = source->taken < source->count;
    if (found)
        *order = source->orders[source->taken++];
    pthread_mutex_unlock(&source->mutex);
    return found;
}

static void done(void *context, const char *prefetcher, const fth_order *order, fth_status status, const char *reason,
                 const fth_prefetch_result *preparation, double cost_usd)
{
    test_source *source = context;
    pthread_mutex_lock(&source->mutex);
    for (int i = 0; i < source->count; i++)
        if (fth_item_id_equal(source->orders[i].id, order->id)) {
            source->times[i]++;
            source->statuses[i] = status;
            snprintf(source->reasons[i], sizeof source->reasons[i], "%s", reason);
        }
    snprintf(source->prefetcher, sizeof source->prefetcher, "%s", prefetcher);
    source->usd += cost_usd;
    source->sum.samples += preparation->samples;
    source->done++;
    pthread_cond_broadcast(&source->changed);
    pthread_mutex_unlock(&source->mutex);
}

static fth_status lend_set(void *context, const char *data, fth_prefetch_set **set)
{
    test_source *source = context;
    if (strcmp(data, "digits") != 0)
        return fth_fail(FTH_INVALID, "there is no data set %s", data);
    *set = source->set;
    return FTH_OK;
}

static test_source *create_source(void)
{
    test_source *source = calloc(1, sizeof *source);
    pthread_mutex_init(&source->mutex, NULL);
    pthread_cond_init(&source->changed, NULL);
    source->cache = memory_cache_create();
    assert_int_equal(fth_prefetch_set_open("digits", &(fth_dataset_options){.validation_fraction = 0.1}, &source->set),
                     FTH_OK);
    return source;
}

static void free_source(test_source *source)
{
    memory_cache_free(source->cache);
    fth_prefetch_set_free(source->set);
    pthread_cond_destroy(&source->changed);
    pthread_mutex_destroy(&source->mutex);
    free(source);
}

static fth_order_source source_of(test_source *source)
{
    return (fth_order_source){.context = source, .take = take, .done = done, .set = lend_set, .cache = source->cache};
}

static fth_job_spec make_spec(const test_source *source, int64_t batch)
{
    fth_job_spec spec = {.data = "digits", .batch = batch, .shuffle = true, .order_seed = 1, .augment_seed = 2};
    char *transform = fth_dataset_describe_preparation(fth_prefetch_set_dataset(source->set), FTH_TRAIN);
    snprintf(spec.version, sizeof spec.version, "%s", fth_prefetch_set_version(source->set));
    snprintf(spec.transform, sizeof spec.transform, "%s", transform);
    spec.format = FTH_FORMAT_BATCHES;
    free(transform);
    return spec;
}

static int64_t count_samples(const test_source *source)
{
    return fth_dataset_get_info(fth_prefetch_set_dataset(source->set))->count[FTH_TRAIN];
}

static void order_batches(test_source *source, const fth_job_spec *spec, int64_t count)
{
    fth_batch_plan plan = {.samples = calloc((size_t)spec->batch, sizeof *plan.samples)};
    pthread_mutex_lock(&source->mutex);
    for (int64_t i = 0; i < count; i++) {
        fth_order order = {.kind = FTH_ITEM_BATCH, .spec = *spec, .number = source->count};
        fth_job_plan_batch(spec, count_samples(source), order.number, &plan);
        order.id = fth_job_batch_id(spec, &plan);
        source->orders[source->count++] = order;
    }
    pthread_cond_broadcast(&source->changed);
    pthread_mutex_unlock(&source->mutex);
    free(plan.samples);
}

static void order_samples(test_source *source, const fth_job_spec *spec, int64_t count)
{
    pthread_mutex_lock(&source->mutex);
    for (int64_t i = 0; i < count; i++)
        source->orders[source->count++] = (fth_order){
            .kind = FTH_ITEM_DECODED, .spec = *spec, .number = i, .id = fth_job_sample_id(spec, FTH_ITEM_DECODED, i)};
    pthread_cond_broadcast(&source->changed);
    pthread_mutex_unlock(&source->mutex);
}

/* Until all that was ordered has ended. */
static void wait_for_all(test_source *source)
{
    struct timespec until = fth_deadline_timespec(test_deadline_in(60));
    pthread_mutex_lock(&source->mutex);
    while (source->done < source->count)
        assert_int_equal(pthread_cond_clockwait(&source->changed, &source->mutex, CLOCK_MONOTONIC, &until), 0);
    pthread_mutex_unlock(&source->mutex);
}

static void check_all_cached(test_source *source)
{
    for (int i = 0; i < source->count; i++) {
        fth_receipt receipt;
        if (source->statuses[i] != FTH_OK)
            fail_msg("%s", source->reasons[i]);
        assert_int_equal(source->times[i], 1);
        assert_non_null(memory_cache_find(source->cache, source->orders[i].id, &receipt));
    }
}

/* ---- the list ---- */

static void lists_are_checked(void **state)
{
    (void)state;
    static const char *const right[] = {"threads",
                                        "threads:1",
                                        "threads:256,workers",
                                        "functions,threads:2",
                                        "http://host:8080/run",
                                        "https://f.example/?a=b,workers"};
    static const char *const wrong[] = {"",         "threads:0", "threads:257",       "threads:4x",
                                        "thread:4", "workers:2", "functions:http",    "threads,",
                                        "ftp://x",  "http://",   "threads:4,nonsense"};
    for (size_t i = 0; i < FTH_COUNT_OF(right); i++)
        assert_int_equal(fth_prefetch_check(right[i]), FTH_OK);
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++)
        assert_int_equal(fth_prefetch_check(wrong[i]), FTH_INVALID);
    test_source *source = create_source();
    fth_order_source own = source_of(source);
    fth_prefetchers *prefetchers = NULL;
    assert_int_equal(fth_prefetchers_start("threads:1,functions", &own, &(fth_prefetch_options){0}, &prefetchers),
                     FTH_INVALID);
    assert_message_has("--functions");
    free_source(source);
}

/* ---- threads ---- */

static void threads_make_each_order_once(void **state)
{
    (void)state;
    test_source *source = create_source();
    fth_order_source own = source_of(source);
    fth_prefetchers *prefetchers = NULL;
    fth_job_spec spec = make_spec(source, 100);
    order_batches(source, &spec, 40);
    assert_int_equal(fth_prefetchers_start("threads:5,workers", &own, &(fth_prefetch_options){0}, &prefetchers),
                     FTH_OK);
    wait_for_all(source);
    order_samples(source, &spec, 200);
    wait_for_all(source);
    order_batches(source, &spec, 0);
    fth_prefetchers_stop(prefetchers);
    check_all_cached(source);
    assert_int_equal(source->done, 240);
    assert_int_equal(source->sum.samples, 40 * 100 + 200);
    assert_string_equal(source->prefetcher, "threads");
    free_source(source);
}

static void threads_say_what_cannot_be_made(void **state)
{
    (void)state;
    test_source *source = create_source();
    fth_order_source own = source_of(source);
    fth_prefetchers *prefetchers = NULL;
    fth_job_spec spec = make_spec(source, 10);
    order_batches(source, &spec, 3);
    snprintf(source->orders[0].spec.data, sizeof source->orders[0].spec.data, "photos");
    snprintf(source->orders[1].spec.transform, sizeof source->orders[1].spec.transform, "flip");
    assert_int_equal(fth_prefetchers_start("threads:2", &own, &(fth_prefetch_options){0}, &prefetchers), FTH_OK);
    wait_for_all(source);
    fth_prefetchers_stop(prefetchers);
    assert_int_equal(source->statuses[0], FTH_INVALID);
    assert_non_null(strstr(source->reasons[0], "no data set photos"));
    assert_int_equal(source->statuses[1], FTH_INVALID);
    assert_int_equal(source->statuses[2], FTH_OK);
    free_source(source);
}

static void threads_stop_in_mid_work(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        test_source *source = create_source();
        fth_order_source own = source_of(source);
        fth_prefetchers *prefetchers = NULL;
        fth_job_spec spec = make_spec(source, 500);
        order_batches(source, &spec, 60);
        assert_int_equal(fth_prefetchers_start("threads:3", &own, &(fth_prefetch_options){0}, &prefetchers), FTH_OK);
        fth_prefetchers_stop(prefetchers);
        assert_int_equal(source->done,
                         source->taken); /* whatever was taken ended once, with all or nothing in the cache */
        for (int k = 0; k < source->taken; k++) {
            fth_receipt receipt;
            bool cached = memory_cache_find(source->cache, source->orders[k].id, &receipt) != NULL;
            assert_int_equal(cached, source->statuses[k] == FTH_OK);
            assert_true(cached || source->statuses[k] == FTH_INTERRUPTED);
        }
        free_source(source);
    }
}

/* ---- functions ---- */

/* A function that behaves in one of several ways. */
typedef enum function_behaviour {
    GOOD,
    ENVELOPED,
    ANSWERS_500,
    GARBAGE,
    HUGE_ANSWER,
    OTHER_ID,
    LIES,
    NEVER,
    SAYS_WHY
} function_behaviour;

typedef struct fake_function {
    test_source *source;
    _Atomic function_behaviour behaviour;
    double first_s; /* how long the first answer takes */
    atomic_int requests, together, most_together;
    atomic_bool stop;
    pthread_t threads[64];
    atomic_int thread_count;
    fth_server *server;
    char url[128];
} fake_function;

typedef struct function_call {
    fake_function *function;
    fth_exchange *exchange;
    fth_order order;
    int number;
} function_call;

static json_t *result_of(const function_call *call, const fth_prefetch_result *preparation)
{
    char id[FTH_ITEM_ID_TEXT];
    fth_item_id_format(call->order.id, id);
    return json_pack("{s:s, s:o}", "id", id, "preparation", fth_prefetch_result_save(preparation));
}

static void wait_until(const fake_function *function, double seconds)
{
    fth_deadline deadline = fth_deadline_in(seconds);
    while (!fth_deadline_passed(deadline) && !atomic_load(&function->stop))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void *answer(void *context)
{
    function_call *call = context;
    fake_function *function = call->function;
    fth_prefetch_result preparation = {0};
    fth_prefetch_tools *tools = NULL;
    function_behaviour behaviour = function->behaviour;

    int together = atomic_fetch_add(&function->together, 1) + 1;
    int most = atomic_load(&function->most_together);
    while (together > most && !atomic_compare_exchange_weak(&function->most_together, &most, together))
        ;
    if (call->number == 0)
        wait_until(function, function->first_s);
    if (behaviour == NEVER)
        wait_until(function, 100);
    if (fth_prefetch_tools_create(function->source->set, NULL, &tools) != FTH_OK ||
        make_whole_item(tools, &call->order, function->source->cache, test_deadline_in(30), &preparation) != FTH_OK)
        abort();
    fth_prefetch_tools_free(tools);
    json_t *json = result_of(call, &preparation);
    if (behaviour == LIES) {
        fth_receipt receipt = preparation.receipt;
        receipt.checksum ^= 1;
        json_object_set_new(json_object_get(json, "preparation"), "receipt", fth_receipt_save(&receipt));
    }
    if (behaviour == OTHER_ID)
        json_object_set_new(json, "id", json_string("00000000000000000000000000000001"));
    if (behaviour == SAYS_WHY)
        json = (json_decref(json), json_pack("{s:s, s:s}", "error", "the bucket is closed", "status", "invalid"));
    if (behaviour == ENVELOPED)
        json = json_pack("{s:s, s:{s:o}}", "activationId", "1", "response", "result", json);
    atomic_fetch_sub(&function->together, 1);
    char *huge = NULL;
    switch (behaviour) {
    case ANSWERS_500: fth_exchange_answer(call->exchange, 500, "text/plain", "out of order", 12); break;
    case GARBAGE: fth_exchange_answer(call->exchange, 200, "application/json", "{\"id\":", 6); break;
    case HUGE_ANSWER:
        huge = calloc(1, 1 << 20);
        fth_exchange_answer(call->exchange, 200, "application/json", huge, 1 << 20);
        free(huge);
        break;
    default: fth_exchange_answer_json(call->exchange, 200, json_incref(json)); break;
    }
    json_decref(json);
    free(call);
    return NULL;
}

static void handle(void *context, fth_exchange *exchange)
{
    fake_function *function = context;
    size_t size_bytes = 0;
    const char *body = fth_exchange_body(exchange, &size_bytes);
    json_t *json = json_loadb(body, size_bytes, 0, NULL);
    function_call *call = calloc(1, sizeof *call);
    call->function = function;
    call->exchange = exchange;
    call->number = atomic_fetch_add(&function->requests, 1);
    if (fth_order_load(json, &call->order) != FTH_OK || !json_is_string(json_object_get(json, "cache")) ||
        !json_is_string(json_object_get(json, "address")))
        abort();
    json_decref(json);
    fth_exchange_hold(exchange, 100, 504);
    if (fth_thread_start(&function->threads[atomic_fetch_add(&function->thread_count, 1)], "call", answer, call) != 0)
        abort();
}

static const fth_route routes[] = {
    {.method = "POST", .path = "/run", .handle = handle, .max_body_bytes = 1 << 20},
    {0},
};

static fake_function *start_function(test_source *source, function_behaviour behaviour)
{
    fake_function *function = calloc(1, sizeof *function);
    function->source = source;
    function->behaviour = behaviour;
    assert_int_equal(fth_server_start(&(fth_server_options){.routes = routes, .context = function}, &function->server),
                     FTH_OK);
    snprintf(function->url, sizeof function->url, "http://127.0.0.1:%d/run", fth_server_port(function->server));
    return function;
}

static void stop_function(fake_function *function)
{
    atomic_store(&function->stop, true);
    for (int i = 0; i < function->thread_count; i++)
        pthread_join(function->threads[i], NULL);
    fth_server_stop(function->server, 5);
    free(function);
}

static void functions_make_orders(void **state)
{
    (void)state;
    static const function_behaviour behaviours[] = {GOOD, ENVELOPED};
    for (size_t i = 0; i < FTH_COUNT_OF(behaviours); i++) {
        test_source *source = create_source();
        fth_order_source own = source_of(source);
        fake_function *function = start_function(source, behaviours[i]);
        fth_prefetchers *prefetchers = NULL;
        fth_job_spec spec = make_spec(source, 20);
        const fth_prefetch_options options = {.functions = function->url,
                                              .address = "http://here",
                                              .concurrency = 4,
                                              .usd_per_request = 1,
                                              .usd_per_gb_s = 1000,
                                              .function_memory_gb = 2};
        order_batches(source, &spec, 30);
        assert_int_equal(fth_prefetchers_start("functions", &own, &options, &prefetchers), FTH_OK);
        wait_for_all(source);
        fth_prefetchers_stop(prefetchers);
        check_all_cached(source);
        assert_int_equal(function->requests, 30);
        assert_true(function->most_together <= 4);
        assert_string_equal(source->prefetcher, function->url);
        assert_true(source->usd > 30);
        stop_function(function);
        free_source(source);
    }
}

/* The first answer takes longer than any other may: it is waited for, once, while the other orders
 * wait. */
static void cold_starts_are_waited_for_not_repeated(void **state)
{
    (void)state;
    test_source *source = create_source();
    fth_order_source own = source_of(source);
    fake_function *function = start_function(source, GOOD);
    fth_prefetchers *prefetchers = NULL;
    fth_job_spec spec = make_spec(source, 20);
    function->first_s = 1.2;
    order_batches(source, &spec, 8);
    assert_int_equal(fth_prefetchers_start(function->url, &own,
                                           &(fth_prefetch_options){.cold_start_s = 60, .answer_s = 1}, &prefetchers),
                     FTH_OK);
    pthread_mutex_lock(&source->mutex);
    while (source->done == 0)
        pthread_cond_wait(&source->changed, &source->mutex);
    assert_int_equal(source->statuses[0], FTH_OK);
    pthread_mutex_unlock(&source->mutex);
    wait_for_all(source);
    fth_prefetchers_stop(prefetchers);
    assert_int_equal(source->times[0], 1);
    assert_int_equal(function->requests, 8);
    stop_function(function);
    free_source(source);
}

/* Every failure ends as one that is tried again elsewhere, with its cause, and is not said to be
 * cached. */
static void functions_fail_in_every_way(void **state)
{
    (void)state;
    static const struct {
        function_behaviour behaviour;
        const char *reason;
        fth_status status;
    } cases[] = {{ANSWERS_500, "answered 500: out of order", FTH_IO},
                 {GARBAGE, "is not JSON", FTH_IO},
                 {HUGE_ANSWER, "more than", FTH_IO},
                 {OTHER_ID, "another item", FTH_IO},
                 {LIES, "that is not cached", FTH_IO},
                 {NEVER, "", FTH_TIMEOUT},
                 {SAYS_WHY, "the bucket is closed", FTH_IO}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        test_source *source = create_source();
        fth_order_source own = source_of(source);
        fake_function *function = start_function(source, cases[i].behaviour);
        fth_prefetchers *prefetchers = NULL;
        fth_job_spec spec = make_spec(source, 20);
        order_batches(source, &spec, 1);
        assert_int_equal(
            fth_prefetchers_start(function->url, &own,
                                  &(fth_prefetch_options){.cold_start_s = cases[i].behaviour == NEVER ? 2 : 30},
                                  &prefetchers),
            FTH_OK);
        wait_for_all(source);
        /* Nothing is wrong with it any more: what comes next is made. */
        atomic_store(&function->stop, true);
        function->behaviour = GOOD;
        order_batches(source, &spec, 1);
        wait_for_all(source);
        fth_prefetchers_stop(prefetchers);
        assert_int_equal(source->statuses[0], cases[i].status);
        if (!strstr(source->reasons[0], cases[i].reason))
            fail_msg("%s", source->reasons[0]);
        assert_non_null(strstr(source->reasons[0], "http://127.0.0.1"));
        assert_int_equal(source->statuses[1], FTH_OK);
        stop_function(function);
        free_source(source);
    }
}

static void functions_that_are_nowhere_fail(void **state)
{
    (void)state;
    test_source *source = create_source();
    fth_order_source own = source_of(source);
    fake_function *function = start_function(source, GOOD);
    fth_prefetchers *prefetchers = NULL;
    fth_job_spec spec = make_spec(source, 20);
    char url[128];
    snprintf(url, sizeof url, "%s", function->url);
    stop_function(function);
    order_batches(source, &spec, 2);
    assert_int_equal(fth_prefetchers_start(url, &own, &(fth_prefetch_options){0}, &prefetchers), FTH_OK);
    wait_for_all(source);
    fth_prefetchers_stop(prefetchers);
    assert_int_equal(source->statuses[0], FTH_PEER_LOST);
    assert_int_equal(source->cache->puts, 0);
    free_source(source);
}

/* While an answer is waited for. */
static void functions_stop_at_once(void **state)
{
    (void)state;
    test_source *source = create_source();
    fth_order_source own = source_of(source);
    fake_function *function = start_function(source, NEVER);
    fth_prefetchers *prefetchers = NULL;
    fth_job_spec spec = make_spec(source, 20);
    order_batches(source, &spec, 1);
    assert_int_equal(fth_prefetchers_start(function->url, &own, &(fth_prefetch_options){0}, &prefetchers), FTH_OK);
    while (atomic_load(&function->requests) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    double begin = fth_clock_seconds();
    fth_prefetchers_stop(prefetchers);
    assert_true(fth_clock_seconds() - begin < 10); /* of the 60 s that it would wait */
    assert_int_equal(source->statuses[0], FTH_INTERRUPTED);
    stop_function(function);
    free_source(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_checked),
        cmocka_unit_test(threads_make_each_order_once),
        cmocka_unit_test(threads_say_what_cannot_be_made),
        cmocka_unit_test(threads_stop_in_mid_work),
        cmocka_unit_test(functions_make_orders),
        cmocka_unit_test(cold_starts_are_waited_for_not_repeated),
        cmocka_unit_test(functions_fail_in_every_way),
        cmocka_unit_test(functions_that_are_nowhere_fail),
        cmocka_unit_test(functions_stop_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
