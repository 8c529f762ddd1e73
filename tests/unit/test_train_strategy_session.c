/* Updates: what the strategy session hands to a strategy, and what it makes of results that come back at
 * once, later or never. */
#include "test_train_run.h"

#include "train/loop/strategy_session.h"

/* 5 batches of 10 an epoch, in 2 updates of 3 and 2. */

/* ---- a strategy that computes nothing ---- */

static struct {
    int64_t batches;     /* stepped so far */
    int64_t undelivered; /* samples of which drain() gives the results */
    int64_t finish_at;   /* batches; 0: never */
    double learning_rate;
    bool late;      /* results come with drain() alone */
    bool connected; /* connect() was called, and close() not yet */
    fth_status connects;
    int losses, waits, rejoins; /* peers lost while they synchronize; calls for which there are too few; calls in all */
    const char *event;          /* given once */
} workers;

static fth_status connect_workers(fth_engine *engine, const fth_train_options *options, fth_stop *stop, void **state,
                                  fth_peer_place *place)
{
    (void)engine;
    (void)options;
    (void)stop;
    (void)place;
    if (workers.connects != FTH_OK)
        return fth_fail(workers.connects, "nobody answers");
    workers.connected = true;
    *state = &workers;
    return FTH_OK;
}

static fth_status open_workers(fth_engine *engine, const fth_train_options *options, void **state)
{
    (void)engine;
    (void)options;
    assert_ptr_equal(*state, &workers);
    return FTH_OK;
}

static fth_status step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    (void)state;
    assert_int_equal(batch->number, workers.batches);
    workers.batches++;
    workers.learning_rate = learning_rate;
    if (workers.late)
        workers.undelivered += batch->count;
    else
        *result = (fth_step_result){.loss = 2, .correct = 1, .samples = batch->count};
    result->finished = workers.batches == workers.finish_at;
    return FTH_OK;
}

static fth_status drain(void *state, fth_step_result *result)
{
    (void)state;
    *result = (fth_step_result){.loss = 3, .samples = workers.undelivered};
    workers.undelivered = 0;
    return FTH_OK;
}

static json_t *take_event(void *state)
{
    (void)state;
    json_t *event = workers.event ? json_pack("{s:s}", "event", workers.event) : NULL;
    workers.event = NULL;
    return event;
}

static fth_status synchronize(void *state, json_t **position)
{
    (void)state;
    (void)position;
    return workers.losses-- > 0 ? fth_fail(FTH_PEER_LOST, "a peer was lost") : FTH_OK;
}

static fth_status rejoin(void *state, fth_peer_place *place)
{
    (void)state;
    (void)place;
    workers.rejoins++;
    return workers.waits-- > 0 ? fth_fail(FTH_TIMEOUT, "there are too few") : FTH_OK;
}

static void close_workers(void *state)
{
    assert_ptr_equal(state, &workers);
    workers.connected = false;
}

static const fth_strategy strategy = {.name = "workers",
                                      .has_workers = true,
                                      .ended_by = "owner",
                                      .connect = connect_workers,
                                      .open = open_workers,
                                      .synchronize = synchronize,
                                      .rejoin = rejoin,
                                      .step = step,
                                      .drain = drain,
                                      .take_event = take_event,
                                      .close = close_workers};

/* ---- a run ---- */

static fth_strategy_session *session;

static int set_up(void **state)
{
    memset(&workers, 0, sizeof workers);
    run_prepare(state);
    run.options.optimizer.accumulate = 3;
    run.options.limits.epochs = 4;
    run.options.schedule.warmup.count = 4;
    run.options.optimizer.lr = 0.8;
    run_open(&strategy);
    return 0;
}

static int tear_down(void **state)
{
    fth_strategy_session_free(session);
    session = NULL;
    assert_false(workers.connected);
    return run_release(state);
}

static void open_session(void)
{
    assert_int_equal(fth_strategy_session_create(&run.position, run.reporter, NULL, &session), FTH_OK);
    assert_int_equal(fth_strategy_session_connect(session, &run.setup), FTH_OK);
    workers.batches = run.position.state.batches;
    while (fth_strategy_session_open(session) == FTH_PEER_LOST)
        while (fth_strategy_session_form(session) == FTH_TIMEOUT)
            ;
}

