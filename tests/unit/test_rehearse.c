/* Rehearsals: traces, what is drawn from a seed, and the simulated metadata services. Whole
 * rehearsals are in tests/e2e. */
#include "support.h"

#include <math.h>
#include <unistd.h>

#include "http/http.h"
#include "rehearse/rehearse.h"
#include "rehearse/simulation.h"

static fth_status read_trace(const char *text, fth_interruption_plan *plan)
{
    *plan = (fth_interruption_plan){0};
    char path[TEST_MAX_PATH];
    test_write_text("trace.yaml", text);
    return fth_interruption_plan_read(test_path(path, "trace.yaml"), plan);
}

static void test_trace(void **state)
{
    (void)state;
    fth_interruption_plan plan;
    fth_interruption one;
    assert_int_equal(read_trace("- {at: 12s, kind: azure, notice: 45s, gap: 5s}\n"
                                "- after_step: 40\n"
                                "  kind: kill9\n"
                                "- {at: 250ms}\n",
                                &plan),
                     FTH_OK);
    assert_true(fth_interruption_plan_get(&plan, 0, &one));
    assert_int_equal(one.kind, FTH_INTERRUPTION_AZURE);
    assert_true(one.at_s == 12 && one.notice_s == 45 && one.gap_s == 5);
    assert_true(fth_interruption_plan_get(&plan, 1, &one));
    assert_int_equal(one.kind, FTH_INTERRUPTION_KILL9);
    assert_int_equal(one.after_step, 40);
    assert_true(one.notice_s == 0);
    assert_true(fth_interruption_plan_get(&plan, 2, &one));
    assert_int_equal(one.kind, FTH_INTERRUPTION_AWS);
    assert_true(one.at_s == 0.25 && one.notice_s == 120);
    assert_false(fth_interruption_plan_get(&plan, 3, &one));
    fth_interruption_plan_release(&plan);
}

static void test_bad_traces(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "list"},
        {"at: 3s\n", "list"},
        {"[]\n", "empty"},
        {"- 3s\n", "line 1"},
        {"- {at: 3s}\n- {at: soon}\n", "line 2"},
        {"- {at: 3s, after_step: 7}\n", "either"},
        {"- {kind: aws}\n", "either"},
        {"- {at: 3s, kind: ibm}\n", "azure"},
        {"- {at: 3s, kinds: aws}\n", "did you mean kind"},
        {"- {at: [3s]}\n", "plain"},
        {"- {after_step: 0}\n", "1 or more"},
        {"- {after_step: 4x}\n", "1 or more"},
        {"- {at: 3s, kind: kill9, notice: 3s}\n", "without notice"},
        {"- {at: 3s\n", "bad YAML"},
    };
    fth_interruption_plan plan;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        assert_int_equal(read_trace(cases[i].text, &plan), FTH_INVALID);
        if (!strstr(fth_error_message(), cases[i].part))
            fail_msg("case %zu: %s", i, fth_error_message());
        assert_null(plan.trace);
    }
}

static void test_drawing(void **state)
{
    (void)state;
    enum { DRAWS = 2000 };
    fth_interruption_plan plan = {.every_s = 10, .cloud = FTH_INTERRUPTION_KINDS, .seed = 7};
    fth_interruption one, again;
    int kinds[FTH_INTERRUPTION_KINDS] = {0}, starting = 0;
    double sum = 0;
    for (int i = 0; i < DRAWS; i++) {
        assert_true(fth_interruption_plan_get(&plan, i, &one));
        assert_true(fth_interruption_plan_get(&plan, i, &again));
        assert_true(one.kind == again.kind && one.at_s == again.at_s && one.after_step == again.after_step &&
                    one.from_spawn == again.from_spawn && one.notice_s == again.notice_s && one.gap_s == again.gap_s);
        assert_true(one.at_s >= 0 && one.at_s < 20);
        assert_true((one.notice_s == 0) == (one.kind == FTH_INTERRUPTION_KILL9));
        kinds[one.kind]++;
        starting += one.from_spawn;
        sum += one.from_spawn ? 0 : one.at_s;
    }
    /* Six standard deviations and more, of counts that are sums of independent draws. */
    for (int i = 0; i < FTH_INTERRUPTION_KINDS; i++)
        assert_true(kinds[i] > 200 && kinds[i] < 470);
    assert_true(starting > 150 && starting < 350);
    double mean = sum / (DRAWS - starting);
    assert_true(mean > 9 && mean < 11);

    plan = (fth_interruption_plan){.kill9_s = 1};
    assert_true(fth_interruption_plan_get(&plan, 3, &one));
    assert_int_equal(one.kind, FTH_INTERRUPTION_KILL9);
    plan = (fth_interruption_plan){.every_s = 1, .cloud = FTH_INTERRUPTION_GCP, .notice_s = 3};
    assert_true(fth_interruption_plan_get(&plan, 3, &one));
    assert_int_equal(one.kind, FTH_INTERRUPTION_GCP);
    assert_true(one.notice_s == 3);
    plan = (fth_interruption_plan){0};
    assert_false(fth_interruption_plan_get(&plan, 0, &one));
}

