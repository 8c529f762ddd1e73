/* Versions of data sets, and preparations that are read back. */
#include "data/image/image_set.h"
#include "data/source/provider.h"
#include "test_data_pictures.h"

#include <sys/stat.h>

typedef struct version_text {
    char text[65];
} version_text;

static version_text version_with(const char *name, const fth_dataset_options *options)
{
    version_text version;
    fth_dataset *dataset = NULL;
    assert_int_equal(fth_dataset_open(name, options, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_version(dataset, version.text), FTH_OK);
    assert_true(fth_hex_is_valid(version.text, 64));
    fth_dataset_free(dataset);
    return version;
}

static version_text version_of(const char *name)
{
    return version_with(name, &(fth_dataset_options){.seed = 5, .validation_fraction = 0.2, .threads = 1});
}

static void assert_same(version_text a, version_text b)
{
    assert_string_equal(a.text, b.text);
}

static void assert_other(version_text a, version_text b)
{
    assert_string_not_equal(a.text, b.text);
}

static void write_set(void)
{
    for (int i = 0; i < 6; i++) {
        char name[64];
        encoded picture = encode_wild_png(10 + i, 12);
        snprintf(name, sizeof name, "set/%s/%d.png", i % 2 ? "cat" : "dog", i);
        write_picture(name, picture);
        free(picture.bytes);
    }
}

/* Runs a program in the test's folder. */
static void run(const char *command)
{
    char line[TEST_MAX_PATH + 200];
    snprintf(line, sizeof line, "cd %s && %s", test_folder, command);
    assert_int_equal(system(line), 0);
}

static void built_in_sets_have_one_each(void **state)
{
    (void)state;
    assert_same(version_of("digits"), version_of("digits"));
    assert_other(version_of("shapes"), version_of("shapes-20"));
    /* Preparation is no part of it. */
    assert_same(version_of("shapes"),
                version_with("shapes", &(fth_dataset_options){.validation_fraction = 0.1, .image_size = 48}));
}

static void files_in_memory_go_by_their_contents(void **state)
{
    (void)state;
    write_idx_pair("train", 40, 6);
    write_idx_pair("t10k", 10, 6);
    version_text first = version_of(test_folder);
    write_idx_pair("train", 40, 6); /* other times */
    assert_same(first, version_of(test_folder));
    run("gzip train-images-idx3-ubyte");
    assert_same(first, version_of(test_folder));
    run("gunzip train-images-idx3-ubyte.gz && printf '\\1' | dd of=train-images-idx3-ubyte bs=1 seek=1000 conv=notrunc "
        "2>/dev/null");
    assert_other(first, version_of(test_folder));
}

static void a_held_out_share_counts(void **state)
{
    (void)state;
    write_idx_pair("train", 40, 6);
    version_text first = version_of(test_folder);
    assert_other(first, version_with(test_folder, &(fth_dataset_options){.seed = 6, .validation_fraction = 0.2}));
    assert_other(first, version_with(test_folder, &(fth_dataset_options){.seed = 5, .validation_fraction = 0.3}));
    assert_other(first, version_with(test_folder, &(fth_dataset_options){
                                                      .seed = 5, .validation_fraction = 0.2, .random_split = true}));
}

static void arrays_go_by_their_contents(void **state)
{
    (void)state;
    uint8_t pixels[4 * 4 * 4] = {0};
    int32_t labels[4] = {0, 1, 0, 1};
    fth_image_arrays arrays = {
        .name = "mine", .channels = 1, .height = 4, .width = 4, .classes = 2, .parts = {{pixels, labels, 4}}};
    version_text versions[3];
    for (int i = 0; i < 3; i++) {
        fth_dataset *dataset = NULL;
        if (i == 1)
            pixels[20] = 1;
        if (i == 2)
            labels[3] = 0;
        fth_dataset_options options = {.seed = 1, .validation_fraction = 0.25};
        assert_int_equal(fth_dataset_create(&arrays, &options, &dataset), FTH_OK);
        assert_int_equal(fth_dataset_version(dataset, versions[i].text), FTH_OK);
        fth_dataset_free(dataset);
    }
    assert_other(versions[0], versions[1]);
    assert_other(versions[1], versions[2]);
}

static void folders_go_by_names_sizes_and_times(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH], copy[TEST_MAX_PATH];
    write_set();
    version_text first = version_of(test_path(path, "set"));
    run("cp -a set copy");
    assert_same(first, version_of(test_path(copy, "copy")));
    run("touch -d '2001-02-03 04:05:06.000000007' copy/cat/1.png");
    version_text touched = version_of(copy);
    assert_other(first, touched);
    run("touch -d '2001-02-03 04:05:06.000000008' copy/cat/1.png");
    assert_other(touched, version_of(copy));
    run("cp -a set renamed && mv renamed/cat/1.png renamed/cat/a.png");
    assert_other(first, version_of(test_path(copy, "renamed")));
    run("cp -a set class && mv class/cat class/lion");
    assert_other(first, version_of(test_path(copy, "class")));
}

