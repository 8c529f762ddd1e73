/* Options that are a number or a share of all, or a number of epochs or steps; and options that were
 * added later, in the identity. */
#include "support.h"

#include "base/base.h"
#include "base/options.h"

typedef struct settings {
    fth_option_bits set;
    fth_amount warmup;
    fth_period validate;
    int64_t steps;
    double decay;
    bool sorted;
} settings;

#define AT(member) offsetof(settings, member)
static const fth_option rows[] = {
    {.name = "warmup",
     .type = FTH_OPTION_AMOUNT,
     .offset = AT(warmup),
     .fallback = "0",
     .maximum = 1000,
     .identity = true},
    {.name = "decay",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(decay),
     .fallback = "1",
     .minimum = 0,
     .maximum = 1,
     .identity = true,
     .optional_identity = true},
    {.name = "sorted", .type = FTH_OPTION_SWITCH, .offset = AT(sorted), .identity = true, .optional_identity = true},
};
static const fth_option period_rows[] = {{.name = "validate",
                                          .type = FTH_OPTION_PERIOD,
                                          .offset = AT(validate),
                                          .fallback = "1",
                                          .maximum = 1000,
                                          .identity = true}};
static const fth_option_table period_table = {.options = period_rows, .count = 1, .struct_size = sizeof(settings)};

static const fth_option_table table = {.options = rows, .count = FTH_COUNT_OF(rows), .struct_size = sizeof(settings)};

/* As it was before: a whole number, and nothing else. */
static const fth_option old_rows[] = {{.name = "warmup",
                                       .type = FTH_OPTION_INTEGER,
                                       .offset = AT(steps),
                                       .fallback = "0",
                                       .maximum = 1000,
                                       .identity = true}};
static const fth_option_table old_table = {.options = old_rows, .count = 1, .struct_size = sizeof(settings)};

static void check_amount(const char *text, int64_t count, double share)
{
    settings values;
    assert_int_equal(fth_options_set_defaults(&table, &values), FTH_OK);
    assert_int_equal(fth_options_set(&table, &values, "warmup", text, "--warmup"), FTH_OK);
    assert_int_equal(values.warmup.count, count);
    assert_true(values.warmup.share == share);
}

static void amounts_are_read(void **state)
{
    (void)state;
    check_amount("0", 0, 0);
    check_amount("200", 200, 0);
    check_amount("6%", 0, 0.06);
    check_amount("0.5%", 0, 0.005);
    check_amount("100%", 0, 1);
    check_amount("0%", 0, 0);
}

static void other_texts_are_refused(void **state)
{
    static const char *const bad[] = {"",     "%",    "6 %",  "-1%",  "101%", "6%%", "nan%",
                                      "1e1%", "six%", "0x6%", "2000", "1.5",  "-3",  "inf%"};
    settings values;
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        assert_int_equal(fth_options_set_defaults(&table, &values), FTH_OK);
        assert_int_equal(fth_options_set(&table, &values, "warmup", bad[i], "--warmup"), FTH_INVALID);
        assert_int_equal(strncmp(fth_error_message(), "--warmup", 8), 0);
    }
}

static void amounts_are_counted(void **state)
{
    (void)state;
    assert_int_equal(fth_amount_count((fth_amount){.count = 7}, 100), 7);
    assert_int_equal(fth_amount_count((fth_amount){.share = 0.06}, 100), 6);
    assert_int_equal(fth_amount_count((fth_amount){.share = 0.1}, 75), 8); /* rounded up, as transformers does */
    assert_int_equal(fth_amount_count((fth_amount){.share = 0.1}, 3750), 375);
    assert_int_equal(fth_amount_count((fth_amount){.share = 1}, 9), 9);
}

static void amounts_go_through_json(void **state)
{
    static const char *const texts[] = {"0", "12", "6%", "0.1%", "33.3%"};
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(texts); i++) {
        settings values, back;
        assert_int_equal(fth_options_set_defaults(&table, &values), FTH_OK);
        assert_int_equal(fth_options_set_defaults(&table, &back), FTH_OK);
        assert_int_equal(fth_options_set(&table, &values, "warmup", texts[i], "--warmup"), FTH_OK);
        json_t *json = fth_options_to_json(&table, &values, false);
        assert_int_equal(fth_options_from_json(&table, &back, json, "a run"), FTH_OK);
        assert_int_equal(back.warmup.count, values.warmup.count);
        assert_true(back.warmup.share == values.warmup.share);
        json_decref(json);
    }
}

