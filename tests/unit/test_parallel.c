/* Whole training runs with the single strategy, on a small MNIST-like set: exact resume, limits,
 * failures. */
#include "support.h"

#include <glob.h>
#include <math.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bands.h"
#include "parallel/parallel.h"
#include "tensor/tensor.h"

enum { TRAINING = 150, VALIDATION = 40 };

static char data[220], runs[220];

static int set_up(void **state)
{
    if (test_make_folder(state) != 0)
        return -1;
    snprintf(data, sizeof data, "%s/bands", test_folder);
    snprintf(runs, sizeof runs, "%s/runs", test_folder);
    write_bands(data, TRAINING, VALIDATION);
    return 0;
}

static int remove_runs(void **state)
{
    (void)state;
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", runs);
    return system(command);
}

/* ---- running ---- */

typedef struct watch {
    fth_stop stop;
    int64_t stop_at_step;
    void (*at_step)(int64_t step);
    json_t *events;
} watch;

static void on_progress(void *context, const fth_progress *progress)
{
    watch *w = context;
    if (progress->evaluating)
        return;
    if (w->stop_at_step > 0 && progress->step >= w->stop_at_step)
        fth_stop_ask(&w->stop, FTH_STOP_REQUEST, INFINITY, "test", "step %lld", (long long)progress->step);
    if (w->at_step)
        w->at_step(progress->step);
}

static void on_event(void *context, const json_t *event)
{
    watch *w = context;
    json_array_append_new(w->events, json_deep_copy(event));
}

typedef struct result {
    fth_status status;
    fth_train_outcome outcome;
    json_t *events;
} result;

static void release(result *r)
{
    fth_train_outcome_release(&r->outcome);
    json_decref(r->events);
}

/* `flags` is split at spaces; the data, the runs folder and one thread (kind to a busy machine) are
 * added first. */
static fth_train_options options_of(const char *flags)
{
    fth_train_options options;
    char text[1200], *argv[64];
    const char *positional[64];
    int argc = 0, positional_count = 0;
    bool help;
    snprintf(text, sizeof text, "--data %s --runs %s --threads 1 %s", data, runs, flags);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));)
        argv[argc++] = word;
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &options), FTH_OK);
    if (fth_options_read_flags(&fth_train_option_table, &options, argc, argv, positional, &positional_count, &help))
        fail_msg("%s", fth_error_message());
    return options;
}

static result train_watched(const char *flags, int64_t stop_at_step, void (*at_step)(int64_t))
{
    watch w = {.stop = FTH_STOP_INITIALIZER, .stop_at_step = stop_at_step, .at_step = at_step, .events = json_array()};
    fth_train_observer observer = {.context = &w, .progress = on_progress, .event = on_event};
    fth_train_options options = options_of(flags);
    result r = {0};
    r.status = fth_train(&options, fth_strategies, &observer, &w.stop, &r.outcome);
    r.events = w.events;
    fth_options_release(&fth_train_option_table, &options);
    return r;
}

static result train(const char *flags)
{
    result r = train_watched(flags, 0, NULL);
    if (r.status != FTH_OK)
        fail_msg("%s: %s", flags, fth_error_message());
    return r;
}

static const json_t *last_event(const result *r, const char *name)
{
    for (size_t i = json_array_size(r->events); i-- > 0;) {
        const json_t *event = json_array_get(r->events, i);
        if (strcmp(json_string_value(json_object_get(event, "event")), name) == 0)
            return event;
    }
    return NULL;
}

static double number(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    if (!json_is_number(value))
        fail_msg("no number %s", key);
    return json_number_value(value);
}

static void assert_same_file(const char *a, const char *b)
{
    char *left = NULL, *right = NULL;
    size_t left_size = 0, right_size = 0;
    assert_int_equal(fth_file_read_all(a, 1 << 28, &left, &left_size), FTH_OK);
    assert_int_equal(fth_file_read_all(b, 1 << 28, &right, &right_size), FTH_OK);
    assert_int_equal(left_size, right_size);
    assert_memory_equal(left, right, left_size);
    free(left);
    free(right);
}

static const char *path_in(const result *r, const char *name)
{
    static char paths[2][500];
    static int next;
    next = !next;
    snprintf(paths[next], sizeof paths[next], "%s/%s", r->outcome.run_folder, name);
    return paths[next];
}

