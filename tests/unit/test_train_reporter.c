/* What a run reports: events into the record and to the observer, from one thread and from two. */
#include "support.h"

#include <pthread.h>

#include "train/loop/recent_average.h"
#include "train/loop/reporter.h"

static fth_train_options options;
static fth_device *device;
static fth_spending *spending;
static fth_position position;
static fth_reporter *reporter;
static json_t *shown; /* events that the observer was shown */
static fth_progress progress;

static void show_event(void *context, const json_t *event)
{
    (void)context;
    json_array_append_new(shown, json_deep_copy(event));
}

static void show_progress(void *context, const fth_progress *now)
{
    (void)context;
    progress = *now;
}

static const fth_train_observer observer = {.progress = show_progress, .event = show_event};

static int set_up(void **state)
{
    if (test_make_folder(state) != 0)
        return -1;
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &options), FTH_OK);
    assert_int_equal(fth_device_open("cpu", &(fth_device_options){.threads = 1}, &device), FTH_OK);
    assert_int_equal(fth_spending_create(&spending), FTH_OK);
    assert_int_equal(fth_reporter_create(&observer, &reporter), FTH_OK);
    shown = json_array();
    position = (fth_position){.state = {.best_step = -1, .validation_step = -1},
                              .batches_per_epoch = 10,
                              .steps_per_epoch = 10,
                              .total_steps = 20,
                              .learning_rate = 0.5};
    return 0;
}

static int tear_down(void **state)
{
    fth_reporter_free(reporter);
    fth_spending_free(spending);
    fth_device_close(device);
    fth_options_release(&fth_train_option_table, &options);
    json_decref(shown);
    return test_remove_folder(state);
}

static void open_run(void)
{
    json_t *about = json_object();
    fth_record *record = NULL;
    assert_int_equal(fth_record_create(test_folder, "run", "hint", about, about, &record), FTH_OK);
    json_decref(about);
    fth_reporter_open(
        reporter,
        &(fth_report_sources){
            .record = record, .position = &position, .spending = spending, .options = &options, .device = device});
    fth_position_start_clock(&position);
    fth_reporter_begin(reporter);
}

/* The lines of events.jsonl. */
static json_t *read_events(void)
{
    char path[TEST_MAX_PATH], line[4096];
    json_t *events = json_array();
    FILE *file = fopen(test_path(path, "run/events.jsonl"), "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *event = json_loads(line, 0, NULL);
        assert_non_null(event); /* each line is whole */
        json_array_append_new(events, event);
    }
    fclose(file);
    return events;
}

static const char *name_of(const json_t *events, size_t i)
{
    return json_string_value(json_object_get(json_array_get(events, i), "event"));
}

static void take_step(int64_t samples)
{
    fth_step_result result = {.loss = 2, .correct = samples / 2, .samples = samples};
    fth_position_add_result(&position, &result);
    fth_reporter_add_result(reporter, &result, 0.25);
    position.state.batches++;
    position.step++;
    fth_reporter_show_step(reporter);
    fth_reporter_write_step_if_due(reporter);
}

static void the_observer_is_shown_what_the_record_has(void **state)
{
    (void)state;
    open_run();
    fth_reporter_warn(reporter, "%d of %s", 3, "them");
    fth_reporter_write_error(reporter, FTH_IO, "no disk");
    json_t *events = read_events();
    assert_true(json_equal(events, shown));
    assert_int_equal(json_array_size(events), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(events, 0), "message")), "3 of them");
    assert_string_equal(name_of(events, 1), "error");
    json_decref(events);
}

