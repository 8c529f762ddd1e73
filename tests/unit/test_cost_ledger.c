/* The ledger on records made by hand, with numbers that can be added up in the head: rates are
 * multiples of 3.6, so that a second costs a multiple of a thousandth of a dollar. */
#include "support.h"

#include <math.h>
#include <unistd.h>

#include "cost/cost.h"

static fth_record_summary read_events(const char *events)
{
    test_write_text("run.json", "{\"id\": \"made\", \"configuration\": {}}");
    test_write_text("events.jsonl", events);
    fth_record_summary summary;
    assert_int_equal(fth_record_read(test_folder, &summary), FTH_OK);
    return summary;
}

static void near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-9))
        fail_msg("%.12g, not %.12g", value, expected);
}

static void one_machine(void **state)
{
    (void)state;
    fth_record_summary run = read_events(
        "{\"event\":\"start\",\"time\":1002,\"process_s\":2,\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"step\",\"time\":1005,\"step\":10,\"epoch\":0.5,\"elapsed_s\":3,\"learning_rate\":0.1,\"loss\":1}"
        "\n"
        "{\"event\":\"epoch\",\"time\":1008,\"step\":20,\"epoch\":1,\"elapsed_s\":6,\"validation_loss\":0.5,"
        "\"validation_accuracy\":0.92}\n"
        "{\"event\":\"epoch\",\"time\":1014,\"step\":40,\"epoch\":2,\"elapsed_s\":12,\"validation_loss\":0.4,"
        "\"validation_accuracy\":0.96}\n"
        "{\"event\":\"end\",\"time\":1015,\"steps\":40,\"epochs\":2,\"elapsed_s\":13,\"loss\":0.4,\"accuracy\":0.96}"
        "\n");
    fth_ledger ledger;
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    assert_int_equal(ledger.count, 1);
    assert_int_equal(run.machines[0].ending, FTH_ENDING_FINISHED);
    near(run.machines[0].learning_rate, 0.1);
    near(ledger.seconds, 15);
    near(ledger.useful_s, 13);
    near(ledger.lost_s, 0);
    near(ledger.starting_s, 2);
    near(ledger.usd, 0.015);
    near(ledger.epochs, 2);
    near(ledger.usd_per_epoch, 0.0075);
    const fth_record_point *point = fth_ledger_reached(&ledger, 0.9);
    assert_int_equal(point->step, 20);
    near(fth_ledger_usd_at(&ledger, point), 0.008);
    near(fth_ledger_seconds_at(&ledger, point), 8);
    near(fth_ledger_usd_at(&ledger, fth_ledger_reached(&ledger, 0.95)), 0.014);
    assert_null(fth_ledger_reached(&ledger, 0.99));
    fth_ledger_release(&ledger);
    fth_record_release(&run);
}

/* An interrupted one that lost nothing, a killed one that lost steps 31 to 45, and one that
 * finished. */
static const char three[] =
    "{\"event\":\"start\",\"time\":1001,\"process_s\":1,\"price_usd_per_hour\":3.6,\"instance\":\"small\"}\n"
    "{\"event\":\"step\",\"time\":1011,\"step\":20,\"epoch\":1,\"elapsed_s\":10,\"loss\":1}\n"
    "{\"event\":\"notice\",\"time\":1011.5,\"step\":20,\"source\":\"aws\",\"seconds_given\":120}\n"
    "{\"event\":\"interrupted\",\"time\":1012,\"step\":20,\"epoch\":1,\"elapsed_s\":11.5}\n"
    "{\"event\":\"resume\",\"time\":2002,\"process_s\":2,\"step\":20,\"epoch\":1,\"elapsed_s\":11,"
    "\"price_usd_per_hour\":7.2,\"instance\":\"large\"}\n"
    "{\"event\":\"step\",\"time\":2007,\"step\":30,\"epoch\":1.5,\"elapsed_s\":16,\"loss\":0.8}\n"
    "{\"event\":\"checkpoint\",\"time\":2007,\"step\":30}\n"
    "{\"event\":\"epoch\",\"time\":2012,\"step\":40,\"epoch\":2,\"elapsed_s\":21,\"validation_loss\":0.3,"
    "\"validation_accuracy\":0.99}\n"
    "{\"event\":\"step\",\"time\":2015,\"step\":45,\"epoch\":2.25,\"elapsed_s\":24,\"loss\":0.7}\n"
    "{\"event\":\"resume\",\"time\":3001,\"process_s\":31,\"waited_s\":30,\"previous_seen_s\":2018,\"step\":30,"
    "\"epoch\":1.5,\"elapsed_s\":16,\"price_usd_per_hour\":3.6,\"instance\":\"small\"}\n"
    "{\"event\":\"epoch\",\"time\":3006,\"step\":40,\"epoch\":2,\"elapsed_s\":21,\"validation_loss\":0.3,"
    "\"validation_accuracy\":0.99}\n"
    "{\"event\":\"end\",\"time\":3007,\"steps\":40,\"epochs\":2,\"elapsed_s\":22,\"loss\":0.3,\"accuracy\":0.99}\n";

