/* The scaling model against steps that can be counted by hand, and links as text. */
#include "support.h"

#include <math.h>

#include "parallel/scaling_model.h"

static void assert_close(double value, double expected)
{
    assert_true(fabs(value - expected) <= 1e-9 * fabs(expected));
}

/* 0.3 s forward; then four layers of 250,000 floats, finished at 0.4, 0.6, 0.8 and 1.0 s. */
static const fth_ready_point even[] = {{0.4, 250000}, {0.6, 500000}, {0.8, 750000}, {1.0, 1000000}};
static const fth_worker_profile worker = {
    .compute_s = 1.0, .update_s = 0.05, .timeline = even, .timeline_count = FTH_COUNT_OF(even)};

static fth_scaling_exchange exchange(int workers, double fixed_s, double seconds_per_byte)
{
    return (fth_scaling_exchange){.cost = {fixed_s, seconds_per_byte}, .workers = workers, .bytes_per_float = 4};
}

static void test_one_worker_exchanges_nothing(void **state)
{
    (void)state;
    fth_scaling_exchange alone = exchange(1, 1, 1);
    fth_step_prediction step = fth_scaling_predict(&worker, &alone, 1000);
    assert_close(step.step_s, 1.05);
    assert_close(step.exposed_s, 0);
    assert_int_equal(step.limit, FTH_LIMITED_BY_NOTHING);
}

static void test_one_bucket_is_exposed_whole(void **state)
{
    (void)state;
    fth_scaling_exchange two = exchange(2, 0.01, 1e-7); /* 4 MB: 0.4 s */
    fth_step_prediction step = fth_scaling_predict(&worker, &two, 0);
    assert_int_equal(step.buckets, 1);
    assert_close(step.exposed_s, 0.41 + 2 * 0.01); /* with two sums of a few bytes */
    assert_close(step.step_s, 1.05 + 0.43);
    assert_int_equal(step.limit, FTH_LIMITED_BY_BANDWIDTH);
}

static void test_only_the_last_bucket_is_exposed_where_the_link_keeps_up(void **state)
{
    (void)state;
    fth_scaling_exchange two = exchange(2, 0.01, 1e-7); /* a bucket: 0.11 s, every 0.2 s */
    fth_step_prediction step = fth_scaling_predict(&worker, &two, 250000);
    assert_int_equal(step.buckets, 4);
    assert_close(step.exposed_s, 0.11 + 2 * 0.01);
    assert_close(step.exchange_s, 4 * 0.11 + 2 * 0.01);
}

static void test_buckets_wait_for_each_other_where_it_does_not(void **state)
{
    (void)state;
    fth_scaling_exchange two = exchange(2, 0, 1e-6); /* a bucket: 1 s */
    fth_step_prediction step = fth_scaling_predict(&worker, &two, 250000);
    assert_close(step.exposed_s, 0.4 + 4 - 1.0);
}

static void test_a_bucket_is_ready_with_its_last_float(void **state)
{
    (void)state;
    fth_scaling_exchange two = exchange(2, 0.1, 0);
    /* 300,000 floats need the second layer; the fourth bucket has the last 100,000. */
    fth_step_prediction step = fth_scaling_predict(&worker, &two, 300000);
    assert_int_equal(step.buckets, 4);
    assert_close(step.exposed_s, 0.2 + 2 * 0.1); /* two are ready at 1.0 s: [600,000 ..) and [900,000 ..) */
}

static void test_half_the_bytes_take_half_the_time(void **state)
{
    (void)state;
    fth_scaling_exchange two = exchange(2, 0, 1e-7);
    two.bytes_per_float = 2;
    assert_close(fth_scaling_predict(&worker, &two, 0).exposed_s, 0.2);
}

static void test_a_sharded_update_is_divided_and_gathered(void **state)
{
    (void)state;
    fth_scaling_exchange four = exchange(4, 0, 1e-7);
    four.sharded_update = true;
    /* Half of 0.4 s behind the backward pass, half behind the update, of which each has a
     * quarter. */
    fth_step_prediction step = fth_scaling_predict(&worker, &four, 0);
    assert_close(step.step_s, 1.0 + 0.2 + 0.05 / 4 + 0.2);
}

static void test_slow_data_and_stragglers_limit(void **state)
{
    (void)state;
    fth_worker_profile slow = worker;
    fth_scaling_exchange eight = exchange(8, 0, 1e-10);
    slow.data_s = 2;
    fth_step_prediction step = fth_scaling_predict(&slow, &eight, 0);
    assert_close(step.step_s, 2);
    assert_int_equal(step.limit, FTH_LIMITED_BY_DATA);
    slow.data_s = 0;
    slow.jitter_s = 0.1;
    step = fth_scaling_predict(&slow, &eight, 0);
    assert_true(fabs(step.waiting_s - 0.142) < 0.005); /* the mean of the largest of eight: 1.42 deviations */
    assert_int_equal(step.limit, FTH_LIMITED_BY_STRAGGLERS);
}

