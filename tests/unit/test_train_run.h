/* A small run on pictures in memory, for tests of the objects that a trainer holds: options, setup,
 * position, and a reporter whose events are kept. One test file includes it. */
#ifndef TEST_TRAIN_RUN_H
#define TEST_TRAIN_RUN_H

#include "support.h"

#include "train/loop/reporter.h"
#include "train/setup/setup.h"

enum { RUN_SIDE = 28, RUN_TRAINING = 50, RUN_VALIDATION = 20, RUN_BATCH = 10 };

static uint8_t run_pixels[RUN_TRAINING * RUN_SIDE * RUN_SIDE];
static int32_t run_labels[RUN_TRAINING];
static const fth_image_arrays run_images = {.name = "pictures",
                                            .channels = 1,
                                            .height = RUN_SIDE,
                                            .width = RUN_SIDE,
                                            .classes = 10,
                                            .parts = {[FTH_TRAIN] = {run_pixels, run_labels, RUN_TRAINING},
                                                      [FTH_VALIDATION] = {run_pixels, run_labels, RUN_VALIDATION}}};

static struct {
    fth_train_options options;
    fth_run_selection selection;
    fth_setup setup;
    fth_position position;
    fth_spending *spending;
    fth_reporter *reporter;
    json_t *events; /* what the observer was shown */
} run;

static void run_keep_event(void *context, const json_t *event)
{
    (void)context;
    json_array_append_new(run.events, json_deep_copy(event));
}

static const fth_train_observer run_observer = {.event = run_keep_event};

/* Makes the test's folder too. Options are set before run_open(). */
static void run_prepare(void **state)
{
    assert_int_equal(test_make_folder(state), 0);
    memset(&run, 0, sizeof run);
    for (int i = 0; i < RUN_TRAINING; i++)
        run_labels[i] = i % 10;
    run.events = json_array();
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &run.options), FTH_OK);
    run.options.own.images = &run_images;
    run.options.batch = RUN_BATCH;
    run.options.threads = run.options.data.loader_threads = 1;
    assert_int_equal(fth_spending_create(&run.spending), FTH_OK);
    assert_int_equal(fth_reporter_create(&run_observer, &run.reporter), FTH_OK);
}

static void run_open(const fth_strategy *strategy)
{
    json_t *about = json_object();
    fth_record *record = NULL;
    assert_int_equal(fth_run_selection_prepare(&run.options, &run.selection), FTH_OK);
    assert_int_equal(fth_setup_open(&run.selection, strategy, NULL, run.spending, &run.setup, &run.position), FTH_OK);
    assert_int_equal(fth_record_create(test_folder, "run", "hint", about, about, &record), FTH_OK);
    json_decref(about);
    fth_reporter_open(run.reporter, &(fth_report_sources){.record = record,
                                                          .position = &run.position,
                                                          .spending = run.spending,
                                                          .options = run.setup.options,
                                                          .device = run.setup.device,
                                                          .dataset = run.setup.dataset});
    fth_position_start_clock(&run.position);
    fth_reporter_begin(run.reporter);
}

static int run_release(void **state)
{
    fth_reporter_free(run.reporter);
    fth_setup_release(&run.setup);
    fth_spending_free(run.spending);
    fth_run_selection_release(&run.selection);
    fth_options_release(&fth_train_option_table, &run.options);
    json_decref(run.events);
    return test_remove_folder(state);
}

static const json_t *run_event(size_t i)
{
    return json_array_get(run.events, i);
}

static const char *run_event_name(size_t i)
{
    return json_string_value(json_object_get(run_event(i), "event"));
}

static int64_t run_event_integer(size_t i, const char *key)
{
    return json_integer_value(json_object_get(run_event(i), key));
}

#endif
