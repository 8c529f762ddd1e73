/* The scheduler of the batch cache, event by event. Whole courses of several jobs:
 * test_batches_scheduler_courses.c. */
#include "support.h"

#include <math.h>

#include "batches/scheduler/scheduler.h"

enum { SET_COUNT = 1000, ITEM_BYTES = 100 };

static fth_scheduler *create(uint64_t memory_bytes)
{
    fth_scheduler *scheduler;
    fth_scheduler_options options = {.memory_bytes = memory_bytes};
    assert_int_equal(fth_scheduler_create(&options, &scheduler), FTH_OK);
    return scheduler;
}

static fth_job_spec make_spec(fth_cache_format format)
{
    fth_job_spec spec = {.data = "photos",
                         .transform = "random-resized-crop=224,flip",
                         .batch = 10,
                         .shuffle = true,
                         .order_seed = 1,
                         .augment_seed = 1,
                         .format = format};
    memset(spec.version, 'a', sizeof spec.version - 1);
    return spec;
}

static void add_job(fth_scheduler *scheduler, uint64_t job, const fth_job_spec *spec, double now_s)
{
    assert_int_equal(fth_scheduler_add_job(scheduler, job, spec, SET_COUNT, now_s), FTH_OK);
}

static fth_item_id batch_id(const fth_job_spec *spec, int64_t number)
{
    int64_t samples[SET_COUNT];
    fth_batch_plan plan = {.samples = samples};
    fth_job_plan_batch(spec, SET_COUNT, number, &plan);
    return fth_job_batch_id(spec, &plan);
}

static void list_samples(const fth_job_spec *spec, int64_t number, fth_item_id ids[10])
{
    int64_t samples[10];
    fth_batch_plan plan = {.samples = samples};
    fth_job_plan_batch(spec, SET_COUNT, number, &plan);
    for (int i = 0; i < 10; i++)
        ids[i] = fth_job_sample_id(spec, FTH_ITEM_DECODED, samples[i]);
}

static void finish(fth_scheduler *scheduler, const fth_order *order, double now_s)
{
    int64_t samples = order->kind == FTH_ITEM_BATCH ? order->spec.batch : 1;
    fth_prefetch_result preparation = {.receipt = {.id = order->id, .size_bytes = ITEM_BYTES, .checksum = 7},
                                       .samples = samples,
                                       .decoded = order->kind == FTH_ITEM_ENCODED ? 0 : samples,
                                       .fetch_s = 0.001 * (double)samples,
                                       .decode_s = 0.004 * (double)samples,
                                       .fetched_bytes = 10 * (uint64_t)samples};
    fth_scheduler_done(scheduler, order, &preparation, now_s);
}

/* Takes the next order, which must be for that batch, and finishes it. */
static void expect_batch(fth_scheduler *scheduler, int64_t number, double now_s)
{
    fth_order order;
    assert_true(fth_scheduler_take(scheduler, "maker", now_s, &order));
    assert_int_equal(order.number, number);
    assert_true(fth_item_id_equal(order.id, batch_id(&order.spec, number)));
    finish(scheduler, &order, now_s);
}

static void expect_nothing(fth_scheduler *scheduler, double now_s)
{
    fth_order order;
    assert_false(fth_scheduler_take(scheduler, "maker", now_s, &order));
}

static void expect_state(fth_scheduler *scheduler, fth_item_id id, fth_item_state state)
{
    assert_int_equal(fth_scheduler_state(scheduler, id, NULL, NULL), state);
}

static int take_all(fth_scheduler *scheduler, double now_s)
{
    fth_order order;
    int count = 0;
    for (; fth_scheduler_take(scheduler, "maker", now_s, &order); count++)
        finish(scheduler, &order, now_s);
    return count;
}

/* ---- what jobs had ---- */

static uint64_t decoded_by_others(const fth_scheduler *scheduler, uint64_t job)
{
    fth_scheduler_job_figures figures;
    assert_true(fth_scheduler_get_job_figures(scheduler, job, &figures));
    return figures.decoded_by_others;
}

static void what_a_job_passes_counts_beyond_its_window_too(void **state)
{
    (void)state;
    enum { BATCHES = 100, SAMPLES = 10 * BATCHES };
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    for (int64_t next = 0; next <= BATCHES; next++) {
        fth_scheduler_set_position(scheduler, 1, 0, next, 1, BATCHES, (double)next);
        take_all(scheduler, (double)next);
    }
    add_job(scheduler, 2, &spec, BATCHES);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, BATCHES, BATCHES);
    fth_scheduler_set_position(scheduler, 2, 0, BATCHES, 1, BATCHES, BATCHES); /* between two looks at it */
    assert_int_equal(decoded_by_others(scheduler, 2), SAMPLES);
    /* A job that leaves and comes back has what was made for it, all the same. */
    fth_scheduler_remove_job(scheduler, 1);
    add_job(scheduler, 1, &spec, BATCHES);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, BATCHES, BATCHES);
    fth_scheduler_set_position(scheduler, 1, 0, BATCHES, 1, BATCHES, BATCHES);
    assert_int_equal(decoded_by_others(scheduler, 1), 0);
    fth_scheduler_free(scheduler);
}

/* ---- what is next ---- */

static void batches_are_prepared_in_the_order_of_need(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    expect_nothing(scheduler, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 5, 1, 0, 0);
    for (int64_t number = 5; number < 8; number++)
        expect_batch(scheduler, number, 0);
    fth_receipt receipt;
    assert_int_equal(fth_scheduler_state(scheduler, batch_id(&spec, 5), &receipt, NULL), FTH_ITEM_READY);
    assert_int_equal(receipt.size_bytes, ITEM_BYTES);
    assert_int_equal(receipt.checksum, 7);
    fth_scheduler_free(scheduler);
}

