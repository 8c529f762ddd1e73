/* What fits before a deadline, and how often to save. */
#include "support.h"

#include <math.h>
#include <unistd.h>

#include "train/trainer_internal.h"

/* ---- what fits ---- */

/* An upload of 100 bytes of which half are done, until it is let go. */
static _Atomic bool let_go;

static fth_status write_slowly(void *context, const fth_writer_job *job, const fth_store_progress *progress,
                               uint64_t *size_bytes)
{
    (void)context;
    (void)job;
    *size_bytes = 100;
    while (!let_go && progress->moved(progress->context, 50, 100))
        usleep(1000);
    return FTH_OK;
}

static void begin_upload(fth_trainer *trainer)
{
    fth_writer_job replaced;
    let_go = false;
    trainer->saving = (fth_saving){.size_bytes = 100, .save_s = 10}; /* 10 bytes a second: 5 s are left of this one */
    assert_int_equal(fth_writer_create(&(fth_writer_work){.write = write_slowly}, &trainer->saving.writer), FTH_OK);
    int slot = fth_writer_claim(trainer->saving.writer, 1, &replaced);
    fth_writer_submit(trainer->saving.writer, &(fth_writer_job){.slot = slot, .kind = 1, .step = 7});
    for (int i = 0; i < 5000 && fth_writer_look(trainer->saving.writer).total_bytes == 0; i++)
        usleep(1000);
    assert_int_equal(fth_writer_look(trainer->saving.writer).done_bytes, 50);
}

static void end_upload(fth_trainer *trainer)
{
    let_go = true;
    fth_writer_free(trainer->saving.writer);
}

static fth_save_choice choose(const fth_trainer *trainer, double left_s)
{
    fth_stop_reason reason = {.kind = FTH_STOP_PREEMPTION, .deadline = fth_deadline_in(left_s)};
    if (!isfinite(left_s))
        reason.deadline.at_seconds = INFINITY;
    return fth_trainer_choose_save(trainer, &reason);
}

static void an_upload_under_way_is_finished_or_replaced_by_what_fits(void **state)
{
    (void)state;
    fth_trainer trainer = {0};
    begin_upload(&trainer);
    assert_int_equal(choose(&trainer, INFINITY), FTH_SAVE_AFTER);
    assert_int_equal(choose(&trainer, 60), FTH_SAVE_AFTER);   /* 15 s for both, well inside */
    assert_int_equal(choose(&trainer, 20), FTH_SAVE_INSTEAD); /* both would be a near thing; the new one is not */
    assert_int_equal(choose(&trainer, 8), FTH_SAVE_NOT);      /* only the old one can be finished */
    end_upload(&trainer);
}

static void with_nothing_under_way_a_save_is_always_tried(void **state)
{
    (void)state;
    fth_trainer trainer = {.saving = {.size_bytes = 100, .save_s = 10}};
    assert_int_equal(choose(&trainer, 1), FTH_SAVE_AFTER);
    assert_int_equal(fth_writer_create(&(fth_writer_work){.write = write_slowly}, &trainer.saving.writer), FTH_OK);
    assert_int_equal(choose(&trainer, 1), FTH_SAVE_AFTER);
    fth_writer_free(trainer.saving.writer);
}

/* ---- how often ---- */

static bool near(double value, double expected)
{
    return fabs(value - expected) <= 1e-9 * expected;
}

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
        cmocka_unit_test(the_interval_is_youngs),
        cmocka_unit_test(the_interval_holds_the_overhead),
        cmocka_unit_test(the_interval_is_longer_than_a_save),
        cmocka_unit_test(shares_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
