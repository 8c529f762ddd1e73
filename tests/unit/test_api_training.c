/* Trainings through the public interface: options, callbacks, stopping, resuming, several at
 * once. */
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api_support.h"

static fth_data *data;
static fth_network *network;

static int setup(void **state)
{
    data = api_data();
    network = api_network();
    return test_make_folder(state);
}

static int teardown(void **state)
{
    fth_network_free(network);
    fth_data_free(data);
    return test_remove_folder(state);
}

static void assert_refused(fth_training *training, const char *name, const char *value, const char *why)
{
    assert_int_equal(fth_training_set(training, name, value), FTH_INVALID);
    assert_message_has(why);
}

static void options_are_checked_as_the_program_checks_them(void **state)
{
    (void)state;
    fth_training *training = NULL;
    assert_ok(fth_training_create(&training));
    assert_refused(training, "learning-rates", "0.1", "unknown");
    assert_refused(training, "epoch", "1", "did you mean 'epochs'?");
    assert_refused(training, "lr", "fast", "lr");
    assert_refused(training, "optimizer", "adam", "adamw");
    assert_refused(training, "json", "yes", "json is an option of the program");
    assert_refused(training, "confusion", "auto", "confusion is an option of the program");
    assert_refused(training, "lr", NULL, "without a name or value");
    assert_refused(training, "batches", "8", "did you mean 'batch'?");
    assert_ok(fth_training_set(training, "nesterov", "yes"));
    assert_ok(fth_training_set(training, "momentum", "0"));
    assert_int_equal(fth_training_run(training), FTH_INVALID); /* a rule between options */
    assert_null(fth_training_get_result(training)->run_folder);
    fth_training_free(training);
    fth_training_free(NULL);
}

static void a_run_file_sets_options(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    fth_training *training = api_training(network, data);
    test_write_text("run.yaml", "steps: 2\nlr: 0.01\n");
    assert_ok(fth_training_read_file(training, test_path(path, "run.yaml")));
    assert_ok(fth_training_run(training));
    assert_int_equal(fth_training_get_result(training)->steps, 2);
    test_write_text("bad.yaml", "stepz: 2\n");
    assert_int_equal(fth_training_read_file(training, test_path(path, "bad.yaml")), FTH_INVALID);
    assert_message_has("steps");
    fth_training_free(training);
}

static void what_needs_processes_is_refused(void **state)
{
    (void)state;
    fth_training *training = api_training(network, data);
    assert_ok(fth_training_set(training, "strategy", "hogwild"));
    assert_ok(fth_training_set(training, "processes", "2"));
    assert_int_equal(fth_training_run(training), FTH_UNSUPPORTED);
    assert_message_has("starts no processes");
    fth_training_free(training);
    training = api_training(network, data);
    assert_ok(fth_training_set(training, "strategy", "parameter-server"));
    assert_int_equal(fth_training_run(training), FTH_UNSUPPORTED);
    assert_message_has("starts no parameter server");
    fth_training_free(training);
}

static void worker_threads_train_a_network_of_ones_own(void **state)
{
    (void)state;
    fth_training *training = api_training(network, data);
    assert_ok(fth_training_set(training, "strategy", "hogwild"));
    assert_ok(fth_training_set(training, "workers", "2"));
    assert_ok(fth_training_run(training));
    assert_true(fth_training_get_result(training)->accuracy > 0.8);
    fth_training_free(training);
}

static void a_missing_training_is_an_error(void **state)
{
    (void)state;
    fth_training *training = api_training(network, data);
    assert_int_equal(fth_training_create(NULL), FTH_INVALID);
    assert_int_equal(fth_training_set(NULL, "lr", "1"), FTH_INVALID);
    assert_message_has("training is NULL");
    assert_int_equal(fth_training_read_file(NULL, "run.yaml"), FTH_INVALID);
    assert_int_equal(fth_training_read_file(training, NULL), FTH_INVALID);
    assert_message_has("without a name");
    assert_int_equal(fth_training_use_network(NULL, network), FTH_INVALID);
    assert_int_equal(fth_training_use_network(training, NULL), FTH_INVALID);
    assert_message_has("network is NULL");
    assert_int_equal(fth_training_use_data(NULL, data), FTH_INVALID);
    assert_int_equal(fth_training_use_data(training, NULL), FTH_INVALID);
    assert_message_has("data is NULL");
    fth_training_on_progress(NULL, NULL, NULL);
    fth_training_on_event(NULL, NULL, NULL);
    fth_training_stop(NULL);
    assert_int_equal(fth_training_run(NULL), FTH_INVALID);
    assert_null(fth_training_get_result(NULL));
    fth_training_free(training);
}

