/* The coordinator in this process: its small parts by themselves, and a whole one with jobs of
 * several threads. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/size.h"
#include "batches/coordinator/coordinator.h"
#include "batches/coordinator/coordinator_budget.h"
#include "batches/coordinator/item_sets.h"
#include "batches/memory/host.h"
#include "batches/payload.h"
#include "support.h"

/* ---- sizes ---- */

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t size_bytes;
    } good[] = {{"0", 0},           {"1", 1},           {"512m", 512 << 20},  {"4K", 4096},
                {"1.5g", 3 << 29},  {"2GiB", 2u << 30}, {"300MB", 300000000}, {"1 kB", 1000},
                {"1t", 1ull << 40}, {"7b", 7}};
    static const char *const bad[] = {"", "x", "-1", "1x", "1mm", "1kbb", "0.1", "nan", "1e30", "g", "99999999t"};
    uint64_t size_bytes = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(good); i++) {
        assert_int_equal(fth_size_parse(good[i].text, &size_bytes), FTH_OK);
        assert_int_equal(size_bytes, good[i].size_bytes);
    }
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++)
        assert_int_equal(fth_size_parse(bad[i], &size_bytes), FTH_INVALID);
}

/* ---- spending ---- */

static void test_spending_is_kept_inside_the_budget(void **state)
{
    (void)state;
    fth_cache_spending spending = {.budget_usd_per_hour = 1, .cache_usd_per_hour = 0.25};
    assert_true(fth_cache_spending_advance(&spending, 3600 * 10.0) == 0);
    fth_cache_spending_add_function(&spending, 0.5);
    fth_cache_spending_add_function(&spending, -7);
    fth_cache_spending_add_function(&spending, NAN);
    assert_false(fth_cache_spending_is_exhausted(&spending));
    fth_cache_spending_add_function(&spending, 0.25);
    assert_true(fth_cache_spending_is_exhausted(&spending)); /* with the hour's cache */
    assert_float_equal(fth_cache_spending_advance(&spending, 3600 * 10.5), 0.125, 1e-9);
    assert_true(fth_cache_spending_is_exhausted(&spending));

    json_t *saved = fth_cache_spending_save(&spending);
    fth_cache_spending next = {.budget_usd_per_hour = 1, .cache_usd_per_hour = 0.25};
    fth_cache_spending_load(&next, saved);
    json_decref(saved);
    assert_true(fth_cache_spending_is_exhausted(&next)); /* a restart does not give money back */
    assert_float_equal(fth_cache_spending_advance(&next, 3600 * 11.0), 0.125, 1e-9);
    assert_false(fth_cache_spending_is_exhausted(&next));
    assert_float_equal(next.functions_usd, 0.75, 1e-9);
    assert_float_equal(next.cache_usd, 0.25, 1e-9);
    fth_cache_spending_load(&next, NULL); /* of a file that had none */
    assert_true(next.functions_usd == 0 && next.cache_usd == 0);
    next.budget_usd_per_hour = 0;
    fth_cache_spending_add_function(&next, 1e9);
    assert_false(fth_cache_spending_is_exhausted(&next));
}

/* ---- owners ---- */

static void test_owners(void **state)
{
    (void)state;
    enum { COUNT = 5000, ROUNDS = 40000 };
    fth_item_sets *owners = NULL;
    int expected[COUNT];
    assert_int_equal(fth_item_sets_create(&owners), FTH_OK);
    for (int i = 0; i < COUNT; i++)
        expected[i] = -1;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t random = fth_random_mix(i + 1);
        int which = (int)(random % COUNT);
        fth_item_id id = {{(uint64_t)which, (uint64_t)(which % 700)}}; /* many share a home */
        if (random >> 40 & 1) {
            expected[which] = (int)(random >> 41 & 31);
            fth_item_sets_put(owners, id, expected[which]);
        } else {
            expected[which] = -1;
            fth_item_sets_remove(owners, id);
        }
    }
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(fth_item_sets_get(owners, (fth_item_id){{(uint64_t)i, (uint64_t)(i % 700)}}), expected[i]);
    fth_item_sets_free(owners);
}

/* ---- a whole one ---- */

enum { BATCHES = 40, READERS = 3, BATCH = 50 };

