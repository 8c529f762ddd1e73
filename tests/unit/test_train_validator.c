/* Validation: which model is the best, and what happens to an epoch that is validated alongside
 * training. */
#include "test_train_run.h"

#include <math.h>
#include <sys/stat.h>

#include "train/loop/validator.h"

static const fth_strategy strategy = {.name = "none"};
static fth_saver *saver;
static fth_validator *validator;
static fth_stop stop;
static char folder[TEST_MAX_PATH], best_path[TEST_MAX_PATH];

static int set_up(void **state)
{
    stop = (fth_stop){.mutex = PTHREAD_MUTEX_INITIALIZER};
    run_prepare(state);
    run_open(&strategy);
    test_path(folder, "run");
    test_path(best_path, "run/best.safetensors");
    fth_saver_options saving = {.train = run.setup.options,
                                .engine = run.setup.engine,
                                .position = &run.position,
                                .dataset = run.setup.dataset,
                                .reporter = run.reporter,
                                .folder = folder,
                                .best_path = best_path};
    assert_int_equal(fth_saver_create(&saving, &saver), FTH_OK);
    fth_validator_options with = {
        .setup = &run.setup, .position = &run.position, .reporter = run.reporter, .stop = &stop};
    assert_int_equal(fth_validator_create(&with, &validator), FTH_OK);
    fth_validator_set_saver(validator, saver, best_path);
    return 0;
}

static int tear_down(void **state)
{
    fth_validator_free(validator);
    fth_saver_free(saver);
    return run_release(state);
}

/* ---- the best ---- */

/* Validates at `step`, where the model that is kept is of step 1 and differs by this much; true if
 * the new one is kept. */
static bool is_kept(int64_t step, double loss_above, double accuracy_below)
{
    fth_train_state *state = &run.position.state;
    state->best_loss = state->validation_loss + loss_above;
    state->best_accuracy = state->validation_accuracy - accuracy_below;
    state->best_step = 1;
    run.position.step = step;
    assert_int_equal(fth_validator_validate(validator, (fth_deadline){INFINITY}), FTH_OK);
    assert_int_equal(state->validation_step, step);
    return state->best_step == step;
}

static void set_best_by(const char *measure)
{
    assert_int_equal(fth_options_set(&fth_train_option_table, &run.selection.options, "best-by", measure, "test"),
                     FTH_OK);
}

static void the_first_model_is_the_best(void **state)
{
    (void)state;
    run.position.step = 1;
    assert_int_equal(fth_validator_validate(validator, (fth_deadline){INFINITY}), FTH_OK);
    assert_int_equal(run.position.state.best_step, 1);
    assert_true(run.position.state.best_loss == run.position.state.validation_loss);
    assert_true(test_exists("run/best.safetensors"));
    assert_string_equal(run_event_name(0), "best");
    assert_int_equal(run.position.changes, 1);
}

static void a_better_model_replaces_it_and_ties_go_by_the_other_measure(void **state)
{
    (void)state;
    run.position.step = 1;
    assert_int_equal(fth_validator_validate(validator, (fth_deadline){INFINITY}), FTH_OK);
    set_best_by("loss");
    assert_true(is_kept(2, 0.1, -0.5));
    assert_false(is_kept(3, -0.1, 0.5));
    assert_true(is_kept(4, 0, 0.1));
    assert_false(is_kept(5, 0, 0)); /* the earlier one stays */
    set_best_by("accuracy");
    assert_true(is_kept(6, -0.1, 0.5));
    assert_false(is_kept(7, 0.1, -0.5));
    assert_true(is_kept(8, 0.1, 0));
    assert_false(is_kept(9, 0, 0));
}

static void a_best_model_that_cannot_be_saved_is_a_warning(void **state)
{
    (void)state;
    assert_int_equal(mkdir(best_path, 0777), 0);
    run.position.step = 1;
    assert_int_equal(fth_validator_validate(validator, (fth_deadline){INFINITY}), FTH_OK);
    assert_int_equal(run.position.state.best_step, -1);
    assert_string_equal(run_event_name(0), "warning");
}

/* ---- alongside training ---- */

/* The end of epoch 1, at step 5. */
static void end_epoch(bool alongside)
{
    run.position.state.batches = run.position.step = 5;
    fth_position_add_result(&run.position, &(fth_step_result){.loss = 2, .correct = 10, .samples = 40});
    assert_int_equal(fth_validator_finish_epoch(validator, alongside), FTH_OK);
    assert_int_equal(run.position.state.epoch_samples, 0); /* the next one has begun */
}

static void an_epoch_is_recorded_with_its_validation(void **state)
{
    (void)state;
    end_epoch(false);
    assert_string_equal(run_event_name(0), "epoch");
    assert_non_null(json_object_get(run_event(0), "validation_loss"));
    assert_string_equal(run_event_name(1), "best");
    assert_int_equal(run.position.state.pending.epoch, 0);
}

static void alongside_training_it_is_recorded_when_done_as_of_its_end(void **state)
{
    (void)state;
    end_epoch(true);
    assert_int_equal(run.position.state.pending.epoch, 1);
    assert_int_equal(json_array_size(run.events), 0);
    run.position.state.batches = run.position.step = 6; /* training went on */
    assert_int_equal(fth_validator_follow(validator, true), FTH_OK);
    assert_int_equal(run.position.state.pending.epoch, 0);
    assert_string_equal(run_event_name(0), "epoch");
    assert_int_equal(run_event_integer(0, "step"), 5);
    assert_true(json_number_value(json_object_get(run_event(0), "train_accuracy")) == 0.25);
    assert_string_equal(run_event_name(1), "best");
    assert_int_equal(run_event_integer(1, "step"), 5);
    assert_int_equal(run.position.state.validation_step, 5);
}

static void what_was_cancelled_is_validated_by_whoever_resumes(void **state)
{
    (void)state;
    end_epoch(true);
    fth_validator_cancel(validator);
    assert_int_equal(run.position.state.pending.epoch, 1);
    assert_int_equal(json_array_size(run.events), 0);
    run.position.state.batches = run.position.step = 6;
    assert_int_equal(fth_validator_follow(validator, true), FTH_OK); /* with the weights that there are now */
    assert_string_equal(run_event_name(0), "epoch");
    assert_int_equal(run_event_integer(0, "epoch"), 1);
    assert_int_equal(run_event_integer(0, "step"), 6);
    assert_int_equal(run.position.state.pending.epoch, 0);
}

static void a_stop_interrupts_a_validation(void **state)
{
    (void)state;
    stop.asked = 1;
    run.position.step = 1;
    assert_int_equal(fth_validator_validate(validator, (fth_deadline){INFINITY}), FTH_INTERRUPTED);
    assert_int_equal(run.position.state.validation_step, -1);
}

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_model_is_the_best, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_better_model_replaces_it_and_ties_go_by_the_other_measure, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_best_model_that_cannot_be_saved_is_a_warning, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_epoch_is_recorded_with_its_validation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(alongside_training_it_is_recorded_when_done_as_of_its_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_cancelled_is_validated_by_whoever_resumes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stop_interrupts_a_validation, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
