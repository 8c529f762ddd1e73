/* Predictors and data through the public interface, and log messages that a program takes
 * itself. */
#include <math.h>

#include "api_support.h"

static fth_data *data;
static fth_network *network;
static fth_training *training;

static int setup(void **state)
{
    test_make_folder(state);
    data = api_data();
    network = api_network();
    training = api_training(network, data);
    assert_ok(fth_training_run(training));
    return 0;
}

static int teardown(void **state)
{
    fth_training_free(training);
    fth_network_free(network);
    fth_data_free(data);
    return test_remove_folder(state);
}

static fth_predictor *open_model(const char *path)
{
    fth_predictor *predictor = NULL;
    static const char *const options[] = {"threads", "1", NULL};
    assert_ok(fth_predictor_open(path, network, options, &predictor));
    return predictor;
}

/* The validation images, as fth_data gives them. */
static void read_validation(uint8_t *pixels, int32_t *labels)
{
    for (int i = 0; i < API_VALIDATION; i++)
        assert_ok(fth_data_read(data, FTH_VALIDATION, i, pixels + i * API_IMAGE, &labels[i]));
}

static void predictions_agree_with_the_evaluation(void **state)
{
    (void)state;
    uint8_t pixels[API_VALIDATION * API_IMAGE];
    int32_t labels[API_VALIDATION];
    float probabilities[API_VALIDATION * API_CLASSES];
    const fth_score *score;
    fth_predictor *predictor = open_model(fth_training_get_result(training)->last_model);
    int correct = 0;
    double loss = 0;

    read_validation(pixels, labels);
    assert_ok(fth_predictor_run(predictor, pixels, API_VALIDATION, probabilities));
    for (int i = 0; i < API_VALIDATION; i++) {
        const float *row = probabilities + i * API_CLASSES;
        int best = 0;
        for (int j = 1; j < API_CLASSES; j++)
            best = row[j] > row[best] ? j : best;
        correct += best == labels[i];
        loss -= log(row[labels[i]]) / API_VALIDATION;
        assert_float_equal(row[0] + row[1] + row[2], 1, 1e-6);
    }
    assert_ok(fth_predictor_evaluate(predictor, data, &score));
    assert_int_equal(score->samples, API_VALIDATION);
    assert_float_equal(score->accuracy, (double)correct / API_VALIDATION, 1e-12);
    assert_float_equal(score->loss, loss, 1e-5);
    assert_string_equal(fth_predictor_get_info(predictor)->class_names[2], "bottom");
    assert_string_equal(fth_predictor_get_info(predictor)->model, "small");
    fth_predictor_free(predictor);
}

static void a_saved_model_predicts_the_same(void **state)
{
    (void)state;
    uint8_t pixels[API_VALIDATION * API_IMAGE];
    int32_t labels[API_VALIDATION];
    float before[API_VALIDATION * API_CLASSES], after[API_VALIDATION * API_CLASSES];
    char path[TEST_MAX_PATH];
    read_validation(pixels, labels);
    fth_predictor *predictor = open_model(fth_training_get_result(training)->last_model);
    assert_ok(fth_predictor_run(predictor, pixels, API_VALIDATION, before));
    assert_ok(fth_predictor_save(predictor, test_path(path, "copy.safetensors")));
    assert_ok(fth_predictor_save(predictor, test_path(path, "copy.onnx")));
    assert_int_equal(fth_predictor_save(predictor, test_path(path, "copy.txt")), FTH_INVALID);
    assert_message_has(".safetensors or .onnx");
    fth_predictor_free(predictor);
    predictor = open_model(test_path(path, "copy.safetensors"));
    assert_ok(fth_predictor_run(predictor, pixels, API_VALIDATION, after));
    assert_memory_equal(before, after, sizeof before);
    fth_predictor_free(predictor);
}

static void assert_not_opened(const char *path, const fth_network *of, const char *const *options, const char *why)
{
    fth_predictor *predictor = NULL;
    assert_int_not_equal(fth_predictor_open(path, of, options, &predictor), FTH_OK);
    assert_message_has(why);
    assert_null(predictor);
}

static void what_cannot_be_opened_says_why(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    const char *model = fth_training_get_result(training)->last_model;
    fth_network *other = NULL;
    assert_ok(fth_network_create("other", 1, API_SIDE, API_SIDE, &other));
    fth_layer x = fth_network_flatten(other, fth_network_input(other));
    assert_ok(fth_network_finish(other, fth_network_linear(other, x, "fc", API_CLASSES)));
    assert_not_opened(model, other, NULL, "is of the model small, not of the network other");
    assert_not_opened(model, NULL, NULL, "is of the network small, which is not built in");
    assert_not_opened(test_path(path, "nothing.safetensors"), network, NULL, "nothing.safetensors");
    assert_not_opened(model, network, (const char *const[]){"thread", "1", NULL}, "did you mean \"threads\"");
    assert_not_opened(model, network, (const char *const[]){"threads", NULL}, "threads has no value");
    assert_not_opened(model, NULL, (const char *const[]){"model", "resnet81", NULL}, "there is no model \"resnet81\"");
    fth_predictor *predictor = open_model(model);
    float probabilities[API_CLASSES];
    assert_int_not_equal(fth_predictor_run_file(predictor, test_path(path, "nothing.png"), probabilities), FTH_OK);
    assert_message_has("nothing.png");
    fth_predictor_free(predictor);
    fth_network_free(other);
}