static void three_machines(void **state)
{
    (void)state;
    fth_record_summary run = read_events(three);
    fth_ledger ledger;
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    assert_int_equal(ledger.count, 3);
    const fth_ledger_row *row = ledger.rows;
    near(row[0].seconds, 12);
    near(row[0].useful_s, 11);
    near(row[0].starting_s, 1);
    near(row[0].usd, 0.012);
    near(row[0].epochs, 1);
    assert_true(isnan(row[0].accuracy) && isnan(row[1].accuracy));
    near(row[2].accuracy, 0.99);
    assert_int_equal(row[0].machine->ending, FTH_ENDING_INTERRUPTED);
    assert_non_null(row[0].machine->notice);

    near(row[1].seconds, 18); /* from 2000 to 2018, when it was last seen */
    near(row[1].useful_s, 5);
    near(row[1].lost_s, 11); /* eight seconds that are undone, and three after its last event */
    near(row[1].starting_s, 2);
    near(row[1].usd, 0.036);
    near(row[1].lost_usd, 0.022);
    near(row[1].epochs, 0.5);
    assert_int_equal(row[1].steps, 10);
    assert_int_equal(row[1].steps_lost, 15);
    assert_int_equal(row[1].machine->ending, FTH_ENDING_UNKNOWN);

    near(row[2].seconds, 7); /* waiting for the lease is not the run's */
    near(row[2].usd, 0.007);
    near(row[2].epochs, 0.5);

    near(ledger.seconds, 37);
    near(ledger.usd, 0.055);
    near(ledger.lost_usd, 0.022);
    near(ledger.lost_s, 11);
    near(ledger.useful_s, 22);
    near(ledger.epochs, 2);
    near(ledger.usd_per_epoch, 0.0275);
    assert_int_equal(ledger.steps_lost, 15);
    /* The second machine had reached it too, but that was undone. */
    const fth_record_point *point = fth_ledger_reached(&ledger, 0.99);
    assert_int_equal(point->machine, 2);
    near(fth_ledger_usd_at(&ledger, point), 0.012 + 0.036 + 0.006);
    fth_ledger_release(&ledger);
    fth_record_release(&run);
}

/* The last events of a machine that was killed died with it, but not its last checkpoint. */
static void events_that_were_lost(void **state)
{
    (void)state;
    fth_record_summary run = read_events(
        "{\"event\":\"start\",\"time\":1000,\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"step\",\"time\":1010,\"step\":10,\"epoch\":1,\"elapsed_s\":10,\"loss\":1}\n"
        "{\"event\":\"resume\",\"time\":2000,\"step\":15,\"epoch\":1.5,\"elapsed_s\":15,\"previous_seen_s\":1018,"
        "\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"step\",\"time\":2005,\"step\":20,\"epoch\":2,\"elapsed_s\":20,\"loss\":1}\n");
    fth_ledger ledger;
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    near(ledger.rows[0].seconds, 18);
    near(ledger.rows[0].useful_s, 15);
    near(ledger.rows[0].lost_s, 3); /* of the eight seconds of silence five were kept */
    near(ledger.rows[0].epochs, 1.5);
    near(ledger.epochs, 2);
    assert_int_equal(ledger.steps_lost, 0);
    fth_ledger_release(&ledger);
    fth_record_release(&run);
}

/* A resume from further back than the machine before began, since its newest checkpoint was
 * torn. */