static void an_end_is_kept(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 1, 2, 6, 0);
    expect_batch(scheduler, 1, 0);
    expect_batch(scheduler, 3, 0);
    expect_batch(scheduler, 5, 0);
    expect_nothing(scheduler, 0);
    fth_scheduler_free(scheduler);
}

static void little_is_prepared_beyond_an_epoch_that_may_be_the_last(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    int made = 0;
    for (int64_t next = 0; next <= 100; next++) { /* an epoch, a hundred batches a second */
        fth_scheduler_set_position(scheduler, 1, 0, next, 1, 0, 0.01 * (double)next);
        made += take_all(scheduler, 0.01 * (double)next);
        if (next == 99)
            assert_in_range(made, 102, 115);
    }
    assert_true(made > 190); /* it has gone on: the whole of the next is ahead */
    fth_scheduler_free(scheduler);
}

static void processes_take_turns(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    for (int process = 0; process < 4; process++)
        fth_scheduler_set_position(scheduler, 1, process, process, 4, 0, 0);
    for (int64_t number = 0; number < 12; number++)
        expect_batch(scheduler, number, 0);
    fth_scheduler_free(scheduler);
}

static void the_faster_job_comes_first(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec slow = make_spec(FTH_FORMAT_BATCHES), fast = slow;
    fast.augment_seed = 2;
    add_job(scheduler, 1, &slow, 0);
    add_job(scheduler, 2, &fast, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 0, 0);
    take_all(scheduler, 0);
    fth_scheduler_set_position(scheduler, 2, 0, 8, 1, 0, 1); /* eight a second */
    fth_scheduler_set_position(scheduler, 1, 0, 2, 1, 0, 2); /* one a second */
    assert_true(fabs(fth_scheduler_pace(scheduler, 1) - 1) < 0.01);
    assert_true(fabs(fth_scheduler_pace(scheduler, 2) - 8) < 0.01);
    fth_scheduler_set_position(scheduler, 2, 0, 16, 1, 0, 2);
    /* Job 1 has batches up to 7 ready, for 6 s; job 2 has those up to 15, and now is at 16. */
    int of_fast = 0;
    fth_order order;
    for (int i = 0; i < 40; i++) {
        assert_true(fth_scheduler_take(scheduler, "maker", 2, &order));
        of_fast += order.spec.augment_seed == 2;
    }
    assert_int_equal(of_fast, 40);
    fth_scheduler_free(scheduler);
}

static void make_samples(fth_scheduler *scheduler, int count, double now_s)
{
    fth_order order;
    for (int i = 0; i < count; i++) {
        assert_true(fth_scheduler_take(scheduler, "maker", now_s, &order));
        finish(scheduler, &order, now_s);
    }
}

static void waiting_for_samples_is_no_work_of_the_job(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_DECODED);
    fth_item_id first[10], second[10];
    list_samples(&spec, 0, first);
    list_samples(&spec, 1, second);
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 1);
    assert_true(fth_scheduler_want(scheduler, 1, first[0], 1));
    make_samples(scheduler, 1, 4);
    make_samples(scheduler, 9, 8); /* it waits for the last of them, whichever it has asked for */
    assert_true(fth_scheduler_want(scheduler, 1, second[3], 8.01)); /* by another thread */
    fth_scheduler_set_position(scheduler, 1, 0, 1, 1, 0, 8.01);
    assert_true(fth_scheduler_pace(scheduler, 1) > 50);
    make_samples(scheduler, 10, 16);
    fth_scheduler_set_position(scheduler, 1, 0, 2, 1, 0, 16.01);
    assert_true(fth_scheduler_pace(scheduler, 1) > 50);
    fth_scheduler_free(scheduler);
}

static void jobs_that_only_wait_take_turns(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec late = make_spec(FTH_FORMAT_BATCHES), soon = late;
    fth_order order;
    soon.augment_seed = 2;
    add_job(scheduler, 1, &late, 0);
    add_job(scheduler, 2, &soon, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 1);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 0, 1);
    assert_true(fth_scheduler_want(scheduler, 1, batch_id(&late, 0), 1));
    assert_true(fth_scheduler_want(scheduler, 2, batch_id(&soon, 0), 1));
    expect_batch(scheduler, 0, 1.5);
    fth_scheduler_set_position(scheduler, 1, 0, 1, 1, 0, 1.5); /* each took its batch at once */
    expect_batch(scheduler, 0, 8);
    fth_scheduler_set_position(scheduler, 2, 0, 1, 1, 0, 8);
    int of_second = 0;
    for (int i = 0; i < 20; i++) {
        assert_true(fth_scheduler_take(scheduler, "maker", 8, &order));
        of_second += order.spec.augment_seed == 2;
    }
    assert_in_range(of_second, 8, 12);
    fth_scheduler_free(scheduler);
}

static void what_somebody_waits_for_comes_first_of_all(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES), other = spec;
    other.order_seed = 2;
    add_job(scheduler, 1, &spec, 0);
    add_job(scheduler, 2, &other, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 0, 0);
    assert_true(fth_scheduler_want(scheduler, 2, batch_id(&other, 3), 0));
    assert_false(fth_scheduler_want(scheduler, 2, batch_id(&other, 900), 0));
    assert_false(fth_scheduler_want(scheduler, 1, batch_id(&other, 3), 0));
    fth_order order;
    assert_true(fth_scheduler_take(scheduler, "maker", 0, &order));
    assert_true(fth_item_id_equal(order.id, batch_id(&other, 3)));
    fth_scheduler_free(scheduler);
}

