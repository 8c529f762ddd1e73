/* Weights as PyTorch saves them are read as PyTorch reads them: every file of tests/torch/pth
 * against pth.json, the search for the weights in checkpoints, and the words for what cannot be
 * used. */
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
    assert_string_equal(described.removed_markers, json_string_value(json_object_get(facts, "marker")));
    assert_string_equal(described.skipped_classes, json_string_value(json_object_get(facts, "skipped")));
    assert_int_equal(described.left_out_count, json_integer_value(json_object_get(facts, "left_out")));
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
    assert_true(json_object_size(all) >= 20);
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

/* A key may also name the tensors whose names begin with it. */
static void test_keys_choose_a_part(void **state)
{
    static const char *const keys[] = {"lightning-loss.pth:state_dict.model", "lightning-loss.pth:model"};
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(keys); i++) {
        fth_weights *weights = open_fixture(keys[i]);
        fth_weights_facts facts = fth_weights_describe(weights);
        assert_string_equal(facts.key, "state_dict");
        assert_string_equal(facts.removed_prefix, "model.");
        assert_int_equal(facts.left_out_count, 1);
        assert_int_equal(fth_weights_count(weights), 7);
        assert_non_null(fth_weights_find(weights, "0.weight"));
        char *text = fth_weights_explain(weights);
        assert_string_equal(text, "read from 'state_dict'; 'model.' taken off the names; 1 other tensor left out");
        free(text);
        fth_weights_free(weights);
    }
    fth_weights *weights = open_fixture("lightning-loss.pth"); /* not all names begin so */
    assert_string_equal(fth_weights_describe(weights).removed_prefix, "");
    assert_non_null(fth_weights_find(weights, "model.0.weight"));
    fth_weights_free(weights);
    weights = open_fixture("reference-protocol2.pth:model_ema");
    assert_string_equal(fth_weights_describe(weights).removed_prefix, "module.");
    assert_null(fth_weights_find(weights, "n_averaged"));
    fth_weights_free(weights);
    weights = open_fixture("fsdp.pth");
    assert_string_equal(fth_weights_describe(weights).removed_prefix, "_fsdp_wrapped_module.");
    assert_string_equal(fth_weights_describe(weights).removed_markers,
                        "_fsdp_wrapped_module., _checkpoint_wrapped_module.");
    assert_non_null(fth_weights_find(weights, "0.weight"));
    assert_non_null(fth_weights_find(weights, "1.weight"));
    fth_weights_free(weights);
    check_refused("lightning-loss.pth:state_dict.critic", FTH_INVALID, "no 'state_dict.critic' in it");
}

static void test_special_tensors_are_refused_where_they_are_needed(void **state)
{
    (void)state;
    check_refused("sparse.pth", FTH_UNSUPPORTED, "tensor 's' is refused: it is made by torch._utils._rebuild_sparse");
    check_refused("quantized.pth", FTH_UNSUPPORTED,
                  "tensor 'q' is refused: it is made by torch._utils._rebuild_qtensor");
    check_refused("attack.pth", FTH_UNSUPPORTED, "refused: GLOBAL 'posix system' at byte");
    fth_weights *weights = open_fixture("sparse-beside.pth");
    assert_string_equal(fth_weights_describe(weights).key, "state_dict");
    assert_int_equal(fth_weights_count(weights), 7);
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
    check_refused("whole-model.pth", FTH_UNSUPPORTED, "refused: it holds an object of torch.nn.modules.linear.Linear");
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
    with_key = fth_format("%s:module", path);
    assert_int_equal(fth_weights_open(with_key, &weights), FTH_OK);
    assert_non_null(fth_weights_find(weights, "w"));
    fth_weights_free(weights);
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

/* The length of the header comes first, and its first byte may be 0x80, as that of pickles is. */
static void test_safetensors_whose_first_byte_is_that_of_a_pickle(void **state)
{
    char path[TEST_MAX_PATH], padding[128], *bytes = NULL;
    float value = 1.5F;
    const fth_tensor_view view = {.name = "w", .dtype = FTH_F32, .shape = FTH_SHAPE(1), .data = &value};
    assert_int_equal(test_make_folder(state), 0);
    test_path(path, "model.safetensors");
    for (size_t length = 1; length < sizeof padding; length++) {
        size_t size = 0;
        fth_file *file = NULL;
        fth_weights *weights = NULL;
        memset(padding, ' ', length);
        padding[length - 1] = '\0';
        assert_int_equal(fth_file_create(path, &file), FTH_OK);
        assert_int_equal(fth_safetensors_write(file, &view, 1, &(fth_metadata_entry){"note", padding}, 1), FTH_OK);
        assert_int_equal(fth_file_publish(file), FTH_OK);
        fth_file_free(file);
        assert_int_equal(fth_file_read_all(path, 1 << 16, &bytes, &size), FTH_OK);
        bool like_a_pickle = (unsigned char)bytes[0] == 0x80;
        free(bytes);
        if (!like_a_pickle)
            continue;
        assert_int_equal(fth_weights_open(path, &weights), FTH_OK);
        assert_string_equal(fth_weights_describe(weights).format, "safetensors");
        fth_weights_free(weights);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(test_folder), 0);
        return;
    }
    fail_msg("no header of 0x80 bytes came about");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures_are_read_as_pytorch_reads_them),
        cmocka_unit_test(test_contiguous_tensors_stay_in_the_file),
        cmocka_unit_test(test_keys_choose_a_dictionary),
        cmocka_unit_test(test_keys_choose_a_part),
        cmocka_unit_test(test_special_tensors_are_refused_where_they_are_needed),
        cmocka_unit_test(test_unclear_files_are_explained),
        cmocka_unit_test(test_safetensors_whose_first_byte_is_that_of_a_pickle),
        cmocka_unit_test(test_safetensors_and_names_with_colons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