static void undone_twice(void **state)
{
    (void)state;
    fth_record_summary run = read_events(
        "{\"event\":\"start\",\"time\":1000,\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"step\",\"time\":1020,\"step\":20,\"epoch\":2,\"elapsed_s\":20,\"loss\":1}\n"
        "{\"event\":\"resume\",\"time\":2000,\"step\":15,\"epoch\":1.5,\"elapsed_s\":15,\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"step\",\"time\":2005,\"step\":20,\"epoch\":2,\"elapsed_s\":20,\"loss\":1}\n"
        "{\"event\":\"resume\",\"time\":3000,\"step\":10,\"epoch\":1,\"elapsed_s\":10,\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"step\",\"time\":3010,\"step\":20,\"epoch\":2,\"elapsed_s\":20,\"loss\":1}\n");
    fth_ledger ledger;
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    near(ledger.rows[0].useful_s, 10);
    near(ledger.rows[0].lost_s, 10);
    near(ledger.rows[1].useful_s, 0);
    near(ledger.rows[1].lost_s, 5);
    assert_int_equal(ledger.rows[1].steps, 0);
    assert_int_equal(ledger.rows[1].steps_lost, 5);
    near(ledger.rows[1].epochs, 0);
    near(ledger.rows[2].useful_s, 10);
    near(ledger.epochs, 2);
    near(ledger.seconds, 35);
    near(ledger.usd, 0.035);
    near(ledger.lost_usd, 0.015);
    fth_ledger_release(&ledger);
    fth_record_release(&run);
}

static void unknown_prices(void **state)
{
    (void)state;
    fth_record_summary run = read_events(
        "{\"event\":\"start\",\"time\":1000}\n"
        "{\"event\":\"step\",\"time\":1010,\"step\":10,\"epoch\":1,\"elapsed_s\":10,\"loss\":1}\n"
        "{\"event\":\"resume\",\"time\":2000,\"step\":10,\"epoch\":1,\"elapsed_s\":10,\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"step\",\"time\":2010,\"step\":20,\"epoch\":2,\"elapsed_s\":20,\"loss\":1}\n");
    fth_ledger ledger;
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    assert_int_equal(ledger.priced, 1);
    assert_true(isnan(ledger.rows[0].usd));
    near(ledger.usd, 0.01); /* what is known */
    assert_true(isnan(ledger.usd_per_epoch));
    fth_ledger_release(&ledger);
    fth_ledger_assume_price(&run, 7.2, "a test"); /* for those that have none */
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    near(ledger.usd, 0.03);
    near(ledger.usd_per_epoch, 0.015);
    fth_ledger_release(&ledger);
    fth_record_release(&run);
}

/* The wall clock is set three hours ahead in mid-run, and back again on the next machine: nobody
 * worked longer for it. The second was killed; its process had run for 9 s when its lease was last
 * renewed. */
static void a_clock_that_jumps(void **state)
{
    (void)state;
    fth_record_summary run = read_events(
        "{\"event\":\"start\",\"time\":1002,\"process_s\":2,\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"step\",\"time\":1005,\"process_s\":5,\"step\":10,\"epoch\":0.5,\"elapsed_s\":3,\"loss\":1}\n"
        "{\"event\":\"epoch\",\"time\":11808,\"process_s\":8,\"step\":20,\"epoch\":1,\"elapsed_s\":6,"
        "\"validation_loss\":0.5,\"validation_accuracy\":0.92}\n"
        "{\"event\":\"interrupted\",\"time\":11809,\"process_s\":9,\"step\":20,\"epoch\":1,\"elapsed_s\":7}\n"
        "{\"event\":\"resume\",\"time\":11820,\"process_s\":4,\"waited_s\":3,\"step\":20,\"epoch\":1,\"elapsed_s\":7,"
        "\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"step\",\"time\":1025,\"process_s\":8,\"step\":30,\"epoch\":1.5,\"elapsed_s\":11,\"loss\":1}\n"
        "{\"event\":\"resume\",\"time\":1040,\"process_s\":11,\"waited_s\":10,\"previous_seen_s\":1026,"
        "\"previous_process_s\":9,\"step\":20,\"epoch\":1,\"elapsed_s\":7,\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"epoch\",\"time\":1045,\"process_s\":16,\"step\":40,\"epoch\":2,\"elapsed_s\":12,"
        "\"validation_loss\":0.4,\"validation_accuracy\":0.96}\n"
        "{\"event\":\"end\",\"time\":1045,\"process_s\":16,\"steps\":40,\"epochs\":2,\"elapsed_s\":12,\"loss\":0.4,"
        "\"accuracy\":0.96}\n");
    fth_ledger ledger;
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    assert_int_equal(ledger.count, 3);
    near(ledger.rows[0].seconds, 9);
    near(ledger.rows[1].seconds, 6); /* 9, of which it waited for 3 */
    near(ledger.rows[1].lost_s, 5);  /* four seconds that are undone, and one after its last event */
    near(ledger.rows[2].seconds, 6);
    near(ledger.usd, 0.021);
    near(fth_ledger_seconds_at(&ledger, fth_ledger_reached(&ledger, 0.9)), 8);
    near(fth_ledger_usd_at(&ledger, fth_ledger_reached(&ledger, 0.95)), 0.021);
    fth_ledger_release(&ledger);
    fth_record_release(&run);
}