/* ---- exact resume ---- */

/* Runs `flags` whole; then again, stopped after each of `stops` and resumed: the results must be
 * the same bytes. */
static void check_exact_resume(const char *flags, const int64_t *stops)
{
    char named[500];
    snprintf(named, sizeof named, "--name whole %s", flags);
    result whole = train(named);

    snprintf(named, sizeof named, "--name parts --resume %s", flags);
    for (; *stops; stops++) {
        result part = train_watched(named, *stops, NULL);
        assert_int_equal(part.status, FTH_OK);
        assert_true(part.outcome.interrupted);
        assert_null(part.outcome.end);
        assert_non_null(last_event(&part, "interrupted"));
        release(&part);
    }
    result rest = train(named);
    assert_false(rest.outcome.interrupted);
    assert_same_file(path_in(&whole, "last.safetensors"), path_in(&rest, "last.safetensors"));
    assert_same_file(path_in(&whole, "best.safetensors"), path_in(&rest, "best.safetensors"));
    assert_true(number(whole.outcome.end, "loss") == number(rest.outcome.end, "loss"));
    assert_true(number(whole.outcome.end, "steps") == number(rest.outcome.end, "steps"));
    assert_true(number(whole.outcome.end, "samples") == number(rest.outcome.end, "samples"));
    const json_t *a = last_event(&whole, "epoch"), *b = last_event(&rest, "epoch");
    if (a && b) {
        assert_true(number(a, "train_loss") == number(b, "train_loss"));
        assert_true(number(a, "train_accuracy") == number(b, "train_accuracy"));
    }
    release(&whole);
    release(&rest);
}

static void sgd_resumes_exactly(void **state)
{
    (void)state;
    check_exact_resume("--batch 16 --epochs 2", (int64_t[]){1, 7, 10, 13, 0}); /* 10 is the end of an epoch */
}

static void several_threads_resume_exactly(void **state)
{
    (void)state;
    check_exact_resume("--batch 32 --epochs 1 --threads 2", (int64_t[]){3, 0});
}

static void adamw_with_cosine_accumulation_and_clipping_resumes_exactly(void **state)
{
    (void)state;
    check_exact_resume("--batch 16 --epochs 2 --optimizer adamw --schedule cosine --warmup 3 --accumulate 3 --clip 0.5 "
                       "--augment flip-crop",
                       (int64_t[]){2, 5, 0});
}

static void batch_norm_models_resume_exactly(void **state)
{
    (void)state;
    check_exact_resume("--model resnet20 --batch 8 --steps 3", (int64_t[]){2, 0});
}

/* Checkpoints are written beside training, which may be steps ahead of them. Waits until the last
 * one that was due before `step`, of those every so many steps, is whole. */
static void wait_for_checkpoint(int64_t step, int64_t every)
{
    char pattern[600];
    glob_t found;
    int64_t due = (step - 1) / every * every;
    if (due < every)
        return;
    snprintf(pattern, sizeof pattern, "%s/*/checkpoints/step-%012lld.json", runs, (long long)due);
    fth_deadline deadline = test_deadline_in(60);
    while (glob(pattern, 0, NULL, &found) != 0 && !fth_deadline_passed(deadline)) {
        globfree(&found);
        usleep(1000);
    }
    globfree(&found);
}

static void after_every_fourth(int64_t step)
{
    wait_for_checkpoint(step, 4);
}

/* What is on disk in the middle of a step is what a kill leaves. */
static void copy_runs(int64_t step)
{
    char command[1200];
    wait_for_checkpoint(step, 5);
    if (step != 12)
        return;
    snprintf(command, sizeof command, "cp -a '%s' '%s.killed'", runs, runs);
    assert_int_equal(system(command), 0);
}