static void update(void)
{
    assert_int_equal(fth_strategy_session_update(session), FTH_OK);
}

static void an_update_has_its_group_of_batches(void **state)
{
    (void)state;
    open_session();
    update();
    assert_int_equal(workers.batches, 3);
    assert_int_equal(run.position.step, 1);
    assert_int_equal(run.position.changes, 1);
    assert_true(workers.learning_rate == 0.8 * 1 / 4); /* of the warm-up */
    assert_int_equal(run.position.state.samples, 30);
    assert_true(run.position.state.epoch_loss == 60);
    assert_int_equal(run.position.state.epoch_correct, 3);
    assert_false(fth_strategy_session_is_at_epoch_end(session));
    update(); /* the last group of an epoch is short */
    assert_int_equal(workers.batches, 5);
    assert_int_equal(run.position.step, 2);
    assert_true(workers.learning_rate == 0.8 * 2 / 4);
    assert_true(fth_strategy_session_is_at_epoch_end(session));
    fth_position_begin_epoch(&run.position);
    assert_int_equal(fth_strategy_session_settle(session), FTH_OK); /* nothing came in meanwhile */
    assert_false(fth_strategy_session_is_at_epoch_end(session));
}

static void results_that_come_late_count_when_settled(void **state)
{
    (void)state;
    workers.late = true;
    open_session();
    update();
    update();
    assert_int_equal(run.position.state.epoch_samples, 0);
    assert_true(fth_strategy_session_is_at_epoch_end(session)); /* though nothing was counted yet */
    assert_int_equal(fth_strategy_session_settle(session), FTH_OK);
    assert_int_equal(run.position.state.epoch_samples, RUN_TRAINING);
    assert_true(run.position.state.epoch_loss == 3 * RUN_TRAINING);
    assert_true(fth_strategy_session_is_at_epoch_end(session));
    fth_position_begin_epoch(&run.position);
    assert_false(fth_strategy_session_is_at_epoch_end(session));
}

static void a_resumed_run_takes_its_next_batch(void **state)
{
    (void)state;
    run.position.state.batches = 5 + 3;
    run.position.step = 3;
    open_session();
    update(); /* step() checks the number */
    assert_int_equal(workers.batches, 10);
    assert_int_equal(run.position.step, 4);
}

static void a_strategy_may_end_the_training(void **state)
{
    (void)state;
    workers.finish_at = 5;
    open_session();
    update();
    assert_null(fth_strategy_session_ended_by(session));
    update();
    assert_string_equal(fth_strategy_session_ended_by(session), "owner");
}

static void a_strategys_events_say_the_step(void **state)
{
    (void)state;
    open_session();
    workers.event = "worker_lost";
    update();
    assert_string_equal(run_event_name(0), "worker_lost");
    assert_int_equal(run_event_integer(0, "step"), 1);
    assert_int_equal(json_array_size(run.events), 2); /* and the first step's */
}

static void a_strategy_that_cannot_connect_is_not_closed(void **state)
{
    (void)state;
    workers.connects = FTH_PEER_LOST;
    assert_int_equal(fth_strategy_session_create(&run.position, run.reporter, NULL, &session), FTH_OK);
    assert_int_equal(fth_strategy_session_connect(session, &run.setup), FTH_PEER_LOST);
    assert_message_has("nobody answers");
}

static void a_peer_that_is_left_alone_waits_for_others(void **state)
{
    (void)state;
    workers.losses = 2;
    workers.waits = 3;
    open_session();
    assert_int_equal(workers.rejoins, 2 + 3);
    update();
    assert_int_equal(run.position.step, 1);
}

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_update_has_its_group_of_batches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(results_that_come_late_count_when_settled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_resumed_run_takes_its_next_batch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_strategy_may_end_the_training, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_strategys_events_say_the_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_strategy_that_cannot_connect_is_not_closed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_peer_that_is_left_alone_waits_for_others, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
