/* Items as they are prepared: batches and samples with the bits of a loader, grey images among
 * colour ones, bad images as the loader replaces them, what cannot be made leaves nothing behind;
 * and orders as JSON. */
#include "batches_item.h"
#include "batches_memory_cache.h"
#include "test_data_pictures.h"

#include <unistd.h>

#include "batches/payload.h"
#include "data/source/provider.h"

static const fth_dataset_options plain = {.seed = 5, .validation_fraction = 0.2, .threads = 2, .max_bad_images = 0.5};
static const jpeg_kind colour = {JCS_RGB, 90, false, true}, grey = {JCS_GRAYSCALE, 85, false, false};

enum { PHOTOS = 30, GREY = 4, GREY_PNG = 9 };

static encoded encode_grey_png(int width, int height)
{
    uint8_t *pixels = malloc((size_t)width * (size_t)height);
    for (int i = 0; i < width * height; i++)
        pixels[i] = (uint8_t)(i * 7);
    encoded png = encode_png(width, height, SPNG_COLOR_TYPE_GRAYSCALE, 8, pixels, (size_t)width * (size_t)height, NULL);
    free(pixels);
    return png;
}

static void photo_name(int i, char name[64])
{
    snprintf(name, 64, "photos/%s/%02d.%s", i % 3 ? "cat" : "dog", i, i == GREY_PNG ? "png" : "jpg");
}

static int write_photos(void **state)
{
    char name[64];
    int result = test_make_folder(state);
    for (int i = 0; i < PHOTOS; i++) {
        encoded picture = i == GREY       ? encode_jpeg(120, 100, grey, smooth)
                          : i == GREY_PNG ? encode_grey_png(77, 91)
                                          : encode_jpeg(80 + 7 * i, 200 - 3 * i, colour, wild);
        photo_name(i, name);
        write_picture(name, picture);
        free(picture.bytes);
    }
    return result;
}

static void spoil_photo(int i)
{
    char name[64];
    photo_name(i, name);
    test_write(name, "\xff\xd8\xff\xe0 spoilt", 11);
}

