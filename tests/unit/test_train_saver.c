/* The saver: what is saved comes back, failures are told and tried again, a store that does not
 * answer leaves a copy here; and the watchdog, which ends the process in time. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/loop/deadline_watchdog.h"

static fth_train_options options;
static fth_device *device;
static fth_engine *engine;
static fth_position position;
static fth_reporter *reporter;
static fth_run_store *run_store;
static fth_saver *saver;
static fth_deadline_watchdog *watchdog;
static fth_stop request = FTH_STOP_INITIALIZER;
static char runs[TEST_MAX_PATH], store[TEST_MAX_PATH], best_path[TEST_MAX_PATH];

static void set_option(const char *name, const char *value)
{
    assert_int_equal(fth_options_set(&fth_train_option_table, &options, name, value, name), FTH_OK);
}

static const char *run_folder(void)
{
    return fth_record_folder(fth_reporter_get_record(reporter));
}

static void open_saver(void)
{
    assert_int_equal(fth_saver_create(&(fth_saver_options){.train = &options,
                                                           .engine = engine,
                                                           .position = &position,
                                                           .reporter = reporter,
                                                           .stop = &request,
                                                           .run_store = run_store,
                                                           .folder = run_folder(),
                                                           .best_path = best_path},
                                      &saver),
                     FTH_OK);
}

static void open_run_store(void)
{
    fth_stored_record record;
    set_option("checkpoints", store);
    set_option("lease", "off");
    assert_int_equal(fth_run_store_open(&options, &run_store), FTH_OK);
    assert_int_equal(fth_run_store_read(run_store, &record), FTH_OK);
    fth_stored_record_release(&record);
}

static int set_up(void **state)
{
    fth_record *record = NULL;
    json_t *configuration = json_pack("{s:s}", "identity", "0123456789abcdef"), *machine = json_object();
    if (test_make_folder(state) != 0)
        return -1;
    test_path(runs, "runs");
    test_path(store, "store");
    test_path(best_path, "best.safetensors");
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &options), FTH_OK);
    set_option("model", "linear");
    set_option("checkpoint-every", "2");
    fth_engine_options how = {
        .train = &options, .channels = 1, .height = 28, .width = 28, .classes = 10, .training_samples = 64};
    assert_int_equal(fth_device_open("cpu", &(fth_device_options){.threads = 1}, &device), FTH_OK);
    assert_int_equal(fth_engine_create(&how, device, &engine), FTH_OK);
    position = (fth_position){.state = {.best_step = -1, .validation_step = -1}, .batches_per_epoch = 8};
    fth_position_start_clock(&position);
    assert_int_equal(fth_record_create(runs, "run", "run", configuration, machine, &record), FTH_OK);
    assert_int_equal(fth_reporter_create(NULL, &reporter), FTH_OK);
    fth_reporter_open(reporter, &(fth_report_sources){
                                    .record = record, .position = &position, .options = &options, .device = device});
    json_decref(configuration);
    json_decref(machine);
    return 0;
}

static int tear_down(void **state)
{
    fth_deadline_watchdog_free(watchdog);
    fth_saver_free(saver);
    fth_run_store_free(run_store);
    fth_reporter_free(reporter);
    fth_engine_free(engine);
    fth_device_close(device);
    fth_options_release(&fth_train_option_table, &options);
    watchdog = NULL;
    saver = NULL;
    run_store = NULL;
    request.asked = false;
    request.reason = (fth_stop_reason){0};
    return test_remove_folder(state);
}

static void take_steps(int steps)
{
    position.step += steps;
    position.state.batches += steps;
    position.changes += steps;
}

/* The last event of a name; its step, or -1. */
static int64_t last_event(const char *name, json_t **event)
{
    char path[TEST_MAX_PATH + 100], line[4096];
    int64_t step = -1;
    snprintf(path, sizeof path, "%s/events.jsonl", run_folder());
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        json_t *next = json_loads(line, 0, NULL);
        if (strcmp(json_string_value(json_object_get(next, "event")), name) == 0) {
            step = json_integer_value(json_object_get(next, "step"));
            if (event) {
                json_decref(*event);
                *event = json_incref(next);
            }
        }
        json_decref(next);
    }
    if (file)
        fclose(file);
    return step;
}