/* How many samples of a set can be read; of those that cannot, the last one's reason is the error
 * message. */
static int count_readable(const fth_dataset *dataset, fth_sample_reader *reader)
{
    int readable = 0;
    for (int split = 0; split < 2; split++)
        for (int64_t i = 0; i < fth_dataset_get_info(dataset)->count[split]; i++) {
            fth_raw_sample raw;
            fth_status status = fth_sample_reader_read(reader, split, i, NULL, &raw);
            assert_true(status == FTH_OK || status == FTH_CORRUPT);
            readable += status == FTH_OK;
        }
    return readable;
}

/* Pixels of a file that took the place of another are none of the version that was stated, and
 * never get its ids. */
static void a_changed_file_is_not_read_under_the_version_before(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    version_text version, again;
    fth_dataset *dataset = NULL;
    fth_sample_reader *reader = NULL;
    const fth_dataset_options options = {.seed = 5, .validation_fraction = 0.2, .threads = 1};
    write_set();
    assert_int_equal(fth_dataset_open(test_path(path, "set"), &options, &dataset), FTH_OK);
    assert_int_equal(fth_sample_reader_create(dataset, &reader), FTH_OK);
    run("touch -d '2001-02-03 04:05:06' set/cat/1.png"); /* nobody has asked for a version yet */
    assert_int_equal(count_readable(dataset, reader), 6);
    assert_int_equal(fth_dataset_version(dataset, version.text), FTH_OK);
    assert_int_equal(count_readable(dataset, reader), 6);
    run("cp set/dog/0.png set/cat/1.png");
    assert_int_equal(count_readable(dataset, reader), 5);
    assert_non_null(strstr(fth_error_message(), "changed"));
    run("rm set/cat/3.png && cp set/dog/0.png set/new.png && mv set/new.png set/cat/5.png");
    assert_int_equal(count_readable(dataset, reader), 3);
    assert_int_equal(fth_dataset_version(dataset, again.text), FTH_OK);
    assert_same(version, again); /* of this opening; the next has another */
    assert_other(version, version_with(path, &options));
    fth_sample_reader_free(reader);
    fth_dataset_free(dataset);
}

static void tars_go_by_their_images(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    write_set();
    run("tar cf a.tar set && tar czf b.tar.gz set && mkdir away && cp a.tar away/other.tar");
    setenv("FARTHING_CACHE", test_folder, 1);
    version_text first = version_of(test_path(path, "a.tar"));
    assert_same(first, version_of(test_path(path, "away/other.tar")));
    assert_same(first, version_of(test_path(path, "b.tar.gz")));
    /* An image of the same size and name with other pixels: a byte of the compressed data, and the
     * checksum behind it. */
    size_t size_bytes = 0;
    char *bytes = NULL;
    assert_int_equal(fth_file_read_all(test_path(path, "set/cat/3.png"), 1 << 20, &bytes, &size_bytes), FTH_OK);
    bytes[size_bytes - 14] ^= 1;
    test_write("set/cat/3.png", bytes, size_bytes);
    free(bytes);
    run("tar cf c.tar set");
    assert_other(first, version_of(test_path(path, "c.tar")));
}

/* ---- preparations ---- */