static void jobs_with_equal_specs_share(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    add_job(scheduler, 2, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 8, 0);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 8, 0);
    assert_int_equal(take_all(scheduler, 0), 8);
    fth_scheduler_set_position(scheduler, 1, 0, 8, 1, 8, 1);
    fth_scheduler_set_position(scheduler, 2, 0, 8, 1, 8, 2);
    fth_scheduler_job_figures first, second;
    assert_true(fth_scheduler_get_job_figures(scheduler, 1, &first));
    assert_true(fth_scheduler_get_job_figures(scheduler, 2, &second));
    assert_int_equal(first.decoded_for_it + second.decoded_for_it, 80);
    assert_int_equal(first.decoded_by_others + second.decoded_by_others, 80);
    assert_false(fth_scheduler_get_job_figures(scheduler, 3, &second));
    fth_scheduler_free(scheduler);
}

static void samples_are_shared_by_jobs_that_differ(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_DECODED), other = spec;
    other.augment_seed = 9;
    other.batch = 25;
    strcpy(other.transform, "resize=64x64");
    add_job(scheduler, 1, &spec, 0);
    add_job(scheduler, 2, &other, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 5, 0);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 2, 0);
    fth_order order;
    int64_t samples[10];
    fth_batch_plan plan = {.samples = samples};
    fth_job_plan_batch(&spec, SET_COUNT, 0, &plan);
    assert_true(fth_scheduler_take(scheduler, "maker", 0, &order));
    assert_int_equal(order.kind, FTH_ITEM_DECODED);
    assert_int_equal(order.number, samples[0]);
    finish(scheduler, &order, 0);
    assert_int_equal(1 + take_all(scheduler, 0), 50);
    fth_scheduler_job_figures figures;
    fth_scheduler_get_job_figures(scheduler, 2, &figures);
    assert_int_equal(figures.ready_ahead, 2);
    fth_scheduler_free(scheduler);
}

static void the_next_event_is_now_when_there_is_something(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(8 * ITEM_BYTES);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 1);
    assert_true(fth_scheduler_next_event(scheduler, 1) > 1);
    assert_true(fth_scheduler_next_event(scheduler, 1) <= 2);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 9, 1);
    fth_order order;
    for (int i = 0; i < 8; i++) {
        assert_true(fth_scheduler_next_event(scheduler, 1) == 1);
        assert_true(fth_scheduler_take(scheduler, "maker", 1, &order));
        if (i == 0) /* how large they are is not known yet */
            assert_true(fth_scheduler_next_event(scheduler, 1) > 1);
        finish(scheduler, &order, 1);
    }
    assert_true(fth_scheduler_next_event(scheduler, 1) > 1); /* memory is full */
    fth_scheduler_set_position(scheduler, 1, 0, 1, 1, 9, 2);
    assert_true(fth_scheduler_next_event(scheduler, 2) == 2);
    assert_true(fth_scheduler_take(scheduler, "maker", 2, &order));
    assert_false(fth_scheduler_failed(scheduler, &order, "maker", FTH_IO, "no", 2));
    double next = fth_scheduler_next_event(scheduler, 2);
    assert_true(next > 2 && next < 3);
    fth_scheduler_free(scheduler);
}

/* ---- failures ---- */

static void a_failure_is_tried_elsewhere_and_then_given_up(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 1, 0);
    fth_order order;
    assert_true(fth_scheduler_take(scheduler, "c", 0, &order));
    fth_scheduler_failed(scheduler, &order, "c", FTH_IO, "first", 0);
    assert_false(fth_scheduler_take(scheduler, "a", 0, &order)); /* a pause */
    double now = fth_scheduler_next_event(scheduler, 0);
    assert_true(now > 0);
    now += 1;
    assert_false(fth_scheduler_take(scheduler, "c", now, &order)); /* a can do it */
    assert_true(fth_scheduler_take(scheduler, "a", now, &order));
    assert_false(fth_scheduler_failed(scheduler, &order, "a", FTH_TIMEOUT, "second", now));
    now += 1;
    assert_true(fth_scheduler_take(scheduler, "b", now, &order));
    assert_true(fth_scheduler_failed(scheduler, &order, "b", FTH_IO, "cats/7.jpg: gone", now));
    const char *reason = NULL;
    assert_int_equal(fth_scheduler_state(scheduler, order.id, NULL, &reason), FTH_ITEM_FAILED);
    assert_string_equal(reason, "cats/7.jpg: gone");
    for (int i = 0; i < 100; i++)
        assert_false(fth_scheduler_take(scheduler, "d", now + i, &order));
    fth_scheduler_figures figures;
    fth_scheduler_get_figures(scheduler, &figures);
    assert_int_equal(figures.failed, 1);
    assert_int_equal(figures.tried_again, 2);
    assert_int_equal(figures.failed_for_good, 1);

    /* All have passed it: it is forgotten. One that begins again before it tries again. */
    fth_scheduler_set_position(scheduler, 1, 0, 1, 1, 1, now);
    expect_state(scheduler, batch_id(&spec, 0), FTH_ITEM_UNKNOWN);
    fth_scheduler_free(scheduler);
}

