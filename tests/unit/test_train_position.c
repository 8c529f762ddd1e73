/* Positions: steps and epochs, sums of an epoch, and the way into a checkpoint and back. */
#include "support.h"

#include <inttypes.h>
#include <math.h>

#include "train/loop/position.h"

enum { SAMPLES = 101 }; /* 11 batches of 10, the last one of 1 */

static fth_device *device;
static fth_train_options options;
static fth_engine *engine;
static const fth_schedule *constant, *cosine;

static void set_option(const char *name, const char *value)
{
    assert_int_equal(fth_options_set(&fth_train_option_table, &options, name, value, name), FTH_OK);
}

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(fth_device_open("cpu", &(fth_device_options){.threads = 1}, &device), FTH_OK);
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &options), FTH_OK);
    set_option("model", "mnist-cnn");
    set_option("batch", "10");
    set_option("accumulate", "4"); /* 3 updates an epoch */
    fth_engine_options of_engine = {
        .train = &options, .channels = 1, .height = 28, .width = 28, .classes = 10, .training_samples = SAMPLES};
    assert_int_equal(fth_engine_create(&of_engine, device, &engine), FTH_OK);
    assert_int_equal(fth_schedule_find("constant", &constant), FTH_OK);
    assert_int_equal(fth_schedule_find("cosine", &cosine), FTH_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fth_engine_free(engine);
    fth_device_close(device);
    fth_options_release(&fth_train_option_table, &options);
    return 0;
}

static fth_position begin(int64_t epochs, int64_t steps)
{
    fth_position position;
    options.limits.epochs = epochs;
    options.limits.steps = steps;
    assert_int_equal(fth_position_begin(engine, &options, constant, SAMPLES, &position), FTH_OK);
    return position;
}

static void the_nearer_limit_is_the_end(void **state)
{
    (void)state;
    fth_position position = begin(5, 0);
    assert_int_equal(position.batches_per_epoch, 11);
    assert_int_equal(position.steps_per_epoch, 3);
    assert_int_equal(position.total_steps, 15);
    assert_int_equal(position.state.best_step, -1);
    assert_int_equal(begin(5, 7).total_steps, 7);
    assert_int_equal(begin(1, 7).total_steps, 3);
    assert_int_equal(begin(0, 0).total_steps, 0);

    assert_int_equal(fth_position_begin(engine, &options, cosine, SAMPLES, &position), FTH_INVALID);
    assert_message_has("--epochs or --steps");
    options.limits.epochs = INT64_MAX / 2;
    assert_int_equal(fth_position_begin(engine, &options, constant, SAMPLES, &position), FTH_INVALID);
    assert_message_has("more than can be counted");
}

static void an_epoch_is_described_by_what_it_added(void **state)
{
    (void)state;
    fth_position position = begin(5, 0);
    position.state.elapsed_s = 100;
    position.state.meters = position.state.epoch_meters = (fth_meters){.compute_s = 50, .evaluate_s = 3};
    position.state.epoch_elapsed_s = 100;
    position.state.samples = SAMPLES;
    position.state.batches = 22;
    position.step = 6;
    fth_position_start_clock(&position);
    fth_position_add_result(&position, &(fth_step_result){.loss = 2, .correct = 3, .samples = 10});
    fth_position_add_result(&position, &(fth_step_result){.loss = NAN}); /* of no samples: counts for nothing */
    fth_position_add_result(&position, &(fth_step_result){.loss = 1, .correct = 5, .samples = 20});
    position.state.meters.compute_s += 7;

    fth_epoch_facts facts = fth_position_describe_epoch(&position);
    assert_int_equal(facts.epoch, 2);
    assert_int_equal(facts.step, 6);
    assert_int_equal(facts.samples_so_far, SAMPLES + 30);
    assert_true(facts.loss == 40);
    assert_int_equal(facts.correct, 8);
    assert_int_equal(facts.samples, 30);
    assert_true(facts.meters.compute_s == 7 && facts.meters.evaluate_s == 0);
    assert_true(facts.seconds >= 0 && facts.seconds < 60);

    assert_int_equal(position.changes, 0);
    fth_position_begin_epoch(&position);
    assert_int_equal(position.changes, 1); /* worth a checkpoint */
    assert_int_equal(position.state.epoch_samples, 0);
    assert_true(position.state.epoch_loss == 0 && position.state.epoch_meters.compute_s == 57);
    assert_int_equal(position.state.samples, SAMPLES + 30);
}

/* As a checkpoint's manifest writes it. */
static json_t *pass_through_text(const json_t *json)
{
    char *text = json_dumps(json, JSON_REAL_PRECISION(17));
    json_t *read = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return read;
}

static void a_checkpoint_brings_back_every_bit(void **state)
{
    (void)state;
    fth_position position = begin(5, 0), restored = begin(5, 0);
    position.state.batches = 16; /* 1 epoch and 5 batches: 3 + 1 updates */
    position.state.samples = 151;
    position.state.epoch_loss = 1.0 / 3;
    position.state.meters = (fth_meters){0.1, 0.2, 0.25, 0.3, 1e-17, 1e17, 0.7, 0.8};
    position.state.best_loss = 4.9406564584124654e-324;
    position.state.best_step = 3;
    position.state.pending = (fth_epoch_facts){.epoch = 1, .loss = 0.1 + 0.2, .samples = 101};
    position.state.elapsed_s = 12.5;
    fth_position_start_clock(&position);

    json_t *saved = NULL;
    assert_int_equal(fth_position_save(&position, engine, &saved), FTH_OK);
    json_t *read = pass_through_text(saved);
    assert_int_equal(fth_position_restore(&restored, engine, read), FTH_OK);
    assert_int_equal(restored.step, 4);
    assert_memory_equal(&restored.state, &position.state, sizeof position.state);
    json_decref(read);
    json_decref(saved);
}

static void a_state_that_is_damaged_names_the_member(void **state)
{
    (void)state;
    fth_position position = begin(5, 0);
    json_t *saved = NULL;
    assert_int_equal(fth_position_save(&position, engine, &saved), FTH_OK);
    json_object_del(saved, "pending.epoch"); /* which older checkpoints do not have */
    assert_int_equal(fth_position_restore(&position, engine, saved), FTH_OK);
    json_object_set_new(saved, "batches", json_integer(-1));
    assert_int_equal(fth_position_restore(&position, engine, saved), FTH_CORRUPT);
    json_object_set_new(saved, "batches", json_real(1.5));
    assert_int_equal(fth_position_restore(&position, engine, saved), FTH_CORRUPT);
    assert_message_has("\"batches\"");
    json_object_del(saved, "batches");
    assert_int_equal(fth_position_restore(&position, engine, saved), FTH_CORRUPT);
    assert_message_has("\"batches\"");
    json_decref(saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearer_limit_is_the_end),
        cmocka_unit_test(an_epoch_is_described_by_what_it_added),
        cmocka_unit_test(a_checkpoint_brings_back_every_bit),
        cmocka_unit_test(a_state_that_is_damaged_names_the_member),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
