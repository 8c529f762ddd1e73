/* Sizes that can be counted by hand, and which of them is chosen. */
#include "support.h"

#include <math.h>

#include "parallel/scaling_advice.h"

static void assert_close(double value, double expected)
{
    assert_true(fabs(value - expected) <= 1e-9 * fabs(expected));
}

static const fth_ready_point end[] = {{1.0, 1000000}};
static const fth_worker_profile worker = {.compute_s = 1.0, .timeline = end, .timeline_count = 1};

static fth_scaling_run a_run(double bytes_per_s)
{
    return (fth_scaling_run){.samples = 1000,
                             .batch = 100,
                             .accumulate = 1,
                             .learning_rate = 0.1,
                             .workers_per_node = 1,
                             .link = {0, bytes_per_s},
                             .local = {0, 1e9},
                             .bytes_per_float = 4,
                             .usd_per_hour = 3.6};
}

static void test_a_global_batch_is_divided(void **state)
{
    (void)state;
    fth_scaling_run run = a_run(INFINITY);
    assert_int_equal(fth_scaling_worker_batch(&run, 1), 100);
    assert_int_equal(fth_scaling_worker_batch(&run, 8), 13); /* the largest part */
    run.batch_per_worker = 100;
    assert_int_equal(fth_scaling_worker_batch(&run, 8), 100);
    assert_int_equal(fth_scaling_worker_batch(&run, 20), 50); /* no more than there are */
    run.workers_per_node = 4;
    assert_int_equal(fth_scaling_predict_size(&run, &worker, 2).batch, 800);
}

static void test_a_size(void **state)
{
    (void)state;
    fth_scaling_run run = a_run(8e6); /* two nodes: each byte crosses once in each direction: 0.5 s */
    run.batch_per_worker = 100;
    run.rate_rule = FTH_RATE_SQRT;
    fth_scaling_size sizes[] = {fth_scaling_predict_size(&run, &worker, 1), fth_scaling_predict_size(&run, &worker, 2)};
    fth_scaling_compare(sizes, 2, &sizes[0]);
    assert_close(sizes[0].samples_per_s, 100);
    assert_close(sizes[0].epoch_s, 10);
    assert_close(sizes[0].epoch_usd, 0.01);
    assert_close(sizes[0].learning_rate, 0.1);
    assert_close(sizes[1].step.step_s, 1.5);
    assert_close(sizes[1].samples_per_s, 200 / 1.5);
    assert_close(sizes[1].epoch_s, 7.5);
    assert_close(sizes[1].epoch_usd, 0.015);
    assert_close(sizes[1].efficiency, 1 / 1.5);
    assert_close(sizes[1].learning_rate, 0.1 * sqrt(2));
    run.rate_rule = FTH_RATE_LINEAR;
    assert_close(fth_scaling_predict_size(&run, &worker, 2).learning_rate, 0.2);
}

static void test_steps_of_an_epoch_are_whole(void **state)
{
    (void)state;
    fth_scaling_run run = a_run(INFINITY);
    run.batch = 300;
    run.accumulate = 3;
    assert_close(fth_scaling_predict_size(&run, &worker, 1).epoch_s, 2); /* four batches: three, and one */
}

static fth_scaling_size made(int nodes, double epoch_s)
{
    return (fth_scaling_size){.nodes = nodes, .epoch_s = epoch_s, .epoch_usd = NAN};
}

static void test_perfect_scaling_chooses_all(void **state)
{
    (void)state;
    const fth_scaling_size sizes[] = {made(1, 80), made(2, 40), made(4, 20), made(8, 10)};
    fth_scaling_advice advice = fth_scaling_advise(sizes, 4);
    assert_int_equal(advice.cheapest, 0); /* all cost the same: no more nodes than needed */
    assert_int_equal(advice.fastest, 3);
    assert_int_equal(advice.balanced, 3);
    assert_true(advice.pays);
}

static void test_a_bad_link_chooses_few(void **state)
{
    (void)state;
    const fth_scaling_size sizes[] = {made(1, 80), made(2, 45), made(4, 35), made(8, 34)};
    fth_scaling_advice advice = fth_scaling_advise(sizes, 4);
    assert_int_equal(advice.cheapest, 0);
    assert_int_equal(advice.fastest, 3);
    assert_int_equal(advice.balanced, 1);
    assert_true(advice.pays);
}

static void test_scaling_out_may_not_pay(void **state)
{
    (void)state;
    const fth_scaling_size sizes[] = {made(1, 80), made(2, 75), made(4, 90)};
    fth_scaling_advice advice = fth_scaling_advise(sizes, 3);
    assert_int_equal(advice.balanced, 0);
    assert_int_equal(advice.fastest, 1);
    assert_false(advice.pays);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_global_batch_is_divided),   cmocka_unit_test(test_a_size),
        cmocka_unit_test(test_steps_of_an_epoch_are_whole), cmocka_unit_test(test_perfect_scaling_chooses_all),
        cmocka_unit_test(test_a_bad_link_chooses_few),      cmocka_unit_test(test_scaling_out_may_not_pay),
    };
    return cmocka_run_group_tests_name("parallel_scaling_advice", tests, NULL, NULL);
}
