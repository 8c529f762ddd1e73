/* What a server shows of its workers' gradients: samples a second, loss and accuracy, with a clock
 * of the test's. */
#include "support.h"

#include <math.h>

#include "parameters/worker_totals.h"

enum { SAMPLES = 16 };

static fth_gradient gradient_of(double loss, int64_t correct)
{
    return (fth_gradient){.samples = SAMPLES, .loss = loss, .correct = correct};
}

static double recent_rate(fth_worker_totals *totals)
{
    fth_tally recent;
    double pace = NAN;
    fth_worker_totals_get_recent(totals, &recent, &pace);
    return fth_tally_samples_per_s(&recent);
}

/* With sync the gradients of a step come all at once, after the time that the slowest of the
 * workers took. What the live line shows must be all of them over that time, also when some of the
 * next step's have come already. */
static void test_rate_of_sync(void **state)
{
    (void)state;
    enum { WORKERS = 32 };
    const double step_s = 4;
    double now = 100;
    fth_worker_totals *totals = NULL;
    assert_int_equal(fth_worker_totals_create(now, &totals), FTH_OK);
    for (int step = 0; step < 20; step++) {
        now += step_s;
        for (int worker = 0; worker < WORKERS; worker++) {
            const fth_gradient gradient = gradient_of(1.5, 8);
            fth_worker_totals_add(totals, &gradient);
            if (step > 0)
                assert_float_equal(recent_rate(totals), WORKERS * SAMPLES / step_s, 1e-9);
        }
        fth_worker_totals_end_step(totals, now);
        assert_float_equal(recent_rate(totals), WORKERS * SAMPLES / step_s, 1e-9);
    }
    fth_worker_totals_free(totals);
}

static void test_rate_of_async(void **state)
{
    (void)state;
    double now = 0, pace = NAN;
    fth_tally recent;
    fth_worker_totals *totals = NULL;
    assert_int_equal(fth_worker_totals_create(now, &totals), FTH_OK);
    assert_true(isnan(recent_rate(totals)));
    for (int step = 0; step < 50; step++) {
        const fth_gradient gradient = gradient_of(0.5, 4);
        fth_worker_totals_add(totals, &gradient);
        fth_worker_totals_end_step(totals, now += 0.25);
    }
    fth_worker_totals_get_recent(totals, &recent, &pace);
    assert_float_equal(fth_tally_samples_per_s(&recent), SAMPLES / 0.25, 1e-9);
    assert_float_equal(fth_tally_loss(&recent), 0.5, 1e-9);
    assert_float_equal(fth_tally_accuracy(&recent), 0.25, 1e-9);
    assert_float_equal(pace, SAMPLES / 0.25, 1e-6);
    fth_worker_totals_free(totals);
}

static void test_lines_of_the_record(void **state)
{
    (void)state;
    fth_worker_totals *totals = NULL;
    fth_worker_totals_line line;
    const fth_gradient known = gradient_of(2, 8), unknown = gradient_of(NAN, -1);
    assert_int_equal(fth_worker_totals_create(10, &totals), FTH_OK);
    assert_false(fth_worker_totals_take_line(totals, 20, true, &line)); /* nothing has come */
    fth_worker_totals_add(totals, &known);
    fth_worker_totals_add(totals, &unknown);
    assert_false(fth_worker_totals_take_line(totals, 11, false, &line)); /* too early */
    assert_true(fth_worker_totals_take_line(totals, 14, false, &line));
    assert_int_equal(line.pushes, 2);
    assert_int_equal(line.samples, 2 * SAMPLES);
    assert_float_equal(line.samples_per_s, 2 * SAMPLES / 4.0, 1e-9);
    assert_float_equal(line.loss, 2, 1e-9); /* of the worker that said */
    assert_float_equal(line.accuracy, 0.5, 1e-9);
    assert_false(fth_worker_totals_take_line(totals, 14, true, &line));
    fth_worker_totals_add(totals, &unknown);
    assert_true(fth_worker_totals_take_line(totals, 15, true, &line));
    assert_true(isnan(line.loss) && isnan(line.accuracy) && line.samples_per_s == SAMPLES);
    fth_worker_totals_free(totals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_of_sync),
        cmocka_unit_test(test_rate_of_async),
        cmocka_unit_test(test_lines_of_the_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
