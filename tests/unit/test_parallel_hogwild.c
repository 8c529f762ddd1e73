/* The strategy hogwild, worked directly: batches in, sums out, and what one worker does is what
 * none does. */
#include "support.h"

#include <math.h>

#include "parallel/parallel.h"
#include "train/engine/engine.h"
#include "train/engine/snapshot.h"

enum { SIDE = 12, CLASSES = 4, BATCH = 8, BATCHES = 24, IMAGE = SIDE * SIDE, SAMPLES = BATCH * BATCHES - 3 };

/* ---- data: bright columns whose place is the label, in noise ---- */

static float images[SAMPLES * IMAGE];
static int32_t labels[SAMPLES];

static void make_data(void)
{
    fth_random_key key = fth_random_key_for(7, FTH_RANDOM_GENERATE);
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = i * 7 % CLASSES;
        for (int p = 0; p < IMAGE; p++)
            images[i * IMAGE + p] =
                0.3f * (float)fth_random_normal(key, (uint64_t)(i * IMAGE + p)) + (p % SIDE / 3 == labels[i] ? 1 : 0);
    }
}

/* Batch `number`, from the start of epoch 0; the last of an epoch is short. */
static fth_batch batch_of(int64_t number)
{
    int64_t first = number % BATCHES * BATCH, left = SAMPLES - first;
    return (fth_batch){.images = images + first * IMAGE,
                       .labels = labels + first,
                       .count = left < BATCH ? left : BATCH,
                       .number = number,
                       .epoch = number / BATCHES};
}

/* ---- a strategy at work ---- */

typedef struct rig {
    fth_train_options options;
    fth_device *device;
    fth_engine *engine;
    const fth_strategy *strategy;
    void *state;
} rig;

static void read_options(fth_train_options *options, const char *flags)
{
    char text[400], *argv[40];
    const char *positional[40];
    int argc = 0, positional_count = 0;
    bool help;
    snprintf(text, sizeof text, "--batch %d --threads 1 --device cpu %s", BATCH, flags);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));)
        argv[argc++] = word;
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, options), FTH_OK);
    if (fth_options_read_flags(&fth_train_option_table, options, argc, argv, positional, &positional_count, &help))
        fail_msg("%s", fth_error_message());
}

static void set_up_rig(rig *r, const char *flags)
{
    *r = (rig){0};
    read_options(&r->options, flags);
    fth_engine_options engine_options = {.train = &r->options,
                                         .channels = 1,
                                         .height = SIDE,
                                         .width = SIDE,
                                         .classes = CLASSES,
                                         .training_samples = SAMPLES};
    if (fth_strategy_find(fth_strategies, r->options.strategy, &r->strategy) != FTH_OK ||
        fth_device_open("cpu", &(fth_device_options){.threads = 1}, &r->device) != FTH_OK ||
        fth_engine_create(&engine_options, r->device, &r->engine) != FTH_OK ||
        r->strategy->open(r->engine, &r->options, &r->state) != FTH_OK)
        fail_msg("%s: %s", flags, fth_error_message());
}

static void tear_down_rig(rig *r)
{
    if (r->state)
        r->strategy->close(r->state);
    fth_engine_free(r->engine);
    fth_device_close(r->device);
    fth_options_release(&fth_train_option_table, &r->options);
}

static void add(fth_step_result *sum, const fth_step_result *result)
{
    sum->loss += result->loss * (double)result->samples;
    sum->correct += result->correct;
    sum->samples += result->samples;
}

/* Batches [first, end), drained; gives sums, of the loss too. */
static fth_step_result train(rig *r, int64_t first, int64_t end, double rate)
{
    fth_step_result sum = {0}, result;
    for (int64_t number = first; number < end; number++) {
        fth_batch batch = batch_of(number);
        if (r->strategy->step(r->state, &batch, rate, &result) != FTH_OK)
            fail_msg("%s", fth_error_message());
        add(&sum, &result);
    }
    if (r->strategy->drain) {
        if (r->strategy->drain(r->state, &result) != FTH_OK)
            fail_msg("%s", fth_error_message());
        add(&sum, &result);
    }
    return sum;
}

