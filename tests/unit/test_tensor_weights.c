/* Weights as PyTorch saves them are read as PyTorch reads them: every file of tests/torch/pth against pth.json, the
 * search for the weights in checkpoints, and the words for what cannot be used. */
#include "support.h"

#include <unistd.h>

#include <jansson.h>

#include "tensor/weights.h"

static char *fixture(const char *name)
{
    const char *tests = getenv("TEST_DATA");
    return fth_format("%s/torch/pth/%s", tests ? tests : "tests", name);
}

static fth_weights *open_fixture(const char *name)
{
    char *path = fixture(name);
    fth_weights *weights = NULL;
    if (fth_weights_open(path, &weights) != FTH_OK)
        fail_msg("%s", fth_error_message());
    free(path);
    return weights;
}

static void check_refused(const char *name, fth_status expected, const char *words)
{
    char *path = fixture(name);
    fth_weights *weights = NULL;
    fth_status status = fth_weights_open(path, &weights);
    assert_null(weights);
    if (status != expected || !strstr(fth_error_message(), words))
        fail_msg("%s: %s: \"%s\" does not say \"%s\"", name, fth_status_name(status), fth_error_message(), words);
    free(path);
}

static void check_bytes(const char *file, const fth_tensor_view *view, const char *hex)
{
    size_t size = (size_t)fth_shape_count(&view->shape) * fth_dtype_size_bytes(view->dtype);
    assert_int_equal(strlen(hex), 2 * size);
    for (size_t i = 0; i < size; i++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", ((const unsigned char *)view->data)[i]);
        if (strncmp(digits, hex + 2 * i, 2) != 0)
            fail_msg("%s: '%s' differs at byte %zu", file, view->name, i);
    }
}

static void check_fixture(const char *file, json_t *facts)
{
    fth_weights *weights = open_fixture(file);
    fth_weights_facts described = fth_weights_describe(weights);
    const char *name;
    json_t *tensor;
    size_t at = 0;
    assert_string_equal(described.format, json_string_value(json_object_get(facts, "format")));
    assert_string_equal(described.key, json_string_value(json_object_get(facts, "key")));
    assert_string_equal(described.removed_prefix, json_string_value(json_object_get(facts, "prefix")));
    assert_int_equal(described.copied_count, json_integer_value(json_object_get(facts, "copied")));
    json_t *tensors = json_object_get(facts, "tensors");
    assert_int_equal(fth_weights_count(weights), json_object_size(tensors));
    json_object_foreach(tensors, name, tensor)
    {
        const fth_tensor_view *view = fth_weights_find(weights, name);
        if (!view)
            fail_msg("%s: no '%s'", file, name);
        assert_ptr_equal(view, fth_weights_get(weights, at++)); /* in the order of the file */
        assert_string_equal(fth_dtype_name(view->dtype), json_string_value(json_array_get(tensor, 0)));
        json_t *shape = json_array_get(tensor, 1);
        assert_int_equal(view->shape.rank, json_array_size(shape));
        for (int i = 0; i < view->shape.rank; i++)
            assert_int_equal(view->shape.dims[i], json_integer_value(json_array_get(shape, (size_t)i)));
        check_bytes(file, view, json_string_value(json_array_get(tensor, 2)));
    }
    assert_null(fth_weights_get(weights, at));
    assert_null(fth_weights_find(weights, "no such tensor"));
    fth_weights_free(weights);
}

static void test_fixtures_are_read_as_pytorch_reads_them(void **state)
{
    char *path = fixture("pth.json");
    json_error_t error;
    json_t *all = json_load_file(path, 0, &error), *facts;
    const char *file;
    (void)state;
    assert_non_null(all);
    assert_true(json_object_size(all) >= 14);
    json_object_foreach(all, file, facts) check_fixture(file, facts);
    json_decref(all);
    free(path);
}

static void test_contiguous_tensors_stay_in_the_file(void **state)
{
    char *path = fixture("zip.pth"), *bytes = NULL;
    size_t size = 0, inside = 0;
    fth_weights *weights = NULL;
    (void)state;
    assert_int_equal(fth_file_read_all(path, 1 << 20, &bytes, &size), FTH_OK);
    assert_int_equal(fth_weights_parse(bytes, size, "bytes", "", &weights), FTH_OK);
    for (size_t i = 0; i < fth_weights_count(weights); i++) {
        const char *data = fth_weights_get(weights, i)->data;
        inside += (uintptr_t)data >= (uintptr_t)bytes && (uintptr_t)data <= (uintptr_t)bytes + size;
    }
    assert_int_equal(inside, fth_weights_count(weights) - fth_weights_describe(weights).copied_count);
    const char *whole = fth_weights_find(weights, "whole")->data;
    assert_ptr_equal(fth_weights_find(weights, "first_half")->data, whole);
    assert_ptr_equal(fth_weights_find(weights, "second_half")->data, whole + 6 * sizeof(float));
    fth_weights_free(weights);
    free(bytes);
    free(path);
}