static void what_somebody_waits_for_is_given_to_a_second_maker(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    fth_order stuck, second;
    fth_scheduler_figures figures;
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 1, 0);
    assert_true(fth_scheduler_take(scheduler, "slow", 0, &stuck));
    assert_false(fth_scheduler_take(scheduler, "other", 9, &second)); /* nobody waits for it */
    assert_true(fth_scheduler_want(scheduler, 1, stuck.id, 9));
    assert_false(fth_scheduler_take(scheduler, "slow", 9, &second)); /* which has it */
    assert_true(fth_scheduler_next_event(scheduler, 9) <= 9);
    assert_true(fth_scheduler_take(scheduler, "other", 9, &second));
    assert_true(fth_item_id_equal(second.id, stuck.id));
    assert_false(fth_scheduler_take(scheduler, "third", 9.5, &second)); /* not at once again */
    assert_false(fth_scheduler_failed(scheduler, &stuck, "slow", FTH_TIMEOUT, "too late", 10));
    expect_state(scheduler, stuck.id, FTH_ITEM_BEING_MADE);
    finish(scheduler, &second, 10);
    expect_state(scheduler, stuck.id, FTH_ITEM_READY);
    finish(scheduler, &stuck, 11); /* it comes after all: nothing changes */
    fth_scheduler_get_figures(scheduler, &figures);
    assert_int_equal(figures.ready_items, 1);
    assert_int_equal(figures.ready_bytes, ITEM_BYTES);
    assert_int_equal(figures.making, 0);
    fth_scheduler_free(scheduler);
}

static void a_batch_of_two_sequences_outlives_one_of_them(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec whole = make_spec(FTH_FORMAT_BATCHES), half = whole;
    half.batch = 2 * whole.batch;
    half.part = (fth_share){.index = 0, .of = 2};
    add_job(scheduler, 1, &whole, 0);
    add_job(scheduler, 2, &half, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 0, 0);
    assert_true(fth_item_id_equal(batch_id(&whole, 0), batch_id(&half, 0)));
    fth_scheduler_remove_job(scheduler, 1);
    expect_batch(scheduler, 0, 0);
    expect_state(scheduler, batch_id(&half, 0), FTH_ITEM_READY);
    assert_true(take_all(scheduler, 0) > 0);
    fth_scheduler_free(scheduler);
}

static void the_only_maker_tries_again_after_a_pause(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 1, 0);
    fth_scheduler_want(scheduler, 1, batch_id(&spec, 0), 0);
    fth_order order;
    int tries = 0;
    for (double now = 0; now < 100; now += 0.01)
        if (fth_scheduler_take(scheduler, "only", now, &order)) {
            tries++;
            if (fth_scheduler_failed(scheduler, &order, "only", FTH_IO, "no", now)) {
                assert_true(now < 4); /* before its job gives up waiting */
                assert_true(now > 0.3);
            }
        }
    assert_int_equal(tries, 3);
    fth_scheduler_free(scheduler);
}

static void what_cannot_work_is_not_tried_again(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 1, 0);
    fth_order order;
    assert_true(fth_scheduler_take(scheduler, "a", 0, &order));
    assert_true(fth_scheduler_failed(scheduler, &order, "a", FTH_INVALID, "no such transform", 0));
    fth_scheduler_free(scheduler);
}

static void a_cache_without_room_is_no_failure_of_the_item(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 1, 0);
    fth_order order;
    double now = 0;
    for (int i = 0; i < 5; i++, now += 5) {
        assert_true(fth_scheduler_take(scheduler, "a", now, &order));
        assert_false(fth_scheduler_failed(scheduler, &order, "a", FTH_NO_MEMORY, "full", now));
    }
    assert_true(fth_scheduler_take(scheduler, "a", now, &order));
    assert_false(fth_scheduler_failed(scheduler, &order, "a", FTH_IO, "a first failure", now));
    now += 5;
    int tries = 0;
    bool given_up = false;
    for (; !given_up && tries < 1000; tries++, now += 5) { /* but not for ever */
        assert_true(fth_scheduler_take(scheduler, "a", now, &order));
        given_up = fth_scheduler_failed(scheduler, &order, "a", FTH_NO_MEMORY, "full", now);
    }
    assert_true(given_up && tries < 100);
    fth_scheduler_free(scheduler);
}

static void a_job_that_begins_again_tries_again(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    add_job(scheduler, 2, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 1, 0);
    fth_order order;
    assert_true(fth_scheduler_take(scheduler, "a", 0, &order));
    assert_true(fth_scheduler_failed(scheduler, &order, "a", FTH_UNSUPPORTED, "no", 0));
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 1, 1);
    expect_batch(scheduler, 0, 1);
    expect_state(scheduler, order.id, FTH_ITEM_READY);
    fth_scheduler_free(scheduler);
}

static void what_is_lost_is_prepared_again(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 4, 0);
    assert_int_equal(take_all(scheduler, 0), 4);
    fth_scheduler_lost(scheduler, batch_id(&spec, 2));
    fth_scheduler_lost(scheduler, batch_id(&spec, 77)); /* never heard of */
    expect_state(scheduler, batch_id(&spec, 2), FTH_ITEM_WAITING);
    expect_batch(scheduler, 2, 0);
    expect_nothing(scheduler, 0);
    fth_scheduler_free(scheduler);
}

/* ---- memory ---- */

/* Drops what must go, and gives the number. */
static size_t evict(fth_scheduler *scheduler, uint64_t needed_bytes, double now_s, fth_item_id ids[64])
{
    return fth_scheduler_evict(scheduler, needed_bytes, now_s, ids, 64);
}

