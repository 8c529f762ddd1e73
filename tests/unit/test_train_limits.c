/* What an engine may take: memory, and time for a batch. */
#include "support.h"

#include <math.h>

#include "base/process.h"
#include "train/engine/engine.h"

enum { BATCH = 4, SIDE = 32, CLASSES = 10 };

typedef struct subject {
    fth_train_options options;
    fth_device *device;
    fth_engine *engine;
} subject;

static fth_status make(uint64_t most_bytes, int side, subject *made)
{
    const fth_engine_options options = {.train = &made->options,
                                        .channels = 3,
                                        .height = side,
                                        .width = side,
                                        .classes = CLASSES,
                                        .training_samples = BATCH,
                                        .most_bytes = most_bytes,
                                        .copies = 2};
    *made = (subject){0};
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &made->options), FTH_OK);
    assert_int_equal(fth_options_set(&fth_train_option_table, &made->options, "model", "cifar-cnn", "model"), FTH_OK);
    assert_int_equal(fth_options_set(&fth_train_option_table, &made->options, "batch", "4", "batch"), FTH_OK);
    assert_int_equal(fth_device_open("cpu", &(fth_device_options){.threads = 1}, &made->device), FTH_OK);
    return fth_engine_create(&options, made->device, &made->engine);
}

static void release(subject *made)
{
    fth_engine_free(made->engine);
    fth_device_close(made->device);
    fth_options_release(&fth_train_option_table, &made->options);
}

static fth_status compute(const subject *made, fth_step_result *result)
{
    static float images[BATCH * 3 * SIDE * SIDE];
    static const int32_t labels[BATCH] = {0, 1, 2, 3};
    for (size_t i = 0; i < FTH_COUNT_OF(images); i++)
        images[i] = (float)(i % 7) / 7;
    const fth_batch batch = {.images = images, .labels = labels, .count = BATCH};
    return fth_engine_compute(made->engine, &batch, &(fth_group){.first = true, .last = true, .share = 1}, result);
}

static void refuses_what_does_not_fit_before_it_takes_any(void **state)
{
    subject made;
    (void)state;
    assert_int_equal(make(64 << 20, SIDE, &made), FTH_OK);
    const uint64_t needed = fth_engine_needed_bytes(made.engine);
    assert_in_range(needed, 62006 * 4 * sizeof(float), 4 << 20);
    release(&made);
    assert_int_equal(make(needed, SIDE, &made), FTH_OK);
    release(&made);
    assert_int_equal(make(needed - 1, SIDE, &made), FTH_NO_MEMORY);
    assert_non_null(strstr(fth_error_message(), "cifar-cnn for images of 3x32x32 needs"));
    assert_null(made.engine);
    release(&made);
    const int64_t before = fth_process_peak_bytes();
    assert_int_equal(make(64 << 20, 4096, &made), FTH_NO_MEMORY);
    assert_true(fth_process_peak_bytes() - before < 32 << 20);
    release(&made);
}

static void gives_a_batch_up_between_two_steps(void **state)
{
    subject made;
    fth_step_result wanted, result;
    fth_stop stop = FTH_STOP_INITIALIZER;
    (void)state;
    assert_int_equal(make(0, SIDE, &made), FTH_OK);
    fth_engine_set_deadline(made.engine, fth_deadline_in(0), NULL);
    assert_int_equal(compute(&made, &result), FTH_TIMEOUT); /* while it is planned */
    fth_engine_set_deadline(made.engine, fth_deadline_in(3600), &stop);
    assert_int_equal(compute(&made, &wanted), FTH_OK);
    fth_engine_set_deadline(made.engine, fth_deadline_in(0), &stop);
    assert_int_equal(compute(&made, &result), FTH_TIMEOUT);
    fth_engine_set_deadline(made.engine, (fth_deadline){0}, &stop);
    fth_stop_ask(&stop, FTH_STOP_REQUEST, 1, "test", "stop");
    assert_int_equal(compute(&made, &result), FTH_INTERRUPTED);
    fth_engine_set_deadline(made.engine, (fth_deadline){0}, NULL);
    assert_int_equal(compute(&made, &result), FTH_OK);
    assert_true(result.loss == wanted.loss);
    release(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_does_not_fit_before_it_takes_any),
        cmocka_unit_test(gives_a_batch_up_between_two_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