static void the_first_step_has_an_event_and_then_every_hundred(void **state)
{
    (void)state;
    open_run();
    fth_reporter_write_step(reporter); /* there was none */
    for (int i = 0; i < 1 + FTH_WINDOW_RESULTS; i++) {
        take_step(4);
        position.clock_origin_s = fth_clock_seconds(); /* no time passes, however busy the machine is */
        position.state.elapsed_s = 0;
    }
    json_t *events = read_events();
    assert_int_equal(json_array_size(events), 2);
    const json_t *first = json_array_get(events, 0), *second = json_array_get(events, 1);
    assert_int_equal(json_integer_value(json_object_get(first, "step")), 1);
    assert_non_null(json_object_get(first, "first_step_s"));
    assert_int_equal(json_integer_value(json_object_get(second, "step")), 1 + FTH_WINDOW_RESULTS);
    assert_null(json_object_get(second, "first_step_s"));
    assert_true(json_number_value(json_object_get(second, "accuracy")) == 0.5);
    assert_true(json_number_value(json_object_get(second, "samples_per_s")) == 16);
    assert_int_equal(progress.step, 1 + FTH_WINDOW_RESULTS);
    assert_int_equal(progress.steps, 20);
    assert_true(progress.loss == 2);
    json_decref(events);
}

static void a_pause_does_not_make_an_event_due(void **state)
{
    (void)state;
    open_run();
    take_step(4);
    fth_reporter_add_result(reporter, &(fth_step_result){.loss = 1, .samples = 4}, 1);
    position.state.elapsed_s += 100; /* a validation */
    fth_reporter_skip_pause(reporter);
    fth_reporter_write_step_if_due(reporter);
    assert_int_equal(json_array_size(shown), 1);
    position.state.elapsed_s += 100;
    fth_reporter_write_step_if_due(reporter);
    assert_int_equal(json_array_size(shown), 2);
}

static void a_run_that_never_took_a_step_can_be_discarded(void **state)
{
    (void)state;
    open_run();
    assert_true(fth_reporter_discard_unbegun(reporter));
    assert_null(fth_reporter_get_record(reporter));
    assert_false(test_exists("run"));
    assert_false(fth_reporter_discard_unbegun(reporter));
    fth_reporter_record(reporter, "notice", json_object()); /* as the watchdog may by now: goes nowhere */
    assert_int_equal(fth_reporter_sync(reporter), FTH_OK);
    fth_reporter_free(reporter);
    assert_int_equal(fth_reporter_create(NULL, &reporter), FTH_OK);
    open_run();
    take_step(4);
    assert_false(fth_reporter_discard_unbegun(reporter));
    assert_true(test_exists("run"));
}

static void an_event_without_memory_is_a_failure_until_the_next(void **state)
{
    (void)state;
    open_run();
    fth_reporter_write(reporter, "news", NULL);
    assert_true(fth_reporter_is_failing(reporter));
    assert_int_equal(json_array_size(shown), 0);
    fth_reporter_write_warning(reporter, "on");
    assert_false(fth_reporter_is_failing(reporter));
}

enum { FROM_EACH = 200 };

static void *record_notices(void *context)
{
    (void)context;
    for (int i = 0; i < FROM_EACH; i++) {
        fth_reporter_record(reporter, "notice", json_pack("{s:i}", "number", i));
        FTH_IGNORE(fth_reporter_sync(reporter), "the test reads the record");
    }
    return NULL;
}

/* As the watchdog does while the training thread still writes. */
static void two_threads_write_whole_lines(void **state)
{
    (void)state;
    pthread_t thread;
    open_run();
    assert_int_equal(pthread_create(&thread, NULL, record_notices, NULL), 0);
    for (int i = 0; i < FROM_EACH; i++)
        fth_reporter_write_warning(reporter, "in between");
    pthread_join(thread, NULL);
    json_t *events = read_events();
    assert_int_equal(json_array_size(events), 2 * FROM_EACH);
    assert_int_equal(json_array_size(shown), FROM_EACH); /* the observer belongs to the training thread */
    json_decref(events);
}

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_observer_is_shown_what_the_record_has, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_step_has_an_event_and_then_every_hundred, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pause_does_not_make_an_event_due, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_that_never_took_a_step_can_be_discarded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_event_without_memory_is_a_failure_until_the_next, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_threads_write_whole_lines, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