static void test_accumulated_batches_come_before(void **state)
{
    (void)state;
    fth_worker_profile accumulating = worker;
    accumulating.before_s = 3;
    fth_scaling_exchange two = exchange(2, 0, 1e-7);
    assert_close(fth_scaling_predict(&accumulating, &two, 0).step_s, 3 + 1.05 + 0.4);
}

static void test_costs_of_groups(void **state)
{
    (void)state;
    fth_scaling_group group = {
        .nodes = 8, .workers_per_node = 1, .link = {1e-3, 1e6}, .local = {1e-5, 1e9}, .rounds = FTH_ROUNDS_DIRECT};
    fth_scaling_cost cost = fth_scaling_cost_of(&group);
    assert_close(cost.fixed_s, 2e-3);
    assert_close(cost.seconds_per_byte, 2 * 7.0 / 8 / 1e6);
    group.rounds = FTH_ROUNDS_TREE;
    assert_close(fth_scaling_cost_of(&group).fixed_s, 6e-3);
    group.rounds = FTH_ROUNDS_RING;
    assert_close(fth_scaling_cost_of(&group).fixed_s, 14e-3);
    group.workers_per_node = 4;
    cost = fth_scaling_cost_of(&group);
    assert_close(cost.fixed_s, 14e-3 + 2e-5);
    assert_close(cost.seconds_per_byte, 2 * 7.0 / 8 / 1e6 + 2 * 3 / 1e9);
    group.nodes = group.workers_per_node = 1;
    cost = fth_scaling_cost_of(&group);
    assert_close(cost.fixed_s + cost.seconds_per_byte, 0);
}

/* On a link without latency small buckets are best; with much of it, one or two large ones; and
 * what is chosen is never worse than any size one could give by hand. */
static void test_the_chosen_bucket_is_the_best(void **state)
{
    (void)state;
    static const double fixed[] = {0, 1e-4, 1e-3, 1e-2, 0.1, 1};
    size_t before = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(fixed); i++) {
        fth_scaling_exchange four = exchange(4, fixed[i], 1e-7);
        size_t chosen = fth_scaling_choose_bucket(&worker, &four);
        double chosen_s = fth_scaling_predict(&worker, &four, chosen).step_s;
        assert_true(chosen >= before); /* more latency, larger buckets */
        before = chosen;
        for (size_t floats = 20000; floats <= 1000000; floats += 10000)
            assert_true(chosen_s <= fth_scaling_predict(&worker, &four, floats).step_s * 1.005);
    }
    assert_int_equal(before, 1000000);
}

static void test_links_as_text(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",          "25",          "25Gbit,",    "-1Gbit,1us",
                                        "25Gbit,50", "25Gbits,1us", "25Gbit;1us", "25Gbit,1us,2us",
                                        "nanGbit",   "0Mbit,1ms"};
    fth_link link;
    char text[64];
    assert_int_equal(fth_link_parse("25Gbit,50us", &link), FTH_OK);
    assert_close(link.bytes_per_s, 25e9 / 8);
    assert_close(link.latency_s, 50e-6);
    assert_int_equal(fth_link_parse("390.625Mbit,1.5ms", &link), FTH_OK);
    assert_close(link.bytes_per_s, 390.625e6 / 8);
    assert_close(link.latency_s, 1.5e-3);
    fth_link_format(&link, text, sizeof text);
    assert_string_equal(text, "390.6Mbit,1.5ms");
    assert_int_equal(fth_link_parse("3GB", &link), FTH_OK);
    assert_close(link.bytes_per_s, 3e9);
    assert_close(link.latency_s, 50e-6);
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        assert_int_equal(fth_link_parse(wrong[i], &link), FTH_INVALID);
        assert_message_of(wrong[i], "such as");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker_exchanges_nothing),
        cmocka_unit_test(test_one_bucket_is_exposed_whole),
        cmocka_unit_test(test_only_the_last_bucket_is_exposed_where_the_link_keeps_up),
        cmocka_unit_test(test_buckets_wait_for_each_other_where_it_does_not),
        cmocka_unit_test(test_a_bucket_is_ready_with_its_last_float),
        cmocka_unit_test(test_half_the_bytes_take_half_the_time),
        cmocka_unit_test(test_a_sharded_update_is_divided_and_gathered),
        cmocka_unit_test(test_slow_data_and_stragglers_limit),
        cmocka_unit_test(test_accumulated_batches_come_before),
        cmocka_unit_test(test_costs_of_groups),
        cmocka_unit_test(test_the_chosen_bucket_is_the_best),
        cmocka_unit_test(test_links_as_text),
    };
    return cmocka_run_group_tests_name("parallel_scaling_model", tests, NULL, NULL);
}
