/* Prices: amounts, the catalogue with its errors, and which price a machine gets. */
#include "support.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cost/cost.h"

/* ---- amounts ---- */

static void test_amounts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double usd;
    } good[] = {{"0.526", 0.526}, {"5", 5}, {"5usd", 5}, {"0.5 USD", 0.5}, {"$12.50", 12.5}, {".25", 0.25}};
    static const char *const bad[] = {"",     "0",   "-1",    "five",  "5eur", "$",
                                      "1e99", "nan", "5usd5", "$5usd", "inf",  "0x10z"};
    double usd;
    for (size_t i = 0; i < FTH_COUNT_OF(good); i++) {
        assert_int_equal(fth_usd_parse(good[i].text, &usd), FTH_OK);
        assert_true(usd == good[i].usd);
    }
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        assert_int_equal(fth_usd_parse(bad[i], &usd), FTH_INVALID);
        assert_message_has("US dollars");
    }
    char text[32];
    fth_usd_format(0.0123, text, sizeof text);
    assert_string_equal(text, "$0.0123");
    fth_usd_format(1234.5, text, sizeof text);
    assert_string_equal(text, "$1234.50");
    fth_usd_format(0.0000123, text, sizeof text);
    assert_string_equal(text, "$0.0000123");
    fth_usd_format(NAN, text, sizeof text);
    assert_string_equal(text, "-");
}

/* ---- the catalogue ---- */

static fth_status parse(const char *text, fth_catalogue *catalogue)
{
    return fth_catalogue_parse(text, strlen(text), "my.yaml", catalogue);
}

static void test_catalogue(void **state)
{
    (void)state;
    fth_catalogue catalogue;
    assert_int_equal(parse("# mine\n"
                           "- {cloud: aws, instance: g4dn.xlarge, usd_per_hour: 0.5, date: 2026-01-31}\n"
                           "- cloud: azure\n"
                           "  instance: Standard_NC6s_v3\n"
                           "  region: eastus\n"
                           "  market: spot\n"
                           "  usd_per_hour: 1\n",
                           &catalogue),
                     FTH_OK);
    assert_int_equal(catalogue.count, 2);
    assert_string_equal(catalogue.prices[0].market, "on-demand");
    assert_string_equal(catalogue.prices[0].region, "");
    assert_string_equal(catalogue.prices[0].date, "2026-01-31");
    assert_string_equal(catalogue.prices[1].instance, "Standard_NC6s_v3");
    assert_true(catalogue.prices[1].usd_per_hour == 1);
    fth_catalogue_release(&catalogue);
}

static void test_catalogue_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "holds no prices"},
        {"prices: 3\n", "my.yaml line 1: expected a list of prices"},
        {"\n- 0.5\n", "line 2: expected a price"},
        {"- {cloud: aws, instance: x, usd_per_hour: 0.5}\n- {cloud: aws, instance: y}\n",
         "line 2: this price has no usd"},
        {"- {instance: x, usd_per_hour: 0.5}\n", "no cloud"},
        {"- {cloud: aws, usd_per_hour: 0.5}\n", "no instance"},
        {"- {cloud: awz, instance: x, usd_per_hour: 0.5}\n", "line 1: cloud cannot be \"awz\"; did you mean aws?"},
        {"- {cloud: aws, instance: x, market: spott, usd_per_hour: 1}\n", "did you mean spot?"},
        {"- {cloud: aws, instance: x,\n   usd_per_hours: 1}\n", "line 2: unknown key 'usd_per_hours'; did you mean"},
        {"- {cloud: aws, instance: x, usd_per_hour: -1}\n", "line 1: usd_per_hour: \"-1\" is not an amount"},
        {"- {cloud: aws, instance: x, usd_per_hour: 1, usd_per_hour: 2}\n", "given twice"},
        {"- {cloud: aws, instance: x, usd_per_hour: 1, date: 31.1.2026}\n", "expected a date like 2026-01-31"},
        {"- {cloud: aws, instance: x, usd_per_hour: 1, date: 2026-13-01}\n", "expected a date like 2026-01-31"},
        {"- {cloud: aws, instance: [x], usd_per_hour: 1}\n", "instance must be a single plain value"},
        {"- {cloud: aws, instance: 'a b', usd_per_hour: 1}\n", "contains a space"},
        {"- {cloud: aws, instance: x, usd_per_hour: 1}\n- {cloud: aws, instance: x, usd_per_hour: 2}\n",
         "line 2: this price was already given on line 1"},
        {"- {cloud: aws\n", "bad YAML"},
        {"- {cloud: aws, instance: x, usd_per_hour: 1}\n---\n- 1\n", "second document"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_catalogue catalogue;
        assert_int_equal(parse(cases[i].text, &catalogue), FTH_INVALID);
        assert_message_of(cases[i].text, cases[i].message);
        fth_catalogue_release(&catalogue);
    }
}

static void test_builtin(void **state)
{
    (void)state;
    fth_catalogue catalogue;
    assert_int_equal(fth_catalogue_read_builtin(&catalogue), FTH_OK);
    static const char *const clouds[] = {"aws", "gcp", "azure"};
    for (size_t c = 0; c < FTH_COUNT_OF(clouds); c++) {
        int spot = 0, on_demand = 0;
        for (size_t i = 0; i < catalogue.count; i++) {
            const fth_price *price = &catalogue.prices[i];
            assert_true(*price->date && *price->region);
            if (strcmp(price->cloud, clouds[c]) == 0)
                *(strcmp(price->market, "spot") == 0 ? &spot : &on_demand) += 1;
        }
        assert_true(spot >= 5 && on_demand >= 5);
    }
    fth_price_answer answer;
    assert_true(
        fth_price_find(&catalogue, &(fth_price_query){"aws", "g4dn.xlarge", "us-east-1", "on-demand"}, &answer));
    assert_true(answer.usd_per_hour == 0.526);
    assert_non_null(strstr(fth_catalogue_builtin_text(), "EXAMPLES"));
    fth_catalogue_release(&catalogue);
}