/* OpenMP would hang there. */
static void a_forked_child_is_refused(void **state)
{
    (void)state;
    fth_training *training = api_training(network, data);
    assert_ok(fth_training_set(training, "steps", "1"));
    assert_ok(fth_training_run(training));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(fth_training_run(training) == FTH_UNSUPPORTED && strstr(fth_error_message(), "forked") ? 0 : 1);
    int ended = -1;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    assert_ok(fth_training_run(training)); /* the parent goes on */
    fth_training_free(training);
}

static int stop_at_start(void *context, const fth_training_event *event)
{
    (void)context;
    return event->kind == FTH_EVENT_START;
}

static void a_run_stopped_before_its_first_step_leaves_nothing(void **state)
{
    (void)state;
    fth_training *training = api_training(network, data);
    assert_ok(fth_training_set(training, "resume", "auto"));
    fth_training_on_event(training, stop_at_start, NULL);
    assert_int_equal(fth_training_run(training), FTH_INTERRUPTED);
    assert_null(fth_training_get_result(training)->run_folder);
    assert_int_equal(fth_training_get_result(training)->steps, 0);
    fth_training_on_event(training, NULL, NULL);
    assert_ok(fth_training_run(training));
    assert_int_equal(fth_training_get_result(training)->steps, 18);
    fth_training_free(training);
}

typedef struct sightings {
    int kinds[FTH_EVENT_END + 1];
    double validation_loss;
    int64_t steps;
} sightings;

static int see_event(void *context, const fth_training_event *event)
{
    sightings *seen = context;
    seen->kinds[event->kind]++;
    assert_non_null(strstr(event->json, event->name));
    if (event->kind == FTH_EVENT_EPOCH) {
        assert_true(isfinite(event->loss) && isfinite(event->accuracy) && isfinite(event->validation_accuracy));
        seen->validation_loss = event->validation_loss;
    }
    if (event->kind == FTH_EVENT_BEST)
        assert_non_null(event->file);
    if (event->kind == FTH_EVENT_END) {
        assert_int_equal(event->step, 18);
        assert_true(isnan(event->loss));
        assert_true(isfinite(event->validation_loss));
    }
    return 0;
}

static int see_progress(void *context, const fth_training_progress *progress)
{
    sightings *seen = context;
    if (!progress->validating) {
        seen->steps++;
        assert_int_equal(progress->steps, 18);
        assert_int_equal(progress->epochs, 3);
        assert_true(isfinite(progress->loss));
    }
    return 0;
}

static void callbacks_say_what_happens(void **state)
{
    (void)state;
    sightings seen = {0};
    fth_training *training = api_training(network, data);
    fth_training_on_event(training, see_event, &seen);
    fth_training_on_progress(training, see_progress, &seen);
    assert_true(isnan(fth_training_get_result(training)->loss));
    assert_ok(fth_training_run(training));
    const fth_training_result *result = fth_training_get_result(training);
    assert_int_equal(seen.kinds[FTH_EVENT_START], 1);
    assert_int_equal(seen.kinds[FTH_EVENT_EPOCH], 3);
    assert_int_equal(seen.kinds[FTH_EVENT_END], 1);
    assert_int_equal(seen.steps, 18);
    assert_int_equal(result->steps, 18);
    assert_float_equal(result->epochs, 3, 1e-9);
    assert_float_equal(result->loss, seen.validation_loss, 1e-9);
    assert_true(result->accuracy > 0.9);
    assert_non_null(strstr(result->last_model, result->run_folder));
    assert_non_null(result->best_model);
    assert_non_null(strstr(result->run_id, "small-bars"));
    fth_training_free(training);
}