static void missing_arguments_are_errors(void **state)
{
    (void)state;
    uint8_t pixels[API_IMAGE] = {0};
    float probabilities[API_CLASSES];
    const fth_score *score;
    fth_data *none = NULL;
    const char *model = fth_training_get_result(training)->last_model;
    fth_predictor *predictor = open_model(model);
    assert_int_equal(fth_predictor_open(model, network, NULL, NULL), FTH_INVALID);
    assert_int_equal(fth_predictor_run(NULL, pixels, 1, probabilities), FTH_INVALID);
    assert_message_has("predictor is NULL");
    assert_int_equal(fth_predictor_run(predictor, NULL, 1, probabilities), FTH_INVALID);
    assert_int_equal(fth_predictor_run(predictor, pixels, 1, NULL), FTH_INVALID);
    assert_int_equal(fth_predictor_run(predictor, pixels, -1, probabilities), FTH_INVALID);
    assert_message_has("-1");
    assert_ok(fth_predictor_run(predictor, NULL, 0, NULL));
    assert_int_equal(fth_predictor_run_file(NULL, "x.png", probabilities), FTH_INVALID);
    assert_int_equal(fth_predictor_run_file(predictor, NULL, probabilities), FTH_INVALID);
    assert_message_has("without a name");
    assert_int_equal(fth_predictor_run_file(predictor, "x.png", NULL), FTH_INVALID);
    assert_int_equal(fth_predictor_evaluate(NULL, data, &score), FTH_INVALID);
    assert_int_equal(fth_predictor_evaluate(predictor, NULL, &score), FTH_INVALID);
    assert_message_has("data is NULL");
    assert_int_equal(fth_predictor_evaluate(predictor, data, NULL), FTH_INVALID);
    assert_int_equal(fth_predictor_save(NULL, "x.onnx"), FTH_INVALID);
    assert_int_equal(fth_predictor_save(predictor, NULL), FTH_INVALID);
    assert_null(fth_predictor_get_info(NULL));
    fth_predictor_free(predictor);

    assert_int_equal(fth_data_open("digits", NULL), FTH_INVALID);
    assert_int_equal(fth_data_from_images(NULL, NULL, NULL, &none), FTH_INVALID);
    assert_message_has("form is NULL");
    int32_t label = 0;
    assert_int_equal(fth_data_from_images(&(fth_images_form){"digits", 1, API_SIDE, API_SIDE, API_CLASSES, NULL},
                                          &(fth_images){pixels, &label, 1}, NULL, &none),
                     FTH_INVALID);
    assert_message_has("built-in data set");
    assert_int_equal(fth_data_read(NULL, FTH_TRAIN, 0, pixels, NULL), FTH_INVALID);
    assert_int_equal(fth_data_read(data, FTH_TRAIN, 0, NULL, NULL), FTH_INVALID);
    assert_null(fth_data_get_info(NULL));
}

static void data_by_name_is_described(void **state)
{
    (void)state;
    fth_data *digits = NULL;
    uint8_t pixels[784];
    int32_t label = -1;
    assert_ok(fth_data_open("digits", &digits));
    const fth_data_info *info = fth_data_get_info(digits);
    assert_int_equal(info->height, 28);
    assert_int_equal(info->classes, 10);
    assert_int_equal(info->training_count, 20000);
    assert_ok(fth_data_read(digits, FTH_TRAIN, 0, pixels, &label));
    assert_in_range(label, 0, 9);
    assert_ok(fth_data_read(digits, FTH_TRAIN, 0, pixels, NULL));
    assert_int_equal(fth_data_read(digits, FTH_VALIDATION, 4000, pixels, NULL), FTH_INVALID);
    fth_data_free(digits);
    digits = NULL;
    assert_int_equal(fth_data_open("digitz", &digits), FTH_INVALID);
    assert_message_has("did you mean 'digits'");
    assert_null(digits);
    assert_int_equal(fth_data_open(NULL, &digits), FTH_INVALID);
}

typedef struct log_lines {
    int count;
    fth_log_level level;
    char last[200];
} log_lines;

static void take_line(void *context, fth_log_level level, const char *message)
{
    log_lines *lines = context;
    lines->count++;
    lines->level = level;
    snprintf(lines->last, sizeof lines->last, "%s", message);
}

static void a_program_takes_messages_itself(void **state)
{
    (void)state;
    log_lines lines = {0};
    fth_log_set_function(take_line, &lines);
    fth_log_info("not at this level");
    assert_int_equal(lines.count, 0);
    fth_log_warning("%s", "two\nlines");
    assert_int_equal(lines.count, 1);
    assert_int_equal(lines.level, FTH_LOG_WARNING);
    assert_string_equal(lines.last, "two\\nlines");
    fth_log_set_level(FTH_LOG_INFO);
    fth_log_info("now");
    assert_string_equal(lines.last, "now");
    fth_log_set_level(FTH_LOG_WARNING);
    fth_log_set_function(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_agree_with_the_evaluation), cmocka_unit_test(a_saved_model_predicts_the_same),
        cmocka_unit_test(what_cannot_be_opened_says_why),        cmocka_unit_test(data_by_name_is_described),
        cmocka_unit_test(missing_arguments_are_errors),          cmocka_unit_test(a_program_takes_messages_itself),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