static fth_snapshot *take_snapshot(rig *r)
{
    fth_snapshot *snapshot = NULL;
    assert_int_equal(fth_engine_take_snapshot(r->engine, true, 0, &snapshot), FTH_OK);
    return snapshot;
}

static void assert_same_weights(const fth_snapshot *a, const fth_snapshot *b)
{
    size_t left_count, right_count;
    const fth_tensor_view *left = fth_snapshot_views(a, &left_count), *right = fth_snapshot_views(b, &right_count);
    assert_int_equal(left_count, right_count);
    for (size_t i = 0; i < left_count; i++) {
        assert_string_equal(left[i].name, right[i].name);
        if (memcmp(left[i].data, right[i].data,
                   (size_t)fth_shape_count(&left[i].shape) * fth_dtype_size_bytes(left[i].dtype)) != 0)
            fail_msg("%s differs", left[i].name);
    }
}

/* ---- tests ---- */

static void check_one_worker(const char *flags, int64_t batches)
{
    rig alone, worker;
    char text[300];
    snprintf(text, sizeof text, "--strategy single %s", flags);
    set_up_rig(&alone, text);
    snprintf(text, sizeof text, "--strategy hogwild --workers 1 %s", flags);
    set_up_rig(&worker, text);
    fth_step_result a = train(&alone, 0, batches, 0.01), b = train(&worker, 0, batches, 0.01);
    assert_int_equal(a.samples, b.samples);
    assert_int_equal(a.correct, b.correct);
    assert_true(fabs(a.loss - b.loss) <= 1e-9 * fabs(a.loss)); /* sums of the same numbers, in another order */
    fth_snapshot *left = take_snapshot(&alone), *right = take_snapshot(&worker);
    assert_same_weights(left, right);
    fth_snapshot_free(left);
    fth_snapshot_free(right);
    tear_down_rig(&alone);
    tear_down_rig(&worker);
}

static void one_worker_does_what_none_does(void **state)
{
    (void)state;
    check_one_worker("--model mnist-cnn", BATCHES + 5); /* over the end of an epoch, with its short batch */
    check_one_worker("--model mnist-cnn --optimizer adamw --clip 0.5 --weight-decay 0.01", 12);
    check_one_worker("--model mnist-cnn --hogwild-momentum worker --nesterov", 12);
    check_one_worker("--model linear --optimizer adamw --hogwild-momentum worker", 12);
    check_one_worker("--model resnet18", 3); /* running statistics */
}

static void check_sums(const char *flags)
{
    rig r;
    set_up_rig(&r, flags);
    fth_step_result first = train(&r, 0, BATCHES, 0.02);
    assert_int_equal(first.samples, SAMPLES);
    assert_true(isfinite(first.loss) && first.correct >= 0 && first.correct <= SAMPLES);
    fth_step_result again = {.samples = 1};
    assert_int_equal(r.strategy->drain(r.state, &again), FTH_OK); /* nothing is given twice */
    assert_int_equal(again.samples, 0);
    fth_step_result last = {0};
    for (int epoch = 1; epoch < 12; epoch++)
        last = train(&r, epoch * BATCHES, (epoch + 1) * BATCHES, 0.02);
    assert_int_equal(last.samples, SAMPLES);
    assert_true(last.loss < first.loss / 4); /* it learns */
    assert_null(r.strategy->take_event(r.state));
    tear_down_rig(&r);
}

static void results_of_workers_add_up(void **state)
{
    (void)state;
    check_sums("--strategy hogwild --workers 1 --model linear");
    check_sums("--strategy hogwild --workers 2 --model linear");
    check_sums("--strategy hogwild --workers 5 --model linear");
    check_sums("--strategy hogwild --workers 3 --model linear --optimizer adamw --lr 0.01 --hogwild-momentum worker");
    check_sums("--strategy hogwild --model linear"); /* as many as there are cores */
}