/* Clocks that disagree, events without a beginning, nothing at all. */
static void strange_records(void **state)
{
    (void)state;
    fth_ledger ledger;
    fth_record_summary run =
        read_events("{\"event\":\"step\",\"time\":1,\"step\":3}\n"
                    "{\"event\":\"start\",\"time\":5000,\"price_usd_per_hour\":3.6}\n"
                    "{\"event\":\"step\",\"time\":4000,\"step\":10,\"epoch\":1,\"elapsed_s\":10,\"loss\":1}\n"
                    "{\"event\":\"resume\",\"time\":100,\"step\":10,\"epoch\":1,\"elapsed_s\":10,\"price_usd_per_"
                    "hour\":\"much\"}\n");
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    assert_int_equal(ledger.count, 2);
    near(ledger.rows[0].seconds, 10); /* it trained for as long, whatever the clock said */
    near(ledger.rows[1].seconds, 0);
    assert_int_equal(ledger.priced, 1);
    fth_ledger_release(&ledger);
    fth_record_release(&run);

    run = read_events("");
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    assert_int_equal(ledger.count, 0);
    assert_true(isnan(ledger.usd));
    fth_ledger_release(&ledger);
    fth_record_release(&run);
}

#define MEMBER(rank, node, price)                                                                                      \
    "{\"rank\":" rank ",\"host\":\"" node ".example\",\"node\":\"" node "\",\"facts\":{" price "}}"

/* Node b is there from the beginning, c joins after 10 of 20 seconds, and two workers of a node are
 * one machine. Then b leads, and its time before that is not counted again. */
static const char group[] =
    "{\"event\":\"start\",\"time\":1002,\"process_s\":2,\"price_usd_per_hour\":3.6}\n"
    "{\"event\":\"group\",\"time\":1003,\"process_s\":3,\"members\":[" MEMBER("0", "a", "") "," MEMBER("1", "a", "") "," MEMBER(
        "2", "b",
        "\"price_usd_per_hour\":7.2") "]}\n"
                                      "{\"event\":\"step\",\"time\":1009,\"process_s\":9,\"step\":10,"
                                      "\"epoch\":0.5,\"elapsed_s\":7,\"loss\":1}\n"
                                      "{\"event\":\"group\",\"time\":1010,\"process_s\":10,\"members\":"
                                      "[" MEMBER("0", "a", "") "," MEMBER(
                                          "1", "b",
                                          "\"price_usd_per_hour\":7.2") "," MEMBER("2", "c",
                                                                                   "\"price_usd_per_hour\":3."
                                                                                   "6") "]}\n"
                                                                                        "{\"event\":"
                                                                                        "\"epoch\",\"time\":"
                                                                                        "1020,\"process_s\":"
                                                                                        "20,\"step\":20,"
                                                                                        "\"epoch\":1,"
                                                                                        "\"elapsed_s\":18,"
                                                                                        "\"validation_loss\":"
                                                                                        "0.5,"
                                                                                        "\"validation_"
                                                                                        "accuracy\":0.9}\n"
                                                                                        "{\"event\":"
                                                                                        "\"resume\",\"time\":"
                                                                                        "1021,\"process_s\":"
                                                                                        "21,\"waited_s\":21,"
                                                                                        "\"step\":20,"
                                                                                        "\"epoch\":1,"
                                                                                        "\"elapsed_s\":18,"
                                                                                        "\"price_usd_per_"
                                                                                        "hour\":7.2}\n"
                                                                                        "{\"event\":"
                                                                                        "\"group\",\"time\":"
                                                                                        "1021,\"process_s\":"
                                                                                        "21,\"members\":"
                                                                                        "[" MEMBER("0", "b", "") "," MEMBER(
                                                                                            "1", "c",
                                                                                            "\"price_usd_per_"
                                                                                            "hour\":3.6") "]}"
                                                                                                          "\n"
                                                                                                          "{"
                                                                                                          "\""
                                                                                                          "ev"
                                                                                                          "en"
                                                                                                          "t"
                                                                                                          "\""
                                                                                                          ":"
                                                                                                          "\""
                                                                                                          "en"
                                                                                                          "d"
                                                                                                          "\""
                                                                                                          ","
                                                                                                          "\""
                                                                                                          "ti"
                                                                                                          "me"
                                                                                                          "\""
                                                                                                          ":1"
                                                                                                          "03"
                                                                                                          "1,"
                                                                                                          "\""
                                                                                                          "pr"
                                                                                                          "oc"
                                                                                                          "es"
                                                                                                          "s_"
                                                                                                          "s"
                                                                                                          "\""
                                                                                                          ":3"
                                                                                                          "1,"
                                                                                                          "\""
                                                                                                          "st"
                                                                                                          "ep"
                                                                                                          "s"
                                                                                                          "\""
                                                                                                          ":4"
                                                                                                          "0,"
                                                                                                          "\""
                                                                                                          "ep"
                                                                                                          "oc"
                                                                                                          "hs"
                                                                                                          "\""
                                                                                                          ":2"
                                                                                                          ","
                                                                                                          "\""
                                                                                                          "el"
                                                                                                          "ap"
                                                                                                          "se"
                                                                                                          "d_"
                                                                                                          "s"
                                                                                                          "\""
                                                                                                          ":2"
                                                                                                          "8,"
                                                                                                          "\""
                                                                                                          "lo"
                                                                                                          "ss"
                                                                                                          "\""
                                                                                                          ":0"
                                                                                                          ".4"
                                                                                                          ","
                                                                                                          "\""
                                                                                                          "ac"
                                                                                                          "cu"
                                                                                                          "ra"
                                                                                                          "cy"
                                                                                                          "\""
                                                                                                          ":0"
                                                                                                          ".9"
                                                                                                          "6}"
                                                                                                          "\n";

