/* Text in the engine: packed batches, plans by the number of tokens, parts of a batch, groups of
 * parameters. */
#include "support.h"

#include <math.h>

#include "backend/plan.h"
#include "train/engine/engine_internal.h"
#include "train/engine/parameter_groups.h"

#define TINY "bert(layers=2,hidden=32,heads=2,intermediate=64,vocabulary=40,positions=24)"

enum { SAMPLES = 8, LONGEST = 24, CLASSES = 2, VOCABULARY = 40 };

static fth_device *device;

static int set_up(void **state)
{
    (void)state;
    return fth_device_open("cpu", &(fth_device_options){.threads = 1}, &device) == FTH_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fth_device_close(device);
    return 0;
}

/* ---- batches: a sample is of class 1 iff token 7 is in it ---- */

typedef struct texts {
    int32_t tokens[SAMPLES * LONGEST], segments[SAMPLES * LONGEST], positions[SAMPLES * LONGEST];
    int32_t ends[SAMPLES], labels[SAMPLES];
    float targets[SAMPLES * CLASSES];
    fth_batch batch;
} texts;

static void make_texts(texts *made, int64_t number, int samples, int shortest)
{
    fth_random_key key = fth_random_key_for((uint64_t)number, FTH_RANDOM_GENERATE);
    int32_t at = 0;
    *made = (texts){0};
    for (int i = 0; i < samples; i++) {
        uint64_t bits = fth_random_bits(key, (uint64_t)i << 8);
        int length = shortest + (int)(bits % (uint64_t)(LONGEST - shortest + 1));
        made->labels[i] = (int32_t)(bits >> 32 & 1);
        for (int j = 0; j < length; j++) {
            int32_t token =
                8 + (int32_t)(fth_random_bits(key, (uint64_t)i << 8 | (uint64_t)(j + 1)) % (uint64_t)(VOCABULARY - 8));
            made->tokens[at] = j == 0 ? 1 : j == 1 && made->labels[i] ? 7 : token;
            made->segments[at] = j > length / 2;
            made->positions[at++] = j;
        }
        made->ends[i] = at;
        for (int c = 0; c < CLASSES; c++)
            made->targets[i * CLASSES + c] = made->labels[i] == c ? 1 : 0;
    }
    made->batch = (fth_batch){.text = {.tokens = made->tokens,
                                       .segments = made->segments,
                                       .positions = made->positions,
                                       .ends = made->ends,
                                       .token_count = at},
                              .labels = made->labels,
                              .targets = made->targets,
                              .count = samples,
                              .number = number};
}

/* Samples [begin, end) of `whole`, whose ends count from the part's own first token. */
static void take_part(const texts *whole, int begin, int end, texts *part)
{
    const int32_t first = begin > 0 ? whole->ends[begin - 1] : 0;
    *part = *whole;
    for (int i = begin; i < end; i++)
        part->ends[i - begin] = whole->ends[i] - first;
    part->batch.text = (fth_text_batch){.tokens = whole->tokens + first,
                                        .segments = whole->segments + first,
                                        .positions = whole->positions + first,
                                        .ends = part->ends,
                                        .token_count = (end > begin ? whole->ends[end - 1] : first) - first,
                                        .first_token = first};
    part->batch.labels = whole->labels + begin;
    part->batch.count = end - begin;
    part->batch.whole = whole->batch.count;
    part->batch.first = begin;
}

/* ---- engines ---- */

typedef struct subject {
    fth_train_options options;
    fth_engine *engine;
} subject;

static fth_status make(const char *flags, fth_task task, subject *made)
{
    char text[512];
    *made = (subject){0};
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &made->options), FTH_OK);
    snprintf(text, sizeof text, "model=" TINY " batch=8 optimizer=adamw lr=0.003 %s", flags);
    for (char *rest = NULL, *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        assert_int_equal(fth_options_set(&fth_train_option_table, &made->options, word, value, word), FTH_OK);
    }
    fth_engine_options options = {.train = &made->options,
                                  .longest = LONGEST,
                                  .task = task,
                                  .classes = CLASSES,
                                  .training_samples = SAMPLES * 1000};
    return fth_engine_create(&options, device, &made->engine);
}

static void release(subject *made)
{
    fth_engine_free(made->engine);
    fth_options_release(&fth_train_option_table, &made->options);
}