static fth_prefetch_set *open_prefetch_set(const char *address, const fth_dataset_options *options)
{
    char path[1024];
    fth_prefetch_set *set = NULL;
    snprintf(path, sizeof path, "%s/%s", test_folder, address);
    if (fth_prefetch_set_open(strcmp(address, "photos") == 0 ? path : address, options, &set) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return set;
}

static fth_job_spec make_spec(const fth_prefetch_set *set, int64_t batch)
{
    fth_job_spec spec = {.data = "photos", .batch = batch, .shuffle = true, .order_seed = 11, .augment_seed = 11};
    char *transform = fth_dataset_describe_preparation(fth_prefetch_set_dataset(set), FTH_TRAIN);
    snprintf(spec.version, sizeof spec.version, "%s", fth_prefetch_set_version(set));
    snprintf(spec.transform, sizeof spec.transform, "%s", transform);
    spec.format = FTH_FORMAT_BATCHES;
    free(transform);
    return spec;
}

static int64_t count_of(const fth_prefetch_set *set, const fth_job_spec *spec)
{
    return fth_dataset_get_info(fth_prefetch_set_dataset(set))->count[spec->split];
}

static fth_order order_batch(const fth_prefetch_set *set, const fth_job_spec *spec, int64_t number)
{
    fth_order order = {.kind = FTH_ITEM_BATCH, .spec = *spec, .number = number};
    fth_batch_plan plan = {.samples = calloc((size_t)spec->batch, sizeof *plan.samples)};
    fth_job_plan_batch(spec, count_of(set, spec), number, &plan);
    order.id = fth_job_batch_id(spec, &plan);
    free(plan.samples);
    return order;
}

static fth_order order_sample(const fth_job_spec *spec, fth_item_kind kind, int64_t sample)
{
    return (fth_order){.kind = kind, .spec = *spec, .number = sample, .id = fth_job_sample_id(spec, kind, sample)};
}

static fth_status prepare(fth_prefetch_tools *thread, const fth_order *order, fth_cache *cache,
                          fth_prefetch_result *preparation)
{
    *preparation = (fth_prefetch_result){0};
    return make_whole_item(thread, order, cache, test_deadline_in(60), preparation);
}

/* ---- batches ---- */

/* Every batch of two epochs as a loader of the same set makes it. `helpers` makers take turns at
 * the pieces. */
static void compare_with_loader(fth_prefetch_set *set, const fth_job_spec *spec, fth_cache *cache, int helpers)
{
    const fth_dataset *dataset = fth_prefetch_set_dataset(set);
    int64_t per_epoch = fth_job_batches_per_epoch(spec, count_of(set, spec));
    const fth_loader_options options = {.batch = spec->batch,
                                        .split = spec->split,
                                        .seed = spec->augment_seed,
                                        .shuffle = true,
                                        .threads = 1,
                                        .batch_limit = 2 * per_epoch,
                                        .augmentation = spec->augmentation};
    fth_loader *loader = NULL;
    fth_prefetch_tools *threads[3];
    const fth_batch *expected;
    size_t image_bytes = 0;

    for (int i = 0; i < helpers; i++)
        assert_int_equal(fth_prefetch_tools_create(set, NULL, &threads[i]), FTH_OK);
    assert_int_equal(fth_loader_open(dataset, &options, &loader), FTH_OK);
    for (int64_t number = 0; number < options.batch_limit; number++) {
        fth_order order = order_batch(set, spec, number);
        fth_item_task *task = NULL;
        fth_prefetch_result preparation;
        fth_batch_payload made;
        fth_receipt receipt = {0};
        char *text = NULL;
        if (fth_item_task_begin(threads[0], &order, cache, test_deadline_in(60), &task) != FTH_OK)
            fail_msg("%s", fth_error_message());
        for (int i = 0; fth_item_task_run_piece(task, threads[i]);)
            i = (i + 1) % helpers;
        assert_int_equal(fth_item_task_left(task), 0);
        if (fth_item_task_end(task, &preparation) != FTH_OK)
            fail_msg("%s", fth_error_message());
        assert_int_equal(fth_loader_next(loader, test_deadline_in(60), &expected), FTH_OK);
        const void *entry = memory_cache_find(cache, order.id, &receipt);
        assert_non_null(entry);
        assert_memory_equal(&receipt, &preparation.receipt, sizeof receipt);
        assert_int_equal(fth_batch_entry_read(entry, receipt.size_bytes, &made, &text), FTH_OK);
        assert_int_equal(made.count, expected->count);
        assert_int_equal(made.number, expected->number);
        assert_int_equal(made.epoch, expected->epoch);
        assert_int_equal((uintptr_t)made.images % 64, 0);
        image_bytes = (size_t)made.channels * (size_t)made.height * (size_t)made.width * sizeof(float);
        assert_memory_equal(made.images, expected->images, (size_t)made.count * image_bytes);
        for (int64_t i = 0; i < made.count; i++)
            assert_int_equal(made.labels[i], expected->labels[i]);
        assert_int_equal(preparation.samples, made.count);
        assert_true(preparation.fetch_s >= 0 && preparation.decode_s >= 0 && preparation.transform_s > 0);
        free(text);
    }
    fth_loader_free(loader);
    for (int i = 0; i < helpers; i++)
        fth_prefetch_tools_free(threads[i]);
}

static void batches_are_as_from_a_loader(void **state)
{
    (void)state;
    fth_dataset_options options = plain;
    options.transform = "random-resized-crop=40,flip,colour-jitter=0.3:0.2:0.1:0.05";
    fth_prefetch_set *set = open_prefetch_set("photos", &options);
    fth_job_spec spec = make_spec(set, 11);
    for (int helpers = 1; helpers <= 3; helpers += 2) {
        fth_cache *cache = memory_cache_create();
        compare_with_loader(set, &spec, cache, helpers);
        memory_cache_free(cache);
    }
    fth_prefetch_set_free(set);
}

static void images_in_memory_are_as_from_a_loader(void **state)
{
    (void)state;
    static const char *const transforms[] = {"", "resize=20x20"};
    for (size_t i = 0; i < FTH_COUNT_OF(transforms); i++) {
        fth_dataset_options options = plain;
        options.transform = options.validation_transform = transforms[i];
        fth_prefetch_set *set = open_prefetch_set("digits", &options);
        fth_job_spec spec = make_spec(set, 100);
        fth_cache *cache = memory_cache_create();
        spec.split = FTH_VALIDATION;
        spec.augmentation = (fth_augmentation){.flip = true, .crop_padding = 4};
        compare_with_loader(set, &spec, cache, 1);
        assert_int_equal(cache->gets, 0);
        memory_cache_free(cache);
        fth_prefetch_set_free(set);
    }
}

/* The samples of the batches come from the cache where that has them: the data set's own files are
 * gone by then. */
static void encoded_samples_are_taken_from_the_cache(void **state)
{
    (void)state;
    fth_dataset_options options = plain;
    options.transform = "random-resized-crop=32";
    fth_prefetch_set *set = open_prefetch_set("photos", &options);
    fth_prefetch_tools *thread = NULL;
    fth_job_spec spec = make_spec(set, 12);
    fth_cache *cache = memory_cache_create(), *direct = memory_cache_create();
    fth_order order = order_batch(set, &spec, 0);
    fth_prefetch_result preparation, from_files;

    assert_int_equal(fth_prefetch_tools_create(set, NULL, &thread), FTH_OK);
    assert_int_equal(prepare(thread, &order, direct, &from_files), FTH_OK);
    assert_true(from_files.fetched_bytes > 0 && direct->gets > 0 &&
                direct->gets <= 8); /* not asked for again in vain */
    for (int64_t i = 0; i < count_of(set, &spec); i++) {
        fth_order sample = order_sample(&spec, FTH_ITEM_ENCODED, i);
        assert_int_equal(prepare(thread, &sample, cache, &preparation), FTH_OK);
        assert_int_equal(preparation.decoded, 0);
        assert_true(preparation.fetched_bytes > 0 && preparation.receipt.size_bytes > preparation.fetched_bytes);
    }
    for (int i = 0; i < PHOTOS; i++)
        spoil_photo(i);
    assert_int_equal(prepare(thread, &order, cache, &preparation), FTH_OK);
    assert_memory_equal(&preparation.receipt, &from_files.receipt, sizeof preparation.receipt);
    assert_int_equal(preparation.fetched_bytes, 0);
    assert_int_equal(preparation.decoded, 12);
    assert_int_equal(cache->found, 12);
    fth_prefetch_tools_free(thread);
    fth_prefetch_set_free(set);
    memory_cache_free(cache);
    memory_cache_free(direct);
}

/* ---- bad images ---- */

static void bad_images_are_replaced_as_in_a_loader(void **state)
{
    (void)state;
    fth_dataset_options options = plain;
    options.transform = "resize=24x24";
    spoil_photo(5);
    spoil_photo(6);
    spoil_photo(13);
    fth_prefetch_set *set = open_prefetch_set("photos", &options);
    fth_job_spec spec = make_spec(set, 8);
    fth_cache *cache = memory_cache_create();
    int64_t listed = 0;

    compare_with_loader(set, &spec, cache, 1);
    for (int64_t number = 0; number < fth_job_batches_per_epoch(&spec, count_of(set, &spec)); number++) {
        fth_order order = order_batch(set, &spec, number);
        fth_receipt receipt = {0};
        fth_batch_payload batch;
        char *text = NULL;
        const void *entry = memory_cache_find(cache, order.id, &receipt);
        assert_int_equal(fth_batch_entry_read(entry, receipt.size_bytes, &batch, &text), FTH_OK);
        json_t *bad = batch.bad ? json_loads(batch.bad, 0, NULL) : NULL;
        for (size_t i = 0; i < json_array_size(bad); i++, listed++) {
            const json_t *row = json_array_get(bad, i);
            const char *name = json_string_value(json_array_get(row, 1));
            assert_true(json_is_integer(json_array_get(row, 0)));
            assert_true(strstr(name, "05.jpg") || strstr(name, "06.jpg") || strstr(name, "13.jpg"));
            assert_non_null(strstr(json_string_value(json_array_get(row, 2)), "JPEG"));
        }
        json_decref(bad);
        free(text);
    }
    assert_true(listed >= 2); /* of those that are not held out */
    assert_int_equal(fth_dataset_bad_image_count(fth_prefetch_set_dataset(set)) > 0, 1); /* the loader's own count */
    memory_cache_free(cache);
    fth_prefetch_set_free(set);
}

/* A job reports the whole name, as it does without the cache. */
static void long_names_of_bad_images_are_whole(void **state)
{
    (void)state;
    char name[256], rest[200];
    fth_dataset_options options = plain;
    options.transform = "resize=24x24";
    memset(rest, 'x', sizeof rest - 1);
    rest[sizeof rest - 1] = '\0';
    for (int i = 0; i < 8; i++) { /* some are not held out */
        snprintf(name, sizeof name, "photos/cat/%d%s-end.jpg", i, rest);
        test_write(name, "no picture", 10);
    }
    fth_prefetch_set *set = open_prefetch_set("photos", &options);
    fth_job_spec spec = make_spec(set, 8);
    fth_prefetch_tools *thread = NULL;
    fth_cache *cache = memory_cache_create();
    int listed = 0;
    assert_int_equal(fth_prefetch_tools_create(set, NULL, &thread), FTH_OK);
    for (int64_t number = 0; number < fth_job_batches_per_epoch(&spec, count_of(set, &spec)); number++) {
        fth_order order = order_batch(set, &spec, number);
        fth_prefetch_result preparation;
        fth_receipt receipt = {0};
        fth_batch_payload batch;
        char *text = NULL;
        assert_int_equal(prepare(thread, &order, cache, &preparation), FTH_OK);
        const void *entry = memory_cache_find(cache, order.id, &receipt);
        assert_int_equal(fth_batch_entry_read(entry, receipt.size_bytes, &batch, &text), FTH_OK);
        json_t *bad = batch.bad ? json_loads(batch.bad, 0, NULL) : NULL;
        if (json_array_size(bad) == 1) { /* where there is room */
            assert_non_null(strstr(json_string_value(json_array_get(json_array_get(bad, 0), 1)), "-end.jpg"));
            listed++;
        }
        json_decref(bad);
        free(text);
    }
    assert_true(listed > 0);
    fth_prefetch_tools_free(thread);
    memory_cache_free(cache);
    fth_prefetch_set_free(set);
}

static void unreadable_samples_are_items_with_an_error(void **state)
{
    (void)state;
    spoil_photo(7);
    fth_prefetch_set *set = open_prefetch_set("photos", &plain);
    fth_job_spec spec = make_spec(set, 8);
    fth_prefetch_tools *thread = NULL;
    fth_cache *cache = memory_cache_create();
    int errors = 0, three = 0;
    char name[64], path[1024];

    photo_name(8, name);
    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fth_prefetch_tools_create(set, NULL, &thread), FTH_OK);
    for (int split = 0; split < 2; split++) {
        spec.split = (fth_split)split;
        for (int64_t i = 0; i < count_of(set, &spec); i++) {
            fth_order order = order_sample(&spec, FTH_ITEM_DECODED, i);
            fth_prefetch_result preparation;
            fth_sample_payload sample;
            fth_receipt receipt = {0};
            char *text = NULL;
            assert_int_equal(prepare(thread, &order, cache, &preparation), FTH_OK);
            const void *entry = memory_cache_find(cache, order.id, &receipt);
            assert_int_equal(fth_sample_entry_read(entry, receipt.size_bytes, &sample, &text), FTH_OK);
            if (sample.error) {
                assert_int_equal(preparation.bad, 1);
                assert_true(strstr(sample.name, "07.jpg") || strstr(sample.name, "08.jpg"));
                assert_string_equal(preparation.bad_name, sample.name);
                assert_string_equal(preparation.bad_reason, sample.error);
                errors++;
            } else {
                assert_int_equal(sample.size_bytes, (uint64_t)sample.width * (uint64_t)sample.height * 3);
                three += sample.channels == 3 && !sample.planar;
            }
            free(text);
        }
    }
    assert_int_equal(errors, 2);
    assert_int_equal(three, PHOTOS - 2);
    fth_prefetch_tools_free(thread);
    fth_prefetch_set_free(set);
    memory_cache_free(cache);
}

