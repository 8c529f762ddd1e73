/* Networks of a program's own: every kind of layer trains, and what does not fit is named. */
#include "api_support.h"

static fth_network *begin(void)
{
    fth_network *network = NULL;
    assert_ok(fth_network_create("mine", 1, API_SIDE, API_SIDE, &network));
    return network;
}

static void every_layer_trains_and_is_saved(void **state)
{
    (void)state;
    fth_data *data = api_data();
    fth_network *n = begin();
    fth_predictor *predictor = NULL;
    const fth_score *score;

    fth_layer x = fth_network_convolution_without_bias(n, fth_network_input(n), "stem", 4, 3, 1, 1);
    x = fth_network_relu(n, fth_network_batch_norm(n, x, "norm"));
    fth_layer left = fth_network_gelu(n, fth_network_convolution(n, x, "left.0", 4, 3, 1, 1));
    x = fth_network_relu(n, fth_network_add(n, x, left));
    x = fth_network_concat(n, fth_network_max_pool(n, x, 2, 2, 0), fth_network_average_pool(n, x, 2, 2, 0));
    x = fth_network_adaptive_average_pool(n, x, 3, 2);
    x = fth_network_dropout(n, fth_network_flatten(n, x), 0.1);
    x = fth_network_linear(n, fth_network_relu(n, fth_network_linear(n, x, "fc1", 16)), "fc2", API_CLASSES);
    assert_ok(fth_network_finish(n, x));

    fth_training *training = api_training(n, data);
    assert_ok(fth_training_run(training));
    const fth_training_result *result = fth_training_get_result(training);
    assert_true(result->accuracy > 0.9);
    assert_ok(fth_predictor_open(result->last_model, n, NULL, &predictor));
    assert_ok(fth_predictor_evaluate(predictor, data, &score));
    assert_float_equal(score->accuracy, result->accuracy, 1e-12);
    assert_float_equal(score->loss, result->loss, 1e-5);
    char path[TEST_MAX_PATH];
    assert_ok(fth_predictor_save(predictor, test_path(path, "mine.onnx")));
    assert_true(test_exists("mine.onnx"));
    fth_predictor_free(predictor);
    fth_training_free(training);
    fth_network_free(n);
    fth_data_free(data);
}

/* "bars.pt2", of tests/torch. */
static fth_network *open_exported(void)
{
    char path[TEST_MAX_PATH];
    fth_network *network = NULL;
    snprintf(path, sizeof path, "%s/torch/exported/bars.pt2", getenv("TEST_DATA"));
    assert_ok(fth_network_open(path, &network));
    return network;
}

static void a_network_from_pytorch_trains_and_its_files_carry_it(void **state)
{
    (void)state;
    fth_data *data = api_data();
    fth_network *n = open_exported();
    fth_predictor *predictor = NULL;
    const fth_score *score;
    fth_training *training = api_training(n, data);
    assert_ok(fth_training_run(training));
    const fth_training_result *result = fth_training_get_result(training);
    assert_true(result->accuracy > 0.9);
    for (int i = 0; i < 2; i++) { /* without the network, and with it */
        assert_ok(fth_predictor_open(result->last_model, i == 0 ? NULL : n, NULL, &predictor));
        assert_string_equal(fth_predictor_get_info(predictor)->model, "bars.pt2");
        assert_ok(fth_predictor_evaluate(predictor, data, &score));
        assert_float_equal(score->accuracy, result->accuracy, 1e-12);
        fth_predictor_free(predictor);
    }
    fth_training_free(training);

    /* It is finished: nothing can be added. */
    assert_int_equal(fth_network_relu(n, fth_network_input(n)), FTH_NO_LAYER);
    assert_int_equal(fth_network_finish(n, 0), FTH_INVALID);
    fth_network_free(n);
    assert_int_equal(fth_network_open("absent.pt2", &n), FTH_INVALID);
    assert_null(n);
    assert_int_equal(fth_network_open("bars", &n), FTH_INVALID);
    assert_message_has("bars");
    fth_data_free(data);
}

/* A ReLU that is not the only reader of a layer leaves that layer as it is. */
static void a_relu_is_fused_only_where_nobody_else_reads(void **state)
{
    (void)state;
    fth_data *data = api_data();
    double loss[2];
    for (int i = 0; i < 2; i++) {
        fth_network *n = begin();
        fth_layer x = fth_network_flatten(n, fth_network_input(n));
        fth_layer y = fth_network_linear(n, x, "fc1", 8);
        fth_layer z = fth_network_relu(n, y);
        z = i == 0 ? fth_network_concat(n, z, y) : fth_network_concat(n, z, z);
        assert_ok(fth_network_finish(n, fth_network_linear(n, z, "fc2", API_CLASSES)));
        fth_training *training = api_training(n, data);
        assert_ok(fth_training_set(training, "seed", "3"));
        assert_ok(fth_training_run(training));
        loss[i] = fth_training_get_result(training)->loss;
        fth_training_free(training);
        fth_network_free(n);
    }
    assert_true(loss[0] != loss[1]); /* the same if y had become its ReLU */
    fth_data_free(data);
}

