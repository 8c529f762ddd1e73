/* Entries of the batch cache: what is written is read again, at aligned addresses, and what is no
 * entry is refused. */
#include "support.h"

#include <jansson.h>

#include "batches/payload.h"

static const fth_item_id some_id = {{0x0123456789abcdef, 0xfedcba9876543210}};

static void *write_sample(const fth_sample_payload *sample, fth_receipt *receipt)
{
    void *entry = NULL;
    uint64_t size = fth_sample_entry_bytes(sample);
    assert_true(size > sizeof(fth_item_header));
    assert_int_equal(fth_allocate_aligned(size, &entry), FTH_OK);
    assert_int_equal(fth_sample_entry_write(sample, some_id, entry, receipt), FTH_OK);
    assert_int_equal(receipt->size_bytes, size);
    assert_int_equal(fth_item_check(entry, size, some_id, receipt), FTH_OK);
    return entry;
}

static void check_sample(const fth_sample_payload *sample)
{
    fth_receipt receipt;
    fth_sample_payload found;
    char *text = NULL;
    void *entry = write_sample(sample, &receipt);

    assert_int_equal(fth_sample_entry_read(entry, receipt.size_bytes, &found, &text), FTH_OK);
    assert_int_equal(found.kind, sample->kind);
    assert_int_equal(found.label, sample->label);
    assert_int_equal(found.planar, sample->planar);
    assert_int_equal(found.width, sample->width);
    assert_int_equal(found.height, sample->height);
    assert_int_equal(found.channels, sample->channels);
    assert_int_equal(found.size_bytes, sample->size_bytes);
    if (sample->bytes) {
        assert_memory_equal(found.bytes, sample->bytes, sample->size_bytes);
        assert_int_equal((uintptr_t)found.bytes % FTH_ALIGNMENT, 0);
    }
    assert_int_equal(!found.name, !sample->name);
    assert_int_equal(!found.error, !sample->error);
    if (sample->name)
        assert_string_equal(found.name, sample->name);
    if (sample->error)
        assert_string_equal(found.error, sample->error);
    free(text);
    free(entry);
}

static void samples_are_read_as_written(void **state)
{
    (void)state;
    const uint8_t bytes[] = "any bytes of a file, or 24..";
    check_sample(&(fth_sample_payload){
        .kind = FTH_ITEM_ENCODED, .bytes = bytes, .size_bytes = 27, .label = 7, .name = "train/caf\xc3\xa9 \"x\".jpg"});
    check_sample(&(fth_sample_payload){.kind = FTH_ITEM_ENCODED, .bytes = bytes, .label = -1});
    check_sample(&(fth_sample_payload){.kind = FTH_ITEM_DECODED,
                                       .bytes = bytes,
                                       .size_bytes = 24,
                                       .width = 4,
                                       .height = 2,
                                       .channels = 3,
                                       .label = INT32_MAX,
                                       .name = ""});
    check_sample(&(fth_sample_payload){.kind = FTH_ITEM_DECODED,
                                       .bytes = bytes,
                                       .size_bytes = 6,
                                       .width = 3,
                                       .height = 2,
                                       .channels = 1,
                                       .planar = true,
                                       .label = 3});
    check_sample(&(fth_sample_payload){
        .kind = FTH_ITEM_DECODED, .label = 3, .name = "b/broken.png", .error = "not a PNG file: \x01 at 0"});
}

static void a_name_that_is_no_text_is_escaped(void **state)
{
    (void)state;
    fth_receipt receipt;
    fth_sample_payload found;
    char *text = NULL;
    void *entry = write_sample(
        &(fth_sample_payload){
            .kind = FTH_ITEM_ENCODED, .bytes = (const uint8_t *)"x", .size_bytes = 1, .name = "a\xff"},
        &receipt);
    assert_int_equal(fth_sample_entry_read(entry, receipt.size_bytes, &found, &text), FTH_OK);
    assert_string_equal(found.name, "a\\xff");
    free(text);
    free(entry);
}

