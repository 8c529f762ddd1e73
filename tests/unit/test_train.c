/* Options, goals, intervals and schedules. Whole runs are in test_parallel.c, which has a strategy
 * to run them with. */
#include "support.h"

#include <math.h>

#include "train/train_internal.h"

static fth_train_options parse(int argc, char **argv, fth_status expected)
{
    fth_train_options options;
    const char *positional[32];
    int positional_count = 0;
    bool help = false;
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &options), FTH_OK);
    assert_int_equal(
        fth_options_read_flags(&fth_train_option_table, &options, argc, argv, positional, &positional_count, &help),
        expected);
    return options;
}

#define PARSE(expected, ...)                                                                                           \
    parse((int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__}, expected)

static void release(fth_train_options *options)
{
    fth_options_release(&fth_train_option_table, options);
}

static void defaults_are_as_documented(void **state)
{
    (void)state;
    fth_train_options options;
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &options), FTH_OK);
    assert_string_equal(options.model, "auto");
    assert_string_equal(options.data.address, "digits");
    assert_int_equal(options.batch, 64);
    assert_string_equal(options.optimizer.name, "auto");
    assert_true(options.optimizer.momentum == 0.9);
    assert_int_equal(options.optimizer.accumulate, 1);
    assert_string_equal(options.saving.every, "30s");
    assert_string_equal(options.resume, "");
    assert_string_equal(options.strategy, "single");
    assert_int_equal(fth_train_options_check(&options), FTH_OK);
    release(&options);
}

static void every_promised_flag_exists(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model",  "data",      "batch",   "epochs",           "steps",        "for",
        "until",  "optimizer", "lr",      "momentum",         "weight-decay", "schedule",
        "warmup", "seed",      "threads", "precision",        "device",       "weights",
        "runs",   "name",      "resume",  "checkpoint-every", "json"};
    for (size_t n = 0; n < FTH_COUNT_OF(names); n++) {
        bool found = false;
        for (size_t i = 0; i < fth_train_option_table.count; i++)
            found = found || strcmp(fth_train_option_table.options[i].name, names[n]) == 0;
        if (!found)
            fail_msg("--%s is missing", names[n]);
    }
    for (size_t i = 0; i < fth_train_option_table.count; i++)
        assert_true(fth_train_option_table.options[i].help && *fth_train_option_table.options[i].help);
}