static void a_set_of_bad_images_fails(void **state)
{
    (void)state;
    fth_prefetch_set *set = open_prefetch_set("photos", &plain);
    fth_job_spec spec = make_spec(set, 8);
    fth_order order = order_batch(set, &spec, 0);
    fth_prefetch_tools *thread = NULL;
    fth_prefetch_result preparation;
    fth_cache *cache = memory_cache_create();
    for (int i = 0; i < PHOTOS; i++)
        spoil_photo(i);
    assert_int_equal(fth_prefetch_tools_create(set, NULL, &thread), FTH_OK);
    assert_int_equal(prepare(thread, &order, cache, &preparation), FTH_CORRUPT);
    assert_int_equal(cache->puts, 0);
    fth_prefetch_tools_free(thread);
    fth_prefetch_set_free(set);
    memory_cache_free(cache);
}

/* ---- what is refused ---- */

static void what_cannot_be_made_leaves_nothing(void **state)
{
    (void)state;
    fth_prefetch_set *set = open_prefetch_set("photos", &plain);
    fth_job_spec spec = make_spec(set, 8);
    const fth_order good = order_batch(set, &spec, 1);
    fth_prefetch_tools *thread = NULL;
    fth_prefetch_result preparation;
    fth_cache *cache = memory_cache_create();
    assert_int_equal(fth_prefetch_tools_create(set, NULL, &thread), FTH_OK);

    fth_order order = good;
    order.number = 2; /* another batch's id */
    assert_int_equal(prepare(thread, &order, cache, &preparation), FTH_INVALID);
    order = good;
    order.spec.version[0] = order.spec.version[0] == '0' ? '1' : '0';
    assert_int_equal(prepare(thread, &order, cache, &preparation), FTH_IO);
    assert_message_has("has changed");
    order = good;
    order.spec.batch = 1000;
    assert_int_equal(prepare(thread, &order, cache, &preparation), FTH_INVALID);
    static const char *const transforms[] = {"", "flip", "as-is,size=28x28,normalize=none",
                                             "size=1x1,normalize=mnist/2"};
    for (size_t i = 0; i < FTH_COUNT_OF(transforms); i++) {
        snprintf(spec.transform, sizeof spec.transform, "%s", transforms[i]);
        order = order_batch(set, &spec, 1);
        assert_int_equal(prepare(thread, &order, cache, &preparation), FTH_INVALID);
    }
    order = order_sample(&spec, FTH_ITEM_ENCODED, 1000);
    assert_int_equal(prepare(thread, &order, cache, &preparation), FTH_INVALID);

    cache->room_bytes = 1000;
    assert_int_equal(prepare(thread, &good, cache, &preparation), FTH_NO_MEMORY);
    cache->room_bytes = 0;
    cache->refuse = true;
    assert_int_equal(prepare(thread, &good, cache, &preparation), FTH_PEER_LOST);
    assert_int_equal(make_whole_item(thread, &good, cache, fth_deadline_in(0), &preparation), FTH_TIMEOUT);
    assert_int_equal(cache->puts, 0);
    cache->refuse = false;
    assert_int_equal(prepare(thread, &good, cache, &preparation), FTH_OK);
    fth_prefetch_tools_free(thread);
    fth_prefetch_set_free(set);
    memory_cache_free(cache);
}