static char *read_model(const fth_training *training, size_t *size)
{
    char *bytes = NULL;
    assert_ok(fth_file_read_all(fth_training_get_result(training)->last_model, 1 << 20, &bytes, size));
    return bytes;
}

static int stop_at_step_7(void *context, const fth_training_progress *progress)
{
    (void)context;
    return progress->step == 7;
}

static void a_run_that_a_callback_stops_resumes_exactly(void **state)
{
    (void)state;
    fth_training *whole = api_training(network, data), *parts = api_training(network, data);
    assert_ok(fth_training_set(whole, "name", "whole"));
    assert_ok(fth_training_run(whole));

    assert_ok(fth_training_set(parts, "name", "parts"));
    assert_ok(fth_training_set(parts, "resume", "auto"));
    fth_training_on_progress(parts, stop_at_step_7, NULL);
    assert_int_equal(fth_training_run(parts), FTH_INTERRUPTED);
    assert_message_has("asked to stop");
    assert_non_null(fth_training_get_result(parts)->run_folder);
    assert_int_equal(fth_training_get_result(parts)->steps, 7);
    assert_float_equal(fth_training_get_result(parts)->epochs, 7. / 6, 1e-9);
    assert_true(fth_training_get_result(parts)->seconds > 0);
    assert_true(isnan(fth_training_get_result(parts)->loss));
    fth_training_on_progress(parts, NULL, NULL);
    assert_ok(fth_training_run(parts));
    assert_int_equal(fth_training_get_result(parts)->steps, 18);

    size_t sizes[2];
    char *models[2] = {read_model(whole, &sizes[0]), read_model(parts, &sizes[1])};
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(models[0], models[1], sizes[0]);
    free(models[0]);
    free(models[1]);

    assert_ok(fth_training_run(parts)); /* nothing left to do */
    assert_true(fth_training_get_result(parts)->already_finished);
    assert_int_equal(fth_training_get_result(parts)->steps, 18);
    fth_training_free(whole);
    fth_training_free(parts);
}

typedef struct running {
    fth_training *training;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool begun; /* guarded by mutex */
    fth_status status;
} running;

static int note_beginning(void *context, const fth_training_progress *progress)
{
    running *runner = context;
    (void)progress;
    pthread_mutex_lock(&runner->mutex);
    runner->begun = true;
    pthread_cond_signal(&runner->changed);
    pthread_mutex_unlock(&runner->mutex);
    return 0;
}

static void *run_training(void *context)
{
    running *runner = context;
    runner->status = fth_training_run(runner->training);
    return NULL;
}

static void another_thread_stops_it(void **state)
{
    (void)state;
    pthread_t thread;
    running runner = {.training = api_training(network, data),
                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER};
    assert_ok(fth_training_set(runner.training, "epochs", "1000000"));
    assert_ok(fth_training_set(runner.training, "validate-every", "1000000"));
    fth_training_on_progress(runner.training, note_beginning, &runner);
    fth_training_stop(runner.training); /* none runs: no effect */
    assert_int_equal(pthread_create(&thread, NULL, run_training, &runner), 0);
    pthread_mutex_lock(&runner.mutex);
    while (!runner.begun)
        pthread_cond_wait(&runner.changed, &runner.mutex);
    pthread_mutex_unlock(&runner.mutex);
    assert_int_equal(fth_training_run(runner.training), FTH_INVALID);
    assert_message_has("running already");
    fth_training_stop(runner.training);
    pthread_join(thread, NULL);
    assert_int_equal(runner.status, FTH_INTERRUPTED);
    fth_training_free(runner.training);
}

