/* What fits before a deadline, when a process has to end, and how often to save. */
#include "support.h"

#include <math.h>

#include "train/save/interval.h"
#include "train/loop/stop_plan.h"

static bool near(double value, double expected)
{
    return fabs(value - expected) <= 1e-9 * expected;
}

/* ---- what fits ---- */

static fth_save_choice choose(const fth_save_estimate *estimate, double left_s)
{
    fth_stop_reason reason = {.kind = FTH_STOP_PREEMPTION, .deadline = fth_deadline_in(left_s)};
    if (!isfinite(left_s))
        reason.deadline.at_seconds = INFINITY;
    return fth_stop_choose_save(&reason, estimate);
}

static void an_upload_under_way_is_finished_or_replaced_by_what_fits(void **state)
{
    (void)state;
    const fth_save_estimate half_done = {.save_s = 10, .writing = true, .rest_s = 5};
    assert_int_equal(choose(&half_done, INFINITY), FTH_SAVE_AFTER);
    assert_int_equal(choose(&half_done, 60), FTH_SAVE_AFTER);   /* 15 s for both, well inside */
    assert_int_equal(choose(&half_done, 20), FTH_SAVE_INSTEAD); /* both would be a near thing; the new one is not */
    assert_int_equal(choose(&half_done, 8), FTH_SAVE_NOT);      /* only the old one can be finished */
}

static void with_nothing_under_way_a_save_is_always_tried(void **state)
{
    (void)state;
    assert_int_equal(choose(&(fth_save_estimate){.save_s = 10}, 1), FTH_SAVE_AFTER);
}

/* Of 10 s, a copy of 100 MB on this machine gets 0.3 + 0.5 + 2 s; never more than half. */
static void a_copy_on_this_machine_gets_its_share_of_the_time(void **state)
{
    (void)state;
    fth_stop_reason reason = {.kind = FTH_STOP_REQUEST, .asked_at_s = 100, .deadline = {110}};
    assert_true(near(fth_stop_store_deadline(&reason, 100000000).at_seconds, 107.2));
    assert_true(near(fth_stop_store_deadline(&reason, 1000000000).at_seconds, 105));
    assert_true(near(fth_stop_store_deadline(&reason, 0).at_seconds, 110)); /* the folder is the store */
    reason.kind = FTH_STOP_PREEMPTION; /* the disk goes with the machine, unless a signal said so */
    assert_true(near(fth_stop_store_deadline(&reason, 100000000).at_seconds, 110));
    snprintf(reason.source, sizeof reason.source, "signal");
    assert_true(near(fth_stop_store_deadline(&reason, 100000000).at_seconds, 107.2));
}

/* ---- when the process has to end ---- */

typedef struct abandon_case {
    fth_stop_kind kind;
    double asked_s_ago, left_s;
    fth_phase phase;
    double since_s_ago, step_s;
    bool in_store, writing;
    double save_s;
    const char *expected; /* NULL: it need not */
} abandon_case;

