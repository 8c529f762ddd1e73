/* The rule of f16's loss scale, which the host and the GPU follow by the same lines; and of
 * clipping. */
#include "support.h"

#include <math.h>

#include "backend/clip_and_scale.h"

static void overflow_halves_the_scale_and_leaves_the_update_out(void **state)
{
    (void)state;
    const double norms[] = {INFINITY, NAN};
    for (int i = 0; i < 2; i++) {
        fth_loss_scale scale = {.scale = FTH_FIRST_LOSS_SCALE, .good_updates = 7};
        float factor = 1;
        assert_int_equal(fth_judge_gradients(norms[i], 0, &scale, &factor), FTH_UPDATE_LEAVE_OUT);
        assert_true(scale.scale == FTH_FIRST_LOSS_SCALE / 2);
        assert_int_equal(scale.good_updates, 0);
        assert_true(factor == 0);
    }
}

/* The factor undoes the scale the gradients were made with, not the one that holds from then on. */
static void good_updates_double_the_scale(void **state)
{
    (void)state;
    fth_loss_scale scale = {.scale = 1024};
    float factor = 0;
    for (int i = 0; i < FTH_GOOD_UPDATES; i++) {
        assert_true(scale.scale == 1024);
        assert_int_equal(fth_judge_gradients(5, 0, &scale, &factor), FTH_UPDATE_APPLY);
        assert_true(factor == 1.0f / 1024);
    }
    assert_true(scale.scale == 2048);
    assert_int_equal(scale.good_updates, 0);
    fth_judge_gradients(5, 0, &scale, &factor);
    assert_true(factor == 1.0f / 2048);
}

static void the_scale_has_bounds(void **state)
{
    (void)state;
    fth_loss_scale scale = {.scale = FTH_LARGEST_LOSS_SCALE, .good_updates = FTH_GOOD_UPDATES - 1};
    float factor;
    assert_int_equal(fth_judge_gradients(1, 0, &scale, &factor), FTH_UPDATE_APPLY);
    assert_true(scale.scale == FTH_LARGEST_LOSS_SCALE);

    int left_out = 0;
    while (fth_judge_gradients(INFINITY, 0, &scale, &factor) == FTH_UPDATE_LEAVE_OUT)
        left_out++;
    assert_int_equal(left_out, 24); /* from 2^24 down to 1, where nothing is left to blame */
    assert_true(scale.scale == 1);
    assert_int_equal(fth_judge_gradients(NAN, 0, &scale, &factor), FTH_UPDATE_DIVERGED);
}

static void without_a_scale_what_is_not_finite_has_diverged(void **state)
{
    (void)state;
    fth_loss_scale none = {0};
    float factor;
    assert_int_equal(fth_judge_gradients(INFINITY, 1, &none, &factor), FTH_UPDATE_DIVERGED);
    assert_int_equal(fth_judge_gradients(3, 0, &none, &factor), FTH_UPDATE_APPLY);
    assert_true(factor == 1 && none.scale == 0 && none.good_updates == 0);
}

/* Clipping is by the true norm: that of the scaled gradients is as many times larger as they
 * are. */
static void clipping_is_by_the_norm_without_the_scale(void **state)
{
    (void)state;
    fth_loss_scale none = {0}, scale = {.scale = 256};
    float plain, scaled;
    assert_int_equal(fth_judge_gradients(4, 2, &none, &plain), FTH_UPDATE_APPLY);
    assert_int_equal(fth_judge_gradients(4 * 256, 2, &scale, &scaled), FTH_UPDATE_APPLY);
    assert_true(plain == (float)(2 / (4 + 1e-6)));
    assert_true(scaled == plain / 256);
    fth_judge_gradients(1.5, 2, &none, &plain);
    assert_true(plain == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflow_halves_the_scale_and_leaves_the_update_out),
        cmocka_unit_test(good_updates_double_the_scale),
        cmocka_unit_test(the_scale_has_bounds),
        cmocka_unit_test(without_a_scale_what_is_not_finite_has_diverged),
        cmocka_unit_test(clipping_is_by_the_norm_without_the_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
