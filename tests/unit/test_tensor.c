/* Dtypes, shapes, and safetensors: what the reference writes is read and written byte for byte, and
 * whatever does not add up is refused. */
#include "support.h"

#include <math.h>
#include <unistd.h>

#include "tensor/tensor.h"

/* Written by the reference package (Python's safetensors 0.8.0):
 *     save_file({"b": torch.tensor([[1., -2.]]), "a": torch.tensor(3, dtype=torch.uint8),
 *                "h": torch.tensor([0.5], dtype=torch.float16)}, path, {"format": "pt"}) */
static const char reference[] = "\310\000\000\000\000\000\000\000"
                                "{\"__metadata__\":{\"format\":\"pt\"}"
                                ",\"b\":{\"dtype\":\"F32\""
                                ",\"shape\":[1,2]"
                                ",\"data_offsets\":[0,8]}"
                                ",\"h\":{\"dtype\":\"F16\""
                                ",\"shape\":[1]"
                                ",\"data_offsets\":[8,10]}"
                                ",\"a\":{\"dtype\":\"U8\""
                                ",\"shape\":[]"
                                ",\"data_offsets\":[10,11]}}      "
                                "\000\000\200\077\000\000\000\300\000\070\003";

/* ---- hostile files are made from a header and an amount of data ---- */

static fth_status parse_bytes(const void *bytes, size_t size)
{
    /* an exact copy on the heap, so that the address sanitizer sees a read past the end */
    unsigned char *copy = malloc(size ? size : 1);
    fth_safetensors *tensors = NULL;
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    fth_status status = fth_safetensors_parse(copy, size, "test file", &tensors);
    if (status == FTH_OK) {
        for (size_t i = 0; i < fth_safetensors_count(tensors); i++) {
            const fth_tensor_view *view = fth_safetensors_get(tensors, i);
            assert_ptr_equal(fth_safetensors_find(tensors, view->name), view);
        }
    } else {
        assert_null(tensors);
        assert_message_has("test file");
    }
    fth_safetensors_free(tensors);
    free(copy);
    return status;
}

