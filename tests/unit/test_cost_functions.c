/* The cost of functions: their prices, what a run's invocations come to, and a VM beside them.
 * Prices are chosen so that sums can be made in the head. */
#include "support.h"

#include <math.h>

#include "cost/cost.h"

static const char prices[] = "- {cloud: aws, instance: small, market: on-demand, vcpus: 4, usd_per_hour: 3.6}\n"
                             "- {cloud: aws, instance: small, market: spot, vcpus: 4, usd_per_hour: 1.8}\n"
                             "- {cloud: aws, instance: large, market: on-demand, vcpus: 100, usd_per_hour: 72}\n"
                             "- {cloud: gcp, instance: cheaper, vcpus: 4, usd_per_hour: 0.36}\n"
                             "- {cloud: aws, instance: burst, usd_per_hour: 0.01}\n"
                             "- {cloud: aws, function: lambda, region: us-east-1, usd_per_gb_second: 0.001,\n"
                             "   usd_per_million_requests: 1000, usd_per_gb_out: 0.5, mb_per_vcpu: 2048}\n"
                             "- {cloud: own, function: openwhisk, usd_per_gb_second: 0}\n";

static void near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-9))
        fail_msg("%.12g, not %.12g", value, expected);
}

static void read_prices(const char *text, fth_catalogue *catalogue)
{
    assert_int_equal(fth_catalogue_parse(text, strlen(text), "my.yaml", catalogue), FTH_OK);
}

static void rows_of_functions(void **state)
{
    (void)state;
    fth_catalogue catalogue;
    read_prices(prices, &catalogue);
    assert_int_equal(catalogue.count, 5);
    assert_int_equal(catalogue.function_count, 2);
    near(catalogue.prices[2].vcpus, 100);
    near(catalogue.prices[4].vcpus, 0);
    const fth_function_price *price = fth_function_price_find(&catalogue, "lambda", "");
    assert_string_equal(price->cloud, "aws");
    near(price->usd_per_gb_second, 0.001);
    near(price->usd_per_million_requests, 1000);
    near(price->usd_per_gb_out, 0.5);
    near(price->mb_per_vcpu, 2048);
    price = fth_function_price_find(&catalogue, "openwhisk", "anywhere");
    near(price->usd_per_gb_second + price->usd_per_million_requests + price->usd_per_gb_out + price->mb_per_vcpu, 0);
    assert_null(fth_function_price_find(&catalogue, "elsewhere", ""));
    fth_catalogue_release(&catalogue);
}

static void the_region_decides(void **state)
{
    (void)state;
    fth_catalogue catalogue;
    read_prices("- {cloud: aws, function: lambda, region: eu-west-1, usd_per_gb_second: 3}\n"
                "- {cloud: aws, function: lambda, usd_per_gb_second: 2}\n"
                "- {cloud: aws, function: lambda, region: us-east-1, usd_per_gb_second: 1}\n",
                &catalogue);
    near(fth_function_price_find(&catalogue, "lambda", "us-east-1")->usd_per_gb_second, 1);
    near(fth_function_price_find(&catalogue, "lambda", "us-west-2")->usd_per_gb_second, 2);
    near(fth_function_price_find(&catalogue, "lambda", "")->usd_per_gb_second, 2);
    fth_catalogue_release(&catalogue);
}

