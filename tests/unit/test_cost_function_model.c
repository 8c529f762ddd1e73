/* Functions or a VM: the model's sums, and where one becomes cheaper than the other. */
#include "support.h"

#include <math.h>

#include "cost/function_model.h"

/* Lambda's and an m6i.xlarge's list prices. */
static const fth_function_price lambda = {.cloud = "aws",
                                          .provider = "lambda",
                                          .usd_per_gb_second = 0.0000166667,
                                          .usd_per_million_requests = 0.2,
                                          .usd_per_gb_out = 0.09,
                                          .mb_per_vcpu = 1769};
static const fth_price xlarge = {
    .cloud = "aws", .instance = "m6i.xlarge", .market = "on-demand", .usd_per_hour = 0.192, .vcpus = 4};

/* Ten functions of a vCPU each, and a job of batches of 10 ms with a push of 1 MB after every
 * 100. */
static fth_function_fleet make_fleet(void)
{
    return (fth_function_fleet){.price = &lambda,
                                .functions = 10,
                                .memory_mb = 1769,
                                .start_s = 0.5,
                                .limit_s = 900,
                                .latency_s = 0.001,
                                .bytes_per_s = 1e8,
                                .server_bytes_per_s = 1e9};
}

static fth_job_shape make_job(double samples)
{
    return (fth_job_shape){.samples = samples,
                           .batch = 100,
                           .batch_s = 0.01,
                           .batches_per_push = 100,
                           .push_bytes = 1e6,
                           .pull_bytes = 1e6};
}

static void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.12g, not %.12g", value, expected);
}

static void sums(void **state)
{
    (void)state;
    fth_function_fleet fleet = make_fleet();
    fth_job_shape job = make_job(1e6); /* 100 pushes: 10 rounds of 1 s, 2 ms and 20 ms */
    fth_job_estimate estimate = fth_estimate_functions(&job, &fleet);
    near(estimate.seconds, 10 * 1.022 + 0.5);
    near(estimate.invocations, 10);
    near(estimate.gb_s, 10 * estimate.seconds * 1769 / 1024);
    near(estimate.sent_bytes, 100e6);
    near(estimate.sending_usd, 0.1 * 0.09);
    near(estimate.exchange_share, 1 - 1 / 1.022);
    near(estimate.usd, estimate.gb_s * 0.0000166667 + 10 * 0.2e-6 + 0.1 * 0.09);
    near(fth_estimate_vm(&job, &xlarge, 60).seconds, 60 + 10000 * 0.01 / 4);
    near(fth_estimate_vm(&job, &xlarge, 60).usd, 85 * 0.192 / 3600);
    near(fth_estimate_vm(&job, &xlarge, 0).usd, 60 * 0.192 / 3600); /* a minute at least */
}

static void memory_brings_vcpus(void **state)
{
    (void)state;
    fth_function_fleet fleet = make_fleet();
    fth_job_shape job = make_job(1e6);
    job.push_bytes = job.pull_bytes = fleet.latency_s = fleet.start_s = 0;
    double usd = fth_estimate_functions(&job, &fleet).usd, seconds = fth_estimate_functions(&job, &fleet).seconds;
    fleet.memory_mb /= 4;
    near(fth_estimate_functions(&job, &fleet).seconds, 4 * seconds);
    near(fth_estimate_functions(&job, &fleet).usd, usd); /* the same work at the same price */
}

static void invocations_end(void **state)
{
    (void)state;
    fth_function_fleet fleet = make_fleet();
    fth_job_shape job = make_job(1e6);
    fleet.limit_s = 2.5 + 3 * 1.022 + 0.1; /* a start, three rounds, the margin, and not a fourth round */
    fth_job_estimate estimate = fth_estimate_functions(&job, &fleet);
    near(estimate.invocations, 40);
    near(estimate.seconds, 10 * 1.022 + 4 * 0.5);
    fleet.limit_s = 3;
    estimate = fth_estimate_functions(&job, &fleet);
    assert_true(isinf(estimate.seconds) && isinf(estimate.usd));
}

static void the_server_limits(void **state)
{
    (void)state;
    fth_function_fleet fleet = make_fleet();
    fth_job_shape job = make_job(1e8);
    double alone = fth_estimate_functions(&job, &fleet).seconds;
    fleet.functions = 100;
    assert_true(fth_estimate_functions(&job, &fleet).seconds < alone / 9.5);
    job.batches_per_push = 1; /* 100 functions with 2 MB for every 10 ms of work: 0.2 s a round */
    fth_job_estimate estimate = fth_estimate_functions(&job, &fleet);
    near(estimate.exchange_share, 1 - 0.01 / 0.2);
    fleet.functions = 1000; /* more do not help */
    assert_true(fth_estimate_functions(&job, &fleet).seconds > 0.99 * estimate.seconds);
}

