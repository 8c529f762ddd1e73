/* Normalization: its texts, and what they are turned into; how options, transforms and data sets
 * agree on one. */
#include "test_data_files.h"

#include <math.h>

static fth_normalization parse(const char *text)
{
    fth_normalization normalization;
    if (fth_normalization_parse(text, &normalization) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return normalization;
}

static void reads_names_and_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        fth_normalization wanted;
    } cases[] = {
        {"", {0}},
        {"imagenet", {3, {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}}},
        {"cifar", {3, {0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}}},
        {"mnist", {1, {0.1307f}, {0.3081f}}},
        {"none", {1, {0}, {1}}},
        {"0.5/0.25", {1, {0.5f}, {0.25f}}},
        {"-1,0,1e-2/1,2,3", {3, {-1, 0, 0.01f}, {1, 2, 3}}},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_normalization got = parse(cases[i].text);
        assert_memory_equal(&got, &cases[i].wanted, sizeof got);
    }
}

static void refuses_what_it_is_not(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"imagnet", "expected imagenet, cifar, mnist, none or MEAN/STD"},
        {"0.5", "MEAN/STD"},
        {"0.5/", "MEAN/STD"},
        {"/0.5", "MEAN/STD"},
        {"0.5/0.5/0.5", "MEAN/STD"},
        {"0.5,/0.5,0.5", "MEAN/STD"},
        {"nan/1", "MEAN/STD"},
        {"1e39/1", "MEAN/STD"},
        {"1,2,3,4,5/1,2,3,4,5", "MEAN/STD"},
        {"0.5,0.5/0.5", "2 means and 1 deviation"},
        {"0.5/0", "above 0"},
        {"0.5/-1", "above 0"},
        {"0.5/1e-42", "above 0"},
    };
    fth_normalization normalization;
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        assert_int_equal(fth_normalization_parse(bad[i][0], &normalization), FTH_INVALID);
        assert_message_has(bad[i][1]);
    }
}

/* Whatever is written is read back as the same floats. */
static void texts_go_round(void **state)
{
    (void)state;
    static const char *const texts[][2] = {{"imagenet", "imagenet"},
                                           {"0.485,0.456,0.406/0.229,0.224,0.225", "imagenet"},
                                           {"0.5,0.5,0.5/0.5,0.5,0.5", "0.5/0.5"},
                                           {"0,0,0/1,1,1", "none"},
                                           {"0.1307/0.3081", "mnist"},
                                           {"0.123456789,0.2/0.3,0.4", "0.12345679,0.2/0.3,0.4"},
                                           {"", ""}};
    char text[FTH_NORMALIZATION_TEXT];
    for (size_t i = 0; i < FTH_COUNT_OF(texts); i++) {
        fth_normalization first = parse(texts[i][0]);
        fth_normalization_format(&first, text);
        assert_string_equal(text, texts[i][1]);
        fth_normalization again = parse(text);
        assert_true(fth_normalization_equal(&first, &again));
        if (first.channels == 0)
            continue;
        json_t *json = fth_normalization_to_json(&first);
        assert_true(fth_normalization_from_json(json, first.channels, &again));
        assert_memory_equal(&again, &first, sizeof first);
        assert_false(fth_normalization_from_json(json, first.channels + 1, &again));
        json_decref(json);
    }
    /* The longest there is fits. */
    fth_normalization longest = {4,
                                 {-1.17549449e-38f, -1.17549449e-38f, -1.17549449e-38f, -1.17549449e-38f},
                                 {3.40282347e+38f, 3.40282347e+38f, 3.40282347e+38f, 1.17549449e-38f}};
    fth_normalization_format(&longest, text);
    fth_normalization again = parse(text);
    assert_memory_equal(&again, &longest, sizeof again);
}

static void counts_of_channels_must_fit(void **state)
{
    (void)state;
    fth_normalization one = parse("0.5/0.25"), three = parse("cifar"), spread;
    assert_int_equal(fth_normalization_spread(&one, 3, &spread), FTH_OK);
    assert_memory_equal(&spread, &((fth_normalization){3, {0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f}}), sizeof spread);
    assert_true(fth_normalization_equal(&one, &spread));
    assert_false(fth_normalization_equal(&one, &three));
    assert_int_equal(fth_normalization_spread(&three, 1, &spread), FTH_INVALID);
    assert_message_has("cifar is for 3 channels, but the images have 1");
}

/* ---- data sets ---- */

static fth_status open_with(const char *name, const char *transform, const char *normalize, fth_dataset **dataset)
{
    fth_dataset_options options = {.seed = 5, .validation_fraction = 0.2, .transform = transform};
    *dataset = NULL;
    fth_status status = fth_normalization_parse(normalize, &options.normalization);
    return status == FTH_OK ? fth_dataset_open(name, &options, dataset) : status;
}

static void sets_in_memory_are_normalized_as_asked(void **state)
{
    (void)state;
    static const char *const ways[][2] = {{"", "0.5,0.25,0/0.5,1,2"},
                                          {"normalize=0.5,0.25,0/0.5,1,2", ""},
                                          {"normalize=0.5,0.25,0/0.5,1,2", "0.5,0.25,0/0.5,1,2"}};
    for (size_t i = 0; i < FTH_COUNT_OF(ways); i++) {
        fth_dataset *dataset = NULL;
        fth_loader *loader = NULL;
        const fth_batch *batch = NULL;
        uint8_t pixels[3 * 32 * 32];
        int32_t label;
        assert_int_equal(open_with("shapes", ways[i][0], ways[i][1], &dataset), FTH_OK);
        assert_false(fth_dataset_is_transformed(dataset)); /* the fast way, as without */
        const fth_normalization *used = &fth_dataset_get_info(dataset)->normalization;
        assert_int_equal(fth_loader_open(dataset, &(fth_loader_options){.batch = 1}, &loader), FTH_OK);
        assert_int_equal(fth_loader_next(loader, test_deadline_in(20), &batch), FTH_OK);
        assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, 0, pixels, &label), FTH_OK);
        assert_true(used->mean[1] == 0.25f && used->deviation[2] == 2);
        for (int j = 0; j < 3 * 32 * 32; j++)
            assert_float_equal(batch->images[j],
                               ((float)pixels[j] / 255 - used->mean[j / 1024]) / used->deviation[j / 1024], 1e-6);
        fth_loader_free(loader);
        fth_dataset_free(dataset);
    }
}

static void conflicts_are_refused(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    assert_int_equal(open_with("shapes", "normalize=none", "0.5/0.5", &dataset), FTH_INVALID);
    assert_message_has("normalized as 0.5/0.5");
    assert_message_has("none by the transform for training");
    assert_int_equal(open_with("digits", "", "imagenet", &dataset), FTH_INVALID);
    assert_message_has("imagenet is for 3 channels, but the images have 1");
    assert_null(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names_and_numbers),
        cmocka_unit_test(refuses_what_it_is_not),
        cmocka_unit_test(texts_go_round),
        cmocka_unit_test(counts_of_channels_must_fit),
        cmocka_unit_test(sets_in_memory_are_normalized_as_asked),
        cmocka_unit_test(conflicts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
