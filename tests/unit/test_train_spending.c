/* What a run costs: prices and budgets, what events say of them, and when another step would be too
 * much. */
#include "support.h"

#include <math.h>
#include <unistd.h>

#include "train/loop/spending.h"

static fth_spending *spending;
static fth_train_options options;

static int set_up(void **state)
{
    if (test_make_folder(state) != 0)
        return -1;
    setenv("HOME", test_folder, 1); /* where no catalogue of one's own is */
    setenv("XDG_CONFIG_HOME", test_folder, 1);
    unsetenv("FARTHING_PRICES");
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &options), FTH_OK);
    assert_int_equal(fth_spending_create(&spending), FTH_OK);
    return 0;
}

static int tear_down(void **state)
{
    fth_spending_free(spending);
    fth_options_release(&fth_train_option_table, &options);
    return test_remove_folder(state);
}

/* As a stored configuration has it: not given now. */
static void set_text(char **member, const char *text)
{
    free(*member);
    *member = fth_format("%s", text);
}

static json_t *describe(void (*add)(const fth_spending *, json_t *))
{
    json_t *object = json_object();
    add(spending, object);
    return object;
}

static void without_a_price_nothing_is_spent(void **state)
{
    (void)state;
    assert_int_equal(fth_spending_find_price(spending, &options, NULL), FTH_OK);
    json_t *machine = describe(fth_spending_describe_machine), *event = describe(fth_spending_describe_spent);
    assert_non_null(json_object_get(machine, "host"));
    assert_null(json_object_get(machine, "price_usd_per_hour"));
    assert_null(json_object_get(event, "spent_usd"));
    assert_true(json_number_value(json_object_get(event, "process_s")) >= 0);
    json_decref(machine);
    json_decref(event);
    assert_false(fth_spending_budget_is_spent(spending, &(fth_meters){0}, 0));
    assert_true(isinf(fth_spending_budget_deadline(spending, 0).at_seconds));
}

static void a_price_makes_time_money(void **state)
{
    (void)state;
    set_text(&options.price, "3600");
    assert_int_equal(fth_spending_find_price(spending, &options, NULL), FTH_OK);
    json_t *machine = describe(fth_spending_describe_machine), *event = describe(fth_spending_describe_spent);
    assert_true(json_number_value(json_object_get(machine, "price_usd_per_hour")) == 3600);
    assert_string_equal(json_string_value(json_object_get(machine, "price_source")), "--price");
    double seconds = json_number_value(json_object_get(event, "process_s"));
    assert_true(fabs(json_number_value(json_object_get(event, "spent_usd")) - seconds) < 1e-6);
    json_decref(machine);
    json_decref(event);
}

static void waiting_for_a_run_is_not_its_time(void **state)
{
    (void)state;
    set_text(&options.price, "3600");
    assert_int_equal(fth_spending_find_price(spending, &options, NULL), FTH_OK);
    fth_spending_set_takeover(spending, 100, 0, 7);
    json_t *takeover = describe(fth_spending_describe_takeover), *event = describe(fth_spending_describe_spent);
    assert_true(json_number_value(json_object_get(takeover, "waited_s")) == 100);
    assert_null(json_object_get(takeover, "previous_seen_s"));
    assert_true(json_number_value(json_object_get(takeover, "previous_process_s")) == 7);
    double seconds = json_number_value(json_object_get(event, "process_s"));
    assert_true(fabs(json_number_value(json_object_get(event, "spent_usd")) - (seconds - 100)) < 1e-6);
    json_decref(takeover);
    json_decref(event);
}

/* The first group was there from the beginning; two workers of one node are one machine. */
static void other_machines_of_a_group_cost_too(void **state)
{
    (void)state;
    set_text(&options.price, "3600");
    assert_int_equal(fth_spending_find_price(spending, &options, NULL), FTH_OK);
    json_t *group = json_pack("{s:[{s:s}, {s:s, s:{s:f}}, {s:s, s:{s:f}}]}", "members", "node", "a", "node", "b",
                              "facts", "price_usd_per_hour", 7200., "node", "b", "facts", "price_usd_per_hour", 7200.);
    assert_non_null(group);
    fth_spending_set_group(spending, group);
    json_t *event = describe(fth_spending_describe_spent);
    double seconds = json_number_value(json_object_get(event, "process_s"));
    assert_true(fabs(json_number_value(json_object_get(event, "spent_usd")) - 3 * seconds) < 1e-6);
    json_decref(event);
    /* The node leaves: what it cost stays, and nothing is added to it. */
    json_t *alone = json_pack("{s:[{s:s}]}", "members", "node", "a");
    fth_spending_set_group(spending, alone);
    event = describe(fth_spending_describe_spent);
    double later = json_number_value(json_object_get(event, "process_s"));
    double usd = json_number_value(json_object_get(event, "spent_usd"));
    assert_true(usd >= later + 2 * seconds - 1e-6 && usd <= 3 * later + 1e-6);
    json_decref(event);
    json_decref(alone);
    json_decref(group);
}

