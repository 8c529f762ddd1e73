/* Data sets from arrays in memory: what is read back, what is held out, what is refused. */
#include <string.h>

#include "data/data.h"
#include "support.h"

enum { COUNT = 40, CHANNELS = 2, SIDE = 3, IMAGE = CHANNELS * SIDE * SIDE, CLASSES = 300 };

static uint8_t pixels[COUNT * IMAGE];
static int32_t labels[COUNT];

static fth_image_arrays make_arrays(void)
{
    for (int i = 0; i < COUNT; i++) {
        labels[i] = i * 7; /* beyond a byte */
        memset(pixels + i * IMAGE, i, IMAGE);
    }
    return (fth_image_arrays){.name = "mine",
                              .channels = CHANNELS,
                              .height = SIDE,
                              .width = SIDE,
                              .classes = CLASSES,
                              .parts = {{pixels, labels, COUNT}, {0}}};
}

static void both_parts_are_read_back(void **state)
{
    (void)state;
    fth_image_arrays arrays = make_arrays();
    arrays.parts[FTH_VALIDATION] = (fth_image_array){pixels + IMAGE, labels + 1, 2};
    fth_dataset *dataset = NULL;
    assert_int_equal(fth_dataset_create(&arrays, &(fth_dataset_options){0}, &dataset), FTH_OK);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_int_equal(info->count[FTH_TRAIN], COUNT);
    assert_int_equal(info->count[FTH_VALIDATION], 2);
    assert_string_equal(info->class_names[299], "299");
    assert_float_equal(info->normalization.mean[1], 19.5 / 255, 1e-6);
    labels[39] = -1; /* labels are copies */
    uint8_t image[IMAGE];
    int32_t label = -1;
    assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, 39, image, &label), FTH_OK);
    assert_int_equal(label, 273);
    assert_int_equal(image[IMAGE - 1], 39);
    assert_int_equal(fth_dataset_read(dataset, FTH_VALIDATION, 1, image, &label), FTH_OK);
    assert_int_equal(label, 14);
    assert_int_equal(fth_dataset_read(dataset, FTH_VALIDATION, 2, image, &label), FTH_INVALID);
    fth_dataset_free(dataset);
}

static void images_are_held_out_once_each(void **state)
{
    (void)state;
    fth_image_arrays arrays = make_arrays();
    fth_dataset *dataset = NULL;
    bool seen[COUNT] = {false};
    assert_int_equal(
        fth_dataset_create(&arrays, &(fth_dataset_options){.seed = 1, .validation_fraction = 0.25}, &dataset), FTH_OK);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_int_equal(info->count[FTH_VALIDATION], COUNT / 4);
    for (int split = 0; split < 2; split++) {
        for (int64_t i = 0; i < info->count[split]; i++) {
            uint8_t image[IMAGE];
            int32_t label = -1;
            assert_int_equal(fth_dataset_read(dataset, split, i, image, &label), FTH_OK);
            assert_int_equal(label, image[0] * 7);
            assert_false(seen[image[0]]);
            seen[image[0]] = true;
        }
    }
    fth_dataset_free(dataset);
}

static void assert_refused(const fth_image_arrays *arrays, const char *why)
{
    fth_dataset *dataset = NULL;
    assert_int_equal(fth_dataset_create(arrays, &(fth_dataset_options){.validation_fraction = 0.1}, &dataset),
                     FTH_INVALID);
    assert_message_has(why);
    assert_null(dataset);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    fth_image_arrays arrays = make_arrays();
    labels[5] = CLASSES;
    assert_refused(&arrays, "label 300 of training image 5 is not in 0 to 299");
    labels[5] = -1;
    assert_refused(&arrays, "label -1 of training image 5");
    arrays = make_arrays();
    arrays.channels = 5;
    assert_refused(&arrays, "5 channels");
    arrays = make_arrays();
    arrays.width = 0;
    assert_refused(&arrays, "3 × 0 pixels");
    arrays = make_arrays();
    arrays.classes = 1;
    assert_refused(&arrays, "1 class;");
    arrays = make_arrays();
    arrays.parts[FTH_TRAIN].pixels = NULL;
    assert_refused(&arrays, "missing");
    arrays = make_arrays();
    arrays.parts[FTH_TRAIN].count = 0;
    assert_refused(&arrays, "no training images");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_parts_are_read_back),
        cmocka_unit_test(images_are_held_out_once_each),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
