/* Small parts of the parameter server by themselves: its position, its health, and the order of
 * requests. */
#include "support.h"

#include <pthread.h>

#include "parameters/health.h"
#include "parameters/intake.h"

/* ---- the position ---- */

static void test_position(void **state)
{
    (void)state;
    fth_served_position *position = NULL;
    assert_int_equal(fth_served_position_create(&(fth_served_length){.steps = 4, .epoch_samples = 100}, &position),
                     FTH_OK);
    fth_served_position_restore(position, 1, 50, 12.5, 2);
    assert_true(fth_served_position_progress(position) == 0.25);
    assert_true(fth_served_position_elapsed_s(position) == 12.5); /* the clock does not run yet */
    fth_served_position_add_samples(position, 25);
    fth_served_position_advance(position);
    fth_served_position_add_apply_s(position, 0.5);
    assert_int_equal(fth_served_position_version(position), 2);
    assert_int_equal(fth_served_position_samples(position), 75);
    assert_true(fth_served_position_progress(position) == 0.5);
    assert_true(fth_served_position_apply_s(position) == 2.5 && fth_served_position_apply_s_here(position) == 0.5);
    json_t *json = fth_served_position_describe(position);
    assert_true(json_number_value(json_object_get(json, "epoch")) == 0.75);
    assert_int_equal(json_integer_value(json_object_get(json, "step")), 2);
    json_decref(json);
    fth_served_position_start_clock(position);
    assert_true(fth_served_position_elapsed_s(position) >= 12.5);
    fth_served_position_free(position);
}

static void test_progress_by_samples(void **state)
{
    (void)state;
    fth_served_position *position = NULL;
    assert_int_equal(fth_served_position_create(&(fth_served_length){.samples = 200}, &position), FTH_OK);
    fth_served_position_add_samples(position, 50);
    assert_true(fth_served_position_progress(position) == 0); /* samples of a step that is not made yet */
    fth_served_position_advance(position);
    assert_true(fth_served_position_progress(position) == 0.25);
    fth_served_position_free(position);
}

static void test_progress_by_listed_shards(void **state)
{
    (void)state;
    fth_served_position *position = NULL;
    assert_int_equal(fth_served_position_create(&(fth_served_length){.samples = 200, .listed = true}, &position),
                     FTH_OK);
    fth_served_position_add_listed(position, 50);
    fth_served_position_restore(position, 3, 120, 0, 0);
    assert_true(fth_served_position_progress(position) == 0.25);
    fth_served_position_add_samples(position, 100); /* of others */
    fth_served_position_advance(position);
    assert_true(fth_served_position_progress(position) == 0.25);
    fth_served_position_add_listed(position, 150);
    fth_served_position_advance(position);
    assert_true(fth_served_position_progress(position) == 1);
    fth_served_position_free(position);
}

/* ---- health ---- */

typedef struct fixture {
    fth_served_position *position;
    fth_served_record *record;
    fth_workers *workers;
    fth_health *health;
    fth_train_options train;
} fixture;

static void open_fixture(fixture *f)
{
    char runs[400];
    snprintf(runs, sizeof runs, "%s/runs", test_folder);
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &f->train), FTH_OK);
    json_t *json = json_pack("{s:s, s:s}", "runs", runs, "name", "run");
    assert_int_equal(fth_options_from_json(&fth_train_option_table, &f->train, json, "the test"), FTH_OK);
    json_t *machine = json_object();
    assert_int_equal(fth_served_record_open(&f->train, NULL, json, machine, &f->record), FTH_OK);
    json_decref(json);
    json_decref(machine);
    assert_int_equal(fth_served_position_create(&(fth_served_length){0}, &f->position), FTH_OK);
    assert_int_equal(fth_workers_create(&(fth_workers_options){.lease_s = 30}, &f->workers), FTH_OK);
    assert_int_equal(fth_health_create(f->position, f->record, f->workers, &f->health), FTH_OK);
}

static void close_fixture(fixture *f)
{
    fth_health_free(f->health);
    fth_workers_free(f->workers);
    fth_served_position_free(f->position);
    fth_served_record_free(f->record);
    fth_options_release(&fth_train_option_table, &f->train);
}