static void a_killed_run_ends_as_if_nothing_had_happened(void **state)
{
    (void)state;
    char command[1200];
    const char *flags = "--batch 16 --epochs 2 --checkpoint-every 5 --keep 2 --resume";
    result whole = train_watched(flags, 0, copy_runs);
    assert_int_equal(whole.status, FTH_OK);
    snprintf(command, sizeof command, "mv '%s' '%s.whole' && mv '%s.killed' '%s'", runs, runs, runs, runs);
    assert_int_equal(system(command), 0);

    result rest = train(flags); /* finds the run by its configuration */
    const json_t *resume = last_event(&rest, "resume");
    assert_non_null(resume);
    assert_true(number(resume, "step") == 10);
    assert_string_equal(rest.outcome.id, whole.outcome.id);
    char path[800];
    snprintf(path, sizeof path, "%s.whole/%s/last.safetensors", runs, whole.outcome.id);
    assert_same_file(path, path_in(&rest, "last.safetensors"));

    fth_record_summary summary;
    assert_int_equal(fth_record_read(rest.outcome.run_folder, &summary), FTH_OK);
    assert_int_equal(summary.steps, 20);
    assert_int_equal(summary.resumes, 1);
    assert_true(summary.finished);
    for (size_t i = 1; i < summary.training.count; i++)
        assert_true(summary.training.points[i].step > summary.training.points[i - 1].step);
    fth_record_release(&summary);
    release(&whole);
    release(&rest);
    snprintf(command, sizeof command, "rm -rf '%s.whole'", runs);
    assert_int_equal(system(command), 0);
}

static void a_corrupt_checkpoint_falls_back(void **state)
{
    (void)state;
    const char *flags = "--batch 16 --epochs 2 --name damaged --resume --checkpoint-every 4";
    result whole = train("--batch 16 --epochs 2 --name good");
    result part = train_watched(flags, 9, after_every_fourth);
    assert_true(part.outcome.interrupted);
    const char *path = path_in(&part, "checkpoints/step-000000000009.safetensors");
    assert_int_equal(truncate(path, 1000), 0);
    result rest = train(flags);
    assert_true(number(last_event(&rest, "resume"), "step") == 8);
    assert_same_file(path_in(&whole, "last.safetensors"), path_in(&rest, "last.safetensors"));
    release(&whole);
    release(&part);
    release(&rest);
}

/* The best model was saved at step 10, after the checkpoint that is left. */
static void a_best_model_of_an_undone_step_is_removed(void **state)
{
    (void)state;
    const char *flags = "--batch 16 --epochs 2 --name undone --resume --checkpoint-every 4";
    result whole = train("--batch 16 --epochs 2 --name good");
    result part = train_watched(flags, 13, after_every_fourth);
    assert_true(part.outcome.interrupted);
    assert_int_equal(truncate(path_in(&part, "checkpoints/step-000000000012.safetensors"), 1000), 0);
    assert_int_equal(truncate(path_in(&part, "checkpoints/step-000000000013.safetensors"), 1000), 0);
    result again = train_watched(flags, 9, NULL);
    assert_true(number(last_event(&again, "resume"), "step") == 8);
    const json_t *warning = last_event(&again, "warning");
    assert_non_null(warning);
    assert_non_null(strstr(json_string_value(json_object_get(warning, "message")), "of step 10"));
    assert_int_not_equal(access(path_in(&again, "best.safetensors"), F_OK), 0);
    result rest = train(flags);
    assert_null(last_event(&rest, "warning"));
    assert_same_file(path_in(&whole, "best.safetensors"), path_in(&rest, "best.safetensors"));
    release(&whole);
    release(&part);
    release(&again);
    release(&rest);
}

/* ---- resuming by name, by configuration, and beyond the end ---- */

static void a_finished_run_is_left_alone_unless_more_is_asked(void **state)
{
    (void)state;
    result first = train("--batch 32 --epochs 1 --name one");
    result again = train("--batch 32 --epochs 1 --resume");
    assert_true(again.outcome.already_finished);
    assert_string_equal(again.outcome.id, "one");
    assert_true(number(again.outcome.end, "steps") == 5);
    result by_name = train("--resume one");
    assert_true(by_name.outcome.already_finished);

    result longer = train("--resume one --epochs 2"); /* the batch size comes from the stored configuration */
    assert_false(longer.outcome.already_finished);
    assert_true(number(longer.outcome.end, "steps") == 10);
    result straight = train("--batch 32 --epochs 2 --name two");
    assert_same_file(path_in(&longer, "last.safetensors"), path_in(&straight, "last.safetensors"));

    result changed = train_watched("--resume one --batch 16 --epochs 3", 0, NULL);
    assert_int_equal(changed.status, FTH_INVALID);
    assert_message_has("--batch");
    result unknown = train_watched("--resume onr", 0, NULL);
    assert_int_equal(unknown.status, FTH_INVALID);
    assert_message_has("one");
    release(&first);
    release(&again);
    release(&by_name);
    release(&longer);
    release(&straight);
    release(&changed);
    release(&unknown);
}

