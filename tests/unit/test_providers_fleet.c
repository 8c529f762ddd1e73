/* The fleet over a platform of the test's own: what each invocation comes to is written down. */
#include "support.h"

#include <math.h>
#include <pthread.h>

#include "providers/fleet.h"

enum { MAX_STEPS = 16, MAX_MEMBERS = 8 };

typedef enum script_step {
    STEP_END, /* nothing is written down: done, 10 samples */
    STEP_DONE,
    STEP_CONTINUE,    /* done, 10 samples, with a continuation {"from": 10 * invocations} */
    STEP_IDLE,        /* done, with a continuation and no samples */
    STEP_STARVED,     /* the same, while others move the model: to version 100 * invocations */
    STEP_FAIL,        /* the function failed */
    STEP_THROTTLE,    /* not accepted */
    STEP_LOSE,        /* no answer: invoke() says UNKNOWN */
    STEP_LOSE_NAMED,  /* the same with an id, of which poll() knows nothing: Lambda's errors of its own */
    STEP_POLL,        /* RUNNING, and done at the second poll() */
    STEP_POLL_SILENT, /* RUNNING, and the first poll() does not know */
    STEP_REFUSE,      /* FTH_INVALID */
    STEP_UNREACHED,   /* FTH_IO */
    STEP_FOREVER      /* RUNNING until it is stopped */
} script_step;

/* A platform: a script for each member, who is known by "member" in its parameters. */
typedef struct fake_provider {
    fth_provider base;
    script_step script[MAX_MEMBERS][MAX_STEPS];
    const fth_stop *stop;
    pthread_mutex_t mutex; /* guards what follows */
    int invoked[MAX_MEMBERS], polled[MAX_MEMBERS], running, most_running;
    char workers[MAX_MEMBERS][MAX_STEPS][32];
    json_int_t from[MAX_MEMBERS][MAX_STEPS];
    double began_s[MAX_MEMBERS][MAX_STEPS];
} fake_provider;

static fth_status finish(fake_provider *fake, int member, int step, fth_invocation_outcome *outcome)
{
    script_step kind = fake->script[member][step];
    outcome->state = kind == STEP_FAIL ? FTH_INVOCATION_FAILED : FTH_INVOCATION_DONE;
    if (kind == STEP_FAIL) {
        outcome->error = strdup("out of memory");
        return FTH_OK;
    }
    outcome->duration_s = 2;
    bool idle = kind == STEP_IDLE || kind == STEP_STARVED;
    outcome->result = json_pack("{s:i, s:f, s:f, s:i}", "samples", idle ? 0 : 10, "loss", 0.5, "accuracy", 0.9,
                                "peak_memory_bytes", 1000 * (step + 1));
    if (kind == STEP_STARVED)
        json_object_set_new(outcome->result, "version", json_integer(100 * (step + 1)));
    if (kind == STEP_CONTINUE || idle)
        json_object_set_new(outcome->result, "continuation", json_pack("{s:i}", "from", 10 * (step + 1)));
    return FTH_OK;
}

static fth_status invoke(fth_provider *base, const char *name, const json_t *parameters, fth_deadline deadline,
                         fth_invocation_outcome *outcome)
{
    fake_provider *fake = (fake_provider *)base;
    fth_status status = FTH_OK;
    int member = (int)json_integer_value(json_object_get(parameters, "member"));
    const char *worker = json_string_value(json_object_get(parameters, "worker"));
    (void)deadline;
    fth_invocation_outcome_init(outcome);
    pthread_mutex_lock(&fake->mutex);
    int step = fake->invoked[member]++;
    if (step < MAX_STEPS) {
        snprintf(fake->workers[member][step], sizeof fake->workers[member][step], "%s", worker ? worker : "");
        fake->from[member][step] =
            json_integer_value(json_object_get(json_object_get(parameters, "continuation"), "from"));
        fake->began_s[member][step] = fth_clock_seconds();
    }
    fake->running++;
    fake->most_running = fake->running > fake->most_running ? fake->running : fake->most_running;
    pthread_mutex_unlock(&fake->mutex);
    script_step kind = step < MAX_STEPS ? fake->script[member][step] : STEP_END;
    if (strcmp(name, "mnist") != 0)
        status = fth_fail(FTH_INVALID, "no function %s", name);
    else if (kind == STEP_REFUSE)
        status = fth_fail(FTH_INVALID, "no such function");
    else if (kind == STEP_UNREACHED)
        status = fth_fail(FTH_IO, "cannot be reached");
    else if (kind == STEP_THROTTLE || kind == STEP_LOSE || kind == STEP_LOSE_NAMED) {
        outcome->state = kind == STEP_THROTTLE ? FTH_INVOCATION_THROTTLED : FTH_INVOCATION_UNKNOWN;
        outcome->error = strdup("too many");
        if (kind == STEP_LOSE_NAMED)
            snprintf(outcome->id, sizeof outcome->id, "%d/%d", member, step);
    } else if (kind == STEP_POLL || kind == STEP_POLL_SILENT || kind == STEP_FOREVER)
        snprintf(outcome->id, sizeof outcome->id, "%d/%d", member, step);
    else
        status = finish(fake, member, step, outcome);
    pthread_mutex_lock(&fake->mutex);
    fake->running--;
    pthread_mutex_unlock(&fake->mutex);
    return status;
}