static void train(subject *made, int steps, double *first, double *last, int64_t *correct)
{
    texts made_up;
    *correct = 0;
    for (int i = 0; i < steps; i++) {
        fth_step_result result;
        make_texts(&made_up, i, SAMPLES, 3);
        assert_int_equal(fth_engine_step(made->engine, &made_up.batch, 0.003, &result), FTH_OK);
        *(i == 0 ? first : last) = result.loss;
        *correct += i >= steps - 10 ? result.correct : 0;
    }
}

static void check_training_learns(void **state)
{
    static const struct {
        const char *flags;
        fth_task task;
    } cases[] = {{"", FTH_TASK_CLASSES},
                 {"clip=1 weight-decay=0.01 layer-decay=0.9", FTH_TASK_CLASSES},
                 {"precision=bf16", FTH_TASK_CLASSES},
                 {"", FTH_TASK_REGRESSION},
                 {"", FTH_TASK_MULTI_LABEL}};
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        subject made;
        double first = 0, last = 0;
        int64_t correct = 0;
        const fth_status status = make(cases[i].flags, cases[i].task, &made);
        if (status == FTH_UNSUPPORTED && strstr(cases[i].flags, "bf16")) { /* the processor, or oneDNN, has none */
            fprintf(stderr, "SKIP cpu: %s\n", fth_error_message());
            release(&made);
            continue;
        }
        assert_int_equal(status, FTH_OK);
        train(&made, 150, &first, &last, &correct);
        assert_true(last < first / 4);
        assert_true(cases[i].task == FTH_TASK_REGRESSION ? correct == 0 : correct >= 68);
        release(&made);
    }
}

/* Dropout is on: a part draws what the whole draws for its samples. */
static void check_parts_sum_to_the_whole(void **state)
{
    subject made;
    texts whole, part;
    fth_step_result result;
    (void)state;
    assert_int_equal(make("", FTH_TASK_CLASSES, &made), FTH_OK);
    const size_t count = fth_engine_get_sizes(made.engine).trained;
    float *sum = NULL;
    assert_int_equal(fth_allocate(count, sizeof *sum, &sum), FTH_OK);
    make_texts(&whole, 3, SAMPLES, 3);
    const int cuts[] = {0, 5, 5, SAMPLES}; /* one part is empty */
    for (int i = 0; i < 3; i++) {
        take_part(&whole, cuts[i], cuts[i + 1], &part);
        fth_group group = fth_engine_group(made.engine, &part.batch);
        assert_int_equal(fth_engine_compute(made.engine, &part.batch, &group, &result), FTH_OK);
        for (size_t j = 0; j < count; j++)
            sum[j] += fth_engine_get_gradients(made.engine)[j];
    }
    fth_group group = fth_engine_group(made.engine, &whole.batch);
    assert_int_equal(fth_engine_compute(made.engine, &whole.batch, &group, &result), FTH_OK);
    const float *gradients = fth_engine_get_gradients(made.engine);
    double difference = 0, size = 0;
    for (size_t j = 0; j < count; j++) {
        difference += ((double)sum[j] - gradients[j]) * ((double)sum[j] - gradients[j]);
        size += (double)gradients[j] * gradients[j];
    }
    assert_true(size > 0 && difference < 1e-10 * size); /* f32, sums of a few hundred terms in another order */
    free(sum);
    release(&made);
}

static void check_capacity(void **state)
{
    (void)state;
    assert_int_equal(fth_text_capacity(1), 16);
    assert_int_equal(fth_text_capacity(16), 16);
    assert_int_equal(fth_text_capacity(511), 512);
    assert_int_equal(fth_text_capacity(513), 544);
    assert_int_equal(fth_text_capacity(3200), 3200);
    assert_int_equal(fth_text_capacity(3201), 3328);
    for (int64_t tokens = 256; tokens < 100000; tokens += 37) {
        int64_t capacity = fth_text_capacity(tokens);
        assert_true(capacity >= tokens && capacity - tokens <= tokens / 16);
        assert_int_equal(fth_text_capacity(capacity), capacity);
    }
}

/* More sizes than plans are kept: the first is made again, and gives the same. */
static void check_plans_come_and_go(void **state)
{
    subject made;
    texts text;
    float before[SAMPLES * CLASSES], after[SAMPLES * CLASSES];
    (void)state;
    assert_int_equal(make("", FTH_TASK_CLASSES, &made), FTH_OK);
    make_texts(&text, 1, SAMPLES, 3);
    assert_int_equal(fth_engine_predict_text(made.engine, &text.batch.text, SAMPLES, before), FTH_OK);
    int made_plans = 0;
    for (int samples = 1; samples < SAMPLES; samples++)
        for (int length = 3; length <= LONGEST; length += 2) {
            texts other;
            float logits[SAMPLES * CLASSES];
            make_texts(&other, length, samples, length);
            assert_int_equal(fth_engine_predict_text(made.engine, &other.batch.text, samples, logits), FTH_OK);
            made_plans++;
        }
    assert_true(made_plans > FTH_MAX_PLANS);
    assert_int_equal(fth_engine_predict_text(made.engine, &text.batch.text, SAMPLES, after), FTH_OK);
    assert_memory_equal(before, after, sizeof before);
    release(&made);
}