/* Of a process that followed another one: that one's record has its machine's time. */
static void the_time_before_leading_is_not_counted_again(void **state)
{
    (void)state;
    set_text(&options.price, "3600");
    assert_int_equal(fth_spending_find_price(spending, &options, NULL), FTH_OK);
    fth_spending_begin_to_lead(spending);
    json_t *takeover = describe(fth_spending_describe_takeover), *event = describe(fth_spending_describe_spent);
    double waited = json_number_value(json_object_get(takeover, "waited_s"));
    double seconds = json_number_value(json_object_get(event, "process_s"));
    assert_true(fabs(json_number_value(json_object_get(event, "spent_usd")) - (seconds - waited)) < 1e-6);
    json_decref(takeover);
    json_decref(event);
}

static void a_price_given_on_another_machine_is_not_this_ones(void **state)
{
    (void)state;
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    json_t *here = json_pack("{s:{s:s}}", "machine", "host", host);
    json_t *elsewhere = json_pack("{s:{s:s}}", "machine", "host", "some-other-machine");
    set_text(&options.price, "1");
    assert_int_equal(fth_spending_find_price(spending, &options, here), FTH_OK);
    assert_string_equal(options.price, "1");
    assert_int_equal(fth_spending_find_price(spending, &options, elsewhere), FTH_OK);
    assert_string_equal(options.price, "");
    json_decref(here);
    json_decref(elsewhere);
}

static void a_budget_needs_a_price(void **state)
{
    (void)state;
    set_text(&options.limits.budget, "5usd");
    assert_int_equal(fth_spending_find_price(spending, &options, NULL), FTH_INVALID);
    assert_message_has("--price");
}

static void set_budget(const char *budget)
{
    set_text(&options.price, "3600"); /* a dollar a second */
    set_text(&options.limits.budget, budget);
    assert_int_equal(fth_spending_find_price(spending, &options, NULL), FTH_OK);
}

static void a_budget_leaves_room_for_what_follows_a_step(void **state)
{
    (void)state;
    const fth_meters meters = {0};
    set_budget("900000usd");
    fth_spending_set_workload(spending, (fth_workload){.images_per_step = 1, .checkpoint_bytes = 1e15});
    assert_true(fth_spending_budget_is_spent(spending, &meters, 0)); /* a slow disk takes 1e7 s */
    assert_false(fth_spending_budget_is_spent(spending, &meters, 0.01));
    double left_s = fth_deadline_left_seconds(fth_spending_budget_deadline(spending, 0.01));
    assert_true(left_s > 800000 && left_s < 900000);
    set_budget("0.000001usd");
    assert_true(fth_spending_budget_is_spent(spending, &meters, 0.01));
}

static void steps_say_what_a_validation_will_take(void **state)
{
    (void)state;
    const fth_meters meters = {0};
    set_budget("900000usd");
    fth_spending_set_workload(spending, (fth_workload){.images_per_step = 1, .validation_images = INT64_C(1) << 60});
    for (int i = 0; i < 4; i++) /* the first ones say nothing */
        assert_false(fth_spending_budget_is_spent(spending, &meters, 0.01));
    assert_true(fth_spending_budget_is_spent(spending, &meters, 0.01));
    const fth_meters validated = {.evaluate_s = 1e-9}; /* once there was one, that is what counts */
    assert_false(fth_spending_budget_is_spent(spending, &validated, 0.01));
}

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_price_nothing_is_spent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_price_makes_time_money, set_up, tear_down),
        cmocka_unit_test_setup_teardown(waiting_for_a_run_is_not_its_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_machines_of_a_group_cost_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_time_before_leading_is_not_counted_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_price_given_on_another_machine_is_not_this_ones, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_budget_needs_a_price, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_budget_leaves_room_for_what_follows_a_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(steps_say_what_a_validation_will_take, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