/* Runs that were recorded when there were only whole numbers are found again. */
static void identities_stay(void **state)
{
    settings values;
    char before[17], now[17];
    (void)state;
    assert_int_equal(fth_options_set_defaults(&old_table, &values), FTH_OK);
    values.steps = 40;
    fth_options_identity(&old_table, &values, before);
    assert_int_equal(fth_options_set_defaults(&table, &values), FTH_OK);
    values.warmup.count = 40;
    fth_options_identity(&table, &values, now);
    assert_string_equal(now, before);
    values.decay = 0.9;
    fth_options_identity(&table, &values, now);
    assert_string_not_equal(now, before);
    values.decay = 1;
    values.sorted = true;
    fth_options_identity(&table, &values, now);
    assert_string_not_equal(now, before);
    values.sorted = false;
    values.warmup = (fth_amount){.share = 0.4};
    fth_options_identity(&table, &values, now);
    assert_string_not_equal(now, before);
}

static fth_status read_period(settings *values, const char *text)
{
    assert_int_equal(fth_options_set_defaults(&period_table, values), FTH_OK);
    return fth_options_set(&period_table, values, "validate", text, "--validate");
}

static void periods_are_read_and_go_through_json(void **state)
{
    static const struct {
        const char *text, *json;
        fth_period period;
    } cases[] = {{"2", "2", {.epochs = 2}},
                 {"2.0", "2", {.epochs = 2}},
                 {"0.5", "\"0.5\"", {.epochs = 0.5}},
                 {"25%", "\"0.25\"", {.epochs = 0.25}},
                 {"1.5", "\"1.5\"", {.epochs = 1.5}},
                 {"200steps", "\"200steps\"", {.steps = 200}},
                 {"1 step", "\"1steps\"", {.steps = 1}}};
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        settings values, back;
        assert_int_equal(read_period(&values, cases[i].text), FTH_OK);
        assert_true(values.validate.epochs == cases[i].period.epochs);
        assert_int_equal(values.validate.steps, cases[i].period.steps);
        json_t *json = fth_options_to_json(&period_table, &values, false);
        char *text = json_dumps(json_object_get(json, "validate"), JSON_ENCODE_ANY);
        assert_string_equal(text, cases[i].json);
        assert_int_equal(fth_options_set_defaults(&period_table, &back), FTH_OK);
        assert_int_equal(fth_options_from_json(&period_table, &back, json, "a run"), FTH_OK);
        assert_memory_equal(&back.validate, &values.validate, sizeof values.validate);
        free(text);
        json_decref(json);
    }
}

static void other_periods_are_refused(void **state)
{
    static const char *const bad[] = {"",     "0",   "0steps", "0%",       "-1",   "1e3",     "1.5steps", "steps",
                                      "1..5", "nan", "2000",   "2000step", "1 %%", "1epochs", "0x2",      "."};
    settings values;
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        if (read_period(&values, bad[i]) != FTH_INVALID)
            fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(strncmp(fth_error_message(), "--validate", 10), 0);
    }
}

/* How often a period ends within `steps`. */
static int64_t count_ends(fth_period period, int64_t steps, int64_t steps_per_epoch)
{
    int64_t count = 0;
    for (int64_t step = 0; step <= steps; step++)
        count += fth_period_ends(period, step, steps_per_epoch);
    return count;
}

static void periods_end_where_they_should(void **state)
{
    (void)state;
    for (int64_t epoch = 1; epoch <= 1000; epoch++) {
        assert_int_equal(count_ends((fth_period){.epochs = 1}, 3 * epoch, epoch), 3);
        assert_true(fth_period_ends((fth_period){.epochs = 0.1}, epoch, epoch)); /* the end of an epoch, too */
        assert_true(fth_period_ends((fth_period){.epochs = 1.0 / 3}, epoch, epoch));
    }
    assert_int_equal(count_ends((fth_period){.epochs = 0.25}, 80, 8), 40);
    assert_true(fth_period_ends((fth_period){.epochs = 0.25}, 6, 8));
    assert_false(fth_period_ends((fth_period){.epochs = 0.25}, 7, 8));
    assert_int_equal(count_ends((fth_period){.epochs = 1.5}, 24, 8), 2);
    assert_int_equal(count_ends((fth_period){.epochs = 0.3}, 70, 7), 33);
    assert_int_equal(count_ends((fth_period){.epochs = 0.01}, 70, 7), 70); /* shorter than a step */
    assert_int_equal(count_ends((fth_period){.steps = 9}, 81, 7), 9);
    assert_false(fth_period_ends((fth_period){.epochs = 1}, 0, 7));
    assert_false(fth_period_ends((fth_period){.steps = 1}, 0, 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_are_read),          cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(amounts_are_counted),       cmocka_unit_test(amounts_go_through_json),
        cmocka_unit_test(identities_stay),           cmocka_unit_test(periods_are_read_and_go_through_json),
        cmocka_unit_test(other_periods_are_refused), cmocka_unit_test(periods_end_where_they_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