static void check_wrong_data(void **state)
{
    subject made;
    fth_train_options options;
    fth_engine *engine = NULL;
    (void)state;
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &options), FTH_OK);
    assert_int_equal(fth_options_set(&fth_train_option_table, &options, "model", "mnist-cnn", "model"), FTH_OK);
    fth_engine_options text = {.train = &options, .longest = LONGEST, .classes = CLASSES, .training_samples = SAMPLES};
    assert_int_equal(fth_engine_create(&text, device, &engine), FTH_INVALID);
    assert_non_null(strstr(fth_error_message(), "mnist-cnn is a model for images, and the data has text"));
    assert_int_equal(fth_options_set(&fth_train_option_table, &options, "model", "bert-tiny", "model"), FTH_OK);
    fth_engine_options images = {
        .train = &options, .channels = 1, .height = 28, .width = 28, .classes = 10, .training_samples = SAMPLES};
    assert_int_equal(fth_engine_create(&images, device, &engine), FTH_INVALID);
    assert_non_null(strstr(fth_error_message(), "bert-tiny is a model for text, and the data has images"));
    fth_options_release(&fth_train_option_table, &options);

    assert_int_equal(make("no-decay=*.bais", FTH_TASK_CLASSES, &made), FTH_INVALID);
    assert_non_null(strstr(fth_error_message(), "*.bais"));
    release(&made);
}

/* ---- groups ---- */

typedef struct expected_group {
    const char *name;
    double rate, decay;
} expected_group;

/* Plain gradient descent shows rate and decay of each parameter: p' = p - lr rate (g + decay p). */
static void check_updates(const char *flags, const expected_group *expected, size_t count)
{
    const double lr = 0.01, weight_decay = 0.25;
    subject made;
    texts text;
    fth_step_result result;
    float *before = NULL;
    assert_int_equal(make(flags, FTH_TASK_CLASSES, &made), FTH_OK);
    const fth_graph *graph = fth_engine_graph(made.engine);
    const size_t floats = fth_engine_get_sizes(made.engine).trained;
    assert_int_equal(fth_allocate(floats, sizeof *before, &before), FTH_OK);
    make_texts(&text, 5, SAMPLES, 3);
    fth_group group = fth_engine_group(made.engine, &text.batch);
    assert_int_equal(fth_engine_compute(made.engine, &text.batch, &group, &result), FTH_OK);
    float *parameters = made.engine->vectors.parameters;
    for (size_t i = 0; i < floats; i++) /* biases are 0 to begin with, and would hide their decay */
        parameters[i] = parameters[i] == 0 ? 0.5f : parameters[i];
    memcpy(before, parameters, floats * sizeof *before);
    assert_int_equal(fth_engine_update(made.engine, lr, 1), FTH_OK);
    const float *gradients = fth_engine_get_gradients(made.engine);
    for (size_t e = 0; e < count; e++) {
        const fth_value_info *info = fth_graph_value(graph, fth_graph_find(graph, expected[e].name));
        for (size_t i = info->offset; i < info->offset + (size_t)fth_shape_count(&info->type.shape); i++) {
            double wanted = before[i] - lr * expected[e].rate *
                                            (gradients[i] + weight_decay * expected[e].decay * (double)before[i]);
            assert_true(fabs(wanted - (double)parameters[i]) < 1e-6);
        }
    }
    free(before);
    release(&made);
}

static void check_groups(void **state)
{
    static const expected_group usual[] = {{"bert.embeddings.word_embeddings.weight", 1, 1},
                                           {"bert.embeddings.LayerNorm.weight", 1, 0},
                                           {"bert.encoder.layer.0.attention.self.query.weight", 1, 1},
                                           {"bert.encoder.layer.0.attention.self.query.bias", 1, 0},
                                           {"bert.encoder.layer.1.output.LayerNorm.bias", 1, 0},
                                           {"classifier.weight", 1, 1},
                                           {"classifier.bias", 1, 0}};
    static const expected_group by_layer[] = {{"bert.embeddings.word_embeddings.weight", 0.125, 1},
                                              {"bert.embeddings.LayerNorm.weight", 0.125, 1},
                                              {"bert.encoder.layer.0.attention.self.query.weight", 0.25, 1},
                                              {"bert.encoder.layer.1.output.LayerNorm.bias", 0.5, 1},
                                              {"bert.pooler.dense.weight", 1, 0},
                                              {"classifier.bias", 1, 1}};
    (void)state;
    check_updates("optimizer=sgd momentum=0 weight-decay=0.25", usual, FTH_COUNT_OF(usual));
    check_updates("optimizer=sgd momentum=0 weight-decay=0.25 layer-decay=0.5 no-decay=bert.pooler", by_layer,
                  FTH_COUNT_OF(by_layer));
}