/* With a learning rate of 0 the weights stay, so each worker's momentum is a sum over its own
 * batches; what a checkpoint gets is the mean, and as a whole no larger than one worker's would
 * be. */
static double momentum_norm(const char *flags)
{
    rig r;
    double sum = 0;
    set_up_rig(&r, flags);
    fth_snapshot *before = take_snapshot(&r);
    train(&r, 0, BATCHES, 0);
    fth_snapshot *after = take_snapshot(&r);
    size_t count;
    const fth_tensor_view *views = fth_snapshot_views(after, &count), *old = fth_snapshot_views(before, &count);
    for (size_t i = 0; i < count; i++) {
        int64_t floats = fth_shape_count(&views[i].shape);
        if (strncmp(views[i].name, "optimizer.", 10) != 0) {
            assert_memory_equal(views[i].data, old[i].data, (size_t)floats * sizeof(float));
            continue;
        }
        for (int64_t f = 0; f < floats; f++)
            sum += pow(((const float *)views[i].data)[f], 2);
    }
    fth_snapshot_free(before);
    fth_snapshot_free(after);
    tear_down_rig(&r);
    return sqrt(sum);
}

static void momentum_of_workers_is_averaged(void **state)
{
    (void)state;
    double one = momentum_norm("--strategy hogwild --workers 1 --model linear --momentum 0.99");
    double three =
        momentum_norm("--strategy hogwild --workers 3 --model linear --momentum 0.99 --hogwild-momentum worker");
    assert_true(one > 0 && three > 0);
    assert_true(three < one); /* a third of the batches each, and not their sum */
}

static void a_loss_that_is_no_number_ends_it(void **state)
{
    (void)state;
    rig r;
    fth_step_result result;
    fth_status status = FTH_OK;
    set_up_rig(&r, "--strategy hogwild --workers 2 --model linear");
    float *broken = calloc(BATCH * IMAGE, sizeof *broken);
    for (int i = 0; i < BATCH * IMAGE; i++)
        broken[i] = NAN;
    fth_batch batch = batch_of(0);
    batch.images = broken;
    status = r.strategy->step(r.state, &batch, 0.1, &result);
    if (status == FTH_OK)
        status = r.strategy->drain(r.state, &result);
    assert_int_equal(status, FTH_DIVERGED);
    assert_message_has("not a number");
    free(broken);
    tear_down_rig(&r);
}

static void closing_with_batches_under_way_is_fine(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        rig r;
        fth_step_result result;
        set_up_rig(&r, "--strategy hogwild --workers 3 --model linear");
        for (int64_t number = 0; number < i; number++) {
            fth_batch batch = batch_of(number);
            assert_int_equal(r.strategy->step(r.state, &batch, 0.01, &result), FTH_OK);
        }
        tear_down_rig(&r);
    }
}

static void options_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *flags, *message;
    } cases[] = {
        {"--workers 2", "--strategy hogwild"},
        {"--processes 2", "--strategy hogwild"},
        {"--hogwild-momentum worker", "--strategy hogwild"},
        {"--strategy hogwild --workers 2 --processes 2", "one of them"},
        {"--strategy hogwild --accumulate 2", "--accumulate"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_train_options options;
        const fth_strategy *strategy = NULL;
        read_options(&options, cases[i].flags);
        assert_int_equal(fth_strategy_choose(fth_strategies, &options, &strategy), FTH_INVALID);
        assert_message_of(cases[i].flags, cases[i].message);
        fth_options_release(&fth_train_option_table, &options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_does_what_none_does),         cmocka_unit_test(results_of_workers_add_up),
        cmocka_unit_test(momentum_of_workers_is_averaged),        cmocka_unit_test(a_loss_that_is_no_number_ends_it),
        cmocka_unit_test(closing_with_batches_under_way_is_fine), cmocka_unit_test(options_are_checked),
    };
    make_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