static fth_coordinator *start(const char *folder)
{
    static const fth_served_set sets[] = {{"digits", "digits"}};
    static const fth_dataset_options data = {.seed = 1, .validation_fraction = 0.1};
    fth_coordinator *coordinator = NULL;
    setenv("XDG_RUNTIME_DIR", folder, 1);
    assert_int_equal(fth_coordinator_start(&(fth_coordinator_options){.sets = sets,
                                                                      .set_count = 1,
                                                                      .data = &data,
                                                                      .cache = "shm",
                                                                      .prefetch = "threads:2",
                                                                      .memory_bytes = 8 << 20,
                                                                      .seed = 3,
                                                                      .state = folder,
                                                                      .address = "127.0.0.1"},
                                           &coordinator),
                     FTH_OK);
    return coordinator;
}

static fth_job_spec describe_job(uint64_t seed)
{
    fth_job_spec spec = {.data = "digits",
                         .transform = "resize=28x28,normalize=0.1307/0.3081",
                         .batch = BATCH,
                         .shuffle = true,
                         .sharing = FTH_SHARE_NONE,
                         .order_seed = seed,
                         .augment_seed = seed,
                         .format = FTH_FORMAT_BATCHES};
    return spec;
}

typedef struct reader {
    int port;
    uint64_t seed;
    atomic_int read;
} reader;

/* A job: registers, goes through its batches, waits for those that are not there. */
static void *read_batches(void *context)
{
    reader *own = context;
    fth_job_spec spec = describe_job(own->seed);
    const fth_deadline deadline = test_deadline_in(60);
    fth_host_link *link = NULL;
    fth_board *board = NULL;
    fth_segment_view *view = NULL;
    char *path = NULL;
    json_t *answer = NULL, *request = json_pack("{s:s, s:o}", "op", "register", "job", fth_job_spec_save(&spec));
    int fds[2];
    int64_t samples[BATCH];

    if (fth_host_own_socket_path(own->port, &path) != FTH_OK || fth_host_connect(path, deadline, &link) != FTH_OK ||
        fth_host_ask(link, request, deadline, &answer, fds) != FTH_OK ||
        fth_job_spec_load(json_object_get(answer, "spec"), &spec) != FTH_OK ||
        fth_segment_map(fds[0], &view) != FTH_OK || fth_board_map(fds[1], &board) != FTH_OK)
        return NULL;
    fth_slot *slot = fth_board_slot(board, (int)json_integer_value(json_object_get(answer, "slot")));
    for (int64_t number = 0; number < BATCHES && !fth_deadline_passed(deadline); number++) {
        fth_batch_plan plan = {.samples = samples};
        fth_pin pin;
        bool found = false;
        fth_job_plan_batch(&spec, json_integer_value(json_object_get(json_object_get(answer, "set"), "training")),
                           number, &plan);
        fth_item_id id = fth_job_batch_id(&spec, &plan);
        fth_slot_set_position(slot, number, 1, BATCHES);
        while (!fth_deadline_passed(deadline) && (fth_segment_pin(view, slot, id, &pin, &found) != FTH_OK || !found)) {
            json_t *wake = json_pack("{s:s}", "op", "wake");
            fth_slot_want(slot, id);
            FTH_IGNORE(fth_host_tell(link, wake), "tried until the deadline");
            json_decref(wake);
            FTH_IGNORE(fth_slot_wait(slot, fth_deadline_in(2)), "tried until the deadline");
            fth_slot_stop_wanting(slot);
        }
        if (!found)
            break;
        atomic_fetch_add(&own->read, 1);
        fth_segment_unpin(slot, &pin);
    }
    fth_segment_unmap(view);
    fth_board_free(board);
    fth_host_disconnect(link);
    close(fds[0]);
    close(fds[1]);
    json_decref(request);
    json_decref(answer);
    free(path);
    return NULL;
}

static void test_jobs_read_what_is_made_for_them(void **state)
{
    (void)state;
    fth_coordinator *coordinator = start(test_folder);
    reader readers[READERS];
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++) {
        readers[i] = (reader){.port = fth_coordinator_port(coordinator), .seed = (uint64_t)i / 2};
        assert_int_equal(pthread_create(&threads[i], NULL, read_batches, &readers[i]), 0);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].read, BATCHES);
    }
    fth_coordinator_stop(coordinator);
}

static void test_one_that_stops_can_start_again(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        fth_coordinator_stop(start(test_folder));
    fth_coordinator_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_spending_is_kept_inside_the_budget),
        cmocka_unit_test(test_owners),
        cmocka_unit_test_setup_teardown(test_jobs_read_what_is_made_for_them, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_one_that_stops_can_start_again, test_make_folder, test_remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