/* Pieces and ranges that begin and end anywhere update as the whole does. */
static void check_pieces_of_groups(void **state)
{
    const char flags[] = "weight-decay=0.25 layer-decay=0.7";
    subject whole, pieces, ranges;
    texts text;
    fth_step_result result;
    (void)state;
    assert_int_equal(make(flags, FTH_TASK_CLASSES, &whole), FTH_OK);
    assert_int_equal(make(flags, FTH_TASK_CLASSES, &pieces), FTH_OK);
    assert_int_equal(make(flags, FTH_TASK_CLASSES, &ranges), FTH_OK);
    make_texts(&text, 6, SAMPLES, 3);
    fth_group group = fth_engine_group(whole.engine, &text.batch);
    fth_engine *engines[] = {whole.engine, pieces.engine, ranges.engine};
    for (int i = 0; i < 3; i++)
        assert_int_equal(fth_engine_compute(engines[i], &text.batch, &group, &result), FTH_OK);
    const size_t count = fth_engine_get_sizes(whole.engine).trained;
    const float *gradients = fth_engine_get_gradients(pieces.engine);
    const size_t cuts[] = {0, 16, count / 3 / 16 * 16, count / 2 / 16 * 16 + 16, count};
    fth_gradient_piece made[4];
    fth_float_range parts[4];
    for (int i = 0; i < 4; i++) {
        made[i] = (fth_gradient_piece){cuts[i], cuts[i + 1] - cuts[i], gradients + cuts[i]};
        parts[i] = (fth_float_range){cuts[i], cuts[i + 1]};
    }
    assert_int_equal(fth_engine_update(whole.engine, 0.01, 1), FTH_OK);
    assert_int_equal(fth_service_update(pieces.engine, 0.01, 1, 1, made, 4), FTH_OK);
    assert_int_equal(fth_engine_update_ranges(ranges.engine, 0.01, 1, parts, 4), FTH_OK);
    assert_memory_equal(whole.engine->vectors.parameters, pieces.engine->vectors.parameters, count * sizeof(float));
    assert_memory_equal(whole.engine->vectors.parameters, ranges.engine->vectors.parameters, count * sizeof(float));
    release(&whole);
    release(&pieces);
    release(&ranges);
}

static void check_no_groups_without_need(void **state)
{
    fth_train_options options;
    fth_parameter_groups *groups = NULL;
    fth_graph *graph = NULL;
    const fth_model *model = NULL;
    (void)state;
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &options), FTH_OK);
    assert_int_equal(fth_options_set(&fth_train_option_table, &options, "model", "mnist-cnn", "model"), FTH_OK);
    options.optimizer.weight_decay = 0.1;
    assert_int_equal(fth_train_options_find_model(&options, &model), FTH_OK);
    fth_model_options size = {.channels = 1, .height = 28, .width = 28, .classes = 10};
    assert_int_equal(fth_model_create_graph(model, &size, &graph), FTH_OK);
    assert_int_equal(fth_parameter_groups_create(&options, graph, &groups), FTH_OK);
    assert_int_equal(fth_parameter_groups_get(groups).range_count, 0);
    fth_parameter_groups_free(groups);
    options.optimizer.layer_decay = 0.9;
    assert_int_equal(fth_parameter_groups_create(&options, graph, &groups), FTH_INVALID);
    assert_non_null(strstr(fth_error_message(), "--layer-decay"));
    fth_graph_free(graph);
    fth_options_release(&fth_train_option_table, &options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_training_learns),  cmocka_unit_test(check_parts_sum_to_the_whole),
        cmocka_unit_test(check_capacity),         cmocka_unit_test(check_plans_come_and_go),
        cmocka_unit_test(check_wrong_data),       cmocka_unit_test(check_groups),
        cmocka_unit_test(check_pieces_of_groups), cmocka_unit_test(check_no_groups_without_need),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