static void the_process_ends_when_the_training_thread_does_not(void **state)
{
    (void)state;
    static const abandon_case cases[] = {
        /* before the first step: a second of grace */
        {FTH_STOP_PREEMPTION, 0.1, 30, FTH_PHASE_BEGIN, 5, 0, true, false, 0, NULL},
        {FTH_STOP_PREEMPTION, 1.5, 30, FTH_PHASE_BEGIN, 5, 0, true, false, 0, "stopped before the first step"},
        /* a step that ends too late to be saved; what is being written gets its chance */
        {FTH_STOP_PREEMPTION, 1, 5, FTH_PHASE_STEP, 1, 60, true, false, 1, "the step would not be saved in time"},
        {FTH_STOP_PREEMPTION, 1, 5, FTH_PHASE_STEP, 1, 60, true, true, 1, NULL},
        {FTH_STOP_PREEMPTION, 1, 5, FTH_PHASE_STEP, 1, 2, true, false, 1, NULL},
        {FTH_STOP_PREEMPTION, 1, 0.1, FTH_PHASE_STEP, 1, 2, true, true, 1, "time is up"},
        {FTH_STOP_PREEMPTION, 1, 0.1, FTH_PHASE_ENDING, 1, 2, true, true, 1, NULL},
        {FTH_STOP_PREEMPTION, 1, -0.1, FTH_PHASE_ENDING, 1, 2, true, true, 1, "time is up"},
        /* a request: the step gets three times its usual time, and a disk any time */
        {FTH_STOP_REQUEST, 1, 5, FTH_PHASE_STEP, 100, 1, true, false, 1, NULL},
        {FTH_STOP_REQUEST, 10, -1, FTH_PHASE_STEP, 20, 10, true, false, 1, NULL},
        {FTH_STOP_REQUEST, 10, -1, FTH_PHASE_STEP, 40, 10, true, false, 1, "the step does not end"},
        {FTH_STOP_REQUEST, 10, -1, FTH_PHASE_ENDING, 40, 10, false, false, 1, NULL},
        {FTH_STOP_REQUEST, 10, -1, FTH_PHASE_ENDING, 40, 10, true, false, 1, "time is up"},
        /* another machine has the run */
        {FTH_STOP_FENCED, 1, INFINITY, FTH_PHASE_STEP, 1, 1, true, false, 1, NULL},
        {FTH_STOP_FENCED, 6, INFINITY, FTH_PHASE_STEP, 1, 1, true, false, 1,
         "another machine has the run, and the last step does not end"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        const abandon_case *c = &cases[i];
        double now = fth_clock_seconds();
        fth_stop_reason reason = {.kind = c->kind, .asked_at_s = now - c->asked_s_ago, .deadline = {now + c->left_s}};
        fth_stop_situation situation = {.phase = c->phase,
                                        .since_s = now - c->since_s_ago,
                                        .step_s = c->step_s,
                                        .in_store = c->in_store,
                                        .saving = {.save_s = c->save_s, .writing = c->writing}};
        const char *why = fth_stop_reason_to_abandon(&reason, &situation);
        if ((why == NULL) != (c->expected == NULL) || (why && strcmp(why, c->expected) != 0))
            fail_msg("case %zu: %s", i, why ? why : "the process need not end");
    }
}

/* ---- how often ---- */

static void the_interval_is_youngs(void **state)
{
    (void)state;
    assert_true(near(fth_young_interval(0.5, 3600, 2, 0.01), 60)); /* sqrt(2 * 0.5 * 3600) = 60 */
    assert_true(near(fth_young_interval(0.5, 36000, 2, 0.01), sqrt(36000)));
}

static void the_interval_holds_the_overhead(void **state)
{
    (void)state;
    assert_true(near(fth_young_interval(5, 600, 2, 0.01), 500)); /* Young says 77 s, which would be 6 % */
    assert_true(near(fth_young_interval(5, 600, 2, 0.1), sqrt(6000)));
}

static void the_interval_is_longer_than_a_save(void **state)
{
    (void)state;
    assert_true(near(fth_young_interval(0.01, 600, 100, 0.01), 150));
    assert_true(near(fth_young_interval(0, 600, 0, 0.01), 1));
    assert_true(near(fth_young_interval(1000, 1e9, 0, 0.01), 1800)); /* and never longer than half an hour */
}

static void an_automatic_interval_follows_what_was_measured(void **state)
{
    (void)state;
    fth_interval interval;
    double between_s = 0;
    assert_int_equal(fth_interval_begin("auto", &interval), FTH_OK);
    assert_false(fth_interval_is_over(&interval, 1000000, 29.9));
    assert_true(fth_interval_is_over(&interval, 0, 30)); /* the first guess */
    fth_interval_facts facts = {.stall_s = 0.3, .save_s = 2, .elapsed_s = 0, .interruptions = 0, .overhead = 0.01};
    assert_true(fth_interval_adapt(&interval, &facts, &between_s)); /* C = 0.3 + 0.1 * 2, M = an hour */
    assert_true(near(between_s, 3600));
    assert_true(near(interval.seconds, 60));
    facts.stall_s = 0.31; /* changes of less than a fifth are none */
    assert_false(fth_interval_adapt(&interval, &facts, &between_s));
    facts.interruptions = 8; /* a machine lasts 400 s now; the overhead of 1 % is what holds */
    assert_false(fth_interval_adapt(&interval, &facts, &between_s));
    facts.overhead = 0.5;
    assert_true(fth_interval_adapt(&interval, &facts, &between_s));
    assert_true(near(interval.seconds, sqrt(2 * 0.51 * 400)));
}

static void intervals_of_steps_and_seconds_stay(void **state)
{
    (void)state;
    fth_interval interval;
    double between_s = 0;
    fth_interval_facts facts = {.stall_s = 100, .save_s = 100, .overhead = 0.01};
    assert_int_equal(fth_interval_begin("200", &interval), FTH_OK);
    assert_false(fth_interval_is_over(&interval, 199, 1e9));
    assert_true(fth_interval_is_over(&interval, 200, 0));
    assert_false(fth_interval_adapt(&interval, &facts, &between_s));
    assert_int_equal(fth_interval_begin("30s", &interval), FTH_OK);
    assert_false(fth_interval_adapt(&interval, &facts, &between_s));
    assert_true(fth_interval_is_over(&interval, 0, 30));
}

static void shares_are_read(void **state)
{
    (void)state;
    double share;
    assert_int_equal(fth_share_parse("1%", &share), FTH_OK);
    assert_true(near(share, 0.01));
    assert_int_equal(fth_share_parse("0.05", &share), FTH_OK);
    assert_true(near(share, 0.05));
    static const char *const bad[] = {"", "0", "-1%", "51%", "1.5", "x", "1%%", "nan", "1 %"};
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++)
        assert_int_equal(fth_share_parse(bad[i], &share), FTH_INVALID);
}

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_upload_under_way_is_finished_or_replaced_by_what_fits),
        cmocka_unit_test(with_nothing_under_way_a_save_is_always_tried),
        cmocka_unit_test(a_copy_on_this_machine_gets_its_share_of_the_time),
        cmocka_unit_test(the_process_ends_when_the_training_thread_does_not),
        cmocka_unit_test(the_interval_is_youngs),
        cmocka_unit_test(the_interval_holds_the_overhead),
        cmocka_unit_test(the_interval_is_longer_than_a_save),
        cmocka_unit_test(an_automatic_interval_follows_what_was_measured),
        cmocka_unit_test(intervals_of_steps_and_seconds_stay),
        cmocka_unit_test(shares_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