static void all_nodes_of_a_group_are_paid_for(void **state)
{
    (void)state;
    fth_record_summary run = read_events(group);
    fth_ledger ledger;
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    assert_int_equal(ledger.count, 2);
    assert_int_equal(ledger.node_count, 3);
    assert_string_equal(ledger.nodes[0].node->name, "b");
    near(ledger.nodes[0].node->seconds, 20);
    near(ledger.nodes[0].usd, 0.040);
    assert_string_equal(ledger.nodes[1].node->name, "c");
    near(ledger.nodes[1].node->seconds, 10);
    near(ledger.nodes[1].usd, 0.010);
    assert_int_equal(ledger.nodes[2].node->machine, 1);
    near(ledger.nodes[2].usd, 0.010);
    near(ledger.rows[1].seconds, 10);
    near(ledger.seconds, 20 + 20 + 10 + 10 + 10);
    near(ledger.usd, 0.020 + 0.040 + 0.010 + 0.020 + 0.010);
    near(ledger.usd_per_epoch, 0.050);
    near(fth_ledger_usd_at(&ledger, fth_ledger_reached(&ledger, 0.9)), 0.070);
    near(fth_ledger_seconds_at(&ledger, fth_ledger_reached(&ledger, 0.9)), 50);
    fth_ledger_release(&ledger);
    fth_record_release(&run);
}

static void a_node_without_a_price_leaves_the_epoch_without_one(void **state)
{
    (void)state;
    fth_record_summary run = read_events(
        "{\"event\":\"start\",\"time\":1000,\"process_s\":0,\"price_usd_per_hour\":3.6}\n"
        "{\"event\":\"group\",\"time\":1001,\"process_s\":1,\"members\":[" MEMBER("0", "a", "") "," MEMBER(
            "1", "b",
            "") ",7,{\"node\":3}]}\n"
                "{\"event\":\"end\",\"time\":1010,\"process_s\":10,\"steps\":4,\"epochs\":1,\"elapsed_s\":10}\n");
    fth_ledger ledger;
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    near(ledger.usd, 0.010);
    assert_true(isnan(ledger.usd_per_epoch));
    fth_ledger_release(&ledger);
    fth_ledger_assume_price(&run, 3.6, "test");
    assert_int_equal(fth_ledger_make(&run, &ledger), FTH_OK);
    assert_true(isfinite(ledger.usd_per_epoch));
    fth_ledger_release(&ledger);
    fth_record_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_machine),
        cmocka_unit_test(three_machines),
        cmocka_unit_test(undone_twice),
        cmocka_unit_test(events_that_were_lost),
        cmocka_unit_test(unknown_prices),
        cmocka_unit_test(strange_records),
        cmocka_unit_test(a_clock_that_jumps),
        cmocka_unit_test(all_nodes_of_a_group_are_paid_for),
        cmocka_unit_test(a_node_without_a_price_leaves_the_epoch_without_one),
    };
    return cmocka_run_group_tests(tests, test_make_folder, test_remove_folder);
}