static void rows_that_are_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"- {cloud: aws, function: lambda}\n", "line 1: this price has no usd_per_gb_second"},
        {"- {function: lambda, usd_per_gb_second: 1}\n", "no cloud"},
        {"- {cloud: aws, function: lambda, instance: x, usd_per_gb_second: 1}\n",
         "the price of a function has no instance"},
        {"- {cloud: aws, function: lambda, usd_per_gb_second: 1, usd_per_hour: 1}\n", "has no usd_per_hour"},
        {"- {cloud: aws, function: lambda, usd_per_gb_second: 1, market: spot}\n", "has no market"},
        {"- {cloud: aws, function: lambda, usd_per_gb_second: 1, vcpus: 1}\n", "has no vcpus"},
        {"- {cloud: aws, instance: x, usd_per_hour: 1, usd_per_gb_out: 1}\n",
         "the price of a machine has no usd_per_gb_out"},
        {"- {cloud: aws, instance: x, usd_per_hour: 1, mb_per_vcpu: 1}\n", "has no mb_per_vcpu"},
        {"\n- {cloud: aws, function: lambda, usd_per_gb_second: -1}\n",
         "my.yaml line 2: usd_per_gb_second \"-1\" is not a number"},
        {"- {cloud: aws, function: lambda, usd_per_gb_second: 0x10}\n", "is not a number"},
        {"- {cloud: aws, function: lambda, usd_per_gb_second: nan}\n", "is not a number"},
        {"- {cloud: aws, function: lambda, usd_per_gb_second: 1e9}\n", "is not a number"},
        {"- {cloud: aws, function: lambda, usd_per_gb_seconds: 1}\n", "did you mean 'usd_per_gb_second'?"},
        {"- {cloud: aws, function: lambda, usd_per_gb_second: 1}\n- {cloud: aws, function: lambda, "
         "usd_per_gb_second: 2}\n",
         "line 2: this price was already given on line 1"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_catalogue catalogue;
        assert_int_equal(fth_catalogue_parse(cases[i].text, strlen(cases[i].text), "my.yaml", &catalogue), FTH_INVALID);
        assert_message_of(cases[i].text, cases[i].message);
        fth_catalogue_release(&catalogue);
    }
}

static fth_record_summary read_events(const char *events)
{
    test_write_text("run.json", "{\"id\": \"made\", \"configuration\": {}}");
    test_write_text("events.jsonl", events);
    fth_record_summary summary;
    assert_int_equal(fth_record_read(test_folder, &summary), FTH_OK);
    return summary;
}

static const char events[] =
    "{\"event\":\"start\",\"time\":1000,\"process_s\":0,\"price_usd_per_hour\":3.6}\n"
    "{\"event\":\"invocation\",\"time\":1010,\"provider\":\"lambda\",\"function\":\"f\",\"memory_mb\":2048,\"seconds\":"
    "9.9991,"
    "\"cold\":true,\"sent_bytes\":1e9,\"received_bytes\":5,\"peak_bytes\":50,\"ended\":\"done\"}\n"
    "{\"event\":\"invocation\",\"time\":1010,\"provider\":\"lambda\",\"function\":\"f\",\"memory_mb\":2048,\"seconds\":"
    "4,"
    "\"cold\":false,\"sent_bytes\":1e9,\"peak_bytes\":70,\"ended\":\"deadline\"}\n"
    "{\"event\":\"invocation\",\"time\":1010,\"provider\":\"lambda\",\"function\":\"f\",\"memory_mb\":2048,\"seconds\":"
    "1,"
    "\"ended\":\"lost\"}\n"
    "{\"event\":\"invocation\",\"time\":1010,\"provider\":\"lambda\",\"function\":\"f\",\"memory_mb\":2048,\"seconds\":"
    "0,"
    "\"ended\":\"error\"}\n"
    "{\"event\":\"step\",\"time\":1010,\"step\":10,\"epoch\":1,\"elapsed_s\":10,\"loss\":1}\n"
    "{\"event\":\"end\",\"time\":1010,\"process_s\":10,\"steps\":10,\"epochs\":1,\"elapsed_s\":10}\n"
    "{\"event\":\"invocation\",\"time\":1011,\"provider\":\"lambda\",\"function\":\"g\",\"memory_mb\":1024,\"seconds\":"
    "2,"
    "\"ended\":\"done\"}\n";