/* Makes the folder of checkpoints one that nobody can write, root neither: it is a file. */
static void block(const char *folder)
{
    char path[TEST_MAX_PATH + 100];
    snprintf(path, sizeof path, "%s/checkpoints", folder);
    assert_int_equal(fth_folder_create(folder), FTH_OK);
    assert_int_equal(fth_file_write_all(path, "x", 1), FTH_OK);
}

static void unblock(const char *folder)
{
    char path[TEST_MAX_PATH + 100];
    snprintf(path, sizeof path, "%s/checkpoints", folder);
    assert_int_equal(unlink(path), 0);
}

/* ---- saving ---- */

static void saves_are_due_by_the_interval_and_come_back(void **state)
{
    (void)state;
    bool restored = false;
    open_saver();
    fth_saver_begin(saver);
    assert_false(fth_saver_is_unsaved(saver));
    take_steps(1);
    assert_true(fth_saver_is_unsaved(saver));
    assert_false(fth_saver_is_due(saver));
    take_steps(1);
    assert_true(fth_saver_is_due(saver));
    position.state.epoch_loss = 0.1;
    assert_int_equal(fth_saver_save(saver), FTH_OK);
    assert_false(fth_saver_is_due(saver));
    assert_int_equal(fth_saver_finish(saver), FTH_OK);
    assert_int_equal(last_event("checkpoint", NULL), 2);
    assert_int_equal(fth_saver_look(saver).stored_step, 2);
    assert_true(fth_saver_get_save_s(saver) > 0);

    position.state.epoch_loss = 0;
    position.step = 0;
    assert_int_equal(fth_saver_restore(saver, &restored), FTH_OK);
    assert_true(restored);
    assert_int_equal(position.step, 2);
    assert_true(position.state.epoch_loss == 0.1);
}

static void validation_alone_is_worth_a_save(void **state)
{
    (void)state;
    open_saver();
    take_steps(2);
    assert_int_equal(fth_saver_save(saver), FTH_OK);
    fth_position_set_validation(&position, &(fth_evaluation){.loss = 1, .accuracy = 0.5}, 2);
    assert_true(fth_saver_is_unsaved(saver));
    assert_false(fth_saver_is_due(saver)); /* but not before its time */
}

static void a_failed_save_is_a_warning_and_is_tried_again(void **state)
{
    (void)state;
    json_t *warning = NULL;
    open_saver();
    block(run_folder());
    take_steps(2);
    assert_int_equal(fth_saver_save(saver), FTH_OK);
    for (int i = 0; i < 5000 && last_event("warning", NULL) < 0; i++) {
        assert_int_equal(fth_saver_collect(saver, 0), FTH_OK);
        usleep(1000);
    }
    assert_int_equal(last_event("warning", &warning), 2);
    assert_non_null(strstr(json_string_value(json_object_get(warning, "message")), "trying again at the next"));
    json_decref(warning);
    assert_true(fth_saver_is_unsaved(saver));
    unblock(run_folder());
    assert_int_equal(fth_saver_finish(saver), FTH_OK);
    assert_int_equal(last_event("checkpoint", NULL), 2);
}