/* ---- as JSON ---- */

static void orders_and_preparations_are_read_back(void **state)
{
    (void)state;
    fth_prefetch_set *set = open_prefetch_set("digits", &plain);
    fth_job_spec spec = make_spec(set, 8);
    const fth_order orders[] = {order_batch(set, &spec, 3), order_sample(&spec, FTH_ITEM_DECODED, 5)};
    for (size_t i = 0; i < FTH_COUNT_OF(orders); i++) {
        fth_order read;
        json_t *json = fth_order_save(&orders[i]);
        assert_int_equal(fth_order_load(json, &read), FTH_OK);
        assert_true(fth_item_id_equal(read.id, orders[i].id));
        assert_int_equal(read.kind, orders[i].kind);
        assert_int_equal(read.number, orders[i].number);
        assert_string_equal(read.spec.transform, orders[i].spec.transform);
        static const char *const members[] = {"id", "kind", "spec", "number"};
        for (size_t k = 0; k < FTH_COUNT_OF(members); k++) {
            json_t *wrong = json_deep_copy(json);
            json_object_set_new(wrong, members[k], json_string("nonsense"));
            assert_int_equal(fth_order_load(wrong, &read), FTH_INVALID);
            json_object_del(wrong, members[k]);
            assert_int_equal(fth_order_load(wrong, &read), FTH_INVALID);
            json_decref(wrong);
        }
        json_decref(json);
    }
    json_t *other = fth_order_save(&orders[1]);
    fth_order read;
    json_object_set_new(other, "number", json_integer(6)); /* not the id's */
    assert_int_equal(fth_order_load(other, &read), FTH_INVALID);
    json_decref(other);
    assert_int_equal(fth_order_load(NULL, &read), FTH_INVALID);

    const fth_prefetch_result preparation = {.receipt = {{{1, UINT64_MAX}}, 12345, UINT64_C(0xfedcba9876543210)},
                                             .fetch_s = 0.25,
                                             .decode_s = 1.5,
                                             .transform_s = 0.125,
                                             .fetched_bytes = 77,
                                             .samples = 8,
                                             .decoded = 7,
                                             .bad = 1,
                                             .bad_name = "cat/ä.jpg",
                                             .bad_reason = "JPEG: \"cut\""};
    fth_prefetch_result loaded;
    json_t *json = fth_prefetch_result_save(&preparation);
    assert_non_null(json);
    assert_int_equal(fth_prefetch_result_load(json, &loaded), FTH_OK);
    assert_memory_equal(&loaded.receipt, &preparation.receipt, sizeof loaded.receipt);
    assert_true(loaded.fetch_s == 0.25 && loaded.decode_s == 1.5 && loaded.transform_s == 0.125);
    assert_int_equal(loaded.fetched_bytes, 77);
    assert_int_equal(loaded.samples * 100 + loaded.decoded * 10 + loaded.bad, 871);
    assert_string_equal(loaded.bad_name, preparation.bad_name);
    assert_string_equal(loaded.bad_reason, preparation.bad_reason);
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value)
    {
        json_t *wrong = json_deep_copy(json);
        json_object_set_new(wrong, key, json_integer(-1));
        assert_int_equal(fth_prefetch_result_load(wrong, &loaded), FTH_INVALID);
        json_decref(wrong);
    }
    json_decref(json);
    fth_prefetch_set_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_are_as_from_a_loader, write_photos, test_remove_folder),
        cmocka_unit_test(images_in_memory_are_as_from_a_loader),
        cmocka_unit_test_setup_teardown(encoded_samples_are_taken_from_the_cache, write_photos, test_remove_folder),
        cmocka_unit_test_setup_teardown(bad_images_are_replaced_as_in_a_loader, write_photos, test_remove_folder),
        cmocka_unit_test_setup_teardown(long_names_of_bad_images_are_whole, write_photos, test_remove_folder),
        cmocka_unit_test_setup_teardown(unreadable_samples_are_items_with_an_error, write_photos, test_remove_folder),
        cmocka_unit_test_setup_teardown(a_set_of_bad_images_fails, write_photos, test_remove_folder),
        cmocka_unit_test_setup_teardown(what_cannot_be_made_leaves_nothing, write_photos, test_remove_folder),
        cmocka_unit_test(orders_and_preparations_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