static void a_run_stopped_before_its_first_step_starts_over(void **state)
{
    (void)state;
    watch w = {.stop = {.asked = 1, .mutex = PTHREAD_MUTEX_INITIALIZER}, .events = json_array()};
    fth_train_options options = options_of("--batch 32 --epochs 1 --name early");
    fth_train_outcome outcome;
    assert_int_equal(fth_train(&options, fth_strategies, NULL, &w.stop, &outcome), FTH_OK);
    assert_true(outcome.interrupted);
    fth_train_outcome_release(&outcome);
    fth_options_release(&fth_train_option_table, &options);
    json_decref(w.events);
    result rest = train("--batch 32 --epochs 1 --name early"); /* the name is free: nothing was trained */
    assert_true(number(rest.outcome.end, "steps") == 5);
    release(&rest);
}

/* ---- a device that is lost ---- */

static const fth_strategy *healthy;

static fth_status lose_device(void *state, const fth_batch *batch, double rate, fth_step_result *step)
{
    return batch->number < 2 ? healthy->step(state, batch, rate, step) : fth_fail(FTH_PEER_LOST, "the device is lost");
}

/* Nobody else has the run: it fails, says why, and is free for the next. */
static void a_lost_device_is_no_lost_run(void **state)
{
    (void)state;
    char flags[600], path[600];
    snprintf(flags, sizeof flags, "--batch 32 --epochs 1 --watch none --lease 600s --checkpoints %s-store", runs);
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_train_options options = options_of(flags);
    fth_train_outcome outcome;
    assert_int_equal(fth_strategy_find(fth_strategies, "single", &healthy), FTH_OK);
    fth_strategy failing = *healthy;
    failing.step = lose_device;
    assert_int_equal(fth_train(&options, (const fth_strategy *const[]){&failing, NULL}, NULL, &stop, &outcome),
                     FTH_PEER_LOST);
    assert_message_has("the device is lost");
    assert_false(outcome.fenced || outcome.interrupted);
    snprintf(path, sizeof path, "%s-store/lease.json", runs);
    json_t *lease = json_load_file(path, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(lease, "owner")), "");
    json_decref(lease);
    fth_train_outcome_release(&outcome);
    fth_options_release(&fth_train_option_table, &options);
}

/* ---- limits ---- */