static fth_status parse_header(const char *header, size_t data_bytes)
{
    uint64_t length = strlen(header);
    size_t size = 8 + length + data_bytes;
    unsigned char *bytes = calloc(1, size);
    assert_non_null(bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    fth_status status = parse_bytes(bytes, size);
    free(bytes);
    return status;
}

static void assert_refused(const char *header, size_t data_bytes, fth_status expected, const char *why)
{
    fth_status status = parse_header(header, data_bytes);
    if (status != expected || !strstr(fth_error_message(), why))
        fail_msg("%s: got %s, \"%s\"", header, fth_status_name(status), fth_error_message());
}

/* ---- tests ---- */

static void dtypes_have_names_and_sizes(void **state)
{
    (void)state;
    fth_dtype dtype;
    for (int i = FTH_BOOL; i <= FTH_U64; i++) {
        assert_true(fth_dtype_find(fth_dtype_name((fth_dtype)i), &dtype));
        assert_int_equal(dtype, i);
    }
    assert_int_equal(fth_dtype_size_bytes(FTH_BF16), 2);
    assert_int_equal(fth_dtype_size_bytes(FTH_F64), 8);
    assert_false(fth_dtype_find("F8_E4M3", &dtype));
    assert_false(fth_dtype_find("f32", &dtype));
}

static void shapes_count_compare_and_print(void **state)
{
    (void)state;
    char text[64];
    fth_shape shape = FTH_SHAPE(FTH_BATCH, 3, 32, 32), other = FTH_SHAPE(4, 3, 32, 32), scalar = {0};
    fth_shape_format(&shape, text, sizeof text);
    assert_string_equal(text, "(N, 3, 32, 32)");
    assert_false(fth_shape_equal(&shape, &other));
    shape = fth_shape_with_batch(&shape, 4);
    assert_true(fth_shape_equal(&shape, &other));
    assert_int_equal(fth_shape_count(&shape), 12288);
    assert_int_equal(fth_shape_count(&scalar), 1);
    fth_shape_format(&scalar, text, sizeof text);
    assert_string_equal(text, "()");
    fth_shape empty = FTH_SHAPE(INT64_MAX, INT64_MAX, 0), huge = FTH_SHAPE(INT64_MAX, 2);
    assert_int_equal(fth_shape_count(&empty), 0);
    assert_true(fth_shape_count(&huge) == INT64_MAX);
    fth_shape rows = FTH_SHAPE(fth_batch_times(197), 768), tokens = FTH_SHAPE(FTH_TOKENS, 2);
    fth_shape_format(&rows, text, sizeof text);
    assert_string_equal(text, "(197N, 768)");
    fth_shape_format(&tokens, text, sizeof text);
    assert_string_equal(text, "(T, 2)");
    rows = fth_shape_with_batch(&rows, 3);
    assert_true(fth_shape_equal(&rows, &FTH_SHAPE(591, 768)));
    tokens = fth_shape_with_batch(&tokens, 3);
    assert_int_equal(tokens.dims[0], FTH_TOKENS);
    rows = FTH_SHAPE(fth_batch_times(INT64_C(1) << 62), 1);
    rows = fth_shape_with_batch(&rows, 4);
    assert_true(rows.dims[0] == INT64_MAX);
    for (int64_t k = 1; k < 5; k++)
        assert_int_equal(fth_rows_per_sample(fth_batch_times(k)), k);
    assert_int_equal(fth_batch_times(1), FTH_BATCH);
    assert_int_equal(fth_rows_per_sample(FTH_TOKENS), 0);
    assert_int_equal(fth_rows_per_sample(7), 0);
    fth_shape_format(&other, text, 5);
    assert_string_equal(text, "(4, ");
}

static void the_reference_file_is_read(void **state)
{
    (void)state;
    fth_safetensors *tensors = NULL;
    float values[2] = {0, 0};
    assert_int_equal(fth_safetensors_parse(reference, sizeof reference - 1, "reference", &tensors), FTH_OK);
    assert_int_equal(fth_safetensors_count(tensors), 3);
    assert_null(fth_safetensors_get(tensors, 3));
    assert_string_equal(fth_safetensors_metadata(tensors, "format"), "pt");
    assert_null(fth_safetensors_metadata(tensors, "none"));
    assert_null(fth_safetensors_find(tensors, "c"));
    const fth_tensor_view *b = fth_safetensors_find(tensors, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, FTH_F32);
    assert_true(fth_shape_equal(&b->shape, &FTH_SHAPE(1, 2)));
    assert_int_equal(fth_tensor_view_to_f32(b, values, 2), FTH_OK);
    assert_true(values[0] == 1 && values[1] == -2);
    assert_int_equal(fth_tensor_view_to_f32(fth_safetensors_find(tensors, "a"), values, 1), FTH_OK);
    assert_true(values[0] == 3);
    assert_int_equal(fth_tensor_view_to_f32(fth_safetensors_find(tensors, "h"), values, 1), FTH_OK);
    assert_true(values[0] == 0.5f);
    fth_safetensors_free(tensors);
}

static void writing_matches_the_reference(void **state)
{
    char path[TEST_MAX_PATH], *bytes;
    size_t size;
    assert_int_equal(test_make_folder(state), 0);
    test_path(path, "x.safetensors");

    static const float b[2] = {1, -2};
    static const uint8_t a = 3;
    static const uint16_t h = 0x3800;
    const fth_tensor_view views[] = {
        {"a", FTH_U8, {0, {0}}, &a}, {"h", FTH_F16, FTH_SHAPE(1), &h}, {"b", FTH_F32, FTH_SHAPE(1, 2), b}};
    const fth_metadata_entry metadata[] = {{"format", "pt"}};
    fth_file *file = NULL;
    assert_int_equal(fth_file_create(path, &file), FTH_OK);
    assert_int_equal(fth_safetensors_write(file, views, 3, metadata, 1), FTH_OK);
    assert_int_equal(fth_file_publish(file), FTH_OK);
    fth_file_free(file);
    assert_int_equal(fth_file_read_all(path, 1000, &bytes, &size), FTH_OK);
    assert_int_equal(size, sizeof reference - 1);
    assert_memory_equal(bytes, reference, size);
    free(bytes);

    fth_safetensors *tensors = NULL;
    assert_int_equal(fth_safetensors_open(path, &tensors), FTH_OK);
    assert_int_equal(fth_safetensors_count(tensors), 3);
    fth_safetensors_free(tensors);
    assert_int_equal(fth_file_write_all(path, "short", 5), FTH_OK);
    assert_int_equal(fth_safetensors_open(path, &tensors), FTH_CORRUPT);
    assert_int_equal(fth_file_write_all(path, "", 0), FTH_OK);
    assert_int_equal(fth_safetensors_open(path, &tensors), FTH_CORRUPT);
    assert_null(tensors);
    assert_int_equal(test_remove_folder(state), 0);
}

static void writing_refuses_what_no_reader_takes(void **state)
{
    (void)state;
    static const float x[2] = {1, 2};
    const char *root = getenv("TMPDIR");
    char *path = fth_format("%s/farthing-test-%ld", root ? root : "/tmp", (long)getpid());
    fth_file *file = NULL;
    assert_int_equal(fth_file_create(path, &file), FTH_OK);
    const fth_tensor_view twice[] = {{"x", FTH_F32, FTH_SHAPE(2), x}, {"x", FTH_F32, FTH_SHAPE(2), x}};
    const fth_tensor_view reserved = {"__metadata__", FTH_F32, FTH_SHAPE(2), x};
    const fth_tensor_view not_text = {"\xff", FTH_F32, FTH_SHAPE(2), x};
    const fth_tensor_view unresolved = {"x", FTH_F32, FTH_SHAPE(FTH_BATCH, 2), x};
    const fth_tensor_view huge = {"x", FTH_F32, FTH_SHAPE(INT64_MAX, 2), x};
    const fth_metadata_entry metadata[] = {{"k", "v"}, {"k", "w"}};
    assert_int_equal(fth_safetensors_write(file, twice, 2, NULL, 0), FTH_INVALID);
    assert_int_equal(fth_safetensors_write(file, &reserved, 1, NULL, 0), FTH_INVALID);
    assert_int_equal(fth_safetensors_write(file, &not_text, 1, NULL, 0), FTH_INVALID);
    assert_int_equal(fth_safetensors_write(file, &unresolved, 1, NULL, 0), FTH_INVALID);
    assert_int_equal(fth_safetensors_write(file, &huge, 1, NULL, 0), FTH_INVALID);
    assert_int_equal(fth_safetensors_write(file, twice, 1, metadata, 2), FTH_INVALID);
    assert_int_equal(fth_file_size_bytes(file), 0);
    fth_file_free(file);
    assert_false(fth_file_exists(path));
    free(path);
}

static void truncated_files_are_corrupt(void **state)
{
    (void)state;
    for (size_t size = 0; size < sizeof reference - 1; size++)
        assert_int_equal(parse_bytes(reference, size), FTH_CORRUPT);
    assert_int_equal(parse_bytes(reference, sizeof reference - 1), FTH_OK);
    assert_int_equal(parse_bytes(reference, sizeof reference), FTH_CORRUPT); /* one byte too many */
}

/* No change of one byte may do worse than be refused. */
static void flipped_bytes_do_no_harm(void **state)
{
    (void)state;
    char bytes[sizeof reference - 1];
    for (size_t i = 0; i < sizeof bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bytes, reference, sizeof bytes);
            bytes[i] = (char)(bytes[i] ^ 1 << bit);
            FTH_IGNORE(parse_bytes(bytes, sizeof bytes), "some bits may change without harm");
        }
    }
}