static void short_jobs_are_cheaper_in_functions(void **state)
{
    (void)state;
    fth_function_fleet fleet = make_fleet();
    fth_job_shape job = make_job(1e4);
    double even = fth_estimate_break_even(&job, &fleet, &xlarge, 60);
    assert_true(even > 1e5 && even < 1e6);
    job.samples = 0.8 * even;
    assert_true(fth_estimate_functions(&job, &fleet).usd < fth_estimate_vm(&job, &xlarge, 60).usd);
    assert_true(fth_estimate_functions(&job, &fleet).seconds < fth_estimate_vm(&job, &xlarge, 60).seconds);
    job.samples = 1.25 * even;
    assert_true(fth_estimate_functions(&job, &fleet).usd > fth_estimate_vm(&job, &xlarge, 60).usd);
    /* Far beyond it both pay for vCPU-seconds alone, of which a function's cost twice to three
     * times as much. */
    job.samples = 1e10;
    job.push_bytes = 0;
    double ratio = fth_estimate_functions(&job, &fleet).usd / fth_estimate_vm(&job, &xlarge, 60).usd;
    assert_true(ratio > 2 && ratio < 3);
}

static void what_moves_the_crossing(void **state)
{
    (void)state;
    fth_function_fleet fleet = make_fleet();
    fth_job_shape job = make_job(1e4), chatty = job;
    const double even = fth_estimate_break_even(&job, &fleet, &xlarge, 60);
    chatty.batches_per_push = 1;
    assert_true(fth_estimate_break_even(&chatty, &fleet, &xlarge, 60) < even / 3); /* exchanges cost */
    assert_true(fth_estimate_break_even(&job, &fleet, &xlarge, 300) > 2 * even);   /* a VM that starts slowly */
    fth_price spot = xlarge;
    spot.usd_per_hour = 0.0768;
    assert_true(fth_estimate_break_even(&job, &fleet, &spot, 60) < even);
    fth_function_price free_of_charge = {.mb_per_vcpu = 1769};
    fleet.price = &free_of_charge;
    assert_true(isinf(fth_estimate_break_even(&job, &fleet, &xlarge, 60)));
    fth_function_price dear = {.mb_per_vcpu = 1769, .usd_per_gb_second = 1};
    fleet.price = &dear;
    assert_true(fth_estimate_break_even(&job, &fleet, &xlarge, 60) == 0);
}

static void which_vm(void **state)
{
    (void)state;
    static const char text[] = "- {cloud: gcp, instance: cheap, vcpus: 4, usd_per_hour: 0.01}\n"
                               "- {cloud: aws, instance: small, vcpus: 2, usd_per_hour: 0.2}\n"
                               "- {cloud: aws, instance: large, vcpus: 64, usd_per_hour: 3.2}\n"
                               "- {cloud: aws, instance: large, market: spot, vcpus: 64, usd_per_hour: 0.1}\n"
                               "- {cloud: aws, instance: unknown, usd_per_hour: 0.001}\n";
    fth_catalogue catalogue;
    fth_job_shape brief = make_job(1e5), long_one = make_job(1e9);
    assert_int_equal(fth_catalogue_parse(text, strlen(text), "my.yaml", &catalogue), FTH_OK);
    assert_string_equal(fth_estimate_choose_vm(&catalogue, "aws", "", &brief, 60)->instance, "small");
    assert_string_equal(fth_estimate_choose_vm(&catalogue, "aws", "", &long_one, 60)->instance, "large");
    assert_string_equal(fth_estimate_choose_vm(&catalogue, "own", "", &brief, 60)->instance, "cheap");
    const fth_price *large = fth_estimate_choose_vm(&catalogue, "own", "large", &brief, 60);
    assert_string_equal(large->instance, "large");
    near(fth_estimate_find_spot(&catalogue, large)->usd_per_hour, 0.1);
    assert_null(fth_estimate_choose_vm(&catalogue, "aws", "unknown", &brief, 60));
    assert_null(fth_estimate_find_spot(&catalogue, fth_estimate_choose_vm(&catalogue, "aws", "small", &brief, 60)));
    fth_catalogue_release(&catalogue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(memory_brings_vcpus),
        cmocka_unit_test(invocations_end),
        cmocka_unit_test(the_server_limits),
        cmocka_unit_test(short_jobs_are_cheaper_in_functions),
        cmocka_unit_test(what_moves_the_crossing),
        cmocka_unit_test(which_vm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
