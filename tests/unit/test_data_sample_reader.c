/* Samples made for others (provider.h) have the bits that a loader makes: files with random
 * transforms and colours, whole decoded images, images in memory as they are, augmented and
 * transformed; and a preparation survives as text. */
#include "data/image/image_set.h"
#include "test_data_pictures.h"

#include <unistd.h>

static const fth_dataset_options plain = {.seed = 5, .validation_fraction = 0.2, .threads = 2};

static void write_files(void)
{
    static const jpeg_kind colour = {JCS_RGB, 90, false, true}, grey = {JCS_GRAYSCALE, 85, false, false};
    char name[64];
    for (int i = 0; i < 12; i++) {
        encoded picture = i == 4   ? encode_jpeg(300, 260, grey, smooth)
                          : i == 7 ? encode_wild_png(91, 83)
                                   : encode_jpeg(200 + 17 * i, 330 - 11 * i, colour, wild);
        snprintf(name, sizeof name, "photos/%s/%02d.%s", i % 3 ? "cat" : "dog", i, i == 7 ? "png" : "jpg");
        write_picture(name, picture);
        free(picture.bytes);
    }
}

static fth_dataset *open_photos(const char *name, const fth_dataset_options *options)
{
    char path[1024];
    fth_dataset *dataset = NULL;
    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    if (fth_dataset_open(path, options, &dataset) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return dataset;
}

/* Every sample of two epochs, from a loader of `expected` and a reader of `made`. */
static void compare(const fth_dataset *expected, const fth_dataset *made, const fth_loader_options *options,
                    bool decoded)
{
    const fth_dataset_info *info = fth_dataset_get_info(expected);
    fth_sample_reader *reader = NULL;
    fth_loader *loader = NULL;
    const fth_batch *batch;
    size_t size = fth_image_bytes(info);
    float *planes = malloc(size * sizeof *planes);
    char *preparation = fth_dataset_describe_preparation(expected, options->split);
    int64_t compared = 0, epochs = 2;
    const fth_sampler sampler = {.seed = options->seed, .count = info->count[options->split], .shuffle = true};
    fth_loader_options limited = *options;

    limited.shuffle = true;
    limited.batch_limit = epochs * fth_batches_per_epoch(sampler.count, options->batch);
    assert_int_equal(fth_sample_reader_create(made, &reader), FTH_OK);
    assert_int_equal(fth_loader_open(expected, &limited, &loader), FTH_OK);
    while (fth_loader_next(loader, test_deadline_in(60), &batch) == FTH_OK && batch) {
        int64_t first = batch->number % (limited.batch_limit / epochs) * options->batch;
        for (int64_t i = 0; i < batch->count; i++, compared++) {
            int64_t sample = fth_sampler_index(&sampler, batch->epoch, first + i);
            fth_raw_sample raw, pixels;
            fth_finish finish = {.preparation = preparation,
                                 .augmentation = options->augmentation,
                                 .seed = options->seed,
                                 .epoch = batch->epoch,
                                 .sample = sample};
            assert_int_equal(fth_sample_reader_read(reader, options->split, sample, NULL, &raw), FTH_OK);
            assert_int_equal(raw.label, batch->labels[i]);
            if (decoded)
                assert_int_equal(fth_sample_reader_decode(reader, &raw, &pixels), FTH_OK);
            else
                pixels = raw;
            for (int copied = 0; copied < 2; copied++) { /* as it is lent, then from memory without a byte to spare */
                uint8_t *copy = malloc(pixels.size_bytes);
                memcpy(copy, pixels.bytes, pixels.size_bytes);
                fth_raw_sample given = pixels;
                if (copied) {
                    given.bytes = copy;
                    given.padded = false;
                }
                if (fth_sample_reader_finish(reader, &given, &finish, planes) != FTH_OK)
                    fail_msg("%s", fth_error_message());
                assert_memory_equal(planes, batch->images + (size_t)i * size, size * sizeof *planes);
                free(copy);
            }
        }
    }
    assert_int_equal(compared, epochs * sampler.count);
    fth_loader_free(loader);
    fth_sample_reader_free(reader);
    free(preparation);
    free(planes);
}

static void files_come_out_as_from_a_loader(void **state)
{
    static const char *const transforms[] = {
        NULL, "random-resized-crop=64:0.3,flip,colour-jitter=0.4:0.4:0.4:0.1,normalize=0.1,0.2,0.3/0.7,0.8,0.9",
        "resize=80,centre-crop=96,colour-jitter=0.3", "resize=48x56,pad-crop=5,flip,normalize=none"};
    (void)state;
    write_files();
    for (size_t i = 0; i < FTH_COUNT_OF(transforms); i++) {
        fth_dataset_options options = plain, cached = plain;
        options.transform = cached.transform = transforms[i];
        cached.decoded_cache_bytes = 1; /* decoded whole, and hardly kept */
        fth_dataset *dataset = open_photos("photos", &options), *whole = open_photos("photos", &cached);
        const fth_loader_options training = {.batch = 4, .seed = 9, .threads = 2};
        const fth_loader_options validation = {.split = FTH_VALIDATION, .batch = 2, .seed = 9, .threads = 1};
        compare(dataset, dataset, &training, false);
        compare(dataset, dataset, &validation, false);
        compare(whole, dataset, &training, true);
        fth_dataset_free(dataset);
        fth_dataset_free(whole);
    }
}

static void images_in_memory_come_out_as_from_a_loader(void **state)
{
    enum { COUNT = 40, SIDE = 20 };
    static uint8_t pixels[COUNT * 3 * SIDE * SIDE];
    static int32_t labels[COUNT];
    static const char *const transforms[] = {NULL, "resize=31x27", "random-resized-crop=16,colour-jitter=0.2"};
    (void)state;
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    for (int i = 0; i < COUNT; i++)
        labels[i] = i % 5;
    const fth_image_arrays arrays = {.name = "noise",
                                     .channels = 3,
                                     .height = SIDE,
                                     .width = SIDE,
                                     .classes = 5,
                                     .parts = {{pixels, labels, COUNT}}};
    for (size_t i = 0; i < FTH_COUNT_OF(transforms); i++)
        for (int augmented = 0; augmented < 2; augmented++) {
            fth_dataset *dataset = NULL;
            fth_dataset_options options = plain;
            fth_loader_options training = {.batch = 8, .seed = 3, .threads = 1};
            options.transform = options.validation_transform = transforms[i];
            if (augmented)
                training.augmentation = (fth_augmentation){.flip = true, .crop_padding = 4};
            assert_int_equal(fth_dataset_create(&arrays, &options, &dataset), FTH_OK);
            compare(dataset, dataset, &training, false);
            compare(dataset, dataset, &training, true);
            fth_dataset_free(dataset);
        }
}

/* One split transformed, the other as it is: the loader resamples both. */
static void built_in_sets_come_out_as_from_a_loader(void **state)
{
    (void)state;
    fth_dataset_options options = plain;
    options.transform = "pad-crop=3";
    fth_dataset *dataset = NULL;
    assert_int_equal(fth_dataset_open("digits", &options, &dataset), FTH_OK);
    const fth_loader_options validation = {
        .split = FTH_VALIDATION, .batch = 100, .seed = 3, .threads = 1, .augmentation = {.crop_padding = 2}};
    compare(dataset, dataset, &validation, false);
    fth_dataset_free(dataset);
}

static void says_what_cannot_be_read(void **state)
{
    (void)state;
    static const jpeg_kind colour = {JCS_RGB, 90, false, true};
    encoded picture = encode_jpeg(60, 60, colour, wild);
    for (int i = 0; i < 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "few/%s/%d.jpg", i % 2 ? "cat" : "dog", i);
        write_picture(name, picture);
    }
    free(picture.bytes);
    fth_dataset *dataset = open_photos("few", &plain);
    fth_sample_reader *reader = NULL;
    fth_raw_sample raw, pixels;
    int64_t bad = 0, gone = 0;
    test_write("few/cat/1.jpg", (const uint8_t *)"\xff\xd8\xff not a picture", 17);
    test_write("few/dog/0.jpg", (const uint8_t *)"", 0);
    char path[1024];
    snprintf(path, sizeof path, "%s/few/cat/3.jpg", test_folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fth_sample_reader_create(dataset, &reader), FTH_OK);
    for (int split = 0; split < 2; split++)
        for (int64_t i = 0; i < fth_dataset_get_info(dataset)->count[split]; i++) {
            fth_status status = fth_sample_reader_read(reader, (fth_split)split, i, NULL, &raw);
            assert_non_null(raw.name);
            if (status == FTH_CORRUPT) {
                assert_string_equal(raw.name, "cat/3.jpg");
                gone++;
            } else {
                assert_int_equal(status, FTH_OK);
                status = fth_sample_reader_decode(reader, &raw, &pixels);
                bad += status == FTH_CORRUPT;
                assert_true(status == FTH_OK || status == FTH_CORRUPT);
            }
        }
    assert_int_equal(gone, 1);
    assert_int_equal(bad, 2);
    assert_int_equal(fth_dataset_bad_image_count(dataset), 0);
    assert_int_equal(fth_sample_reader_read(reader, FTH_TRAIN, 1000, NULL, &raw), FTH_INVALID);
    fth_sample_reader_free(reader);
    fth_dataset_free(dataset);
}

