/* The bill as a reader sees it: rows, totals, hints, and what happens to long ones. */
#include "support.h"

#include <math.h>
#include <unistd.h>

#include "report/report.h"

static int set_up(void **state)
{
    setenv("FARTHING_ASCII", "1", 1);
    return test_make_folder(state);
}

/* Machines of ten seconds each, of ten steps; of each but the last two steps are undone. */
static fth_record_summary make_run(const char *id, int machines, const char *price)
{
    char *events = NULL;
    size_t size;
    FILE *file = open_memstream(&events, &size);
    for (int i = 0; i < machines; i++) {
        int step = 8 * i, time = 1000 * (i + 1);
        fprintf(file,
                "{\"event\":\"%s\",\"time\":%d,\"step\":%d,\"epoch\":%.1f,\"elapsed_s\":%d,\"host\":\"vm\"%s%s}\n",
                i ? "resume" : "start", time, step, step / 10.0, step, *price ? "," : "", price);
        fprintf(file,
                "{\"event\":\"step\",\"time\":%d,\"step\":%d,\"epoch\":%.1f,\"elapsed_s\":%d,\"loss\":1,"
                "\"learning_rate\":0.05}\n",
                time + 10, step + 10, (step + 10) / 10.0, step + 10);
    }
    fclose(file);
    test_write("events.jsonl", events, size);
    free(events);
    char *run = fth_format("{\"id\": \"%s\", \"configuration\": {\"optimizer\": \"sgd\", \"momentum\": 0.9}}", id);
    test_write_text("run.json", run);
    free(run);
    fth_record_summary summary;
    assert_int_equal(fth_record_read(test_folder, &summary), FTH_OK);
    return summary;
}

static char *report(const fth_record_summary *run)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(fth_report_run(file, run, NULL, 60), FTH_OK);
    fclose(file);
    return text;
}

static void contains(const char *text, const char *expected)
{
    if (!strstr(text, expected))
        fail_msg("no \"%s\" in:\n%s", expected, text);
}

static void lacks(const char *text, const char *unexpected)
{
    if (strstr(text, unexpected))
        fail_msg("\"%s\" in:\n%s", unexpected, text);
}

static const char *const dear = "\"price_usd_per_hour\":3.6";

/* Killed right after a checkpoint, as far as the record tells: that nothing was lost is not
 * known. */
static void what_was_lost_is_unknown(void **state)
{
    (void)state;
    test_write_text("run.json", "{\"id\": \"killed\", \"configuration\": {}}");
    test_write_text("events.jsonl",
                    "{\"event\":\"start\",\"time\":1000,\"price_usd_per_hour\":3.6}\n"
                    "{\"event\":\"step\",\"time\":1010,\"step\":10,\"epoch\":1,\"elapsed_s\":10,\"loss\":1}\n"
                    "{\"event\":\"resume\",\"time\":2000,\"step\":10,\"epoch\":1,\"elapsed_s\":10,"
                    "\"price_usd_per_hour\":3.6}\n"
                    "{\"event\":\"end\",\"time\":2010,\"steps\":20,\"epochs\":2,\"elapsed_s\":20}\n");
    fth_record_summary run;
    assert_int_equal(fth_record_read(test_folder, &run), FTH_OK);
    char *text = report(&run);
    contains(text, "lost               unknown  unknown  unknown");
    contains(text, "none: killed      -     -       10     unknown  unknown  unknown  machine");
    lacks(text, ">=");
    lacks(text, "lost               0.0s");
    free(text);
    fth_record_release(&run);
}

static void rows_and_total(void **state)
{
    (void)state;
    fth_record_summary run = make_run("moved", 3, dear);
    char *text = report(&run);
    contains(text, "machine       rate  seconds    lost     cost  epochs    lr  momentum  val. accuracy");
    contains(text, "vm       $3.6000/h     10.0  >= 2.0  $0.0100     0.8  0.05       0.9              -");
    contains(text, "total                  30.0  >= 4.0  $0.0300     2.6                              -");
    contains(text, "lost (4 steps undone)  >= 4.0s  >= 13.3 %  >= $0.0040");
    contains(text, "none: killed      -     -       10        >= 2  >= 2.0  >= $0.0020");
    contains(text, "vm after 16m30s");
    lacks(text, "no price");
    free(text);
    fth_record_release(&run);
}

static void without_a_price(void **state)
{
    (void)state;
    fth_record_summary run = make_run("free", 2, "");
    char *text = report(&run);
    contains(text, "machine  seconds    lost  epochs    lr  momentum  val. accuracy");
    contains(text, "no price is known, so no cost: train with --price");
    lacks(text, "$");
    free(text);
    fth_record_release(&run);

    run = make_run("one", 1, "");
    text = report(&run);
    contains(text, "no price is known");
    lacks(text, "momentum  val. accuracy"); /* one machine without a price is in the facts above already */
    free(text);
    fth_record_release(&run);
}

static void a_hundred_machines(void **state)
{
    (void)state;
    fth_record_summary run = make_run("busy", 100, dear);
    char *text = report(&run);
    contains(text, "100 x vm  $3.6000/h    1,000  >= 198  $1.0000    80.2");
    contains(text, "and 87 more interruptions; --json has them all");
    free(text);
    fth_record_summary shorter = make_run("quieter", 14, dear);
    text = report(&shorter);
    contains(text, "and 1 more interruption; --json has them all");
    free(text);
    fth_record_release(&shorter);
    json_t *json = fth_report_json(&run, NULL);
    json_t *bill = json_object_get(json, "bill");
    assert_int_equal(json_array_size(json_object_get(bill, "machines")), 100);
    assert_true(fabs(json_number_value(json_object_get(bill, "usd")) - 1) < 1e-9);
    assert_int_equal(json_integer_value(json_object_get(bill, "steps_lost")), 198);
    json_decref(json);
    fth_record_release(&run);
}

static void several_runs(void **state)
{
    (void)state;
    fth_record_summary runs[2] = {make_run("first", 2, dear), make_run("second", 1, "")};
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(fth_report_bills(file, runs, 2), FTH_OK);
    fclose(file);
    contains(text, "A  first\nB  second\n");
    contains(text, "A    total");
    contains(text, "all  total                  30.0  >= 2.0  $0.0200     2.8");
    contains(text, "1 of 3 machines has no price");
    free(text);
    fth_record_release(&runs[0]);
    fth_record_release(&runs[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_total),  cmocka_unit_test(what_was_lost_is_unknown),
        cmocka_unit_test(without_a_price), cmocka_unit_test(a_hundred_machines),
        cmocka_unit_test(several_runs),
    };
    return cmocka_run_group_tests(tests, set_up, test_remove_folder);
}