/* ---- the services, as a client sees them ---- */

static fth_http_client *client;
static char base_url[64];

static int ask(const char *method, const char *target, const char *header, const char *body, char *text, size_t size)
{
    fth_http_response response;
    char *url = fth_format("%s%s", base_url, target);
    const char *const headers[] = {header, NULL};
    fth_http_request request = {.method = method,
                                .url = url,
                                .headers = header ? headers : NULL,
                                .body = body,
                                .body_bytes = body ? strlen(body) : 0,
                                .deadline = test_deadline_in(30)};
    assert_int_equal(fth_http_perform(client, &request, &response), FTH_OK);
    int code = response.code;
    if (text)
        snprintf(text, size, "%s", response.body);
    fth_http_response_release(&response);
    free(url);
    return code;
}

static void test_simulation(void **state)
{
    (void)state;
    static const char action[] = "/latest/meta-data/spot/instance-action", flavor[] = "Metadata-Flavor: Google";
    static const char preempted[] = "/computeMetadata/v1/instance/preempted", azure[] = "Metadata: true";
    static const char events[] = "/metadata/scheduledevents?api-version=2020-07-01";
    char token[128], header[200], text[2048];
    fth_simulation *simulation = NULL;
    assert_int_equal(fth_simulation_start(&simulation), FTH_OK);
    assert_int_equal(fth_http_client_open(NULL, &client), FTH_OK);
    snprintf(base_url, sizeof base_url, "http://127.0.0.1:%d", fth_simulation_port(simulation));
    fth_simulation_new_machine(simulation, 4);

    assert_int_equal(ask("PUT", "/latest/api/token", NULL, "", NULL, 0), 400);
    assert_int_equal(
        ask("PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 60", "", token, sizeof token), 200);
    snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", token);
    assert_int_equal(ask("GET", action, NULL, NULL, NULL, 0), 401);
    assert_int_equal(ask("GET", action, header, NULL, NULL, 0), 404);
    assert_int_equal(ask("GET", preempted, NULL, NULL, NULL, 0), 403);
    assert_int_equal(ask("GET", preempted, flavor, NULL, text, sizeof text), 200);
    assert_string_equal(text, "FALSE");
    assert_int_equal(ask("GET", events, NULL, NULL, NULL, 0), 400);
    assert_int_equal(ask("GET", events, azure, NULL, text, sizeof text), 200);
    assert_null(strstr(text, "trainer_4"));
    assert_non_null(strstr(text, "somebody_else"));

    fth_simulation_announce(simulation, FTH_INTERRUPTION_AWS, 120);
    assert_int_equal(ask("GET", action, header, NULL, text, sizeof text), 200);
    assert_non_null(strstr(text, "\"terminate\""));
    fth_simulation_announce(simulation, FTH_INTERRUPTION_GCP, 30);
    assert_int_equal(ask("GET", preempted, flavor, NULL, text, sizeof text), 200);
    assert_string_equal(text, "TRUE");
    fth_simulation_announce(simulation, FTH_INTERRUPTION_AZURE, 30);
    assert_int_equal(ask("GET", events, azure, NULL, text, sizeof text), 200);
    assert_non_null(strstr(text, "trainer_4"));
    assert_int_equal(ask("POST", events, azure, "{\"StartRequests\":[{\"EventId\":\"event-4\"}]}", NULL, 0), 200);
    assert_int_equal(ask("POST", events, azure, "nonsense", NULL, 0), 400);

    fth_simulation_new_machine(simulation, 5);
    assert_int_equal(ask("GET", action, header, NULL, NULL, 0), 401); /* the old machine's token */
    assert_int_equal(ask("GET", preempted, flavor, NULL, text, sizeof text), 200);
    assert_string_equal(text, "FALSE");
    fth_http_client_free(client);
    fth_simulation_free(simulation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_trace, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_bad_traces, test_make_folder, test_remove_folder),
        cmocka_unit_test(test_drawing),
        cmocka_unit_test(test_simulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