static void nothing_later_displaces_something_earlier(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(3 * ITEM_BYTES);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    fth_item_id ids[64];
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    assert_int_equal(take_all(scheduler, 0), 3);
    assert_int_equal(evict(scheduler, 0, 0, ids), 0);
    fth_scheduler_set_position(scheduler, 1, 0, 1, 1, 0, 1);
    expect_batch(scheduler, 3, 1); /* in the room of batch 0 */
    assert_int_equal(evict(scheduler, 0, 1, ids), 1);
    assert_true(fth_item_id_equal(ids[0], batch_id(&spec, 0)));
    expect_state(scheduler, ids[0], FTH_ITEM_UNKNOWN);
    expect_nothing(scheduler, 1);
    fth_scheduler_free(scheduler);
}

static void what_is_needed_last_makes_room_for_what_is_needed_now(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(6 * ITEM_BYTES);
    fth_job_spec slow = make_spec(FTH_FORMAT_BATCHES), urgent = slow;
    fth_item_id ids[64];
    urgent.order_seed = 2;
    add_job(scheduler, 1, &slow, 0);
    add_job(scheduler, 2, &urgent, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    assert_int_equal(take_all(scheduler, 0), 6);
    fth_scheduler_set_position(scheduler, 1, 0, 1, 1, 0, 1); /* one a second; batches 1 to 5 are there */
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 2, 1);
    assert_int_equal(take_all(scheduler, 1), 2);
    assert_int_equal(evict(scheduler, 0, 1, ids), 2);
    assert_true(fth_item_id_equal(ids[0], batch_id(&slow, 0))); /* passed */
    assert_true(fth_item_id_equal(ids[1], batch_id(&slow, 5))); /* needed last */
    expect_state(scheduler, batch_id(&slow, 4), FTH_ITEM_READY);
    expect_state(scheduler, batch_id(&slow, 5), FTH_ITEM_WAITING);
    /* Room again: it is made again. */
    fth_scheduler_remove_job(scheduler, 2);
    expect_batch(scheduler, 5, 1);
    fth_scheduler_free(scheduler);
}

static void a_slower_job_finds_what_it_needs_next(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(20 * ITEM_BYTES);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    fth_item_id ids[64];
    add_job(scheduler, 1, &spec, 0);
    add_job(scheduler, 2, &spec, 0);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 0, 0);
    take_all(scheduler, 0);
    fth_scheduler_set_position(scheduler, 2, 0, 1, 1, 0, 10); /* one in ten seconds: two batches ahead */
    for (int64_t next = 0; next < 60; next++) {
        double now = 10 + 0.1 * (double)next;
        fth_scheduler_set_position(scheduler, 1, 0, next, 1, 0, now);
        take_all(scheduler, now);
        evict(scheduler, 0, now, ids);
    }
    /* The fast one has passed batch 58; the slow one needs those from 1 on, and memory is full of
     * the nearest of them. */
    int kept = 0;
    for (int64_t number = 1; number < 50; number++) {
        bool ready = fth_scheduler_state(scheduler, batch_id(&spec, number), NULL, NULL) == FTH_ITEM_READY;
        kept += ready;
        if (number <= 5)
            assert_true(ready);
    }
    assert_true(kept >= 5);
    fth_scheduler_free(scheduler);
}

static void a_paused_job_does_not_hold_memory_for_ever(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(4 * ITEM_BYTES);
    fth_job_spec paused = make_spec(FTH_FORMAT_BATCHES), live = paused;
    fth_item_id ids[64];
    live.order_seed = 2;
    add_job(scheduler, 1, &paused, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    assert_int_equal(take_all(scheduler, 0), 4);
    add_job(scheduler, 2, &live, 30);
    int made = 0;
    for (int64_t next = 0; next < 50; next++) {
        double now = 30 + 0.1 * (double)next;
        fth_scheduler_set_position(scheduler, 2, 0, next, 1, 0, now);
        made += take_all(scheduler, now);
        evict(scheduler, 0, now, ids);
    }
    assert_true(made >= 50);
    fth_scheduler_free(scheduler);
}

static void needed_bytes_are_made_free(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(100 * ITEM_BYTES);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    fth_item_id ids[64];
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 8, 0);
    assert_int_equal(take_all(scheduler, 0), 8);
    assert_int_equal(evict(scheduler, 2 * ITEM_BYTES + 1, 0, ids), 3);
    assert_true(fth_item_id_equal(ids[0], batch_id(&spec, 7)));
    assert_true(fth_item_id_equal(ids[1], batch_id(&spec, 6)));
    assert_int_equal(fth_scheduler_evict(scheduler, 10 * ITEM_BYTES, 0, ids, 2), 2); /* as many as there is room for */
    assert_int_equal(evict(scheduler, 10 * ITEM_BYTES, 0, ids), 3);                  /* all that is left */
    fth_scheduler_free(scheduler);
}

static void what_is_too_large_is_tried_alone(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(ITEM_BYTES / 2);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    fth_item_id ids[64];
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    fth_order first, second;
    assert_true(fth_scheduler_take(scheduler, "a", 0, &first));
    assert_false(fth_scheduler_take(scheduler, "b", 0, &second));
    finish(scheduler, &first, 0);
    assert_int_equal(evict(scheduler, 0, 0, ids), 1);
    fth_scheduler_free(scheduler);
}