static void a_sample_of_the_wrong_size_is_refused(void **state)
{
    (void)state;
    char entry[1024];
    fth_receipt receipt;
    fth_sample_payload sample = {.kind = FTH_ITEM_DECODED,
                                 .bytes = (const uint8_t *)"abc",
                                 .size_bytes = 3,
                                 .width = 2,
                                 .height = 1,
                                 .channels = 3};
    assert_int_equal(fth_sample_entry_write(&sample, some_id, entry, &receipt), FTH_INVALID);
    assert_message_has("3 bytes");
}

/* Makes a batch in memory of exactly its size; count * height * width is odd for odd ones, where
 * alignment takes care. */
static void *make_batch(int64_t count, const char *bad, fth_status expected, fth_receipt *receipt)
{
    fth_batch_payload batch = {.count = count, .number = 41, .epoch = 3, .channels = 1, .height = 3, .width = 5};
    void *entry = NULL;
    float *images;
    int64_t *labels;
    uint64_t size = fth_batch_entry_bytes(&batch);
    assert_int_equal(fth_allocate_aligned(size, &entry), FTH_OK);
    assert_int_equal(fth_batch_entry_begin(&batch, entry, size, &images, &labels), FTH_OK);
    assert_int_equal((uintptr_t)images % FTH_ALIGNMENT, 0);
    for (int64_t i = 0; i < count * 15; i++)
        images[i] = (float)i / 8;
    for (int64_t i = 0; i < count; i++)
        labels[i] = i - 2;
    assert_int_equal(fth_batch_entry_finish(entry, size, some_id, bad, receipt), expected);
    if (expected == FTH_OK)
        assert_int_equal(receipt->size_bytes, size);
    return entry;
}

static void batches_are_read_as_written(void **state)
{
    (void)state;
    const char *const bad[] = {NULL, "[[17, \"a.jpg\", \"truncated\"]]"};
    for (int64_t count = 1; count < 20; count++) {
        fth_receipt receipt;
        fth_batch_payload found;
        char *text = NULL;
        void *entry = make_batch(count, bad[count % 2], FTH_OK, &receipt);
        assert_int_equal(fth_item_check(entry, receipt.size_bytes, some_id, &receipt), FTH_OK);
        assert_int_equal(fth_batch_entry_read(entry, receipt.size_bytes, &found, &text), FTH_OK);
        assert_int_equal(found.count, count);
        assert_int_equal(found.number, 41);
        assert_int_equal(found.epoch, 3);
        assert_int_equal(found.channels, 1);
        assert_int_equal(found.height, 3);
        assert_int_equal(found.width, 5);
        assert_int_equal((uintptr_t)found.images % FTH_ALIGNMENT, 0);
        for (int64_t i = 0; i < count * 15; i++)
            assert_true(found.images[i] == (float)i / 8);
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(found.labels[i], i - 2);
        if (count % 2)
            assert_string_equal(found.bad, bad[1]);
        else
            assert_null(found.bad);
        free(text);
        free(entry);
    }
}

/* A list of `count` samples with names and causes of that many bytes. */
static char *list_bad(int count, int length)
{
    json_t *list = json_array();
    char *text = malloc((size_t)length + 1), *dumped;
    for (int i = 0; i < length; i++)
        text[i] = i % 2 ? '\xa9' : '\xc3'; /* é */
    text[length] = '\0';
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_pack("[I, s, s]", INT64_MAX - i, text, text));
    dumped = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    free(text);
    return dumped;
}

static void long_lists_of_bad_samples_are_cut(void **state)
{
    (void)state;
    for (int count = 1; count < 70; count += 17)
        for (int length = 0; length < 600; length += 150) {
            fth_receipt receipt;
            fth_batch_payload found;
            char *bad = list_bad(count, length), *text = NULL;
            void *entry = make_batch(count, bad, FTH_OK, &receipt);
            assert_int_equal(fth_batch_entry_read(entry, receipt.size_bytes, &found, &text), FTH_OK);
            json_t *list = json_loads(found.bad, 0, NULL);
            assert_int_equal(json_array_size(list), count);
            for (int i = 0; i < count; i++)
                assert_true(json_integer_value(json_array_get(json_array_get(list, (size_t)i), 0)) == INT64_MAX - i);
            if (length == 150 && count == 1)
                assert_string_equal(found.bad, bad);
            json_decref(list);
            free(text);
            free(entry);
            free(bad);
        }
    fth_receipt receipt;
    char *bad = list_bad(300, 10);
    free(make_batch(2, bad, FTH_INVALID, &receipt));
    free(bad);
}