/* The loss was finite, a weight is not: the writer finds out, and no checkpoint is made of it. */
static void weights_that_are_not_finite_are_not_saved(void **state)
{
    (void)state;
    fth_engine_vectors vectors = {0};
    fth_engine_sizes sizes = fth_engine_get_sizes(engine);
    assert_int_equal(fth_allocate_aligned(sizes.parameters * sizeof(float), &vectors.parameters), FTH_OK);
    assert_int_equal(fth_allocate_aligned((sizes.buffers + 1) * sizeof(float), &vectors.buffers), FTH_OK);
    for (int i = 0; i < sizes.state_count; i++)
        assert_int_equal(fth_allocate_aligned(sizes.trained * sizeof(float), &vectors.state[i]), FTH_OK);
    assert_int_equal(fth_engine_move_vectors(engine, &vectors), FTH_OK);
    open_saver();
    vectors.parameters[3] = NAN;
    take_steps(2);
    assert_int_equal(fth_saver_finish(saver), FTH_DIVERGED);
    assert_int_equal(last_event("checkpoint", NULL), -1);
    fth_saver_free(saver);
    fth_engine_free(engine);
    saver = NULL;
    engine = NULL;
    free(vectors.parameters);
    free(vectors.buffers);
    for (int i = 0; i < sizes.state_count; i++)
        free(vectors.state[i]);
}

/* ---- the copy on this machine ---- */

static void a_store_that_refuses_leaves_a_copy_for_the_next_start(void **state)
{
    (void)state;
    bool restored = false;
    open_run_store();
    block(store);
    open_saver();
    fth_saver_begin(saver);
    take_steps(3);
    fth_stop_ask(&request, FTH_STOP_REQUEST, 20, "signal", "interrupted");
    fth_stop_reason reason = fth_stop_get(&request);
    assert_int_equal(fth_saver_save_at_stop(saver, &reason), FTH_OK);
    assert_int_equal(fth_saver_look(saver).copy_step, 3);
    assert_int_equal(fth_saver_look(saver).stored_step, 0);
    char *copy = fth_saver_describe_copy(saver);
    assert_non_null(strstr(copy, "step 3 is saved in"));
    free(copy);

    fth_saver_free(saver);
    unblock(store);
    position.step = position.state.batches = 0;
    request.asked = false;
    request.reason = (fth_stop_reason){0};
    open_saver();
    assert_int_equal(fth_saver_restore(saver, &restored), FTH_OK);
    assert_true(restored);
    assert_int_equal(position.step, 3);
    assert_null(fth_saver_describe_copy(saver));
    char path[TEST_MAX_PATH + 100];
    snprintf(path, sizeof path, "%s/checkpoints/step-000000000003-f000001.json", store);
    assert_true(fth_file_exists(path));
}

/* The disk goes with the machine: a copy there is no use, and the stop must not fail for the
 * store's sake. */
static void a_preempted_machine_keeps_no_copy(void **state)
{
    (void)state;
    open_run_store();
    block(store);
    open_saver();
    fth_saver_begin(saver);
    take_steps(3);
    fth_stop_ask(&request, FTH_STOP_PREEMPTION, 20, "aws", "preempted");
    fth_stop_reason reason = fth_stop_get(&request);
    assert_int_equal(fth_saver_save_at_stop(saver, &reason), FTH_OK);
    assert_int_equal(fth_saver_look(saver).copy_step, 0);
}

/* ---- the watchdog ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char message[200];
} ended = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void end_process(void *context, const char *message)
{
    (void)context;
    pthread_mutex_lock(&ended.mutex);
    if (!*ended.message)
        snprintf(ended.message, sizeof ended.message, "%s", message);
    pthread_cond_broadcast(&ended.changed);
    pthread_mutex_unlock(&ended.mutex);
}

static const char *wait_for_end(void)
{
    struct timespec until = fth_deadline_timespec(test_deadline_in(20));
    pthread_mutex_lock(&ended.mutex);
    while (!*ended.message && pthread_cond_clockwait(&ended.changed, &ended.mutex, CLOCK_MONOTONIC, &until) == 0) {
    }
    pthread_mutex_unlock(&ended.mutex);
    return ended.message;
}

static const fth_train_observer ending = {.abandon = end_process};

static void open_watchdog(void)
{
    ended.message[0] = '\0';
    assert_int_equal(fth_deadline_watchdog_create(&request, &ending, reporter, &watchdog), FTH_OK);
}

static void nothing_to_save_ends_within_the_grace(void **state)
{
    (void)state;
    open_watchdog();
    fth_stop_ask(&request, FTH_STOP_PREEMPTION, 20, "aws", "preempted");
    assert_string_equal(wait_for_end(), "stopped before the first step");
}

/* What was handed to the writer before the step that hangs is stored, and the record says what was
 * lost. */
