/* Checkpoints: whole or absent, newest good one wins, what a kill or a bad disk leaves does no
 * harm. */
#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_internal.h"
#include "test_checkpoint_save.h"

static float weights[6];

static fth_status save(int64_t step, int keep)
{
    for (int i = 0; i < 6; i++)
        weights[i] = (float)step + (float)i / 8;
    fth_tensor_view view = {"fc.weight", FTH_F32, FTH_SHAPE(2, 3), weights};
    json_t *state = json_pack("{s:I, s:f}", "batches", (json_int_t)step, "third", 1.0 / 3.0);
    fth_status status = save_checkpoint(test_folder, step, &view, state, keep);
    json_decref(state);
    return status;
}

static void expect_latest(int64_t step)
{
    fth_checkpoint checkpoint;
    assert_int_equal(fth_checkpoint_load_latest(test_folder, &checkpoint), FTH_OK);
    assert_non_null(checkpoint.tensors);
    assert_int_equal(checkpoint.step, step);
    assert_int_equal(json_integer_value(json_object_get(checkpoint.state, "batches")), step);
    assert_true(json_real_value(json_object_get(checkpoint.state, "third")) == 1.0 / 3.0);
    const fth_tensor_view *view = fth_safetensors_find(checkpoint.tensors, "fc.weight");
    assert_non_null(view);
    assert_true(((const float *)view->data)[5] == (float)step + 0.625f);
    fth_checkpoint_release(&checkpoint);
}

static int count_files(void)
{
    int count = 0;
    DIR *directory = opendir(test_folder);
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return count;
}

/* Changes the last byte of a file. */
static void damage(const char *name)
{
    char path[400];
    test_path(path, name);
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    off_t at = lseek(file, -1, SEEK_END);
    char byte;
    assert_int_equal(pread(file, &byte, 1, at), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(file, &byte, 1, at), 1);
    close(file);
}

static void no_checkpoint_is_not_an_error(void **state)
{
    (void)state;
    fth_checkpoint checkpoint;
    assert_int_equal(fth_checkpoint_load_latest(test_folder, &checkpoint), FTH_OK);
    assert_null(checkpoint.tensors);
    assert_int_equal(fth_checkpoint_load_latest("/nonexistent/folder", &checkpoint), FTH_OK);
    assert_null(checkpoint.tensors);
}

static void newest_is_loaded_exactly(void **state)
{
    (void)state;
    assert_int_equal(save(5, 3), FTH_OK);
    assert_int_equal(save(10, 3), FTH_OK);
    expect_latest(10);
}

static void old_ones_are_removed(void **state)
{
    (void)state;
    for (int step = 1; step <= 6; step++)
        assert_int_equal(save(step, 2), FTH_OK);
    assert_int_equal(count_files(), 4);
    assert_true(test_exists("step-000000000005.json"));
    assert_false(test_exists("step-000000000004.json"));
    assert_false(test_exists("step-000000000004.safetensors"));
    expect_latest(6);
}

/* A kill between the two files leaves tensors without a manifest; a kill while writing, a
 * temporary. */
static void leftovers_of_a_kill_do_no_harm(void **state)
{
    (void)state;
    assert_int_equal(save(5, 3), FTH_OK);
    test_write_text("step-000000000007.safetensors", "half a file");
    test_write_text(".tmp-step-000000000007.json-1-0123456789abcdef", "{");
    expect_latest(5);
    assert_int_equal(save(8, 3), FTH_OK);
    expect_latest(8);
    assert_int_equal(count_files(), 4);
}

static void corrupt_tensors_fall_back(void **state)
{
    (void)state;
    assert_int_equal(save(5, 3), FTH_OK);
    assert_int_equal(save(6, 3), FTH_OK);
    assert_int_equal(save(7, 3), FTH_OK);
    damage("step-000000000007.safetensors");
    test_write_text("step-000000000006.json", "{\"format\": 1,");
    expect_latest(5);
}

static void truncated_and_missing_tensors_fall_back(void **state)
{
    (void)state;
    char path[400];
    for (int step = 5; step <= 7; step++)
        assert_int_equal(save(step, 3), FTH_OK);
    test_path(path, "step-000000000007.safetensors");
    assert_int_equal(truncate(path, 20), 0);
    test_path(path, "step-000000000006.safetensors");
    assert_int_equal(unlink(path), 0);
    expect_latest(5);
}