static void flags_are_read_and_checked(void **state)
{
    (void)state;
    fth_train_options options = PARSE(FTH_OK, "--batch", "16", "--for", "2m", "--until=accuracy=0.99", "--nesterov",
                                      "--resume", "--lr", "1e-2");
    assert_int_equal(options.batch, 16);
    assert_true(options.limits.for_s == 120);
    assert_true(options.optimizer.nesterov);
    assert_string_equal(options.resume, "auto");
    release(&options);

    char *const bad[][2] = {
        {"--batch", "0"},
        {"--batch", "1000001"},
        {"--lr", "-1"},
        {"--lr", "fast"},
        {"--until", "accuracy=2"},
        {"--until", "speed=3"},
        {"--until", "loss=x"},
        {"--checkpoint-every", "0"},
        {"--keep", "0"},
        {"--checkpoint-every", "now"},
        {"--momentum", "1"},
        {"--optimizer", "sdg"},
        {"--name", "a/b"},
        {"--epochs", "-1"},
        {"--threads", "-2"},
        {"--schedule", "cosin"},
        {"--accumulate", "0"},
        {"--for", "0s"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        options = PARSE(FTH_INVALID, bad[i][0], bad[i][1]);
        assert_message_has(bad[i][0]);
        release(&options);
    }
    options = PARSE(FTH_OK, "--lr", "0");
    assert_int_equal(fth_train_options_check(&options), FTH_INVALID);
    release(&options);
    options = PARSE(FTH_OK, "--epochs", "0");
    assert_int_equal(fth_train_options_check(&options), FTH_INVALID);
    release(&options);
    options = PARSE(FTH_OK, "--steps", "0");
    assert_int_equal(fth_train_options_check(&options), FTH_INVALID);
    release(&options);
    options = PARSE(FTH_OK, "--nesterov", "--momentum", "0");
    assert_int_equal(fth_train_options_check(&options), FTH_INVALID);
    release(&options);
}

/* What changes the weights makes another run; where it is kept and what computes it does not. */
static void identity_is_what_changes_the_result(void **state)
{
    (void)state;
    char *const same[][2] = {{"--runs", "/tmp/x"}, {"--threads", "3"}, {"--checkpoint-every", "5"}, {"--keep", "9"},
                             {"--name", "x"},      {"--resume", "y"},  {"--device", "cpu"},         {"--json", "yes"}};
    char *const different[][2] = {{"--seed", "2"},      {"--batch", "8"}, {"--epochs", "9"},       {"--lr", "0.5"},
                                  {"--data", "shapes"}, {"--clip", "1"},  {"--precision", "bf16"}, {"--steps", "1"}};
    char base[17], other[17];
    fth_train_options options = PARSE(FTH_OK, "--batch", "64");
    fth_options_identity(&fth_train_option_table, &options, base);
    release(&options);
    for (size_t i = 0; i < FTH_COUNT_OF(same); i++) {
        options = PARSE(FTH_OK, same[i][0], same[i][1]);
        fth_options_identity(&fth_train_option_table, &options, other);
        assert_string_equal(base, other);
        release(&options);
    }
    for (size_t i = 0; i < FTH_COUNT_OF(different); i++) {
        options = PARSE(FTH_OK, different[i][0], different[i][1]);
        fth_options_identity(&fth_train_option_table, &options, other);
        assert_string_not_equal(base, other);
        release(&options);
    }
}

static void intervals_are_steps_or_times(void **state)
{
    (void)state;
    fth_interval interval;
    assert_int_equal(fth_interval_parse("200", &interval), FTH_OK);
    assert_int_equal(interval.steps, 200);
    assert_true(interval.seconds == 0);
    assert_int_equal(fth_interval_parse("30s", &interval), FTH_OK);
    assert_int_equal(interval.steps, 0);
    assert_true(interval.seconds == 30);
    assert_int_equal(fth_interval_parse("", &interval), FTH_INVALID);
    assert_int_equal(fth_interval_parse("99999999999999999999", &interval), FTH_INVALID);
}

static double factor(const char *name, fth_schedule_position position)
{
    const fth_schedule *schedule = NULL;
    assert_int_equal(fth_schedule_find(name, &schedule), FTH_OK);
    return fth_schedule_factor(schedule, &position);
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) < 1e-12))
        fail_msg("%.17g is not %.17g", a, b);
}

static void schedules_follow_their_formulas(void **state)
{
    (void)state;
    fth_schedule_position p = {.total_steps = 100, .steps_per_epoch = 10, .decay_every = 2, .decay_factor = 0.1};
    assert_near(factor("constant", p), 1);
    assert_near(factor("cosine", p), 1);
    assert_near(factor("linear", p), 1);
    p.step = 50;
    assert_near(factor("constant", p), 1);
    assert_near(factor("cosine", p), 0.5);
    assert_near(factor("linear", p), 0.5);
    assert_near(factor("step", p), 0.01); /* epoch 5: two decays */
    p.step = 19;
    assert_near(factor("step", p), 1);
    p.step = 20;
    assert_near(factor("step", p), 0.1);
    p.step = 25;
    assert_near(factor("cosine", p), 0.5 * (1 + sqrt(0.5)));
    p.step = 200;
    assert_near(factor("cosine", p), 0);
    assert_near(factor("linear", p), 0);
}

static void warm_up_rises_to_the_full_rate(void **state)
{
    (void)state;
    fth_schedule_position p = {
        .total_steps = 110, .steps_per_epoch = 1000, .warmup = 10, .decay_every = 1, .decay_factor = 0.5};
    static const char *const names[] = {"constant", "step", "cosine", "linear"};
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        p.step = 0;
        assert_near(factor(names[i], p), 0.1);
        p.step = 9;
        assert_near(factor(names[i], p), 1);
        p.step = 10;
        assert_near(factor(names[i], p), 1);
    }
    p.step = 60;
    assert_near(factor("linear", p), 0.5); /* half of what follows the warm-up */
}