static void runs_end_at_each_limit(void **state)
{
    (void)state;
    static const struct {
        const char *flags, *reason;
    } cases[] = {
        {"--batch 32 --steps 3", "steps"},
        {"--batch 32 --epochs 1 --steps 100", "epochs"},
        {"--batch 32 --for 1ms", "for"},
        {"--batch 16 --until accuracy=0.3 --epochs 20", "until"},
        {"--batch 16 --until loss=2.2 --epochs 20", "until"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        result r = train(cases[i].flags);
        assert_string_equal(json_string_value(json_object_get(r.outcome.end, "reason")), cases[i].reason);
        assert_true(fth_file_exists(json_string_value(json_object_get(r.outcome.end, "model"))));
        assert_true(fth_file_exists(json_string_value(json_object_get(r.outcome.end, "best"))));
        static const char *const keys[] = {"accuracy", "loss", "epochs", "steps", "seconds", "samples_per_s"};
        for (size_t k = 0; k < FTH_COUNT_OF(keys); k++)
            assert_true(isfinite(number(r.outcome.end, keys[k])));
        release(&r);
    }
}

static void evaluation_agrees_with_the_run(void **state)
{
    (void)state;
    char flags[600];
    fth_evaluation evaluation;
    result r = train("--batch 16 --epochs 6");
    assert_true(number(r.outcome.end, "accuracy") > 0.5);
    snprintf(flags, sizeof flags, "--model mnist-cnn --weights %s", path_in(&r, "last.safetensors"));
    fth_train_options options = options_of(flags);
    assert_int_equal(fth_evaluate(&options, NULL, &evaluation), FTH_OK);
    assert_int_equal(evaluation.samples, VALIDATION);
    assert_true(evaluation.accuracy == number(r.outcome.end, "accuracy"));
    /* another batch size sums the losses in another order */
    assert_true(fabs(evaluation.loss - number(r.outcome.end, "loss")) < 1e-5);
    fth_options_release(&fth_train_option_table, &options);
    release(&r);
}

/* A linear model has no dropout, so two halves of a batch must make the whole's update, up to
 * rounding. */
static void accumulation_equals_a_larger_batch(void **state)
{
    (void)state;
    result whole = train("--model linear --batch 32 --epochs 1 --name large");
    result halves = train("--model linear --batch 16 --accumulate 2 --epochs 1 --name small");
    assert_true(number(whole.outcome.end, "steps") == number(halves.outcome.end, "steps"));
    fth_safetensors *a = NULL, *b = NULL;
    assert_int_equal(fth_safetensors_open(path_in(&whole, "last.safetensors"), &a), FTH_OK);
    assert_int_equal(fth_safetensors_open(path_in(&halves, "last.safetensors"), &b), FTH_OK);
    for (size_t t = 0; t < fth_safetensors_count(a); t++) {
        const fth_tensor_view *x = fth_safetensors_get(a, t);
        const fth_tensor_view *y = fth_safetensors_find(b, x->name);
        assert_non_null(y);
        for (int64_t i = 0; i < fth_shape_count(&x->shape); i++)
            assert_true(fabsf(((const float *)x->data)[i] - ((const float *)y->data)[i]) < 2e-6f);
    }
    fth_safetensors_free(a);
    fth_safetensors_free(b);
    release(&whole);
    release(&halves);
}

static void batch_norm_counters_are_in_the_model(void **state)
{
    (void)state;
    result r = train("--model resnet20 --batch 8 --steps 2");
    fth_safetensors *tensors = NULL;
    assert_int_equal(fth_safetensors_open(path_in(&r, "last.safetensors"), &tensors), FTH_OK);
    const fth_tensor_view *view = fth_safetensors_find(tensors, "bn1.num_batches_tracked");
    assert_non_null(view);
    assert_int_equal(view->dtype, FTH_I64);
    assert_int_equal(view->shape.rank, 0);
    assert_int_equal(*(const int64_t *)view->data, 2);
    assert_non_null(fth_safetensors_find(tensors, "layer1.0.bn1.running_var"));
    fth_safetensors_free(tensors);

    char flags[600]; /* and training goes on from such a file */
    snprintf(flags, sizeof flags, "--model resnet20 --batch 8 --steps 1 --weights %s", path_in(&r, "last.safetensors"));
    result more = train(flags);
    assert_int_equal(fth_safetensors_open(path_in(&more, "last.safetensors"), &tensors), FTH_OK);
    view = fth_safetensors_find(tensors, "bn1.num_batches_tracked");
    assert_int_equal(*(const int64_t *)view->data, 3);
    fth_safetensors_free(tensors);
    release(&more);
    release(&r);
}

/* ---- failures ---- */

static void a_diverging_run_stops_and_keeps_the_last_good_checkpoint(void **state)
{
    (void)state;
    result r = train_watched("--batch 16 --epochs 1 --lr 1e30 --checkpoint-every 1 --name wild", 0, NULL);
    assert_int_equal(r.status, FTH_DIVERGED);
    assert_message_has("--lr");
    const json_t *error = last_event(&r, "error");
    assert_non_null(error);
    assert_string_equal(json_string_value(json_object_get(error, "status")), "diverged");
    assert_true(number(error, "learning_rate") == 1e30);
    assert_null(last_event(&r, "end"));
    release(&r);

    /* A later blow-up: what was saved before it is still good. */
    result good = train("--batch 16 --steps 4 --checkpoint-every 2 --name later");
    result bad = train_watched("--resume later --steps 20 --lr 1e38", 0, NULL);
    assert_int_equal(bad.status, FTH_DIVERGED);
    result back = train("--resume later --steps 6 --lr 0.01");
    assert_true(number(last_event(&back, "resume"), "step") >= 4);
    release(&good);
    release(&bad);
    release(&back);
}

static bool record_has(const char *text)
{
    char path[500], line[2000];
    bool found = false;
    snprintf(path, sizeof path, "%s/blocked/events.jsonl", runs);
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(line, sizeof line, file))
        found = strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return found;
}