static void *fail_twice(void *health)
{
    fth_health_fail(health, fth_fail(FTH_IO, "the disk is full"));
    fth_health_fail(health, fth_fail(FTH_NO_MEMORY, "a consequence"));
    return NULL;
}

static void assert_health(fth_health *health, int code, const char *status)
{
    int got = 0;
    json_t *json = fth_health_describe(health, &got);
    assert_int_equal(got, code);
    assert_string_equal(json_string_value(json_object_get(json, "status")), status);
    json_decref(json);
}

/* The first failure counts, and wakes whoever waits for one, with its message in the waiting
 * thread. */
static void test_failure(void **state)
{
    (void)state;
    fixture f = {0};
    pthread_t thread;
    open_fixture(&f);
    assert_int_equal(fth_health_get_failure(f.health), FTH_OK);
    assert_health(f.health, 200, "ok");
    assert_int_equal(pthread_create(&thread, NULL, fail_twice, f.health), 0);
    assert_int_equal(fth_health_wait_for_failure(f.health, 60), FTH_IO);
    assert_string_equal(fth_error_message(), "the disk is full");
    pthread_join(thread, NULL);
    assert_int_equal(fth_health_get_failure(f.health), FTH_IO);
    assert_health(f.health, 503, "failed");
    close_fixture(&f);
}

static void test_unfit_gradients(void **state)
{
    (void)state;
    fixture f = {0};
    fth_worker worker;
    int code = 0;
    fth_gradient gradient = {.version = 0};
    open_fixture(&f);
    snprintf(gradient.worker, sizeof gradient.worker, "w");
    assert_false(fth_health_note_unfit(f.health, &gradient, "", "NaN")); /* of nobody who is registered */
    assert_true(fth_workers_join(f.workers, "w", "1", ""));
    assert_true(fth_health_note_unfit(f.health, &gradient, "", "NaN again"));
    assert_true(fth_workers_get(f.workers, "w", &worker));
    assert_int_equal(worker.unfit, 1);
    json_t *json = fth_health_describe(f.health, &code);
    assert_int_equal(code, 200);
    assert_int_equal(json_integer_value(json_object_get(json, "unfit")), 2);
    const json_t *last = json_object_get(json, "last_unfit");
    assert_string_equal(json_string_value(json_object_get(last, "error")), "NaN again");
    assert_string_equal(json_string_value(json_object_get(last, "worker")), "w");
    json_decref(json);
    fth_health_set_stopping(f.health);
    assert_health(f.health, 503, "stopping");
    close_fixture(&f);
}

/* ---- the order of requests ---- */

static void test_queue(void **state)
{
    (void)state;
    fth_server_request requests[5] = {{0}};
    fth_request_queue queue, deferred;
    fth_request_queue_init(&queue);
    fth_request_queue_init(&deferred);
    fth_request_queue_put_first(&queue, &deferred); /* nothing before nothing */
    assert_null(fth_request_queue_take(&queue));
    fth_request_queue_put(&deferred, &requests[0]);
    fth_request_queue_put(&deferred, &requests[1]);
    fth_request_queue_put_first(&queue, &deferred);
    assert_null(fth_request_queue_take(&deferred));
    fth_request_queue_put(&queue, &requests[3]);
    assert_ptr_equal(fth_request_queue_take(&queue), &requests[0]);
    fth_request_queue_put(&deferred, &requests[2]);
    fth_request_queue_put_first(&queue, &deferred);
    fth_request_queue_put(&queue, &requests[4]);
    assert_ptr_equal(fth_request_queue_take(&queue), &requests[2]);
    assert_ptr_equal(fth_request_queue_take(&queue), &requests[1]);
    assert_ptr_equal(fth_request_queue_take(&queue), &requests[3]);
    assert_ptr_equal(fth_request_queue_take(&queue), &requests[4]);
    assert_null(fth_request_queue_take(&queue));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_position),
        cmocka_unit_test(test_progress_by_samples),
        cmocka_unit_test(test_progress_by_listed_shards),
        cmocka_unit_test_setup_teardown(test_failure, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_unfit_gradients, test_make_folder, test_remove_folder),
        cmocka_unit_test(test_queue),
    };
    fth_log_set_level(FTH_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