/* Samples are kept over epochs; of a set that does not fit, a part is, and stays. */
static void nothing_is_prepared_for_a_job_whose_batches_do_not_fit(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(5 * ITEM_BYTES);
    fth_job_spec large = make_spec(FTH_FORMAT_DECODED), small = large;
    const fth_job_spec *told;
    int64_t samples[10];
    fth_batch_plan plan = {.samples = samples};
    large.batch = 10;
    small.batch = 4;
    add_job(scheduler, 1, &large, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    assert_null(fth_scheduler_refusal(scheduler, 1));
    assert_in_range(take_all(scheduler, 0), 1, 5); /* until it is known */
    assert_non_null(strstr(fth_scheduler_refusal(scheduler, 1), "--cache-memory"));
    fth_job_plan_batch(&large, SET_COUNT, 0, &plan);
    assert_false(fth_scheduler_want(scheduler, 1, fth_job_sample_id(&large, FTH_ITEM_DECODED, plan.samples[9]), 1));
    fth_scheduler_set_position(scheduler, 1, 0, 1, 1, 0, 1);
    expect_nothing(scheduler, 1);
    assert_non_null(fth_scheduler_next_refusal(scheduler, &told));
    assert_int_equal(told->batch, 10);
    assert_null(fth_scheduler_next_refusal(scheduler, &told)); /* said once */
    add_job(scheduler, 2, &small, 2);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 0, 2);
    assert_true(take_all(scheduler, 2) > 0);
    assert_null(fth_scheduler_refusal(scheduler, 2));
    fth_scheduler_free(scheduler);
}

static void a_batch_that_no_cache_can_hold_is_said_once(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(5 * ITEM_BYTES);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    fth_order order;
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    assert_true(fth_scheduler_take(scheduler, "maker", 0, &order));
    assert_true(fth_scheduler_failed(scheduler, &order, "maker", FTH_NO_SPACE, "it is too large", 0));
    assert_string_equal(fth_scheduler_refusal(scheduler, 1), "it is too large");
    expect_nothing(scheduler, 10);
    fth_scheduler_free(scheduler);
}

static void samples_stay_for_the_next_epoch(void **state)
{
    (void)state;
    static const struct {
        uint64_t memory;
        int least, most; /* decoded in the second epoch */
    } cases[] = {{SET_COUNT * ITEM_BYTES, 0, 0}, {SET_COUNT / 2 * ITEM_BYTES, SET_COUNT / 2, SET_COUNT * 6 / 10}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_scheduler *scheduler = create(cases[i].memory);
        fth_job_spec spec = make_spec(FTH_FORMAT_DECODED);
        fth_item_id ids[64];
        int made[3] = {0};
        add_job(scheduler, 1, &spec, 0);
        for (int64_t next = 0; next < 3 * SET_COUNT / 10; next++) {
            double now = 0.5 * (double)next;
            fth_scheduler_set_position(scheduler, 1, 0, next, 1, 0, now);
            fth_order order;
            while (fth_scheduler_take(scheduler, "maker", now, &order)) {
                finish(scheduler, &order, now);
                made[next / (SET_COUNT / 10)]++;
                evict(scheduler, 0, now, ids);
            }
            fth_scheduler_job_figures figures;
            fth_scheduler_get_job_figures(scheduler, 1, &figures);
            assert_true(figures.ready_ahead > 0);
        }
        assert_in_range(made[0], SET_COUNT, SET_COUNT + 300); /* and what is prepared ahead */
        assert_in_range(made[2], cases[i].least * 9 / 10, cases[i].most);
        fth_scheduler_free(scheduler);
    }
}

/* ---- entries from before, jobs that go ---- */

static void found_entries_are_used(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(20 * ITEM_BYTES);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES), decoded = make_spec(FTH_FORMAT_DECODED);
    fth_item_id ids[64];
    for (int64_t number = 0; number < 3; number++) {
        fth_receipt receipt = {.id = batch_id(&spec, number), .size_bytes = ITEM_BYTES, .checksum = 1};
        fth_scheduler_found(scheduler, &receipt);
        receipt.id = fth_job_sample_id(&decoded, FTH_ITEM_DECODED, number);
        fth_scheduler_found(scheduler, &receipt);
    }
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 5, 0);
    expect_batch(scheduler, 3, 0);
    expect_batch(scheduler, 4, 0);
    expect_nothing(scheduler, 0);
    add_job(scheduler, 2, &decoded, 0); /* now the samples are known to be somebody's */
    assert_int_equal(evict(scheduler, 1, 0, ids), 1);
    expect_state(scheduler, fth_job_sample_id(&decoded, FTH_ITEM_DECODED, 2), FTH_ITEM_UNKNOWN);
    expect_state(scheduler, fth_job_sample_id(&decoded, FTH_ITEM_DECODED, 0), FTH_ITEM_READY);
    fth_scheduler_free(scheduler);
}

static void a_killed_job_finds_its_batches_again(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(10 * ITEM_BYTES);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES), other = spec;
    fth_item_id ids[64];
    other.order_seed = 2;
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    take_all(scheduler, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 2, 1, 0, 1);
    take_all(scheduler, 1);
    fth_scheduler_remove_process(scheduler, 1, 0);
    fth_scheduler_job_figures figures;
    assert_true(fth_scheduler_get_job_figures(scheduler, 1, &figures));
    assert_int_equal(figures.position, 2);
    expect_nothing(scheduler, 2);
    assert_int_equal(evict(scheduler, 2 * ITEM_BYTES, 2, ids), 2); /* what it had passed */
    expect_state(scheduler, batch_id(&spec, 2), FTH_ITEM_READY);
    fth_scheduler_set_position(scheduler, 1, 3, 2, 1, 4, 3);
    expect_nothing(scheduler, 3);
    fth_scheduler_remove_process(scheduler, 1, 3);

    /* For long gone, it does not count: its batches go as those that nobody asks for, the oldest
     * first. */
    add_job(scheduler, 2, &other, 100);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 1, 100);
    expect_batch(scheduler, 0, 100);
    assert_int_equal(evict(scheduler, 1, 100, ids), 1);
    expect_state(scheduler, batch_id(&other, 0), FTH_ITEM_READY);
    fth_scheduler_free(scheduler);
}