static void tables_know_their_names(void **state)
{
    (void)state;
    const fth_schedule *schedule;
    const fth_optimizer *optimizer;
    assert_int_equal(fth_schedule_find("zigzag", &schedule), FTH_INVALID);
    assert_int_equal(fth_optimizer_find("sdg", &optimizer), FTH_INVALID);
    assert_int_equal(fth_optimizer_find("adamw", &optimizer), FTH_OK);
    assert_true(optimizer->default_lr == 0.001);
    assert_int_equal(fth_optimizer_find("sdg", &optimizer), FTH_INVALID);
    assert_message_has("optimizer must be one of sgd, adamw");
    assert_message_has(", not 'sdg'; did you mean 'sgd'?");
}

/* Every choice of a row is found by what implements it. */
static void choices_are_what_is_implemented(void **state)
{
    (void)state;
    const fth_optimizer *optimizer;
    const fth_schedule *schedule;
    fth_augmentation augmentation;
    size_t count = 0;
    for (size_t i = 0; strcmp(fth_optimizer_choice(i).name, "auto") != 0; i++, count++)
        assert_int_equal(fth_optimizer_find(fth_optimizer_choice(i).name, &optimizer), FTH_OK);
    for (size_t i = 0; fth_schedule_choice(i).name; i++, count++)
        assert_int_equal(fth_schedule_find(fth_schedule_choice(i).name, &schedule), FTH_OK);
    for (size_t i = 0; fth_augmentation_choice(i).name; i++, count++)
        assert_int_equal(fth_augmentation_find(fth_augmentation_choice(i).name, &augmentation), FTH_OK);
    assert_true(count >= 2 + 4 + 4);
}

static int side_of(const char *name)
{
    const fth_option *option = fth_options_find(&fth_train_option_table, name);
    assert_non_null(option);
    return option->side;
}

/* The optimizer is where the model is; what each process does for itself is not handed on. */
static void options_know_their_side(void **state)
{
    (void)state;
    static const char *const servers[] = {
        "lr",    "optimizer", "momentum",    "nesterov", "weight-decay", "schedule", "warmup",      "beta1",
        "beta2", "epsilon",   "decay-every", "clip",     "weights",      "workers",  "consistency", "decay-factor"};
    for (size_t i = 0; i < FTH_COUNT_OF(servers); i++)
        assert_int_equal(side_of(servers[i]), FTH_SIDE_SERVER);
    assert_int_equal(side_of("model"), FTH_SIDE_EVERY);
    assert_int_equal(side_of("batch"), FTH_SIDE_EVERY);
    assert_int_equal(side_of("share"), FTH_SIDE_ONE_WORKER);
    assert_int_equal(side_of("budget"), FTH_SIDE_ONE_WORKER);
    assert_int_equal(side_of("keep"), FTH_SIDE_OWN_RUN);
    assert_int_equal(side_of("checkpoints"), FTH_SIDE_NONE);
    for (size_t i = 0; i < fth_train_option_table.count; i++) {
        const fth_option *option = &fth_train_option_table.options[i];
        if (option->commands == 0)
            fail_msg("--%s does not say which commands take it", option->name);
        if (option->fixed && !option->identity) /* else a run could be found by other values, and refuse them */
            fail_msg("--%s cannot change in a run, and is not part of its identity", option->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_as_documented),      cmocka_unit_test(every_promised_flag_exists),
        cmocka_unit_test(flags_are_read_and_checked),      cmocka_unit_test(identity_is_what_changes_the_result),
        cmocka_unit_test(intervals_are_steps_or_times),    cmocka_unit_test(schedules_follow_their_formulas),
        cmocka_unit_test(warm_up_rises_to_the_full_rate),  cmocka_unit_test(tables_know_their_names),
        cmocka_unit_test(choices_are_what_is_implemented), cmocka_unit_test(options_know_their_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