static void headers_keep_to_their_bounds(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {0, 3, 100000001, UINT64_C(1) << 40, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < FTH_COUNT_OF(lengths); i++) {
        unsigned char bytes[10];
        memcpy(bytes, &lengths[i], 8);
        memcpy(bytes + 8, "{}", 2);
        assert_int_equal(parse_bytes(bytes, sizeof bytes), FTH_CORRUPT);
    }
}

static void hostile_headers_are_refused(void **state)
{
    (void)state;
    assert_refused("[]", 0, FTH_CORRUPT, "not a JSON object");
    assert_refused(" {}", 0, FTH_CORRUPT, "not a JSON object");
    assert_refused("{", 0, FTH_CORRUPT, "bad header");
    assert_refused("{} x", 0, FTH_CORRUPT, "bad header");
    assert_refused("{\"a\":1}", 0, FTH_CORRUPT, "tensor 'a'");
    assert_refused("{\"\\u0000\":1}", 0, FTH_CORRUPT, "bad header");
    assert_refused("{\"\xff\":1}", 0, FTH_CORRUPT, "bad header");
    assert_refused("{\"__metadata__\":[]}", 0, FTH_CORRUPT, "__metadata__");
    assert_refused("{\"__metadata__\":{\"k\":1}}", 0, FTH_CORRUPT, "metadata 'k'");
#define TENSOR(name, dtype, shape, offsets)                                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
    assert_refused("{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("a", "U8", "[1]", "[1,2]") "}", 2, FTH_CORRUPT,
                   "bad header");
    assert_refused("{" TENSOR("a", "F8_E4M3", "[4]", "[0,4]") "}", 4, FTH_UNSUPPORTED, "'a' has dtype 'F8_E4M3'");
    assert_refused("{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, FTH_UNSUPPORTED, "9 dimensions");
    assert_refused("{" TENSOR("a", "U8", "[-1]", "[0,1]") "}", 1, FTH_CORRUPT, "dimension 0");
    assert_refused("{" TENSOR("a", "U8", "[1.0]", "[0,1]") "}", 1, FTH_CORRUPT, "dimension 0");
    assert_refused("{" TENSOR("a", "U8", "4", "[0,4]") "}", 4, FTH_CORRUPT, "no shape");
    assert_refused("{" TENSOR("a", "U8", "[4]", "[0,4,4]") "}", 4, FTH_CORRUPT, "data_offsets");
    assert_refused("{" TENSOR("a", "U8", "[4]", "[4,0]") "}", 4, FTH_CORRUPT, "data_offsets");
    assert_refused("{" TENSOR("a", "U8", "[4]", "[-4,0]") "}", 4, FTH_CORRUPT, "data_offsets");
    assert_refused("{" TENSOR("a", "F32", "[4]", "[0,4]") "}", 4, FTH_CORRUPT, "needs 16 bytes");
    assert_refused("{" TENSOR("a", "U8", "[99999999999999999999]", "[0,4]") "}", 4, FTH_CORRUPT, "bad header");
    assert_refused("{" TENSOR("a", "F32", "[4611686018427387904,4]", "[0,0]") "}", 0, FTH_CORRUPT, "impossibly large");
    assert_refused("{" TENSOR("a", "F32", "[4294967296,4294967296,0]", "[0,0]") "}", 0, FTH_CORRUPT,
                   "impossibly large");
    assert_refused("{" TENSOR("a", "U8", "[4]", "[0,4]") "}", 3, FTH_CORRUPT, "truncated");
    assert_refused("{" TENSOR("a", "U8", "[4]", "[0,4]") "}", 5, FTH_CORRUPT, "1 bytes after the last tensor");
    assert_refused("{" TENSOR("a", "U8", "[4]", "[1,5]") "}", 5, FTH_CORRUPT, "hole");
    assert_refused("{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[4]", "[5,9]") "}", 9, FTH_CORRUPT,
                   "hole");
    assert_refused("{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[4]", "[3,7]") "}", 7, FTH_CORRUPT,
                   "overlapping");
    assert_refused("{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[4]", "[0,4]") "}", 4, FTH_CORRUPT,
                   "overlapping");

    /* legal, if odd */
    assert_int_equal(parse_header("{}", 0), FTH_OK);
    assert_int_equal(parse_header("{}   ", 0), FTH_OK);
    assert_int_equal(parse_header("{" TENSOR("a", "U8", "[]", "[0,1]") "}", 1), FTH_OK);
    assert_int_equal(
        parse_header("{" TENSOR("z", "F32", "[0,9]", "[1,1]") "," TENSOR("y", "F32", "[9,0]", "[0,0]") "," TENSOR(
                         "a", "U8", "[1]", "[0,1]") "," TENSOR("b", "U8", "[1]", "[1,2]") "}",
                     2),
        FTH_OK);