static void two_trainings_run_at_once(void **state)
{
    (void)state;
    enum { COUNT = 2 };
    running runners[COUNT];
    pthread_t threads[COUNT];
    fth_training *alone = api_training(network, data);
    assert_ok(fth_training_run(alone));
    const double loss = fth_training_get_result(alone)->loss;
    assert_ok(fth_training_run(alone)); /* again, one after the other */
    assert_true(fth_training_get_result(alone)->loss == loss);

    for (int i = 0; i < COUNT; i++) {
        runners[i] = (running){.training = api_training(network, data)};
        assert_int_equal(pthread_create(&threads[i], NULL, run_training, &runners[i]), 0);
    }
    for (int i = 0; i < COUNT; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(runners[i].status, FTH_OK);
        assert_true(fth_training_get_result(runners[i].training)->loss == loss);
    }
    assert_string_not_equal(fth_training_get_result(runners[0].training)->run_id,
                            fth_training_get_result(runners[1].training)->run_id);
    for (int i = 0; i < COUNT; i++)
        fth_training_free(runners[i].training);
    fth_training_free(alone);
}

static void what_is_said_last_counts(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    fth_training *training = api_training(network, data);
    assert_ok(fth_training_set(training, "model", "linear"));
    assert_ok(fth_training_set(training, "steps", "1"));
    assert_ok(fth_training_run(training));
    assert_non_null(strstr(fth_training_get_result(training)->run_id, "linear-bars"));
    assert_ok(fth_training_use_network(training, network));
    assert_ok(fth_training_run(training));
    assert_non_null(strstr(fth_training_get_result(training)->run_id, "small-bars"));
    test_write_text("run.yaml", "model: linear\ndata: digits\n");
    assert_ok(fth_training_read_file(training, test_path(path, "run.yaml")));
    assert_ok(fth_training_run(training));
    assert_non_null(strstr(fth_training_get_result(training)->run_id, "linear-digits"));
    assert_int_equal(fth_training_use_network(training, NULL), FTH_INVALID);
    assert_int_equal(fth_training_use_data(training, NULL), FTH_INVALID);
    fth_training_free(training);
}

static void a_name_that_is_set_later_undoes_arrays_of_that_name(void **state)
{
    (void)state;
    fth_training *training = api_training(network, data);
    assert_ok(fth_training_set(training, "data", "bars")); /* a folder, which does not exist */
    assert_int_equal(fth_training_run(training), FTH_INVALID);
    assert_message_has("'bars' is neither a built-in data set nor a folder");
    fth_training_free(training);
}

static void models_are_trained_by_name_too(void **state)
{
    (void)state;
    char runs[TEST_MAX_PATH];
    fth_training *training = NULL;
    fth_predictor *predictor = NULL;
    assert_ok(fth_training_create(&training));
    assert_ok(fth_training_set(training, "model", "linear"));
    assert_ok(fth_training_set(training, "steps", "3"));
    assert_ok(fth_training_set(training, "threads", "1"));
    assert_ok(fth_training_set(training, "runs", test_path(runs, "runs")));
    assert_ok(fth_training_run(training));
    assert_ok(fth_predictor_open(fth_training_get_result(training)->best_model, NULL, NULL, &predictor));
    assert_string_equal(fth_predictor_get_info(predictor)->model, "linear");
    assert_string_equal(fth_predictor_get_info(predictor)->class_names[9], "9");
    fth_predictor_free(predictor);
    fth_training_free(training);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(options_are_checked_as_the_program_checks_them, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_file_sets_options, setup, teardown),
        cmocka_unit_test_setup_teardown(what_needs_processes_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_training_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(a_forked_child_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_stopped_before_its_first_step_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(worker_threads_train_a_network_of_ones_own, setup, teardown),
        cmocka_unit_test_setup_teardown(callbacks_say_what_happens, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_that_a_callback_stops_resumes_exactly, setup, teardown),
        cmocka_unit_test_setup_teardown(another_thread_stops_it, setup, teardown),
        cmocka_unit_test_setup_teardown(two_trainings_run_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_said_last_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(a_name_that_is_set_later_undoes_arrays_of_that_name, setup, teardown),
        cmocka_unit_test_setup_teardown(models_are_trained_by_name_too, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