static void jobs_come_and_go(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1 << 30);
    fth_job_spec spec = make_spec(FTH_FORMAT_DECODED);
    add_job(scheduler, 7, &spec, 0);
    assert_int_equal(fth_scheduler_add_job(scheduler, 7, &spec, SET_COUNT, 0), FTH_INVALID);
    spec.format = FTH_FORMAT_AUTO;
    assert_int_equal(fth_scheduler_add_job(scheduler, 8, &spec, SET_COUNT, 0), FTH_INVALID);
    spec.format = FTH_FORMAT_BATCHES;
    assert_int_equal(fth_scheduler_add_job(scheduler, 8, &spec, 5, 0), FTH_INVALID);
    add_job(scheduler, 3, &spec, 0);
    fth_scheduler_set_position(scheduler, 7, 0, 0, 1, 0, 0);
    fth_scheduler_set_position(scheduler, 3, 0, 0, 1, 0, 0);
    fth_scheduler_set_position(scheduler, 3, 1, -5, 1, 0, 0); /* of a spoiled board */
    fth_scheduler_set_position(scheduler, 99, 0, 0, 1, 0, 0);
    fth_order order, orphan;
    assert_true(fth_scheduler_take(scheduler, "maker", 0, &orphan));
    fth_scheduler_remove_job(scheduler, 7);
    fth_scheduler_remove_job(scheduler, 3);
    fth_scheduler_remove_job(scheduler, 3);
    assert_false(fth_scheduler_take(scheduler, "maker", 0, &order));
    finish(scheduler, &orphan, 1); /* is in the cache: it must be known, to be dropped */
    expect_state(scheduler, orphan.id, FTH_ITEM_READY);
    fth_scheduler_figures figures;
    fth_scheduler_get_figures(scheduler, &figures);
    assert_int_equal(figures.ready_items, 1);
    assert_int_equal(figures.waiting, 0);
    fth_scheduler_free(scheduler);
}

/* ---- advice ---- */

static void forms_follow_costs(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(UINT64_C(4) << 30);
    char why[256];
    fth_job_spec spec = make_spec(FTH_FORMAT_AUTO), other;
    spec.sharing = FTH_SHARE_ORDER;
#define CHOOSE(spec, files) fth_scheduler_choose_format(scheduler, spec, SET_COUNT, files, why)
    assert_int_equal(CHOOSE(&spec, false), FTH_FORMAT_BATCHES);
    assert_int_equal(CHOOSE(&spec, true), FTH_FORMAT_DECODED);
    assert_non_null(strstr(why, "assumed"));
    spec.format = FTH_FORMAT_ENCODED;
    assert_int_equal(CHOOSE(&spec, true), FTH_FORMAT_ENCODED);
    spec.format = FTH_FORMAT_AUTO;
    spec.sharing = FTH_SHARE_NONE;
    assert_int_equal(CHOOSE(&spec, true), FTH_FORMAT_BATCHES);
    spec.sharing = FTH_SHARE_ALL;
    assert_int_equal(CHOOSE(&spec, true), FTH_FORMAT_BATCHES);

    spec.format = FTH_FORMAT_BATCHES;
    add_job(scheduler, 1, &spec, 0);
    fth_scheduler_set_position(scheduler, 1, 0, 0, 1, 0, 0);
    spec.format = FTH_FORMAT_AUTO;
    assert_int_equal(CHOOSE(&spec, true), FTH_FORMAT_BATCHES);
    assert_non_null(strstr(why, "same batches"));
    other = spec;
    strcpy(other.transform, "resize=64x64,flip");
    take_all(scheduler, 0); /* 4 ms for decoding */
    assert_int_equal(CHOOSE(&other, true), FTH_FORMAT_DECODED);
    assert_non_null(strstr(why, "4.00 ms"));
    assert_non_null(strstr(why, "measured"));

    /* Where decoding costs next to nothing, files are kept as they are. */
    fth_order order;
    fth_scheduler_set_position(scheduler, 1, 0, 8, 1, 0, 1);
    for (int i = 0; i < 8; i++) {
        assert_true(fth_scheduler_take(scheduler, "maker", 1, &order));
        fth_prefetch_result cheap = {.receipt = {.id = order.id, .size_bytes = 1 << 20},
                                     .samples = 1 << 20,
                                     .fetch_s = 1 << 14,
                                     .decode_s = 1,
                                     .fetched_bytes = UINT64_C(1) << 36};
        fth_scheduler_done(scheduler, &order, &cheap, 1);
    }
    assert_int_equal(CHOOSE(&other, true), FTH_FORMAT_ENCODED);
#undef CHOOSE
    fth_scheduler_free(scheduler);
}