static void a_step_that_hangs_loses_only_itself(void **state)
{
    (void)state;
    json_t *notice = NULL;
    open_saver();
    fth_saver_begin(saver);
    open_watchdog();
    fth_deadline_watchdog_set_run(watchdog, &(fth_watched_run){.saver = saver});
    fth_deadline_watchdog_begin_training(watchdog, 0);
    take_steps(2);
    assert_int_equal(fth_saver_save(saver), FTH_OK);
    fth_deadline_watchdog_enter(watchdog, FTH_PHASE_STEP);
    take_steps(1);
    fth_deadline_watchdog_end_step(watchdog, position.step);
    assert_true(fth_deadline_watchdog_get_step_s(watchdog) > 0);
    fth_deadline_watchdog_enter(watchdog, FTH_PHASE_STEP);
    fth_stop_ask(&request, FTH_STOP_PREEMPTION, 1, "aws", "preempted");
    const char *why = wait_for_end(); /* the one comes a moment before the other */
    assert_true(strcmp(why, "the step would not be saved in time") == 0 || strcmp(why, "time is up") == 0);
    assert_int_equal(last_event("notice", &notice), 3);
    assert_int_equal(json_integer_value(json_object_get(notice, "saved_step")), 2);
    assert_int_equal(json_integer_value(json_object_get(notice, "steps_lost")), 1);
    assert_int_equal(last_event("interrupted", NULL), 3);
    json_decref(notice);
}

static void a_training_thread_that_comes_in_time_is_left_alone(void **state)
{
    (void)state;
    json_t *notice = NULL;
    open_saver();
    fth_saver_begin(saver);
    open_watchdog();
    fth_deadline_watchdog_set_run(watchdog, &(fth_watched_run){.saver = saver});
    fth_deadline_watchdog_begin_training(watchdog, 0);
    fth_deadline_watchdog_enter(watchdog, FTH_PHASE_STEP);
    take_steps(1);
    fth_deadline_watchdog_end_step(watchdog, position.step);
    fth_stop_ask(&request, FTH_STOP_PREEMPTION, 20, "aws", "preempted");
    fth_stop_reason reason = fth_stop_get(&request);
    fth_deadline_watchdog_enter(watchdog, FTH_PHASE_ENDING);
    assert_int_equal(fth_saver_save_at_stop(saver, &reason), FTH_OK);
    fth_deadline_watchdog_report_notice(watchdog, &reason);
    fth_deadline_watchdog_free(watchdog); /* nothing ends the process any more */
    watchdog = NULL;
    assert_string_equal(ended.message, "");
    assert_int_equal(last_event("notice", &notice), 1);
    assert_true(json_is_true(json_object_get(notice, "fitted")));
    json_decref(notice);
}

#define SAVER(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        SAVER(saves_are_due_by_the_interval_and_come_back),
        SAVER(validation_alone_is_worth_a_save),
        SAVER(a_failed_save_is_a_warning_and_is_tried_again),
        SAVER(weights_that_are_not_finite_are_not_saved),
        SAVER(a_store_that_refuses_leaves_a_copy_for_the_next_start),
        SAVER(a_preempted_machine_keeps_no_copy),
        SAVER(nothing_to_save_ends_within_the_grace),
        SAVER(a_step_that_hangs_loses_only_itself),
        SAVER(a_training_thread_that_comes_in_time_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