static fth_status poll_fake(fth_provider *base, const char *name, const char *id, fth_deadline deadline,
                            fth_invocation_outcome *outcome)
{
    fake_provider *fake = (fake_provider *)base;
    int member, step;
    (void)name, (void)deadline;
    fth_invocation_outcome_init(outcome);
    assert_int_equal(sscanf(id, "%d/%d", &member, &step), 2);
    pthread_mutex_lock(&fake->mutex);
    int polled = fake->polled[member]++;
    pthread_mutex_unlock(&fake->mutex);
    if (fake->script[member][step] == STEP_FOREVER) {
        if (fake->stop->asked)
            return fth_fail(FTH_INTERRUPTED, "stopped");
        return FTH_OK;
    }
    if (fake->script[member][step] == STEP_LOSE_NAMED)
        return fth_fail(FTH_UNSUPPORTED, "nobody can say");
    if (polled == 0 && fake->script[member][step] == STEP_POLL_SILENT)
        outcome->state = FTH_INVOCATION_UNKNOWN;
    else if (polled > 0)
        return finish(fake, member, step, outcome);
    return FTH_OK;
}

static const fth_provider_kind fake_kind = {.name = "fake", .invoke = invoke, .poll = poll_fake};

typedef struct fixture {
    fake_provider fake;
    fth_stop stop;
    fth_fleet_options options;
    json_t *parameters[MAX_MEMBERS], *results;
    fth_fleet_row rows[MAX_MEMBERS]; /* as they were shown last */
    int shown, ended, failed;
} fixture;

static void show(void *context, const fth_fleet_row *rows, int count)
{
    fixture *f = context;
    memcpy(f->rows, rows, (size_t)count * sizeof *rows);
    f->shown++;
    pthread_mutex_lock(&f->fake.mutex);
    for (int i = 0; i < count; i++) /* once the one that never ends runs, it is time to stop */
        if (f->fake.script[i][0] == STEP_FOREVER && f->fake.polled[i] > 0)
            fth_stop_ask(&f->stop, FTH_STOP_REQUEST, INFINITY, "test", "enough");
    pthread_mutex_unlock(&f->fake.mutex);
}

static void ended(void *context, int number, const fth_invocation_outcome *outcome)
{
    fixture *f = context;
    assert_in_range(number, 1, f->options.count);
    f->ended++;
    f->failed += outcome->state != FTH_INVOCATION_DONE;
}

static int start(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->stop = (fth_stop)FTH_STOP_INITIALIZER;
    f->fake = (fake_provider){.base = {&fake_kind}, .stop = &f->stop, .mutex = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < MAX_MEMBERS; i++)
        f->parameters[i] = json_pack("{s:i, s:o, s:s}", "member", i, "worker", json_sprintf("w%d", i), "run", "r");
    f->options = (fth_fleet_options){.provider = &f->fake.base,
                                     .function = "mnist",
                                     .count = 3,
                                     .parameters = (const json_t *const *)f->parameters,
                                     .limit_s = 0.2,
                                     .retry_first_s = 0.001,
                                     .deadline = fth_deadline_in(100),
                                     .stop = &f->stop,
                                     .show = show,
                                     .ended = ended,
                                     .context = f};
    *state = f;
    return 0;
}