static void a_job_joins_the_others_where_they_are(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(20 * ITEM_BYTES);
    fth_item_id ids[64];
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES), joining;
    spec.sharing = FTH_SHARE_ALL;
    assert_int_equal(fth_scheduler_choose_rotation(scheduler, &spec, SET_COUNT), 0);
    add_job(scheduler, 1, &spec, 0);
    for (int64_t next = 0; next <= 10; next++) {
        fth_scheduler_set_position(scheduler, 1, 0, next, 1, 0, (double)next);
        take_all(scheduler, (double)next);
        evict(scheduler, 0, (double)next, ids);
    }
    /* All that the other has had is still there. */
    assert_int_equal(fth_scheduler_choose_rotation(scheduler, &spec, SET_COUNT), 0);
    for (int64_t next = 11; next <= 353; next++) { /* epoch 3, batch 53 */
        fth_scheduler_set_position(scheduler, 1, 0, next, 1, 0, (double)next);
        take_all(scheduler, (double)next);
        evict(scheduler, 0, (double)next, ids);
    }
    assert_int_equal(fth_scheduler_choose_rotation(scheduler, &spec, SET_COUNT), 3530);
    joining = spec;
    joining.rotation = 3530;
    assert_true(fth_item_id_equal(batch_id(&joining, 0), batch_id(&spec, 353)));
    add_job(scheduler, 2, &joining, 353);
    fth_scheduler_set_position(scheduler, 2, 0, 0, 1, 5, 353);
    assert_int_equal(take_all(scheduler, 353), 0);
    /* A third finds the place of both; with other batches, at one of its own borders. */
    joining.batch = 16;
    joining.rotation = 0;
    assert_int_equal(fth_scheduler_choose_rotation(scheduler, &joining, SET_COUNT), 3000 + 528);
    joining.sharing = FTH_SHARE_NONE;
    assert_int_equal(fth_scheduler_choose_rotation(scheduler, &joining, SET_COUNT), 0);
    joining.sharing = FTH_SHARE_ALL;
    joining.order_seed = 77;
    assert_int_equal(fth_scheduler_choose_rotation(scheduler, &joining, SET_COUNT), 0);
    fth_scheduler_free(scheduler);
}

static void a_job_that_finds_all_of_the_others_epochs_has_their_order_from_the_start(void **state)
{
    (void)state;
    fth_scheduler *scheduler = create(1000 * ITEM_BYTES); /* more than two epochs */
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    spec.sharing = FTH_SHARE_ORDER;
    add_job(scheduler, 1, &spec, 0);
    for (int64_t next = 0; next <= 250; next++) {
        fth_scheduler_set_position(scheduler, 1, 0, next, 1, 0, (double)next);
        take_all(scheduler, (double)next);
        if (next % 50 == 0) /* in mid-epoch, and between epochs */
            assert_int_equal(fth_scheduler_choose_rotation(scheduler, &spec, SET_COUNT), 0);
    }
    fth_scheduler_lost(scheduler, batch_id(&spec, 99)); /* the last of epoch 0 */
    assert_int_equal(fth_scheduler_choose_rotation(scheduler, &spec, SET_COUNT), SET_COUNT);
    fth_scheduler_free(scheduler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_prepared_in_the_order_of_need),
        cmocka_unit_test(an_end_is_kept),
        cmocka_unit_test(little_is_prepared_beyond_an_epoch_that_may_be_the_last),
        cmocka_unit_test(processes_take_turns),
        cmocka_unit_test(the_faster_job_comes_first),
        cmocka_unit_test(waiting_for_samples_is_no_work_of_the_job),
        cmocka_unit_test(jobs_that_only_wait_take_turns),
        cmocka_unit_test(what_somebody_waits_for_comes_first_of_all),
        cmocka_unit_test(jobs_with_equal_specs_share),
        cmocka_unit_test(samples_are_shared_by_jobs_that_differ),
        cmocka_unit_test(the_next_event_is_now_when_there_is_something),
        cmocka_unit_test(a_failure_is_tried_elsewhere_and_then_given_up),
        cmocka_unit_test(what_somebody_waits_for_is_given_to_a_second_maker),
        cmocka_unit_test(a_batch_of_two_sequences_outlives_one_of_them),
        cmocka_unit_test(the_only_maker_tries_again_after_a_pause),
        cmocka_unit_test(what_cannot_work_is_not_tried_again),
        cmocka_unit_test(a_cache_without_room_is_no_failure_of_the_item),
        cmocka_unit_test(a_job_that_begins_again_tries_again),
        cmocka_unit_test(what_is_lost_is_prepared_again),
        cmocka_unit_test(nothing_later_displaces_something_earlier),
        cmocka_unit_test(what_is_needed_last_makes_room_for_what_is_needed_now),
        cmocka_unit_test(a_slower_job_finds_what_it_needs_next),
        cmocka_unit_test(a_paused_job_does_not_hold_memory_for_ever),
        cmocka_unit_test(needed_bytes_are_made_free),
        cmocka_unit_test(what_is_too_large_is_tried_alone),
        cmocka_unit_test(nothing_is_prepared_for_a_job_whose_batches_do_not_fit),
        cmocka_unit_test(a_batch_that_no_cache_can_hold_is_said_once),
        cmocka_unit_test(samples_stay_for_the_next_epoch),
        cmocka_unit_test(found_entries_are_used),
        cmocka_unit_test(a_killed_job_finds_its_batches_again),
        cmocka_unit_test(jobs_come_and_go),
        cmocka_unit_test(forms_follow_costs),
        cmocka_unit_test(what_a_job_passes_counts_beyond_its_window_too),
        cmocka_unit_test(a_job_joins_the_others_where_they_are),
        cmocka_unit_test(a_job_that_finds_all_of_the_others_epochs_has_their_order_from_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