/* ---- which price ---- */

static const char *const prices =
    "- {cloud: aws, instance: g4dn.xlarge, region: us-east-1, usd_per_hour: 0.526}\n"
    "- {cloud: aws, instance: g4dn.xlarge, region: us-east-1, market: spot, usd_per_hour: "
    "0.2, date: 2026-01-31}\n"
    "- {cloud: aws, instance: g4dn.xlarge, region: eu-west-1, usd_per_hour: 0.587}\n"
    "- {cloud: aws, instance: c7i.large, usd_per_hour: 0.09}\n"
    "- {cloud: aws, instance: c7i.large, region: us-east-1, usd_per_hour: 0.08}\n"
    "- {cloud: aws, instance: only.spot, market: spot, usd_per_hour: 0.01}\n"
    "- {cloud: gcp, instance: g2-standard-4, region: us-central1, usd_per_hour: 0.7}\n"
    "- {cloud: azure, instance: Standard_NC6s_v3, region: eastus, usd_per_hour: 3}\n"
    "- {cloud: own, instance: '*', usd_per_hour: 0.05}\n"
    "- {cloud: own, instance: workhorse, usd_per_hour: 0.1}\n";

static void test_which_price(void **state)
{
    (void)state;
    static const struct {
        fth_price_query query;
        double usd; /* NAN: none */
        const char *source;
    } cases[] = {
        {{"aws", "g4dn.xlarge", "us-east-1", "spot"}, 0.2, "my.yaml, 2026-01-31: g4dn.xlarge spot in us-east-1"},
        {{"aws", "g4dn.xlarge", "us-east-1", "on-demand"}, 0.526, "my.yaml: g4dn.xlarge on-demand in us-east-1"},
        {{"aws", "g4dn.xlarge", "us-east-1b", "on-demand"}, 0.526, "us-east-1"},
        {{"aws", "g4dn.xlarge", "eu-west-1", "spot"}, 0.2, "none for eu-west-1"},
        {{"aws", "g4dn.xlarge", "eu-west-1", ""}, 0.587, "market unknown, so on-demand"},
        {{"aws", "g4dn.xlarge", "us-east-10", "on-demand"}, 0.526, "none for us-east-10"},
        {{"aws", "g4dn.xlarge", "", "on-demand"}, 0.526, "region unknown"},
        {{"aws", "c7i.large", "us-east-1", "on-demand"}, 0.08, "in us-east-1"},
        {{"aws", "c7i.large", "us-west-2", "on-demand"}, 0.09, "c7i.large on-demand"},
        {{"aws", "c7i.large", "us-west-2", "spot"}, 0.09, "no spot price, so on-demand"},
        {{"aws", "only.spot", "us-west-2", "on-demand"}, NAN, ""},
        {{"aws", "nonesuch", "us-west-2", "on-demand"}, NAN, ""},
        {{"gcp", "g2-standard-4", "us-central1-a", "on-demand"}, 0.7, "in us-central1"},
        {{"gcp", "g4dn.xlarge", "us-east-1", "on-demand"}, NAN, ""},
        {{"azure", "standard_nc6s_v3", "eastus2", "on-demand"}, 3, "none for eastus2"},
        {{"own", "workhorse", "", ""}, 0.1, "workhorse"},
        {{"own", "laptop", "", ""}, 0.05, "my.yaml"},
    };
    fth_catalogue catalogue;
    assert_int_equal(parse(prices, &catalogue), FTH_OK);
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_price_answer answer;
        bool found = fth_price_find(&catalogue, &cases[i].query, &answer);
        if (found != isfinite(cases[i].usd) || (found && answer.usd_per_hour != cases[i].usd) ||
            !strstr(answer.source, cases[i].source))
            fail_msg("case %zu: %g from \"%s\"", i, answer.usd_per_hour, answer.source);
    }
    fth_catalogue_release(&catalogue);
}

static void test_which_file(void **state)
{
    char path[TEST_MAX_PATH];
    assert_int_equal(test_make_folder(state), 0);
    setenv("XDG_CONFIG_HOME", test_folder, 1);
    unsetenv("FARTHING_PRICES");
    char *found = fth_catalogue_find("");
    assert_null(found);

    assert_int_equal(mkdir(test_path(path, "farthing"), 0777), 0);
    test_path(path, "farthing/prices.yaml");
    assert_int_equal(fth_file_write_all(path, prices, strlen(prices)), FTH_OK);
    found = fth_catalogue_find(NULL);
    assert_string_equal(found, path);
    free(found);
    fth_catalogue catalogue;
    assert_int_equal(fth_catalogue_open("", &catalogue), FTH_OK);
    assert_int_equal(catalogue.count, 10);
    fth_catalogue_release(&catalogue);

    setenv("FARTHING_PRICES", "elsewhere.yaml", 1);
    found = fth_catalogue_find("");
    assert_string_equal(found, "elsewhere.yaml");
    free(found);
    found = fth_catalogue_find("asked.yaml");
    assert_string_equal(found, "asked.yaml");
    free(found);
    assert_int_not_equal(fth_catalogue_open("", &catalogue), FTH_OK);
    assert_message_has("elsewhere.yaml");
    fth_catalogue_release(&catalogue);
    assert_int_equal(test_remove_folder(state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_amounts), cmocka_unit_test(test_catalogue),   cmocka_unit_test(test_catalogue_errors),
        cmocka_unit_test(test_builtin), cmocka_unit_test(test_which_price), cmocka_unit_test(test_which_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