static void assert_unfit(fth_network *network, fth_layer output, const char *why)
{
    assert_int_equal(fth_network_finish(network, output), FTH_INVALID);
    assert_message_has(why);
    fth_network_free(network);
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    fth_network *n = begin();
    assert_unfit(n, fth_network_linear(n, fth_network_input(n), "fc", 3), "layer fc: its input is images; flatten");
    n = begin();
    fth_layer flat = fth_network_flatten(n, fth_network_input(n));
    assert_unfit(n, fth_network_convolution(n, flat, "conv", 3, 3, 1, 1), "layer conv: its input is flat");
    n = begin();
    assert_unfit(n, fth_network_input(n), "must be (batch, classes)");
    n = begin();
    assert_unfit(n, fth_network_flatten(n, fth_network_input(n)), "nothing to train");
    n = begin();
    assert_unfit(n, fth_network_relu(n, 7), "7 is not a layer of the network mine");
    n = begin();
    assert_unfit(n, fth_network_convolution(n, fth_network_input(n), "conv", 0, 3, 1, 1), "filters 0 is not in 1 to");
    n = begin();
    assert_unfit(n, fth_network_convolution(n, fth_network_input(n), "conv", 2, 3, 0, 1), "stride 0 is not in 1 to");
    n = begin();
    assert_unfit(n, fth_network_max_pool(n, fth_network_input(n), 20, 1, 0), "20");
    n = begin();
    assert_unfit(n, fth_network_dropout(n, fth_network_input(n), 1), "a probability of 1");
    n = begin();
    assert_unfit(n, fth_network_batch_norm(n, fth_network_input(n), "two words"), "a layer's name \"two words\"");
    n = begin();
    fth_layer twice = fth_network_batch_norm(n, fth_network_input(n), "bn");
    assert_unfit(n, fth_network_batch_norm(n, twice, "bn"), "already has a layer named bn");
}

static void the_first_failure_is_the_one_that_is_told(void **state)
{
    (void)state;
    fth_network *n = begin();
    fth_layer x = fth_network_linear(n, fth_network_input(n), "first", 3);
    assert_int_equal(x, FTH_NO_LAYER);
    x = fth_network_linear(n, x, "second", 3);
    assert_int_equal(x, FTH_NO_LAYER);
    assert_unfit(n, x, "layer first");
}

static void a_finished_network_stays_as_it_is(void **state)
{
    (void)state;
    fth_network *n = api_network();
    assert_int_equal(fth_network_relu(n, fth_network_input(n)), FTH_NO_LAYER);
    assert_message_has("is finished");
    fth_network_free(n);

    fth_training *training = NULL;
    n = begin();
    assert_ok(fth_training_create(&training));
    assert_int_equal(fth_training_use_network(training, n), FTH_INVALID);
    assert_message_has("not finished");
    fth_training_free(training);
    fth_network_free(n);
}

static void bad_names_and_sizes_are_refused(void **state)
{
    (void)state;
    fth_network *n = NULL;
    assert_int_equal(fth_network_create("resnet18", 1, 8, 8, &n), FTH_INVALID);
    assert_message_has("built-in model");
    assert_int_equal(fth_network_create("../up", 1, 8, 8, &n), FTH_INVALID);
    assert_message_has("letters, digits");
    assert_int_equal(fth_network_create(NULL, 1, 8, 8, &n), FTH_INVALID);
    assert_int_equal(fth_network_create("mine", 0, 8, 8, &n), FTH_INVALID);
    assert_null(n);
    assert_int_equal(fth_network_create("mine", 1, 8, 8, NULL), FTH_INVALID);
    fth_network_free(NULL);
}

/* A program that does not check fth_network_create() hears of it from fth_network_finish(). */
static void a_network_that_was_not_made_has_no_layers(void **state)
{
    (void)state;
    assert_int_equal(fth_network_input(NULL), FTH_NO_LAYER);
    assert_int_equal(fth_network_relu(NULL, FTH_NO_LAYER), FTH_NO_LAYER);
    assert_int_equal(fth_network_dropout(NULL, FTH_NO_LAYER, 2), FTH_NO_LAYER);
    assert_int_equal(fth_network_linear(NULL, FTH_NO_LAYER, "fc", 10), FTH_NO_LAYER);
    assert_int_equal(fth_network_finish(NULL, FTH_NO_LAYER), FTH_INVALID);
    assert_message_has("network is NULL");
}

static void data_of_another_form_is_refused(void **state)
{
    (void)state;
    fth_data *data = NULL;
    fth_network *n = api_network();
    assert_ok(fth_data_open("digits", &data));
    fth_training *training = api_training(n, data);
    assert_int_equal(fth_training_run(training), FTH_INVALID);
    assert_message_has("the network small is for images of 1×8×8");
    assert_message_has("the data has 1×28×28 and 10");
    assert_null(fth_training_get_result(training)->run_folder);
    fth_training_free(training);
    fth_network_free(n);
    fth_data_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_layer_trains_and_is_saved, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(a_network_from_pytorch_trains_and_its_files_carry_it, test_make_folder,
                                        test_remove_folder),
        cmocka_unit_test_setup_teardown(a_relu_is_fused_only_where_nobody_else_reads, test_make_folder,
                                        test_remove_folder),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(the_first_failure_is_the_one_that_is_told),
        cmocka_unit_test(a_finished_network_stays_as_it_is),
        cmocka_unit_test(bad_names_and_sizes_are_refused),
        cmocka_unit_test(a_network_that_was_not_made_has_no_layers),
        cmocka_unit_test_setup_teardown(data_of_another_form_is_refused, test_make_folder, test_remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