static void refuses_what_is_no_preparation(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "flip,normalize=imagenet",
                                        "size=0x8,normalize=none",
                                        "size=99999x8,normalize=none",
                                        "size=8x8",
                                        "size=8x8,flop,normalize=none",
                                        "size=8x8,centre-crop=9,normalize=none",
                                        "as-is,size=28x28,flip,normalize=mnist",
                                        "as-is,size=28x28,normalize=imagenet"};
    fth_dataset *dataset = NULL;
    fth_sample_reader *reader = NULL;
    int shape[3];
    float planes[28 * 28];
    fth_raw_sample raw;
    assert_int_equal(fth_dataset_open("digits", &plain, &dataset), FTH_OK);
    assert_int_equal(fth_sample_reader_create(dataset, &reader), FTH_OK);
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++)
        assert_int_equal(fth_sample_reader_shape(reader, wrong[i], shape), FTH_INVALID);
    assert_int_equal(fth_sample_reader_shape(reader, "as-is,size=28x28,normalize=mnist", shape), FTH_OK);
    assert_int_equal(shape[0] * 10000 + shape[1] * 100 + shape[2], 12828);

    /* Pixels that are not what they say. */
    fth_finish finish = {.preparation = "as-is,size=28x28,normalize=mnist"};
    assert_int_equal(fth_sample_reader_read(reader, FTH_TRAIN, 0, NULL, &raw), FTH_OK);
    raw.size_bytes--;
    assert_int_equal(fth_sample_reader_finish(reader, &raw, &finish, planes), FTH_CORRUPT);
    finish.preparation = "size=28x28,flip,normalize=mnist";
    assert_int_equal(fth_sample_reader_finish(reader, &raw, &finish, planes), FTH_CORRUPT);
    raw.size_bytes++;
    assert_int_equal(fth_sample_reader_finish(reader, &raw, &finish, planes), FTH_OK);
    for (int i = 0; i < 20; i++) { /* more than are kept */
        char text[64];
        snprintf(text, sizeof text, "size=%dx28,normalize=mnist", 1 + i);
        assert_int_equal(fth_sample_reader_shape(reader, text, shape), FTH_OK);
        assert_int_equal(shape[1], 1 + i);
    }
    fth_sample_reader_free(reader);
    fth_dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_come_out_as_from_a_loader, test_make_folder, test_remove_folder),
        cmocka_unit_test(images_in_memory_come_out_as_from_a_loader),
        cmocka_unit_test(built_in_sets_come_out_as_from_a_loader),
        cmocka_unit_test_setup_teardown(says_what_cannot_be_read, test_make_folder, test_remove_folder),
        cmocka_unit_test(refuses_what_is_no_preparation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
