/* The numbers of the live line: averages over the latest steps, as the record's step events have
 * them. */
#include "support.h"

#include <math.h>

#include "train/loop/recent_average.h"

static fth_step_result result(double loss, int64_t correct, int64_t samples)
{
    return (fth_step_result){.loss = loss, .correct = correct, .samples = samples};
}

static void assert_near(double value, double expected)
{
    assert_true(fabs(value - expected) <= 1e-9 * fabs(expected));
}

static void tallies_weigh_by_samples(void **state)
{
    (void)state;
    fth_tally tally = {0};
    assert_true(isnan(fth_tally_loss(&tally)) && isnan(fth_tally_accuracy(&tally)));
    assert_true(isnan(fth_tally_samples_per_s(&tally)));
    fth_tally_add(&tally, &(fth_step_result){.loss = 1, .correct = 30, .samples = 90}, 0.5);
    fth_tally_add(&tally, &(fth_step_result){.loss = NAN}, 0.25); /* a worker that was not done */
    fth_tally_add(&tally, &(fth_step_result){.loss = 3, .correct = 10, .samples = 10}, 0.25);
    assert_near(fth_tally_loss(&tally), 1.2);
    assert_near(fth_tally_accuracy(&tally), 0.4);
    assert_near(fth_tally_samples_per_s(&tally), 100);
}

/* A run that gets better every step: what it was like at first is soon gone. */
static void old_results_are_forgotten(void **state)
{
    (void)state;
    fth_window window = {0};
    fth_tally event = {0};
    for (int i = 0; i < 1000; i++) {
        fth_step_result one = result(10 - 0.005 * i, i / 10, 100);
        fth_window_add(&window, &one, 0.001);
        if (i >= 1000 - FTH_WINDOW_RESULTS)
            fth_tally_add(&event, &one, 0.001);
    }
    fth_tally recent = fth_window_recent(&window);
    assert_int_equal(recent.samples, event.samples); /* the record's event of the same steps says the same */
    assert_near(fth_tally_loss(&recent), fth_tally_loss(&event));
    assert_near(fth_tally_accuracy(&recent), fth_tally_accuracy(&event));
    assert_near(fth_tally_samples_per_s(&recent), 1e5);
}

static void slow_steps_reach_back_in_time(void **state)
{
    (void)state;
    fth_window window = {0};
    for (int i = 0; i < 200; i++) { /* 50 of these are 2 s */
        fth_step_result one = result(i < 150 ? 9 : 1, 0, 8);
        fth_window_add(&window, &one, 0.04);
    }
    fth_tally recent = fth_window_recent(&window);
    assert_true(recent.samples >= 50 * 8 && recent.samples <= 51 * 8);
    assert_true(fth_tally_loss(&recent) < 1.2);

    window = (fth_window){0};
    for (int i = 0; i < 30; i++) { /* one takes longer than all of the window: a few are needed */
        fth_step_result one = result(i < 20 ? 9 : 1, 0, 8);
        fth_window_add(&window, &one, 60);
    }
    recent = fth_window_recent(&window);
    assert_int_equal(recent.samples, FTH_WINDOW_LEAST * 8);
    assert_near(fth_tally_loss(&recent), 1);
}

static void early_results_all_count(void **state)
{
    (void)state;
    fth_window window = {0};
    fth_tally recent = fth_window_recent(&window);
    assert_true(isnan(fth_tally_loss(&recent)) && isnan(fth_window_pace(&window)));
    fth_step_result one = result(2, 1, 4), two = result(4, 3, 4);
    fth_window_add(&window, &one, 0.5);
    fth_window_add(&window, &two, 0.5);
    recent = fth_window_recent(&window);
    assert_near(fth_tally_loss(&recent), 3);
    assert_near(fth_tally_accuracy(&recent), 0.5);
}

/* Workers give several batches at once, or none: the time of the latter belongs to the next
 * result. */
static void waiting_is_counted(void **state)
{
    (void)state;
    fth_window window = {0};
    fth_step_result nothing = {0}, some = result(1, 0, 64);
    for (int i = 0; i < 50; i++) {
        fth_window_add(&window, &nothing, 0.003);
        fth_window_add(&window, &some, 0.001);
    }
    fth_tally recent = fth_window_recent(&window);
    assert_near(fth_tally_samples_per_s(&recent), 64 / 0.004);
    assert_near(fth_window_pace(&window), 64 / 0.004);
}

static void the_pace_is_steady_and_follows(void **state)
{
    (void)state;
    fth_window window = {0};
    fth_step_result one = result(1, 0, 10);
    fth_window_add(&window, &one, 20); /* the first step makes the plans */
    assert_true(isnan(fth_window_pace(&window)));
    for (int i = 0; i < 10; i++)
        fth_window_add(&window, &one, 0.1);
    assert_near(fth_window_pace(&window), 100); /* without the first */
    for (int i = 0; i < 10; i++)
        fth_window_add(&window, &one, 0.2); /* 2 s at half the speed */
    assert_true(fth_window_pace(&window) > 60 && fth_window_pace(&window) < 80);
    for (int i = 0; i < 1000; i++)
        fth_window_add(&window, &one, 0.2);
    assert_true(fabs(fth_window_pace(&window) - 50) < 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tallies_weigh_by_samples),
        cmocka_unit_test(old_results_are_forgotten),
        cmocka_unit_test(slow_steps_reach_back_in_time),
        cmocka_unit_test(early_results_all_count),
        cmocka_unit_test(waiting_is_counted),
        cmocka_unit_test(the_pace_is_steady_and_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