static void all_corrupt_is_an_error(void **state)
{
    (void)state;
    fth_checkpoint checkpoint;
    assert_int_equal(save(5, 3), FTH_OK);
    damage("step-000000000005.safetensors");
    assert_int_equal(fth_checkpoint_load_latest(test_folder, &checkpoint), FTH_CORRUPT);
    assert_null(checkpoint.tensors);
    assert_message_has(test_folder);
}

/* A run that fell back behind a corrupt checkpoint must not have its next one pushed out by it. */
static void later_steps_give_way(void **state)
{
    (void)state;
    assert_int_equal(save(5, 1), FTH_OK);
    assert_int_equal(save(9, 1), FTH_OK);
    assert_int_equal(save(6, 1), FTH_OK);
    expect_latest(6);
    assert_int_equal(count_files(), 2);
}

static void one_step_saved_twice(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(save(5, 2), FTH_OK);
        expect_latest(5);
        assert_int_equal(count_files(), 2);
    }
}

/* The manifest is what makes a checkpoint: an unwritable one fails, and the one before holds. */
static void a_failed_save_leaves_the_one_before(void **state)
{
    (void)state;
    char path[400];
    assert_int_equal(save(5, 1), FTH_OK);
    test_path(path, "step-000000000006.json");
    assert_int_equal(mkdir(path, 0777), 0);
    test_path(path, "step-000000000006.json/full");
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_not_equal(save(6, 1), FTH_OK);
    expect_latest(5);
}

static void manifests_name_only_files_beside_them(void **state)
{
    (void)state;
    static const char *const bad_names[] = {
        "../step-1.safetensors", "/etc/passwd", "step-..%2f.safetensors", "step-1/x.safetensors", "", "step-1.json"};
    for (size_t i = 0; i < sizeof bad_names / sizeof bad_names[0]; i++) {
        char text[512];
        fth_manifest manifest;
        snprintf(
            text, sizeof text,
            "{\"format\":1,\"step\":1,\"tensors\":{\"file\":\"%s\",\"bytes\":1,\"sha256\":\"%064d\"},\"state\":{}}",
            bad_names[i], 0);
        assert_int_equal(fth_manifest_parse(text, strlen(text), "test", &manifest), FTH_CORRUPT);
    }
}

static void absurd_manifests_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "[]",
        "null",
        "{}",
        "{\"format\":\"1\"}",
        "{\"format\":1,\"format\":1}",
        "{\"format\":1,\"step\":-1}",
        "{\"format\":1,\"step\":1,\"tensors\":[],\"state\":{}}",
        ("{\"format\":1,\"step\":1,\"tensors\":{\"file\":\"step-000000000001.safetensors\",\"bytes\":-5,"
         "\"sha256\":\"00\"},\"state\":{}}"),
        "{\"format\":1,\"step\":99999999999999999999999999,\"state\":{}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fth_manifest manifest;
        assert_int_equal(fth_manifest_parse(texts[i], strlen(texts[i]), "test", &manifest), FTH_CORRUPT);
    }
    fth_manifest manifest;
    assert_int_equal(fth_manifest_parse("{\"format\":2}", 12, "test", &manifest), FTH_UNSUPPORTED);
}

/* A manifest copied to another step's name is not that step's. */
static void a_manifest_of_another_step_is_refused(void **state)
{
    (void)state;
    char from[400], to[400];
    assert_int_equal(save(5, 3), FTH_OK);
    test_path(from, "step-000000000005.json");
    test_path(to, "step-000000000009.json");
    assert_int_equal(link(from, to), 0);
    expect_latest(5);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, test_make_folder, test_remove_folder)

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(no_checkpoint_is_not_an_error),
        TEST(newest_is_loaded_exactly),
        TEST(old_ones_are_removed),
        TEST(leftovers_of_a_kill_do_no_harm),
        TEST(corrupt_tensors_fall_back),
        TEST(truncated_and_missing_tensors_fall_back),
        TEST(all_corrupt_is_an_error),
        TEST(later_steps_give_way),
        TEST(one_step_saved_twice),
        TEST(a_failed_save_leaves_the_one_before),
        TEST(manifests_name_only_files_beside_them),
        TEST(absurd_manifests_are_refused),
        TEST(a_manifest_of_another_step_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