static void test_keys_choose_a_dictionary(void **state)
{
    fth_weights *weights = open_fixture("gan.pth:discriminator");
    (void)state;
    assert_int_equal(fth_weights_count(weights), 1);
    assert_string_equal(fth_weights_describe(weights).key, "discriminator");
    fth_weights_free(weights);

    weights = open_fixture("nested.pth:run.checkpoint");
    assert_string_equal(fth_weights_describe(weights).key, "run.checkpoint.weights");
    fth_weights_free(weights);

    weights = open_fixture("dots.pth:a.b.c");
    assert_int_equal(fth_weights_count(weights), 1);
    assert_string_equal(fth_weights_describe(weights).key, "a.b.c");
    fth_weights_free(weights);

    weights = open_fixture("checkpoint-legacy.pth:model_state_dict");
    assert_non_null(fth_weights_find(weights, "1.num_batches_tracked"));
    fth_weights_free(weights);
}

static void test_unclear_files_are_explained(void **state)
{
    (void)state;
    check_refused("gan.pth", FTH_INVALID, "generator (7 tensors), discriminator (1 tensors)");
    check_refused("gan.pth", FTH_INVALID, "gan.pth:generator");
    check_refused("gan.pth:critic", FTH_INVALID, "no 'critic' in it; it has generator (a dictionary)");
    check_refused("gan.pth:step", FTH_INVALID, "'step' is a number");
    check_refused("gan.pth:", FTH_INVALID, "no key after the colon");
    check_refused("checkpoint.pth:args", FTH_INVALID, "no dictionary of tensors in it; it has lr (a number)");
    check_refused("lone-tensor.pth", FTH_INVALID, "holds a tensor");
    check_refused("complex.pth", FTH_UNSUPPORTED, "tensor 'w' has dtype complex64");
    check_refused("negated.pth", FTH_UNSUPPORTED, "a negated or conjugate view");
    check_refused("script.pth", FTH_UNSUPPORTED, "TorchScript");
    check_refused("whole-model.pth", FTH_UNSUPPORTED, "refused: GLOBAL 'torch.nn.modules.linear Linear' at byte");
    check_refused("pth.json", FTH_INVALID, "neither safetensors nor a file of torch.save()");
    check_refused("missing.pth", FTH_INVALID, "missing.pth");
    check_refused("missing.pth:model", FTH_INVALID, "missing.pth: ");
    check_refused("", FTH_INVALID, "");
}

static void test_safetensors_and_names_with_colons(void **state)
{
    char path[TEST_MAX_PATH];
    float values[] = {1.5f, -2.0f};
    fth_tensor_view views[] = {
        {.name = "module.w", .dtype = FTH_F32, .shape = FTH_SHAPE(2), .data = values},
        {.name = "module.b", .dtype = FTH_F32, .shape = FTH_SHAPE(1), .data = values + 1},
    };
    fth_weights *weights = NULL;
    fth_file *file = NULL;
    assert_int_equal(test_make_folder(state), 0);
    test_path(path, "a:b.pth"); /* the name is no hint */
    assert_int_equal(fth_file_create(path, &file), FTH_OK);
    assert_int_equal(fth_safetensors_write(file, views, 2, NULL, 0), FTH_OK);
    assert_int_equal(fth_file_publish(file), FTH_OK);
    fth_file_free(file);

    assert_int_equal(fth_weights_open(path, &weights), FTH_OK);
    assert_string_equal(fth_weights_describe(weights).format, "safetensors");
    assert_string_equal(fth_weights_describe(weights).removed_prefix, "module.");
    assert_memory_equal(fth_weights_find(weights, "w")->data, values, sizeof values);
    assert_null(fth_weights_find(weights, "module.w"));
    fth_weights_free(weights);

    char *with_key = fth_format("%s:w", path);
    assert_int_equal(fth_weights_open(with_key, &weights), FTH_INVALID);
    assert_message_has("has no 'w' inside");
    free(with_key);

    test_write("a:b.pth", "", 0);
    assert_int_equal(fth_weights_open(path, &weights), FTH_CORRUPT);
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\n";
    test_write("a:b.pth", pointer, sizeof pointer - 1);
    assert_int_equal(fth_weights_open(path, &weights), FTH_INVALID);
    assert_message_has("git lfs pull");
    char tar[512] = "sys_info";
    memcpy(tar + 257, "ustar", 5);
    test_write("a:b.pth", tar, sizeof tar);
    assert_int_equal(fth_weights_open(path, &weights), FTH_UNSUPPORTED);
    assert_message_has("tar archive");
    assert_int_equal(fth_weights_open(test_folder, &weights), FTH_INVALID);

    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(test_folder), 0); /* nothing else was left */
    fth_weights_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures_are_read_as_pytorch_reads_them),
        cmocka_unit_test(test_contiguous_tensors_stay_in_the_file),
        cmocka_unit_test(test_keys_choose_a_dictionary),
        cmocka_unit_test(test_unclear_files_are_explained),
        cmocka_unit_test(test_safetensors_and_names_with_colons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
