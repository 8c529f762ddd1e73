/* What was taken for what: counts, scores and the most frequent mistakes, against sums done by
 * hand. */
#include "support.h"

#include <math.h>

#include "train/model/confusion.h"

static const char *const names[] = {"cat", "dog", "emu", "fox"};

/* One sample: the logit of `prediction` is the largest. */
static void add(fth_confusion *confusion, int32_t label, int prediction, int times)
{
    float logits[4] = {-1, -2, -1, -3};
    logits[prediction] = 5;
    for (int i = 0; i < times; i++)
        assert_int_equal(fth_confusion_add(confusion, &label, logits, 1), FTH_OK);
}

static fth_confusion *make(void)
{
    fth_confusion *confusion = NULL;
    assert_int_equal(fth_confusion_create(4, names, &confusion), FTH_OK);
    add(confusion, 0, 0, 6);
    add(confusion, 0, 1, 3);
    add(confusion, 1, 1, 2);
    add(confusion, 1, 0, 5);
    add(confusion, 2, 0, 3); /* an emu was never recognized, a fox never seen nor predicted */
    return confusion;
}

static void cells_are_counted(void **state)
{
    (void)state;
    static const int64_t expected[4][4] = {{6, 3}, {5, 2}, {3}};
    fth_confusion *confusion = make();
    assert_int_equal(fth_confusion_classes(confusion), 4);
    assert_int_equal(fth_confusion_mean_score(confusion).samples, 19);
    assert_string_equal(fth_confusion_name(confusion, 2), "emu");
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++)
            assert_int_equal(fth_confusion_count(confusion, i, k), expected[i][k]);
    add(confusion, 0, 0, 1); /* after somebody looked */
    assert_int_equal(fth_confusion_count(confusion, 0, 0), 7);
    fth_confusion_free(confusion);
    fth_confusion_free(NULL);
}

static void scores_follow(void **state)
{
    (void)state;
    fth_confusion *confusion = make();
    fth_class_score cat = fth_confusion_score(confusion, 0), emu = fth_confusion_score(confusion, 2);
    assert_true(cat.samples == 9 && cat.predicted == 14 && cat.correct == 6);
    assert_true(fabs(cat.recall - 6.0 / 9) < 1e-12 && fabs(cat.precision - 6.0 / 14) < 1e-12);
    assert_true(fabs(cat.f1 - 12.0 / 23) < 1e-12);
    assert_true(emu.samples == 3 && emu.recall == 0 && emu.f1 == 0 && isnan(emu.precision));
    fth_class_score fox = fth_confusion_score(confusion, 3);
    assert_true(isnan(fox.recall) && isnan(fox.precision) && isnan(fox.f1));
    fth_class_score mean = fth_confusion_mean_score(confusion); /* of the three that there are */
    assert_true(mean.samples == 19 && mean.correct == 8);
    assert_true(fabs(mean.recall - (6.0 / 9 + 2.0 / 7) / 3) < 1e-12);
    assert_true(fabs(mean.precision - (6.0 / 14 + 2.0 / 5) / 3) < 1e-12);
    fth_confusion_free(confusion);
}

static void the_worst_come_first(void **state)
{
    (void)state;
    fth_confusion *confusion = make();
    fth_mistake mistakes[8];
    assert_int_equal(fth_confusion_worst(confusion, mistakes, 8), 3);
    assert_true(mistakes[0].label == 1 && mistakes[0].prediction == 0 && mistakes[0].count == 5);
    assert_true(mistakes[1].label == 0 && mistakes[1].prediction == 1 && mistakes[1].count == 3);
    assert_true(mistakes[2].label == 2 && mistakes[2].prediction == 0 && mistakes[2].count == 3);
    mistakes[1].count = -1;
    assert_int_equal(fth_confusion_worst(confusion, mistakes, 1), 1);
    assert_true(mistakes[0].count == 5 && mistakes[1].count == -1);
    assert_int_equal(fth_confusion_worst(confusion, mistakes, 0), 0);
    fth_confusion_free(confusion);
}

static void equal_logits_are_the_first_class(void **state)
{
    (void)state;
    fth_confusion *confusion = NULL;
    assert_int_equal(fth_confusion_create(4, names, &confusion), FTH_OK);
    static const int32_t labels[] = {0, 3};
    static const float logits[] = {1, 1, 1, 1, 0, 2, 0, 2};
    assert_int_equal(fth_confusion_add(confusion, labels, logits, 2), FTH_OK);
    assert_int_equal(fth_confusion_count(confusion, 0, 0), 1);
    assert_int_equal(fth_confusion_count(confusion, 3, 1), 1);
    fth_confusion_free(confusion);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_counted),
        cmocka_unit_test(scores_follow),
        cmocka_unit_test(the_worst_come_first),
        cmocka_unit_test(equal_logits_are_the_first_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