#undef TENSOR
}

static float convert_one(fth_dtype dtype, uint64_t bits)
{
    float value = -99;
    unsigned char bytes[9];
    memcpy(bytes + 1, &bits, 8); /* off by one, so never aligned */
    fth_tensor_view view = {"x", dtype, {0, {0}}, bytes + 1};
    assert_int_equal(fth_tensor_view_to_f32(&view, &value, 1), FTH_OK);
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void every_dtype_converts_to_f32(void **state)
{
    (void)state;
    assert_true(convert_one(FTH_BOOL, 2) == 1);
    assert_true(convert_one(FTH_U8, 0xff) == 255);
    assert_true(convert_one(FTH_I8, 0xff) == -1);
    assert_true(convert_one(FTH_U16, 0xffff) == 65535);
    assert_true(convert_one(FTH_I16, 0xffff) == -1);
    assert_true(convert_one(FTH_U32, 0xffffffff) == 0x1p32f);
    assert_true(convert_one(FTH_I32, 0xffffffff) == -1);
    assert_true(convert_one(FTH_U64, UINT64_MAX) == 0x1p64f);
    assert_true(convert_one(FTH_I64, UINT64_MAX) == -1);
    assert_true(convert_one(FTH_F32, 0x3fc00000) == 1.5f);
    assert_true(convert_one(FTH_F64, bits_of(-0.1)) == -0.1f);
    assert_true(isinf(convert_one(FTH_F64, bits_of(1e300))));
    assert_true(convert_one(FTH_BF16, 0xbf80) == -1);
    assert_true(convert_one(FTH_F16, 0x3c00) == 1);
    assert_true(convert_one(FTH_F16, 0xfbff) == -65504);
    assert_true(convert_one(FTH_F16, 0x0001) == 0x1p-24f);
    assert_true(convert_one(FTH_F16, 0x83ff) == -1023 * 0x1p-24f);
    assert_true(convert_one(FTH_F16, 0x0400) == 0x1p-14f);
    assert_true(signbit(convert_one(FTH_F16, 0x8000)));
    assert_true(isinf(convert_one(FTH_F16, 0x7c00)));
    assert_true(isnan(convert_one(FTH_F16, 0x7e01)));

    float value;
    fth_tensor_view view = {"x", FTH_F32, FTH_SHAPE(2), "12345678"};
    assert_int_equal(fth_tensor_view_to_f32(&view, &value, 1), FTH_INVALID);
    assert_message_has("(2)");
}

/* ---- numbers that are not finite ---- */

static void place_number(fth_dtype dtype, unsigned char *bytes, size_t index, uint64_t bits)
{
    size_t size = fth_dtype_size_bytes(dtype);
    memcpy(bytes + index * size, &bits, size); /* little-endian */
}

/* Every place in lengths around the width of vectors and blocks, at an odd address. */
static void what_is_not_finite_is_found_wherever_it_is(void **state)
{
    (void)state;
    static const struct {
        fth_dtype dtype;
        uint64_t largest, bad[4];
    } kinds[] = {
        {FTH_F32, 0xff7fffff, {0x7fc00000, 0xff800000, 0x7f800000, 0xff800001}},
        {FTH_F16, 0xfbff, {0x7e00, 0xfc00, 0x7c00, 0x7c01}},
        {FTH_BF16, 0xff7f, {0x7fc0, 0xff80, 0x7f80, 0x7f81}},
        {FTH_F64,
         0xc7efffffe0000000, /* f32's largest; 1e39 is beyond it */
         {0x7ff8000000000000, 0xfff0000000000000, 0x7ff0000000000000, 0x48078287f49c4a1d}},
    };
    static const size_t lengths[] = {1, 15, 64, 67, 16384, 16385 + 40};
    static unsigned char memory[8 * (16385 + 40) + 1];
    unsigned char *bytes = memory + 1;
    for (size_t k = 0; k < FTH_COUNT_OF(kinds); k++) {
        fth_dtype dtype = kinds[k].dtype;
        for (size_t l = 0; l < FTH_COUNT_OF(lengths); l++) {
            size_t count = lengths[l], step = count > 100 ? 257 : 1;
            for (size_t i = 0; i < count; i++)
                place_number(dtype, bytes, i, kinds[k].largest);
            assert_true(fth_numbers_are_finite(bytes, dtype, count));
            for (size_t i = 0; i < count; i += step) {
                place_number(dtype, bytes, i, kinds[k].bad[i % 4]);
                assert_false(fth_numbers_are_finite(bytes, dtype, count));
                assert_true(fth_numbers_are_finite(bytes, dtype, i));
                place_number(dtype, bytes, i, kinds[k].largest);
            }
        }
    }
    memset(memory, 0xff, sizeof memory);
    assert_true(fth_numbers_are_finite(bytes, FTH_I64, 100));
    assert_true(fth_numbers_are_finite(bytes, FTH_F32, 0));
}

static void the_first_tensor_that_is_not_finite_is_named(void **state)
{
    (void)state;
    float good[6] = {0}, bad[24] = {0};
    int64_t counter = -1;
    const fth_tensor_view views[] = {{"counter", FTH_I64, {0}, &counter},
                                     {"good", FTH_F32, FTH_SHAPE(6), good},
                                     {"bad", FTH_F32, FTH_SHAPE(2, 3, 4), bad},
                                     {"worse", FTH_F32, FTH_SHAPE(24), bad}};
    assert_int_equal(fth_tensors_check_finite(views, 4), FTH_OK);
    bad[18] = -INFINITY;
    bad[23] = NAN;
    assert_int_equal(fth_tensors_check_finite(views, 4), FTH_DIVERGED);
    assert_string_equal(fth_error_message(), "bad is infinite at (1, 1, 2); 2 of its 24 numbers are not finite");
    assert_int_equal(fth_tensors_check_finite(views, 2), FTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names_and_sizes),
        cmocka_unit_test(shapes_count_compare_and_print),
        cmocka_unit_test(the_reference_file_is_read),
        cmocka_unit_test(writing_matches_the_reference),
        cmocka_unit_test(writing_refuses_what_no_reader_takes),
        cmocka_unit_test(truncated_files_are_corrupt),
        cmocka_unit_test(flipped_bytes_do_no_harm),
        cmocka_unit_test(headers_keep_to_their_bounds),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(every_dtype_converts_to_f32),
        cmocka_unit_test(what_is_not_finite_is_found_wherever_it_is),
        cmocka_unit_test(the_first_tensor_that_is_not_finite_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