/* An entry of `kind` around a safetensors file of that header and as much data. */
static void refuse(fth_item_kind kind, const char *json, size_t data_bytes)
{
    uint64_t length = strlen(json), size = sizeof(fth_item_header) + 8 + length + data_bytes;
    uint8_t *entry = NULL;
    fth_sample_payload sample;
    fth_batch_payload batch;
    char *text = NULL;
    assert_int_equal(fth_allocate_aligned(size, &entry), FTH_OK);
    ((fth_item_header *)(void *)entry)->kind = kind;
    memcpy(entry + 64, &length, 8);
    memcpy(entry + 72, json, length);
    if (kind == FTH_ITEM_BATCH)
        assert_int_equal(fth_batch_entry_read(entry, size, &batch, &text), FTH_CORRUPT);
    else
        assert_int_equal(fth_sample_entry_read(entry, size, &sample, &text), FTH_CORRUPT);
    assert_message_has("cached item");
    assert_null(text);
    free(entry);
}

static void what_is_no_payload_is_refused(void **state)
{
    (void)state;
#define LABEL "\"__metadata__\":{\"label\":\"1\"}"
#define BATCH                                                                                                          \
    "\"__metadata__\":{\"number\":\"1\",\"epoch\":\"0\"},\"bad\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0," \
    "0]},"
    refuse(FTH_ITEM_ENCODED, "", 0);
    refuse(FTH_ITEM_ENCODED, "{}", 0);
    refuse(FTH_ITEM_ENCODED, "{" LABEL "}", 0);
    refuse(FTH_ITEM_ENCODED, "{\"file\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    refuse(FTH_ITEM_ENCODED,
           "{\"__metadata__\":{\"label\":\"2147483648\"},\"file\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,"
           "4]}}",
           4);
    refuse(FTH_ITEM_ENCODED,
           "{\"__metadata__\":{\"label\":\"1x\"},\"file\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    refuse(FTH_ITEM_ENCODED, "{" LABEL ",\"file\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 3);
    refuse(FTH_ITEM_ENCODED, "{" LABEL ",\"file\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    refuse(FTH_ITEM_ENCODED, "{" LABEL ",\"file\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    refuse(FTH_ITEM_DECODED, "{" LABEL ",\"pixels\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    refuse(FTH_ITEM_DECODED, "{" LABEL ",\"pixels\":{\"dtype\":\"U8\",\"shape\":[1,0,3],\"data_offsets\":[0,0]}}", 0);
    refuse(FTH_ITEM_DECODED,
           "{\"__metadata__\":{\"label\":\"1\",\"error\":\"e\"},\"pixels\":{\"dtype\":\"U8\",\"shape\":[1,1,3],\"data_"
           "offsets\":[0,3]}}",
           3);
    refuse(FTH_ITEM_BATCH, "{" BATCH "\"labels\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8);
    refuse(FTH_ITEM_BATCH,
           "{" BATCH "\"labels\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
           "\"images\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1],\"data_offsets\":[16,20]}}",
           20);
    /* not aligned: the header's length is odd */
    refuse(FTH_ITEM_BATCH,
           "{" BATCH "\"labels\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
           "\"images\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1],\"data_offsets\":[8,12]}}     ",
           12);
    refuse(FTH_ITEM_KINDS, "{" LABEL ",\"file\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_read_as_written),           cmocka_unit_test(a_name_that_is_no_text_is_escaped),
        cmocka_unit_test(a_sample_of_the_wrong_size_is_refused), cmocka_unit_test(batches_are_read_as_written),
        cmocka_unit_test(long_lists_of_bad_samples_are_cut),     cmocka_unit_test(what_is_no_payload_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