static int stop(void **state)
{
    fixture *f = *state;
    json_decref(f->results);
    for (int i = 0; i < MAX_MEMBERS; i++)
        json_decref(f->parameters[i]);
    free(f);
    return 0;
}

static void write_script(fixture *f, int member, const script_step *steps, size_t count)
{
    memcpy(f->fake.script[member], steps, count * sizeof *steps);
}
#define SCRIPT(f, member, ...)                                                                                         \
    write_script(f, member, (const script_step[]){__VA_ARGS__},                                                        \
                 sizeof(const script_step[]){__VA_ARGS__} / sizeof(script_step))

static fth_status run(fixture *f)
{
    return fth_fleet_run(&f->options, &f->results);
}

static void all_run_once(void **state)
{
    fixture *f = *state;
    assert_int_equal(run(f), FTH_OK);
    assert_int_equal(json_array_size(f->results), 3);
    assert_int_equal(f->ended, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(f->fake.invoked[i], 1);
        assert_string_equal(f->rows[i].state, "done");
        assert_int_equal(f->rows[i].samples, 10);
        assert_int_equal(f->rows[i].invocations, 1);
        assert_true(fabs(f->rows[i].seconds - 2) < 1e-9 && fabs(f->rows[i].accuracy - 0.9) < 1e-9);
        assert_true(fabs(f->rows[i].peak_bytes - 1000) < 1e-9);
    }
}

static void no_more_run_at_once_than_allowed(void **state)
{
    fixture *f = *state;
    f->options.count = 8;
    f->options.concurrency = 2;
    assert_int_equal(run(f), FTH_OK);
    assert_in_range(f->fake.most_running, 1, 2);
    assert_int_equal(f->ended, 8);
}

static void continuations_go_on_where_they_stopped(void **state)
{
    fixture *f = *state;
    SCRIPT(f, 1, STEP_CONTINUE, STEP_CONTINUE, STEP_FAIL, STEP_DONE);
    assert_int_equal(run(f), FTH_OK);
    assert_int_equal(f->fake.invoked[1], 4);
    assert_int_equal(f->fake.from[1][0], 0);
    assert_int_equal(f->fake.from[1][1], 10);
    assert_int_equal(f->fake.from[1][2], 20);
    assert_int_equal(f->fake.from[1][3], 20); /* the same again after the failure */
    assert_int_equal(f->rows[1].samples, 30);
    assert_int_equal(f->rows[1].failures, 1);
    assert_int_equal(f->rows[1].invocations, 4);
    assert_true(fabs(f->rows[1].peak_bytes - 4000) < 1e-9);
    assert_string_equal(f->fake.workers[1][2], "w1");
    assert_string_equal(f->fake.workers[1][3], "w1.1"); /* the server may still hold the first one's lease */
}

static void throttling_is_no_failure(void **state)
{
    fixture *f = *state;
    f->options.max_failures = 2;
    SCRIPT(f, 0, STEP_THROTTLE, STEP_THROTTLE, STEP_THROTTLE, STEP_DONE);
    assert_int_equal(run(f), FTH_OK);
    assert_int_equal(f->rows[0].throttled, 3);
    assert_int_equal(f->rows[0].failures, 0);
    assert_int_equal(f->rows[0].invocations, 1);
    assert_int_equal(f->ended, 3);
}

static void failures_in_a_row_are_bounded(void **state)
{
    fixture *f = *state;
    f->options.max_failures = 3;
    SCRIPT(f, 0, STEP_FAIL, STEP_UNREACHED, STEP_FAIL, STEP_DONE);
    SCRIPT(f, 1, STEP_FAIL, STEP_FAIL, STEP_CONTINUE, STEP_FAIL, STEP_FAIL, STEP_DONE);
    assert_int_equal(run(f), FTH_IO);
    assert_message_has("1 of 3 functions failed; function 1: out of memory");
    assert_string_equal(f->rows[0].state, "failed");
    assert_int_equal(f->fake.invoked[0], 3);
    assert_string_equal(f->rows[1].state, "done");
    assert_string_equal(f->rows[2].state, "done");
    assert_true(json_is_null(json_array_get(f->results, 0)));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(f->results, 1), "samples")), 10);
}

static void what_is_refused_is_not_tried_again(void **state)
{
    fixture *f = *state;
    SCRIPT(f, 2, STEP_REFUSE);
    assert_int_equal(run(f), FTH_IO);
    assert_message_has("no such function");
    assert_int_equal(f->fake.invoked[2], 1);
    assert_string_equal(f->rows[0].state, "done");
}