static void invocations_are_added_up(void **state)
{
    (void)state;
    fth_catalogue catalogue;
    fth_ledger ledger;
    read_prices(prices, &catalogue);
    fth_record_summary run = read_events(events);
    assert_true(run.finished); /* a function that ends after the run does not open it again */
    assert_true(fth_ledger_has_functions(&run));
    fth_ledger_price_functions(&run, &catalogue);
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    assert_int_equal(ledger.function_count, 2);
    const fth_ledger_function *f = &ledger.functions[0];
    assert_string_equal(f->function, "f");
    assert_int_equal(f->invocations, 4);
    assert_int_equal(f->cold, 1);
    assert_int_equal(f->lost, 1);
    assert_int_equal(f->failed, 1);
    near(f->seconds, 14.9991);
    near(f->gb_s, 30); /* 9.9991 s are billed as 10 */
    near(f->sent_bytes, 2e9);
    near(f->received_bytes, 5);
    near(f->peak_bytes, 70);
    near(f->usd, 0.030 + 4 * 0.001 + 1.0);
    near(f->lost_usd, 0.002 + 0.001);
    near(ledger.functions[1].usd, 0.002 + 0.001);
    assert_true(isnan(ledger.functions[1].sent_bytes));
    near(ledger.functions_usd, 1.037);
    near(ledger.usd, 1.037 + ledger.rows[0].usd);
    near(ledger.usd_per_epoch, ledger.usd);

    fth_ledger_vm vm;
    assert_true(fth_ledger_compare_vm(&ledger, &catalogue, 60, &vm));
    assert_string_equal(vm.on_demand->instance, "small"); /* 16 vCPU-seconds on 4; large would start for $1.20 */
    near(vm.seconds, 64);
    near(vm.on_demand_usd, 0.064);
    near(vm.spot_usd, 0.032);
    assert_true(fth_ledger_compare_vm(&ledger, &catalogue, 0, &vm));
    near(vm.seconds, 4);
    near(vm.on_demand_usd, 0.060); /* a minute is the least */
    fth_ledger_release(&ledger);
    fth_record_release(&run);
    fth_catalogue_release(&catalogue);
}

static void functions_without_a_price(void **state)
{
    (void)state;
    fth_catalogue catalogue;
    fth_ledger ledger;
    fth_ledger_vm vm;
    read_prices(prices, &catalogue);
    fth_record_summary run = read_events(
        "{\"event\":\"start\",\"time\":1000,\"process_s\":0,\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"invocation\",\"time\":1001,\"provider\":\"elsewhere\",\"memory_mb\":128,\"seconds\":1}\n"
        "{\"event\":\"invocation\",\"time\":1001,\"provider\":\"lambda\",\"seconds\":1}\n"
        "{\"event\":\"invocation\",\"time\":1001,\"provider\":7,\"memory_mb\":-5,\"seconds\":\"x\",\"ended\":[]}\n"
        "{\"event\":\"invocation\",\"time\":1001}\n"
        "{\"event\":\"end\",\"time\":1010,\"process_s\":10,\"steps\":10,\"epochs\":1,\"elapsed_s\":10}\n");
    fth_ledger_price_functions(&run, &catalogue);
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    assert_int_equal(ledger.function_count, 3);
    assert_true(isnan(ledger.functions_usd) && isnan(ledger.functions[0].usd));
    near(ledger.usd, ledger.rows[0].usd);
    assert_true(isnan(ledger.usd_per_epoch));
    assert_false(fth_ledger_compare_vm(&ledger, &catalogue, 60, &vm));
    fth_ledger_release(&ledger);
    fth_record_release(&run);
    fth_catalogue_release(&catalogue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_functions),         cmocka_unit_test(the_region_decides),
        cmocka_unit_test(rows_that_are_wrong),       cmocka_unit_test(invocations_are_added_up),
        cmocka_unit_test(functions_without_a_price),
    };
    return cmocka_run_group_tests(tests, test_make_folder, test_remove_folder);
}