/* From the first step until a save has failed, which happens in a thread of its own. */
static void block_checkpoints(int64_t step)
{
    char path[500];
    struct stat facts;
    snprintf(path, sizeof path, "%s/blocked/checkpoints", runs);
    if (step == 1) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fclose(file);
    } else if (stat(path, &facts) == 0 && S_ISREG(facts.st_mode)) {
        if (record_has("\"warning\""))
            assert_int_equal(unlink(path), 0);
        else
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

static void block_for_good(int64_t step)
{
    if (step == 1)
        block_checkpoints(step);
}

static void training_goes_on_when_a_checkpoint_fails(void **state)
{
    (void)state;
    result r = train_watched("--model linear --batch 16 --epochs 20 --checkpoint-every 2 --name blocked", 0,
                             block_checkpoints);
    assert_int_equal(r.status, FTH_OK);
    assert_non_null(last_event(&r, "warning"));
    assert_non_null(last_event(&r, "checkpoint"));
    release(&r);
    remove_runs(NULL);

    r = train_watched("--model linear --batch 16 --epochs 1 --checkpoint-every 2 --name blocked", 0, block_for_good);
    assert_int_not_equal(r.status, FTH_OK); /* the last chance to save was missed */
    assert_null(last_event(&r, "end"));
    assert_non_null(last_event(&r, "error"));
    release(&r);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    result r = train("--model linear --batch 16 --steps 1 --name linear");
    char weights[600];
    snprintf(weights, sizeof weights, "--weights %s", path_in(&r, "last.safetensors"));
    release(&r);
    const struct {
        const char *flags, *message;
    } cases[] = {
        {"--model mnist-cn", "mnist-cnn"},
        {"--data /nonexistent/folder", "/nonexistent/folder"},
        {"--until loss=0.1 --schedule cosine", "--epochs or --steps"},
        {"--weights /nonexistent.safetensors", "/nonexistent.safetensors"},
        {"--device warp", "warp"},
        {weights, "missing"},
        {"--name linear", "--resume linear"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        r = train_watched(cases[i].flags, 0, NULL);
        assert_int_not_equal(r.status, FTH_OK);
        assert_message_of(cases[i].flags, cases[i].message);
        assert_null(r.outcome.run_folder); /* nothing was begun */
        release(&r);
    }
    const fth_strategy *strategy;
    assert_int_equal(fth_strategy_find(fth_strategies, "singel", &strategy), FTH_INVALID);
    assert_message_has("did you mean single?");
    assert_int_equal(fth_strategy_find(fth_strategies, "zebra", &strategy), FTH_INVALID);
    assert_message_has("known strategies: single, hogwild, parameter-server");
}

static void a_benchmark_measures(void **state)
{
    (void)state;
    fth_benchmark_result measured = {0};
    fth_train_options options = options_of("--model cifar-cnn --batch 4");
    assert_int_equal(fth_benchmark(&options, 3, 32, 32, 10, 0.05, NULL, &measured), FTH_OK);
    assert_true(measured.median_step_s > 1e-6 && measured.median_step_s < 5);
    assert_true(*measured.device);
    fth_options_release(&fth_train_option_table, &options);
}

#define TEST(function) cmocka_unit_test_teardown(function, remove_runs)

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(sgd_resumes_exactly),
        TEST(several_threads_resume_exactly),
        TEST(adamw_with_cosine_accumulation_and_clipping_resumes_exactly),
        TEST(batch_norm_models_resume_exactly),
        TEST(a_killed_run_ends_as_if_nothing_had_happened),
        TEST(a_corrupt_checkpoint_falls_back),
        TEST(a_best_model_of_an_undone_step_is_removed),
        TEST(a_finished_run_is_left_alone_unless_more_is_asked),
        TEST(a_run_stopped_before_its_first_step_starts_over),
        TEST(a_lost_device_is_no_lost_run),
        TEST(runs_end_at_each_limit),
        TEST(evaluation_agrees_with_the_run),
        TEST(accumulation_equals_a_larger_batch),
        TEST(batch_norm_counters_are_in_the_model),
        TEST(a_diverging_run_stops_and_keeps_the_last_good_checkpoint),
        TEST(training_goes_on_when_a_checkpoint_fails),
        TEST(mistakes_are_named),
        TEST(a_benchmark_measures),
    };
    return cmocka_run_group_tests(tests, set_up, test_remove_folder);
}