static void continuations_without_progress_end(void **state)
{
    fixture *f = *state;
    f->options.max_failures = 3;
    for (int i = 0; i < MAX_STEPS; i++)
        f->fake.script[0][i] = STEP_IDLE;
    assert_int_equal(run(f), FTH_IO);
    assert_message_has("before it had trained on anything");
    assert_int_equal(f->fake.invoked[0], 3);
}

/* All shards are with others: that is no failure, however often. */
static void who_gets_no_shard_goes_on(void **state)
{
    fixture *f = *state;
    f->options.max_failures = 2;
    SCRIPT(f, 0, STEP_STARVED, STEP_STARVED, STEP_STARVED, STEP_STARVED, STEP_DONE);
    assert_int_equal(run(f), FTH_OK);
    assert_int_equal(f->fake.invoked[0], 5);
    assert_int_equal(f->rows[0].failures, 0);
}

/* One that may run is not doubled before its time limit has passed. */
static void what_is_lost_is_waited_for(void **state)
{
    fixture *f = *state;
    SCRIPT(f, 0, STEP_LOSE, STEP_DONE);
    SCRIPT(f, 1, STEP_LOSE_NAMED, STEP_DONE);
    assert_int_equal(run(f), FTH_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(f->fake.invoked[i], 2);
        assert_true(f->fake.began_s[i][1] - f->fake.began_s[i][0] >= f->options.limit_s);
        assert_int_equal(f->rows[i].failures, 1);
    }
    assert_string_equal(f->fake.workers[0][1], "w0.1");
}

static void what_runs_is_polled(void **state)
{
    fixture *f = *state;
    f->options.limit_s = 100;
    SCRIPT(f, 0, STEP_POLL);
    SCRIPT(f, 1, STEP_POLL_SILENT);
    assert_int_equal(run(f), FTH_OK);
    assert_int_equal(f->fake.invoked[0], 1);
    assert_int_equal(f->fake.invoked[1], 1);
    assert_int_equal(f->fake.polled[0], 2);
    assert_string_equal(f->rows[0].id, "0/0");
    assert_int_equal(f->rows[1].samples, 10);
}

static void a_stop_leaves_what_runs(void **state)
{
    fixture *f = *state;
    f->options.limit_s = 1000;
    f->options.deadline = fth_deadline_in(INFINITY);
    f->options.count = 4;
    f->options.concurrency = 1;
    SCRIPT(f, 0, STEP_FOREVER);
    assert_int_equal(run(f), FTH_INTERRUPTED);
    assert_message_has("0 of 4 functions finished");
    assert_string_equal(f->rows[0].state, "running");
    assert_string_equal(f->rows[3].state, "waiting");
    assert_int_equal(f->fake.invoked[3], 0);
}

static void the_whole_has_a_deadline(void **state)
{
    fixture *f = *state;
    f->options.deadline = fth_deadline_in(0.05);
    f->options.limit_s = 1000;
    for (int i = 0; i < MAX_STEPS; i++)
        f->fake.script[0][i] = STEP_LOSE;
    assert_int_equal(run(f), FTH_TIMEOUT);
    assert_message_has("of 3 functions finished in time");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_run_once, start, stop),
        cmocka_unit_test_setup_teardown(no_more_run_at_once_than_allowed, start, stop),
        cmocka_unit_test_setup_teardown(continuations_go_on_where_they_stopped, start, stop),
        cmocka_unit_test_setup_teardown(throttling_is_no_failure, start, stop),
        cmocka_unit_test_setup_teardown(failures_in_a_row_are_bounded, start, stop),
        cmocka_unit_test_setup_teardown(what_is_refused_is_not_tried_again, start, stop),
        cmocka_unit_test_setup_teardown(continuations_without_progress_end, start, stop),
        cmocka_unit_test_setup_teardown(who_gets_no_shard_goes_on, start, stop),
        cmocka_unit_test_setup_teardown(what_is_lost_is_waited_for, start, stop),
        cmocka_unit_test_setup_teardown(what_runs_is_polled, start, stop),
        cmocka_unit_test_setup_teardown(a_stop_leaves_what_runs, start, stop),
        cmocka_unit_test_setup_teardown(the_whole_has_a_deadline, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