static void assert_read_back(const fth_dataset *dataset)
{
    for (int split = 0; split < 2; split++) {
        fth_transform read;
        bool as_is;
        const fth_transform *wanted = &dataset->transforms[split];
        char *text = fth_dataset_describe_preparation(dataset, split);
        assert_int_equal(fth_preparation_parse(text, dataset->info.channels, &read, &as_is), FTH_OK);
        assert_int_equal(as_is, !fth_dataset_is_transformed(dataset));
        assert_int_equal(read.step_count, wanted->step_count);
        for (int i = 0; i < read.step_count; i++) {
            assert_int_equal(read.steps[i].kind, wanted->steps[i].kind);
            assert_memory_equal(read.steps[i].values, wanted->steps[i].values, sizeof read.steps[i].values);
        }
        assert_int_equal(read.height, wanted->height);
        assert_int_equal(read.width, wanted->width);
        assert_int_equal(read.normalization.channels, wanted->normalization.channels);
        assert_memory_equal(read.normalization.mean, wanted->normalization.mean, sizeof read.normalization.mean);
        assert_memory_equal(read.normalization.deviation, wanted->normalization.deviation,
                            sizeof read.normalization.deviation);
        free(text);
    }
}

static void preparations_are_read_back(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    const fth_normalization odd = {3, {0.1f, 1.0f / 3, 1e-7f}, {0.7f, 16777217.0f / 3, 1.0000001f}};
    const fth_dataset_options options[] = {
        {.validation_fraction = 0.2},
        {.validation_fraction = 0.2, .image_size = 24},
        {.validation_fraction = 0.2, .normalization = {1, {0.5f}, {0.5f}}, .transform = "flip"},
        {.validation_fraction = 0.2, .transform = "random-resized-crop=20:0.333333333333333333,flip,normalize=none"},
        {.validation_fraction = 0.2,
         .transform = "resize=20x30,pad-crop=4,colour-jitter=0.1:0.2:0.3:0.05,flip",
         .normalization = odd},
    };
    write_set();
    for (size_t i = 0; i < FTH_COUNT_OF(options); i++) {
        const char *const names[] = {test_path(path, "set"), "shapes"};
        for (size_t k = 0; k < FTH_COUNT_OF(names); k++) {
            fth_dataset *dataset = NULL;
            assert_int_equal(fth_dataset_open(names[k], &options[i], &dataset), FTH_OK);
            assert_read_back(dataset);
            fth_dataset_free(dataset);
        }
    }
    fth_dataset *digits = NULL;
    assert_int_equal(fth_dataset_open("digits", &(fth_dataset_options){0}, &digits), FTH_OK);
    char *text = fth_dataset_describe_preparation(digits, FTH_TRAIN);
    assert_string_equal(text, "as-is,size=28x28,normalize=0.0992/0.2176");
    free(text);
    fth_dataset_free(digits);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    fth_transform transform;
    assert_int_equal(fth_transform_parse("flip,size=192x256", &transform), FTH_OK);
    assert_int_equal(transform.height, 192);
    assert_int_equal(transform.width, 256);
    assert_int_equal(fth_transform_parse("size=64", &transform), FTH_OK);
    assert_int_equal(transform.width, 64);
    static const char *const wrong[] = {"size", "size=", "size=0", "size=5000", "size=8x", "size=8x9x3", "size=a"};
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        assert_int_equal(fth_transform_parse(wrong[i], &transform), FTH_INVALID);
        assert_message_of(wrong[i], "size=224");
    }
    assert_int_equal(fth_transform_parse("centre-crop=32,size=31x32", &transform), FTH_INVALID);
    assert_message_has("32 × 32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_sets_have_one_each),
        cmocka_unit_test_setup_teardown(files_in_memory_go_by_their_contents, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(a_held_out_share_counts, test_make_folder, test_remove_folder),
        cmocka_unit_test(arrays_go_by_their_contents),
        cmocka_unit_test_setup_teardown(folders_go_by_names_sizes_and_times, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(a_changed_file_is_not_read_under_the_version_before, test_make_folder,
                                        test_remove_folder),
        cmocka_unit_test_setup_teardown(tars_go_by_their_images, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(preparations_are_read_back, test_make_folder, test_remove_folder),
        cmocka_unit_test(sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
